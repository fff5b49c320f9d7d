//! Every kubectl applies on both sides, is told of conflicts and forces, shows differences, patches in each way, and
//! deletes with each policy.

use postern_tests::kubectl::Kubectl;
use postern_tests::{Server, wait};
use serde_json::{Value, json};

use super::kubectls;
use super::program::Program;

/// Writes a manifest of a shared secret with these lines below `spec`, and returns its path.
fn manifest(kubectl: &Kubectl, name: &str, file: &str, spec: &[&str]) -> String {
    let spec = spec.join("\n  ");
    let text = format!(
        "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: {name}\n\
         spec:\n  {spec}\n"
    );
    kubectl.file(file, &text)
}

#[tokio::test]
async fn every_kubectl_applies_and_shows_differences_on_its_own_side() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let of = |file: &str, spec: &[&str]| manifest(&program.kubectl, "s1", file, spec);
        let first = of("first", &["displayName: A", "data: {a: djE=, b: djE=}"]);
        let next = of("next", &["displayName: B", "data: {b: djE=}"]);
        program.expect(&format!("apply -f {first}"), &["created"]).await;
        program.expect(&format!("apply -f {first}"), &["unchanged"]).await;
        program.expect(&format!("diff -f {first}"), &[]).await;
        let before = program.json("get ss s1").await;
        program
            .refuse(&format!("diff -f {next}"), &["-  displayName: A", "+  displayName: B"])
            .await;
        assert_eq!(program.json("get ss s1").await, before, "a difference changes nothing");
        program.expect(&format!("apply -f {next}"), &["configured"]).await;
        let after = program.json("get ss s1").await;
        assert_eq!(after["spec"]["data"], json!({ "b": "djE=" }), "what is left out goes");
        assert_eq!(after["spec"]["displayName"], "B");
    }
}

#[tokio::test]
async fn every_kubectl_applies_on_the_servers_side_and_is_told_of_conflicts() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let of = |file: &str, spec: &[&str]| manifest(&program.kubectl, "s1", file, spec);
        let theirs = of("theirs", &["displayName: A", "data: {a: djE=}"]);
        let mine = of("mine", &["displayName: B", "data: {b: djE=}"]);
        let apply = "apply --server-side";
        program.expect(&format!("{apply} --field-manager=argo -f {theirs}"), &["applied"]).await;
        program.expect(&format!("diff --server-side --field-manager=argo -f {theirs}"), &[]).await;
        let conflict = ["conflict with \"argo\"", ".spec.displayName"];
        program.refuse(&format!("{apply} --field-manager=me -f {mine}"), &conflict).await;
        let force = format!("{apply} --field-manager=me --force-conflicts -f {mine}");
        program.expect(&force, &["applied"]).await;
        let forced = program.json("get ss s1").await;
        assert_eq!(forced["spec"]["displayName"], "B");
        assert_eq!(forced["spec"]["data"], json!({ "a": "djE=", "b": "djE=" }));
        let less = of("less", &["displayName: B"]);
        program.expect(&format!("{apply} --field-manager=me -f {less}"), &["applied"]).await;
        let left = program.json("get ss s1").await;
        assert_eq!(left["spec"]["data"], json!({ "a": "djE=" }), "what others own stays");
    }
}

#[tokio::test]
async fn every_kubectl_patches_in_each_way() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = manifest(&program.kubectl, "s1", "s1", &["data: {a: djE=}"]);
        program.expect(&format!("create -f {file}"), &["created"]).await;
        let ways = [
            ("json", r#"[{"op":"add","path":"/spec/data/j","value":"djE="}]"#),
            ("merge", r#"{"metadata":{"finalizers":["a.io/x"]},"spec":{"data":{"a":null}}}"#),
            ("strategic", r#"{"metadata":{"finalizers":["b.io/x"]},"spec":{"data":{"s":"djE="}}}"#),
        ];
        for (way, patch) in ways {
            let line = format!("patch ss s1 --type={way} -p {patch}");
            program.expect(&line, &["patched"]).await;
            program.expect(&format!("{line} --dry-run=server"), &[]).await;
        }
        let patched = program.json("get ss s1").await;
        assert_eq!(patched["spec"]["data"], json!({ "j": "djE=", "s": "djE=" }));
        let mut finalizers = patched["metadata"]["finalizers"].clone();
        finalizers.as_array_mut().unwrap().sort_by_key(Value::to_string);
        assert_eq!(finalizers, json!(["a.io/x", "b.io/x"]), "the schema says it is a set");
        let wrong = r#"patch ss s1 --type=json -p [{"op":"remove","path":"/spec/data/none"}]"#;
        program.refuse(wrong, &["/spec/data/none"]).await;
    }
}

/// Creates an owner, and a dependent that keeps a foreground deletion waiting.
async fn make_family(program: &Program) {
    let owner = manifest(&program.kubectl, "owner", "owner", &["data: {a: djE=}"]);
    program.expect(&format!("create -f {owner}"), &["created"]).await;
    let uid = program.json("get ss owner").await["metadata"]["uid"].as_str().unwrap().to_owned();
    let dependent = format!(
        "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: dependent\n  \
         ownerReferences:\n  - apiVersion: management.platform.sh/v1\n    kind: SharedSecret\n    \
         name: owner\n    uid: {uid}\n    blockOwnerDeletion: true\n"
    );
    let dependent = program.kubectl.file("dependent", &dependent);
    program.expect(&format!("create -f {dependent}"), &["created"]).await;
}

#[tokio::test]
async fn every_kubectl_deletes_with_each_policy() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        for policy in ["background", "foreground", "orphan"] {
            make_family(&program).await;
            program.expect(&format!("delete ss owner --cascade={policy}"), &["deleted"]).await;
            program.refuse("get ss owner", &["NotFound"]).await;
            match policy {
                "background" => {
                    let gone = async || (!program.run("get ss dependent").await.ok).then_some(());
                    wait::until("the dependent to follow", gone).await;
                }
                "foreground" => program.refuse("get ss dependent", &["NotFound"]).await,
                _ => {
                    let orphan = program.json("get ss dependent").await;
                    assert!(orphan["metadata"].get("ownerReferences").is_none(), "{orphan}");
                    program.expect("delete ss dependent", &["deleted"]).await;
                }
            }
        }
    }
}
