//! Commands that change: edit, label, annotate, patch, replace, and their refusals.

use std::os::unix::fs::PermissionsExt as _;

use postern_tests::Server;
use postern_tests::kubectl::{Kubectl, repository};

async fn with_one() -> (Server, Kubectl) {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    (server, kubectl)
}

const ONE: &str = "db.password";

#[tokio::test]
async fn the_specifications_patch() {
    let (_server, kubectl) = with_one().await;
    let file = ["patch", "ss", ONE, "--type=json", "--patch-file", "examples/annotate.json"];
    let output = kubectl.ok(&file).await;
    assert_eq!(output, "sharedsecret.management.platform.sh/db.password patched\n");
    let object = kubectl.json(&["get", "ss", ONE]).await;
    assert_eq!(object["metadata"]["annotations"]["rotated-by"], "the nightly job");
    let again = kubectl.ok(&file).await;
    assert!(again.ends_with("patched (no change)\n"), "{again}");
    let failing = r#"[{"op": "test", "path": "/spec/displayName", "value": "other"}]"#;
    let output = kubectl.fails(&["patch", "ss", ONE, "--type=json", "-p", failing]).await;
    assert!(output.contains("operation 0 (test) does not apply at /spec/displayName"), "{output}");
}

#[tokio::test]
async fn merge_patches_labels_and_annotations() {
    let (_server, kubectl) = with_one().await;
    let patch = r#"{"spec": {"data": {"username": null, "port": "NTQzMg=="}}}"#;
    kubectl.ok(&["patch", "ss", ONE, "--type=merge", "-p", patch]).await;
    let object = kubectl.json(&["get", "ss", ONE]).await;
    let keys: Vec<_> = object["spec"]["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["password", "port"]);
    kubectl.ok(&["label", "ss", ONE, "team=red", "app-"]).await;
    kubectl.fails(&["label", "ss", ONE, "team=blue"]).await;
    kubectl.ok(&["label", "ss", ONE, "team=blue", "--overwrite"]).await;
    kubectl.ok(&["annotate", "ss", ONE, "example.com/note=a text with spaces"]).await;
    kubectl.ok(&["label", "ss", "--all", "all=yes"]).await;
    let object = kubectl.json(&["get", "ss", ONE]).await;
    let metadata = &object["metadata"];
    assert_eq!(metadata["labels"], serde_json::json!({"all": "yes", "team": "blue"}));
    assert_eq!(metadata["annotations"]["example.com/note"], "a text with spaces");
    assert_eq!(metadata["generation"], 2, "only the change of the data counts");
    let bad = kubectl.fails(&["label", "ss", ONE, "not/a/label=x"]).await;
    assert!(!bad.is_empty());
}

/// An editor command that runs a sed script on the file.
fn editor(kubectl: &Kubectl, script: &str) -> String {
    let path = kubectl.file("editor.sh", &format!("#!/bin/sh\nexec sed -i '{script}' \"$1\"\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn edit_changes_the_object() {
    let (_server, kubectl) = with_one().await;
    for (format, script, display_name) in [
        ("yaml", "s/displayName: .*/displayName: edited as YAML/", "edited as YAML"),
        (
            "json",
            "s/\"displayName\": \"[^\"]*\"/\"displayName\": \"edited as JSON\"/",
            "edited as JSON",
        ),
    ] {
        let mut command = kubectl.command(&["edit", "ss", ONE, "-o", format]);
        command.env("KUBE_EDITOR", editor(&kubectl, script));
        let output = kubectl.run_command(command).await;
        assert!(output.ok, "{output:?}");
        let object = kubectl.json(&["get", "ss", ONE]).await;
        assert_eq!(object["spec"]["displayName"], display_name);
    }
    let mut command = kubectl.command(&["edit", "ss", ONE]);
    command.env("KUBE_EDITOR", "true");
    let output = kubectl.run_command(command).await;
    assert!(
        output.ok && output.err.contains("no changes made")
            || output.out.contains("no changes made"),
        "{output:?}"
    );
}

#[tokio::test]
async fn replace_puts_back_what_was_read() {
    let (_server, kubectl) = with_one().await;
    let read = kubectl.ok(&["get", "ss", ONE, "-o", "yaml"]).await;
    let changed = kubectl.file("changed.yaml", &read.replace("Database password", "Replaced"));
    let output = kubectl.ok(&["replace", "-f", &changed]).await;
    assert_eq!(output, "sharedsecret.management.platform.sh/db.password replaced\n");
    let stale = kubectl.file("stale.yaml", &read.replace("Database password", "Too late"));
    let output = kubectl.fails(&["replace", "-f", &stale]).await;
    assert!(
        output.contains("(Conflict)") && output.contains("the object has been modified"),
        "{output}"
    );
    let json = kubectl.ok(&["get", "ss", ONE, "-o", "json"]).await.replace("Replaced", "As JSON");
    kubectl.ok(&["replace", "-f", &kubectl.file("changed.json", &json)]).await;
    let object = kubectl.json(&["get", "ss", ONE]).await;
    assert_eq!(object["spec"]["displayName"], "As JSON");
    assert_eq!(object["metadata"]["generation"], 3);
    // kubectl gives a manifest without a version the newest one.
    let bare = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: db.password\n";
    kubectl.ok(&["replace", "-f", &kubectl.file("bare.yaml", bare)]).await;
    kubectl.ok(&["replace", "--force", "-f", "examples/sharedsecret.yaml"]).await;
    let object = kubectl.json(&["get", "ss", ONE]).await;
    assert_eq!(object["spec"]["displayName"], "Database password");
}

#[tokio::test]
async fn dry_runs_store_nothing() {
    let (_server, kubectl) = with_one().await;
    let before = kubectl.json(&["get", "ss", ONE]).await;
    let dry = "--dry-run=server";
    let output = kubectl.ok(&["create", "-f", "examples/sharedsecret.json", dry]).await;
    assert!(output.ends_with("created (server dry run)\n"), "{output}");
    kubectl.fails(&["get", "ss", "api.token"]).await;
    kubectl.ok(&["label", "ss", ONE, "x=y", dry]).await;
    let patch = r#"{"spec": {"displayName": "never"}}"#;
    kubectl.ok(&["patch", "ss", ONE, "--type=merge", "-p", patch, dry]).await;
    kubectl.ok(&["delete", "ss", ONE, dry]).await;
    kubectl.fails(&["delete", "ns", "default", dry]).await;
    assert_eq!(kubectl.json(&["get", "ss", ONE]).await, before);
}

#[tokio::test]
async fn errors_are_printed_as_the_server_sends_them() {
    let (_server, kubectl) = with_one().await;
    let of_kind = |kind: &str, name: &str, field: &str| {
        format!(
            "apiVersion: management.platform.sh/v1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  {field}\n"
        )
    };
    let manifest = |name: &str, field: &str| of_kind("SharedSecret", name, field);
    let file = kubectl.file("unknown.yaml", &of_kind("Team", "x", "displayname: small n"));
    let output = kubectl.fails(&["create", "-f", &file]).await;
    assert!(
        output.contains("strict decoding error: unknown field \"spec.displayname\""),
        "{output}"
    );
    let output = kubectl.run(&["create", "-f", &file, "--validate=warn"]).await;
    assert!(
        output.ok && output.err.contains("Warning: unknown field \"spec.displayname\""),
        "{output:?}"
    );
    let file = kubectl.file("key.yaml", &manifest("key", "data: {'a b': djE=}"));
    let output = kubectl.fails(&["create", "-f", &file]).await;
    assert!(
        output.contains("* spec.data[a b]: Invalid value")
            || output.contains("spec.data[a b]: Invalid value"),
        "{output}"
    );
    let file = kubectl.file("value.yaml", &manifest("z", "data: {broken: canary!}"));
    let output = kubectl.fails(&["create", "-f", &file]).await;
    assert!(output.contains("broken") && !output.contains("canary"), "{output}");
    let file = kubectl.file("name.yaml", &manifest("Upper", "displayName: x"));
    let output = kubectl.fails(&["create", "-f", &file]).await;
    assert!(output.contains("a lowercase RFC 1123 subdomain"), "{output}");
}

#[tokio::test]
async fn apply_and_diff_work_on_the_clients_side() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let example = "examples/sharedsecret.yaml";
    assert!(kubectl.ok(&["apply", "-f", example]).await.ends_with("db.password created\n"));
    assert!(kubectl.ok(&["apply", "-f", example]).await.ends_with("db.password unchanged\n"));
    assert_eq!(kubectl.ok(&["diff", "-f", example]).await, "");
    let text = std::fs::read_to_string(repository().join(example)).unwrap();
    let changed =
        text.replace("Database password", "Applied").replace("    username: c2hvcA==\n", "");
    let changed = kubectl.file("applied.yaml", &changed);
    let diff = kubectl.run(&["diff", "-f", &changed]).await;
    assert!(!diff.ok && diff.out.contains("\n+  displayName: Applied\n"), "{diff:?}");
    assert!(kubectl.ok(&["apply", "-f", &changed]).await.ends_with("db.password configured\n"));
    let object = kubectl.json(&["get", "ss", ONE]).await;
    assert_eq!(object["spec"]["displayName"], "Applied");
    assert!(
        object["spec"]["data"].get("username").is_none(),
        "a value that is no longer applied is removed"
    );
    assert_eq!(kubectl.ok(&["diff", "-f", &changed]).await, "");
}
