//! Commands that go on: their output is read line by line, and they are ended by a signal.

use std::process::{ExitStatus, Stdio};

use postern_tests::cli::CliUser;
use postern_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};

/// A command that is running. It is killed when this is dropped.
pub(super) struct Running {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Running {
    /// Starts a command.
    pub(super) fn start(user: &CliUser, arguments: &[&str]) -> Self {
        Self::spawn(user.command(arguments))
    }

    /// Starts a command of [`CliUser::command`].
    pub(super) fn spawn(mut command: tokio::process::Command) -> Self {
        let mut child = command.stdin(Stdio::null()).spawn().expect("the binary starts");
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, out, err }
    }

    /// The next line of the standard output.
    pub(super) async fn line(&mut self) -> String {
        let line = wait::within("a line of output", self.out.next_line()).await.unwrap();
        match line {
            Some(line) => line,
            None => panic!("the output has ended: {}", self.rest_of_errors().await),
        }
    }

    /// Lines of the standard output, including the first one with this text.
    pub(super) async fn lines_to(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.line().await);
            if lines.last().unwrap().contains(text) {
                return lines;
            }
        }
    }

    /// The next line of the standard error that has this text.
    pub(super) async fn error_line(&mut self, text: &str) -> String {
        loop {
            let line = wait::within("a line of errors", self.err.next_line()).await.unwrap();
            let line = line.unwrap_or_else(|| panic!("the errors have ended without {text}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    async fn rest_of_errors(&mut self) -> String {
        let mut text = String::new();
        while let Ok(Some(line)) = self.err.next_line().await {
            text = format!("{text}{line}\n");
        }
        text
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("the command is running");
        let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Its end, and the rest of its standard error.
    pub(super) async fn ended(mut self) -> (ExitStatus, String) {
        let status = wait::within("the command to end", self.child.wait()).await.unwrap();
        (status, self.rest_of_errors().await)
    }
}
