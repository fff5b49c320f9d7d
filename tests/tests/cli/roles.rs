//! Roles of users and teams: granting, revoking and listing them.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::Value;

use crate::cli::admin;

/// Whether ada may do something, as the server decides.
async fn may_ada(admin: &CliUser, question: &[&str]) -> bool {
    admin.run(&[&["can-i"], question, &["--as", "ada"]].concat()).await.code == 0
}

#[tokio::test]
async fn a_role_is_granted_listed_and_revoked() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob"] {
        admin.ok(&["create", "user", user]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "ada"]).await;
    let read = ["get", "user/bob"];
    assert!(!may_ada(&admin, &read).await);

    let grant = ["grant", "platform-viewer", "--user", "ada"];
    let granted = admin.run(&[&grant[..], &["-o", "name"]].concat()).await;
    let name = "clusterrolebinding.rbac.authorization.k8s.io/grant:platform-viewer:user:ada\n";
    assert_eq!(granted.text(), name, "{}", granted.err);
    assert!(
        granted.err.contains("the user ada has the role platform-viewer everywhere"),
        "{}",
        granted.err
    );
    assert!(may_ada(&admin, &read).await);
    let again = admin.run(&[&grant[..], &["-o", "name"]].concat()).await;
    assert_eq!((again.code, again.text()), (0, ""), "{}", again.err);
    assert!(again.err.contains("unchanged: "), "{}", again.err);

    admin.ok(&["grant", "platform-viewer", "--team", "red"]).await;
    let listed = admin.ok(&["roles", "--user", "ada"]).await;
    for wanted in
        ["user/ada", "team/red", "all users", "clusterrolebinding/grant:platform-viewer:team:red"]
    {
        assert!(listed.contains(wanted), "{listed}");
    }
    assert!(!admin.ok(&["roles", "--user", "bob"]).await.contains("red"));
    let json: Value =
        serde_json::from_str(&admin.ok(&["roles", "--team", "red", "-o", "json"]).await).unwrap();
    let of_red = json["items"].as_array().unwrap().iter();
    let of_red: Vec<_> =
        of_red.filter(|item| item["subject"]["name"] == "platform:team:red").collect();
    assert_eq!(of_red.len(), 1, "{json}");
    assert_eq!(of_red[0]["role"]["name"], "platform-viewer");

    // A binding with other subjects loses only this one.
    let binding = admin.file(
        "viewers.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: viewers }\n\
         roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: platform-viewer }\n\
         subjects:\n- { apiGroup: rbac.authorization.k8s.io, kind: User, name: ada }\n\
         - { apiGroup: rbac.authorization.k8s.io, kind: User, name: bob }\n",
    );
    admin.ok(&["apply", "-f", &binding]).await;
    let revoke = ["revoke", "platform-viewer", "--user", "ada"];
    let revoked = admin.run(&revoke).await;
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    for wanted in [
        "clusterrolebinding/grant:platform-viewer:user:ada deleted",
        "removed from clusterrolebinding/viewers, which keeps its other subjects",
        "the user ada keeps the role platform-viewer everywhere by team/red",
    ] {
        assert!(revoked.err.contains(wanted), "{}", revoked.err);
    }
    let left = admin.ok(&["get", "clusterrolebinding", "viewers", "-o", "yaml"]).await;
    assert!(left.contains("name: bob") && !left.contains("name: ada"), "{left}");
    let nothing = admin.run(&revoke).await;
    assert_eq!(nothing.code, 0, "{}", nothing.err);
    assert!(nothing.err.contains("nothing was changed"), "{}", nothing.err);
    admin.ok(&["revoke", "platform-viewer", "--team", "red"]).await;
    assert!(!may_ada(&admin, &read).await);
}

