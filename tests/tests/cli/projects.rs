//! Projects and their members.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::{Value, json};

use crate::cli::admin;

async fn members_of(user: &CliUser, project: &str) -> Value {
    let json = user.ok(&["get", "project", project, "-o", "json"]).await;
    serde_json::from_str::<Value>(&json).unwrap()["spec"]["members"].clone()
}

fn member(kind: &str, name: &str, role: &str) -> Value {
    json!({ "kind": kind, "name": name, "clusterRole": format!("platform-project-{role}") })
}

#[tokio::test]
async fn a_project_is_created_with_members_who_come_and_go() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "bob"]).await;
    let create =
        ["create", "project", "web", "--display-name", "Shop", "--description", "It sells"];
    let members = ["--member", "user/ada:admin", "--member", "team/red", "-o", "name"];
    let output = admin.run(&[&create[..], &members].concat()).await;
    assert_eq!(output.text(), "project.management.platform.sh/web\n", "{}", output.err);
    assert!(output.err.contains("namespace p-web"), "{}", output.err);
    let (ada, red) = (member("User", "ada", "admin"), member("Team", "red", "user"));
    assert_eq!(members_of(&admin, "web").await, json!([ada, red]));
    assert!(admin.ok(&["get", "project", "web"]).await.contains("Shop"));

    admin.ok(&["add", "member", "web", "--user", "bob", "--role", "viewer"]).await;
    let bob = member("User", "bob", "viewer");
    assert_eq!(members_of(&admin, "web").await, json!([ada, red, bob]));
    let again = admin.run(&["add", "member", "web", "--user", "bob", "--role", "viewer"]).await;
    assert!(again.code == 0 && again.err.contains("was a member"), "{}", again.err);
    let more = admin.run(&["add", "member", "web", "--user", "bob"]).await;
    assert!(
        more.err.contains("keeps these roles in the project: platform-project-viewer"),
        "{}",
        more.err
    );
    admin.ok(&["remove", "member", "web", "--user", "bob"]).await;
    admin.ok(&["remove", "member", "web", "--team", "red"]).await;
    assert_eq!(members_of(&admin, "web").await, json!([ada]));
    let output = admin.run(&["remove", "member", "web", "--team", "ada"]).await;
    assert!(output.code == 0 && output.err.contains("is not a member"), "{}", output.err);
    let said = admin.fails(1, &["add", "member", "wbe", "--user", "bob"]).await;
    assert!(said.contains("not found") && said.contains("did you mean web?"), "{said}");
    let said = admin.fails(1, &["add", "member", "web", "--user", "nobody"]).await;
    assert!(said.contains("nobody"), "{said}");
    let add = ["add", "member", "web", "--user", "bob", "--role"];
    let said = admin.fails(1, &[&add[..], &["bogus"]].concat()).await;
    assert!(said.contains("--role: ") && said.contains("\"bogus\" not found"), "{said}");
    let said = admin.fails(1, &["create", "project", "p2", "--member", "user/ada:bogus"]).await;
    assert!(said.contains("--member: ") && said.contains("\"bogus\" not found"), "{said}");
    admin.fails(1, &["get", "project", "p2"]).await;
    assert_eq!(members_of(&admin, "web").await, json!([ada]));
    admin.ok(&[&add[..], &["platform-agent"]].concat()).await;
}

