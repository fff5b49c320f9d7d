//! Access keys: creating, handing over, disabling, rotating and deleting them.

use postern_tests::cli::CliUser;
use postern_tests::objects::make;
use postern_tests::{Home, Server, Setup};
use serde_json::json;

use crate::cli::{admin, authority, url};

/// Runs a command that prints a key alone, and returns the key.
async fn key_of(user: &CliUser, arguments: &[&str]) -> String {
    let output = user.run(arguments).await;
    assert_eq!(output.code, 0, "{}", output.all_output());
    let key = output.text().to_owned();
    // `kubectl create secret --from-file` takes a line break as a part of the key.
    assert!(key.starts_with("pst_") && key.len() == 63, "the key alone is on the standard output");
    assert!(!output.err.contains(&key), "the key is not printed twice");
    key
}

async fn log_in(user: &CliUser, server: &Server, key: &str) {
    let (url, ca) = (url(server), authority(user, server));
    let login = ["login", &url, "--ca-file", &ca, "--access-key", "-"];
    let output = user.run_with(&login, format!("{key}\n").as_bytes()).await;
    assert_eq!(output.code, 0, "{}", output.all_output());
    assert!(!output.all_output().contains(key));
}

const READ: [&str; 5] = ["get", "secret", "db.password", "-o", "value"];

#[tokio::test]
async fn a_key_is_handed_over_disabled_enabled_rotated_and_deleted() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let (admin, other) = (admin(&server), CliUser::new());
    admin.ok(&["set", "secret", "db.password", "correct horse"]).await;
    let key = key_of(&admin, &["create", "accesskey", "ci", "--ttl", "720h"]).await;
    log_in(&other, &server, &key).await;
    assert_eq!(other.ok(&READ).await, "correct horse");
    let who = other.ok(&["whoami"]).await;
    assert!(who.contains("admin") && who.contains("ci") && !who.contains(&key), "{who}");

    admin.ok(&["disable", "accesskey", "ci"]).await;
    let said = other.fails(1, &READ).await;
    assert!(said.contains("access key disabled") && said.contains("enable accesskey"), "{said}");
    admin.ok(&["enable", "accesskey", "ci"]).await;
    assert_eq!(other.ok(&READ).await, "correct horse");

    let new = key_of(&admin, &["rotate", "accesskey", "ci"]).await;
    assert_ne!(new, key);
    let said = other.fails(1, &READ).await;
    assert!(said.contains("access key not found") && said.contains("postern login"), "{said}");
    assert!(!said.contains(&key));
    log_in(&other, &server, &new).await;
    assert_eq!(other.ok(&READ).await, "correct horse");

    // After a restart the port is another one, and the key must still be valid.
    server.stop().await;
    let server = Setup::on(&home).start().await;
    log_in(&other, &server, &new).await;
    assert_eq!(other.ok(&READ).await, "correct horse");

    admin.ok(&["delete", "accesskey", "ci"]).await;
    let said = other.fails(1, &READ).await;
    assert!(said.contains("access key not found"), "{said}");
    assert!(!home.logged().contains(&new) && !home.logged().contains(&key));
}

#[tokio::test]
async fn rotating_the_own_key_says_what_to_do() {
    let server = Server::start().await;
    let (admin, other) = (admin(&server), CliUser::new());
    let key = key_of(&admin, &["create", "accesskey"]).await;
    log_in(&other, &server, &key).await;
    let who: serde_json::Value =
        serde_json::from_str(&other.ok(&["whoami", "-o", "json"]).await).unwrap();
    let name = who["status"]["accessKey"].as_str().unwrap();
    let output = other.run(&["rotate", "accesskey", name]).await;
    assert!(output.err.contains("belongs to the current login"), "{}", output.err);
    let new = output.text().trim_end().to_owned();
    assert!(other.fails(1, &["whoami"]).await.contains("not found"));
    let by_environment = other.clone().with("POSTERN_ACCESS_KEY", &new);
    assert!(by_environment.ok(&["whoami"]).await.contains(name));
}

#[tokio::test]
async fn a_successor_works_next_to_the_old_key_which_then_ends() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let scope = admin.file("scope.yaml", "{}");
    let create = ["create", "accesskey", "ci", "--user", "ada", "--scope-file", &scope];
    let old = key_of(&admin, &create).await;
    let output = admin.run(&["rotate", "accesskey", "ci", "--overlap", "24h"]).await;
    assert_eq!(output.code, 0, "{}", output.all_output());
    let new = output.text().trim_end();
    assert!(new.starts_with("pst_") && !output.err.contains(new), "the key alone is printed");
    assert!(output.err.contains("the old access key ci ends in 1d"), "{}", output.err);
    let name = output.err.split("access key ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(name.starts_with("ci-"), "{}", output.err);
    for key in [&old, new] {
        let who = admin.clone().with("POSTERN_ACCESS_KEY", key).ok(&["whoami"]).await;
        assert!(who.contains("ada") && who.contains("limited"), "{who}");
    }
    let spec = async |name: &str| {
        let json = admin.ok(&["get", "accesskey", name, "-o", "json"]).await;
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["spec"].clone()
    };
    let (old_spec, new_spec) = (spec("ci").await, spec(name).await);
    assert!((86_400..90_000).contains(&old_spec["ttl"].as_i64().unwrap()), "{old_spec}");
    assert_eq!(
        (&new_spec["ttl"], &new_spec["scope"]),
        (&serde_json::Value::Null, &old_spec["scope"])
    );

    let named = ["rotate", "accesskey", "ci", "--overlap", "1h", "--new-name", "cj"];
    let output = admin.run(&named).await;
    assert!(output.err.contains("access key cj created"), "{}", output.err);
    let output = admin.run(&["rotate", "accesskey", "ci", "--overlap", "2d"]).await;
    assert!(output.err.contains("expires before that"), "{}", output.err);
    admin.ok(&["disable", "accesskey", "ci"]).await;
    let said = admin.fails(1, &named).await;
    assert!(said.contains("disabled") && said.contains("nothing was changed"), "{said}");
    let said = admin.fails(1, &["rotate", "accesskey", "ck", "--overlap", "1h"]).await;
    assert!(said.contains("not found"), "{said}");
}

