//! Requests of the loft CLI that this server refuses. The user sees the reason, and nothing changes.

use postern_tests::rights::{allow, merge, rule, rule_on, with_key};
use serde_json::json;

use crate::platform_clients::go::assert_no_sleep_mode;
use crate::platform_clients::loft_cli::{Loft, SHARED_ROLE, SPACE, VCLUSTER, instances};
use crate::platform_clients::scene::{FOR_LOFT, LONG, Platform, SHOP};

/// The reason why instances do not sleep.
pub(crate) const NO_SLEEP: &str = "this server does not put virtual clusters to sleep";

#[tokio::test]
async fn access_that_cannot_be_given_is_not_stored() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let ada = Loft::of(&platform.ada);
    let before = platform.stored(VCLUSTER.0, "web").await;
    // A role that is not known here.
    let unknown = json!({ "users": ["tim"], "clusterRole": "my-role" });
    let refused = ada.share(VCLUSTER, "web", &unknown).await.unwrap_err();
    refused.expect(422, &["spec.access", "my-role"]);
    // The user is not a member, and the caller does not hold `bind` on them.
    let rule = json!({ "users": ["eve"], "clusterRole": SHARED_ROLE });
    let refused = ada.share(VCLUSTER, "web", &rule).await.unwrap_err();
    refused.expect(403, &["eve", "bind", "member"]);
    // The caller may use the instance and may not change it.
    let rule = json!({ "users": ["tim"], "clusterRole": SHARED_ROLE });
    for (what, name) in [(VCLUSTER, "web"), (SPACE, "stage")] {
        let refused = Loft::of(&platform.bob).share(what, name, &rule).await.unwrap_err();
        refused.expect(403, &["update", what.0]);
    }
    // The caller owns the instance, and names other members of the project, and no other users.
    let one = format!("{}/stage", platform.collection(SPACE.0));
    merge(&platform.admin, &one, json!({ "spec": { "owner": { "user": "bob" } } }))
        .await
        .expect(200);
    Loft::of(&platform.bob).share(SPACE, "stage", &rule).await.unwrap();
    let rule = json!({ "users": ["eve"], "clusterRole": SHARED_ROLE });
    let refused = Loft::of(&platform.bob).share(SPACE, "stage", &rule).await.unwrap_err();
    refused.expect(403, &["eve", "bind"]);
    let after = platform.stored(VCLUSTER.0, "web").await;
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(after["spec"], before["spec"]);
    Loft::of(&platform.tim).find(VCLUSTER, Some(SHOP), "web").await.unwrap_err();
}

/// An entry gives `use`, so that its writer has to hold it.
#[tokio::test]
async fn access_is_given_only_by_those_who_have_it() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let edits = json!([rule(&["virtualclusterinstances"], &["get", "update", "patch"])]);
    let group = "platform:user:tim";
    allow(&platform.admin, "edits", Some(&platform.namespace), edits, group).await;
    let binds = json!([rule_on("users", &["tim"], &["bind"])]);
    allow(&platform.admin, "binds", None, binds, group).await;
    let one = format!("{}/web", platform.collection(VCLUSTER.0));
    merge(&platform.tim, &one, json!({ "spec": { "displayName": "Web" } })).await.expect(200);
    let rules = json!([{ "users": ["tim"], "clusterRole": SHARED_ROLE }]);
    let refused =
        merge(&platform.tim, &one, json!({ "spec": { "extraAccessRules": rules } })).await;
    let message = refused.expect(403)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("use"), "{message}");
    Loft::of(&platform.tim).find(VCLUSTER, Some(SHOP), "web").await.unwrap_err();
}

#[tokio::test]
async fn nothing_is_put_to_sleep() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let ada = Loft::of(&platform.ada);
    ada.sleep_vcluster("web").await.unwrap_err().expect(422, &[NO_SLEEP]);
    let refused = ada.sleep_space("stage").await.unwrap_err();
    refused.expect(422, &["this server does not put", "to sleep"]);
    for (what, name) in [(VCLUSTER, "web"), (SPACE, "stage")] {
        let stored = platform.stored(what.0, name).await;
        assert_no_sleep_mode(&stored);
        assert_eq!(stored["metadata"]["generation"], 1);
        // `wakeup` changes nothing unless the instance sleeps: it waits until it is ready.
        let collection = instances(SHOP, what.0);
        ada.go.wait_until_ready(&collection, name, LONG).await.unwrap();
        // Schedules are refused, too.
        let one = format!("{}/{name}", platform.collection(what.0));
        for (annotation, value) in [
            ("sleep-after", "3600"),
            ("delete-after", "3600"),
            ("sleep-schedule", "0 22 * * *"),
            ("wakeup-schedule", "0 6 * * *"),
            ("last-activity", "1763992800"),
        ] {
            let annotation = format!("sleepmode.platform.sh/{annotation}");
            let change = json!({ "metadata": { "annotations": { &annotation: value } } });
            let refused = merge(&platform.ada, &one, change).await;
            let text = refused.expect(422)["message"].as_str().unwrap().to_owned();
            assert!(text.contains("does not put"), "{annotation}: {text}");
        }
    }
}