#[tokio::test]
async fn a_role_in_a_project_is_that_of_a_member() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "project", "web"]).await;
    let create = ["create", "projectsecrets", "-n", "p-web"];
    for role in ["admin", "viewer"] {
        admin.ok(&["grant", role, "--user", "ada", "--project", "web"]).await;
    }
    assert!(may_ada(&admin, &create).await);
    let listed = admin.ok(&["roles", "--user", "ada"]).await;
    assert!(listed.contains("in the project web"), "{listed}");
    assert!(listed.contains("rolebinding/platform:members:platform-project-admin"), "{listed}");
    // The binding of the members is the server's. A namespace names other bindings only.
    let revoke = ["revoke", "platform-project-admin", "--user", "ada", "-n", "p-web"];
    let kept = admin.run(&revoke).await;
    assert!(kept.err.contains("nothing was changed"), "{}", kept.err);
    assert!(
        kept.err.contains("keeps the role platform-project-admin in the project web"),
        "{}",
        kept.err
    );
    assert!(may_ada(&admin, &create).await);
    admin.ok(&["revoke", "admin", "--user", "ada", "--project", "web"]).await;
    assert!(!may_ada(&admin, &create).await);
    let left = admin.ok(&["roles", "--user", "ada"]).await;
    assert!(left.contains("platform-project-viewer") && !left.contains("-admin"), "{left}");
}

#[tokio::test]
async fn a_role_of_a_namespace_is_granted_there() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let role = admin.file(
        "role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: { name: makers, namespace: platform }\n\
         rules: [{ apiGroups: [management.platform.sh], resources: [sharedsecrets], verbs: [create] }]\n",
    );
    admin.ok(&["apply", "-f", &role]).await;
    let create = ["create", "secrets", "-n", "platform"];
    assert!(!may_ada(&admin, &create).await);
    admin.ok(&["grant", "makers", "--user", "ada", "-n", "platform"]).await;
    assert!(may_ada(&admin, &create).await);
    // A ClusterRole of the same name has a binding of its own.
    let cluster_role = admin.file(
        "cluster-role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: makers }\n\
         rules: [{ apiGroups: [management.platform.sh], resources: [sharedsecrets], verbs: [list] }]\n",
    );
    admin.ok(&["apply", "-f", &cluster_role]).await;
    let of_cluster_role = ["clusterrole/makers", "--user", "ada", "-n", "platform"];
    admin.ok(&[&["grant"], &of_cluster_role[..]].concat()).await;
    admin.ok(&[&["revoke"], &of_cluster_role[..]].concat()).await;
    assert!(may_ada(&admin, &create).await);
    assert!(admin.ok(&["roles", "--user", "ada"]).await.contains("role/makers"));
    admin.ok(&["revoke", "role/makers", "--user", "ada", "-n", "platform"]).await;
    assert!(!may_ada(&admin, &create).await);

    // The role of the whole server counts in the namespace, too.
    admin.ok(&["grant", "makers", "--user", "ada"]).await;
    let kept =
        admin.run(&["revoke", "clusterrole/makers", "--user", "ada", "-n", "platform"]).await;
    assert!(kept.err.contains("keeps the role makers everywhere by user/ada"), "{}", kept.err);
}

#[tokio::test]
async fn a_name_that_does_not_exist_suggests_a_near_one() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["create", "project", "web"]).await;
    for (command, flag, near) in [
        (&["grant", "platform-viewr", "--user", "ada"][..], "ROLE", "did you mean platform-viewer"),
        (&["grant", "platform-viewer", "--user", "adaa"], "--user", "did you mean ada"),
        (
            &["grant", "platform-viewer", "--user", "ada", "--project", "wbe"],
            "wbe",
            "did you mean web",
        ),
        (&["revoke", "platform-viewr", "--user", "ada"], "ROLE", "did you mean platform-viewer"),
        (&["revoke", "platform-viewer", "--team", "red"], "--team", "not found"),
        (&["roles", "--user", "adaa"], "--user", "did you mean ada"),
    ] {
        let said = admin.fails(1, command).await;
        assert!(said.contains(flag) && said.contains(near), "{command:?}: {said}");
    }
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let said = ada.fails(1, &["revoke", "platform-user", "--user", "ada"]).await;
    assert!(said.contains("no permission to list clusterrolebindings"), "{said}");
    let said = ada.run(&["roles", "--user", "ada"]).await;
    assert!(said.err.contains("no permission to list all"), "{}", said.err);
    assert!(!said.err.contains("no roles"), "{}", said.err);
    let said = ada.fails(1, &["grant", "platform-viewer", "--user", "ada"]).await;
    assert!(said.contains("cannot create resource \"clusterrolebindings\""), "{said}");
    for wrong in [
        &["grant", "platform-viewer"][..],
        &["grant", "platform-viewer", "--user", "ada", "--team", "red"],
        &["grant", "role/makers", "--user", "ada"],
        &["grant", "user/makers", "--user", "ada"],
    ] {
        admin.fails(2, wrong).await;
    }
}

