//! The commands in the documents for new users run as they are: the README with kubectl, and
//! `docs/curl.md` with curl.

use std::fs::create_dir;
use std::os::unix::fs::symlink;

use postern_tests::kubectl::{CommandOutput, Kubectl, repository};
use postern_tests::{Server, wait};
use tokio::process::Command;

/// Returns the shell blocks of a page after a heading.
fn shell_of(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let text = text.split("\n## Settings").next().unwrap();
    let blocks = text.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

/// Runs a script in a directory with `postern-data` and `examples`, as a reader has them.
async fn run(server: &Server, script: &str) -> CommandOutput {
    let directory = server.home().path().join("reader");
    create_dir(&directory).unwrap();
    symlink(server.home().data(), directory.join("postern-data")).unwrap();
    symlink(repository().join("examples"), directory.join("examples")).unwrap();
    create_dir(directory.join("bin")).unwrap();
    symlink(Kubectl::program(), directory.join("bin/kubectl")).unwrap();
    let path = format!("{}/bin:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euxo", "pipefail", "-c", script]);
    command.current_dir(&directory).env("PATH", path).env("HOME", &directory).env("KUBERC", "off");
    command.env_remove("KUBECONFIG").kill_on_drop(true);
    let output = wait::within("the script to end", command.output()).await.unwrap();
    CommandOutput {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        ok: output.status.success(),
    }
}

#[tokio::test]
async fn the_commands_of_the_readme_work() {
    let server = Server::start().await;
    let output = run(&server, &shell_of("README.md", "## Five minutes with kubectl")).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    let left = server.kubectl().ok(&["get", "ss,ns", "-A", "-o", "name"]).await;
    assert_eq!(left, "namespace/default\nnamespace/platform\n", "the script deletes its objects");
}

#[tokio::test]
async fn the_commands_of_the_curl_page_work() {
    let server = Server::start().await;
    let output = run(&server, &shell_of("docs/curl.md", "# Postern by plain curl")).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    for expected in [
        "readyz check passed",
        "aHVudGVyMg==",
        "kind: SharedSecret\n",
        "Password of the database",
        "\"columnDefinitions\"",
        "\"rotated-by\"",
        "never stored",
        "k8s.io/initial-events-end",
    ] {
        assert!(output.out.contains(expected), "{expected} is not in:\n{}", output.out);
    }
    assert!(!output.out.contains(&server.kubeconfig().token));
}

#[tokio::test]
async fn the_three_commands_of_the_first_start_work() {
    let server = Server::start().await;
    let printed = wait::until("the output of the first start", async || {
        let printed = server.home().printed();
        (commands(&printed).len() == 3).then_some(printed)
    })
    .await;
    assert!(printed.contains(server.home().kubeconfig().to_str().unwrap()), "{printed}");
    assert!(!printed.contains(&server.kubeconfig().token), "the key is never printed");
    let output = run(&server, &commands(&printed).join("\n")).await;
    assert!(output.ok, "{printed}\n{}\n{}", output.out, output.err);
}

fn commands(printed: &str) -> Vec<&str> {
    let is_command =
        |line: &&str| ["export ", "kubectl ", "curl "].iter().any(|word| line.starts_with(word));
    printed.lines().map(str::trim).filter(is_command).collect()
}
