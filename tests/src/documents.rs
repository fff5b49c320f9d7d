//! Running the shell blocks of a page as its reader does.

use std::fs::create_dir;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::kubectl::{CommandOutput, Kubectl, repository};
use crate::{Server, binary, wait};

/// The shell blocks of a page from a heading up to the next text `until`, or to its end.
#[must_use]
pub fn blocks_of(page: &str, heading: &str, until: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let text = text.split(until).next().unwrap();
    let blocks = text.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// The same as one script.
#[must_use]
pub fn shell_of(page: &str, heading: &str, until: &str) -> String {
    blocks_of(page, heading, until).concat()
}

/// Runs a script as one reader.
pub async fn run(server: &Server, script: &str) -> CommandOutput {
    Reader::new(server, "reader").run(script).await
}

/// A reader of a page: a directory with `postern-data` and `examples`, which is also the home directory, and `postern` and
/// kubectl on the path.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    environment: Vec<(String, String)>,
    /// The texts of a page that are other ones in the test.
    replaced: Vec<(String, String)>,
}

impl Reader {
    /// A reader at this server. Each has an own directory.
    #[must_use]
    pub fn new(server: &Server, name: &str) -> Self {
        let address = format!("https://{}", server.kubeconfig().authority_of_server());
        let directory = server.home().path().join(name);
        create_dir(&directory).unwrap();
        symlink(server.home().data(), directory.join("postern-data")).unwrap();
        symlink(repository().join("examples"), directory.join("examples")).unwrap();
        create_dir(directory.join("bin")).unwrap();
        symlink(Kubectl::program(), directory.join("bin/kubectl")).unwrap();
        symlink(binary::path(), directory.join("bin/postern")).unwrap();
        let replaced = vec![("https://127.0.0.1:8443".to_owned(), address)];
        Self { directory, environment: Vec::new(), replaced }
    }

    /// The same reader, with another text in the place of one of the page.
    #[must_use]
    pub fn replacing(mut self, text: &str, by: &str) -> Self {
        self.replaced.push((text.to_owned(), by.to_owned()));
        self
    }

    /// The same reader with one more environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The reader's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A script that is not started.
    #[must_use]
    pub fn command(&self, script: &str) -> Command {
        let replace = |script: String, (text, by): &(String, String)| script.replace(text, by);
        let script = self.replaced.iter().fold(script.to_owned(), replace);
        let path = format!("{}/bin:{}", self.directory.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-euxo", "pipefail", "-c", &script]);
        command.current_dir(&self.directory).env("PATH", path).env("HOME", &self.directory);
        command.env("KUBERC", "off").env_remove("KUBECONFIG");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs a script to its end.
    pub async fn run(&self, script: &str) -> CommandOutput {
        let output = self.command(script).output();
        let output = wait::within("the script to end", output).await.unwrap();
        CommandOutput {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            ok: output.status.success(),
        }
    }

    /// Runs a script, which has to succeed, and returns its standard output.
    pub async fn ok(&self, script: &str) -> String {
        let output = self.run(script).await;
        assert!(output.ok, "{script}\n{}\n{}", output.out, output.err);
        output.out
    }
}
