//! The oldest kubectl that is supported, which knows `OpenAPI` 2 in protobuf and nothing newer.

use postern_tests::Server;
use postern_tests::kubectl::{CommandOutput, Kubectl};

const MANIFEST: &str = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\n\
                        metadata: {name: s1}\nspec: {displayName: one, data: {a: YQ==}}\n";

async fn old(kubectl: &Kubectl, arguments: &[&str]) -> CommandOutput {
    let set_up = kubectl.command(arguments);
    let mut command = tokio::process::Command::new(Kubectl::oldest_program());
    command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
    for (name, value) in set_up.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    kubectl.run_command(command).await
}

#[tokio::test]
async fn it_validates_and_works() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let file = kubectl.file("one.yaml", MANIFEST);
    let changed = kubectl.file("two.yaml", &MANIFEST.replace("one", "two"));
    let wrong = kubectl.file("wrong.yaml", &MANIFEST.replace("displayName", "displayNome"));
    for (arguments, ok, expected) in [
        (&["create", "-f", &file][..], true, "created"),
        (&["diff", "-f", &changed], false, "displayName: two"),
        (&["apply", "-f", &changed], true, "configured"),
        (&["replace", "-f", &file], true, "replaced"),
        (&["explain", "sharedsecret.spec.access"], true, "<[]Object>"),
        (&["apply", "-f", &wrong], false, "unknown field \"displayNome\""),
        (&["delete", "-f", &file], true, "deleted"),
    ] {
        let run = old(&kubectl, arguments).await;
        let text = format!("{}{}", run.out, run.err);
        assert_eq!(run.ok, ok, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}
