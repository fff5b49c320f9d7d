//! The formats for kubectl's output and for metadata informers: `Table` and `PartialObjectMetadata`, on get, list
//! and watch.

use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets, version_of};
use postern_tests::status::failure;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

async fn with_two() -> Server {
    let server = Server::start().await;
    for name in ["a", "b"] {
        let mut object = secret(name, "canary");
        object["metadata"]["labels"] = json!({"app": "shop"});
        server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    server
}

fn no_secret_in(value: &Value) {
    assert!(!value.to_string().contains("Y2FuYXJ5"), "a value is in {value}");
}

#[tokio::test]
async fn a_list_is_a_table_on_request() {
    let server = with_two().await;
    let reply = server
        .client()
        .get(&format!("{}?limit=500", secrets("platform")))
        .accept(TABLE)
        .send()
        .await;
    let table = reply.expect(200);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert!(version_of(&table) > 0);
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns[0]["name"], "Name");
    assert_eq!(columns[0]["format"], "name");
    for column in columns {
        for field in ["name", "type", "format", "description", "priority"] {
            assert!(column.get(field).is_some(), "a column without {field}: {column}");
        }
    }
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, name) in rows.iter().zip(["a", "b"]) {
        assert_eq!(row["cells"][0], name);
        assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(row["object"]["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(row["object"]["metadata"]["name"], name);
        assert_eq!(row["object"]["metadata"]["labels"]["app"], "shop");
    }
    no_secret_in(&table);
}

#[tokio::test]
async fn the_rows_contain_the_requested_object() {
    let server = with_two().await;
    let client = server.client();
    let collection = secrets("platform");
    let table = async |include: &str| {
        let path = format!("{collection}?includeObject={include}");
        client.get(&path).accept(TABLE).send().await
    };
    let none = table("None").await.expect(200);
    assert!(none["rows"][0].get("object").is_none_or(Value::is_null));
    let metadata = table("Metadata").await.expect(200);
    assert_eq!(metadata["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let object = table("Object").await.expect(200);
    assert_eq!(object["rows"][0]["object"]["kind"], "SharedSecret");
    let text = failure(&table("Everything").await);
    assert!(text.starts_with("400 BadRequest\n"), "{text}");
}

#[tokio::test]
async fn one_object_is_a_table_of_one_row() {
    let server = with_two().await;
    let client = server.client();
    for accept in [TABLE, "application/json;as=Table;g=meta.k8s.io;v=v1beta1"] {
        let table = client.get(&secret_path("a")).accept(accept).send().await.expect(200);
        assert_eq!(table["kind"], "Table");
        let version = if accept == TABLE { "meta.k8s.io/v1" } else { "meta.k8s.io/v1beta1" };
        assert_eq!(table["apiVersion"], version);
        assert_eq!(table["rows"].as_array().unwrap().len(), 1);
        assert_eq!(table["rows"][0]["cells"][0], "a");
    }
    let made = client.post(&secrets("platform")).accept(TABLE).json(&secret("c", "v")).send().await;
    assert_eq!(made.expect(201)["kind"], "Table");
}

#[tokio::test]
async fn a_watched_table_defines_its_columns_once() {
    let server = with_two().await;
    let client = server.client();
    let path = format!(
        "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        secrets("platform")
    );
    let lines = client.get(&path).accept(TABLE).stream().await;
    let mut watch = postern_tests::watching::Watch::new(lines);
    client.delete(&secret_path("a")).send().await.expect(200);
    let events = watch.take(4).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK", "DELETED"]);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.object["kind"], "Table");
        let columns = event.object["columnDefinitions"].as_array().map_or(0, Vec::len);
        assert_eq!(columns > 0, index == 0, "columns only in the first event");
        no_secret_in(&event.object);
    }
    let annotations = &events[2].object["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(events[3].object["rows"][0]["cells"][0], "a");
}

#[tokio::test]
async fn partial_object_metadata_has_only_metadata() {
    let server = with_two().await;
    let client = server.client();
    let one = client.get(&secret_path("a")).accept(PARTIAL).send().await.expect(200);
    assert_eq!(one["kind"], "PartialObjectMetadata");
    assert_eq!(one["apiVersion"], "meta.k8s.io/v1");
    let full = client.get(&secret_path("a")).send().await.expect(200);
    assert_eq!(one["metadata"], full["metadata"]);
    assert!(one.get("spec").is_none());
    let list = client.get(&secrets("platform")).accept(PARTIAL_LIST).send().await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    no_secret_in(&one);
    no_secret_in(&list);
    let path = format!("{}?watch=true&resourceVersion=0", secrets("platform"));
    let lines = client.get(&path).accept(PARTIAL).stream().await;
    let mut watch = postern_tests::watching::Watch::new(lines);
    for event in watch.take(2).await {
        assert_eq!(event.object["kind"], "PartialObjectMetadata");
        no_secret_in(&event.object);
    }
}

#[tokio::test]
async fn the_format_of_one_object_is_not_acceptable_for_a_list() {
    let server = with_two().await;
    let client = server.client();
    let singular = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let text = failure(&client.get(&secrets("platform")).accept(singular).send().await);
    assert!(text.starts_with("406 NotAcceptable\n"), "{text}");
    let plural = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let text = failure(&client.get(&secret_path("a")).accept(plural).send().await);
    assert!(text.starts_with("406 NotAcceptable\n"), "{text}");
}
