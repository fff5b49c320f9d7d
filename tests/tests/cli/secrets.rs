//! Reading and writing shared secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::kubectl::repository;
use postern_tests::objects::{secret, secrets};
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

use crate::cli::admin;

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    let server = Server::start().await;
    let admin = admin(&server);
    let every_byte: Vec<u8> = (0..=255).collect();
    let file = admin.file("value", &every_byte);
    admin.ok(&["set", "secret", "db.from-file", "--from-file", &file]).await;
    for (key, input) in [("db.piped", &every_byte[..]), ("db.line", b"x\n")] {
        let output = admin.run_with(&["set", "secret", key], input).await;
        assert_eq!((output.code, output.text()), (0, ""), "{}", output.err);
        assert_eq!(output.err.contains("note:"), key == "db.line", "{}", output.err);
        assert_eq!(admin.run(&["get", "secret", key]).await.out, input, "{key}");
    }
    assert_eq!(admin.run(&["get", "secret", "db.from-file"]).await.out, every_byte);
    admin.ok(&["set", "secret", "db.tls.crt", "--", "-dashed"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.tls.crt", "-o", "value"]).await, "-dashed");
    let output = admin.run_with(&["set", "secret", "db.big"], &vec![b'x'; 1024 * 1024 + 1]).await;
    assert_eq!(output.code, 1);
    assert!(output.err.contains("more than"), "{}", output.err);
}

#[tokio::test]
async fn an_empty_value_replaces_no_other_by_accident() {
    let server = Server::start().await;
    let admin = admin(&server);
    let empty = admin.file("empty", "");
    admin.ok(&["set", "secret", "db.password", "hunter2"]).await;
    let set = ["set", "secret", "db.password"];
    for (value, wanted) in [
        (&[][..], "the input was empty; nothing was done"),
        (&["-"], "the input was empty; nothing was done"),
        (&["--from-file", &empty], "empty is empty; nothing was done"),
        (&["--from-file", "/dev/null"], "/dev/null is empty; nothing was done"),
        (&[""], "the value is empty; nothing was done"),
    ] {
        let said = admin.fails(1, &[&set, value].concat()).await;
        assert!(said.contains(wanted) && said.contains("--allow-empty"), "{value:?}: {said}");
    }
    assert_eq!(admin.ok(&["get", "secret", "db.password"]).await, "hunter2");
    for value in [&["--allow-empty"][..], &["--allow-empty", ""]] {
        admin.ok(&[&["set", "secret", "db.empty"], value].concat()).await;
        assert_eq!(admin.ok(&["get", "secret", "db.empty"]).await, "");
    }
}

#[tokio::test]
async fn one_value_may_be_absent() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.password", "hunter2"]).await;
    let get = ["get", "secret", "--ignore-not-found"];
    for (path, wanted) in
        [("db.password", "hunter2"), ("db.absent", ""), ("absent.password", ""), ("absent", "")]
    {
        let output = admin.run(&[&get[..], &[path]].concat()).await;
        assert_eq!((output.code, output.text(), output.err.as_str()), (0, wanted, ""), "{path}");
    }
    let table = admin.ok(&["get", "secret", "--ignore-not-found", "db"]).await;
    assert_eq!(table, "KEY        BYTES\npassword   7\n");
    // A value that the caller may not read is not absent.
    admin.ok(&["create", "team", "red"]).await;
    let as_team = ["db.password", "--as", "platform:team:red"];
    let said = admin.fails(1, &[&get[..], &as_team].concat()).await;
    assert!(said.contains("forbidden"), "{said}");
    // Formats and flags for objects take the argument as a name.
    for other in
        [&["-o", "name"][..], &["-o", "jsonpath={.kind}"], &["--no-headers"], &["-w"], &["db.user"]]
    {
        let output = admin.run(&[&["get", "secret", "db.password"], other].concat()).await;
        assert_eq!((output.code, output.text()), (1, ""), "{other:?}: {}", output.err);
        assert!(output.err.contains("taken as the name of a secret"), "{other:?}: {}", output.err);
    }
    let output = admin.run(&[&get[..], &["db.password", "-o", "name"]].concat()).await;
    assert!(output.code == 0 && output.err.contains("taken as the name"), "{}", output.err);
}

