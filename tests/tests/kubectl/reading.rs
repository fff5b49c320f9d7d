//! Commands that read: get in every output format, explain, api-resources, wait, and raw paths.

use std::process::Stdio;

use postern_tests::{Server, wait};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

#[tokio::test]
async fn create_and_get_in_every_format() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let made = kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    assert_eq!(made, "sharedsecret.management.platform.sh/db.password created\n");
    let made = kubectl.ok(&["create", "-f", "examples/sharedsecret.json"]).await;
    assert_eq!(made, "sharedsecret.management.platform.sh/api.token created\n");
    let again = kubectl.fails(&["create", "-f", "examples/sharedsecret.json"]).await;
    assert!(again.contains("(AlreadyExists)"), "{again}");

    let table = kubectl.ok(&["get", "sharedsecrets"]).await;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("NAME ") && lines[0].ends_with("AGE"), "{table}");
    assert!(lines[1].starts_with("api.token ") && lines[2].starts_with("db.password "), "{table}");
    assert!(!table.contains("<unknown>"), "{table}");
    let wide = kubectl.ok(&["get", "ss", "-A", "-o", "wide"]).await;
    assert!(wide.starts_with("NAMESPACE ") && wide.lines().count() == 3, "{wide}");
    let labels = kubectl.ok(&["get", "ss", "--show-labels"]).await;
    assert!(labels.contains("app=shop"), "{labels}");
    let column = kubectl.ok(&["get", "ss", "-L", "app", "-l", "app=billing", "--no-headers"]).await;
    assert!(column.starts_with("api.token ") && column.lines().count() == 1, "{column}");

    let team = json!({ "apiVersion": "management.platform.sh/v1", "kind": "Team",
        "metadata": { "name": "developers" } });
    kubectl.ok(&["create", "-f", &kubectl.file("team.json", &team.to_string())]).await;
    let share = json!({ "spec": { "access": [{ "verbs": ["get"], "teams": ["developers"] }] } });
    kubectl.ok(&["patch", "ss", "db.password", "--type=merge", "-p", &share.to_string()]).await;

    let yaml = kubectl.ok(&["get", "ss", "db.password", "-o", "yaml"]).await;
    assert!(yaml.contains("    password: aHVudGVyMg==\n"), "{yaml}");
    let object = kubectl.json(&["get", "ss", "db.password"]).await;
    assert_eq!(object["metadata"]["namespace"], "platform");
    assert_eq!(object["spec"]["access"][0]["teams"][0], "developers");
    let list = kubectl.json(&["get", "ss"]).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let names = kubectl.ok(&["get", "ss", "-o", "name"]).await;
    assert_eq!(names.lines().count(), 2);
    let path = "jsonpath={.spec.data.password}";
    assert_eq!(kubectl.ok(&["get", "ss", "db.password", "-o", path]).await, "aHVudGVyMg==");
    let chunked = kubectl.ok(&["get", "ss", "--chunk-size=1", "-o", "name"]).await;
    assert_eq!(chunked, names);
    let sorted = kubectl.ok(&["get", "ss", "--sort-by=.metadata.name", "-o", "name"]).await;
    assert_eq!(sorted.lines().count(), 2);
    let missing = kubectl.fails(&["get", "ss", "nothing"]).await;
    assert!(
        missing.contains("(NotFound)") && missing.contains("\"nothing\" not found"),
        "{missing}"
    );
    let described = kubectl.ok(&["describe", "ss", "db.password"]).await;
    assert!(described.contains("Kind:         SharedSecret"), "{described}");
}

#[tokio::test]
async fn a_namespace_is_chosen() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let empty = kubectl.run(&["get", "ss"]).await;
    assert!(
        empty.ok && empty.err.contains("No resources found in platform namespace"),
        "{empty:?}"
    );
    kubectl.ok(&["create", "-f", "examples/namespace.yaml"]).await;
    let table = kubectl.ok(&["get", "namespaces"]).await;
    assert!(table.starts_with("NAME ") && table.contains("team-a"), "{table}");
    kubectl.ok(&["create", "-n", "team-a", "-f", "examples/sharedsecret.yaml"]).await;
    assert_eq!(kubectl.ok(&["get", "ss", "-n", "team-a", "-o", "name"]).await.lines().count(), 1);
    assert_eq!(kubectl.ok(&["get", "ss", "-o", "name"]).await, "");
    let nowhere =
        kubectl.fails(&["create", "-n", "nowhere", "-f", "examples/sharedsecret.yaml"]).await;
    assert!(nowhere.contains("namespaces \"nowhere\" not found"), "{nowhere}");
    kubectl.ok(&["create", "namespace", "team-b"]).await;
    kubectl.ok(&["delete", "namespace", "team-a", "team-b"]).await;
    let table = kubectl.ok(&["get", "ns", "-o", "name"]).await;
    assert_eq!(table, "namespace/default\nnamespace/platform\n");
    let forbidden = kubectl.fails(&["delete", "namespace", "platform"]).await;
    assert!(forbidden.contains("(Forbidden)"), "{forbidden}");
}

