//! Running the binary's own commands as a person or a script does.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::{Home, binary, wait};

/// The command line of one person: a home directory, and an environment.
#[derive(Debug, Clone)]
pub struct Person {
    home: Home,
    environment: Vec<(String, String)>,
}

/// What came of one command.
#[derive(Debug)]
pub struct Told {
    /// Its standard output, byte for byte.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: String,
    /// Its exit code.
    pub code: i32,
}

impl Told {
    /// The standard output as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("the output is text")
    }

    /// All that was printed, for looking for what should not be there.
    #[must_use]
    pub fn everything(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out), self.err)
    }
}

impl Person {
    /// Somebody with an empty home.
    #[expect(clippy::new_without_default, reason = "it makes a directory, which is no default")]
    #[must_use]
    pub fn new() -> Self {
        Self { home: Home::new(), environment: Vec::new() }
    }

    /// The same person with one more environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The home directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Where the kubeconfig is that nobody chose.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join(".kube/config")
    }

    /// A file of the person's own.
    #[must_use]
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command that is set up but not started. Nothing of whoever runs the tests reaches it.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary::path());
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs to the end with something on the standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Told {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().unwrap();
        // Fails when the command ends without reading, which is its right.
        drop(stdin.write_all(input).await);
        drop(stdin);
        let ended = wait::within("the command to end", child.wait_with_output()).await.unwrap();
        Told {
            out: ended.stdout,
            err: String::from_utf8(ended.stderr).unwrap(),
            code: ended.status.code().expect("no signal ended it"),
        }
    }

    /// Runs to the end.
    pub async fn run(&self, arguments: &[&str]) -> Told {
        self.run_with(arguments, b"").await
    }

    /// Runs, has to succeed, and answers the standard output.
    pub async fn ok(&self, arguments: &[&str]) -> String {
        let told = self.run(arguments).await;
        assert_eq!(told.code, 0, "postern {arguments:?} failed: {}", told.everything());
        told.text().to_owned()
    }

    /// Runs, has to fail with this code and without any data, and answers the standard error.
    pub async fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let told = self.run(arguments).await;
        assert_eq!(told.code, code, "postern {arguments:?}: {}", told.everything());
        assert_eq!(told.text(), "", "postern {arguments:?} failed and printed data");
        told.err
    }
}
