//! Options and fields that are not understood are refused where they would narrow or protect.

use postern_tests::http::Client;
use postern_tests::objects::{collection, create, make, secret, secret_path, secrets};
use postern_tests::rights::{merge, path, rbac};
use postern_tests::{Server, status};
use serde_json::{Value, json};

use crate::regressions::scene::{Findings, KEYS, core_secret, core_secrets, in_namespace};

async fn count(admin: &Client, collection: &str) -> usize {
    let list = admin.get(collection).send().await.expect(200);
    list["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_unknown_option_of_a_deletion_is_refused_and_deletes_nothing() {
    let server = Server::start().await;
    let admin = server.client();
    for name in ["s1", "s2"] {
        admin.post(&secrets("platform")).json(&secret(name, "x")).send().await.expect(201);
        create(&admin, &core_secrets("platform"), name, core_secret("x")).await;
    }
    let mut found = Findings::new();
    for (query, nearest) in [
        ("labelSelectors=a=b", "labelSelector"),
        ("label_selector=a=b", "labelSelector"),
        ("labelselector=a=b", "labelSelector"),
        ("labels=a=b", "labelSelector"),
        ("selector=a=b", "Selector"),
        ("fieldselector=metadata.name=x", "fieldSelector"),
        ("fields=metadata.name=x", "fieldSelector"),
        ("label%53elector%20=a=b", "labelSelector"),
        ("dry-run=All", "dryRun"),
        ("dry_run=All", "dryRun"),
        ("dryrun=All", "dryRun"),
        ("dryRun%20=All", "dryRun"),
        ("DryRun=All", "dryRun"),
        ("whatever=1", ""),
    ] {
        for at in [secrets("platform"), core_secrets("platform")] {
            let reply = admin.delete(&format!("{at}?{query}")).send().await;
            found.check_code(&reply, &[400], &format!("DELETE {at}?{query}"));
            if reply.status == 400 {
                let text = status::failure(&reply);
                found.check(text.contains(nearest), format!("{query} names no {nearest}: {text}"));
            }
            if count(&admin, &at).await != 2 {
                found.check(false, format!("{at}?{query} deleted objects"));
                for name in ["s1", "s2"] {
                    let object =
                        if at.contains("sharedsecrets") { json!({}) } else { core_secret("x") };
                    let object = json!({ "metadata": { "name": name }, "data": object["data"] });
                    admin.post(&at).json(&object).send().await;
                }
            }
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn an_unknown_option_of_a_write_is_refused_and_writes_nothing() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    let collections = secrets("platform");
    for (index, query) in [
        "dry-run=All",
        "dry_run=All",
        "dryrun=All",
        "DRYRUN=All",
        "fieldmanager=x",
        "force_=true",
        "x=y",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("made-{index}");
        let reply =
            admin.post(&format!("{collections}?{query}")).json(&secret(&name, "x")).send().await;
        found.check_code(&reply, &[400], &format!("POST ?{query}"));
        found.check(
            admin.get(&secret_path(&name)).send().await.status == 404,
            format!("POST ?{query} wrote"),
        );
        let reply =
            admin.post(&collections).json(&secret(&format!("old-{name}"), "x")).send().await;
        let mut object = reply.expect(201);
        let at = format!("{}?{query}", secret_path(&format!("old-{name}")));
        object["spec"]["displayName"] = "y".into();
        let reply = admin.put(&at).json(&object).send().await;
        found.check_code(&reply, &[400], &format!("PUT ?{query}"));
        let labels = json!({ "metadata": { "labels": { "a": "b" } } });
        found.check_code(&merge(&admin, &at, labels).await, &[400], &format!("PATCH ?{query}"));
        found.check_code(&admin.delete(&at).send().await, &[400], &format!("DELETE ?{query}"));
    }
    for (what, body) in
        [("directclusterendpointtokens", json!({ "spec": {} })), ("selves", json!({}))]
    {
        let reply =
            admin.post(&format!("{}?dry_run=All", collection(what))).json(&body).send().await;
        found.check_code(&reply, &[400], &format!("POST of {what}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn what_clients_of_kubernetes_send_is_known_and_a_read_only_warns() {
    let server = Server::start().await;
    let admin = server.client();
    let known = "fieldManager=x&fieldValidation=Strict&pretty=true&timeout=32s";
    let reply = admin.post(&format!("{}?{known}", secrets("platform"))).json(&secret("s", "x"));
    reply.send().await.expect(201);
    let reply = admin.get(&format!("{}?labelSelectors=a", secrets("platform"))).send().await;
    reply.expect(200);
    assert!(reply.warnings().join(" ").contains("labelSelector"), "{:?}", reply.warnings());
    let options = "propagationPolicy=Background&gracePeriodSeconds=0&orphanDependents=false";
    for options in
        [options, "timeoutSeconds=5&labelSelector=a&fieldSelector=metadata.name=x&limit=500"]
    {
        let reply =
            admin.delete(&format!("{}?{options}&dryRun=All", secrets("platform"))).send().await;
        assert!([200, 422].contains(&reply.status), "{options}: {}", reply.text());
    }
}

/// Fields of a Project that narrow, in forms that must be refused.
fn projects() -> Vec<Value> {
    vec![
        json!({ "allowedClusters": null }),
        json!({ "allowedclusters": [] }),
        json!({ "allowedCluster": [] }),
        json!({ "allowed_clusters": [] }),
        json!({ "allowedClusters": [{ "name": "c", "namespace": "x" }] }),
        json!({ "allowedClusters": [{ "cluster": "c" }] }),
        json!({ "allowedClusters": [null] }),
        json!({ "quota": { "project": { "virtualclusterinstances": "1" } } }),
        json!({ "quotas": { "projects": { "virtualclusterinstances": "1" } } }),
        json!({ "quotas": { "users": { "virtualclusterinstances": "1" } } }),
        json!({ "quotas": null }),
        json!({ "quotas": { "project": null } }),
        json!({ "quotas": { "project": { "virtualclusterinstances": null } } }),
        json!({ "members": null }),
        json!({ "members": [{ "kind": "User", "name": "admin", "role": "platform-project-viewer" }] }),
        json!({ "members": [{ "kind": "User", "name": "admin", "clusterrole": "platform-project-viewer" }] }),
        json!({ "members": [{ "kind": "User", "name": "admin", "clusterRole": null }] }),
        json!({ "access": null }),
        json!({ "access": [{ "verbs": ["get"], "users": ["admin"], "subResources": ["x"] }] }),
        json!({ "access": [{ "verbs": ["get"], "users": ["admin"], "subresources": null }] }),
        json!({ "acces": [] }),
    ]
}

/// Fields of other kinds that narrow: the resource, and the forms that must be refused.
fn others() -> Vec<(&'static str, Vec<Value>)> {
    let user =
        [json!({ "Disabled": true }), json!({ "disable": true }), json!({ "disabled": null })];
    let keys = [
        json!({ "Scope": {} }),
        json!({ "scopes": {} }),
        json!({ "scope": null }),
        json!({ "Disabled": true }),
        json!({ "disable": true }),
        json!({ "TTL": 5 }),
        json!({ "disabled": null }),
    ];
    let instances = [
        json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" },
            "extraAccessRules": [{ "users": ["bob"], "clusterrole": "platform-project-viewer" }] }),
        json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" },
            "extraAccessRules": null }),
        json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" },
            "extraAccessRule": [] }),
        json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" },
            "access": null }),
    ];
    let shared = [
        json!({ "access": null }),
        json!({ "Access": [] }),
        json!({ "access": [{ "verbs": ["get"], "user": ["bob"] }] }),
        json!({ "access": [{ "verbs": ["get"], "users": ["bob"], "teams": null }] }),
    ];
    let tokens = [
        json!({ "Scope": {} }),
        json!({ "scopes": {} }),
        json!({ "scope": null }),
        json!({ "TTL": 5 }),
        json!({ "rules": null }),
    ];
    vec![
        ("users", user.into()),
        (KEYS, keys.into()),
        ("virtualclusterinstances", instances.into()),
        ("sharedsecrets", shared.into()),
        ("directclusterendpointtokens", tokens.into()),
    ]
}

