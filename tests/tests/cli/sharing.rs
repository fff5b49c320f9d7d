//! Sharing objects, and taking it back.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::{secret, secrets};
use serde_json::{Value, json};

use crate::cli::admin;

async fn access_of(user: &CliUser, name: &str) -> Value {
    let json = user.ok(&["get", "secret", name, "-o", "json"]).await;
    serde_json::from_str::<Value>(&json).unwrap()["spec"]["access"].clone()
}

async fn server_with_users() -> Server {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "bob"]).await;
    server
}

#[tokio::test]
async fn an_object_is_shared_and_taken_back_and_nothing_else_of_it_changes() {
    let server = server_with_users().await;
    let admin = admin(&server);
    let mut object = secret("db", "hush");
    object["spec"]["access"] = json!([{ "name": "ops", "verbs": ["*"], "users": ["ada"] }]);
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201);

    let output = admin.run(&["share", "secret", "db", "--team", "red", "--user", "bob"]).await;
    assert_eq!((output.code, output.text()), (0, ""), "{}", output.all_output());
    assert!(output.err.contains("shared with the user bob, the team red"), "{}", output.err);
    let own = json!({ "name": "shared", "verbs": ["get", "list", "watch"], "users": ["bob"], "teams": ["red"] });
    assert_eq!(access_of(&admin, "db").await, json!([object["spec"]["access"][0], own]));
    let again = admin.run(&["share", "secret", "db", "--user", "ada", "--user", "bob"]).await;
    assert!(again.code == 0 && again.err.contains("already"), "{}", again.err);
    admin.ok(&["share", "ss", "db", "--all-users", "--verbs", "get"]).await;
    let open = json!({ "name": "shared", "verbs": ["get"], "users": ["*"] });
    assert_eq!(access_of(&admin, "db").await, json!([object["spec"]["access"][0], own, open]));

    let output = admin.run(&["unshare", "secret", "db", "--user", "ada", "--team", "red"]).await;
    assert_eq!(output.code, 0, "{}", output.all_output());
    assert!(output.err.contains("no longer shared with the user ada, the team red"));
    assert!(output.err.contains("still shared with all users"), "{}", output.err);
    admin.ok(&["unshare", "secret", "db", "--all-users"]).await;
    let output = admin.run(&["unshare", "secret", "db", "--user", "bob", "--user", "ada"]).await;
    assert!(output.code == 0, "{}", output.all_output());
    assert!(output.err.contains("was not shared with the user ada"), "{}", output.err);
    assert_eq!(access_of(&admin, "db").await, json!([]));
    assert_eq!(admin.ok(&["get", "secret", "db.value", "-o", "value"]).await, "hush");

    let said = admin.fails(1, &["share", "secret", "bd", "--user", "bob"]).await;
    assert!(said.contains("not found") && said.contains("did you mean db?"), "{said}");
}

#[tokio::test]
async fn changes_at_the_same_time_are_all_kept() {
    let server = server_with_users().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.value", "hush"]).await;
    let shares = [["--user", "ada"], ["--user", "bob"], ["--team", "red"]];
    let commands = shares.map(|who| {
        let mut command = admin.command(&["share", "secret", "db", who[0], who[1]]);
        command.spawn().unwrap()
    });
    for command in commands {
        let ended = postern_tests::wait::within("the share", command.wait_with_output()).await;
        let ended = ended.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    let access = access_of(&admin, "db").await;
    let mut users: Vec<_> = access[0]["users"].as_array().unwrap().clone();
    users.sort_by_key(ToString::to_string);
    assert_eq!((json!(users), &access[0]["teams"]), (json!(["ada", "bob"]), &json!(["red"])));
}

#[tokio::test]
async fn who_may_write_and_not_read_sets_a_value_and_learns_none() {
    let server = server_with_users().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    admin.ok(&["share", "secret", "db", "--user", "ada", "--verbs", "patch"]).await;
    let key = admin.ok(&["create", "accesskey", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", key.trim());
    let output = ada.run(&["set", "secret", "db.password", "new"]).await;
    assert_eq!((output.code, output.text()), (0, ""), "{}", output.all_output());
    assert_eq!(admin.ok(&["get", "secret", "db.password", "-o", "value"]).await, "new");
    let said = ada.fails(1, &["get", "secret", "db.password"]).await;
    assert!(!said.contains("new"), "{said}");
    let said = ada.fails(1, &["set", "secret", "other.password", "x"]).await;
    assert!(said.contains("forbidden"), "{said}");
    admin.fails(1, &["get", "secret", "other"]).await;
}

#[tokio::test]
async fn what_is_shared_can_be_read_until_it_is_taken_back() {
    let server = server_with_users().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    let with_key = async |owner: &[&str]| {
        let key = admin.ok(&[&["create", "accesskey"], owner].concat()).await;
        admin.clone().with("POSTERN_ACCESS_KEY", key.trim())
    };
    let (ada, bob) = (with_key(&["--user", "ada"]).await, with_key(&["--user", "bob"]).await);
    let team = with_key(&["--team", "red"]).await;
    let read = ["get", "secret", "db.password", "-o", "value"];
    admin.ok(&["share", "secret", "db", "--team", "red"]).await;
    for reader in [&bob, &team] {
        assert_eq!(reader.ok(&read).await, "hush");
        assert!(reader.ok(&["list", "secrets", "-o", "name"]).await.contains("/db"));
        let said = reader.fails(1, &["share", "secret", "db", "--user", "ada"]).await;
        assert!(said.contains("forbidden"), "{said}");
    }
    // A user without a share cannot tell whether the secret exists.
    let said = ada.fails(1, &read).await;
    let absent = ada.fails(1, &["get", "secret", "bd.password", "-o", "value"]).await;
    assert_eq!(said.replace("\"db\"", "\"bd\"").replace(" db", " bd"), absent);
    admin.ok(&["unshare", "secret", "db", "--team", "red"]).await;
    for reader in [&bob, &team] {
        reader.fails(1, &read).await;
        assert_eq!(reader.ok(&["list", "secrets", "-o", "name"]).await, "");
    }
}

#[tokio::test]
async fn a_share_of_a_cluster_lets_in_and_refusals_name_the_flags() {
    let server = server_with_users().await;
    let admin = admin(&server);
    admin.ok(&["create", "cluster", "east"]).await;
    let may_use = ["can-i", "use", "cluster/east", "--as", "bob"];
    admin.ok(&["share", "cluster", "east", "--user", "ada"]).await;
    assert_eq!(admin.run(&may_use).await.text(), "no\n");
    admin.ok(&["share", "cluster", "east", "--team", "red"]).await;
    assert_eq!(admin.run(&may_use).await.text(), "yes\n");
    admin.ok(&["unshare", "cluster", "east", "--team", "red"]).await;
    admin.ok(&["share", "cluster", "east", "--user", "bob", "--verbs", "use"]).await;
    assert_eq!(admin.run(&may_use).await.text(), "yes\n");
    for (command, flag) in [
        (&["share", "cluster", "east", "--user", "nobody"][..], "--user"),
        (&["share", "cluster", "east", "--team", "nobody"], "--team"),
        (&["create", "accesskey", "--user", "nobody"], "--user"),
        (&["create", "team", "blue", "--users", "ada,nobody"], "--users"),
        (&["create", "project", "web", "--member", "user/nobody"], "--member"),
    ] {
        let said = admin.fails(1, command).await;
        let wanted = format!("error: {flag}: Not found: \"nobody\"");
        assert!(said.contains(&wanted) && !said.contains("spec."), "{command:?}: {said}");
    }
}
