//! Access keys: their values, owners and scopes; disabling, replacing and deleting them.

use postern_tests::http::Client;
use postern_tests::objects::{
    GROUP, based, collection, make, name_of, secret, secrets, version_of,
};
use postern_tests::rights::{allow, rule};
use postern_tests::status::failure;
use postern_tests::watching::Event;
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

const KEYS: &str = "ownedaccesskeys";

fn path(resource: &str, name: &str) -> String {
    format!("{GROUP}/{resource}/{name}")
}

async fn refused(client: &Client, resource: &str, spec: Value) -> String {
    let object = json!({ "spec": spec });
    failure(&client.post(&collection(resource)).json(&object).send().await)
}

/// Creates a user with an access key, and returns a client with this key.
async fn user(server: &Server, name: &str) -> (Client, String) {
    let admin = server.client();
    make(&admin, "users", name, json!({ "displayName": name })).await;
    let key = make(&admin, KEYS, &format!("{name}-key"), json!({ "user": name })).await;
    let value = key["spec"]["key"].as_str().unwrap().to_owned();
    (admin.with_token(&value), value)
}

async fn who(client: &Client) -> Value {
    client.post(&collection("selves")).json(&json!({})).send().await.expect(201)["status"].clone()
}

async fn merge(client: &Client, name: &str, spec: Value) -> Value {
    let patch = json!({ "spec": spec });
    let reply = client.patch(&path(KEYS, name), "merge-patch", &patch).send().await;
    reply.expect(200)
}

#[tokio::test]
async fn a_key_is_returned_by_its_creation_and_never_again() {
    let server = Server::start().await;
    let (ada, value) = user(&server, "ada").await;
    assert!(value.starts_with("pst_") && value.len() == 63, "the format that scanners know");
    let admin = server.client();
    let read = admin.get(&path(KEYS, "ada-key")).send().await;
    assert_eq!(read.expect(200)["spec"], json!({ "user": "ada", "type": "User" }));
    let mut texts = vec![
        read.text(),
        admin.get(&collection(KEYS)).send().await.text(),
        ada.get(&collection(KEYS)).send().await.text(),
        admin.get(&collection("users/ada/accesskeys")).send().await.text(),
    ];
    let mut watch = admin.watch(&collection(KEYS), "&resourceVersion=1").await;
    let event = watch.next().await.unwrap();
    texts.push(event.object.to_string());
    let put = admin.put(&path(KEYS, "ada-key")).json(&read.json()).send().await;
    put.expect(200);
    texts.push(put.text());
    for text in texts {
        assert!(text.contains("ada") || text.contains("admin"), "it is about keys: {text}");
        assert!(!text.contains("pst_"), "{text}");
    }
}

#[tokio::test]
async fn a_dry_run_issues_no_key() {
    let server = Server::start().await;
    let admin = server.client();
    let key = json!({ "metadata": { "name": "dry" }, "spec": { "user": "admin" } });
    let dry = format!("{}?dryRun=All", collection(KEYS));
    let object = admin.post(&dry).json(&key).send().await.expect(201);
    assert!(object["spec"].get("key").is_none(), "a returned key must work");
    assert_eq!(admin.get(&path(KEYS, "dry")).send().await.status, 404);
}

