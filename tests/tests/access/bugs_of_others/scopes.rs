//! Ways around a scope, a role or a check: another route, another verb, another identity.

use postern_tests::Server;
use postern_tests::objects::{collection, make, secret, secret_path, secrets, value_of};
use postern_tests::rights::{
    RBAC, allow, disallow, merge, path, rbac, role, rule, rule_on, set, user, with_key,
};
use serde_json::json;

use crate::access::scene::{
    assert_refused, code, make_secret, make_shared, names, share, to_user, visible,
};

#[tokio::test]
async fn cve_2026_22806_the_scope_of_a_key_holds_on_every_way_in() {
    let server = Server::start().await;
    let admin = server.client();
    let made = make_secret(&admin, "s1").await;
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let one = secret_path("s1");
    let of_others = json!([{ "group": "management.platform.sh", "resources": ["sharedsecrets"],
        "resourceNames": ["other"] }]);
    for (name, scope) in [
        ("nothing", json!({})),
        ("a-project", json!({ "projects": [{ "project": "shop" }] })),
        ("the-cli", json!({ "allowPlatformCli": true })),
        ("another-name", json!({ "rules": [{ "resources": of_others }] })),
        ("another-namespace", json!({ "rules": [{ "namespaces": ["default"] }] })),
        ("another-target", json!({ "rules": [{ "requestTargets": ["Cluster"] }] })),
    ] {
        let key = with_key(&admin, name, json!({ "scope": scope })).await;
        let body = json!({ "spec": { "displayName": "x" } });
        let add = json!([{ "op": "add", "path": "/spec/displayName", "value": "x" }]);
        for (what, request) in [
            ("GET", key.get(&one)),
            ("HEAD", key.request("HEAD", &one)),
            ("GET with a query", key.get(&format!("{one}?resourceVersion=0"))),
            ("as a table", key.get(&one).accept("application/json;as=Table;v=v1;g=meta.k8s.io")),
            ("as YAML", key.get(&one).accept("application/yaml")),
            ("PUT", key.put(&one).json(&secret("s1", "x"))),
            ("merge patch", key.patch(&one, "merge-patch", &body)),
            ("JSON Patch", key.patch(&one, "json-patch", &add)),
            ("dry run", key.patch(&format!("{one}?dryRun=All"), "merge-patch", &body)),
            ("DELETE", key.delete(&one)),
            ("DELETE, dry run", key.delete(&format!("{one}?dryRun=All"))),
            ("POST", key.post(&secrets("platform")).json(&secret("s2", "x"))),
        ] {
            let reply = request.send().await;
            assert!([403, 404].contains(&reply.status), "{name} {what}: {}", reply.text());
        }
        for query in ["", "?limit=1", "?fieldSelector=metadata.name%3Ds1", "?resourceVersion=0"] {
            for namespace in ["/namespaces/platform", ""] {
                let at =
                    format!("{}{query}", collection(&format!("{namespace}/sharedsecrets")[1..]));
                let reply = key.get(&at).send().await;
                assert!(!reply.text().contains(&uid), "{name} {at}: {}", reply.text());
            }
        }
        let deleted = key.delete(&secrets("platform")).send().await;
        assert!(!deleted.text().contains(&uid), "{name}: {}", deleted.text());
        let query = "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Ds1";
        let watched = key.get(&format!("{}{query}", secrets("platform"))).send().await;
        assert!(!watched.text().contains(&uid), "{name}: {}", watched.text());
    }
    assert_eq!(value_of(&admin.get(&one).send().await.expect(200)), "one");
}

#[tokio::test]
async fn cve_2024_52280_a_watch_of_one_name_is_decided_like_a_get() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "own", json!([to_user("ada", &["get"])])).await;
    make_secret(&admin, "other").await;
    let mut of_other = ada
        .watch(&secrets("platform"), "&fieldSelector=metadata.name%3Dother&timeoutSeconds=1")
        .await;
    assert!(of_other.rest().await.is_empty());
    let deprecated = secrets("platform").replace("/v1/", "/v1/watch/");
    for at in [format!("{deprecated}/other"), deprecated] {
        let reply = ada.get(&at).send().await;
        assert!([403, 404].contains(&reply.status), "{at}: {}", reply.text());
    }
    let of_own = "&fieldSelector=metadata.name%3Down";
    let event = ada.watch(&secrets("platform"), of_own).await.next().await.unwrap();
    assert_eq!(event.summary(), "ADDED own");
}

