//! Responses that follow Kubernetes, and that tell the caller only the permitted facts.

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{CORE, based, collection, create, secret, secret_path, secrets};
use postern_tests::rights::{RBAC_GROUP, allow, merge, path, rbac, rule, user};
use serde_json::{Value, json};

use crate::regressions::scene::{
    Findings, KEYS, core_rule, core_secret, core_secrets, key_path, namespace, remove,
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

#[tokio::test]
async fn a_namespace_is_read_by_a_right_that_a_role_gives_in_it() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    create(&admin, &format!("{CORE}/namespaces"), "web", json!({})).await;
    let rules = json!([core_rule(&["namespaces"], &["get"])]);
    allow(&admin, "reads", Some("web"), rules, "platform:user:ada").await;
    ada.get(&namespace("web")).send().await.expect(200);
    ada.get(&namespace("default")).send().await.expect(403);
    let list = ada.get(&format!("{CORE}/namespaces")).send().await.expect(200);
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["web"]);
    let review = json!({ "spec": { "resourceAttributes":
        { "verb": "get", "resource": "namespaces", "name": "web", "namespace": "web" } } });
    let reviews = based(&format!("{REVIEWS}/selfsubjectaccessreviews"));
    let said = ada.post(&reviews).json(&review).send().await.expect(201);
    assert_eq!(said["status"]["allowed"], true, "{said}");
}

#[tokio::test]
async fn a_review_of_rules_lists_what_every_caller_may_list() {
    let server = Server::start().await;
    let ada = user(&server.client(), "ada").await;
    let reviews = based(&format!("{REVIEWS}/selfsubjectrulesreviews"));
    let review = json!({ "spec": { "namespace": "platform" } });
    let status = ada.post(&reviews).json(&review).send().await.expect(201)["status"].clone();
    let rules = status["resourceRules"].as_array().unwrap();
    let lists = |verb: &str| {
        rules.iter().any(|rule| {
            rule["resources"].to_string().contains("sharedsecrets")
                && rule["verbs"].to_string().contains(verb)
                && rule["resourceNames"].as_array().is_none_or(Vec::is_empty)
        })
    };
    assert!(lists("list") && lists("watch") || status["incomplete"] == true, "{status}");
}