#[tokio::test]
async fn names_owners_and_values_are_checked() {
    let server = Server::start().await;
    let admin = server.client();
    let made = admin.post(&collection(KEYS)).json(&json!({})).send().await.expect(201);
    assert!(name_of(&made).starts_with("key-"), "the server makes a name");
    assert_eq!(made["spec"]["user"], "admin", "the caller's own");
    let owner = admin.get(&path("users", "admin")).send().await.expect(200);
    assert_eq!(made["status"]["ownerUid"], owner["metadata"]["uid"]);
    for (spec, wanted) in [
        (json!({ "user": "admin", "team": "red" }), "422 Invalid"),
        (json!({ "user": "nobody" }), "spec.user: Not found: \"nobody\""),
        (json!({ "team": "nobody" }), "spec.team: Not found: \"nobody\""),
        (json!({ "subject": "system:root" }), "spec.subject: Invalid value"),
        (json!({ "groups": ["system:masters"] }), "spec.groups[0]: Invalid value"),
        (json!({ "type": "Robot" }), "spec.type: Unsupported value"),
        (json!({ "ttl": -1 }), "spec.ttl: Invalid value: -1"),
        (json!({ "ttl": 299, "ttlAfterLastActivity": true }), "at least 300 seconds"),
        (json!({ "key": "short-canary" }), "spec.key: Invalid value"),
        (json!({ "key": "canary with spaces in it, long enough" }), "spec.key: Invalid value"),
        (json!({ "key": 7 }), "400 BadRequest"),
        (json!({ "ttl": "720h" }), "400 BadRequest"),
    ] {
        let text = refused(&admin, KEYS, spec.clone()).await;
        assert!(text.contains(wanted), "{spec}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
    let value = "canary-0123456789-0123456789-0123456789";
    make(&admin, KEYS, "given", json!({ "key": value })).await;
    let text = refused(&admin, KEYS, json!({ "key": value })).await;
    assert!(text.starts_with("409 Conflict") && !text.contains("canary"), "{text}");
    assert_eq!(who(&admin.with_token(value)).await["accessKey"], "given");
}

#[tokio::test]
async fn a_disabled_key_says_so_and_its_watch_ends() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let (ada, value) = user(&server, "ada").await;
    let admin = server.client();
    let mut watch = ada.watch(&collection(KEYS), "").await;
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED ada-key");
    merge(&admin, "ada-key", json!({ "disabled": true })).await;
    let ends: Vec<String> = watch.rest().await.iter().map(Event::summary).collect();
    let text = "access key disabled";
    assert!(ends.last().unwrap().starts_with("ERROR"), "{ends:?}");
    assert!(failure(&ada.get(&collection(KEYS)).send().await).contains(text));
    let server = restart(&home, server).await;
    let (admin, ada) = (server.client(), server.client().with_token(&value));
    assert!(failure(&ada.get(&collection(KEYS)).send().await).contains(text), "after a restart");
    merge(&admin, "ada-key", json!({ "disabled": false })).await;
    assert_eq!(who(&ada).await["user"]["name"], "ada");
}

async fn restart(home: &Home, server: Server) -> Server {
    server.stop().await;
    Setup::on(home).start().await
}

#[tokio::test]
async fn disabling_or_deleting_an_owner_invalidates_the_keys() {
    let server = Server::start().await;
    let (ada, _) = user(&server, "ada").await;
    let admin = server.client();
    let patch = json!({ "spec": { "disabled": true } });
    let disable = admin.patch(&path("users", "ada"), "merge-patch", &patch);
    disable.send().await.expect(200);
    assert!(failure(&ada.get(&collection(KEYS)).send().await).contains("access key disabled"));
    admin.delete(&path("users", "ada")).send().await.expect(200);
    make(&admin, "users", "ada", json!({})).await;
    let text = failure(&ada.get(&collection(KEYS)).send().await);
    assert!(text.contains("access key not found"), "the new ada is another user: {text}");
}

#[tokio::test]
async fn a_key_can_be_replaced_and_deleted() {
    let server = Server::start().await;
    let (ada, value) = user(&server, "ada").await;
    let admin = server.client();
    let before = admin.get(&path(KEYS, "ada-key")).send().await.expect(200);
    for nothing in [json!({ "key": null }), json!({ "key": "" }), json!({ "key": value })] {
        let same = merge(&admin, "ada-key", nothing).await;
        assert_eq!(version_of(&same), version_of(&before), "that changes nothing");
    }
    let new = "canary-0123456789-0123456789-0123456789";
    let after = merge(&admin, "ada-key", json!({ "key": new })).await;
    assert!(version_of(&after) > version_of(&before), "a new value is a change");
    assert_eq!(after["metadata"]["generation"], 2);
    assert!(after["spec"].get("key").is_none());
    assert!(failure(&ada.get(&collection(KEYS)).send().await).contains("access key not found"));
    let ada = ada.with_token(new);
    assert_eq!(who(&ada).await["accessKey"], "ada-key");
    ada.delete(&path(KEYS, "ada-key")).send().await.expect(200);
    assert!(failure(&ada.get(&collection(KEYS)).send().await).contains("access key not found"));
    // Nothing is left that would prevent a new key with the same name and value.
    make(&admin, KEYS, "ada-key", json!({ "user": "ada", "key": new })).await;
    assert_eq!(who(&ada).await["accessKey"], "ada-key");
}

#[tokio::test]
async fn users_can_access_their_own_keys_and_nothing_else() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _) = user(&server, "ada").await;
    let (bob, _) = user(&server, "bob").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    make(&admin, KEYS, "red-key", json!({ "team": "red" })).await;
    admin.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    let own = make(&ada, KEYS, "ada-second", json!({ "ttl": 3600 })).await;
    assert_eq!(own["spec"]["user"], "ada");
    let listed = |list: Value| {
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| name_of(item).to_owned()).collect::<Vec<_>>()
    };
    let list = ada.get(&collection(KEYS)).send().await.expect(200);
    assert_eq!(listed(list), ["ada-key", "ada-second"]);
    let of_owner = ada.get(&collection("users/ada/accesskeys")).send().await.expect(200);
    assert_eq!(listed(of_owner), ["ada-key", "ada-second"]);
    for (what, visible) in
        [("users", &["ada"][..]), ("teams", &["red"]), ("namespaces/platform/sharedsecrets", &[])]
    {
        let list = ada.get(&collection(what)).send().await.expect(200);
        assert_eq!(listed(list), visible, "{what}");
    }
    for (client, method, what, code) in [
        // Objects that the caller may not get are reported as 404.
        (&ada, "GET", "ownedaccesskeys/bob-key", 404),
        (&ada, "PUT", "ownedaccesskeys/bob-key", 404),
        (&ada, "DELETE", "ownedaccesskeys/bob-key", 404),
        (&ada, "GET", "ownedaccesskeys/red-key", 404),
        (&ada, "GET", "ownedaccesskeys/nothing", 404),
        (&ada, "GET", "users/bob", 404),
        (&ada, "GET", "users/bob/accesskeys", 404),
        // Their own team they may get, but not its keys.
        (&ada, "GET", "teams/red", 200),
        (&ada, "GET", "teams/red/accesskeys", 403),
        (&bob, "GET", "teams/red", 403),
        (&bob, "GET", "teams/none", 403),
        (&ada, "GET", "users", 200),
        (&ada, "GET", "namespaces/platform/sharedsecrets", 200),
        (&ada, "GET", "namespaces/platform/sharedsecrets/s1", 404),
        (&ada, "GET", "selves/me", 200),
        (&bob, "GET", "ownedaccesskeys/bob-key", 200),
        (&bob, "GET", "ownedaccesskeys?fieldSelector=metadata.name%3Dada-key", 200),
    ] {
        let body = json!({ "metadata": { "name": "bob-key", "resourceVersion": "1" } });
        let request = client.request(method, &collection(what));
        let request = if method == "PUT" { request.json(&body) } else { request };
        let reply = request.send().await;
        assert_eq!(reply.status, code, "{method} {what}: {}", reply.text());
        let shows = reply.text().contains("ada-key");
        assert_eq!(shows, what == "selves/me", "{method} {what}: {}", reply.text());
    }
    cannot_widen_their_keys(&ada).await;
    let deleted = ada.delete(&collection(KEYS)).send().await.expect(200);
    assert_eq!(
        listed(deleted),
        ["ada-key", "ada-second"],
        "deletecollection deletes what the caller may delete"
    );
    assert_eq!(admin.get(&path(KEYS, "bob-key")).send().await.status, 200);
}