/// `create vcluster` and `create space` read the templates first. The client ends there, since
/// there is none.
#[tokio::test]
async fn there_are_no_templates_to_create_from() {
    let platform = Platform::start(&FOR_LOFT).await;
    for client in [&platform.ada, &platform.bob, &platform.tim] {
        let loft = Loft::of(client);
        loft.check_version().await.unwrap();
        let new = format!("{}/new", instances(SHOP, VCLUSTER.0));
        loft.go.get(&new).await.unwrap_err().expect(404, &["new"]);
        let templates = loft.go.get(&format!("projects/{SHOP}/templates")).await.unwrap();
        assert_eq!(templates["kind"], "ProjectTemplates");
        assert_eq!(templates["virtualClusterTemplates"], json!([]));
        assert_eq!(templates["spaceTemplates"], json!([]));
    }
    let of_eve = Loft::of(&platform.eve).go.get(&format!("projects/{SHOP}/templates")).await;
    of_eve.unwrap_err().expect_hidden();
}

#[tokio::test]
async fn an_instance_from_a_template_is_refused_by_name() {
    let platform = Platform::start(&FOR_LOFT).await;
    let ada = Loft::of(&platform.ada);
    for (what, text) in
        [(VCLUSTER, "this server does not create virtual clusters"), (SPACE, "spec.clusterRef")]
    {
        let collection = instances(SHOP, what.0);
        let object = |spec: serde_json::Value| {
            let annotations = json!({ "sleepmode.platform.sh/timezone": "UTC#0" });
            json!({ "metadata": { "name": "new", "annotations": annotations }, "spec": spec })
        };
        let owner = json!({ "user": "ada" });
        // The request of a client that has found a template.
        let from = json!({ "owner": owner, "templateRef": { "name": "isolated" } });
        let refused = ada.go.create(&collection, &object(from)).await.unwrap_err();
        refused.expect(422, &["spec.templateRef"]);
        let none = ada.go.create(&collection, &object(json!({ "owner": owner }))).await;
        let message = none.unwrap_err().expect(422, &["spec.clusterRef", text]);
        assert!(!message.contains("sleep"), "a time zone asks for nothing: {message}");
    }
}

#[tokio::test]
async fn imports_and_new_clusters_are_refused() {
    let platform = Platform::start(&FOR_LOFT).await;
    let admin = Loft::of(&platform.admin);
    for (action, source) in
        [("importvirtualcluster", "sourceVirtualCluster"), ("importspace", "sourceSpace")]
    {
        let path = format!(
            "/kubernetes/management/apis/management.platform.sh/v1/projects/{SHOP}/{action}"
        );
        let body = json!({ "metadata": { "creationTimestamp": null },
            source: { "name": "old", "cluster": "member", "importName": "old" } });
        let refused = platform.admin.post(&path).json(&body).send().await;
        let message = refused.expect(404)["message"].as_str().unwrap().to_owned();
        assert!(message.contains("not served"), "{message}");
    }
    // `connect cluster`
    let cluster = json!({ "metadata": { "name": "far" }, "spec": {
        "owner": { "user": "admin" }, "networkPeer": true,
        "access": [{ "verbs": ["*"], "subresources": ["*"], "users": ["admin"] }],
    } });
    let refused = admin.go.create("clusters", &cluster).await.unwrap_err();
    refused.expect(422, &["spec.networkPeer"]);
    let key = admin.go.get("clusters/member/accesskey").await.unwrap_err();
    key.expect(404, &["not served"]);
}

/// A typed client always sends some structures, empty or with `false`.
#[tokio::test]
async fn fields_that_ask_for_something_are_refused_and_empty_ones_are_not() {
    let platform = Platform::start(&FOR_LOFT).await;
    let admin = Loft::of(&platform.admin);
    let project = |spec: serde_json::Value| json!({ "metadata": { "name": "new" }, "spec": spec });
    for (field, value) in [
        ("automaticImport", json!({ "virtualClusters": { "enabled": true } })),
        ("namespacePattern", json!({ "space": "{{ .Values.name }}" })),
        ("argoCD", json!({ "enabled": true })),
        ("vault", json!({ "enabled": true, "address": "https://vault.test" })),
    ] {
        let refused = admin.go.create("projects", &project(json!({ field: value }))).await;
        refused.unwrap_err().expect(422, &[&format!("spec.{field}")]);
    }
    // Allowed templates are kept and have no effect. No template is required.
    let templates =
        json!([{ "kind": "SpaceTemplate", "group": "storage.platform.sh", "name": "*" }]);
    let spec = json!({ "displayName": "New", "allowedTemplates": templates });
    let made = admin.go.create("projects", &project(spec)).await.unwrap();
    assert_eq!(made["spec"]["displayName"], "New");
    assert_eq!(made["spec"]["allowedTemplates"], templates);
    assert_eq!(made["spec"]["requireTemplate"], json!({ "disabled": true }));
    assert!(made["spec"]["quotas"].is_null() || made["spec"]["quotas"] == json!({}), "{made}");
    // A scope with fields that this server does not have is refused.
    let scope = json!({ "user": "ada", "scope": { "projects": [{ "project": "new" }] } });
    let scoped = with_key(&platform.admin, "scoped", scope).await;
    let rest = json!({ "spec": { "user": "ada", "scope": { "roles": [{ "role": "vcluster" }] } },
        "metadata": { "name": "roles" } });
    let refused = Loft::of(&scoped).go.create("ownedaccesskeys", &rest).await.unwrap_err();
    assert!([403, 422].contains(&refused.code), "{refused:?}");
    let refused = admin.go.create("ownedaccesskeys", &rest).await.unwrap_err();
    refused.expect(422, &["roles"]);
}
