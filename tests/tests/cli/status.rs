//! What a person looks up first: the own login, and what others reach.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::Value;

use crate::cli::admin;

#[tokio::test]
async fn the_status_says_until_when_the_key_is_valid_and_what_is_wrong() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = admin.ok(&["status"]).await;
    for wanted in ["admin", "has no end", "Problems:", "none"] {
        assert!(text.contains(wanted), "{text}");
    }
    let key = admin.ok(&["create", "accesskey", "short", "--ttl", "1h", "--project", "web"]).await;
    let short = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let text = short.ok(&["status"]).await;
    // The scope does not allow the key to read itself.
    assert!(text.contains("only project web") && text.contains("unknown: "), "{text}");
    let key = admin.ok(&["create", "accesskey", "hour", "--ttl", "1h"]).await;
    let hour = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let output = hour.run(&["status", "-o", "json"]).await;
    let json: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(output.code, 0, "{json}");
    assert!(json["accessKeyExpires"].as_str().unwrap().ends_with('Z'), "{json}");
    assert!(output.err.contains("the access key ends soon"), "{}", output.err);

    admin.ok(&["disable", "accesskey", "hour"]).await;
    let output = hour.run(&["status", "-o", "json"]).await;
    let json: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(output.code, 1, "{json}");
    assert_eq!(json["problems"][0], "access key disabled", "{json}");
    assert!(output.err.contains("enable accesskey"), "{}", output.err);
    let away = admin.clone().with("POSTERN_ACCESS_KEY", "pst_none");
    let output = away.run(&["status", "--server", "https://127.0.0.1:1"]).await;
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.text().contains("Problems:") && output.err.contains("hint: "), "{}", output.err);
    assert!(CliUser::new().fails(1, &["status"]).await.contains("postern login"));
}

#[tokio::test]
async fn a_variable_chooses_the_context() {
    let server = Server::start().await;
    let admin = admin(&server);
    let named = |name: &str| admin.clone().with("POSTERN_CONTEXT", name);
    assert!(named("postern").ok(&["whoami"]).await.contains("admin"));
    let said = named("posten").fails(1, &["whoami"]).await;
    assert!(
        said.contains("no context \"posten\"") && said.contains("did you mean postern"),
        "{said}"
    );
    named("posten").ok(&["whoami", "--context", "postern"]).await;
}

#[tokio::test]
async fn what_a_user_reaches_is_listed_with_the_reason() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob"] {
        admin.ok(&["create", "user", user]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "ada"]).await;
    admin.ok(&["create", "project", "web", "--member", "user/ada:viewer"]).await;
    for secret in ["shared", "other"] {
        admin.ok(&["set", "secret", &format!("{secret}.password"), "hush"]).await;
    }
    admin.ok(&["share", "secret/shared", "--team", "red", "--verbs", "get,update"]).await;
    let text = admin.ok(&["access", "user/ada"]).await;
    for wanted in [
        "Teams: red",
        "in the project web",
        "access rule of the object for team/red",
        "get,update",
        "member of the project",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(!text.contains("other") && !text.contains("hush"), "{text}");
    let objects = admin.ok(&["access", "user", "ada", "-o", "name"]).await;
    let name = |name: &str| format!("{name}\n");
    let wanted = name("sharedsecret.management.platform.sh/shared")
        + &name("project.management.platform.sh/web");
    assert_eq!(objects, wanted);
    assert!(admin.ok(&["access", "user/bob"]).await.contains("no objects"));
    let json: Value =
        serde_json::from_str(&admin.ok(&["access", "team/red", "-o", "json"]).await).unwrap();
    assert_eq!(json["objects"][0]["name"], "shared", "{json}");
    admin.ok(&["create", "accesskey", "ci", "--user", "ada", "--secret", "other"]).await;
    assert!(admin.ok(&["access", "accesskey/ci"]).await.contains("no objects"));
    for (words, code, wanted) in [
        (&["user/adda"][..], 1, "did you mean ada"),
        (&["secret/shared"], 2, "user/NAME, team/NAME or accesskey/NAME"),
        (&["user"], 2, "user/NAME"),
    ] {
        let said = admin.fails(code, &[&["access"], words].concat()).await;
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
}

#[tokio::test]
async fn a_kind_and_a_name_are_one_word_in_every_command() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user/ada"]).await;
    admin.ok(&["create", "accesskey/ci", "--user", "ada"]).await;
    admin.ok(&["set", "secret/db.password", "a/b"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.password"]).await, "a/b");
    admin.ok(&["share", "secret/db", "--user", "ada"]).await;
    admin.ok(&["unshare", "-n", "platform", "secret/db", "--user", "ada"]).await;
    admin.ok(&["unset", "secret/db.password"]).await;
    admin.ok(&["disable", "accesskey/ci"]).await;
    admin.ok(&["enable", "user/ada"]).await;
    admin.ok(&["rotate", "accesskey/ci"]).await;
    assert!(admin.fails(2, &["share", "secrte/db", "--user", "ada"]).await.contains("secrte/db"));
}
