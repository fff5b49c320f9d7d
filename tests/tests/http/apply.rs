//! Server-side apply: bodies, ownership, conflicts, creates, and refusals. The result for each
//! field is in the tables of `crates/meta/src/apply/tests/scenarios`.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{CORE, GROUP, collection, secret, secret_path, secrets, version_of};
use postern_tests::rights::{allow, path, rule, rule_on, user};
use postern_tests::status::failure;
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";

/// An apply, with a query behind the field manager.
fn apply<'c>(client: &'c Client, path: &str, query: &str, body: &Value) -> Request<'c> {
    client.request("PATCH", &format!("{path}?fieldManager={query}")).body(APPLY, body.to_string())
}

async fn applied(client: &Client, name: &str, query: &str, spec: Value) -> Response {
    apply(client, &secret_path(name), query, &configuration(name, &spec)).send().await
}

fn configuration(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "management.platform.sh/v1",
        "kind": "SharedSecret",
        "metadata": { "name": name },
        "spec": spec,
    })
}

/// The manager, operation and fields of each entry.
fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owner = |entry: &Value| {
        let (manager, operation) = (entry["manager"].as_str(), entry["operation"].as_str());
        (format!("{} {}", manager.unwrap(), operation.unwrap()), entry["fieldsV1"].clone())
    };
    entries.iter().map(owner).collect()
}

fn owner(who: &str, fields: Value) -> (String, Value) {
    (who.to_owned(), fields)
}

/// A client that creates an object and then applies it takes over the fields that it owns, and
/// removes those that it leaves out. The owner of the object is not among them: an apply would
/// remove it, and its maker with it.
#[tokio::test]
async fn what_the_server_adds_to_a_new_object_has_no_manager() {
    let server = Server::start().await;
    let client = server.client();
    for (resource, added) in [
        ("projects", ["owner", "allowedClusters"]),
        ("ownedaccesskeys", ["user", "user"]),
        ("namespaces/platform/sharedsecrets", ["owner", "owner"]),
    ] {
        let object = json!({ "metadata": { "name": "a" }, "spec": { "displayName": "A" } });
        let all = format!("{}?fieldManager=me", collection(resource));
        let made = client.post(&all).json(&object).send().await.expect(201);
        assert!(added.iter().all(|name| !made["spec"][name].is_null()), "{made}");
        let fields = json!({ "f:spec": { "f:displayName": {} } });
        assert_eq!(owners(&made), [owner("me Update", fields)]);
    }
}

#[tokio::test]
async fn an_apply_creates_changes_and_removes() {
    let server = Server::start().await;
    let client = server.client();
    let made = applied(&client, "s1", "me", json!({ "displayName": "A", "data": { "k": "djE=" } }));
    let made = made.await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    let fields = json!({ "f:spec": { "f:displayName": {}, "f:data": { "f:k": {} } } });
    assert_eq!(owners(&made), [owner("me Apply", fields)], "what the server sets has no owner");
    // The same again writes nothing.
    let same = json!({ "displayName": "A", "data": { "k": "djE=" } });
    let again = applied(&client, "s1", "me", same.clone()).await.expect(200);
    assert_eq!(again, made);
    let forced = applied(&client, "s1", "me&force=true", same).await.expect(200);
    assert_eq!(forced, made);
    let next = applied(&client, "s1", "me", json!({ "data": { "l": "djI=" } })).await.expect(200);
    assert_eq!(next["spec"]["data"], json!({ "l": "djI=" }));
    assert!(next["spec"].get("displayName").is_none(), "{next}");
    assert!(next["spec"].get("owner").is_some(), "a field that no client applied stays");
    assert_eq!(next["metadata"]["generation"], 2);
    assert!(version_of(&next) > version_of(&made));
    assert_eq!(client.get(&secret_path("s1")).send().await.expect(200), next);
}

#[tokio::test]
async fn yaml_is_as_good_as_json() {
    let server = Server::start().await;
    let client = server.client();
    let path = format!("{}?fieldManager=me", secret_path("s1"));
    let send = |body: &'static str| client.request("PATCH", &path).body(APPLY, body).send();
    let made = send(
        "# a comment\napiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: s1\nspec:\n  data: {k: djE=}\n",
    );
    let made = made.await.expect(201);
    assert_eq!(made["spec"]["data"], json!({ "k": "djE=" }));
    let flow = "{apiVersion: management.platform.sh/v1, kind: SharedSecret, metadata: {name: s1}, spec: {data: {k: djE=}}}";
    assert_eq!(send(flow).await.expect(200), made);
    for bad in ["{", "a: [", "- a", "", "a: 1\n---\nb: 1\n", "{\"a\": 1} x", "\"x\""] {
        let text = failure(&send(bad).await);
        assert!(text.starts_with("400 BadRequest\n"), "{bad}: {text}");
    }
}

