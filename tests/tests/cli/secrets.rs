//! Reading and writing shared secrets.

use postern_tests::Server;
use postern_tests::objects::{secret, secrets};
use serde_json::{Value, json};

use crate::admin;

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    let server = Server::start().await;
    let admin = admin(&server);
    let every_byte: Vec<u8> = (0..=255).collect();
    let file = admin.file("value", &every_byte);
    admin.ok(&["set", "secret", "db.from-file", "--from-file", &file]).await;
    for (key, input) in [("db.piped", &every_byte[..]), ("db.line", b"x\n"), ("db.empty", b"")] {
        let output = admin.run_with(&["set", "secret", key], input).await;
        assert_eq!((output.code, output.text()), (0, ""), "{}", output.err);
        assert_eq!(output.err.contains("note:"), key == "db.line", "{}", output.err);
        assert_eq!(admin.run(&["get", "secret", key]).await.out, input, "{key}");
    }
    assert_eq!(admin.run(&["get", "secret", "db.from-file"]).await.out, every_byte);
    admin.ok(&["set", "secret", "db.tls.crt", "--", "-dashed"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.tls.crt", "-o", "value"]).await, "-dashed");
    let output = admin.run_with(&["set", "secret", "db.big"], &vec![b'x'; 1024 * 1024 + 1]).await;
    assert_eq!(output.code, 1);
    assert!(output.err.contains("more than"), "{}", output.err);
}

#[tokio::test]
async fn setting_one_key_leaves_the_others() {
    let server = Server::start().await;
    let admin = admin(&server);
    let name = admin.ok(&["set", "secret", "db.password", "hunter2", "-o", "name"]).await;
    assert_eq!(name, "sharedsecret.management.platform.sh/db\n");
    let change = json!({"spec": {"displayName": "Database"}});
    let path = format!("{}/db", secrets("platform"));
    server.client().patch(&path, "merge-patch", &change).send().await.expect(200);
    admin.ok(&["set", "secret", "db.user", "shop"]).await;
    admin.ok(&["set", "secret", "db.password", "hunter3"]).await;
    let stored = server.client().get(&path).send().await.expect(200);
    assert_eq!(stored["spec"]["displayName"], "Database");
    assert_eq!(stored["spec"]["data"], json!({"password": "aHVudGVyMw==", "user": "c2hvcA=="}));
    let table = admin.ok(&["get", "secret", "db"]).await;
    assert_eq!(table, "KEY        BYTES\npassword   7\nuser       4\n");
    let table = admin.ok(&["get", "secret", "db", "--all"]).await;
    assert!(table.contains("hunter3") && table.contains("shop"), "{table}");
    let one: Value =
        serde_json::from_str(&admin.ok(&["get", "secret", "db.user", "-o", "json"]).await).unwrap();
    assert_eq!(one["spec"]["data"], json!({"user": "c2hvcA=="}));
    let yaml = admin.ok(&["get", "secret", "db", "-o", "yaml"]).await;
    assert!(yaml.contains("kind: SharedSecret") && yaml.contains("aHVudGVyMw=="), "{yaml}");
}

#[tokio::test]
async fn many_writers_of_one_secret_lose_nothing() {
    let server = Server::start().await;
    let admin = admin(&server);
    let keys: Vec<String> = (0..8).map(|n| format!("many.key-{n}")).collect();
    let all: Vec<_> = keys
        .iter()
        .map(|key| {
            let (admin, key) = (admin.clone(), key.clone());
            tokio::spawn(async move { admin.ok(&["set", "secret", &key, &key]).await })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    for key in &keys {
        assert_eq!(admin.ok(&["get", "secret", key]).await, *key);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_an_error_with_similar_names() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "database.password", "hush"]).await;
    let dotted = secret("web.token", "hush");
    server.client().post(&secrets("platform")).json(&dotted).send().await.expect(201);
    for (arguments, wanted) in [
        (&["get", "secret", "databsae"][..], "did you mean database?"),
        (&["get", "secret", "database.pasword"], "did you mean password?"),
        (&["get", "secret", "web.token"], "kubectl get sharedsecret web.token"),
        (&["get", "secret", "database.password", "-n", "absent"], "not found"),
        (&["set", "secret", "x.y", "hush", "-n", "absent"], "absent"),
        (&["delete", "secret", "database.password"], "secrets are deleted whole"),
        (&["delete", "secret", "databas"], "did you mean database?"),
    ] {
        let said = admin.fails(1, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(!said.contains("hush"), "{said}");
    }
    let deleted = admin.ok(&["delete", "secret", "web.token", "-o", "name"]).await;
    assert_eq!(deleted, "sharedsecret.management.platform.sh/web.token\n");
}

#[tokio::test]
async fn lists_of_any_length_in_one_namespace_or_all() {
    let server = Server::start().await;
    let (admin, client) = (admin(&server), server.client());
    let said = admin.run(&["list", "secrets"]).await;
    assert_eq!((said.text(), said.code), ("", 0));
    assert!(said.err.contains("no sharedsecrets in the namespace platform"), "{}", said.err);
    for number in 0..45 {
        let object = secret(&format!("s-{number:03}"), "hush");
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    admin.ok(&["set", "secret", "other.key", "x", "-n", "default"]).await;
    let table = admin.ok(&["list", "secrets"]).await;
    assert_eq!(table.lines().count(), 46, "{table}");
    assert!(table.starts_with("NAME "), "{table}");
    assert_eq!(admin.ok(&["list", "secrets", "-n", "default"]).await.lines().count(), 2);
    let wide = admin.ok(&["list", "secrets", "-A", "-o", "wide"]).await;
    assert!(wide.starts_with("NAMESPACE ") && wide.contains("DISPLAY NAME"), "{wide}");
    assert_eq!(wide.lines().count(), 47);
    assert!(!wide.contains("hush"), "{wide}");
    let json: Value =
        serde_json::from_str(&admin.ok(&["list", "secrets", "-A", "-o", "json"]).await).unwrap();
    assert_eq!(json["items"].as_array().unwrap().len(), 46, "pages are put together");
    assert_eq!(json["kind"], "SharedSecretList");
    assert_eq!(json["metadata"]["continue"], Value::Null);
    assert_eq!(admin.ok(&["list", "secrets", "-o", "name"]).await.lines().count(), 45);
}

#[tokio::test]
async fn debug_prints_requests_and_no_values() {
    let server = Server::start().await;
    let admin = admin(&server);
    let output = admin.run_with(&["set", "secret", "db.password", "--debug"], b"hush-hush").await;
    assert_eq!(output.code, 0);
    assert!(output.err.contains("PATCH") && output.err.contains("POST"), "{}", output.err);
    let read = admin.run(&["get", "secret", "db.password", "--debug"]).await;
    assert_eq!(read.text(), "hush-hush");
    for said in [&output.err, &read.err] {
        for hidden in ["hush", "aHVzaC", &server.kubeconfig().token] {
            assert!(!said.contains(hidden), "{said}");
        }
    }
}
