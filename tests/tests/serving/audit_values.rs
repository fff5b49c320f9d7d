//! Whether the audit log says that values of secrets were sent, and of which, for every way in which they leave.

use std::collections::BTreeMap;

use postern_tests::http::{Client, Request};
use postern_tests::objects::{
    CORE, GROUP, create, make, secret, secret_path, secrets, value_of, version_of,
};
use postern_tests::rights::{allow, rule, user};
use postern_tests::{Home, Server, wait};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn id(number: usize) -> String {
    format!("5f0c1f6e-2b0a-4a56-9c39-{number:012}")
}

/// What the last record of each request says: about values, and about objects.
async fn said(home: &Home, count: usize) -> BTreeMap<String, String> {
    wait::until("the records of all requests", async || {
        let records = home.records();
        let ended = records.iter().filter(|record| record["stage"] == "ResponseComplete");
        let of_test =
            ended.filter(|record| record["auditID"].as_str().unwrap().starts_with("5f0c1f6e"));
        let said: BTreeMap<_, _> = of_test
            .map(|record| {
                let note = |name: &str| record["annotations"][name].as_str().map(str::to_owned);
                let values = note("platform.sh/values").unwrap_or_else(|| "-".to_owned());
                let objects = note("platform.sh/objects");
                let left_out =
                    note("platform.sh/objects-left-out").map(|count| format!("+{count}"));
                let parts = [Some(values), objects, left_out].into_iter().flatten();
                let id = record["auditID"].as_str().unwrap().to_owned();
                (id, parts.collect::<Vec<_>>().join(" "))
            })
            .collect();
        (said.len() >= count).then_some(said)
    })
    .await
}

