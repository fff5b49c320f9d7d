//! Access keys with a scope.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::{Value, json};

use crate::cli::admin;

/// Creates a key, and returns a user with it and the scope that was stored.
async fn with_key(admin: &CliUser, name: &str, flags: &[&str]) -> (CliUser, Value) {
    let key = admin.ok(&[&["create", "accesskey", name], flags].concat()).await;
    let json = admin.ok(&["get", "accesskey", name, "-o", "json"]).await;
    let object: Value = serde_json::from_str(&json).unwrap();
    (admin.clone().with("POSTERN_ACCESS_KEY", key.trim()), object["spec"]["scope"].clone())
}

#[tokio::test]
async fn a_key_gives_access_to_what_its_flags_name() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["web", "shop"] {
        admin.ok(&["create", "project", name]).await;
        let namespace = format!("p-{name}");
        admin.ok(&["set", "secret", "db.password", "hush", "-n", &namespace]).await;
    }
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    let read = |namespace| ["get", "secret", "db.password", "-o", "value", "-n", namespace];
    let write = |namespace| ["set", "secret", "db.password", "new", "-n", namespace];

    let (user, scope) = with_key(&admin, "of-project", &["--project", "web"]).await;
    assert_eq!(scope, json!({ "projects": [{ "project": "web" }] }));
    assert_eq!(user.ok(&read("p-web")).await, "hush");
    user.ok(&write("p-web")).await;
    user.ok(&["get", "project", "web"]).await;
    for namespace in ["p-shop", "platform"] {
        user.fails(1, &read(namespace)).await;
        user.fails(1, &write(namespace)).await;
    }

    let flags = ["--read-only", "--project", "web"];
    let (user, _) = with_key(&admin, "reader-of-project", &flags).await;
    assert_eq!(user.ok(&read("p-web")).await, "new");
    user.ok(&["get", "project", "web"]).await;
    user.fails(1, &write("p-web")).await;
    user.fails(1, &read("p-shop")).await;
    user.fails(1, &["get", "project", "shop"]).await;
    user.fails(1, &["get", "user", "admin"]).await;

    let (user, scope) = with_key(&admin, "reader", &["--read-only"]).await;
    assert_eq!(scope, json!({ "rules": [{ "verbs": ["get", "list", "watch"] }] }));
    for namespace in ["p-shop", "platform"] {
        assert_eq!(user.ok(&read(namespace)).await, "hush");
        user.fails(1, &write(namespace)).await;
    }
    user.fails(1, &["create", "user", "ada"]).await;

    let (user, scope) = with_key(&admin, "for-cli", &["--allow-cli"]).await;
    assert_eq!(scope, json!({ "allowPlatformCli": true }));
    assert!(user.ok(&["list", "projects", "-o", "name"]).await.contains("/web"));
    assert!(user.ok(&["whoami"]).await.contains("limited"));
    user.fails(1, &read("p-web")).await;

    let (_, scope) = with_key(&admin, "of-cluster", &["--cluster", "east", "--allow-cli"]).await;
    assert_eq!(scope, json!({ "rules": [{ "cluster": "east" }], "allowPlatformCli": true }));

    admin.ok(&["set", "secret", "other.password", "hush"]).await;
    let flags = ["--secret", "platform/db", "--secret", "p-web/db", "--expires", "30d"];
    let (user, _) = with_key(&admin, "of-secret", &flags).await;
    for namespace in ["platform", "p-web"] {
        user.ok(&read(namespace)).await;
        user.fails(1, &write(namespace)).await;
    }
    user.fails(1, &read("p-shop")).await;
    user.fails(1, &["get", "secret", "other.password"]).await;
    user.ok(&["run", "--secret", "db", "--", "true"]).await;
    let ttl = ["get", "accesskey", "of-secret", "-o", "jsonpath={.spec.ttl}"];
    assert_eq!(admin.ok(&ttl).await, "2592000");
    let output = admin.run(&["create", "accesskey", "of-none", "--secret", "shop/none"]).await;
    assert!(output.err.contains("there is no secret none in the namespace shop"), "{}", output.err);
    let output = admin
        .run(&["create", "accesskey", "absent", "--project", "nopr", "--cluster", "nocl"])
        .await;
    for wanted in ["there is no project nopr", "there is no cluster nocl"] {
        assert!(output.err.contains(wanted), "{}", output.err);
    }

    let file = admin.file("scope.yaml", "rules:\n- verbs: [get]\n  namespaces: [platform]\n");
    let (user, _) = with_key(&admin, "of-file", &["--scope-file", &file]).await;
    assert_eq!(user.ok(&read("platform")).await, "hush");
    user.fails(1, &read("p-web")).await;
    user.fails(1, &["list", "users"]).await;
}

#[tokio::test]
async fn a_scope_that_is_not_understood_makes_no_key() {
    let server = Server::start().await;
    let admin = admin(&server);
    for (text, wanted) in [
        ("project: [{project: web}]\n", "unknown field spec.scope.project"),
        ("rules:\n- resourcenames: [db]\n", "unknown field spec.scope.rules[0].resourcenames"),
        ("", "no mapping"),
    ] {
        let file = admin.file("scope.yaml", text);
        let said = admin.fails(1, &["create", "accesskey", "ci", "--scope-file", &file]).await;
        assert!(said.contains(wanted) && said.contains("scope.yaml"), "{said}");
    }
    let said = admin.fails(1, &["create", "accesskey", "ci", "--scope-file", "absent"]).await;
    assert!(said.contains("cannot read absent"), "{said}");
    admin.fails(1, &["get", "accesskey", "ci"]).await;
}
