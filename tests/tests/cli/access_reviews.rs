//! Access reviews: the answers of `can-i` and `who-can` are the server's decisions.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::make;
use serde_json::{Value, json};

use crate::cli::admin;

/// Runs `can-i`, checks that the exit code fits the answer, and returns the whole answer.
async fn can_i(user: &CliUser, arguments: &[&str]) -> String {
    let output = user.run(&[&["can-i"], arguments].concat()).await;
    let answer = output.text().lines().next().unwrap_or_default();
    let code = match answer {
        "yes" => 0,
        "no" => 1,
        _ => panic!("{arguments:?}: {}", output.all_output()),
    };
    assert_eq!(output.code, code, "{arguments:?}: {}", output.all_output());
    output.text().to_owned()
}

/// A server with a secret that is shared with a team and a user, and an outsider.
async fn server_with_shared_secret() -> Server {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob", "eve"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "bob"]).await;
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    admin.ok(&["share", "secret", "db", "--user", "ada", "--team", "red"]).await;
    server
}

#[tokio::test]
async fn can_i_answers_for_a_key_that_does_not_exist_yet() {
    let server = server_with_shared_secret().await;
    let admin = admin(&server);
    let nothing = admin.file("nothing.yaml", "{}\n");
    for (arguments, wanted) in [
        (&["get", "secret/db", "--read-only"][..], "yes\n"),
        (&["delete", "secret/db", "--read-only"], "no\n"),
        (&["get", "secret/db", "--scope-file", &nothing], "no\n"),
        (&["get", "/apis", "--scope-file", &nothing], "yes\n"),
        (&["get", "projects/web", "--project", "web"], "yes\n"),
        (&["get", "secret/db", "--project", "web"], "no\n"),
    ] {
        assert_eq!(can_i(&admin, arguments).await, wanted, "{arguments:?}");
    }
    let why = can_i(&admin, &["delete", "secret/db", "--read-only", "--why"]).await;
    assert!(why.contains("the scope of the access key does not allow it"), "{why}");
    let both = ["can-i", "get", "secret/db", "--read-only", "--as", "ada"];
    assert!(admin.fails(2, &both).await.contains("of your own"));
}

#[tokio::test]
async fn can_i_answers_for_users_teams_and_keys() {
    let server = server_with_shared_secret().await;
    let admin = admin(&server);
    admin.ok(&["create", "accesskey", "of-ada", "--user", "ada"]).await;
    let limited = ["create", "accesskey", "limited", "--user", "ada", "--scope-file"];
    let nothing = admin.file("nothing.yaml", "{}\n");
    admin.ok(&[&limited[..], &[&nothing]].concat()).await;
    for (arguments, wanted) in [
        (&["get", "secret/db"][..], "yes\n"),
        (&["*", "*"], "yes\n"),
        (&["get", "/metrics"], "yes\n"),
        (&["get", "secret/db", "--as", "ada"], "yes\n"),
        (&["get", "ss/db", "--as", "bob"], "yes\n"),
        (&["get", "secret/db", "--as", "eve"], "no\n"),
        (&["delete", "secret/db", "--as", "ada"], "no\n"),
        (&["get", "secret/db", "-n", "default", "--as", "ada"], "no\n"),
        (&["get", "secret/db", "--as-team", "red"], "yes\n"),
        (&["get", "secret/db", "--with-key", "of-ada"], "yes\n"),
        (&["get", "secret/db", "--with-key", "limited"], "no\n"),
        (&["create", "roles.rbac.authorization.k8s.io", "--as", "ada"], "no\n"),
        (&["get", "user/ada", "--as", "ada"], "yes\n"),
        (&["get", "user/bob", "--as", "ada"], "no\n"),
    ] {
        assert_eq!(can_i(&admin, arguments).await, wanted, "{arguments:?}");
    }
    let why = can_i(&admin, &["get", "secret/db", "--as", "ada", "--why"]).await;
    assert!(why.starts_with("yes\n") && why.contains("platform:access:sharedsecrets:db"), "{why}");
    make(&server.client(), "projects", "one", json!({ "owner": { "user": "ada" } })).await;
    let why = can_i(&admin, &["delete", "project/one", "--as", "ada", "--why"]).await;
    assert!(why.starts_with("yes\n") && why.contains("ownership of the object"), "{why}");
    let why = can_i(&admin, &["get", "secret/db", "--with-key", "limited", "--why"]).await;
    assert!(why.starts_with("no\n") && why.contains("scope"), "{why}");
    for (question, wanted) in [
        (&["get", "secrest"][..], "there is no resource secrest in the group core"),
        (&["gett", "secret/db"], "there is no verb gett"),
        (&["get", "deployments.apps", "--as", "ada"], "no resource deployments in the group apps"),
        (&["gett", "secrets", "--with-key", "of-ada"], "there is no verb gett"),
        (&["list", "/metrics"], "there is no verb list of a path"),
        (&["gett", "secrets", "--read-only"], "there is no verb gett"),
    ] {
        let said = admin.fails(2, &[&["can-i"], question].concat()).await;
        assert!(said.contains(wanted) && said.contains("hint: "), "{said}");
    }
    assert!(admin.fails(2, &["can-i", "get", "secrest"]).await.contains("did you mean secret"));
    assert!(admin.fails(2, &["can-i", "gett", "secrets"]).await.contains("did you mean get?"));
    for question in [["gett", "secrets"], ["get", "secrest"], ["list", "/metrics"]] {
        let said = admin.fails(2, &[&["who-can"][..], &question].concat()).await;
        assert!(said.contains("there is no "), "{said}");
    }
}