#[tokio::test]
async fn a_member_may_do_in_the_project_what_their_role_says() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "project", "web"]).await;
    let key = admin.ok(&["create", "accesskey", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", key.trim());
    let may_create = ["can-i", "create", "secrets", "-n", "p-web"];
    assert_eq!(ada.run(&may_create).await.text(), "no\n");
    admin.ok(&["add", "member", "web", "--user", "ada", "--role", "admin"]).await;
    assert_eq!(ada.run(&may_create).await.text(), "yes\n");
    ada.ok(&["set", "secret", "db.password", "hush", "-n", "p-web"]).await;
    admin.ok(&["remove", "member", "web", "--user", "ada"]).await;
    assert_eq!(ada.run(&may_create).await.text(), "no\n");
}

#[tokio::test]
async fn a_virtual_cluster_is_moved_after_it_is_said_what_changes() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "bob"] {
        admin.ok(&["create", "user", name]).await;
    }
    admin.ok(&["create", "project", "web", "--member", "user/ada"]).await;
    admin.ok(&["create", "project", "shop", "--member", "user/bob:viewer"]).await;
    let instance = "apiVersion: management.platform.sh/v1\nkind: VirtualClusterInstance\n\
                    metadata: {name: dev, namespace: p-web}\nspec: {}\n";
    let file = admin.file("dev.yaml", instance);
    admin.ok(&["create", "-f", &file]).await;
    let command = ["migrate", "virtualcluster", "dev", "--from", "web", "--to", "shop"];
    let said = admin.fails(2, &command).await;
    assert!(said.contains("--yes") && said.contains("--dry-run"), "{said}");
    let plan = admin.run(&[&command[..], &["--dry-run"]].concat()).await;
    assert_eq!(plan.code, 0, "{}", plan.err);
    for wanted in [
        "/kubernetes/project/web/virtualcluster/dev -> /kubernetes/project/shop/virtualcluster/dev",
        "loses:     user/ada (platform-project-user)",
        "gains:     user/bob (platform-project-viewer)",
        "quota:     none in shop",
    ] {
        assert!(plan.text().contains(wanted), "{wanted}: {}", plan.text());
    }
    assert!(plan.err.contains("nothing was changed"), "{}", plan.err);
    let get = ["get", "virtualcluster", "dev", "-n"];
    admin.ok(&[&get[..], &["p-web"]].concat()).await;
    let done = admin.run(&[&command[..], &["--yes"]].concat()).await;
    assert!(done.code == 0 && done.err.contains("moved from the project web"), "{}", done.err);
    admin.ok(&[&get[..], &["p-shop"]].concat()).await;
    let said = admin.fails(1, &[&command[..], &["--yes"]].concat()).await;
    assert!(said.contains("not found"), "{said}");
    // A refused migration is refused before anything else is printed.
    let back = ["migrate", "virtualcluster", "dev", "--from", "shop", "--yes", "--to"];
    let said = admin.fails(2, &[&back[..], &["shop"]].concat()).await;
    assert!(said.contains("the same project: shop"), "{said}");
    let said = admin.fails(1, &[&back[..], &["nowhere"]].concat()).await;
    assert!(said.contains("\"nowhere\" not found"), "{said}");
    let held = r#"{"metadata": {"finalizers": ["example.com/held"]}}"#;
    let patch = ["patch", "virtualclusterinstance", "dev", "-n", "p-shop", "--type=merge", "-p"];
    server.kubectl().ok(&[&patch[..], &[held]].concat()).await;
    let said = admin.fails(1, &[&back[..], &["web"]].concat()).await;
    assert!(said.contains("example.com/held") && said.contains("nothing was moved"), "{said}");
    assert!(!said.contains("faster"), "no other client has written anything: {said}");
}

#[tokio::test]
async fn secrets_of_a_project_are_set_and_read() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "project", "web"]).await;
    admin.ok(&["set", "secret", "db.password", "hush", "--project", "web"]).await;
    admin.ok(&["set", "secret", "db.user", "eve", "--project", "web"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.password", "--project", "web"]).await, "hush");
    let table = admin.ok(&["get", "secret", "db", "--project", "web"]).await;
    assert!(table.contains("password") && table.contains("user"), "{table}");
    admin.fails(1, &["get", "secret", "db.password", "-n", "p-web"]).await;
    let said = admin.fails(2, &["get", "secret", "db", "--project", "web", "-n", "x"]).await;
    assert!(said.contains("cannot be used with"), "{said}");
}