#[tokio::test]
async fn ghsa_765j_qfrp_hm3j_no_code_path_keeps_the_impersonators_rights() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    make_shared(&admin, "own", json!([to_user("ada", &["get", "patch"])])).await;
    make_secret(&admin, "other").await;
    let other = secret_path("other");
    let body = json!({ "spec": { "displayName": "x" } });
    for (what, request) in [
        ("GET", admin.get(&other)),
        ("patch", admin.patch(&other, "merge-patch", &body)),
        ("dry run", admin.patch(&format!("{other}?dryRun=All"), "merge-patch", &body)),
        ("DELETE", admin.delete(&other)),
        ("PUT", admin.put(&other).json(&secret("other", "x"))),
    ] {
        let reply = request.header("impersonate-user", "ada").send().await;
        assert_eq!(reply.status, 404, "{what}: {}", reply.text());
    }
    for query in ["", "?watch=true&timeoutSeconds=1", "?limit=5"] {
        let at = format!("{}{query}", secrets("platform"));
        let reply = admin.get(&at).header("impersonate-user", "ada").send().await;
        assert!(reply.text().contains("\"own\""), "{query}: {}", reply.text());
        assert!(!reply.text().contains("\"other\""), "{query}: {}", reply.text());
    }
    let create = admin.post(&secrets("platform")).header("impersonate-user", "ada");
    assert_eq!(create.json(&secret("new", "x")).send().await.status, 403);
    let deleted = admin.delete(&secrets("platform")).header("impersonate-user", "ada").send().await;
    assert!(!deleted.text().contains("\"other\""), "{}", deleted.text());
    assert_eq!(code(&admin, "other").await, 200);
}

#[tokio::test]
async fn cve_2025_4563_create_is_checked_as_updates_are() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let makes = json!([rule(&["sharedsecrets"], &["create", "patch", "get"])]);
    allow(&admin, "makers", Some("platform"), makes, "platform:user:ada").await;
    let access = json!([to_user("bob", &["get"])]);
    // A create, an apply that creates, and a patch of an existing object.
    let mut object = secret("new", "x");
    object["spec"]["access"] = access.clone();
    let created = ada.post(&secrets("platform")).json(&object).send().await;
    let apply = format!("{}?fieldManager=x", secret_path("new"));
    let apply = ada.request("PATCH", &apply);
    let applied = apply.body("application/apply-patch+yaml", object.to_string()).send().await;
    make_secret(&ada, "old").await;
    let patched = merge(&ada, &secret_path("old"), json!({ "spec": { "access": access } })).await;
    for reply in [created, patched] {
        assert_refused(&reply, &["bind", "users"]);
    }
    assert!([403, 415].contains(&applied.status), "{}", applied.text());
}

#[tokio::test]
async fn cve_2026_55774_the_same_holds_with_and_without_the_base_path() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_secret(&admin, "s1").await;
    let based = secret_path("s1");
    let root = based.replace("/kubernetes/management", "");
    for at in [based, root.clone(), format!("/{root}"), format!("/kubernetes{root}")] {
        for method in ["GET", "DELETE", "PATCH", "HEAD", "PUT"] {
            let reply = ada.request(method, &at).send().await;
            assert!(
                [301, 308, 400, 403, 404, 405, 415].contains(&reply.status),
                "{method} {at}: {}",
                reply.text()
            );
            assert!(!reply.text().contains("b25l"), "{method} {at}: {}", reply.text());
        }
    }
    assert_eq!(code(&admin, "s1").await, 200);
}

#[tokio::test]
async fn cve_2026_3605_who_may_delete_deletes_only_what_the_rule_names() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for name in ["app", "app-2", "apps"] {
        make_secret(&admin, name).await;
    }
    let rules = json!([rule_on("sharedsecrets", &["app"], &["delete", "deletecollection"])]);
    allow(&admin, "deleters", Some("platform"), rules, "platform:user:ada").await;
    for name in ["app-2", "apps", "app*", "*"] {
        let reply = ada.delete(&secret_path(name)).send().await;
        assert!([400, 404].contains(&reply.status), "{name}: {}", reply.text());
    }
    let deleted = ada.delete(&secrets("platform")).send().await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(visible(&admin).await, ["app-2", "apps"]);
}

