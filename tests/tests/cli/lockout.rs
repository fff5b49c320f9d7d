//! Access that ends by a command: what stops is said before, and the last access stays.

use postern_tests::cli::CliUser;
use postern_tests::{Home, Server, Setup};

use crate::cli::terminal::Terminal;
use crate::cli::{admin, authority, url};

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

/// The text of an RBAC object of a kind, with the fields after the metadata.
fn rbac(kind: &str, name: &str, fields: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: \"{name}\" }}\n{fields}\n"
    )
}

/// A user with a `ClusterRole` with these rules.
async fn helper(admin: &CliUser, name: &str, rules: &str) -> CliUser {
    admin.ok(&["create", "user", name]).await;
    let role =
        admin.file(&format!("{name}.yaml"), rbac("ClusterRole", name, &format!("rules:\n{rules}")));
    admin.ok(&["apply", "-f", &role]).await;
    admin.ok(&["grant", name, "--user", name]).await;
    with_new_key(admin, &[name, "--user", name]).await
}

const WRITE_USERS: &str = "- { apiGroups: [management.platform.sh], resources: [users], verbs: [get, list, update, patch, delete] }\n\
    - { apiGroups: [rbac.authorization.k8s.io], resources: [clusterrolebindings], verbs: [get, list, update, patch, delete] }\n";

#[tokio::test]
async fn a_check_of_the_last_way_in_that_cannot_be_done_is_refused() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["bob", "root"] {
        admin.ok(&["create", "user", user]).await;
    }
    admin.ok(&["grant", "platform-admin", "--user", "root"]).await;
    let blind = helper(&admin, "blind", WRITE_USERS).await;
    let asking = format!(
        "{WRITE_USERS}- {{ apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create] }}\n"
    );
    let asking = helper(&admin, "asking", &asking).await;
    for command in [
        &["disable", "user", "admin", "--yes"][..],
        &["delete", "user", "admin", "--yes"],
        &["offboard", "admin", "--yes"],
        &["revoke", "platform-admin", "--user", "root"],
        &["delete", "clusterrolebinding/grant:platform-admin:user:root"],
    ] {
        for user in [&blind, &asking] {
            let said = user.fails(1, command).await;
            assert!(
                said.contains("it is unknown whether another access key"),
                "{command:?}: {said}"
            );
            assert!(said.contains("ownedaccesskeys") && said.contains("--force"), "{said}");
        }
    }
    // The one who may ask about others knows that bob has no such role. The other one cannot know.
    let said = blind.fails(1, &["disable", "user", "bob"]).await;
    assert!(said.contains("it is unknown whether"), "{said}");
    asking.ok(&["disable", "user", "bob"]).await;
    assert!(said.contains("create on subjectaccessreviews"), "the missing permission: {said}");
    let said = asking.fails(1, &["disable", "user", "admin", "--yes"]).await;
    assert!(!said.contains("create on subjectaccessreviews"), "{said}");
    blind.ok(&["enable", "user", "bob"]).await;
    blind.ok(&["disable", "user", "bob", "--force", "--yes"]).await;
}

/// The successor of a key can be no way in, and then the old key must not end.
#[tokio::test]
async fn a_rotation_with_an_overlap_keeps_a_way_in() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--access-key-max-ttl=12h").start().await;
    let admin = admin(&server);
    let last = "no other access key with every permission";
    let rotate = ["rotate", "accesskey", "admin", "--overlap", "1h"];
    let said = admin.fails(1, &rotate).await;
    assert!(said.contains(last) && said.contains("--force"), "{said}");
    let keys = admin.ok(&["list", "accesskeys", "-o", "name"]).await;
    assert_eq!(keys.lines().count(), 1, "no successor was created: {keys}");
    let said = admin.run(&[&rotate[..], &["--force"]].concat()).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("expires in 12h"), "the lifetime that the server gave: {}", said.err);
}

