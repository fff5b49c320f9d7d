//! Invalid input is refused and not stored, and the error names the field.

use postern_tests::http::Client;
use postern_tests::objects::version_of;
use postern_tests::{Home, Setup};
use serde_json::{Value, json};

use crate::secrecy::leak_check::{KEYS, LeakCheck, collection, key_path, make, user};

/// Invalid values for each field, with the text that the error must contain.
fn wrong() -> Vec<(&'static str, Value, &'static str)> {
    let mut all = Vec::new();
    for (resource, fields) in [
        (KEYS, &["displayName", "description", "user", "team", "subject", "key", "type"][..]),
        ("users", &["displayName", "username", "email", "subject"]),
        ("teams", &["displayName", "username"]),
        ("selves", &["accessKey"]),
    ] {
        for field in fields {
            for value in [json!(5), json!(["x"]), json!({ "x": 1 }), json!(true)] {
                all.push((resource, json!({ *field: value }), *field));
            }
        }
    }
    for (resource, field) in [(KEYS, "groups"), ("users", "groups"), ("teams", "users")] {
        for value in [json!("x"), json!([5]), json!([["x"]]), json!({})] {
            all.push((resource, json!({ field: value }), field));
        }
    }
    for field in ["scope", "identity", "oidcProvider", "oidcLogin"] {
        all.push((KEYS, json!({ field: "x" }), field));
        all.push((KEYS, json!({ field: [] }), field));
    }
    for ttl in [json!(-1), json!(i64::MIN), json!(u64::MAX), json!(1.5), json!("1h"), json!([1])] {
        all.push((KEYS, json!({ "ttl": ttl }), "spec.ttl"));
    }
    all.extend([
        (KEYS, json!({ "disabled": "yes" }), "spec.disabled"),
        (KEYS, json!({ "ttlAfterLastActivity": 1 }), "spec.ttlAfterLastActivity"),
        (KEYS, json!({ "ttl": 299, "ttlAfterLastActivity": true }), "spec.ttl"),
        (KEYS, json!({ "type": "user" }), "spec.type"),
        (KEYS, json!({ "subject": "system:masters" }), "spec.subject"),
        (KEYS, json!({ "groups": ["ops", "system:masters"] }), "spec.groups[1]"),
        (KEYS, json!({ "user": "nobody" }), "spec.user"),
        (KEYS, json!({ "team": "nobody" }), "spec.team"),
        (KEYS, json!({ "user": "admin", "subject": "x" }), "spec"),
        (KEYS, json!({ "key": "short" }), "spec.key"),
        (KEYS, json!({ "identityRefresh": 5 }), "spec.identityRefresh"),
        ("users", json!({ "subject": "admin" }), "spec.subject"),
        ("users", json!({ "groups": [""] }), "spec.groups[0]"),
        ("users", json!({ "disabled": "no" }), "spec.disabled"),
        ("teams", json!({ "users": [""] }), "spec.users[0]"),
    ]);
    all
}

async fn names(client: &Client, resource: &str) -> Vec<String> {
    let list = client.get(&collection(resource)).send().await.expect(200);
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn invalid_values_are_refused_and_not_stored() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let client = server.client();
    let current = make(&client, KEYS, "k", json!({})).await;
    for (resource, spec, field) in wrong() {
        let object = json!({ "metadata": { "name": "wrong" }, "spec": spec });
        let reply = client.post(&collection(resource)).json(&object).send().await;
        assert!([400, 422].contains(&reply.status), "{resource} {spec}: {}", reply.text());
        assert!(reply.text().contains(field), "{resource} {spec}: {}", reply.text());
        if resource == KEYS {
            let patch = json!({ "spec": spec });
            let reply = client.patch(&key_path("k"), "merge-patch", &patch).send().await;
            // The owner cannot change, so 403 is also correct for its field.
            assert!([400, 403, 422].contains(&reply.status), "{spec}: {}", reply.text());
        }
    }
    let read = client.get(&key_path("k")).send().await.expect(200);
    assert_eq!(version_of(&read), version_of(&current));
    assert_eq!(names(&client, KEYS).await, ["admin", "k"]);
    assert_eq!(names(&client, "users").await, ["admin"]);
    assert!(names(&client, "teams").await.is_empty());
    server.stop().await;
    assert!(!home.logged().contains("panic"), "{}", home.logged());
}

#[tokio::test]
async fn unusual_ttls_and_names_work_or_are_refused() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    for after_last_activity in [false, true] {
        let name = format!("eternal-{after_last_activity}");
        let spec = json!({ "ttl": i64::MAX, "ttlAfterLastActivity": after_last_activity });
        let key = make(&admin, KEYS, &name, spec).await;
        let client = admin.with_token(key["spec"]["key"].as_str().unwrap());
        client.get(&key_path(&name)).send().await.expect(200);
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        client.get(&collection(KEYS)).accept(table).send().await.expect(200);
        client.watch(&collection(KEYS), "").await.take(2).await;
    }
    let long = "a".repeat(253);
    for (name, code) in
        [(long.as_str(), 201), (&format!("{long}a"), 422), ("..", 422), ("a/b", 422), ("A", 422)]
    {
        let object = json!({ "metadata": { "name": name } });
        let reply = admin.post(&collection(KEYS)).json(&object).send().await;
        assert_eq!(reply.status, code, "{name}: {}", reply.text());
    }
    for subject in ["ü|✓ <script>".to_owned(), "x".repeat(500)] {
        let key = make(&admin, KEYS, "", json!({ "subject": subject })).await;
        let client = admin.with_token(key["spec"]["key"].as_str().unwrap());
        let who = client.get(&collection("selves/me")).send().await.expect(200);
        assert_eq!(who["status"]["subject"], subject.as_str());
        let users = client.get(&collection("users")).send().await.expect(200);
        assert_eq!(users["items"], json!([]), "a subject without roles reads no user");
        assert_eq!(client.get(&collection("users/admin")).send().await.status, 403);
    }
    user(&admin, "a.b-c").await;
    server.stop().await;
    assert!(!home.logged().contains("panic"), "{}", home.logged());
}

#[tokio::test]
async fn a_key_with_slashes_that_is_put_into_a_path_is_in_no_log() {
    let check = LeakCheck::new(71).await;
    for client in check.clients() {
        let parts = [(); 3].map(|()| check.new_secret());
        let namespace = collection("sharedsecrets");
        let keys = [
            format!("{}/{}", parts[0], parts[1]),
            format!("short/{}//x/", &parts[2][..30]),
            // This could be an object and its status.
            format!("{}/status", &parts[2][..20]) + "/a/b/status",
        ];
        for (number, value) in keys.iter().enumerate() {
            check.add_secret(value);
            let name = format!("slashes-{number}-{}", &parts[0][..4].to_lowercase());
            make(&client, KEYS, &name, json!({ "user": "admin", "key": value })).await;
            let in_cluster = "/kubernetes/cluster/nowhere/api/v1/namespaces/n/pods";
            let resource = "/kubernetes/cluster/nowhere/api/v1";
            for before in [&*namespace, &collection(KEYS), "", in_cluster, resource] {
                for after in ["", "/", "/log?a=b"] {
                    for path in
                        [format!("{before}/{value}{after}"), format!("{before}/x/{value}{after}")]
                    {
                        let reply = check.send(client.get(&path)).await;
                        assert!([400, 404].contains(&reply.status), "{}", reply.status);
                    }
                }
            }
        }
    }
    let deep = format!("{}{}", collection(KEYS), "/x".repeat(40));
    check.send(check.server.client().get(&deep)).await;
    check.finish().await;
}