#[tokio::test]
async fn cve_2023_32194_a_right_on_a_kind_of_another_group_is_none_on_ours() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_secret(&admin, "s1").await;
    for (index, group) in
        ["example.com", "", "apps", "management.platform.sh.example.com", "MANAGEMENT.platform.sh"]
            .into_iter()
            .enumerate()
    {
        let resources = ["sharedsecrets", "users", "ownedaccesskeys", "projects"];
        let rules = json!([{ "apiGroups": [group], "resources": resources, "verbs": ["*"] }]);
        allow(&admin, &format!("r{index}"), None, rules, "platform:user:ada").await;
    }
    let ours = json!([{ "apiGroups": ["management.platform.sh"], "resources": ["namespaces"], "verbs": ["*"] }]);
    allow(&admin, "namespaces", None, ours, "platform:user:ada").await;
    assert_eq!(code(&ada, "s1").await, 404);
    assert!(visible(&ada).await.is_empty());
    let list = ada.get(&format!("{}/namespaces", postern_tests::objects::CORE)).send().await;
    assert!(list.expect(200)["items"].as_array().unwrap().is_empty());
    for (method, what) in [("GET", "namespaces/platform"), ("DELETE", "namespaces/default")] {
        let at = format!("{}/{what}", postern_tests::objects::CORE);
        assert_eq!(ada.request(method, &at).send().await.status, 403, "{what}");
    }
}

#[tokio::test]
async fn cve_2021_25318_generated_roles_are_for_our_group_alone() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([{ "verbs": ["*"], "subresources": ["*"], "users": ["ada"] }]))
        .await;
    // Not a thing of the same name in another group.
    allow(&admin, "s1", Some("platform"), json!([]), "nobody").await;
    for at in [
        format!("{}/namespaces/platform/secrets/s1", postern_tests::objects::CORE),
        format!("{}/s1", rbac(Some("platform"), "role")),
        format!("{}/s1", rbac(Some("platform"), "rolebinding")),
    ] {
        let reply = ada.get(&at).send().await;
        assert!([403, 404].contains(&reply.status), "{at}: {}", reply.text());
    }
    disallow(&admin, "s1", Some("platform")).await;
    admin.delete(&format!("{}/s1", rbac(Some("platform"), "role"))).send().await.expect(200);
    let roles = admin.get(&rbac(Some("platform"), "role")).send().await.expect(200);
    assert_eq!(names(&roles).len(), 1);
    for one in roles["items"].as_array().unwrap() {
        for rule in one["rules"].as_array().unwrap() {
            assert_eq!(rule["apiGroups"], json!(["management.platform.sh"]));
            assert_eq!(rule["resourceNames"], json!(["s1"]));
            assert_eq!(rule["resources"][0], "sharedsecrets");
        }
    }
}

#[tokio::test]
async fn cve_2025_5187_an_owner_reference_is_no_way_to_delete() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get", "patch", "update"])])).await;
    let dead = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "gone",
        "uid": "11111111-2222-3333-4444-555555555555" }]);
    let change = json!({ "metadata": { "ownerReferences": dead } });
    assert_refused(&merge(&ada, &secret_path("s1"), change).await, &["delete"]);
    // The same for their own user, which they may change, and not delete.
    let of_user = json!({ "metadata": { "ownerReferences": dead } });
    let reply = merge(&ada, &path("users", "ada"), of_user).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert_eq!(code(&admin, "s1").await, 200);
}

