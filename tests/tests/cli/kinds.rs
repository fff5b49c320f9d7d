//! The commands that are the same for every kind: get, list and delete, as the server's discovery
//! names the kinds.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::{CORE, GROUP, secret, secrets};
use serde_json::Value;

use crate::cli::admin;

/// Kinds that are left to kubectl: the command line has no commands for them.
const WITHOUT_COMMANDS: [&str; 2] = ["events", "configmaps"];

/// Every resource that discovery has, with all the names it is known by.
async fn resources(server: &Server) -> Vec<(Value, Vec<String>)> {
    let mut all = Vec::new();
    for path in [CORE, GROUP] {
        let list = server.client().get(path).send().await.expect(200);
        for resource in list["resources"].as_array().unwrap() {
            let short = resource["shortNames"].as_array().cloned().unwrap_or_default();
            let names = [resource["name"].clone(), resource["singularName"].clone()];
            let names = names.into_iter().chain(short);
            let names: Vec<_> = names.map(|name| name.as_str().unwrap().to_owned()).collect();
            if !names[0].contains('/') {
                all.push((resource.clone(), names));
            }
        }
    }
    assert!(all.len() > 5, "{all:?}");
    all
}

fn serves(resource: &Value, verb: &str) -> bool {
    resource["verbs"].as_array().unwrap().contains(&verb.into())
}

#[tokio::test]
async fn every_kind_of_the_server_has_its_commands_under_all_its_names() {
    let server = Server::start().await;
    let admin = admin(&server);
    for (resource, names) in resources(&server).await {
        for name in &names {
            if WITHOUT_COMMANDS.contains(&names[0].as_str()) {
                admin.fails(2, &["list", name]).await;
                continue;
            }
            let is_stored = serves(&resource, "list");
            let listed = admin.run(&["list", name]).await;
            assert_eq!(listed.code, if is_stored { 0 } else { 2 }, "{}", listed.all_output());
            for verb in ["get", "delete"] {
                let output = admin.run(&[verb, name, "absent"]).await;
                let wanted = match serves(&resource, verb) {
                    false => (2, "do not support the verb"),
                    true if is_stored => (1, "\"absent\""),
                    // A kind that is not stored answers to every name.
                    true => (0, "absent"),
                };
                assert_eq!(output.code, wanted.0, "{verb} {name}: {}", output.all_output());
                assert!(output.all_output().contains(wanted.1), "{}", output.all_output());
            }
        }
    }
    for name in ["secret", "secrets", "accesskey", "accesskeys", "key", "keys"] {
        assert_eq!(admin.run(&["list", name]).await.code, 0, "{name}");
        admin.fails(1, &["get", name, "absent"]).await;
        admin.fails(1, &["delete", name, "absent"]).await;
    }
}

#[tokio::test]
async fn one_object_is_printed_in_every_format() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada"]).await;
    admin.ok(&["create", "user", "bob"]).await;
    let table = admin.ok(&["get", "user", "ada"]).await;
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.starts_with("NAME ") && table.contains("\nada ") && table.contains("Ada"));
    let listed = admin.ok(&["list", "users"]).await;
    assert_eq!(listed.lines().next().unwrap().split("  ").next(), Some("NAME"), "{listed}");
    let wide = admin.ok(&["get", "users", "ada", "-o", "wide"]).await;
    assert!(wide.lines().next().unwrap().len() >= table.lines().next().unwrap().len(), "{wide}");
    let name = admin.ok(&["get", "user", "ada", "-o", "name"]).await;
    assert_eq!(name, "user.management.platform.sh/ada\n");
    let json = admin.ok(&["get", "user", "ada", "-o", "json"]).await;
    let object: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&object["kind"], &object["spec"]["displayName"]), (&"User".into(), &"Ada".into()));
    let yaml = admin.ok(&["get", "user", "ada", "-o", "yaml"]).await;
    assert!(yaml.contains("kind: User\n") && !yaml.contains("managedFields"), "{yaml}");
    assert_eq!(admin.ok(&["get", "ns", "default", "-o", "name"]).await, "namespace/default\n");
    assert!(admin.ok(&["get", "namespace", "platform"]).await.contains("Active"));
    admin.ok(&["create", "accesskey", "ci"]).await;
    let key = admin.ok(&["get", "key", "ci", "-o", "yaml"]).await;
    assert!(key.contains("kind: OwnedAccessKey") && !key.contains("pst_"), "{key}");
    assert!(admin.ok(&["get", "accesskey", "ci"]).await.contains("user/admin"));

    let said = admin.fails(1, &["get", "user", "adda"]).await;
    assert!(said.contains("did you mean ada?") && said.contains("postern list users"), "{said}");
    let said = admin.fails(1, &["get", "namespace", "defualt"]).await;
    assert!(said.contains("did you mean default?"), "{said}");
}