#[tokio::test]
async fn setting_one_key_leaves_the_others() {
    let server = Server::start().await;
    let admin = admin(&server);
    let name = admin.ok(&["set", "secret", "db.password", "hunter2", "-o", "name"]).await;
    assert_eq!(name, "sharedsecret.management.platform.sh/db\n");
    let change = json!({"spec": {"displayName": "Database"}});
    let path = format!("{}/db", secrets("platform"));
    server.client().patch(&path, "merge-patch", &change).send().await.expect(200);
    admin.ok(&["set", "secret", "db.user", "shop"]).await;
    admin.ok(&["set", "secret", "db.password", "hunter3"]).await;
    let stored = server.client().get(&path).send().await.expect(200);
    assert_eq!(stored["spec"]["displayName"], "Database");
    assert_eq!(stored["spec"]["data"], json!({"password": "aHVudGVyMw==", "user": "c2hvcA=="}));
    let table = admin.ok(&["get", "secret", "db"]).await;
    assert_eq!(table, "KEY        BYTES\npassword   7\nuser       4\n");
    let table = admin.ok(&["get", "secret", "db", "--all"]).await;
    assert!(table.contains("hunter3") && table.contains("shop"), "{table}");
    let one: Value =
        serde_json::from_str(&admin.ok(&["get", "secret", "db.user", "-o", "json"]).await).unwrap();
    assert_eq!(one["spec"]["data"], json!({"user": "c2hvcA=="}));
    let yaml = admin.ok(&["get", "secret", "db", "-o", "yaml"]).await;
    assert!(yaml.contains("kind: SharedSecret") && yaml.contains("aHVudGVyMw=="), "{yaml}");
}

#[tokio::test]
async fn only_the_values_that_are_printed_are_read() {
    let server = Setup::on(&Home::new()).argument("--audit-before-answer").start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.password", "hunter2"]).await;
    admin.ok(&["set", "secret", "db.user", "shop"]).await;
    let read = || {
        let of_secrets = |record: &Value| {
            record["objectRef"]["resource"] == "sharedsecrets"
                && record["stage"] == "ResponseComplete"
                && record["verb"] == "get"
                && record["responseStatus"]["code"] == 200
        };
        let records = server.home().records();
        let values = records.iter().filter(|record| of_secrets(record)).filter_map(|record| {
            let entry = record["annotations"]["platform.sh/entry"].as_str();
            match record["objectRef"]["subresource"].as_str() {
                None => Some("all of them".to_owned()),
                Some(_) => entry.map(str::to_owned),
            }
        });
        values.collect::<Vec<_>>()
    };
    admin.ok(&["get", "secret", "db"]).await;
    admin.fails(1, &["get", "secret", "db.pasword"]).await;
    assert_eq!(read(), [""; 0], "a table of keys reads no value");
    admin.ok(&["get", "secret", "db.password"]).await;
    admin.ok(&["get", "secret", "db.user", "-o", "json"]).await;
    assert_eq!(read(), ["password", "user"]);
    admin.ok(&["get", "secret", "db", "-o", "json"]).await;
    assert_eq!(read(), ["password", "user", "all of them"]);
}

#[tokio::test]
async fn many_writers_of_one_secret_lose_nothing() {
    let server = Server::start().await;
    let admin = admin(&server);
    let keys: Vec<String> = (0..8).map(|n| format!("many.key-{n}")).collect();
    let all: Vec<_> = keys
        .iter()
        .map(|key| {
            let (admin, key) = (admin.clone(), key.clone());
            tokio::spawn(async move { admin.ok(&["set", "secret", &key, &key]).await })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    for key in &keys {
        assert_eq!(admin.ok(&["get", "secret", key]).await, *key);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_an_error_with_similar_names() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "database.password", "hush"]).await;
    let dotted = secret("web.token", "hush");
    server.client().post(&secrets("platform")).json(&dotted).send().await.expect(201);
    for (arguments, wanted) in [
        (&["get", "secret", "databsae"][..], "did you mean database?"),
        (&["get", "secret", "database.pasword"], "did you mean password?"),
        (&["get", "secret", "web.token.x"], "\"web\" not found"),
        (&["get", "secret", "web.token", "-o", "value"], "\"web\" not found"),
        (&["get", "secret", "database.password", "-n", "absent"], "not found"),
        (&["set", "secret", "x.y", "hush", "-n", "absent"], "absent"),
        (&["delete", "secret", "database.password"], "delete removes the whole secret"),
        (&["delete", "secret", "databas"], "did you mean database?"),
    ] {
        let said = admin.fails(1, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(!said.contains("hush"), "{said}");
    }
    let deleted = admin.ok(&["delete", "secret", "web.token", "-o", "name"]).await;
    assert_eq!(deleted, "sharedsecret.management.platform.sh/web.token\n");
}

/// Creates a secret, also with dots in its name.
async fn make(server: &Server, name: &str, data: Value) {
    let data: serde_json::Map<_, _> = data
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), STANDARD.encode(value.as_str().unwrap()).into()))
        .collect();
    let object = json!({ "metadata": { "name": name }, "spec": { "data": data } });
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
}

