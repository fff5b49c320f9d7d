//! Clients that cannot be run here: the tests replay their requests exactly, and check the fields
//! of the responses that the clients read. Their requirements are in `docs/conformance.md`.

use std::collections::BTreeMap;

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{BASE, CORE, GROUP, based, secret, secret_path, secrets};
use postern_tests::rights::{allow, rule, user};
use postern_tests::watching::Watch;
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

/// Applies a configuration on the server's side.
async fn apply(client: &Client, options: &str, name: &str, spec: &Value, code: u16) -> Value {
    let object = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
        "metadata": { "name": name, "namespace": "platform", "labels": { "app": "shop" } },
        "spec": spec,
    });
    let to = format!("{}?{options}", secret_path(name));
    let patch = client.request("PATCH", &to);
    patch.body("application/apply-patch+yaml", object.to_string()).send().await.expect(code)
}

/// The object without the fields that only the store sets, and without times.
fn foreseen(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(name);
    }
    for entry in metadata["managedFields"].as_array_mut().unwrap() {
        entry.as_object_mut().unwrap().remove("time");
    }
    object
}

/// The plan is a dry run of the later apply: Terraform fails when they differ.
#[tokio::test]
async fn terraform_plans_and_applies() {
    let (_server, client) = with_secret().await;
    let (plan, real) = ("dryRun=All&fieldManager=Terraform", "fieldManager=Terraform");
    let first = json!({ "displayName": "One", "data": { "a": "djE=", "b": "djE=" } });
    let planned = apply(&client, plan, "new", &first, 201).await;
    client.get(&secret_path("new")).send().await.expect(404);
    let applied = apply(&client, real, "new", &first, 201).await;
    assert_eq!(foreseen(planned), foreseen(applied.clone()));
    // A plan without changes shows the object as it was applied.
    assert_eq!(apply(&client, plan, "new", &first, 200).await, applied);
    let next = json!({ "displayName": "Two", "data": { "b": "djI=" } });
    let planned = apply(&client, plan, "new", &next, 200).await;
    assert_eq!(client.get(&secret_path("new")).send().await.expect(200), applied);
    let changed = apply(&client, real, "new", &next, 200).await;
    assert_eq!(foreseen(planned), foreseen(changed.clone()));
    assert_eq!(changed["spec"]["data"], next["data"], "what is left out goes");
    assert_eq!(changed["metadata"]["uid"], applied["metadata"]["uid"]);
}

/// `kubernetes_manifest` reads the schema of version 2 as JSON, looks up `ObjectMeta` in it by its
/// id, and lists custom resource definitions. After a deletion it waits for a 404.
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

/// Reads the resources that can be listed and watched, each with the path of its collection.
async fn watchable(client: &Client) -> Vec<(Value, String)> {
    let mut found = Vec::new();
    for version in versions(client).await {
        for resource in read(client, &version).await["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if ["list", "watch"].iter().all(|verb| verbs.contains(&json!(verb))) {
                let path = based(&format!("{version}/{}", resource["name"].as_str().unwrap()));
                found.push((resource.clone(), path));
            }
        }
    }
    found
}