#[tokio::test]
async fn bindings_of_two_namespaces_can_have_one_name() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    for project in ["web", "docs"] {
        admin.ok(&["create", "project", project]).await;
        let namespace = format!("p-{project}");
        admin.ok(&["grant", "platform-viewer", "--user", "ada", "-n", &namespace]).await;
    }
    let names = admin.ok(&["roles", "--user", "ada", "-o", "name"]).await;
    let name = "rolebinding.rbac.authorization.k8s.io/grant:platform-viewer:user:ada";
    assert_eq!(names.lines().filter(|line| *line == name).count(), 2, "{names}");
}

#[tokio::test]
async fn an_admin_of_a_project_grants_and_is_asked_before_the_own_role_ends() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob"] {
        admin.ok(&["create", "user", user]).await;
    }
    admin.ok(&["create", "project", "web", "--member", "user/ada:admin"]).await;
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    // ada is the last admin of the project, and asked about that for both commands.
    for command in [
        &["revoke", "admin", "--user", "ada", "--project", "web"][..],
        &["remove", "member", "web", "--user", "ada"],
    ] {
        let said = ada.fails(2, command).await;
        assert!(
            said.contains("the last admin of the project web") && said.contains("--yes"),
            "{said}"
        );
    }
    // The administrator loses nothing.
    let said = admin.run(&["revoke", "admin", "--user", "bob", "--project", "web"]).await;
    assert!(!said.err.contains("last admin"), "{}", said.err);
    // A user that the caller cannot see is left to the server, as for `add member`.
    let (add, grant) = (
        ada.run(&["add", "member", "web", "--user", "bob", "--role", "admin"]).await,
        ada.run(&["grant", "admin", "--user", "bob", "--project", "web"]).await,
    );
    assert_eq!((add.code, grant.code), (0, 0), "{}{}", add.err, grant.err);
    let said = ada.fails(2, &["revoke", "admin", "--user", "ada", "--project", "web"]).await;
    assert!(said.contains("an admin of the project web by this membership alone"), "{said}");
    ada.ok(&["revoke", "admin", "--user", "ada", "--project", "web", "--yes"]).await;
}

#[tokio::test]
async fn a_user_without_rights_sees_the_own_permissions() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    for command in [&["roles"][..], &["roles", "--user", "ada"]] {
        let listed = ada.run(command).await;
        assert_eq!(listed.code, 0, "{}", listed.err);
        assert!(listed.text().contains("selfsubjectaccessreviews"), "{}", listed.all_output());
        assert!(listed.text().contains("sharedsecrets"), "{}", listed.all_output());
    }
}

#[tokio::test]
async fn bindings_have_names_that_are_no_domain_names() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    admin.ok(&["grant", "platform-viewer", "--user", "ada"]).await;
    // A caller that may bind and holds less learns in several lines what is missing.
    let role = admin.file(
        "binder.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: binder }\n\
         rules: [{ apiGroups: [rbac.authorization.k8s.io], resources: [clusterrolebindings], verbs: [create, get, list] }]\n",
    );
    admin.ok(&["apply", "-f", &role]).await;
    admin.ok(&["grant", "binder", "--user", "ada"]).await;
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let said = ada.fails(1, &["grant", "platform-admin", "--user", "ada"]).await;
    assert!(said.contains("not currently held") && !said.contains("\\n"), "{said}");
    let name = "grant:platform-viewer:user:ada";
    admin.ok(&["get", "clusterrolebinding", name]).await;
    admin.ok(&["delete", "clusterrolebinding", name]).await;
    admin.fails(1, &["get", "clusterrolebinding", name]).await;
    admin.fails(1, &["delete", "clusterrolebinding", name]).await;
    admin.fails(2, &["delete", "clusterrolebinding", "a/b"]).await;
}