/// Sends the requests one by one, and compares what their records say.
async fn check(home: &Home, requests: Vec<(&str, Request<'_>, u16, &str)>) {
    let mut wanted = Vec::new();
    let first = said(home, 0).await.len();
    for (number, (what, request, code, says)) in (first..).zip(requests) {
        let reply = request.header("audit-id", &id(number)).send().await;
        assert_eq!(reply.status, code, "{what}: {}", reply.text());
        wanted.push((number, what, says));
    }
    let said = said(home, first + wanted.len()).await;
    for (number, what, says) in wanted {
        assert_eq!(said[&id(number)], says, "{what}");
    }
}

/// The secrets of the test: `db` with a value, `none` without one, and `applied` with a copy in its metadata.
async fn make_secrets(admin: &Client) {
    admin.post(&secrets("platform")).json(&secret("db", "v")).send().await.expect(201);
    create(admin, &secrets("platform"), "none", json!({ "spec": { "displayName": "x" } })).await;
    let applied = json!({ "metadata": { "annotations": { APPLIED: "{\"spec\":{\"data\":{}}}" } } });
    create(admin, &secrets("platform"), "applied", applied).await;
}

#[tokio::test]
async fn reads_say_whether_they_sent_values() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    make_secrets(&admin).await;
    make(&admin, "projects", "shop", json!({})).await;
    let of_project = format!("{GROUP}/namespaces/p-shop/projectsecrets");
    let data = json!({ "spec": { "data": { "k": "dg==" } } });
    create(&admin, &of_project, "ps", data).await;
    let core = format!("{CORE}/namespaces/platform/secrets");
    create(&admin, &core, "c", json!({ "data": { "k": "dg==" } })).await;
    let maps = format!("{CORE}/namespaces/platform/configmaps");
    create(&admin, &maps, "m", json!({ "data": { "k": "v" } })).await;
    let stranger = user(&admin, "eve").await;
    let (all, db) = (secrets("platform"), secret_path("db"));
    let past = admin.get(&db).send().await.expect(200);
    let past = format!("{all}?resourceVersion={}&resourceVersionMatch=Exact", version_of(&past));
    let with = |suffix: &str| format!("{db}{suffix}");
    let get = |path: &str| admin.get(path);
    let both = "true platform/applied,platform/db";
    check(
        home,
        vec![
            ("get", get(&db), 200, "true"),
            ("get of the cache", get(&with("?resourceVersion=0")), 200, "true"),
            ("get as YAML", get(&db).accept("application/yaml"), 200, "true"),
            ("head", admin.request("HEAD", &db), 200, "false"),
            ("row", get(&db).accept(TABLE), 200, "false"),
            ("row of all", get(&with("?includeObject=Object")).accept(TABLE), 200, "true"),
            ("metadata", get(&db).accept(METADATA), 200, "false"),
            ("copy in metadata", get(&secret_path("applied")).accept(METADATA), 200, "true"),
            ("get without data", get(&secret_path("none")), 200, "false"),
            ("missing", get(&secret_path("nothing")), 404, "false"),
            ("hidden", stranger.get(&db), 404, "false"),
            ("invalid", get(&with("?resourceVersion=x")), 400, "false"),
            ("entries", get(&with("/entries")), 200, "false"),
            ("entry", get(&with("/entry?name=value")), 200, "true"),
            ("entry as a row", get(&with("/entry?name=value")).accept(TABLE), 200, "false"),
            ("missing entry", get(&with("/entry?name=x")), 404, "false"),
            ("list", get(&all), 200, both),
            ("list as YAML", get(&all).accept("application/yaml"), 200, both),
            ("list everywhere", get(&format!("{GROUP}/sharedsecrets")), 200, both),
            ("past list", get(&past), 200, "true platform/db"),
            ("page", get(&format!("{all}?limit=1")), 200, "true platform/applied"),
            (
                "one by selector",
                get(&format!("{all}?fieldSelector=metadata.name%3Ddb")),
                200,
                "true platform/db",
            ),
            ("no values", get(&format!("{all}?fieldSelector=metadata.name%3Dnone")), 200, "false"),
            ("empty list", get(&format!("{all}?labelSelector=a%3Db")), 200, "false"),
            ("list of a stranger", stranger.get(&all), 200, "false"),
            ("table with a copy", get(&all).accept(TABLE), 200, "true platform/applied"),
            ("cells", get(&format!("{all}?includeObject=None")).accept(TABLE), 200, "false"),
            ("table of all", get(&format!("{all}?includeObject=Object")).accept(TABLE), 200, both),
            ("list of metadata", get(&all).accept(METADATA_LIST), 200, "true platform/applied"),
            ("project secret", get(&format!("{of_project}/ps")), 200, "true"),
            ("its status", get(&format!("{of_project}/ps/status")), 200, "true"),
            ("project secrets", get(&of_project), 200, "true p-shop/ps"),
            ("core secret", get(&format!("{core}/c")), 200, "true"),
            ("core secrets", get(&core).accept(TABLE), 200, "false"),
            ("another kind", get(&format!("{maps}/m")), 200, "-"),
        ],
    )
    .await;
    assert_eq!(value_of(&admin.get(&db).send().await.expect(200)), "v");
}

