//! Aggregated discovery: requested with `Accept`, on the paths of the plain lists.

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::based;
use serde_json::{Value, json};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const BETA: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

async fn ask(client: &Client, path: &str, accept: &str) -> Response {
    client.get(&based(path)).header("accept", accept).send().await
}

#[tokio::test]
async fn it_equals_the_plain_lists() {
    let server = Server::start().await;
    let client = server.client();
    for (accept, version) in [(V2, "v2"), (BETA, "v2beta1")] {
        for path in ["/api", "/apis"] {
            let reply = ask(&client, path, accept).await;
            assert_eq!(reply.header("content-type"), Some(accept));
            let document = reply.expect(200);
            assert_eq!(document["kind"], "APIGroupDiscoveryList");
            assert_eq!(document["apiVersion"], format!("apidiscovery.k8s.io/{version}"));
            for group in document["items"].as_array().unwrap() {
                check_group(&client, path, group).await;
            }
        }
    }
    let groups = ask(&client, "/apis", V2).await.expect(200);
    let plain: Value = client.get(&based("/apis")).send().await.expect(200);
    let named = |list: &Value, name: fn(&Value) -> Value| {
        list.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    let aggregated = named(&groups["items"], |item| item["metadata"]["name"].clone());
    assert_eq!(aggregated, named(&plain["groups"], |group| group["name"].clone()));
    let core = ask(&client, "/api", V2).await.expect(200);
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert_eq!(core["items"][0]["metadata"]["name"], "");
}

/// Compares a group with the `APIResourceList` of each of its versions.
async fn check_group(client: &Client, root: &str, group: &Value) {
    let name = group["metadata"]["name"].as_str().unwrap();
    for version in group["versions"].as_array().unwrap() {
        assert_eq!(version["freshness"], "Current");
        let number = version["version"].as_str().unwrap();
        let group_path = if root == "/api" { String::new() } else { format!("/{name}") };
        let path = based(&format!("{root}{group_path}/{number}"));
        let list: Value = client.get(&path).send().await.expect(200);
        let resources = version["resources"].as_array().unwrap();
        for plain in list["resources"].as_array().unwrap() {
            let plain_name = plain["name"].as_str().unwrap();
            let parent = plain_name.split('/').next().unwrap();
            let found = resources.iter().find(|resource| resource["resource"] == parent);
            let mut found = found.expect("every resource").clone();
            let scope = if plain["namespaced"] == true { "Namespaced" } else { "Cluster" };
            assert_eq!(found["scope"], scope);
            if let Some((_, sub)) = plain_name.split_once('/') {
                let subs = found["subresources"].as_array().unwrap().clone();
                found = subs.into_iter().find(|known| known["subresource"] == sub).unwrap();
            } else {
                assert_eq!(found["singularResource"], plain["singularName"]);
                assert_eq!(found.get("shortNames"), plain.get("shortNames"));
                assert_eq!(found.get("categories"), plain.get("categories"));
                assert_eq!(found["responseKind"]["group"], name);
            }
            assert_eq!(found["responseKind"]["kind"], plain["kind"]);
            assert_eq!(found["verbs"], plain["verbs"]);
        }
    }
}

#[tokio::test]
async fn old_and_new_clients_get_a_format_that_they_know() {
    let server = Server::start().await;
    let client = server.client();
    let plain = "application/json";
    let nopeer = format!("{V2};profile=nopeer");
    for (accept, want) in [
        (format!("{V2},{BETA},{plain}"), V2),
        (format!("{BETA},{plain}"), BETA),
        (format!("{V2},{plain}"), V2),
        (format!("{nopeer},{V2},{plain}"), &nopeer),
        (plain.to_owned(), plain),
        (format!("{plain},{V2}"), plain),
        (format!("{V2};q=0.5,{plain}"), plain),
        ("*/*".to_owned(), plain),
        ("application/yaml".to_owned(), "application/yaml"),
        (format!("{},{plain}", V2.replace("v=v2", "v=v3")), plain),
        (format!("{},{plain}", V2.replace("/json", "/vnd.kubernetes.protobuf")), plain),
    ] {
        for path in ["/api", "/apis"] {
            let reply = ask(&client, path, &accept).await;
            assert_eq!(reply.status, 200, "{accept}");
            assert_eq!(reply.header("content-type"), Some(want), "{accept}");
            assert_eq!(reply.header("vary"), Some("Accept"), "{accept}");
        }
    }
    assert_eq!(ask(&client, "/apis", &V2.replace("v=v2", "v=v3")).await.status, 406);
}

#[tokio::test]
async fn it_has_an_etag() {
    let server = Server::start().await;
    let client = server.client();
    for path in ["/api", "/apis"] {
        let reply = ask(&client, path, V2).await;
        assert_eq!(reply.header("cache-control"), Some("public"));
        let tag = reply.header("etag").expect("an etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let get = client.get(&based(path)).header("accept", V2).header("if-none-match", &tag);
        let again = get.send().await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        assert_eq!(again.header("etag"), Some(tag.as_str()));
    }
    let kinds = ask(&client, "/apis", V2).await.expect(200);
    let ours = kinds["items"].as_array().unwrap().iter();
    let ours = ours.filter(|item| item["metadata"]["name"] == "management.platform.sh");
    let resources = ours.flat_map(|item| item["versions"][0]["resources"].as_array().unwrap());
    let shared = resources.into_iter().find(|found| found["resource"] == "sharedsecrets").unwrap();
    assert_eq!(shared["shortNames"], json!(["ss"]));
}
