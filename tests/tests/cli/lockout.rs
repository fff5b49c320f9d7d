//! Access that ends by a command: what stops is said before, and the last access stays.

use postern_tests::Server;
use postern_tests::cli::CliUser;

use crate::cli::admin;
use crate::cli::terminal::Terminal;

/// The administrator with another access key.
async fn with_new_key(admin: &CliUser, arguments: &[&str]) -> CliUser {
    let key = admin.ok(&[&["create", "accesskey"], arguments].concat()).await;
    admin.clone().with("POSTERN_ACCESS_KEY", &key)
}

#[tokio::test]
async fn the_last_access_key_with_every_permission_stays_without_force() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    // None of these is another way in: one has a scope, one is of a user with fewer permissions, one is disabled.
    for create in [&["scoped", "--read-only"][..], &["of-ada", "--user", "ada"], &["off"]] {
        admin.ok(&[&["create", "accesskey"], create].concat()).await;
    }
    admin.ok(&["disable", "accesskey", "off"]).await;
    for command in [
        &["delete", "accesskey", "admin"][..],
        &["delete", "accesskey/admin"],
        &["delete", "accesskeys", "--all"],
        &["delete", "user", "admin"],
        &["disable", "accesskey", "admin"],
        &["disable", "user", "admin"],
    ] {
        let said = admin.fails(1, &[command, &["--yes"]].concat()).await;
        assert!(said.contains("no other access key with every permission"), "{said}");
        assert!(said.contains("--force"), "{said}");
    }
    let said = admin.run(&["delete", "user", "admin", "--dry-run=server"]).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("no other access key"), "{}", said.err);
    assert!(said.err.contains("this stops 2 access keys of the user admin"), "{}", said.err);

    let other = with_new_key(&admin, &["second"]).await;
    admin.ok(&["disable", "accesskey", "admin", "--yes"]).await;
    other.ok(&["enable", "accesskey", "admin"]).await;
    admin.ok(&["delete", "accesskey", "admin", "--yes"]).await;
    let said = other.fails(1, &["delete", "accesskey", "second", "--yes"]).await;
    assert!(said.contains("no other access key"), "{said}");
    let ended = other.run(&["delete", "accesskey", "second", "--yes", "--force"]).await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(other.fails(1, &["whoami"]).await.contains("not found"));
}

#[tokio::test]
async fn the_last_team_with_every_permission_stays_without_force() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "team", "ops", "--users", "ada"]).await;
    let binding = admin.file(
        "binding.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: ops }\n\
         roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: platform-admin }\n\
         subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'platform:team:ops' }]\n",
    );
    admin.ok(&["apply", "-f", &binding]).await;
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    // The administrator may go, since ada has every permission by the team.
    ada.ok(&["delete", "user", "admin"]).await;
    let said = ada.fails(1, &["delete", "team", "ops"]).await;
    assert!(said.contains("no other access key with every permission"), "{said}");
    let said = ada.fails(1, &["disable", "user", "ada", "--yes"]).await;
    assert!(said.contains("no other access key with every permission"), "{said}");
}

#[tokio::test]
async fn the_end_of_the_own_access_is_confirmed_by_name() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    let delete = ["delete", "accesskey", "ada"];
    let said = ada.fails(2, &delete).await;
    assert!(said.contains("you use the access key ada") && said.contains("--yes"), "{said}");
    let mut terminal = Terminal::start(&ada, &delete);
    terminal.shows("type its name, ada: ").await;
    terminal.types("y\r");
    let (status, screen) = terminal.ended().await;
    assert_eq!(status.code(), Some(1), "{screen}");
    assert!(screen.contains("nothing was done"), "{screen}");
    ada.ok(&["whoami"]).await;
    let mut terminal = Terminal::start(&ada, &delete);
    terminal.shows("type its name, ada: ").await;
    terminal.types("ada\r");
    let (status, screen) = terminal.ended().await;
    assert!(status.success() && screen.contains("accesskey ada deleted"), "{screen}");
    ada.fails(1, &["whoami"]).await;
}

#[tokio::test]
async fn a_user_stops_with_a_number_of_keys_and_starts_again() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    admin.ok(&["create", "accesskey", "off", "--user", "ada"]).await;
    admin.ok(&["disable", "accesskey", "off"]).await;
    ada.ok(&["console", "--print"]).await;
    let said = admin.run(&["disable", "user", "ada", "-o", "name"]).await;
    assert_eq!(said.text(), "user.management.platform.sh/ada\n", "{}", said.err);
    assert!(
        said.err.contains("this stops 1 access key and 1 session of the user ada"),
        "{}",
        said.err
    );
    assert!(said.err.contains("user ada disabled"), "{}", said.err);
    assert!(ada.fails(1, &["whoami"]).await.contains("disabled"));
    admin.ok(&["enable", "user", "ada"]).await;
    ada.ok(&["whoami"]).await;
    let said = admin.run(&["delete", "accesskey", "ada"]).await;
    assert!(
        said.err.contains("this also stops 1 session made with the access key ada"),
        "{}",
        said.err
    );
}

#[tokio::test]
async fn a_caller_that_cannot_read_all_keys_learns_that_the_check_is_incomplete() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    let note = "you may not read all access keys";
    let said = ada.run(&["delete", "accesskey", "ada", "--dry-run=server"]).await;
    assert!(said.err.contains(note), "{}", said.err);
    let said = admin.run(&["delete", "accesskey", "ada", "--dry-run=server"]).await;
    assert!(!said.err.contains(note), "{}", said.err);
}

#[tokio::test]
async fn another_team_with_every_permission_is_another_way_in() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    for team in ["ops", "admins"] {
        admin.ok(&["create", "team", team, "--users", "ada"]).await;
        admin.ok(&["grant", "platform-admin", "--team", team]).await;
    }
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    ada.ok(&["delete", "user", "admin"]).await;
    let dry_run = ["--dry-run=server"];
    let said = ada.run(&[&["delete", "team", "ops"], &dry_run[..]].concat()).await;
    assert!(!said.err.contains("no other access key"), "{}", said.err);
    let said = ada.run(&[&["delete", "team", "ops", "admins"], &dry_run[..]].concat()).await;
    assert!(said.err.contains("no other access key"), "{}", said.err);
    ada.ok(&["delete", "team", "ops"]).await;
    let said = ada.fails(1, &["delete", "team", "admins"]).await;
    assert!(said.contains("no other access key"), "{said}");
}

#[tokio::test]
async fn the_own_role_with_every_permission_is_not_revoked_by_accident() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["grant", "platform-admin", "--user", "ada"]).await;
    admin.ok(&["grant", "platform-viewer", "--user", "ada"]).await;
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    let revoke = ["revoke", "platform-admin", "--user", "ada"];
    // The administrator has another access key with every permission.
    let said = ada.fails(2, &revoke).await;
    assert!(said.contains("asks for confirmation") && said.contains("--yes"), "{said}");
    ada.ok(&["delete", "user", "admin"]).await;
    let said = ada.fails(1, &[&revoke[..], &["--yes"]].concat()).await;
    assert!(said.contains("no other access key with every permission"), "{said}");
    ada.ok(&["revoke", "platform-viewer", "--user", "ada"]).await;
    ada.ok(&[&revoke[..], &["--yes", "--force"]].concat()).await;
    ada.fails(1, &["get", "clusterrolebindings"]).await;
}