#[tokio::test]
async fn conflicts_have_upstreams_words() {
    let server = Server::start().await;
    let client = server.client();
    client
        .post(&format!("{}?fieldManager=kubectl-create", secrets("platform")))
        .json(&secret("s1", "one"))
        .send()
        .await
        .expect(201);
    applied(&client, "s1", "argo", json!({ "displayName": "A" })).await.expect(200);
    let before = client.get(&secret_path("s1")).send().await.expect(200);
    let reply = applied(&client, "s1", "me", json!({ "displayName": "B" })).await;
    assert_snapshot!(failure(&reply), @r#"
    409 Conflict
    Apply failed with 1 conflict: conflict with "argo": .spec.displayName
    {"causes":[{"field":".spec.displayName","message":"conflict with \"argo\"","reason":"FieldManagerConflict"}]}
    "#);
    let other = json!({ "displayName": "B", "data": { "value": "Y2FuYXJ5" } });
    let reply = applied(&client, "s1", "me", other.clone()).await;
    assert_snapshot!(failure(&reply), @r#"
    409 Conflict
    Apply failed with 2 conflicts: conflicts with "argo":
    - .spec.displayName
    conflicts with "kubectl-create" using management.platform.sh/v1:
    - .spec.data.value
    {"causes":[{"field":".spec.displayName","message":"conflict with \"argo\"","reason":"FieldManagerConflict"},{"field":".spec.data.value","message":"conflict with \"kubectl-create\" using management.platform.sh/v1","reason":"FieldManagerConflict"}]}
    "#);
    assert_eq!(client.get(&secret_path("s1")).send().await.expect(200), before);
    let dry = applied(&client, "s1", "me&force=true&dryRun=All", other.clone()).await.expect(200);
    assert_eq!(dry["spec"]["displayName"], "B");
    assert_eq!(client.get(&secret_path("s1")).send().await.expect(200), before);
    let forced = applied(&client, "s1", "me&force=true", other).await.expect(200);
    assert_eq!(
        owners(&forced),
        [
            owner("me Apply", json!({"f:spec": {"f:displayName": {}, "f:data": {"f:value": {}}}})),
            owner("kubectl-create Update", json!({"f:spec": {"f:data": {}}})),
        ]
    );
    // Equal values are shared, and none of the two then removes them.
    let shared = json!({ "displayName": "B" });
    applied(&client, "s1", "argo", shared).await.expect(200);
    let left = applied(&client, "s1", "me", json!({})).await.expect(200);
    assert_eq!(left["spec"]["displayName"], "B");
    assert!(left["spec"].get("data").is_none_or(|data| data == &json!({})), "{left}");
}

/// Fields that no apply may have, with the code and a part of the message.
fn bad_fields() -> [(&'static str, Value, u16, &'static str); 14] {
    [
        (
            "/kind",
            json!("Secret"),
            400,
            "invalid object type: management.platform.sh/v1, Kind=Secret",
        ),
        ("/apiVersion", json!("v1"), 400, "invalid object type: /v1, Kind=SharedSecret"),
        ("/metadata/managedFields", json!([]), 400, "metadata.managedFields must be nil"),
        (
            "/metadata/name",
            json!("s2"),
            400,
            "the name of the object (s2) does not match the name on the URL (s1)",
        ),
        ("/metadata/namespace", json!("default"), 400, "does not match the namespace"),
        ("/spec", json!("text"), 422, "spec: Invalid value: expected object, got string"),
        (
            "/spec/displayName",
            json!(["Y2FuYXJ5"]),
            422,
            "spec.displayName: Invalid value: expected string, got array",
        ),
        (
            "/metadata/labels",
            json!({ "a": 1 }),
            422,
            "metadata.labels.a: Invalid value: expected string, got number",
        ),
        (
            "/metadata/finalizers",
            json!(["a.io/x", "a.io/x"]),
            422,
            "metadata.finalizers[1]: Duplicate value",
        ),
        (
            "/metadata/ownerReferences",
            json!([{ "name": "a" }]),
            422,
            "metadata.ownerReferences[0]: Required value: its key: uid",
        ),
        (
            "/metadata/uid",
            json!("another"),
            422,
            "metadata.uid: Invalid value: \"another\": field is immutable",
        ),
        ("/metadata/resourceVersion", json!("1"), 409, "the object has been modified"),
        ("/spec/data", json!({ "k": "Y2FuYXJ5!" }), 400, "k"),
        ("/spec/data", json!({ "a b": "djE=" }), 422, "spec.data[a b]"),
    ]
}

#[tokio::test]
async fn what_is_not_an_apply_is_refused() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    let before = client.get(&secret_path("s1")).send().await.expect(200);
    let with = |(path, value): (&str, Value)| {
        let mut body = configuration("s1", &json!({}));
        let (parent, name) = path.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = value;
        body
    };
    let bad =
        bad_fields().into_iter().map(|(path, value, code, text)| (with((path, value)), code, text));
    let no_type = "invalid object type: /, Kind=";
    let nameless = json!({ "metadata": { "name": "s1" } });
    for (body, code, text) in bad.chain([(json!({}), 400, no_type), (nameless, 400, no_type)]) {
        let reply = apply(&client, &secret_path("s1"), "me", &body).send().await;
        let found = failure(&reply);
        assert_eq!(reply.status, code, "{body}: {found}");
        assert!(found.contains(text), "{body}: {found}");
        assert!(!found.contains("Y2FuYXJ5"), "a value is repeated: {found}");
    }
    for (query, code) in
        [("", 422), ("me&force=maybe", 400), ("me&dryRun=", 422), ("me&fieldValidation=x", 422)]
    {
        let reply = applied(&client, "s1", query, json!({})).await;
        assert_eq!(reply.status, code, "{query}: {}", reply.text());
    }
    let text = failure(&client.request("PATCH", &secret_path("s1")).body(APPLY, "{}").send().await);
    assert!(text.contains("fieldManager: Required value: is required for apply patch"), "{text}");
    for (kind, query) in [("merge-patch", "force=true"), ("strategic-merge-patch", "force=false")] {
        let path = format!("{}?{query}", secret_path("s1"));
        let text = failure(&client.patch(&path, kind, &json!({})).send().await);
        assert!(
            text.contains("force: Forbidden: may not be specified for non-apply patch"),
            "{text}"
        );
    }
    assert_eq!(client.get(&secret_path("s1")).send().await.expect(200), before);
}

/// The manager of an undeclared field expects to own it. Flux and the Python client show no warning, so kube-apiserver
/// refuses it, and so does this server.
#[tokio::test]
async fn undeclared_fields_are_refused_and_duplicate_ones_reported() {
    let server = Server::start().await;
    let client = server.client();
    let team = format!("{GROUP}/teams/t1");
    let send = |path: &str, body: &str| client.request("PATCH", path).body(APPLY, body.to_owned());
    let object = |spec: &str| {
        format!(
            r#"{{"apiVersion": "management.platform.sh/v1", "kind": "Team", "metadata": {{"name": "t1"}}, "spec": {spec}}}"#
        )
    };
    let both = object(r#"{"foo": 1, "displayName": "A", "displayName": "B"}"#);
    let strict = format!("{team}?fieldManager=me&fieldValidation=Strict");
    let text = failure(&send(&strict, &both).send().await);
    assert!(text.starts_with("422 Invalid\n"), "{text}");
    assert!(
        text.contains("unknown field \\\"spec.foo\\\", duplicate field \\\"spec.displayName\\\""),
        "{text}"
    );
    assert!(text.contains("\"field\":\"patch\""), "{text}");
    for validation in ["Warn", "Ignore"] {
        let path = format!("{team}?fieldManager=me&fieldValidation={validation}");
        for (body, field) in [
            (both.clone(), "spec.foo"),
            (object(r#"{}, "top": 1"#), "top"),
            (object("{}").replace(r#""t1""#, r#""t1", "colour": 1"#), "metadata.colour"),
        ] {
            let text = failure(&send(&path, &body).send().await);
            assert!(text.starts_with("422 Invalid\n"), "{text}");
            assert!(text.contains(&format!("\"field\":\"{field}\"")), "{text}");
            assert!(text.contains("field not declared in schema"), "{text}");
        }
    }
    client.get(&team).send().await.expect(404);
    let twice = object(r#"{"displayName": "A", "displayName": "B"}"#);
    let reply = send(&format!("{team}?fieldManager=me"), &twice).send().await;
    assert_eq!(reply.warnings().len(), 1, "{:?}", reply.warnings());
    let made = reply.expect(201);
    assert_eq!(owners(&made), [owner("me Apply", json!({ "f:spec": { "f:displayName": {} } }))]);
    let reply =
        send(&format!("{team}?fieldManager=me&fieldValidation=Ignore"), &twice).send().await;
    assert!(reply.warnings().is_empty());
    reply.expect(200);
}

#[tokio::test]
async fn a_create_by_apply_is_for_nothing_that_was_there_before() {
    let server = Server::start().await;
    let client = server.client();
    let with = |field: &str, value: &str| {
        let mut body = configuration("s1", &json!({}));
        body["metadata"][field] = value.into();
        body
    };
    let path = secret_path("s1");
    let text = failure(&apply(&client, &path, "me", &with("uid", "u-1")).send().await);
    assert!(
        text.contains(
            "uid mismatch: the provided object specified uid u-1, and no existing object was found"
        ),
        "{text}"
    );
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    let text = failure(&apply(&client, &path, "me", &with("resourceVersion", "7")).send().await);
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    let mut nameless = configuration("s1", &json!({}));
    nameless["metadata"] = json!({ "generateName": "s-" });
    let text = failure(&apply(&client, &path, "me", &nameless).send().await);
    assert!(text.starts_with("400 BadRequest\nname must be provided\n"), "{text}");
    let dry = applied(&client, "s1", "me&dryRun=All", json!({})).await.expect(201);
    assert!(dry["metadata"].get("resourceVersion").is_none(), "{dry}");
    client.get(&path).send().await.expect(404);
    applied(&client, "s1", "me", json!({})).await.expect(201);
    // Where the object is, its name may be left out.
    nameless["metadata"] = json!({ "labels": { "a": "b" } });
    let labelled = apply(&client, &path, "you", &nameless).send().await.expect(200);
    assert_eq!(labelled["metadata"]["labels"], json!({ "a": "b" }));
    let nowhere = format!("{}/s1", secrets("nowhere"));
    let text =
        failure(&apply(&client, &nowhere, "me", &configuration("s1", &json!({}))).send().await);
    assert!(text.starts_with("404 NotFound\n") && text.contains("nowhere"), "{text}");
    let status = format!("{}/none/status", collection("projects"));
    let body =
        json!({ "apiVersion": "management.platform.sh/v1", "kind": "Project", "status": {} });
    apply(&client, &status, "me", &body).send().await.expect(404);
}

#[tokio::test]
async fn a_create_by_apply_needs_the_right_to_create() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let group = "platform:user:ada";
    // Every user can have a shared secret elsewhere, so what is hidden is missing.
    applied(&ada, "none", "me", json!({})).await.expect(404);
    admin.post(&secrets("platform")).json(&secret("theirs", "one")).send().await.expect(201);
    let rules = json!([rule_on("sharedsecrets", &["s1"], &["get", "patch"])]);
    allow(&admin, "patches", Some("platform"), rules, group).await;
    let text = failure(&applied(&ada, "s1", "me", json!({})).await);
    assert!(text.starts_with("403 Forbidden\n") && text.contains("cannot create"), "{text}");
    // Objects that the caller may not see are reported as missing: both names have one answer.
    let hidden = applied(&ada, "theirs", "me", json!({})).await;
    let missing = applied(&ada, "missing", "me", json!({})).await;
    assert_eq!((hidden.status, missing.status), (404, 404));
    assert_eq!(hidden.text().replace("theirs", "missing"), missing.text());
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "creates", Some("platform"), rules, group).await;
    let made = applied(&ada, "s1", "me", json!({})).await.expect(201);
    assert_eq!(made["spec"]["owner"]["user"], "ada");
    applied(&ada, "s1", "me", json!({ "displayName": "A" })).await.expect(200);
    applied(&ada, "theirs", "me", json!({})).await.expect(404);
    let mine = applied(&ada, "missing", "me", json!({})).await;
    assert_eq!(mine.status, 404, "a patch needs the right to patch: {}", mine.text());
}

#[tokio::test]
async fn access_keys_are_applied_like_anything_else() {
    let server = Server::start().await;
    let client = server.client();
    let body = |spec: Value| {
        json!({
            "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
            "metadata": { "name": "ci" }, "spec": spec,
        })
    };
    let one = path("ownedaccesskeys", "ci");
    let key = "canary-canary-canary-canary-canary-1234";
    let made = apply(&client, &one, "me", &body(json!({ "key": key, "displayName": "A" })));
    let made = made.send().await.expect(201);
    let fields = made["metadata"]["managedFields"].to_string();
    assert!(!fields.contains("f:key"), "a write-only field has no owner: {fields}");
    client.with_token(key).get(&one).send().await.expect(200);
    // The key stays when it is no longer applied, and when it is applied again.
    for spec in [json!({ "displayName": "B" }), json!({ "displayName": "B", "key": key })] {
        let reply = apply(&client, &one, "me", &body(spec)).send().await;
        assert!(!reply.text().contains(key), "{}", reply.text());
        reply.expect(200);
        client.with_token(key).get(&one).send().await.expect(200);
    }
    // A generated one is in the answer to the create, and nowhere else.
    let mut other = body(json!({}));
    other["metadata"]["name"] = "generated".into();
    let path = path("ownedaccesskeys", "generated");
    let made = apply(&client, &path, "me", &other).send().await.expect(201);
    assert!(made["spec"]["key"].as_str().unwrap().starts_with("pst_"));
    let again = apply(&client, &path, "me", &other).send().await.expect(200);
    assert!(again["spec"].get("key").is_none(), "{again}");
}

#[tokio::test]
async fn the_status_is_applied_through_its_subresource() {
    let server = Server::start().await;
    let client = server.client();
    let body = |spec: Value| {
        json!({
            "apiVersion": "management.platform.sh/v1", "kind": "Project",
            "metadata": { "name": "p1", "labels": { "a": "b" } }, "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Done",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        })
    };
    let one = path("projects", "p1");
    let made = apply(&client, &one, "me", &body(json!({ "displayName": "A" }))).send().await;
    let made = made.expect(201);
    assert!(!made["metadata"]["managedFields"].to_string().contains("f:status"), "{made}");
    let status = format!("{one}/status");
    let mut ready = body(json!({ "displayName": "B" }));
    ready["metadata"] = json!({});
    let done = apply(&client, &status, "me", &ready).send().await.expect(200);
    assert_eq!(done["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(done["spec"]["displayName"], "A", "only the status is applied");
    let entries = done["metadata"]["managedFields"].as_array().unwrap();
    let of_status: Vec<_> = entries.iter().filter(|one| one["subresource"] == "status").collect();
    assert_eq!(of_status.len(), 1);
    assert_eq!(of_status[0]["fieldsV1"], json!({ "f:status": { "f:conditions": {} } }));
    let mut other = ready.clone();
    other["status"]["conditions"][0]["status"] = "False".into();
    let text = failure(&apply(&client, &status, "you", &other).send().await);
    assert!(
        text.contains("conflict with \"me\" with subresource \"status\": .status.conditions"),
        "{text}"
    );
    // An apply of the object keeps the status and the fields that were applied to the status.
    let next = apply(&client, &one, "me", &body(json!({ "displayName": "C" }))).send().await;
    assert_eq!(next.expect(200)["status"], done["status"]);
}

#[tokio::test]
async fn managed_fields_can_be_rewritten_and_reset() {
    let server = Server::start().await;
    let client = server.client();
    let one = secret_path("s1");
    client.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    let made = applied(&client, "s1", "me", json!({ "displayName": "A" })).await.expect(200);
    // As controllers do that take over from other managers.
    let mut entries = made["metadata"]["managedFields"].as_array().unwrap().clone();
    entries.retain(|entry| entry["manager"] == "me");
    entries[0]["fieldsV1"]["f:spec"]["f:data"] = json!({ ".": {}, "f:value": {} });
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"] },
        { "op": "replace", "path": "/metadata/managedFields", "value": entries },
    ]);
    let taken = client.patch(&one, "json-patch", &patch).send().await.expect(200);
    assert_eq!(
        owners(&taken),
        [owner(
            "me Apply",
            json!({"f:spec": {"f:displayName": {}, "f:data": {".": {}, "f:value": {}}}})
        ),]
    );
    let next = applied(&client, "s1", "me", json!({ "displayName": "A" })).await.expect(200);
    assert!(next["spec"].get("data").is_none(), "it owns the data now, and removes it: {next}");
    let reset = json!([{ "op": "replace", "path": "/metadata/managedFields", "value": [{}] }]);
    let reset = client.patch(&one, "json-patch", &reset).send().await.expect(200);
    assert!(reset["metadata"].get("managedFields").is_none(), "{reset}");
    let text = failure(&applied(&client, "s1", "you", json!({ "displayName": "B" })).await);
    assert!(
        text.contains("conflict with \"before-first-apply\" using management.platform.sh/v1"),
        "{text}"
    );
}

#[tokio::test]
async fn an_object_that_is_being_deleted_can_still_be_applied() {
    let server = Server::start().await;
    let client = server.client();
    let mut body = configuration("s1", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    apply(&client, &secret_path("s1"), "me", &body).send().await.expect(201);
    client.delete(&secret_path("s1")).send().await.expect(200);
    body["spec"]["displayName"] = "still there".into();
    let held = apply(&client, &secret_path("s1"), "me", &body).send().await.expect(200);
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let more = json!(["example.com/hold", "example.com/more"]);
    let mut adds = body.clone();
    adds["metadata"]["finalizers"] = more;
    let text = failure(&apply(&client, &secret_path("s1"), "me", &adds).send().await);
    assert!(text.contains("no new finalizers can be added"), "{text}");
    // The finalizer goes when it is no longer applied, and the object with it.
    body["metadata"] = json!({ "name": "s1" });
    apply(&client, &secret_path("s1"), "me", &body).send().await.expect(200);
    client.get(&secret_path("s1")).send().await.expect(404);
}

#[tokio::test]
async fn concurrent_applies_all_succeed() {
    let server = Server::start().await;
    let client = server.client();
    let mut appliers = tokio::task::JoinSet::new();
    for number in 0..12 {
        let client = client.clone();
        appliers.spawn(async move {
            let data = json!({ "data": { format!("k{number}"): "djE=" } });
            let reply = applied(&client, "s1", &format!("m{number}"), data).await;
            assert!([200, 201].contains(&reply.status), "{}", reply.text());
            reply.status
        });
    }
    let codes = appliers.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read["spec"]["data"].as_object().unwrap().len(), 12);
    assert_eq!(read["metadata"]["managedFields"].as_array().unwrap().len(), 12);
}

#[tokio::test]
async fn kinds_of_kubernetes_are_applied_too() {
    let server = Server::start().await;
    let client = server.client();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a" } });
    apply(&client, &format!("{CORE}/namespaces/team-a"), "me", &namespace).send().await.expect(201);
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": data,
        })
    };
    let one = format!("{CORE}/namespaces/team-a/secrets/s");
    let made = apply(&client, &one, "me", &secret(json!({ "a": "djE=", "b": "djE=" })));
    let made = made.send().await.expect(201);
    assert_eq!(owners(&made), [owner("me Apply", json!({ "f:data": { "f:a": {}, "f:b": {} } }))]);
    let next = apply(&client, &one, "me", &secret(json!({ "a": "djE=" }))).send().await;
    assert_eq!(next.expect(200)["data"], json!({ "a": "djE=" }));
    let reply = apply(&client, &one, "you", &secret(json!({ "a": "djI=" }))).send().await;
    assert!(failure(&reply).contains("conflict with \"me\": .data.a"), "{}", reply.text());
}

#[tokio::test]
async fn there_are_not_endlessly_many_managers() {
    let server = Server::start().await;
    let client = server.client();
    let spec = json!({ "displayName": "A" });
    for number in 0..100 {
        let reply = applied(&client, "s1", &format!("m{number}"), spec.clone()).await;
        reply.expect(if number == 0 { 201 } else { 200 });
    }
    let reply = applied(&client, "s1", "m100", spec.clone()).await;
    let text = failure(&reply);
    assert!(text.starts_with("422 Invalid\n"), "{text}");
    assert!(text.contains("100 managers already apply this object: apply as one"), "{text}");
    applied(&client, "s1", "m7", spec).await.expect(200);
}

#[tokio::test]
async fn an_apply_does_not_widen_a_key_by_leaving_out_its_scope() {
    let server = Server::start().await;
    let client = server.client();
    let body = |spec: Value| {
        json!({
            "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
            "metadata": { "name": "ci" }, "spec": spec,
        })
    };
    let one = path("ownedaccesskeys", "ci");
    let narrow = json!({ "scope": { "allowPlatformCli": true }, "displayName": "A" });
    apply(&client, &one, "me", &body(narrow)).send().await.expect(201);
    let reply = apply(&client, &one, "me", &body(json!({ "displayName": "A" }))).send().await;
    let text = failure(&reply);
    assert!(text.starts_with("422 Invalid\n") && text.contains("spec.scope: Forbidden"), "{text}");
    let stored = client.get(&one).send().await.expect(200);
    assert_eq!(stored["spec"]["scope"]["allowPlatformCli"], true);
}