#[tokio::test]
async fn objects_are_deleted_as_get_prints_them_by_labels_and_from_files() {
    let server = Server::start().await;
    let admin = admin(&server);
    let objects = |names: &[&str]| -> String {
        let one = |name: &&str| {
            format!(
                "---\napiVersion: management.platform.sh/v1\nkind: Team\n\
                 metadata: {{name: {name}, labels: {{of: test}}}}\n"
            )
        };
        names.iter().map(one).collect()
    };
    let file = admin.file("teams.yaml", objects(&["a", "b", "c", "d", "e"]));
    admin.ok(&["apply", "-f", &file]).await;
    // As `get -o name` prints them.
    let (a, b) = ("team.management.platform.sh/a", "teams/b");
    for (flag, said) in [("--dry-run", "(dry run)"), ("--dry-run=server", "(server dry run)")] {
        let output = admin.run(&["delete", a, b, flag, "-o", "name"]).await;
        assert!(output.code == 0 && output.err.contains(said), "{}", output.all_output());
        assert_eq!(output.text().lines().next(), Some(a));
        admin.fails(1, &["delete", &format!("{a}x"), flag]).await;
    }
    assert_eq!(admin.ok(&["delete", a, b, "-o", "name"]).await.lines().next(), Some(a));
    // The names may be of several kinds, too.
    admin.ok(&["create", "user", "py"]).await;
    admin.ok(&["create", "team", "f"]).await;
    let (f, py) = ("team/f", "user.management.platform.sh/py");
    let names = admin.ok(&["delete", f, py, "-o", "name"]).await;
    assert_eq!(names, format!("team.management.platform.sh/f\n{py}\n"));
    // Flags are understood before the kind.
    admin.ok(&["delete", "--ignore-not-found", "team", "a"]).await;
    admin.ok(&["delete", "-l", "of=other", "teams"]).await;
    let names = admin.ok(&["delete", "teams", "-l", "of=test", "-o", "name"]).await;
    assert_eq!(names.lines().count(), 3, "{names}");
    for wrong in [&["delete", "teams"][..], &["delete", "teams", "a", "--all"], &["delete"]] {
        admin.fails(2, wrong).await;
    }
    admin.ok(&["apply", "-f", &file]).await;
    admin.ok(&["delete", "team", "e"]).await;
    // An object that does not exist does not stop the others.
    let output = admin.run(&["delete", "-f", &file, "-o", "name"]).await;
    assert_eq!((output.code, output.text().lines().count()), (1, 4), "{}", output.err);
    assert!(
        output.err.contains("document 5") && output.err.contains("\"e\" not found"),
        "{}",
        output.err
    );
    admin.ok(&["delete", "-f", &file, "--ignore-not-found"]).await;
    admin.ok(&["apply", "-f", &file]).await;
    admin.ok(&["delete", "teams", "--all"]).await;
    assert_eq!(admin.ok(&["get", "teams", "-o", "name"]).await, "");
}

#[tokio::test]
async fn a_kind_before_names_is_not_mixed_with_other_kinds() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["ada", "x1", "x2"] {
        admin.ok(&["create", "user", name]).await;
        admin.ok(&["create", "team", name]).await;
    }
    for wrong in [
        &["delete", "user", "x1", "team/ada"][..],
        &["delete", "user/x1", "x2"],
        &["delete", "user/x1", "user", "x2"],
        &["delete", "user", "--ignore-not-found", "zzz", "team/ada"],
        &["delete", "users", "team/ada", "-o", "name"],
        &["delete", "usr", "x1"],
        &["delete", "user.management.platform.sh"],
    ] {
        admin.fails(2, wrong).await;
    }
    for verb in ["describe", "edit", "get"] {
        let said = admin.fails(2, &[verb, "user", "x1", "team/ada"]).await;
        assert!(said.contains("is not KIND/NAME"), "{said}");
    }
    admin.fails(2, &["share", "--all-users", "secret", "x1", "team/ada"]).await;
    for kind in ["users", "teams"] {
        let names = admin.ok(&["get", kind, "-o", "name"]).await;
        assert!(["/ada\n", "/x1\n", "/x2\n"].iter().all(|one| names.contains(one)), "{names}");
    }
    admin.ok(&["delete", "user.management.platform.sh", "x1", "x2"]).await;
}

#[tokio::test]
async fn several_objects_are_deleted_and_an_error_does_not_stop_the_others() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["a", "b", "c"] {
        admin.ok(&["create", "team", name]).await;
        let object = secret(&format!("{name}.dotted"), "hush");
        server.client().post(&secrets("default")).json(&object).send().await.expect(201);
    }
    let names = admin.ok(&["delete", "teams", "a", "b", "-o", "name"]).await;
    let name = |name: &str| format!("team.management.platform.sh/{name}\n");
    assert_eq!(names, name("a") + &name("b"));
    let output = admin.run(&["delete", "team", "absent", "c", "a", "-o", "name"]).await;
    assert_eq!((output.code, output.text()), (1, name("c").as_str()), "{}", output.err);
    assert!(output.err.contains("team c deleted"), "{}", output.err);
    assert_eq!(output.err.matches("error: ").count(), 2, "{}", output.err);
    assert_eq!(admin.ok(&["list", "teams"]).await, "");

    let both = ["delete", "secret", "a.dotted", "b.dotted"];
    admin.fails(1, &both).await;
    let output = admin.run(&[&both[..], &["-n", "default"]].concat()).await;
    assert_eq!(output.code, 0, "{}", output.err);
    let left = admin.ok(&["list", "secrets", "-n", "default", "-o", "name"]).await;
    assert_eq!(left, "sharedsecret.management.platform.sh/c.dotted\n");
}

#[tokio::test]
async fn what_fails_for_all_objects_is_said_once() {
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", "pst_wrong");
    let to = ["--server", "https://127.0.0.1:1"];
    let said = user.fails(1, &[&["delete", "user", "a", "b", "c"], &to[..]].concat()).await;
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("not tried: b, c"), "{said}");
}