/// A key of the type Login ends with its login.
#[tokio::test]
async fn a_logout_keeps_the_last_way_in() {
    let server = Server::start().await;
    let (admin, user) = (admin(&server), CliUser::new());
    let file = admin.file(
        "key.yaml",
        "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\nmetadata: {name: login}\n\
         spec: {user: admin, type: Login}\n",
    );
    let yaml = admin.ok(&["create", "-f", &file, "-o", "yaml"]).await;
    let key = yaml.split_once("  key: ").unwrap().1.lines().next().unwrap();
    let (url, ca) = (url(&server), authority(&user, &server));
    let login = ["login", &url, "--ca-file", &ca, "--access-key", "-"];
    assert_eq!(user.run_with(&login, key.as_bytes()).await.code, 0);
    admin.ok(&["delete", "accesskey", "admin", "--yes"]).await;
    let said = user.fails(1, &["logout"]).await;
    assert!(said.contains("no other access key with every permission"), "{said}");
    user.ok(&["whoami"]).await;
    let said = user.run(&["logout", "--force"]).await;
    assert!(said.code == 0 && said.err.contains("login was deleted"), "{}", said.err);
}

#[tokio::test]
async fn every_write_that_takes_the_last_way_in_needs_force() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob"] {
        admin.ok(&["create", "user", user]).await;
    }
    admin.ok(&["create", "team", "ops", "--users", "ada"]).await;
    let role = admin.file(
        "role.yaml",
        rbac("ClusterRole", "all", "rules: [{ apiGroups: ['*'], resources: ['*'], verbs: ['*'] }]"),
    );
    let ops = "subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'platform:team:ops' }]";
    let no_subjects = "subjects: []";
    let of_role =
        "roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all }\n";
    let binding =
        |subjects: &str| rbac("ClusterRoleBinding", "ops", &format!("{of_role}{subjects}"));
    let bound = admin.file("binding.yaml", binding(ops));
    let unbound = admin.file("unbound.yaml", binding(no_subjects));
    let powerless = admin.file("powerless.yaml", rbac("ClusterRole", "all", "rules: []"));
    for file in [&role, &bound] {
        admin.ok(&["apply", "-f", file]).await;
    }
    let ada = with_new_key(&admin, &["ada", "--user", "ada"]).await;
    let edited = |user: &CliUser, script: &str| {
        user.clone().with("KUBE_EDITOR", &format!("sed -i {script}"))
    };
    let last = "no other access key with every permission";

    // The administrator has the permissions by a group, and ada is another way in.
    admin.ok(&["apply", "-f", &unbound]).await;
    admin.ok(&["apply", "-f", &bound]).await;
    edited(&admin, "'s/- ada/- bob/'").ok(&["edit", "team", "ops"]).await;
    for short in ["2m", "23h"] {
        let name = format!("short-{short}");
        admin.ok(&["create", "accesskey", &name, "--ttl", short]).await;
    }
    let no_groups = edited(&admin, "'s/system:masters/other/'");
    for (user, command) in [
        (no_groups, &["edit", "user", "admin"][..]),
        (edited(&admin, "'s/^spec:/spec:\\n  disabled: true/'"), &["edit", "accesskey", "admin"]),
        (edited(&admin, "'s/^spec:/spec:\\n  scope: {}/'"), &["edit", "accesskey", "admin"]),
        (admin.clone(), &["disable", "accesskey", "admin", "--yes"]),
    ] {
        // Only short keys and ada, who is not in the team any more, are left.
        let said = user.fails(1, command).await;
        assert!(said.contains(last) && said.contains("--force"), "{command:?}: {said}");
    }
    edited(&admin, "'s/- bob/- ada/'").ok(&["edit", "team", "ops"]).await;
    ada.ok(&["delete", "user", "admin", "--yes"]).await;
    for (user, command) in [
        (edited(&ada, "'s/- ada/- bob/'"), &["edit", "team", "ops"][..]),
        (edited(&ada, "s/team:ops/team:other/"), &["edit", "clusterrolebinding", "ops"]),
        (ada.clone(), &["apply", "-f", &unbound]),
        (ada.clone(), &["apply", "-f", &powerless]),
        (ada.clone(), &["delete", "-f", &bound, "--yes"]),
        (ada.clone(), &["delete", "clusterrolebinding", "ops", "--yes"]),
        (ada.clone(), &["delete", "clusterrole", "all", "--yes"]),
        (ada.clone(), &["delete", "clusterrole/all", "team/ops", "--yes"]),
    ] {
        let said = user.fails(1, command).await;
        assert!(said.contains(last) && said.contains("--force"), "{command:?}: {said}");
    }
    // Other changes of the same objects need nothing.
    ada.ok(&["apply", "-f", &bound, "-f", &role, "--force-conflicts"]).await;
    ada.ok(&["delete", "clusterrole", "platform-viewer"]).await;
    ada.ok(&["apply", "-f", &unbound, "--force"]).await;
    ada.fails(1, &["get", "clusterroles"]).await;
}
