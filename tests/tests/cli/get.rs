//! `postern get` with kubectl's habits: the same objects are asked for with both, where both print the same.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::{secret, secrets};
use serde_json::{Value, json};

use crate::cli::admin;
use crate::cli::running::Running;

/// A server with users, teams and secrets.
async fn filled() -> (Server, CliUser) {
    let server = Server::start().await;
    let admin = admin(&server);
    for (name, mail) in
        [("ada", "ada@example.com"), ("bob", ""), ("user-10", ""), ("user-9", "x@y")]
    {
        admin.ok(&["create", "user", name, "--email", mail]).await;
    }
    admin.ok(&["create", "team", "red", "--users", "ada"]).await;
    for (name, namespace, team) in
        [("db", "platform", "red"), ("mail", "platform", "blue"), ("db", "default", "red")]
    {
        let mut object = secret(name, "hush");
        object["metadata"]["labels"] = json!({ "team": team, "tier": "1" });
        server.client().post(&secrets(namespace)).json(&object).send().await.expect(201);
    }
    (server, admin)
}

#[tokio::test]
async fn objects_are_named_as_in_kubectl() {
    let (_server, admin) = filled().await;
    let name = |name: &str| format!("user.management.platform.sh/{name}\n");
    let all: String = ["ada", "admin", "bob", "user-10", "user-9"].map(name).concat();
    for kind in ["users", "user", "users.management.platform.sh", "user.v1.management.platform.sh"]
    {
        assert_eq!(admin.ok(&["get", kind, "-o", "name"]).await, all, "{kind}");
    }
    let two = [name("bob"), name("ada")].concat();
    assert_eq!(admin.ok(&["get", "users", "bob", "ada", "-o", "name"]).await, two);
    assert_eq!(admin.ok(&["get", "user/bob", "user/ada", "-o", "name"]).await, two);
    let mixed = admin.ok(&["get", "user/ada", "team/red", "sharedsecret/db", "-o", "name"]).await;
    assert_eq!(mixed.lines().count(), 3, "{mixed}");
    assert!(mixed.ends_with("sharedsecret.management.platform.sh/db\n"), "{mixed}");
    let table = admin.ok(&["get", "sharedsecret", "db", "mail"]).await;
    assert!(table.starts_with("NAME ") && table.lines().count() == 3, "{table}");
    assert!(!table.contains("hush") && !table.contains("aHVz"), "{table}");
    // The output for one secret by its name alone has not changed.
    assert_eq!(admin.ok(&["get", "sharedsecret", "db"]).await, "KEY     BYTES\nvalue   4\n");
    let kinds = admin.ok(&["get", "users,teams"]).await;
    let blocks: Vec<&str> = kinds.split("\n\n").collect();
    assert_eq!(blocks.len(), 2, "{kinds}");
    assert!(blocks[1].contains("\nteam.management.platform.sh/red "), "{kinds}");
    // The kinds that have no other command are here, too.
    assert!(admin.ok(&["get", "clusterroles", "-o", "name"]).await.contains("clusterrole."));
    assert_eq!(admin.run(&["get", "events", "-A"]).await.code, 0);
}