/// The names that a command with `--debug` asked for, each with its method.
fn asked(debug: &str) -> Vec<String> {
    let requests = debug.lines().filter(|line| line.contains("method="));
    requests
        .map(|line| {
            let field = |name: &str| {
                let (_, behind) = line.split_once(&format!("{name}=")).unwrap();
                behind.split_whitespace().next().unwrap().trim_matches('"').to_owned()
            };
            let path = field("path");
            let (_, asked) = path.split_once("secrets/").unwrap();
            format!("{} {asked}", field("method"))
        })
        .collect()
}

#[tokio::test]
async fn a_name_ends_at_the_first_dot_where_there_is_such_a_secret() {
    let server = Server::start().await;
    let admin = admin(&server);
    make(&server, "a", json!({ "b.c": "short", "b": "one" })).await;
    make(&server, "a.b", json!({ "c": "long" })).await;
    make(&server, "a.b.c", json!({ "value": "whole" })).await;
    for (arguments, value, names) in [
        // One request, and none for a secret that was not asked for.
        (&["a.b.c"][..], "short", &["GET a/entry"][..]),
        (&["a.b"], "one", &["GET a/entry"]),
        (&["a.b", "--key", "c"], "long", &["GET a.b/entry"]),
        (&["a.b.c", "--key", "value", "-o", "value"], "whole", &["GET a.b.c/entry"]),
        (&["a.b.c", "--whole"], "KEY     BYTES\nvalue   5\n", &["GET a.b.c/entries"]),
        // The secret `a` has no such key, so the longest name comes next.
        (
            &["a.b.c.value"],
            "whole",
            &["GET a/entry", "GET a/entries", "GET a.b.c.value", "GET a.b.c/entry"],
        ),
    ] {
        let command = [&["get", "secret", "--debug"], arguments].concat();
        let output = admin.run(&command).await;
        assert_eq!((output.code, output.text()), (0, value), "{arguments:?}: {}", output.err);
        assert_eq!(asked(&output.err), names, "{arguments:?}");
    }
    let output = admin.run(&["get", "secret", "a.b.c.value"]).await;
    assert_eq!(output.err, "note: the argument names the key value of the secret a.b.c\n");
}

#[tokio::test]
async fn longer_names_are_tried_where_there_is_no_shorter_one() {
    let server = Server::start().await;
    let admin = admin(&server);
    make(&server, "db.main", json!({ "password": "hunter2" })).await;
    assert_eq!(admin.ok(&["get", "secret", "db.main.password"]).await, "hunter2");
    let output = admin.run(&["get", "secret", "db.main"]).await;
    assert_eq!(output.text(), "KEY        BYTES\npassword   7\n", "{}", output.err);
    assert_eq!(output.err, "note: the argument names the secret db.main\n");
    let yaml = admin.ok(&["get", "secret", "db.main", "-o", "yaml"]).await;
    assert!(yaml.contains("name: db.main\n"), "{yaml}");
    let all = admin.ok(&["get", "secret", "db.main", "--whole", "--all"]).await;
    assert!(all.contains("hunter2"), "{all}");
    let said = admin.fails(1, &["get", "secret", "db.main.user"]).await;
    assert!(said.contains("\"db\" not found"), "{said}");
    let long = format!("a{}", ".b".repeat(20));
    let said = admin.fails(1, &["get", "secret", &long]).await;
    assert!(said.contains("--key KEY"), "{said}");
}

#[tokio::test]
async fn a_secret_that_one_may_not_see_is_not_taken_for_absent() {
    let server = Server::start().await;
    let admin = admin(&server);
    // A user could have such a secret, and gets 404. A team has no role.
    admin.ok(&["create", "team", "red"]).await;
    make(&server, "a.b", json!({ "c": "hush" })).await;
    let command = ["get", "secret", "a.b.c", "--as", "platform:team:red", "--debug"];
    let said = admin.fails(1, &command).await;
    assert!(said.contains("forbidden") && said.contains("--key KEY"), "{said}");
    assert!(!said.contains("not found") && !said.contains("hush"), "{said}");
    assert_eq!(asked(&said), ["GET a/entry"], "no other is tried");
}

