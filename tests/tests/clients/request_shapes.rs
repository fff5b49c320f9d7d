//! Clients that cannot be run here: their requests, replayed as they send them, and what they read of the
//! answers. What each one sends is in the wire contract.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{BASE, CORE, GROUP, based, secret, secret_path, secrets};
use postern_tests::rights::{allow, rule, user};
use serde_json::{Value, json};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

async fn with_secret() -> (Server, Client) {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("db", "hidden")).send().await.expect(201);
    (server, client)
}

async fn read(client: &Client, path: &str) -> Value {
    client.get(&based(path)).send().await.expect(200)
}

/// All versions of groups, the core one included, as a client discovers them that knows no aggregation.
async fn versions(client: &Client) -> Vec<String> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in read(client, "/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    versions
}

/// Asks whether the caller may do something, as client libraries do.
async fn may(client: &Client, attributes: Value) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let path = based(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"));
    let answer = client.post(&path).json(&review).send().await.expect(201);
    answer["status"]["allowed"].as_bool().unwrap()
}

/// `kubernetes_manifest` reads the schema of version 2 as JSON, looks up `ObjectMeta` in it by its id, and
/// lists custom resource definitions; after a deletion it waits for a 404.
#[tokio::test]
async fn terraform() {
    let (_server, client) = with_secret().await;
    read(&client, "/apis").await;
    let schema =
        client.get(&based("/openapi/v2")).accept("application/json").send().await.expect(200);
    let definitions = schema["definitions"].as_object().unwrap();
    assert!(
        definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]["name"]
            .is_object()
    );
    let is_ours = |definition: &Value| {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        let wanted =
            json!({ "group": "management.platform.sh", "version": "v1", "kind": "SharedSecret" });
        kinds.is_some_and(|kinds| kinds.contains(&wanted))
    };
    let spec = definitions.values().find(|definition| is_ours(definition)).expect("our kind");
    assert!(spec["properties"]["metadata"].is_object());
    let definitions =
        read(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
    assert_eq!(definitions["items"], json!([]));
    client.delete(&secret_path("db")).send().await.expect(200);
    let gone = client.get(&secret_path("db")).send().await.expect(404);
    assert_eq!(gone["reason"], "NotFound");
}

/// gitops-engine discovers everything, reads schema 2 as protobuf, lists each kind in pages of 500, and
/// watches each from there.
#[tokio::test]
async fn argo_cd() {
    let (_server, client) = with_secret().await;
    read(&client, "/version").await;
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let schema = client.get(&based("/openapi/v2")).accept(protobuf).send().await;
    assert_eq!(schema.status, 200);
    assert!(schema.header("content-type").unwrap().contains("proto-openapi"));
    let mut count = 0;
    for version in versions(&client).await {
        for resource in read(&client, &version).await["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if !verbs.contains(&json!("list")) || !verbs.contains(&json!("watch")) {
                continue;
            }
            let path = based(&format!("{version}/{}", resource["name"].as_str().unwrap()));
            let list = client.get(&format!("{path}?limit=500")).send().await.expect(200);
            let at = list["metadata"]["resourceVersion"].as_str().expect("a list has a version");
            for item in list["items"].as_array().expect("a list has items, even if none") {
                assert_eq!(item["kind"], resource["kind"], "items say what they are");
                assert!(item["metadata"]["uid"].is_string(), "{path}");
            }
            let query = format!("&resourceVersion={at}&allowWatchBookmarks=true&timeoutSeconds=1");
            let events = client.watch(&path, &query).await.rest().await;
            assert!(events.iter().all(|event| event.kind == "BOOKMARK"), "{path}: {events:?}");
            count += 1;
        }
    }
    assert!(count > 15, "{count} kinds");
}