/// Informers list at any version and watch from there, with a page size that they do not need.
/// Since 0.35 they stream the list, and resume from the bookmark that ends it. Typed clients accept
/// protobuf first.
#[tokio::test]
async fn client_go() {
    let (_server, client) = with_secret().await;
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    let watching = async |path: &str, query: &str| {
        let path = format!("{path}?allowWatchBookmarks=true&watch=true&{query}");
        Watch::new(client.get(&path).accept(accept).stream().await)
    };
    let mut ends = BTreeMap::new();
    for (_, path) in watchable(&client).await {
        let list = client.get(&format!("{path}?limit=500&resourceVersion=0")).accept(accept);
        let list = list.send().await.expect(200);
        let query = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=300";
        let mut events = watching(&path, query).await.initial().await;
        let end = events.pop().unwrap();
        let streamed: Vec<_> = events.iter().map(|event| &event.object["metadata"]).collect();
        let listed = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
        assert_eq!(streamed, listed.collect::<Vec<_>>(), "{path}");
        ends.insert(path, end.version());
    }
    assert!(ends.len() > 15, "{ends:?}");
    let path = format!("{GROUP}/sharedsecrets");
    let query = format!("resourceVersion={}&timeoutSeconds=300", ends[&path]);
    let mut resumed = watching(&path, &query).await;
    client.delete(&secret_path("db")).send().await.expect(200);
    assert_eq!(resumed.next().await.unwrap().summary(), "DELETED db");
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
    for (resource, path) in watchable(&client).await {
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

/// Each reconciliation is a forced dry run that is compared with the stored object. Flux applies
/// only when they differ. A response without a version is for an object that does not exist yet.
#[tokio::test]
async fn flux_finds_drift() {
    let (_server, client) = with_secret().await;
    let real = "fieldManager=kustomize-controller&force=true";
    let dry = format!("dryRun=All&{real}");
    let wanted = json!({ "displayName": "Flux", "data": { "a": "djE=" } });
    let drifts = async || {
        let would = apply(&client, &dry, "app", &wanted, 200).await;
        let found = client.get(&secret_path("app")).send().await.expect(200);
        assert_eq!(would["metadata"]["resourceVersion"], found["metadata"]["resourceVersion"]);
        would["spec"] != found["spec"] || would["metadata"]["labels"] != found["metadata"]["labels"]
    };
    let would = apply(&client, &dry, "app", &wanted, 201).await;
    assert_eq!(would["metadata"].get("resourceVersion"), None);
    let made = apply(&client, real, "app", &wanted, 201).await;
    assert!(!drifts().await);
    for edit in [
        json!({ "spec": { "displayName": "by hand" } }),
        json!({ "metadata": { "labels": { "app": null } } }),
        json!({ "spec": { "data": { "a": "djI=" } } }),
    ] {
        client.patch(&secret_path("app"), "merge-patch", &edit).send().await.expect(200);
        assert!(drifts().await, "{edit}");
        let back = apply(&client, real, "app", &wanted, 200).await;
        assert_eq!(
            (&back["spec"], &back["metadata"]["labels"]),
            (&made["spec"], &made["metadata"]["labels"])
        );
        assert!(!drifts().await, "{edit}");
    }
    // Fields that other clients add belong to them, and are no drift.
    let other = json!({ "metadata": { "annotations": { "example.com/note": "x" } } });
    client.patch(&secret_path("app"), "merge-patch", &other).send().await.expect(200);
    assert!(!drifts().await);
}

/// The provider `kubernetes` reads core Secrets and asks for its rights. The provider `crd` gets an
/// object of any kind, after discovery. The provider `webhook` reads one by a plain GET.
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

/// Headlamp asks for its rights and its identity. It watches by WebSocket with the key as a
/// sub-protocol, from a page of the same host.
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

/// Lens uses the uid of the namespace `kube-system` as the cluster's id, and works without it. It
/// asks for its rights to each kind, lists namespaces, and watches in JSON.
#[tokio::test]
async fn lens() {
    let (_server, client) = with_secret().await;
    read(&client, "/version").await;
    let none = client.get(&format!("{CORE}/namespaces/kube-system")).send().await.expect(404);
    assert_eq!(none["reason"], "NotFound");
    let namespaces = read(&client, "/api/v1/namespaces").await;
    assert_eq!(namespaces["items"].as_array().unwrap().len(), 2);
    for (group, resource) in [("", "namespaces"), ("", "pods"), ("management.platform.sh", "*")] {
        assert!(
            may(&client, json!({ "verb": "list", "group": group, "resource": resource })).await
        );
    }
    let at = namespaces["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("&resourceVersion={at}&allowWatchBookmarks=true");
    let mut watch = client.watch(&format!("{CORE}/namespaces"), &query).await;
    let space = json!({ "metadata": { "name": "team-a" } });
    client.post(&format!("{CORE}/namespaces")).json(&space).send().await.expect(201);
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED team-a");
}

/// An operator in kopf looks for the kind of its peers and works without it. It marks its objects
/// by a finalizer and annotations in merge patches, and reports by Events. It lets deleted objects
/// go.
#[tokio::test]
async fn kopf() {
    let (_server, client) = with_secret().await;
    for version in versions(&client).await {
        read(&client, &version).await;
    }
    client.get(&based("/apis/kopf.dev/v1")).send().await.expect(404);
    let list = client.get(&secrets("platform")).send().await.expect(200);
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("&resourceVersion={at}&timeoutSeconds=60");
    let mut watch = client.watch(&secrets("platform"), &query).await;
    let merge = async |changes: Value| {
        client.patch(&secret_path("db"), "merge-patch", &changes).send().await.expect(200)
    };
    let progress = json!({ "kopf.zalando.org/create": "{\"started\":\"x\",\"retries\":0}" });
    merge(json!({ "metadata": { "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"] } })).await;
    merge(json!({ "metadata": { "annotations": progress } })).await;
    let done = json!({
        "kopf.zalando.org/create": null,
        "kopf.zalando.org/last-handled-configuration": "{\"spec\":{}}",
    });
    let handled = merge(json!({ "metadata": { "annotations": done } })).await;
    let annotations = handled["metadata"]["annotations"].as_object().unwrap();
    let of_kopf: Vec<_> = annotations.keys().filter(|name| name.contains("kopf")).collect();
    assert_eq!(of_kopf, ["kopf.zalando.org/last-handled-configuration"]);
    let event = json!({
        "metadata": { "namespace": "platform", "generateName": "kopf-event-" },
        "action": "Action?", "type": "Normal", "reason": "Logging", "message": "Handled.",
        "reportingComponent": "kopf", "reportingInstance": "dev",
        "source": { "component": "kopf" },
        "firstTimestamp": "2024-01-01T00:00:00.123456Z", "lastTimestamp": "2024-01-01T00:00:00.123456Z",
        "eventTime": "2024-01-01T00:00:00.123456Z",
        "involvedObject": {
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret", "name": "db",
            "namespace": "platform", "uid": handled["metadata"]["uid"],
        },
    });
    let events = format!("{CORE}/namespaces/platform/events");
    client.post(&events).json(&event).send().await.expect(201);
    client.delete(&secret_path("db")).send().await.expect(200);
    merge(json!({ "metadata": { "finalizers": [] } })).await;
    client.get(&secret_path("db")).send().await.expect(404);
    let seen = watch.summaries(5).await;
    assert_eq!(seen, ["MODIFIED db", "MODIFIED db", "MODIFIED db", "MODIFIED db", "DELETED db"]);
}

/// kr8s reads one object by a list with its name, waits by a watch of the same, and deletes with a body. lightkube
/// patches in the strategic way, and applies by force under its own name.
#[tokio::test]
async fn kr8s_and_lightkube() {
    let (_server, client) = with_secret().await;
    let named = format!("{}?fieldSelector=metadata.name%3Ddb", secrets("platform"));
    let list = client.get(&named).send().await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("&fieldSelector=metadata.name%3Ddb&resourceVersion={at}");
    let mut watch = client.watch(&secrets("platform"), &query).await;
    let labels = json!({ "metadata": { "labels": { "tier": "1" } } });
    let patch = client.patch(&secret_path("db"), "strategic-merge-patch", &labels);
    patch.send().await.expect(200);
    let spec = json!({ "displayName": "lightkube" });
    apply(&client, "fieldManager=lightkube&force=true", "db", &spec, 200).await;
    let selected = format!("{}?labelSelector=app%3Dshop%2Ctier", secrets("platform"));
    let list = client.get(&selected).send().await.expect(200);
    assert_eq!(list["items"][0]["spec"]["displayName"], "lightkube");
    let options = json!({ "propagationPolicy": "Foreground" });
    client.delete(&secret_path("db")).json(&options).send().await.expect(200);
    let seen = watch.summaries(4).await;
    assert_eq!(seen, ["MODIFIED db", "MODIFIED db", "MODIFIED db", "DELETED db"]);
}
