//! Running the shell blocks of a page as its reader does.

use std::fs::create_dir;
use std::os::unix::fs::symlink;

use tokio::process::Command;

use crate::kubectl::{CommandOutput, Kubectl, repository};
use crate::{Server, binary, wait};

/// The shell blocks of a page from a heading up to the next text `until`, or to its end.
#[must_use]
pub fn shell_of(page: &str, heading: &str, until: &str) -> String {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let text = text.split(until).next().unwrap();
    let blocks = text.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

/// Runs a script in a directory with `postern-data` and `examples`, and with `postern` and kubectl on
/// the path, as a reader has them.
pub async fn run(server: &Server, script: &str) -> CommandOutput {
    let address = format!("https://{}", server.kubeconfig().authority_of_server());
    let script = script.replace("https://127.0.0.1:8443", &address);
    let directory = server.home().path().join("reader");
    create_dir(&directory).unwrap();
    symlink(server.home().data(), directory.join("postern-data")).unwrap();
    symlink(repository().join("examples"), directory.join("examples")).unwrap();
    create_dir(directory.join("bin")).unwrap();
    symlink(Kubectl::program(), directory.join("bin/kubectl")).unwrap();
    symlink(binary::path(), directory.join("bin/postern")).unwrap();
    let path = format!("{}/bin:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euxo", "pipefail", "-c", &script]);
    command.current_dir(&directory).env("PATH", path).env("HOME", &directory).env("KUBERC", "off");
    command.env_remove("KUBECONFIG").kill_on_drop(true);
    let output = wait::within("the script to end", command.output()).await.unwrap();
    CommandOutput {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        ok: output.status.success(),
    }
}