#[tokio::test]
async fn writes_say_whether_their_responses_had_values() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    make_secrets(&admin).await;
    let writer = user(&admin, "writer").await;
    let verbs = ["create", "update", "patch", "delete", "deletecollection"];
    let rules = json!([rule(&["sharedsecrets"], &verbs)]);
    allow(&admin, "write", Some("platform"), rules, "platform:user:writer").await;
    let (all, db) = (secrets("platform"), secret_path("db"));
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    let kept = json!({ "metadata": { "finalizers": ["example.com/kept"] } });
    let mut replaced = admin.get(&db).send().await.expect(200);
    replaced["spec"]["displayName"] = "x".into();
    let applied = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret", "spec": { "description": "y" } });
    let dry = |path: &str| format!("{path}?dryRun=All");
    let apply = admin.request("PATCH", &format!("{db}?fieldManager=m"));
    let apply = apply.body("application/apply-patch+yaml", applied.to_string());
    check(
        home,
        vec![
            ("patch", admin.patch(&db, "merge-patch", &labelled), 200, "true"),
            ("patch as a row", admin.patch(&db, "merge-patch", &kept).accept(TABLE), 200, "false"),
            ("patch of a writer", writer.patch(&db, "merge-patch", &labelled), 200, "false"),
            ("dry run", admin.patch(&dry(&db), "merge-patch", &labelled), 200, "true"),
            (
                "dry run of a writer",
                writer.patch(&dry(&db), "merge-patch", &labelled),
                200,
                "false",
            ),
            ("apply", apply, 200, "true"),
            ("conflict", admin.put(&db).json(&replaced), 409, "false"),
            ("create", admin.post(&all).json(&secret("a", "v")), 201, "true"),
            ("create of a dry run", admin.post(&dry(&all)).json(&secret("b", "v")), 201, "true"),
            ("create of another", admin.post(&all).json(&secret("new", "v")), 201, "true"),
            ("taken", admin.post(&all).json(&secret("a", "v")), 409, "false"),
            ("delete with a finalizer", admin.delete(&db), 200, "true"),
            ("delete of a writer", writer.delete(&db), 200, "false"),
            ("delete", admin.delete(&secret_path("a")), 200, "false"),
            (
                "delete of a collection by a writer",
                writer.delete(&format!("{all}?labelSelector=a%3Db")),
                200,
                "false",
            ),
            (
                "delete of a collection",
                admin.delete(&format!("{all}?fieldSelector=metadata.name%3Dnew")),
                200,
                "true platform/new",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn long_lists_count_their_secrets_and_watches_end_with_theirs() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    make_secrets(&admin).await;
    for number in 0..19 {
        let more = secret(&format!("x{number}"), "v");
        admin.post(&secrets("platform")).json(&more).send().await.expect(201);
    }
    let all = secrets("platform");
    let twenty = admin.get(&format!("{all}?limit=20")).send().await.expect(200);
    let with_values =
        twenty["items"].as_array().unwrap().iter().filter(|one| one["metadata"]["name"] != "none");
    let names: Vec<_> = with_values
        .map(|one| format!("platform/{}", one["metadata"]["name"].as_str().unwrap()))
        .collect();
    let wanted = format!("true {}", names.join(","));
    check(
        home,
        vec![
            ("list", admin.get(&all), 200, "true +22"),
            ("page", admin.get(&format!("{all}?limit=20")), 200, &wanted),
            ("table", admin.get(&all).accept(TABLE), 200, "true +22"),
            ("cells", admin.get(&format!("{all}?includeObject=None")).accept(TABLE), 200, "false"),
        ],
    )
    .await;
    let version = version_of(&admin.get(&all).send().await.expect(200));
    let selected = "fieldSelector=metadata.name%3Ddb";
    for (index, (query, accept, events, says)) in [
        (format!("watch=true&{selected}"), "application/json", 1, "true platform/db"),
        ("watch=true".to_owned(), "application/json", 22, "true +21"),
        (format!("watch=true&{selected}"), TABLE, 1, "false"),
        (
            format!("watch=true&{selected}&resourceVersion={version}"),
            "application/json",
            0,
            "false",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = id(100 + index);
        let request = admin.get(&format!("{all}?{query}")).accept(accept).header("audit-id", &id);
        let mut lines = request.stream().await;
        for _ in 0..events {
            lines.next().await.unwrap().unwrap();
        }
        let of_watch =
            || home.records().into_iter().filter(|record| record["auditID"] == id.as_str());
        let started: Vec<Value> = wait::until("the first record", async || {
            let records: Vec<_> = of_watch().collect();
            (!records.is_empty()).then_some(records)
        })
        .await;
        assert_eq!(started[0]["annotations"]["platform.sh/values"], json!(null), "not known yet");
        drop(lines);
        let said = said(home, 4 + index + 1).await;
        assert_eq!(said[&id], says, "{query} as {accept}");
    }
}