/// A user makes no keys of others, and gives their own nothing that they do not hold.
async fn cannot_widen_their_keys(ada: &Client) {
    for spec in [
        json!({ "user": "bob" }),
        json!({ "team": "red" }),
        json!({ "subject": "robot" }),
        json!({ "groups": ["ops"] }),
    ] {
        let text = refused(ada, KEYS, spec.clone()).await;
        assert!(text.starts_with("403 Forbidden"), "{spec}: {text}");
    }
    let groups = json!({ "spec": { "groups": ["ops"] } });
    let patch = ada.patch(&path(KEYS, "ada-key"), "merge-patch", &groups);
    assert_eq!(patch.send().await.status, 403, "a change is refused, too");
    let owner = json!({ "spec": { "user": "bob" } });
    let patch = ada.patch(&path(KEYS, "ada-key"), "merge-patch", &owner);
    assert_eq!(patch.send().await.status, 403);
}

#[tokio::test]
async fn a_watch_returns_only_keys_that_the_caller_may_read() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _) = user(&server, "ada").await;
    let mut watch = ada.watch(&collection(KEYS), "").await;
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED ada-key");
    make(&admin, KEYS, "of-admin", json!({})).await;
    make(&admin, KEYS, "of-ada", json!({ "user": "ada" })).await;
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED of-ada");
    // Groups without rights do not end the watch. A caller that may read more has to list again.
    make(&admin, "teams", "red", json!({ "users": ["ada"], "groups": ["readers"] })).await;
    make(&admin, KEYS, "of-ada-too", json!({ "user": "ada" })).await;
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED of-ada-too");
    allow(&admin, "readers", None, json!([rule(&[KEYS], &["get"])]), "readers").await;
    let last = watch.next().await.unwrap();
    assert_eq!((last.kind.as_str(), &last.object["code"]), ("ERROR", &json!(410)));
}

