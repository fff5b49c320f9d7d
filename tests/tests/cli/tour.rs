//! The documents about the command line. Their shell blocks run exactly as they are written.

use std::os::unix::fs::symlink;

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::kubectl::repository;
use postern_tests::wait;
use tokio::process::Command;

#[tokio::test]
async fn the_page_on_the_command_line_is_true() {
    let expected = ["hunter2", "NAMESPACE", "user/admin", "shop"];
    run("docs/reference/command-line.md", "# The command line", &expected).await;
}

#[tokio::test]
async fn the_tutorial_on_the_command_line_is_true() {
    run("docs/tutorials/command-line.md", "# First steps", &["hunter2"]).await;
}

/// Runs a page's shell blocks, from a heading on. `postern-data` is the same directory as for a
/// reader.
async fn run(page: &str, heading: &str, expected: &[&str]) {
    let server = Server::start().await;
    let user = CliUser::new();
    let page = std::fs::read_to_string(repository().join(page)).unwrap();
    let (_, page) = page.split_once(heading).unwrap();
    let blocks = page.split("\n```sh\n").skip(1);
    let script: String = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert!(script.contains("postern create accesskey"), "the page shows commands");
    let script = script.replace("https://127.0.0.1:8443", &crate::cli::url(&server));
    let binary = user.command(&[]).as_std().get_program().to_owned();
    std::fs::create_dir(user.path().join("bin")).unwrap();
    symlink(binary, user.path().join("bin/postern")).unwrap();
    symlink(server.home().data(), user.path().join("postern-data")).unwrap();
    let path = format!("{}/bin:{}", user.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command
        .args(["-euxo", "pipefail", "-c", &script])
        .current_dir(user.path())
        .env_clear()
        .env("PATH", path)
        .env("HOME", user.path())
        .kill_on_drop(true);
    let output = wait::within("the tour to end", command.output()).await.unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for expected in expected {
        assert!(out.contains(expected), "{expected} is not in:\n{out}\n{err}");
    }
    // The code of a login link is valid for a minute, and for nothing but a session.
    let mut others = out.lines().filter(|line| !line.contains("/ui/login#code="));
    assert!(!others.any(|line| line.contains("pst_")), "no key is on the screen:\n{out}");
}
