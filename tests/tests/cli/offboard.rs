//! A user that leaves.

use postern_tests::Server;
use postern_tests::objects::{secret, secrets};
use serde_json::{Value, json};

use crate::cli::admin;
use crate::cli::terminal::Terminal;

#[tokio::test]
async fn a_user_leaves_and_a_team_owns_what_was_theirs() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    for team in ["shop", "red"] {
        admin.ok(&["create", "team", team, "--users", "ada"]).await;
    }
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    admin.ok(&["grant", "platform-admin", "--user", "ada"]).await;
    ada.ok(&["create", "project", "web", "--member", "user/ada:viewer"]).await;
    ada.ok(&["set", "secret", "db.password", "hush"]).await;
    ada.ok(&["set", "secret", "db.password", "hush", "-n", "p-web"]).await;
    admin.ok(&["set", "secret", "other.password", "hush"]).await;

    let deleted = admin.run(&["delete", "user", "ada", "--dry-run"]).await;
    for wanted in [
        "objects of the user ada that lose their owner: secrets: 2, projects: 1",
        "clusterrolebinding/grant:platform-admin:user:ada",
        "`postern offboard ada`",
    ] {
        assert!(deleted.err.contains(wanted), "{}", deleted.err);
    }

    let offboard = ["offboard", "ada", "--transfer-to", "team/shop"];
    assert!(admin.fails(2, &offboard).await.contains("--yes"));
    let dry_run = ["offboard", "user/ada", "--dry-run", "-o", "json"];
    let plan: Value = serde_json::from_str(&admin.ok(&dry_run).await).unwrap();
    assert_eq!(plan["accessKeys"], json!(["ada"]), "{plan}");
    assert_eq!(plan["teams"], json!(["red", "shop"]), "{plan}");
    assert_eq!(
        plan["projects"],
        json!([{ "name": "web", "role": "platform-project-viewer" }]),
        "{plan}"
    );
    assert_eq!(plan["grants"][0]["role"]["name"], "platform-admin", "{plan}");
    assert_eq!(plan["transferTo"], Value::Null, "{plan}");
    let owned = plan["owned"].as_array().unwrap().iter();
    let mut owned: Vec<_> = owned
        .map(|one| format!("{} {}/{}", one["kind"], one["namespace"], one["name"]).replace('"', ""))
        .collect();
    owned.sort();
    assert_eq!(owned, ["project null/web", "secret p-web/db", "secret platform/db"]);
    ada.ok(&["whoami"]).await;

    let mut terminal = Terminal::start(&admin, &offboard);
    terminal.shows("Disable ada, and move 3 owned objects to team/shop? [y/N] ").await;
    terminal.types("n\r");
    let (status, screen) = terminal.ended().await;
    assert_eq!(status.code(), Some(1), "{screen}");
    assert!(screen.contains("keeps an owner") || screen.contains("moves to team/shop"), "{screen}");
    ada.ok(&["whoami"]).await;

    let output = admin.run(&[&offboard[..], &["--yes"]].concat()).await;
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.text().contains("moves to team/shop") && !output.all_output().contains("hush"));
    for wanted in
        ["project web moved to team/shop", "user ada disabled", "postern revoke ROLE --user ada"]
    {
        assert!(output.err.contains(wanted), "{}", output.err);
    }
    assert!(ada.fails(1, &["whoami"]).await.contains("disabled"));
    for namespace in ["platform", "p-web"] {
        let get = ["get", "secret/db", "-n", namespace, "-o", "jsonpath={.spec.owner}"];
        assert_eq!(admin.ok(&get).await, "{\"team\":\"shop\"}");
    }
    let again = admin.run(&[&offboard[..], &["--yes"]].concat()).await;
    assert!(again.err.contains("was disabled already"), "{}", again.err);
}

#[tokio::test]
async fn the_new_owner_exists_and_is_another_one() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "team", "shop"]).await;
    for (arguments, code, wanted) in [
        (&["ada", "--transfer-to", "team/shpo"][..], 1, "did you mean shop"),
        (&["ada", "--transfer-to", "user/ada"], 2, "the user that leaves"),
        (&["ada", "--transfer-to", "shop"], 2, "user/NAME or team/NAME"),
        (&["adda"], 1, "did you mean ada"),
        (&["admin"], 1, "no other access key with every permission"),
    ] {
        let said = admin.fails(code, &[&["offboard"], arguments, &["--yes"]].concat()).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    admin.ok(&["whoami"]).await;
}