/// Flux's library rewrites managed fields by JSON Patch, and waits until an object is current: one without a
/// status is.
#[tokio::test]
async fn flux() {
    let (_server, client) = with_secret().await;
    let object = client.get(&secret_path("db")).send().await.expect(200);
    let mut fields = object["metadata"]["managedFields"].clone();
    fields[0]["manager"] = "kustomize-controller".into();
    let patch = json!([{ "op": "replace", "path": "/metadata/managedFields", "value": fields }]);
    let to = format!("{}?fieldManager=kustomize-controller", secret_path("db"));
    let answer = client.patch(&to, "json-patch", &patch).send().await.expect(200);
    let managers = answer["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|one| one["manager"] == "kustomize-controller"), "{managers:?}");
    assert_eq!(answer["spec"], object["spec"]);
    assert!(object["status"].get("observedGeneration").is_none());
    assert_eq!(object["metadata"]["generation"], 1);
}

/// The provider `kubernetes` reads core Secrets and asks what it may do; the provider `crd` gets an object of
/// any kind, after discovery; the provider `webhook` reads one by a plain GET.
#[tokio::test]
async fn external_secrets() {
    let (_server, admin) = with_secret().await;
    let core = json!({ "metadata": { "name": "app" }, "stringData": { "token": "hidden" } });
    admin.post(&format!("{CORE}/namespaces/platform/secrets")).json(&core).send().await.expect(201);
    let reader = user(&admin, "eso").await;
    let ours = rule(&["sharedsecrets"], &["get"]);
    let theirs = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] });
    allow(&admin, "eso-reader", None, json!([ours, theirs]), "platform:user:eso").await;
    let rules = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": "platform" },
    });
    let path = based(&format!("{AUTHORIZATION}/selfsubjectrulesreviews"));
    let rules = reader.post(&path).json(&rules).send().await.expect(201);
    let may_get = |rule: &Value| {
        let has = |field: &str, word: &str| rule[field].as_array().unwrap().contains(&json!(word));
        has("resources", "secrets") && has("verbs", "get")
    };
    assert!(rules["status"]["resourceRules"].as_array().unwrap().iter().any(may_get), "{rules}");
    let one = format!("{CORE}/namespaces/platform/secrets/app");
    let found = reader.get(&one).send().await.expect(200);
    assert_eq!((&found["kind"], &found["data"]["token"]), (&json!("Secret"), &json!("aGlkZGVu")));
    let list = reader.get(&format!("{CORE}/namespaces/platform/secrets")).send().await.expect(200);
    assert_eq!(list["kind"], "SecretList");
    let attributes = json!({
        "group": "management.platform.sh", "version": "v1", "resource": "sharedsecrets",
        "namespace": "platform", "name": "db", "verb": "get",
    });
    assert!(may(&reader, attributes).await);
    let kinds = read(&reader, "/apis/management.platform.sh/v1").await;
    let mut kinds = kinds["resources"].as_array().unwrap().iter();
    assert!(kinds.any(|one| one["kind"] == "SharedSecret" && one["name"] == "sharedsecrets"));
    let found = reader.get(&secret_path("db")).send().await.expect(200);
    assert!(found["spec"]["data"].is_object());
}

/// Headlamp asks what it may do and who it is, and watches by WebSocket with the key as a sub-protocol, from
/// a page of the same host.
#[tokio::test]
async fn headlamp() {
    use base64::Engine as _;
    let (_server, client) = with_secret().await;
    read(&client, "/version").await;
    read(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
    let all = json!({ "verb": "list", "resource": "*", "group": "*" });
    assert!(may(&client, all).await);
    let who = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = based("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let who = client.post(&path).json(&who).send().await.expect(201);
    assert_eq!(who["status"]["userInfo"]["username"], "admin");
    let list = client.get(&format!("{GROUP}/sharedsecrets")).send().await.expect(200);
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let key = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(client.token());
    let offered = format!("base64.binary.k8s.io, base64url.bearer.authorization.k8s.io.{key}");
    let origin = format!("https://{}", client.address());
    let headers = [("sec-websocket-protocol", &*offered), ("origin", &*origin)];
    let path = format!("{GROUP}/sharedsecrets?watch=1&resourceVersion={at}");
    let mut socket = client.websocket(&path, &headers).await.expect("a WebSocket");
    client.delete(&secret_path("db")).send().await.expect(200);
    assert_eq!(socket.event().await.summary(), "DELETED db");
}

/// k9s checks the version, asks for the rights of each view, streams lists, and prints tables.
#[tokio::test]
async fn k9s() {
    let (_server, client) = with_secret().await;
    let version = client.get(&format!("{BASE}/version?timeout=5s")).send().await.expect(200);
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
    for verb in ["get", "list", "watch"] {
        let attributes = json!({
            "group": "management.platform.sh", "version": "v1", "resource": "sharedsecrets",
            "namespace": "", "verb": verb,
        });
        assert!(may(&client, attributes).await, "{verb}");
    }
    let query = "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &timeoutSeconds=1";
    let events = client.watch(&format!("{GROUP}/sharedsecrets"), query).await.initial().await;
    assert_eq!(events.len(), 2);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let rows = client.get(&format!("{GROUP}/sharedsecrets")).accept(table).send().await.expect(200);
    assert_eq!(rows["rows"][0]["cells"][0], "db");
}