#[tokio::test]
async fn a_scoped_key_can_use_self_and_discovery() {
    let server = Server::start().await;
    let admin = server.client();
    let key = make(&admin, KEYS, "scoped", json!({ "scope": {} })).await;
    assert_eq!(key["spec"]["scope"], json!({}), "an empty scope is a scope");
    let scoped = admin.with_token(key["spec"]["key"].as_str().unwrap());
    assert_eq!(who(&scoped).await["accessKeyScope"], json!({}));
    for (what, code) in [
        ("", 200),
        ("ownedaccesskeys", 403),
        ("users/admin/accesskeys", 403),
        ("namespaces/platform/sharedsecrets", 403),
        ("namespaces/platform/sharedsecrets?watch=true", 403),
    ] {
        let reply = scoped.get(collection(what).trim_end_matches('/')).send().await;
        assert_eq!(reply.status, code, "{what}: {}", reply.text());
    }
    assert_eq!(scoped.get(&based("/apis")).send().await.status, 200);
    assert_eq!(scoped.get(&based("/openapi/v3")).send().await.status, 200);
    let new = scoped.post(&secrets("platform")).json(&secret("s", "v")).send().await;
    assert_eq!(new.status, 403);
}

#[tokio::test]
async fn self_describes_the_caller_and_keys_that_the_caller_may_read() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _) = user(&server, "ada").await;
    make(&admin, "teams", "red", json!({ "displayName": "Red", "users": ["ada"] })).await;
    let status = who(&ada).await;
    assert_eq!(status["user"]["teams"], json!([{ "name": "red", "displayName": "Red" }]));
    assert_eq!(status["subject"], "ada");
    assert_eq!(status["accessKeyType"], "User");
    assert_eq!(status["projectNamespacePrefix"], "p-");
    assert!(status["groups"].as_array().unwrap().contains(&json!("platform:team:red")));
    let ask = |key: &str| json!({ "spec": { "accessKey": key } });
    let about = admin.post(&collection("selves")).json(&ask("ada-key")).send().await.expect(201);
    assert_eq!(about["status"]["user"]["name"], "ada");
    let reply = ada.post(&collection("selves")).json(&ask("admin")).send().await;
    assert_eq!(reply.status, 404, "the keys of others are not there for them");
}

