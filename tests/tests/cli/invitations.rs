//! Inviting a user by a link, up to the first value that the user reads.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{collection, secret_path};

use crate::cli::{admin, authority, url};

/// Begins the session of a login link as a browser does, and returns its cookie.
async fn open_link(client: &Client, link: &str) -> String {
    let (page, code) = link.trim().split_once("/ui/login#code=").expect("a login link");
    assert!(page.starts_with("https://"), "{link}");
    let reply = client.with_token(code).post("/auth/session").send().await;
    reply.expect(201);
    reply.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned()
}

/// From a running server to the read of a second person: three commands, and a link.
#[tokio::test]
async fn a_second_person_reads_a_value_after_three_commands() {
    let server = Server::start().await;
    let (admin, client) = (admin(&server), server.client());
    let invited = admin.run(&["create", "user", "grace", "--invite", "--valid-for", "2d"]).await;
    assert_eq!(invited.code, 0, "{}", invited.err);
    assert!(invited.err.contains("valid for 2d, and for one login as grace"), "{}", invited.err);
    admin.ok(&["set", "secret", "db.password", "hunter2"]).await;
    admin.ok(&["share", "secret", "db", "--user", "grace"]).await;
    let cookie = open_link(&client, invited.text()).await;
    let read = client.get(&secret_path("db")).without("authorization").header("cookie", &cookie);
    let read = read.header("x-postern-console", "1").send().await.expect(200);
    assert_eq!(read["spec"]["data"]["password"], "aHVudGVyMg==");
}

#[tokio::test]
async fn a_new_user_is_told_where_to_create_secrets_and_which_names_are_taken() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    let refused = admin.fails(1, &["set", "secret", "db.password", "x", "--as", "ada"]).await;
    assert!(refused.contains("in the namespace default: pass -n default"), "{refused}");
    let set = ["set", "secret", "db.password", "x", "-n", "default", "--as"];
    admin.ok(&[&set[..], &["ada"]].concat()).await;
    let taken = admin.fails(1, &[&set[..], &["bob"]].concat()).await;
    assert!(taken.contains("choose another name, such as db-2"), "{taken}");
}

/// No flag names the namespace, and no command fails.
#[tokio::test]
async fn a_new_user_stores_and_shares_a_secret_after_the_login() {
    let server = Server::start().await;
    let (admin, ada) = (admin(&server), CliUser::new());
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "team", "shop", "--users", "ada,bob"]).await;
    let key = admin.ok(&["create", "accesskey", "laptop", "--user", "ada"]).await;
    let (url, ca) = (url(&server), authority(&ada, &server));
    let login = ["login", &url, "--ca-file", &ca, "--access-key", "-"];
    let said = ada.run_with(&login, key.trim().as_bytes()).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("use the namespace default, in which you may create"), "{said:?}");
    assert!(said.err.contains("secrets in the namespace platform need -n platform"), "{said:?}");
    ada.ok(&["set", "secret", "api.token", "hush"]).await;
    assert_eq!(ada.ok(&["get", "secret", "api.token"]).await, "hush");
    ada.ok(&["share", "secret/api", "--user", "bob"]).await;
    let read = ["get", "secret", "api.token", "-n", "default", "--as", "bob"];
    assert_eq!(admin.ok(&read).await, "hush");
    // A secret in another namespace is found by the hint.
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    admin.ok(&["share", "secret/db", "--user", "ada"]).await;
    let refused = ada.fails(1, &["get", "secret", "db.password"]).await;
    assert!(refused.contains("in the namespace platform: -n platform"), "{refused}");
    // A secret of the same name is a new one, and the command says so.
    let made = ada.run(&["set", "secret", "db.password", "own"]).await;
    assert!(made.err.contains("in the namespace platform: to change that one"), "{}", made.err);
    let shared = ada.run(&["share", "secret/db", "--user", "bob"]).await;
    assert!(shared.err.contains("postern get secret db -n default"), "{}", shared.err);
    // A later login does not move the commands of a script to another namespace.
    admin.ok(&["delete", "rolebinding", "platform-user-default", "-n", "default"]).await;
    let said = ada.run_with(&login, key.trim().as_bytes()).await;
    assert!(said.err.contains("commands without -n use the namespace default\n"), "{said:?}");
}

#[tokio::test]
async fn a_user_is_added_to_teams_and_invited_again() {
    let server = Server::start().await;
    let (admin, client) = (admin(&server), server.client());
    admin.ok(&["create", "team", "shop"]).await;
    let made =
        admin.run(&["create", "user", "ada", "--team", "shop", "--email", "a@example.test"]).await;
    assert_eq!((made.code, made.text()), (0, ""), "{}", made.err);
    assert!(made.err.contains("user ada added to team shop"), "{}", made.err);
    let team = client.get(&collection("teams/shop")).send().await.expect(200);
    assert_eq!(team["spec"]["users"][0], "ada");
    let link = admin.ok(&["invite", "ada"]).await;
    open_link(&client, &link).await;
    let viewer = ["create", "user", "eve", "--role", "platform-viewer", "--invite"];
    open_link(&client, &admin.ok(&viewer).await).await;
    let roles = admin.ok(&["roles", "--user", "eve"]).await;
    assert!(roles.contains("grant:platform-viewer:user:eve"), "{roles}");
    for (words, wanted) in [
        (&["invite", "missing"][..], "not found"),
        (&["invite", "ada", "--valid-for", "73h"], "--valid-for"),
        (&["create", "user", "carl", "--invite", "--valid-for", "100h"], "at most 72h"),
        (&["create", "user", "carl", "--role", "platform-viewr"], "did you mean platform-viewer"),
        (&["create", "user", "bob", "--valid-for", "1h"], "pass --invite"),
        (&["create", "user", "carl", "--team", "missing"], "--team"),
        (&["create", "user", "carl", "--role", "role/x"], "counts in its namespace only"),
    ] {
        let refused = admin.run(words).await;
        assert_ne!(refused.code, 0, "{words:?}");
        assert!(refused.err.contains(wanted), "{words:?}: {}", refused.err);
        assert_eq!(refused.text(), "", "{words:?}");
    }
    let ends =
        admin.ok(&["create", "accesskey", "ends", "--user", "admin", "--expires", "1h"]).await;
    let ends = admin.clone().with("POSTERN_ACCESS_KEY", ends.trim_end());
    let refused = ends.fails(1, &["create", "user", "carl", "--invite"]).await;
    assert!(refused.contains("nothing was done"), "{refused}");
    // A caller that may create users, and nothing else.
    let role = admin.file(
        "hr.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: hr }\n\
         rules: [{ apiGroups: [management.platform.sh], resources: [users], verbs: [create] },\n\
         { apiGroups: [management.platform.sh], resources: [teams], verbs: [get] }]\n",
    );
    admin.ok(&["apply", "-f", &role]).await;
    admin.ok(&["create", "user", "hr", "--role", "hr"]).await;
    let listed = admin.ok(&["roles", "--user", "hr"]).await;
    assert!(listed.contains("clusterrolebinding/grant:hr:user:hr"), "{listed}");
    let key = admin.ok(&["create", "accesskey", "hr", "--user", "hr"]).await;
    let hr = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    for flags in [&["--team", "shop"][..], &["--invite"], &["--role", "hr"]] {
        let refused = hr.fails(1, &[&["create", "user", "carl"], flags].concat()).await;
        assert!(refused.contains(flags[0]) && refused.contains("nothing was done"), "{refused}");
    }
    // Everything is checked before the user is created.
    admin.fails(1, &["get", "user", "carl"]).await;
}