#[tokio::test]
async fn a_user_may_ask_about_themselves_alone() {
    let server = server_with_shared_secret().await;
    let admin = admin(&server);
    let key = admin.ok(&["create", "accesskey", "--user", "eve"]).await;
    let eve = admin.clone().with("POSTERN_ACCESS_KEY", key.trim());
    assert_eq!(can_i(&eve, &["get", "secret/db"]).await, "no\n");
    assert_eq!(can_i(&eve, &["get", "user/eve"]).await, "yes\n");
    for about_others in [
        &["can-i", "get", "secret/db", "--as", "ada"][..],
        &["can-i", "get", "secret/db", "--as-team", "red"],
        &["who-can", "get", "secret/db"],
    ] {
        let said = eve.fails(1, about_others).await;
        assert!(said.contains("forbidden"), "{about_others:?}: {said}");
    }
}

#[tokio::test]
async fn who_can_lists_those_who_can_and_through_what() {
    let server = server_with_shared_secret().await;
    let admin = admin(&server);
    let table = admin.ok(&["who-can", "get", "secret/db"]).await;
    assert!(table.starts_with("KIND ") && table.contains("THROUGH"), "{table}");
    let row = |kind: &str, name: &str| {
        table.lines().find(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(kind) && words.next() == Some(name)
        })
    };
    assert!(row("User", "ada").is_some_and(|row| row.contains("platform:access:")), "{table}");
    assert!(row("Team", "red").is_some(), "{table}");
    assert!(row("User", "eve").is_none(), "{table}");
    let owner = row("User", "admin");
    assert!(owner.is_some_and(|row| row.contains("ownership of the object")), "{table}");

    let json = admin.ok(&["who-can", "get", "secret/db", "-o", "json"]).await;
    let review: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(review["kind"], "ResourceAccessReview", "{review}");
    let names = admin.ok(&["who-can", "get", "secret/db", "-o", "name"]).await;
    assert!(names.lines().any(|name| name == "user.management.platform.sh/ada"), "{names}");
    let others = admin.ok(&["who-can", "delete", "secret/db", "-o", "name"]).await;
    assert!(!others.contains("/ada") && !others.contains("/red"), "{others}");
    admin.ok(&["unshare", "secret", "db", "--user", "ada"]).await;
    let names = admin.ok(&["who-can", "get", "secret/db", "-o", "name"]).await;
    assert!(!names.contains("/ada"), "{names}");
}

#[tokio::test]
async fn access_has_a_reason_for_each_verb_and_answers_for_oneself() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "cluster", "west"]).await;
    admin.ok(&["grant", "platform-viewer", "--user", "ada"]).await;
    admin.ok(&["share", "cluster", "west", "--user", "ada", "--verbs", "use"]).await;
    let text = admin.ok(&["access", "user/ada"]).await;
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" west ")).collect();
    let [first, second] = rows[..] else { panic!("{text}") };
    assert!(first.contains(" get ") && first.contains("platform-viewer"), "{text}");
    assert!(second.contains(" use ") && second.contains("access rule of the object"), "{text}");
    let json = admin.ok(&["access", "user/ada", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    let mut objects = json["objects"].as_array().unwrap().iter();
    let west = objects.find(|one| one["name"] == "west").unwrap();
    assert_eq!(west["reasons"][0]["verbs"], json!(["get"]), "{json}");
    assert_eq!(west["reasons"][1]["verbs"], json!(["use"]), "{json}");

    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", key.trim());
    for own in ["user/ada", "accesskey/ada"] {
        let text = ada.ok(&["access", own]).await;
        assert!(text.contains(" west ") && text.contains(" use "), "{text}");
    }
}