#[tokio::test]
async fn explain_knows_every_field() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let kind = kubectl.ok(&["explain", "sharedsecret"]).await;
    assert!(kind.contains("GROUP:      management.platform.sh"), "{kind}");
    assert!(kind.contains("KIND:       SharedSecret"), "{kind}");
    let access = kubectl.ok(&["explain", "sharedsecret.spec.access"]).await;
    for field in ["name", "verbs", "subresources", "users", "teams"] {
        assert!(access.contains(&format!("\n  {field}\t")), "{field}: {access}");
    }
    assert!(access.contains("DESCRIPTION:") && !access.contains("<empty>"), "{access}");
    let data = kubectl.ok(&["explain", "ss.spec.data"]).await;
    assert!(data.contains("<map[string]string>"), "{data}");
    let metadata = kubectl.ok(&["explain", "ss.metadata.ownerReferences.blockOwnerDeletion"]).await;
    assert!(metadata.contains("<boolean>"), "{metadata}");
    let whole = kubectl.ok(&["explain", "ss", "--recursive"]).await;
    assert!(whole.contains("displayName\t<string>"), "{whole}");
    kubectl.ok(&["explain", "namespace.metadata.labels"]).await;
    kubectl.fails(&["explain", "ss.spec.nothing"]).await;
}

#[tokio::test]
async fn what_is_served_is_listed() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let resources = kubectl.ok(&["api-resources", "-o", "wide"]).await;
    let line = resources.lines().find(|line| line.starts_with("sharedsecrets ")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1..5], ["ss", "management.platform.sh/v1", "true", "SharedSecret"]);
    assert!(resources.lines().any(|line| line.starts_with("namespaces ")), "{resources}");
    let versions = kubectl.ok(&["api-versions"]).await;
    assert!(versions.lines().any(|line| line == "management.platform.sh/v1"), "{versions}");
    assert!(versions.lines().any(|line| line == "v1"), "{versions}");
    let version = kubectl.ok(&["version"]).await;
    assert!(version.contains("Server Version: v1."), "{version}");
}

#[tokio::test]
async fn raw_paths_are_below_the_base_path() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    let ready = kubectl.ok(&["get", "--raw", "/readyz?verbose"]).await;
    assert!(ready.trim_end().ends_with("readyz check passed"), "{ready}");
    let path = "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets/db.password";
    let raw = kubectl.ok(&["get", "--raw", path]).await;
    assert!(raw.contains("\"kind\":\"SharedSecret\""), "{raw}");
}

/// Starts `kubectl get -w`, and returns the process and its lines.
fn watch(server: &Server, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = server.kubectl().command(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    wait::within("a line of kubectl get -w", lines.next_line()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_watch_prints_what_happens() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    let (mut child, mut lines) = watch(&server, &["get", "ss", "-w", "--output-watch-events"]);
    assert!(line(&mut lines).await.starts_with("EVENT "), "a header");
    assert!(line(&mut lines).await.starts_with("ADDED      db.password"));
    kubectl.ok(&["label", "ss", "db.password", "seen=yes"]).await;
    assert!(line(&mut lines).await.starts_with("MODIFIED   db.password"));
    kubectl.ok(&["create", "-f", "examples/sharedsecret.json"]).await;
    assert!(line(&mut lines).await.starts_with("ADDED      api.token"));
    kubectl.ok(&["delete", "ss", "db.password"]).await;
    assert!(line(&mut lines).await.starts_with("DELETED    db.password"));
    child.kill().await.unwrap();

    let (mut child, mut lines) = watch(&server, &["get", "ss", "-o", "name", "--watch-only"]);
    let line = wait::until("the watch to have started", async || {
        kubectl
            .ok(&["label", "ss", "api.token", "--overwrite", &format!("at={}", unique_value())])
            .await;
        let soon = std::time::Duration::from_millis(500);
        tokio::time::timeout(soon, lines.next_line()).await.ok()?.unwrap()
    })
    .await;
    assert_eq!(line, "sharedsecret.management.platform.sh/api.token");
    child.kill().await.unwrap();
}

/// A value that was not used before.
fn unique_value() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

#[tokio::test]
async fn wait_waits_for_its_condition() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    let arguments =
        ["wait", "ss/db.password", "--for=jsonpath={.spec.displayName}=Done", "--timeout=60s"];
    let waiting = kubectl.command(&arguments).spawn().unwrap();
    kubectl.ok(&["label", "ss", "db.password", "not=yet"]).await;
    let patch = r#"{"spec": {"displayName": "Done"}}"#;
    kubectl.ok(&["patch", "ss", "db.password", "--type=merge", "-p", patch]).await;
    let waited = wait::within("kubectl wait", waiting.wait_with_output()).await.unwrap();
    assert!(waited.status.success());
    kubectl.ok(&["wait", "ss/db.password", "--for=create", "--timeout=60s"]).await;

    let gone = ["wait", "ss/db.password", "--for=delete", "--timeout=60s"];
    let waiting = kubectl.command(&gone).spawn().unwrap();
    kubectl.ok(&["delete", "ss", "db.password", "--wait=false"]).await;
    let waited = wait::within("kubectl wait", waiting.wait_with_output()).await.unwrap();
    assert!(waited.status.success());
    let space = ["wait", "ns/platform", "--for=jsonpath={.status.phase}=Active", "--timeout=60s"];
    kubectl.ok(&space).await;
}
