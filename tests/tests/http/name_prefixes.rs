//! Lists and watches by a prefix of names: `fieldSelector=metadata.name^=db`.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, name_of, secret, secrets, version_of};
use postern_tests::rights::{allow, rule, rule_on, user};
use postern_tests::status::failure;
use postern_tests::wait;
use postern_tests::watching::Event;
use serde_json::{Value, json};

use super::selectors::escaped;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

async fn filled() -> Server {
    let server = Server::start().await;
    for name in ["api", "db", "db-east", "db-west", "dc"] {
        server
            .client()
            .post(&secrets("platform"))
            .json(&secret(name, "v"))
            .send()
            .await
            .expect(201);
    }
    server
}

fn by_prefix(collection: &str, prefix: &str) -> String {
    format!("{collection}?fieldSelector={}", escaped(&format!("metadata.name^={prefix}")))
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("a list has items").iter().map(name_of).collect()
}

#[tokio::test]
async fn a_prefix_selects_in_each_format_and_in_pages() {
    let server = filled().await;
    let client = server.client();
    let path = by_prefix(&secrets("platform"), "db");
    let list = client.get(&path).send().await.expect(200);
    assert_eq!(names(&list), ["db", "db-east", "db-west"]);
    let everywhere = by_prefix(&format!("{GROUP}/sharedsecrets"), "db-");
    assert_eq!(names(&client.get(&everywhere).send().await.expect(200)), ["db-east", "db-west"]);
    let partial = client.get(&path).accept(PARTIAL_LIST).send().await.expect(200);
    assert_eq!(names(&partial), ["db", "db-east", "db-west"]);
    let table = client.get(&format!("{path}&limit=2")).accept(TABLE).send().await.expect(200);
    let cells = |table: &Value| -> Vec<String> {
        let rows = table["rows"].as_array().unwrap().iter();
        rows.map(|row| row["cells"][0].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(cells(&table), ["db", "db-east"]);
    assert_eq!(table["metadata"]["remainingItemCount"], 1);
    let token = table["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{path}&limit=2&continue={token}")).accept(TABLE).send().await;
    let rest = rest.expect(200);
    assert_eq!(cells(&rest), ["db-west"]);
    assert!(rest["metadata"].get("continue").is_none());
    // Kinds without a namespace, and an object whose whole name is the prefix, on a page of its own.
    let users = by_prefix(&format!("{GROUP}/users"), "adm");
    assert_eq!(names(&client.get(&users).send().await.expect(200)), ["admin"]);
    let one = client.get(&format!("{path}&limit=1")).send().await.expect(200);
    let token = one["metadata"]["continue"].as_str().unwrap();
    let next = client.get(&format!("{path}&limit=1&continue={token}")).send().await.expect(200);
    assert_eq!(names(&next), ["db-east"]);
}

#[tokio::test]
async fn a_watch_by_a_prefix_follows_these_names() {
    let server = filled().await;
    let client = server.client();
    let version = version_of(&client.get(&secrets("platform")).send().await.expect(200));
    let selector = escaped("metadata.name^=db");
    let query = format!("&resourceVersion={version}&fieldSelector={selector}");
    let mut watch = client.watch(&secrets("platform"), &query).await;
    for name in ["dba", "da"] {
        client.post(&secrets("platform")).json(&secret(name, "v")).send().await.expect(201);
    }
    // A deletion of the names with the prefix takes no other.
    let deleted = client.delete(&by_prefix(&secrets("platform"), "db-")).send().await.expect(200);
    assert_eq!(names(&deleted), ["db-east", "db-west"]);
    let events = watch.take(3).await;
    let summaries: Vec<_> = events.iter().map(Event::summary).collect();
    assert_eq!(summaries, ["ADDED dba", "DELETED db-east", "DELETED db-west"]);
    let left = client.get(&secrets("platform")).send().await.expect(200);
    assert_eq!(names(&left), ["api", "da", "db", "dba", "dc"]);
}

#[tokio::test]
async fn other_forms_of_a_prefix_are_bad_requests() {
    let server = filled().await;
    let client = server.client();
    for selector in [
        "metadata.namespace^=plat",
        "metadata.name^==db",
        "metadata.name^!=db",
        "metadata.name^db",
        "metadata.name^^=db",
        "metadata.uid^=a",
    ] {
        let query = format!("?fieldSelector={}", escaped(selector));
        for path in [secrets("platform"), format!("{GROUP}/users")] {
            let text = failure(&client.get(&format!("{path}{query}")).send().await);
            assert!(text.starts_with("400 BadRequest\n"), "{selector:?}: {text}");
            let watch = client.get(&format!("{path}{query}&watch=1")).send().await;
            assert!(failure(&watch).starts_with("400 BadRequest\n"), "{selector:?} watches");
        }
    }
}

/// A prefix is never a name: it needs the permission to list the collection, and lists what the caller may see.
#[tokio::test]
async fn a_list_by_a_prefix_is_authorized_as_a_list() {
    let server = filled().await;
    let admin = server.client();
    let status = async |client: &Client, selector: &str| {
        let path = format!("{}?fieldSelector={}", secrets("platform"), escaped(selector));
        client.get(&path).send().await
    };
    let named = user(&admin, "ada").await;
    let rules = json!([rule_on("sharedsecrets", &["db"], &["get", "list", "watch"])]);
    allow(&admin, "one-name", Some("platform"), rules, "platform:user:ada").await;
    assert_eq!(status(&named, "metadata.name=db").await.status, 200);
    let seen = status(&named, "metadata.name^=d").await.expect(200);
    assert_eq!(names(&seen), ["db"], "only what the caller may see");
    let all = user(&admin, "eve").await;
    let rules = json!([rule(&["sharedsecrets"], &["get", "list"])]);
    allow(&admin, "all-names", Some("platform"), rules, "platform:user:eve").await;
    let seen = status(&all, "metadata.name^=d").await.expect(200);
    assert_eq!(names(&seen), ["db", "db-east", "db-west", "dc"]);
    let is_with_prefix = |record: &Value| {
        let uri = record["requestURI"].as_str();
        uri.is_some_and(|uri| uri.contains(&escaped("metadata.name^=d")))
    };
    let records = wait::until("both lists in the audit log", async || {
        let mut records = server.home().records();
        records.retain(is_with_prefix);
        (records.len() >= 2).then_some(records)
    })
    .await;
    for record in &records {
        assert_eq!(record["verb"], "list");
        assert!(record["objectRef"].get("name").is_none(), "{record}");
    }
}
