//! Running kubectl as a user does.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::{Home, wait};

/// kubectl with one server's kubeconfig and its own cache.
#[derive(Debug, Clone)]
pub struct Kubectl {
    home: Home,
}

/// The result of one command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Whether it ended with 0.
    pub ok: bool,
}

impl Kubectl {
    /// kubectl with the kubeconfig and the cache of this home.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        Self { home: home.clone() }
    }

    /// The program: `POSTERN_TEST_KUBECTL`, or the download of `cargo xtask fetch`.
    #[must_use]
    pub fn program() -> PathBuf {
        if let Some(path) = std::env::var_os("POSTERN_TEST_KUBECTL") {
            return PathBuf::from(path);
        }
        let path = repository().join(".cache/venv/bin/kubectl");
        assert!(path.exists(), "there is no kubectl: `cargo xtask fetch` downloads it");
        path
    }

    /// The oldest supported kubectl: `POSTERN_TEST_KUBECTL_OLD`, or the download of `cargo xtask
    /// fetch`. A test that needs it fails without it.
    #[must_use]
    pub fn oldest_program() -> PathBuf {
        if let Some(path) = std::env::var_os("POSTERN_TEST_KUBECTL_OLD") {
            return PathBuf::from(path);
        }
        let path = repository().join(".cache/kubernetes-client/usr/bin/kubectl");
        assert!(
            path.exists(),
            "there is no old kubectl: `cargo xtask fetch` downloads it where Debian's packages are \
             available; elsewhere POSTERN_TEST_KUBECTL_OLD names one"
        );
        path
    }

    /// Version 1.28, which makes streams over SPDY: the download of `cargo xtask fetch --all`. A
    /// test that needs it fails without it.
    #[must_use]
    pub fn program_1_28() -> PathBuf {
        let path = repository().join(".cache/clients/1.28/kubectl");
        assert!(path.exists(), "there is no kubectl 1.28: `cargo xtask fetch --all` downloads it");
        path
    }

    /// A command that is set up but not started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&Self::program(), arguments)
    }

    /// The same with another kubectl.
    #[must_use]
    pub fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(repository())
            .env("KUBECONFIG", self.home.kubeconfig())
            // Nothing belongs to the user that runs the tests: no cache, no preferences.
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("kube-cache"))
            .env("KUBERC", "off")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl to the end.
    pub async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_command(self.command(arguments)).await
    }

    /// Runs a command of [`Kubectl::command`] to the end.
    pub async fn run_command(&self, mut command: Command) -> CommandOutput {
        let what = format!("{:?}", command.as_std());
        let output: Output = wait::within(&what, command.output()).await.expect("kubectl starts");
        CommandOutput {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            ok: output.status.success(),
        }
    }

    /// Runs kubectl, which has to succeed, and returns its standard output.
    pub async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.ok, "kubectl {arguments:?} failed: {}{}", output.out, output.err);
        output.out
    }

    /// Runs kubectl, which has to fail, and returns its standard error.
    pub async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(!output.ok, "kubectl {arguments:?} did not fail: {}", output.out);
        output.err
    }

    /// Runs kubectl with `-o json`, which has to succeed, and returns the object.
    pub async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        serde_json::from_str(&self.ok(&arguments).await).unwrap()
    }

    /// Writes a file for `-f` and returns its path.
    #[must_use]
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// The directory of the workspace. kubectl runs there, so that `examples/` is found.
#[must_use]
pub fn repository() -> PathBuf {
    crate::binary::workspace()
}