#[tokio::test]
async fn a_binding_to_a_role_of_a_wrong_kind_is_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for (namespace, kind) in [
        (Some("platform"), "User"),
        (Some("platform"), ""),
        (Some("platform"), "clusterrole"),
        (None, "Role"),
        (None, "Secret"),
    ] {
        for group in [RBAC_GROUP, "", "example.com"] {
            if group == RBAC_GROUP || kind == "Role" {
                let body = json!({ "metadata": { "name": "b" }, "subjects": [],
                    "roleRef": { "apiGroup": group, "kind": kind, "name": "platform-user" } });
                let reply = admin.post(&rbac(namespace, "rolebinding")).json(&body).send().await;
                found.check_code(&reply, &[422], &format!("{namespace:?} {group} {kind:?}"));
            }
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn reviews_with_metadata_or_without_a_token_are_answered_as_upstream() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    let tokens = based("/apis/authentication.k8s.io/v1/tokenreviews");
    for spec in [json!({}), json!({ "token": "" })] {
        let reply = admin.post(&tokens).json(&json!({ "spec": spec })).send().await;
        found.check_code(&reply, &[400], &format!("a TokenReview with {spec}"));
    }
    let attributes = json!({ "resourceAttributes": { "verb": "get", "resource": "pods" } });
    for (what, mut spec) in
        [("subjectaccessreviews", attributes.clone()), ("selfsubjectaccessreviews", attributes)]
    {
        if what == "subjectaccessreviews" {
            spec["user"] = "ada".into();
        }
        let reviews = based(&format!("{REVIEWS}/{what}"));
        for metadata in [json!({ "name": "x" }), json!({ "labels": { "a": "b" } })] {
            let body = json!({ "metadata": metadata, "spec": spec });
            let reply = admin.post(&reviews).json(&body).send().await;
            found.check_code(&reply, &[422], &format!("{what} with {metadata}"));
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn a_key_keeps_an_owner_reference_to_another_key() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let owner = admin.get(&key_path("ada-key")).send().await.expect(200);
    let mut found = Findings::new();
    for (name, blocks) in [("first", false), ("second", true)] {
        let reference = json!({ "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
            "name": "ada-key", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks });
        let body = json!({ "metadata": { "name": name, "ownerReferences": [reference] },
            "spec": { "user": "ada" } });
        let made = ada.post(&collection(KEYS)).json(&body).send().await.expect(201);
        let references = made["metadata"]["ownerReferences"].as_array().unwrap();
        let kept = references.iter().find(|one| one["uid"] == owner["metadata"]["uid"]);
        let is_as_given = kept.is_some_and(|one| {
            one["blockOwnerDeletion"] == blocks || !blocks && one["blockOwnerDeletion"].is_null()
        });
        found.check(is_as_given, format!("{name}: {references:?}"));
    }
    remove(&admin, &key_path("ada-key")).await;
    for name in ["first", "second"] {
        // That owner is the only one that the client has named.
        let is_gone = crate::regressions::scene::comes_true(async || {
            admin.get(&key_path(name)).send().await.status == 404
        });
        found.check(is_gone.await, format!("{name} outlives its owner"));
    }
    found.assert_none();
}

/// The parts of a response that do not differ by the object.
fn answer(reply: &Response) -> (u16, String) {
    (reply.status, reply.text())
}

#[tokio::test]
async fn who_may_write_and_not_read_does_not_learn_the_keys_of_the_data() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let rules = json!([
        rule(&["sharedsecrets"], &["update", "patch"]),
        core_rule(&["secrets"], &["update", "patch"])
    ]);
    allow(&admin, "writes", Some("platform"), rules, "platform:user:ada").await;
    admin.post(&secrets("platform")).json(&secret("s", "x")).send().await.expect(201);
    create(&admin, &core_secrets("platform"), "s", core_secret("x")).await;
    let mut found = Findings::new();
    for (at, data) in
        [(secret_path("s"), "/spec/data"), (format!("{}/s", core_secrets("platform")), "/data")]
    {
        let at = format!("{at}?dryRun=All");
        // The key `value` is there, and the others are not.
        for operations in [
            |at: String| json!([{ "op": "remove", "path": at }]),
            |at: String| json!([{ "op": "replace", "path": at, "value": "eA==" }]),
            |at: String| json!([{ "op": "test", "path": at, "value": "eA==" }]),
            |at: String| json!([{ "op": "test", "path": at, "value": null }]),
            |at: String| json!([{ "op": "copy", "from": at, "path": "/metadata/labels/x" }]),
            |at: String| json!([{ "op": "move", "from": at, "path": "/metadata/labels/x" }]),
            |at: String| json!([{ "op": "add", "path": format!("{at}/deeper"), "value": "x" }]),
        ] {
            let there = operations(format!("{data}/value"));
            let not_there = operations(format!("{data}/other"));
            let first = answer(&ada.patch(&at, "json-patch", &there).send().await);
            let second = answer(&ada.patch(&at, "json-patch", &not_there).send().await);
            let alike = first.0 == second.0 && first.1.len().abs_diff(second.1.len()) < 12;
            found.check(alike, format!("{there} of {at}: {first:?} and {second:?}"));
        }
        // A merge patch that changes nothing must not show that it changes nothing.
        for value in ["eA==", "eQ=="] {
            let mut change = json!({ "data": { "value": value } });
            if data.starts_with("/spec") {
                change = json!({ "spec": change });
            }
            let reply = merge(&ada, &at, change).await;
            found.check(
                !reply.text().contains(value),
                format!("the answer has the value: {}", reply.text()),
            );
        }
    }
    found.assert_none();
}

fn apply_body(kind: &str, name: &str, rest: Value) -> String {
    let mut body = rest;
    body["apiVersion"] = if kind == "Secret" { "v1" } else { "management.platform.sh/v1" }.into();
    body["kind"] = kind.into();
    body["metadata"]["name"] = name.into();
    body.to_string()
}

async fn apply(client: &Client, at: &str, manager: &str, body: String) -> Response {
    let path = format!("{at}?fieldManager={manager}");
    client.request("PATCH", &path).body("application/apply-patch+yaml", body).send().await
}

/// The fields that a manager owns by an operation.
fn fields_of(object: &Value, manager: &str, operation: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let is_it = |entry: &&Value| entry["manager"] == manager && entry["operation"] == operation;
    entries.iter().find(is_it).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

#[tokio::test]
async fn an_applied_empty_value_is_owned_by_who_applied_it() {
    let server = Server::start().await;
    let admin = server.client();
    let body =
        apply_body("SharedSecret", "s", json!({ "spec": { "displayName": "", "access": [] } }));
    let object = apply(&admin, &secret_path("s"), "one", body).await.expect(201);
    let fields = fields_of(&object, "one", "Apply");
    let mut found = Findings::new();
    for name in ["f:displayName", "f:access"] {
        found.check(!fields["f:spec"][name].is_null(), format!("{name} is not owned: {fields}"));
    }
    let other = apply_body("SharedSecret", "s", json!({ "spec": { "displayName": "x" } }));
    let reply = apply(&admin, &secret_path("s"), "two", other).await;
    found.check_code(&reply, &[409], "another manager applies another value");
    found.assert_none();
}

#[tokio::test]
async fn an_applied_null_conflicts_with_the_value_of_another_manager() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for (kind, at) in
        [("SharedSecret", secret_path("s")), ("Secret", format!("{}/s", core_secrets("platform")))]
    {
        let with = |value: Value| {
            let data = json!({ "data": { "k": value } });
            let rest = if kind == "Secret" { data } else { json!({ "spec": data }) };
            apply_body(kind, "s", rest)
        };
        apply(&admin, &at, "one", with(json!("eA=="))).await.expect(201);
        let reply = apply(&admin, &at, "two", with(Value::Null)).await;
        found.check_code(&reply, &[409], &format!("{kind}: data: {{k: null}} by another manager"));
        let now = admin.get(&at).send().await.text();
        found.check(now.contains("eA=="), format!("{kind}: the value is gone"));
    }
    found.assert_none();
}

#[tokio::test]
async fn before_the_first_apply_is_no_manager_that_owns_nothing() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let plain = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
        "metadata": { "name": "s" } });
    admin.post(&secrets("platform")).json(&plain).send().await.expect(201);
    let body = apply_body("SharedSecret", "s", json!({ "spec": { "owner": { "user": "ada" } } }));
    let reply = apply(&admin, &secret_path("s"), "one", body).await;
    let object = reply.expect(200);
    let managers = object["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("before-first-apply"), "{managers}");
}

