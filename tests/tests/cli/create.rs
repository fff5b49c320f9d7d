//! `postern create -f`: objects of any kind from files.

use postern_tests::cli::CliUser;
use postern_tests::objects::{secret, secrets, value_of};
use postern_tests::{Server, wait};
use serde_json::{Value, json};

use crate::cli::{admin, url};

const MANAGEMENT: &str = "apiVersion: management.platform.sh/v1\n";

/// A document of our own group.
fn document(kind: &str, name: &str, more: &str) -> String {
    format!("---\n{MANAGEMENT}kind: {kind}\nmetadata:\n  name: {name}\n{more}\n")
}

#[tokio::test]
async fn objects_of_every_kind_come_from_one_file() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = [
        "# A comment alone is no object.\n---\napiVersion: v1\nkind: Namespace\n",
        "metadata: {name: shop}\n",
        &document("SharedSecret", "db", "  namespace: shop\nspec: {data: {value: aHVzaA==}}"),
        &document("User", "ada", "spec:\n  displayName: Ada"),
        &document("Team", "red", "spec: {users: [ada]}"),
    ]
    .concat();
    let file = admin.file("objects.yaml", text);
    let output = admin.run(&["create", "-f", &file]).await;
    assert_eq!((output.code, output.text()), (0, ""), "{}", output.err);
    let said = "namespace shop created\nsecret db created in the namespace shop\n\
                user ada created\nteam red created\n";
    assert_eq!(output.err, said);
    assert_eq!(admin.ok(&["get", "secret", "db.value", "-n", "shop"]).await, "hush");
    let names = admin.run(&["create", "-f", &file, "-o", "name"]).await;
    assert_eq!((names.code, names.text()), (1, ""), "they are all there already");
    assert_eq!(names.err.matches("already exists").count(), 4, "{}", names.err);
}

#[tokio::test]
async fn the_objects_namespace_counts_before_the_sessions_and_must_be_that_of_the_flag() {
    let server = Server::start().await;
    let admin = admin(&server);
    let of = |name: &str, namespace: Option<&str>| {
        let mut object = secret(name, "hush");
        object["metadata"]["namespace"] = json!(namespace);
        object.to_string()
    };
    for (name, own, flags, wanted) in [
        ("a", Some("default"), &[][..], "default"),
        ("b", Some("default"), &["-n", "default"], "default"),
        ("c", None, &["-n", "default"], "default"),
        ("d", None, &[], "platform"),
    ] {
        let arguments = [&["create", "-f", "-", "-o", "name"], flags].concat();
        let output = admin.run_with(&arguments, of(name, own).as_bytes()).await;
        let line = format!("sharedsecret.management.platform.sh/{name}\n");
        assert_eq!((output.code, output.text()), (0, line.as_str()), "{}", output.err);
        let path = format!("{}/{name}", secrets(wanted));
        let stored = server.client().get(&path).send().await.expect(200);
        assert_eq!(value_of(&stored), "hush");
    }
    for command in ["create", "apply", "delete"] {
        let arguments = [command, "-f", "-", "-n", "platform"];
        let output = admin.run_with(&arguments, of("a", Some("default")).as_bytes()).await;
        let wanted = "document 1: the object is in the namespace default, and -n names platform";
        assert!(output.code > 0 && output.err.contains(wanted), "{command}: {}", output.err);
    }
    assert_eq!(admin.ok(&["get", "secrets", "-A", "-o", "name"]).await.lines().count(), 4);
}

#[tokio::test]
async fn what_was_created_is_printed_in_the_format_that_was_asked_for() {
    let server = Server::start().await;
    let admin = admin(&server);
    let users = |first: &str, second: &str| {
        admin.file("users", document("User", first, "") + &document("User", second, ""))
    };
    let yaml = admin.ok(&["create", "-f", &users("a", "b"), "-o", "yaml"]).await;
    let documents: Vec<_> = yaml.split("---\n").collect();
    assert_eq!(documents.len(), 2, "{yaml}");
    assert!(documents[0].contains("name: a\n") && documents[1].contains("name: b\n"), "{yaml}");
    let text = admin.ok(&["create", "-f", &users("c", "d"), "-o", "json"]).await;
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let objects: Vec<_> = objects.map(Result::unwrap).collect();
    assert_eq!((&objects[0]["metadata"]["name"], objects.len()), (&json!("c"), 2), "{text}");
    let one = admin.file("one", document("User", "e", ""));
    let two = admin.file("two", document("User", "f", ""));
    let names = admin.ok(&["create", "-f", &one, "--filename", &two, "-o", "name"]).await;
    assert_eq!(names.lines().count(), 2, "{names}");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "generateName": "n-" } },
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } },
    ] });
    let output = admin.run_with(&["create", "-f", "-"], list.to_string().as_bytes()).await;
    assert!(output.code == 0 && output.err.contains("namespace n-"), "{}", output.err);
}

