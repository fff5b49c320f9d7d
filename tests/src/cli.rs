//! Running the binary's own commands as a user or a script does.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::{Home, binary, wait};

/// One user of the command line: a home directory, and environment variables.
#[derive(Debug, Clone)]
pub struct CliUser {
    home: Home,
    environment: Vec<(String, String)>,
    program: Option<PathBuf>,
}

/// The output of one command, and how it ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its standard output, byte for byte.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: String,
    /// Its exit code.
    pub code: i32,
}

impl CommandOutput {
    /// The standard output as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("the output is text")
    }

    /// Everything that was printed, for a check that a text does not occur.
    #[must_use]
    pub fn all_output(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out), self.err)
    }
}

impl CliUser {
    /// A user with an empty home directory.
    #[expect(clippy::new_without_default, reason = "it makes a directory, which is no default")]
    #[must_use]
    pub fn new() -> Self {
        Self::at(Home::new())
    }

    /// A user with this home directory.
    #[must_use]
    pub fn at(home: Home) -> Self {
        Self { home, environment: Vec::new(), program: None }
    }

    /// The same user with one more environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same user with another program in the place of the binary under test.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// The home directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The path of the default kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join(".kube/config")
    }

    /// Writes a file in the home directory, and returns its path.
    #[must_use]
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command that is not started. It gets no environment of the test run but `PATH`.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = self.program.as_deref().unwrap_or_else(|| binary::path());
        let mut command = Command::new(program);
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
    pub async fn run_with(&self, arguments: &[&str], input: &[u8]) -> CommandOutput {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().unwrap();
        // Fails when the command ends without reading, which is no error.
        drop(stdin.write_all(input).await);
        drop(stdin);
        let ended = wait::within("the command to end", child.wait_with_output()).await.unwrap();
        CommandOutput {
            out: ended.stdout,
            err: String::from_utf8(ended.stderr).unwrap(),
            code: ended.status.code().expect("no signal ended it"),
        }
    }

    /// Runs to the end.
    pub async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(arguments, b"").await
    }

    /// Runs, has to succeed, and returns the standard output.
    pub async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert_eq!(output.code, 0, "postern {arguments:?} failed: {}", output.all_output());
        output.text().to_owned()
    }

    /// Runs, has to fail with this code and without any data, and returns the standard error.
    pub async fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert_eq!(output.code, code, "postern {arguments:?}: {}", output.all_output());
        assert_eq!(output.text(), "", "postern {arguments:?} failed and printed data");
        output.err
    }
}