#[tokio::test]
async fn a_successor_is_not_created_if_the_old_key_cannot_end_as_asked() {
    let server = Setup::on(&Home::new()).argument("--access-key-max-ttl=30d").start().await;
    let admin = admin(&server);
    let idle = json!({ "ttl": 86_400, "ttlAfterLastActivity": true });
    make(&server.client(), "ownedaccesskeys", "idle", idle).await;
    let said = admin.fails(1, &["rotate", "accesskey", "idle", "--overlap", "40d"]).await;
    assert!(said.contains("--overlap") && said.contains("nothing was changed"), "{said}");
    let keys = admin.ok(&["get", "accesskeys", "-o", "name"]).await;
    assert!(!keys.contains("idle-"), "{keys}");
    admin.ok(&["rotate", "accesskey", "idle", "--overlap", "10d"]).await;
}

#[tokio::test]
async fn a_key_that_cannot_be_printed_is_named_or_not_created() {
    let server = Server::start().await;
    let admin = admin(&server);
    let shell = admin.clone().program("/bin/sh".into());
    let run = async |command: &str, output: &str| {
        let script = format!("{} {command} {output}", postern_tests::binary::path().display());
        let ended = shell.run(&["-c", &script]).await;
        (ended.code, ended.err)
    };
    for (command, key) in [
        ("create accesskey ci", "ci"),
        ("create cluster east", "agent-east"),
        ("rotate accesskey ci", "ci"),
    ] {
        let (code, err) = run(command, ">&-").await;
        assert!(code == 1 && err.contains("the standard output is closed"), "{err}");
        if !command.starts_with("rotate") {
            admin.fails(1, &["get", "accesskey", key]).await;
        }
        let (code, err) = run(command, "> /dev/full").await;
        assert!(code == 1 && err.contains(&format!("access key {key} is valid")), "{err}");
        assert!(err.contains(&format!("postern rotate accesskey {key}")), "{err}");
        assert_eq!(run(&format!("rotate accesskey {key}"), "> /dev/null").await.0, 0);
    }
    admin.ok(&["delete", "accesskey", "agent-east"]).await;
    let again = "create agent-key east";
    assert!(run(again, ">&-").await.1.contains("the standard output is closed"));
    let (code, err) = run(again, "> /dev/full").await;
    assert!(code == 1 && err.contains("access key agent-east is valid"), "{err}");
}

#[tokio::test]
async fn users_and_teams_have_keys() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin
        .ok(&["create", "user", "ada", "--display-name", "Ada", "--email", "ada@example.com"])
        .await;
    admin.ok(&["create", "team", "red", "--users", "ada", "--groups", "a,b"]).await;
    let ada = key_of(&admin, &["create", "accesskey", "ada-1", "--user", "ada"]).await;
    let red = key_of(&admin, &["create", "accesskey", "red-1", "--team=red", "--ttl=30d"]).await;
    let (user, team) = (CliUser::new(), CliUser::new());
    log_in(&user, &server, &ada).await;
    log_in(&team, &server, &red).await;
    let name = |kind: &str| format!("{kind}.management.platform.sh/");
    assert_eq!(user.ok(&["whoami", "-o", "name"]).await, name("user") + "ada\n");
    assert_eq!(team.ok(&["whoami", "-o", "name"]).await, name("team") + "red\n");
    let listed = admin.ok(&["list", "accesskeys", "-o", "wide"]).await;
    for wanted in ["ada-1", "user/ada", "team/red", "2592000", "TTL SECONDS"] {
        assert!(listed.contains(wanted), "{wanted}: {listed}");
    }
    assert!(admin.ok(&["list", "users"]).await.contains("Ada"));
    let names = admin.ok(&["list", "teams", "-o", "name"]).await;
    assert_eq!(names, name("team") + "red\n");
    let said = user.fails(1, &["create", "user", "bob"]).await;
    assert!(said.contains("forbidden") && said.contains("postern whoami"), "{said}");
    for what in [&["user", "ada"], &["team", "red"]] {
        admin.ok(&[&["delete"], &what[..]].concat()).await;
    }
    assert!(user.fails(1, &["whoami"]).await.contains("access key"));
}

#[tokio::test]
async fn errors_of_the_server_are_printed_with_hints() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "accesskey", "ci"]).await;
    let said = admin.fails(1, &["create", "accesskey", "ci"]).await;
    assert!(said.contains("already exists") && said.contains("another name"), "{said}");
    let said = admin.fails(1, &["create", "accesskey", "--user", "nobody"]).await;
    assert!(said.contains("nobody"), "{said}");
    let said = admin.fails(1, &["disable", "accesskey", "cj"]).await;
    assert!(said.contains("not found") && said.contains("did you mean ci?"), "{said}");
    let said = admin.fails(1, &["rotate", "accesskey", "cj"]).await;
    assert!(said.contains("not found"), "{said}");
    let json = admin.ok(&["create", "accesskey", "whole", "-o", "json"]).await;
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(object["spec"]["key"].as_str().unwrap().starts_with("pst_"));
}