#[tokio::test]
async fn no_second_secret_is_created_by_surprise() {
    let server = Server::start().await;
    let admin = admin(&server);
    make(&server, "db.main", json!({ "password": "old" })).await;
    for path in ["db.main.password", "db.main"] {
        let said = admin.fails(1, &["set", "secret", path, "hush"]).await;
        assert!(said.contains("did you mean db.main?") && !said.contains("hush"), "{said}");
        assert!(said.contains("nothing was changed") && said.contains("--key"), "{said}");
    }
    let names = admin.ok(&["list", "secrets", "-o", "name"]).await;
    assert_eq!(names, "sharedsecret.management.platform.sh/db.main\n");
    assert_eq!(admin.ok(&["get", "secret", "db.main.password"]).await, "old");
    admin.ok(&["set", "secret", "db.main", "new", "--key", "password"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.main.password"]).await, "new");
    // The `--key` that the message suggests helps.
    admin.ok(&["set", "secret", "db", "short", "--key", "main.password"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.main.password"]).await, "short");
    // Once it is there, one request is enough.
    let output = admin.run(&["set", "secret", "db.main.password", "x", "--debug"]).await;
    assert_eq!((output.code, asked(&output.err)), (0, vec!["PATCH db".to_owned()]));
    let long = format!("a{}", ".b".repeat(20));
    let said = admin.fails(1, &["set", "secret", &long, "hush"]).await;
    assert!(said.contains("is ambiguous") && said.contains("--key"), "{said}");
}

#[tokio::test]
async fn the_example_with_a_plain_name_is_read_by_key() {
    let server = Server::start().await;
    let admin = admin(&server);
    let example = repository().join("examples/sharedsecret-plain.yaml");
    admin.ok(&["create", "-f", example.to_str().unwrap()]).await;
    assert_eq!(admin.ok(&["get", "secret", "shop-database.password"]).await, "hunter2");
    let output = admin.run(&["get", "secret", "shop-database.password", "--debug"]).await;
    assert_eq!(asked(&output.err), ["GET shop-database/entry"]);
}

#[tokio::test]
async fn lists_of_any_length_in_one_namespace_or_all() {
    let server = Server::start().await;
    let (admin, client) = (admin(&server), server.client());
    let said = admin.run(&["list", "secrets"]).await;
    assert_eq!((said.text(), said.code), ("", 0));
    assert!(said.err.contains("no sharedsecrets in the namespace platform"), "{}", said.err);
    for number in 0..45 {
        let object = secret(&format!("s-{number:03}"), "hush");
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    admin.ok(&["set", "secret", "other.key", "x", "-n", "default"]).await;
    let table = admin.ok(&["list", "secrets"]).await;
    assert_eq!(table.lines().count(), 46, "{table}");
    assert!(table.starts_with("NAME "), "{table}");
    assert_eq!(admin.ok(&["list", "secrets", "-n", "default"]).await.lines().count(), 2);
    let wide = admin.ok(&["list", "secrets", "-A", "-o", "wide"]).await;
    assert!(wide.starts_with("NAMESPACE ") && wide.contains("DISPLAY NAME"), "{wide}");
    assert_eq!(wide.lines().count(), 47);
    assert!(!wide.contains("hush"), "{wide}");
    let json: Value =
        serde_json::from_str(&admin.ok(&["list", "secrets", "-A", "-o", "json"]).await).unwrap();
    assert_eq!(json["items"].as_array().unwrap().len(), 46, "pages are put together");
    assert_eq!(json["kind"], "SharedSecretList");
    assert_eq!(json["metadata"]["continue"], Value::Null);
    assert_eq!(admin.ok(&["list", "secrets", "-o", "name"]).await.lines().count(), 45);
}

#[tokio::test]
async fn debug_prints_requests_and_no_values() {
    let server = Server::start().await;
    let admin = admin(&server);
    let output = admin.run_with(&["set", "secret", "db.password", "--debug"], b"hush-hush").await;
    assert_eq!(output.code, 0);
    assert!(output.err.contains("PATCH") && output.err.contains("POST"), "{}", output.err);
    let read = admin.run(&["get", "secret", "db.password", "--debug"]).await;
    assert_eq!(read.text(), "hush-hush");
    for said in [&output.err, &read.err] {
        for hidden in ["hush", "aHVzaC", &server.kubeconfig().token] {
            assert!(!said.contains(hidden), "{said}");
        }
    }
}
