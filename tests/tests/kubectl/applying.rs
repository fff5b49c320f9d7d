//! `kubectl apply`, on the server's side and on the client's, and from one to the other.

use postern_tests::Server;
use postern_tests::kubectl::Kubectl;
use serde_json::{Value, json};

const ONE: &str = "s1";

/// The path of a manifest with these lines below `spec`.
fn manifest(kubectl: &Kubectl, name: &str, lines: &[&str]) -> String {
    let spec = lines.join("\n  ");
    let text = format!(
        "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: {ONE}\nspec:\n  {spec}\n"
    );
    kubectl.file(&format!("{name}.yaml"), &text)
}

async fn server_side(kubectl: &Kubectl, file: &str, more: &[&str]) -> String {
    kubectl.ok(&[&["apply", "--server-side", "-f", file], more].concat()).await
}

async fn stored(kubectl: &Kubectl) -> Value {
    kubectl.json(&["get", "ss", ONE, "--show-managed-fields"]).await
}

/// The manager and operation of each entry.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    entries.iter().map(|one| text(&one["manager"]) + " " + &text(&one["operation"])).collect()
}

#[tokio::test]
async fn server_side_apply_creates_changes_and_removes() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let first = manifest(&kubectl, "first", &["displayName: A", "data: {a: djE=, b: djE=}"]);
    let output = server_side(&kubectl, &first, &["--dry-run=server"]).await;
    assert!(output.ends_with("serverside-applied (server dry run)\n"), "{output}");
    kubectl.fails(&["get", "ss", ONE]).await;
    let output = server_side(&kubectl, &first, &[]).await;
    assert_eq!(output, "sharedsecret.management.platform.sh/s1 serverside-applied\n");
    let made = stored(&kubectl).await;
    assert_eq!(managers(&made), ["kubectl Apply"]);
    server_side(&kubectl, &first, &[]).await;
    assert_eq!(stored(&kubectl).await, made, "the same again changes nothing");
    assert_eq!(kubectl.ok(&["diff", "--server-side", "-f", &first]).await, "");
    let next = manifest(&kubectl, "next", &["displayName: B", "data: {b: djE=}"]);
    let diff = kubectl.run(&["diff", "--server-side", "-f", &next]).await;
    assert!(!diff.ok, "{diff:?}");
    assert!(
        diff.out.contains("\n-  displayName: A\n") && diff.out.contains("\n+  displayName: B\n")
    );
    assert_eq!(stored(&kubectl).await, made);
    server_side(&kubectl, &next, &[]).await;
    let changed = stored(&kubectl).await;
    assert_eq!(changed["spec"]["data"], json!({ "b": "djE=" }));
    assert_eq!(changed["spec"]["displayName"], "B");
    let unknown = manifest(&kubectl, "unknown", &["displayname: small n"]);
    let output = kubectl.fails(&["apply", "--server-side", "-f", &unknown]).await;
    assert!(output.contains("spec.displayname"), "{output}");
}

#[tokio::test]
async fn conflicts_are_told_and_forced() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let first = manifest(&kubectl, "first", &["displayName: A", "data: {a: djE=}"]);
    server_side(&kubectl, &first, &["--field-manager=argo"]).await;
    let edit = r#"{"spec": {"description": "edited"}}"#;
    kubectl.ok(&["patch", "ss", ONE, "--type=merge", "-p", edit]).await;
    let mine = manifest(&kubectl, "mine", &["displayName: B", "description: mine"]);
    let before = stored(&kubectl).await;
    let output = kubectl.fails(&["apply", "--server-side", "-f", &mine]).await;
    assert!(
        output.contains(
            "Apply failed with 2 conflicts: conflicts with \"argo\":\n- .spec.displayName\n"
        ),
        "{output}"
    );
    assert!(output.contains("conflicts with \"kubectl-patch\" using management.platform.sh/v1:\n- .spec.description\n"), "{output}");
    assert_eq!(stored(&kubectl).await, before);
    server_side(&kubectl, &mine, &["--force-conflicts"]).await;
    let forced = stored(&kubectl).await;
    assert_eq!(forced["spec"]["displayName"], "B");
    assert_eq!(forced["spec"]["data"], json!({ "a": "djE=" }), "what others own stays");
    assert_eq!(managers(&forced)[..2], ["argo Apply", "kubectl Apply"]);
}

#[tokio::test]
async fn from_client_side_apply_to_server_side_apply_and_back() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let first = manifest(&kubectl, "first", &["displayName: A", "data: {a: djE=, b: djE=}"]);
    kubectl.ok(&["apply", "-f", &first]).await;
    assert_eq!(managers(&stored(&kubectl).await), ["kubectl-client-side-apply Update"]);
    // A field that client-side apply has set does not conflict, though the value is another one.
    let next = manifest(&kubectl, "next", &["displayName: B", "data: {b: djE=}"]);
    server_side(&kubectl, &next, &[]).await;
    let moved = stored(&kubectl).await;
    assert_eq!(moved["spec"]["displayName"], "B");
    assert!(
        !managers(&moved).contains(&"kubectl-client-side-apply Update".to_owned()),
        "kubectl has moved its entry: {moved}"
    );
    // From then on, an apply removes the fields that it no longer contains.
    server_side(&kubectl, &next, &[]).await;
    let stays = stored(&kubectl).await;
    assert_eq!(stays["spec"]["data"], json!({ "b": "djE=" }), "{stays}");
    let annotation = |object: &Value| -> Value {
        let name = "kubectl.kubernetes.io/last-applied-configuration";
        let text = object["metadata"]["annotations"][name].as_str().unwrap();
        serde_json::from_str(text).unwrap()
    };
    assert_eq!(annotation(&stays)["spec"]["displayName"], "B", "the annotation follows");
    let last = manifest(&kubectl, "last", &["displayName: C"]);
    kubectl.ok(&["apply", "-f", &last]).await;
    let back = stored(&kubectl).await;
    assert_eq!(back["spec"]["displayName"], "C");
    assert!(back["spec"].get("data").is_none_or(|data| data == &json!({})), "{back}");
    assert_eq!(annotation(&back)["spec"], json!({ "displayName": "C" }));
}

#[tokio::test]
async fn strategic_merge_patches_are_the_default() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let first = manifest(&kubectl, "first", &["displayName: A", "data: {a: djE=}"]);
    kubectl.ok(&["apply", "-f", &first]).await;
    let patch = r#"{"metadata": {"finalizers": ["a.io/x"]}, "spec": {"data": {"b": "djE="}}}"#;
    kubectl.ok(&["patch", "ss", ONE, "-p", patch]).await;
    let patch = r#"{"metadata": {"finalizers": ["b.io/x"]}, "spec": {"data": {"$patch": "replace", "c": "djE="}}}"#;
    kubectl.ok(&["patch", "ss", ONE, "-p", patch]).await;
    let patched = stored(&kubectl).await;
    assert_eq!(patched["metadata"]["finalizers"], json!(["a.io/x", "b.io/x"]));
    assert_eq!(patched["spec"]["data"], json!({ "c": "djE=" }));
    let patch = r#"{"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/x", "b.io/x"]}}"#;
    kubectl.ok(&["patch", "ss", ONE, "--type=strategic", "-p", patch]).await;
    assert!(stored(&kubectl).await["metadata"].get("finalizers").is_none());
    let bad = r#"{"spec": {"data": {"$patch": "all"}}}"#;
    let output = kubectl.fails(&["patch", "ss", ONE, "-p", bad]).await;
    assert!(output.contains("$patch"), "{output}");
}