#[tokio::test]
async fn nothing_moves_if_one_object_cannot_or_if_some_are_unread() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob", "grace"] {
        admin.ok(&["create", "user", user]).await;
    }
    let with_key = async |user: &str| {
        let key = admin.ok(&["create", "accesskey", user, "--user", user]).await;
        admin.clone().with("POSTERN_ACCESS_KEY", &key)
    };
    let (ada, bob) = (with_key("ada").await, with_key("bob").await);
    ada.ok(&["set", "secret", "db.password", "hush", "-n", "default"]).await;
    admin.ok(&["disable", "user", "grace"]).await;
    let said = admin.fails(1, &["offboard", "ada", "--transfer-to", "user/grace", "--yes"]).await;
    assert!(said.contains("the user grace is disabled"), "{said}");

    // bob may see and disable users, and none of the secrets.
    let role = admin.file(
        "role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: users }\n\
         rules: [{ apiGroups: [management.platform.sh], resources: [users], verbs: [get, list, update, patch] }]\n",
    );
    admin.ok(&["apply", "-f", &role]).await;
    admin.ok(&["grant", "users", "--user", "bob"]).await;
    let offboard = ["offboard", "ada", "--transfer-to", "user/bob", "--yes"];
    let said = bob.fails(1, &offboard).await;
    assert!(said.contains("you may not read all") && said.contains("--partial"), "{said}");
    let plan = bob.ok(&["offboard", "ada", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let not_listed = plan["notListed"].as_array().unwrap();
    for plural in ["sharedsecrets", "ownedaccesskeys", "workloadidentities"] {
        assert!(not_listed.contains(&json!(plural)), "{plan}");
    }
    let said = bob.run(&["offboard", "ada", "--dry-run"]).await;
    assert!(said.err.contains("has and owns nothing that you may read"), "{}", said.err);
    ada.ok(&["whoami"]).await;
    // Without the right to read all keys, it is unknown whether ada is the last administrator.
    bob.ok(&[&offboard[..], &["--partial", "--force"]].concat()).await;
    assert!(ada.fails(1, &["whoami"]).await.contains("disabled"));
    let owner = ["get", "secret/db", "-n", "default", "-o", "jsonpath={.spec.owner}"];
    assert_eq!(admin.ok(&owner).await, "{\"user\":\"ada\"}");
}

#[tokio::test]
async fn nothing_stays_with_a_user_that_writes_meanwhile() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "team", "shop"]).await;
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = server.client().with_token(key.trim());
    let (started, has_started) = tokio::sync::oneshot::channel();
    let writer = tokio::spawn(async move {
        let (mut started, mut count) = (Some(started), 0);
        loop {
            let new = secret(&format!("s{count}"), "hush");
            match ada.post(&secrets("default")).json(&new).send().await.status {
                201 => count += 1,
                401 => return count,
                // A user may have 100 secrets, and the server may limit the rate.
                _ => {}
            }
            if count == 5
                && let Some(started) = started.take()
            {
                let _ = started.send(());
            }
        }
    });
    has_started.await.unwrap();
    let output = admin.run(&["offboard", "ada", "--transfer-to", "team/shop", "--yes"]).await;
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains("user ada disabled"), "{}", output.err);
    let count: usize = writer.await.unwrap();
    let left = admin.ok(&["get", "secrets", "-n", "default", "-o", "json"]).await;
    let left: Value = serde_json::from_str(&left).unwrap();
    let items = left["items"].as_array().unwrap();
    assert_eq!(items.len(), count);
    for item in items {
        assert_eq!(item["spec"]["owner"], json!({ "team": "shop" }), "{item}");
    }
    // The user that leaves moves nothing: it is disabled first.
    admin.ok(&["enable", "user", "ada"]).await;
    let own = ["offboard", "ada", "--transfer-to", "team/shop", "--yes", "--as", "ada"];
    assert!(admin.fails(1, &own).await.contains("you are the user that leaves"));
}

/// The leaving user has had the values of keys that belong to others.
#[tokio::test]
async fn keys_and_login_links_that_a_user_has_made_for_others_are_shown() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "team", "shop", "--users", "bob"]).await;
    admin.ok(&["grant", "platform-admin", "--user", "ada"]).await;
    let key = admin.ok(&["create", "accesskey", "own", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    ada.ok(&["create", "accesskey", "of-bob", "--user", "bob"]).await;
    ada.ok(&["create", "accesskey", "of-shop", "--team", "shop"]).await;
    ada.ok(&["create", "accesskey", "off", "--user", "bob"]).await;
    ada.ok(&["disable", "accesskey", "off"]).await;
    admin.ok(&["create", "accesskey", "rotated", "--user", "bob"]).await;
    ada.ok(&["rotate", "accesskey", "rotated"]).await;
    ada.ok(&["create", "accesskey", "back", "--user", "bob"]).await;
    admin.ok(&["rotate", "accesskey", "back"]).await;
    let link = ada.run(&["invite", "bob"]).await;
    assert_eq!(link.code, 0, "{}", link.err);
    let plan = admin.ok(&["offboard", "ada", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let handed_out = plan["handedOut"].as_array().unwrap();
    let keys: Vec<&str> = handed_out.iter().filter_map(Value::as_str).collect();
    assert_eq!(keys.len(), 4, "{plan}");
    for name in ["of-bob", "of-shop", "rotated"] {
        assert!(keys.contains(&name), "{plan}");
    }
    let done = admin.run(&["offboard", "ada", "--yes"]).await;
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.text().contains("login link"), "{}", done.text());
    assert!(done.text().contains("belongs to team/shop"), "{}", done.text());
    assert!(done.err.contains("has had access keys of others, which stay valid"), "{}", done.err);
}