#[tokio::test]
async fn selections_and_namespaces() {
    let (_server, admin) = filled().await;
    let names = async |arguments: &[&str]| -> Vec<String> {
        let all = [
            &[
                "get",
                "secrets",
                "-o",
                "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}",
            ],
            arguments,
        ];
        let text = admin.ok(&all.concat()).await;
        text.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(names(&[]).await, ["platform/db", "platform/mail"]);
    assert_eq!(names(&["-n", "default"]).await, ["default/db"]);
    assert_eq!(names(&["-A"]).await.len(), 3);
    assert_eq!(names(&["-A", "-l", "team=red"]).await, ["default/db", "platform/db"]);
    assert_eq!(names(&["-l", "team notin (red),tier"]).await, ["platform/mail"]);
    assert_eq!(
        names(&["-A", "--field-selector", "metadata.name=db,metadata.namespace!=default"]).await,
        ["platform/db"]
    );
    let table = admin.ok(&["get", "secrets", "-A", "--show-labels"]).await;
    assert!(table.starts_with("NAMESPACE ") && table.contains("team=blue,tier=1\n"), "{table}");
    // Rows without headings are not apart.
    let rows = admin.ok(&["get", "users,namespaces", "--no-headers"]).await;
    assert!(!rows.contains("\n\n") && rows.lines().count() > 2, "{rows}");
    let bare = admin.ok(&["get", "secrets", "-A", "--no-headers"]).await;
    assert_eq!(bare.lines().count(), 3, "{bare}");
    // kubectl takes -n for kinds without namespaces, too.
    assert!(admin.ok(&["get", "user", "ada", "-n", "default"]).await.contains("ada"));
    let none = admin.run(&["get", "secrets", "-l", "team=none"]).await;
    assert_eq!((none.code, none.text()), (0, ""));
    assert!(none.err.contains("no sharedsecrets in the namespace platform"), "{}", none.err);
}

#[tokio::test]
async fn what_is_missing_is_said_and_the_rest_is_printed() {
    let (_server, admin) = filled().await;
    let output = admin.run(&["get", "user", "absent", "bob", "adaa", "-o", "name"]).await;
    assert_eq!((output.code, output.text()), (1, "user.management.platform.sh/bob\n"));
    assert_eq!(output.err.matches("error: ").count(), 2, "{}", output.err);
    assert!(output.err.contains("did you mean ada?"), "{}", output.err);
}

#[tokio::test]
async fn tables_are_sorted() {
    let (_server, admin) = filled().await;
    let first = async |arguments: &[&str]| -> Vec<String> {
        let table = admin.ok(&[&["get", "users", "--no-headers"], arguments].concat()).await;
        table.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let natural = ["ada", "admin", "bob", "user-9", "user-10"];
    assert_eq!(first(&["--sort-by", ".metadata.name"]).await, natural);
    assert_eq!(first(&["--sort-by={.metadata.name}"]).await, natural);
    let by_mail = first(&["--sort-by", ".spec.email"]).await;
    assert_eq!(by_mail[3..], ["ada", "user-9"], "{by_mail:?}");
    let said = admin.fails(1, &["get", "users", "--sort-by", ".spec.absent"]).await;
    assert!(said.contains("no object has a value"), "{said}");
    let table = admin.ok(&["get", "secrets", "--sort-by", ".spec.data"]).await;
    assert!(!table.contains("aHVz"), "{table}");
}

#[tokio::test]
async fn templates_print_what_kubectl_prints() {
    let (server, admin) = filled().await;
    let kubectl = server.kubectl();
    for (objects, output) in [
        (&["users"][..], "jsonpath={.items[*].metadata.name}"),
        (&["users"], r#"jsonpath={range .items[*]}{.metadata.name}={.spec.email}{"\n"}{end}"#),
        (&["users"], r#"jsonpath={.items[?(@.metadata.name=="bob")].metadata.uid}"#),
        (&["users"], "jsonpath={.items[?(@.spec.email)].metadata.name}"),
        (&["users"], "jsonpath={.items[0].metadata.name} and {.items[-1:].metadata.name}"),
        (&["users"], "jsonpath={.items[1:3]['metadata.name', 'kind']}"),
        (&["user", "ada"], "jsonpath={.metadata.name}{.spec.absent}"),
        (&["user", "ada"], "jsonpath={.spec}"),
        (&["user", "ada"], "jsonpath={.metadata['name']}/{..email}"),
        (&["user", "ada", "bob"], "jsonpath={.kind} {.items[*].kind}"),
        (&["team", "red"], "jsonpath={.spec.users}{.spec.users[0]}"),
        (&["ss", "-A"], r"jsonpath={.items[*].metadata.labels.team}"),
        (&["users"], "name"),
    ] {
        let arguments = [&["get"], objects, &["-o", output]].concat();
        let ours = admin.ok(&arguments).await;
        assert_eq!(ours, kubectl.ok(&arguments).await, "{arguments:?}");
        assert!(!ours.is_empty(), "{arguments:?}");
    }
    let said = admin.fails(2, &["get", "users", "-o", "jsonpath={.items[*}"]).await;
    assert!(said.contains("invalid template"), "{said}");
    let said = admin.fails(1, &["get", "users", "-o", "jsonpath={.items[99]}"]).await;
    assert!(said.contains("out of range"), "{said}");
}

#[tokio::test]
async fn whole_objects_are_those_of_kubectl() {
    let (server, admin) = filled().await;
    for objects in [&["user", "ada"][..], &["users"], &["user/ada", "team/red"]] {
        let arguments = [&["get"], objects, &["-o", "json"]].concat();
        let of_postern: Value = serde_json::from_str(&admin.ok(&arguments).await).unwrap();
        let of_kubectl: Value =
            serde_json::from_str(&server.kubectl().ok(&arguments).await).unwrap();
        assert_eq!(of_postern, of_kubectl, "{objects:?}");
    }
    let yaml = admin.ok(&["get", "teams", "-o", "yaml"]).await;
    assert!(yaml.starts_with("apiVersion: v1\n") && yaml.contains("kind: List\n"), "{yaml}");
}

#[tokio::test]
async fn tables_are_those_of_kubectl() {
    let (server, admin) = filled().await;
    // The age may be another one by the second time.
    let columns = |table: &str| -> Vec<Vec<String>> {
        let line = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines = table.lines().map(line);
        lines
            .map(|line| {
                line.into_iter().filter(|cell| !cell.ends_with('s') || cell == "KEYS").collect()
            })
            .collect()
    };
    for arguments in [
        &["get", "users"][..],
        &["get", "users", "-o", "wide"],
        &["get", "ss", "-A", "--show-labels"],
        &["get", "team", "red"],
        &["get", "ns", "--no-headers"],
    ] {
        let of_postern = admin.ok(arguments).await;
        let of_kubectl = server.kubectl().ok(arguments).await;
        assert_eq!(
            columns(&of_postern),
            columns(&of_kubectl),
            "{arguments:?}\n{of_postern}\n{of_kubectl}"
        );
    }
}

#[tokio::test]
async fn changes_are_printed_as_they_come() {
    let (server, admin) = filled().await;
    let mut all = Running::start(&admin, &["get", "teams", "-w"]);
    assert!(all.line().await.starts_with("NAME "));
    assert!(all.line().await.starts_with("red "));
    let mut changes = Running::start(&admin, &["get", "teams", "--watch-only", "-o", "name"]);
    let mut names =
        Running::start(&admin, &["get", "team", "red", "-w", "-o", "jsonpath={.spec.users}"]);
    assert_eq!(names.line().await, r#"["ada"]"#);
    let mut one =
        Running::start(&admin, &["get", "user/ada", "-w", "-o", "jsonpath={.spec.email}"]);
    assert_eq!(one.line().await, "ada@example.com");
    let client = server.client();
    let patch = async |path: &str, change: Value| {
        let path = postern_tests::objects::collection(path);
        client.patch(&path, "merge-patch", &change).send().await.expect(200);
    };
    patch("users/bob", json!({ "spec": { "email": "not-watched" } })).await;
    patch("users/ada", json!({ "spec": { "email": "new@example.com" } })).await;
    assert_eq!(one.line().await, "new@example.com");
    patch("teams/red", json!({ "spec": { "users": ["ada", "bob"] } })).await;
    assert_eq!(names.line().await, r#"["ada","bob"]"#);
    assert!(all.line().await.starts_with("red "));
    admin.ok(&["create", "team", "blue"]).await;
    admin.ok(&["delete", "team", "red"]).await;
    assert!(all.line().await.starts_with("blue "));
    assert!(all.line().await.starts_with("red "));
    // Changes before the watch began are not in it.
    let lines = changes.lines_to("/blue").await;
    assert!(lines.iter().all(|line| line.contains("team.management.platform.sh/")), "{lines:?}");
    assert_eq!(changes.line().await, "team.management.platform.sh/red");
}

#[tokio::test]
async fn a_watch_of_what_is_not_there_fails() {
    let (_server, admin) = filled().await;
    let said = admin.fails(1, &["get", "user", "adaa", "-w"]).await;
    assert!(said.contains("did you mean ada?"), "{said}");
    for (arguments, wanted) in [
        (&["get", "users,teams", "-w"][..], "one kind"),
        (&["get", "user", "ada", "bob", "-w"], "at most one name"),
        (&["get", "users", "-w", "--sort-by", ".a"], "cannot be used with"),
        (&["get", "user", "ada", "-A"], "omit -A"),
        (&["get", "user", "ada", "-l", "a=b"], "cannot be used together"),
        (&["get", "user", "ada", "-o", "env"], "for one secret"),
        (&["get", "user", "ada", "--key", "a"], "for one secret"),
        (&["get", "self"], "needs the NAME"),
    ] {
        let said = admin.fails(2, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    assert_eq!(admin.ok(&["get", "user", "adaa", "--ignore-not-found"]).await, "");
}

#[tokio::test]
async fn a_watch_goes_on_after_the_server_was_away() {
    let server = Server::start().await;
    let relay = postern_tests::Relay::new().await;
    relay.connect_to(&server);
    let mut kubeconfig = server.kubeconfig().clone();
    let own = kubeconfig.authority_of_server().to_owned();
    kubeconfig.server = kubeconfig.server.replace(&own, &format!("127.0.0.1:{}", relay.port()));
    let user = CliUser::new();
    let file = kubeconfig.write(&user.path().join("relay.kubeconfig"));
    let user = user.with("KUBECONFIG", file.to_str().unwrap());
    user.ok(&["create", "team", "red"]).await;
    let mut watch = Running::start(&user, &["get", "teams", "-w", "-o", "name"]);
    assert_eq!(watch.line().await, "team.management.platform.sh/red");
    relay.disconnect();
    watch.error_line("the watch broke").await;
    admin(&server).ok(&["create", "team", "blue"]).await;
    relay.connect_to(&server);
    assert_eq!(watch.line().await, "team.management.platform.sh/blue");
}