#[tokio::test]
async fn cve_2023_2728_every_field_that_gives_something_is_checked() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let verbs = ["get", "create", "update", "patch"];
    let writes = json!([rule(&["sharedsecrets", "ownedaccesskeys", "projects"], &verbs)]);
    allow(&admin, "writers", None, writes, "platform:user:ada").await;
    make_secret(&admin, "s1").await;
    for spec in [
        json!({ "owner": { "user": "ada" } }),
        json!({ "owner": null }),
        json!({ "access": [to_user("ada", &["delete"])] }),
        json!({ "access": [{ "verbs": ["get"], "users": ["*"] }] }),
    ] {
        let reply = merge(&ada, &secret_path("s1"), json!({ "spec": spec })).await;
        assert_eq!(reply.status, 403, "{spec}: {}", reply.text());
    }
    for (spec, wanted) in [
        (json!({ "user": "bob", "groups": ["ops"] }), "impersonate"),
        (json!({ "subject": "robot" }), "impersonate"),
        (json!({ "subject": "bob" }), "impersonate"),
    ] {
        let object = json!({ "metadata": { "name": "new" }, "spec": spec });
        let reply = ada.post(&collection("ownedaccesskeys")).json(&object).send().await;
        assert_refused(&reply, &[wanted]);
    }
}

#[tokio::test]
async fn cve_2025_23391_a_lesser_admin_does_not_reset_the_keys_of_a_greater_one() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let manages = json!([rule(&["ownedaccesskeys"], &["get", "create", "update", "patch"])]);
    allow(&admin, "key-managers", None, manages, "platform:user:ada").await;
    make(&admin, "ownedaccesskeys", "of-ops", json!({ "user": "admin", "groups": ["ops"] })).await;
    make(&admin, "ownedaccesskeys", "robot", json!({ "subject": "robot" })).await;
    let value = json!({ "key": "0123456789-0123456789-0123456789-mine" });
    for name in ["of-ops", "robot"] {
        let reply = merge(&ada, &path("ownedaccesskeys", name), json!({ "spec": value })).await;
        assert_refused(&reply, &["impersonate"]);
    }
    // A role of their own gives them no right to read or change these keys, and no other identity.
    let admins = role("mine", &json!([rule(&["*"], &["*"])]));
    let reply = ada.post(&format!("{RBAC}/clusterroles")).json(&admins).send().await;
    assert_eq!(reply.status, 403);
}

#[tokio::test]
async fn cve_2020_25816_a_key_does_not_prolong_its_own_life() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let short = with_key(&admin, "short", json!({ "user": "ada", "ttl": 600 })).await;
    let one = path("ownedaccesskeys", "short");
    for spec in [
        json!({ "ttl": 1200 }),
        json!({ "ttl": 0 }),
        json!({ "ttl": null }),
        json!({ "ttl": 600, "ttlAfterLastActivity": true }),
    ] {
        for query in ["", "?dryRun=All"] {
            let reply = merge(&short, &format!("{one}{query}"), json!({ "spec": spec })).await;
            assert_eq!(reply.status, 403, "{spec}: {}", reply.text());
        }
    }
    for spec in
        [json!({}), json!({ "ttl": 1200 }), json!({ "ttl": 600, "ttlAfterLastActivity": true })]
    {
        let reply =
            short.post(&collection("ownedaccesskeys")).json(&json!({ "spec": spec })).send().await;
        assert_eq!(reply.status, 403, "{spec}: {}", reply.text());
    }
    set(&short, &one, json!({ "ttl": 300 })).await;
}

#[tokio::test]
async fn cve_2026_42880_no_dry_run_shows_what_its_caller_may_not_read() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_secret(&admin, "s1").await;
    let one = secret_path("s1");
    for verbs in [&["patch"][..], &["update"], &["delete"], &["update", "patch", "delete"]] {
        share(&admin, "s1", json!([to_user("ada", verbs)])).await;
        let current = admin.get(&one).send().await.expect(200);
        let mut put = current.clone();
        put["spec"]["displayName"] = json!("x");
        let body = json!({ "spec": { "displayName": "x" } });
        for request in [
            ada.put(&format!("{one}?dryRun=All")).json(&put),
            ada.patch(&format!("{one}?dryRun=All"), "merge-patch", &body),
            ada.patch(&format!("{one}?dryRun=All"), "json-patch", &json!([])),
            ada.delete(&format!("{one}?dryRun=All")),
        ] {
            let reply = request.send().await;
            assert!([200, 404].contains(&reply.status), "{verbs:?}: {}", reply.text());
            assert!(!reply.text().contains("b25l"), "{verbs:?}: {}", reply.text());
        }
    }
}