#[tokio::test]
async fn fields_that_narrow_are_never_lost() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "projects", "web", json!({})).await;
    make(&admin, "users", "bob", json!({})).await;
    make(&admin, "teams", "red", json!({})).await;
    make(&admin, "clusters", "c", json!({})).await;
    let mut found = Findings::new();
    for (resource, specs) in [("projects", projects())].into_iter().chain(others()) {
        let at = match resource {
            "virtualclusterinstances" => in_namespace("p-web", resource),
            "sharedsecrets" => secrets("platform"),
            _ => collection(resource),
        };
        let existing = match resource {
            "projects" => Some(path("projects", "web")),
            "users" => Some(path("users", "bob")),
            _ => None,
        };
        for spec in specs {
            let object = json!({ "metadata": { "generateName": "x-" }, "spec": spec });
            let dry = if at.ends_with("tokens") { "" } else { "?dryRun=All" };
            let reply = admin.post(&format!("{at}{dry}")).json(&object).send().await;
            found.check_code(&reply, &[400, 422], &format!("POST {at} {spec}"));
            if let Some(existing) = &existing {
                let now = admin.get(existing).send().await.expect(200);
                let mut object = now;
                for (name, value) in spec.as_object().unwrap() {
                    object["spec"][name] = value.clone();
                }
                let reply = admin.put(&format!("{existing}?dryRun=All")).json(&object).send().await;
                found.check_code(&reply, &[400, 422], &format!("PUT {existing} {spec}"));
            }
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn a_scope_at_a_wrong_place_makes_no_unscoped_key() {
    let server = Server::start().await;
    let admin = server.client();
    let scope = json!({ "rules": [{ "verbs": ["get"] }] });
    let mut found = Findings::new();
    for (what, body) in [
        ("specs", json!({ "specs": { "scope": scope } })),
        ("Spec", json!({ "Spec": { "scope": scope } })),
        ("scope at the top", json!({ "scope": scope, "spec": {} })),
        ("metadata.scope", json!({ "metadata": { "scope": scope }, "spec": {} })),
        ("metadata.spec", json!({ "metadata": { "spec": { "scope": scope } }, "spec": {} })),
        ("disabled at the top", json!({ "disabled": true, "spec": {} })),
    ] {
        for resource in [KEYS, "directclusterendpointtokens"] {
            for validation in ["", "?fieldValidation=Ignore", "?fieldValidation=Warn"] {
                let at = format!("{}{validation}", collection(resource));
                let reply = admin.post(&at).json(&body).send().await;
                let narrow = reply.status == 201 && !reply.json()["spec"]["scope"].is_null();
                if !narrow {
                    found.check_code(
                        &reply,
                        &[400, 422],
                        &format!("{resource}{validation} with {what}"),
                    );
                }
            }
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn misspelled_fields_that_narrow_are_refused_in_every_kind_of_write() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "bob", json!({})).await;
    make(&admin, "projects", "web", json!({})).await;
    make(&admin, KEYS, "k", json!({ "user": "bob" })).await;
    let mut found = Findings::new();
    for (resource, name, kind, field, value) in [
        ("users", "bob", "User", "disable", json!(true)),
        ("projects", "web", "Project", "allowedclusters", json!([])),
        (KEYS, "k", "OwnedAccessKey", "scopes", json!({})),
        (KEYS, "k", "OwnedAccessKey", "Disabled", json!(true)),
    ] {
        let at = path(resource, name);
        let body = json!({ "spec": { field: value } });
        for kind in ["merge-patch", "strategic-merge-patch"] {
            let reply = admin.patch(&at, kind, &body).send().await;
            found.check_code(&reply, &[400, 422], &format!("{kind} of {field}"));
        }
        let add = json!([{ "op": "add", "path": format!("/spec/{field}"), "value": value }]);
        let reply = admin.patch(&at, "json-patch", &add).send().await;
        found.check_code(&reply, &[400, 422], &format!("JSON Patch of {field}"));
        let body = json!({ "apiVersion": "management.platform.sh/v1", "kind": kind,
            "metadata": { "name": name }, "spec": { field: value } });
        let request = admin.request("PATCH", &format!("{at}?fieldManager=x"));
        let request = request.body("application/apply-patch+yaml", body.to_string());
        found.check_code(&request.send().await, &[400, 422], &format!("apply of {field}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn misspelled_fields_that_narrow_a_role_are_refused() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for field in ["resourcenames", "resourceName", "resource_names"] {
        for namespace in [None, Some("platform")] {
            let mut given =
                json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
            given[field] = json!(["one"]);
            let role = json!({ "metadata": { "name": "r" }, "rules": [given] });
            let at = format!("{}?dryRun=All", rbac(namespace, "role"));
            let reply = admin.post(&at).json(&role).send().await;
            found.check_code(&reply, &[400, 422], &format!("{field} in {namespace:?}"));
        }
    }
    found.assert_none();
}