#[tokio::test]
async fn write_only_fields_are_stored_and_not_returned() {
    let server = Server::start().await;
    let admin = server.client();
    let spec = json!({
        "identity": { "connectorData": "canary-data", "email": "ada@example.com" },
        "oidcLogin": { "idToken": "canary-id", "refreshToken": "canary-refresh",
            "lastRefresh": "2026-01-02T03:04:05Z" },
        "identityRefresh": "2026-01-02T03:04:05Z",
    });
    let mut made = make(&admin, KEYS, "sso", spec.clone()).await;
    made["spec"].as_object_mut().unwrap().remove("key");
    assert!(!made.to_string().contains("canary"), "{made}");
    assert_eq!(made["spec"]["identity"]["email"], "ada@example.com");
    assert_eq!(made["spec"]["oidcLogin"]["lastRefresh"], "2026-01-02T03:04:05Z");
    assert_eq!(made["spec"]["identityRefresh"], "2026-01-02T03:04:05Z");
    let same = merge(&admin, "sso", spec).await;
    assert_eq!(version_of(&same), version_of(&made), "equal values are no change");
    let other = json!({ "identity": { "connectorData": "canary-other" } });
    let changed = merge(&admin, "sso", other).await;
    assert!(version_of(&changed) > version_of(&made));
    let patch = json!([{ "op": "test", "path": "/spec/identity/connectorData", "value": "x" }]);
    let reply = admin.patch(&path(KEYS, "sso"), "json-patch", &patch).send().await;
    assert_eq!(
        reply.status,
        422,
        "a patch is applied to the object without them: {}",
        reply.text()
    );
    assert!(!reply.text().contains("canary"));
}

#[tokio::test]
async fn subjects_are_unique_and_become_free_again() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({ "subject": "oidc|7" })).await;
    for (name, spec) in [("bob", json!({ "subject": "oidc|7" })), ("oidc|7", json!({}))] {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let text = failure(&admin.post(&collection("users")).json(&object).send().await);
        assert!(text.starts_with("422 Invalid"), "{text}");
    }
    let patch = json!({ "spec": { "subject": "oidc|8" } });
    let change = admin.patch(&path("users", "ada"), "merge-patch", &patch);
    change.send().await.expect(200);
    make(&admin, "users", "bob", json!({ "subject": "oidc|7" })).await;
    admin.delete(&path("users", "bob")).send().await.expect(200);
    make(&admin, "users", "carol", json!({ "subject": "oidc|7" })).await;
}

#[tokio::test]
async fn the_last_use_is_returned_and_changes_no_version() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let (ada, value) = user(&server, "ada").await;
    let admin = server.client();
    let before = admin.get(&path(KEYS, "ada-key")).send().await.expect(200);
    assert!(before["status"]["lastActivity"].is_null(), "not used yet");
    who(&ada).await;
    let after = admin.get(&path(KEYS, "ada-key")).send().await.expect(200);
    assert!(after["status"]["lastActivity"].is_string(), "{after}");
    assert_eq!(version_of(&after), version_of(&before));
    let put = admin.put(&path(KEYS, "ada-key")).json(&after).send().await.expect(200);
    assert_eq!(version_of(&put), version_of(&before), "sent back, it changes nothing");
    let server = restart(&home, server).await;
    let admin = server.client();
    let again = admin.get(&path(KEYS, "ada-key")).send().await.expect(200);
    assert_eq!(again["status"], after["status"], "it is stored across a restart");
    assert_eq!(who(&admin.with_token(&value)).await["accessKey"], "ada-key");
}

#[tokio::test]
async fn deleted_keys_and_users_are_invalid_despite_finalizers() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _) = user(&server, "ada").await;
    let (bob, _) = user(&server, "bob").await;
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    for one in [path(KEYS, "ada-key"), path("users", "bob")] {
        admin.patch(&one, "merge-patch", &hold).send().await.expect(200);
        admin.delete(&one).send().await.expect(200);
        admin.get(&one).send().await.expect(200);
    }
    for client in [ada, bob] {
        let text = failure(&client.get(&collection(KEYS)).send().await);
        assert!(text.contains("access key not found"), "{text}");
    }
}

#[tokio::test]
async fn a_deleted_user_leaves_all_teams() {
    let server = Server::start().await;
    let admin = server.client();
    user(&server, "ada").await;
    user(&server, "bob").await;
    make(&admin, "teams", "red", json!({ "users": ["ada", "bob"], "groups": ["ops"] })).await;
    admin.delete(&path("users", "ada")).send().await.expect(200);
    let red = admin.get(&path("teams", "red")).send().await.expect(200);
    assert_eq!(red["spec"]["users"], json!(["bob"]));
    let check = async || {
        let key = admin.get(&path(KEYS, "ada-key")).send().await;
        (key.status == 404).then_some(())
    };
    postern_tests::wait::until("the key is deleted with its owner", check).await;
    let (ada, _) = user(&server, "ada").await;
    let groups = who(&ada).await["groups"].clone();
    assert!(!groups.as_array().unwrap().contains(&json!("ops")), "{groups}");
}