#[tokio::test]
async fn a_first_apply_of_the_status_owns_nothing_of_the_spec() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, &collection("clusters"), "c", json!({ "spec": { "displayName": "C" } })).await;
    // The object has no known manager.
    let nobody = json!({ "metadata": { "managedFields": [{}] } });
    merge(&admin, &path("clusters", "c"), nobody).await.expect(200);
    let condition = json!([{ "type": "Ready", "status": "True", "reason": "Up", "message": "" }]);
    let body = apply_body("Cluster", "c", json!({ "status": { "conditions": condition } }));
    let at = format!("{}/status", path("clusters", "c"));
    // The server has set another condition, and the list of conditions has one owner.
    let object = apply(&admin, &at, "one&force=true", body).await.expect(200);
    for entry in object["metadata"]["managedFields"].as_array().unwrap() {
        let of_status = entry["subresource"] == "status";
        assert!(!of_status || entry["fieldsV1"]["f:spec"].is_null(), "{entry}");
    }
}

#[tokio::test]
async fn annotations_may_have_as_many_bytes_as_upstream() {
    let server = Server::start().await;
    let admin = server.client();
    // Names and values together have 262,144 bytes.
    let mut found = Findings::new();
    for (count, code) in [(262_144_usize, 201), (262_145, 422)] {
        let value = "x".repeat(count - "example.com/a".len());
        let body = json!({ "metadata": { "name": format!("s{code}"), "annotations": { "example.com/a": value } } });
        let reply = admin.post(&secrets("platform")).json(&body).send().await;
        found.check_code(&reply, &[code], &format!("{count} bytes"));
    }
    found.assert_none();
}
