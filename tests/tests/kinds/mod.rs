//! A kind that the product does not have, in a build with one more: everything that is served for
//! the product's own kinds is served for it. The kind is `crates/postern/examples/one_more_kind`.

use std::time::Duration;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{based, secret, secrets};
use postern_tests::{Home, Server, Setup, binary, wait};
use serde_json::{Value, json};

const GROUP: &str = "/apis/management.platform.sh/v1";

async fn start() -> (Server, CliUser) {
    let program = binary::example("one_more_kind");
    let server = Setup::on(&Home::new()).program(program.clone()).start().await;
    let kubeconfig = server.home().kubeconfig();
    let user = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap()).program(program);
    (server, user)
}

fn widgets() -> String {
    based(&format!("{GROUP}/namespaces/platform/widgets"))
}

fn widget(name: &str, size: u32) -> Value {
    json!({
        "apiVersion": "management.platform.sh/v1", "kind": "Widget",
        "metadata": { "name": name }, "spec": { "size": size },
    })
}

async fn create(client: &Client, name: &str) -> Value {
    client.post(&widgets()).json(&widget(name, 3)).send().await.expect(201)
}

#[tokio::test]
async fn discovery_and_openapi_have_the_kind_its_status_and_its_action() {
    let (server, _) = start().await;
    let client = server.client();
    let list = client.get(&based(GROUP)).send().await.expect(200);
    let resources = list["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|one| one["name"] == name).unwrap().clone();
    assert_eq!(find("widgets")["shortNames"], json!(["wd"]));
    assert_eq!(find("widgets/status")["verbs"], json!(["get", "update", "patch"]));
    let paint = find("widgets/paint");
    assert_eq!((&paint["kind"], &paint["verbs"]), (&json!("WidgetPaint"), &json!(["create"])));
    let document = client.get(&based(&format!("/openapi/v3{GROUP}"))).send().await.expect(200);
    let one = format!("{GROUP}/namespaces/{{namespace}}/widgets/{{name}}");
    let operation = |path: String, method: &str| document["paths"][path][method].clone();
    assert_eq!(operation(one.clone(), "put")["x-kubernetes-action"], "update");
    assert!(operation(format!("{one}/status"), "patch").is_object());
    let paint = operation(format!("{one}/paint"), "post");
    let body = &paint["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/sh.platform.management.v1.WidgetPaint");
    let schemas = &document["components"]["schemas"];
    assert!(schemas["sh.platform.management.v1.WidgetPaint"]["properties"]["spec"].is_object());
    let spec = &schemas["sh.platform.management.v1.WidgetSpec"]["properties"];
    assert!(spec["access"].is_object() && spec["size"]["description"].is_string());
    // The subresources of the product's own kinds come from the same table.
    let keys = format!("{GROUP}/users/{{name}}/accesskeys");
    assert_eq!(operation(keys, "get")["x-kubernetes-action"], "get");
    let v2 = client.get(&based("/openapi/v2")).send().await.expect(200);
    assert!(v2["paths"].as_object().unwrap().keys().any(|path| path.ends_with("/paint")));
}

#[tokio::test]
async fn the_object_its_table_and_its_watch() {
    let (server, _) = start().await;
    let client = server.client();
    let refused = client.post(&widgets()).json(&widget("none", 0)).send().await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.size");
    let mut watch = client.watch(&widgets(), "&resourceVersion=0").await;
    let made = create(&client, "a").await;
    assert_eq!(made["spec"]["owner"]["user"], "admin");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = client.get(&widgets()).accept(table).send().await.expect(200);
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Size", "Colour", "Age"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1]), (&json!("a"), &json!(3)));
    let one = format!("{}/a", widgets());
    let paint = json!({ "spec": { "colour": "red" } });
    let painted = client.post(&format!("{one}/paint")).json(&paint).send().await.expect(201);
    assert_eq!((&painted["kind"], &painted["status"]["colour"]), (&json!("Widget"), &json!("red")));
    client.delete(&one).send().await.expect(200);
    assert_eq!(watch.summaries(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[tokio::test]
async fn the_status_is_written_through_its_subresource_alone() {
    let (server, _) = start().await;
    let client = server.client();
    let mut sent = widget("early", 3);
    sent["status"]["colour"] = "red".into();
    let early = client.post(&widgets()).json(&sent).send().await.expect(201);
    assert_eq!(early["status"], json!({}), "a create does not write it, either");
    let mut object = create(&client, "a").await;
    let one = format!("{}/a", widgets());
    object["status"]["colour"] = "red".into();
    object["spec"]["size"] = 5.into();
    let replaced = client.put(&one).json(&object).send().await.expect(200);
    assert_eq!((&replaced["spec"]["size"], &replaced["status"]), (&json!(5), &json!({})));
    assert_eq!(replaced["metadata"]["generation"], 2);
    let mut object = replaced;
    object["status"]["colour"] = "blue".into();
    object["spec"]["size"] = 7.into();
    object["metadata"]["labels"] = json!({ "x": "y" });
    let status = client.put(&format!("{one}/status")).json(&object).send().await.expect(200);
    assert_eq!(status["status"]["colour"], "blue");
    assert_eq!((&status["spec"]["size"], &status["metadata"]["labels"]), (&json!(5), &Value::Null));
    assert_eq!(status["metadata"]["generation"], 2, "the desired state is the same");
    let managers = status["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["subresource"] == "status"), "{managers:?}");
    let change = json!({ "status": { "colour": "green" } });
    client.patch(&one, "merge-patch", &change).send().await.expect(200);
    let read = client.get(&format!("{one}/status")).send().await.expect(200);
    assert_eq!(read["status"]["colour"], "blue");
    client.patch(&format!("{one}/status"), "merge-patch", &change).send().await.expect(200);
    assert_eq!(client.get(&one).send().await.expect(200)["status"]["colour"], "green");
    client.delete(&format!("{one}/status")).send().await.expect(405);
}

#[tokio::test]
async fn an_action_says_what_is_wrong_and_stores_nothing_in_a_dry_run() {
    let (server, _) = start().await;
    let client = server.client();
    create(&client, "a").await;
    let paint = |name: &str| format!("{}/{name}/paint", widgets());
    let red = json!({ "spec": { "colour": "red" } });
    let missing = client.post(&paint("a")).json(&json!({})).send().await.expect(422);
    assert_eq!(missing["details"]["causes"][0]["field"], "spec.colour");
    client.post(&paint("nothing")).json(&red).send().await.expect(404);
    client.get(&paint("a")).send().await.expect(405);
    client.post(&format!("{}/a/nothing", widgets())).json(&red).send().await.expect(404);
    let typo = json!({ "spec": { "color": "red" } });
    let strict = format!("{}?fieldValidation=Strict", paint("a"));
    let strict = client.post(&strict).json(&typo).send().await.expect(400);
    assert!(strict["message"].as_str().unwrap().contains("spec.color"), "{strict}");
    let dry =
        client.post(&format!("{}?dryRun=All", paint("a"))).json(&red).send().await.expect(201);
    assert_eq!(dry["status"]["colour"], "red");
    let stored = client.get(&format!("{}/a", widgets())).send().await.expect(200);
    assert_eq!(stored["status"], json!({}));
    // A caller without the permission is refused before anything is looked at.
    client
        .post(&based(&format!("{GROUP}/users")))
        .json(&json!({ "metadata": { "name": "ada" } }))
        .send()
        .await
        .expect(201);
    let key = json!({ "metadata": { "name": "ada-key" }, "spec": { "user": "ada" } });
    let key = client
        .post(&based(&format!("{GROUP}/ownedaccesskeys")))
        .json(&key)
        .send()
        .await
        .expect(201);
    let ada = client.with_token(key["spec"]["key"].as_str().unwrap());
    let refused = ada.post(&paint("a")).json(&red).send().await.expect(403);
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("cannot create resource \"widgets/paint\""), "{text}");
}

#[tokio::test]
async fn the_command_line_serves_it() {
    let (server, user) = start().await;
    let file = user.file("widgets.yaml", "apiVersion: management.platform.sh/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 3}\n---\napiVersion: management.platform.sh/v1\nkind: Widget\nmetadata: {name: b}\nspec: {size: 4}\n");
    let made = user.ok(&["create", "-f", &file, "-o", "name"]).await;
    assert_eq!(made, "widget.management.platform.sh/a\nwidget.management.platform.sh/b\n");
    for words in [["list", "widgets"], ["list", "wd"]] {
        let table = user.ok(&words).await;
        assert!(
            table.contains("SIZE") && table.contains("COLOUR") && table.contains('b'),
            "{table}"
        );
    }
    let json: Value =
        serde_json::from_str(&user.ok(&["get", "widget", "a", "-o", "json"]).await).unwrap();
    assert_eq!(json["spec"]["size"], 3);
    user.ok(&["delete", "widget", "a", "b"]).await;
    let client = server.client();
    let left = client.get(&widgets()).send().await.expect(200);
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn garbage_collection_follows_its_owner_references_both_ways() {
    let (server, _) = start().await;
    let client = server.client();
    let owner = create(&client, "owner").await;
    let refer = |to: &Value| {
        json!([{
            "apiVersion": to["apiVersion"], "kind": to["kind"],
            "name": to["metadata"]["name"], "uid": to["metadata"]["uid"],
        }])
    };
    let mut middle = secret("middle", "v");
    middle["metadata"]["ownerReferences"] = refer(&owner);
    let middle = client.post(&secrets("platform")).json(&middle).send().await.expect(201);
    let mut last = widget("last", 1);
    last["metadata"]["ownerReferences"] = refer(&middle);
    client.post(&widgets()).json(&last).send().await.expect(201);
    client.delete(&format!("{}/owner", widgets())).send().await.expect(200);
    let gone = async {
        while client.get(&format!("{}/last", widgets())).send().await.status != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait::within("the last dependent to go", gone).await;
}

#[tokio::test]
async fn the_audit_log_has_it() {
    let (server, _) = start().await;
    let client = server.client();
    create(&client, "a").await;
    let paint = json!({ "spec": { "colour": "red" } });
    client.post(&format!("{}/a/paint", widgets())).json(&paint).send().await.expect(201);
    let log = server.home().data().join("audit/audit.log");
    let recorded = async {
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            let mut events =
                text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let painted = events.any(|event| {
                let object = &event["objectRef"];
                object["resource"] == "widgets"
                    && object["subresource"] == "paint"
                    && object["name"] == "a"
                    && event["responseStatus"]["code"] == 201
            });
            if painted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait::within("the action to be in the audit log", recorded).await;
}