#[tokio::test]
async fn errors_name_the_document_and_the_others_are_created() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = [
        document("User", "first", ""),
        document("Pod", "hush", ""),
        document("User", "A_B", ""),
        document("User", "odd", "spec: {dispalyName: hush}"),
        "---\nkind: [hush\n".to_owned(),
        document("User", "twice", "spec: {email: hush}\nspec: {}"),
        document("SharedSecret", "lost", "  namespace: absent"),
        document("User", "last", ""),
    ]
    .concat();
    let file = admin.file("objects.yaml", text);
    let output = admin.run(&["create", "-f", &file, "-o", "name"]).await;
    let name = |name: &str| format!("user.management.platform.sh/{name}\n");
    assert_eq!((output.code, output.text()), (1, (name("first") + &name("last")).as_str()));
    for (document, wanted) in [
        (2, "kind Pod in management.platform.sh/v1 cannot be created"),
        (3, "metadata.name"),
        (4, "spec.dispalyName"),
        (5, "YAML"),
        (6, "duplicate field spec"),
        (7, "\"absent\" not found"),
    ] {
        let start = format!("error: {file}, document {document} (from line ");
        let line = output.err.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{start}: {}", output.err));
        assert!(line.contains(wanted), "{line}");
    }
    let errors = output.err.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 6, "{}", output.err);
    assert!(output.err.contains("these kinds can: Namespace (v1), SharedSecret ("));
    assert!(!output.err.contains("hush"), "{}", output.err);
    admin.ok(&["get", "user", "last"]).await;
    admin.fails(1, &["get", "user", "odd"]).await;
}

#[tokio::test]
async fn warnings_of_the_server_are_printed_once() {
    let server = Server::start().await;
    let admin = admin(&server);
    let copy = "  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}";
    let file = admin.file(
        "secrets.yaml",
        document("SharedSecret", "a", copy) + &document("SharedSecret", "b", copy),
    );
    let output = admin.run(&["create", "-f", &file, "-o", "name"]).await;
    assert_eq!((output.code, output.text().lines().count()), (0, 2), "{}", output.all_output());
    let mut warnings = output.err.lines().filter(|line| line.starts_with("warning: "));
    let warning = warnings.next().unwrap_or_else(|| panic!("{}", output.err));
    assert!(warning.contains("contains a copy of spec.data"), "{}", output.err);
    assert_eq!(warnings.next(), None, "the same warning twice: {}", output.err);
}

#[tokio::test]
async fn a_new_access_key_is_printed_or_not_created_at_all() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = document("User", "ada", "") + &document("OwnedAccessKey", "ci", "spec: {user: ada}");
    let file = admin.file("key.yaml", text);
    for format in [&[][..], &["-o", "name"]] {
        let said = admin.fails(2, &[&["create", "-f", &file], format].concat()).await;
        assert!(said.contains("the only copy") && said.contains("-o json or -o yaml"), "{said}");
        assert!(said.contains("document 2"), "{said}");
    }
    admin.fails(1, &["get", "user", "ada"]).await;
    let yaml = admin.ok(&["create", "-f", &file, "-o", "yaml"]).await;
    let key = yaml.split_once("  key: ").unwrap().1.lines().next().unwrap();
    let ada = CliUser::new()
        .with("POSTERN_SERVER", &url(&server))
        .with("POSTERN_CA_FILE", &crate::cli::authority(&admin, &server))
        .with("POSTERN_ACCESS_KEY", key);
    assert_eq!(ada.ok(&["whoami", "-o", "name"]).await, "user.management.platform.sh/ada\n");
}

#[tokio::test]
async fn a_closed_output_is_an_error_when_something_was_created() {
    let server = Server::start().await;
    let admin = admin(&server);
    let file = admin.file("users", document("User", "a", "") + &document("User", "b", ""));
    let mut command = admin.command(&["create", "-f", &file, "-o", "yaml"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ended = wait::within("the command to end", child.wait_with_output()).await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("user a created") && said.contains("is lost"), "{said}");
    assert!(said.contains("not tried: ") && said.contains("document 2"), "{said}");
}

#[tokio::test]
async fn files_that_make_no_sense_end_before_a_request() {
    let user = CliUser::new();
    let (empty, one) = (user.file("empty", "# nothing\n---\n"), document("User", "a", ""));
    let one = user.file("one", one);
    let direct = ["--server", "https://127.0.0.1:1", "--access-key", "pst_wrong"];
    for (code, arguments, wanted) in [
        (2, &["create"][..], "--filename <FILE>"),
        (2, &["create", "-o", "name"], "--filename <FILE>"),
        (2, &["create", "-f", &one, "user", "ada"], "unexpected argument '-f'"),
        (2, &["create", "-f", &one, "-o", "wide"], "possible values: json, yaml, name"),
        (2, &["create", "-f", "-", "-f", "-"], "only once"),
        (2, &["create", "-f", "-", "--access-key", "-"], "only once"),
        (1, &["create", "-f", "absent"], "cannot read absent"),
        (1, &["create", "-f", "."], ". has no file that ends with .yaml"),
        (1, &["create", "-f", &empty], "contain no object"),
        (1, &["create", "-f", "-"], "contain no object"),
        (1, &["create", "-f", &one], "not logged in"),
    ] {
        let said = user.fails(code, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    let said = user.fails(1, &[&["create", "-f", &one, "-f", &one][..], &direct].concat()).await;
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains(&format!("not tried: {one}, document 1")), "{said}");
}
