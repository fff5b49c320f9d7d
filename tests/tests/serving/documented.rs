//! The commands of `docs/operations.md`, run as they are written there, with the newest kubectl and, where
//! `POSTERN_TEST_KUBECTL_OLD` names one, with the oldest.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use postern_tests::kubectl::Kubectl;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Server, wait};
use tokio::process::Command;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Returns the block of commands that has a text in it.
fn block(text: &str) -> &'static str {
    let blocks = OPERATIONS.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.into_iter().find(|block| block.contains(text)).expect("the commands are documented")
}

/// Runs commands in the server's home, with this kubectl.
async fn run(server: &Server, kubectl: &Path, commands: &str) -> String {
    let home = server.home();
    let programs = home.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    drop(std::fs::remove_file(programs.join("kubectl")));
    std::os::unix::fs::symlink(kubectl, programs.join("kubectl")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-e", "-o", "pipefail", "-c", commands])
        .current_dir(home.path())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", home.path())
        .env("KUBECONFIG", home.kubeconfig())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = wait::within("the commands", command.output()).await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{commands}: {text}");
    text
}

#[tokio::test]
async fn a_corrupt_object_is_deleted_with_every_supported_kubectl() {
    let server = Server::start().await;
    let admin = server.client();
    let old = std::env::var_os("POSTERN_TEST_KUBECTL_OLD").map(PathBuf::from);
    for kubectl in [Kubectl::program()].into_iter().chain(old) {
        admin.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
        let commands = block("ignoreStoreReadErrorWithClusterBreakingPotential");
        let commands = commands.replace("/NS/", "/platform/").replace("/NAME?", "/s1?");
        let done = run(&server, &kubectl, &commands).await;
        assert!(done.contains("Success"), "{}: {done}", kubectl.display());
        admin.get(&secret_path("s1")).send().await.expect(404);
    }
}