#[tokio::test]
async fn errors_name_the_field_of_invalid_names_and_times() {
    let server = Server::start().await;
    let admin = server.client();
    for (resource, spec, wanted) in [
        (KEYS, json!({ "groups": [""] }), "422 Invalid"),
        (KEYS, json!({ "subject": "a\u{202e}b" }), "spec.subject: Invalid value"),
        (KEYS, json!({ "identityRefresh": "soon" }), "spec.identityRefresh"),
        (KEYS, json!({ "oidcLogin": { "lastRefresh": "soon" } }), "spec.oidcLogin.lastRefresh"),
        ("users", json!({ "subject": "s".repeat(600) }), "spec.subject: Invalid value"),
        ("users", json!({ "groups": ["a\nb"] }), "spec.groups[0]: Invalid value"),
        ("teams", json!({ "users": [""] }), "spec.users[0]: Invalid value"),
        ("selves", json!({ "accessKey": "pst_canary" }), "spec.accessKey: Invalid value"),
    ] {
        let object = json!({ "metadata": { "name": "x" }, "spec": spec });
        let text = failure(&admin.post(&collection(resource)).json(&object).send().await);
        assert!(text.contains(wanted), "{resource} {spec}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn what_is_meant_to_narrow_a_key_is_never_ignored() {
    let server = Server::start().await;
    let admin = server.client();
    let key = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    for spec in [
        json!({ "user": "admin", "scope": null }),
        json!({ "user": "admin", "scopes": { "projects": [] } }),
        json!({ "user": "admin", "scope": { "project": "p" } }),
        json!({ "user": "admin", "scope": { "rules": [{ "verb": "get" }] } }),
    ] {
        for query in ["", "?fieldValidation=Ignore"] {
            let path = format!("{}{query}", collection(KEYS));
            let refused = admin.post(&path).json(&key("narrow", spec.clone())).send().await;
            let field = refused.expect(422)["details"]["causes"][0]["field"].to_string();
            assert!(field.starts_with("\"spec.scope"), "{spec}: {field}");
        }
    }
    for (body, field) in [
        (json!({ "metadata": { "name": "narrow" }, "spec": null }), "spec"),
        (
            json!({ "metadata": { "name": "narrow" }, "spec": { "user": "admin" }, "scope": {} }),
            "scope",
        ),
        (key("narrow", json!({ "user": "admin", "scope": { "rules": null } })), "spec.scope.rules"),
        (
            key("narrow", json!({ "user": "admin", "scope": { "projects": [null] } })),
            "spec.scope.projects[0]",
        ),
    ] {
        let refused = admin.post(&collection(KEYS)).json(&body).send().await;
        assert_eq!(refused.expect(422)["details"]["causes"][0]["field"], field, "{body}");
    }
    for (spec, field) in [
        (r#""spec":{"user":"admin","scope":{"projects":[]}},"spec":{"user":"admin"}"#, "spec"),
        (r#""spec":{"user":"admin","scope":{"projects":[]},"scope":{}}"#, "spec.scope"),
        (r#""spec":{"user":"admin"},"Spec":{"scope":{}}"#, "Spec"),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"narrow"}},{spec}}}"#);
        let path = format!("{}?fieldValidation=Ignore", collection(KEYS));
        let refused = admin.post(&path).body("application/json", body).send().await;
        assert_eq!(refused.expect(422)["details"]["causes"][0]["field"], field, "{spec}");
    }
    let scoped = json!({ "user": "admin", "scope": {} });
    admin.post(&collection(KEYS)).json(&key("narrow", scoped)).send().await.expect(201);
    let widen = json!({ "spec": { "scope": null } });
    admin.patch(&path(KEYS, "narrow"), "merge-patch", &widen).send().await.expect(422);
    let typo = json!({ "spec": { "scopes": {} } });
    admin.patch(&path(KEYS, "narrow"), "merge-patch", &typo).send().await.expect(422);
    let stored = admin.get(&path(KEYS, "narrow")).send().await.expect(200);
    assert_eq!(stored["spec"]["scope"], json!({}));
}
