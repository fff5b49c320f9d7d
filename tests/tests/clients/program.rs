//! One kubectl of any age, with one server's kubeconfig.

use std::path::PathBuf;
use std::process::Stdio;

use postern_tests::http::Client;
use postern_tests::kubectl::{CommandOutput, Kubectl};
use postern_tests::objects::BASE;
use postern_tests::{Server, wait};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// One kubectl, with one server's kubeconfig. It follows the server to a new port after a restart.
pub(crate) struct Program {
    path: PathBuf,
    /// The part that `--raw` needs before a path: only the newest kubectl adds the server's base
    /// path.
    pub(crate) raw_base: &'static str,
    pub(crate) kubectl: Kubectl,
    token: Option<String>,
}

impl Program {
    /// A kubectl with the administrator's key.
    pub(crate) fn new(path: PathBuf, server: &Server) -> Self {
        let raw_base = if path == Kubectl::program() { "" } else { BASE };
        Self { path, raw_base, kubectl: server.kubectl(), token: None }
    }

    /// The same program with the key of this client.
    pub(crate) fn of(&self, client: &Client) -> Self {
        let token = Some(format!("--token={}", client.token()));
        let (path, kubectl) = (self.path.clone(), self.kubectl.clone());
        Self { path, raw_base: self.raw_base, kubectl, token }
    }

    /// A command that is set up but not started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let set_up = self.kubectl.command(arguments);
        let mut command = Command::new(&self.path);
        command.args(arguments).args(&self.token).stdin(Stdio::null()).kill_on_drop(true);
        for (name, value) in set_up.as_std().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs a command. No word of it contains a space.
    pub(crate) async fn run(&self, line: &str) -> CommandOutput {
        let arguments: Vec<&str> = line.split(' ').collect();
        self.kubectl.run_command(self.command(&arguments)).await
    }

    /// Runs a command, which has to succeed and to print all of `wanted`. Returns its standard output.
    pub(crate) async fn expect(&self, line: &str, wanted: &[&str]) -> String {
        let output = self.run(line).await;
        let text = format!("{}{}", output.out, output.err);
        assert!(output.ok, "{line}: {text}");
        self.check(line, &text, wanted);
        output.out
    }

    /// Runs a command, which has to fail and to print all of `wanted`.
    pub(crate) async fn refuse(&self, line: &str, wanted: &[&str]) {
        let output = self.run(line).await;
        let text = format!("{}{}", output.out, output.err);
        assert!(!output.ok, "{line} does not fail: {text}");
        self.check(line, &text, wanted);
    }

    fn check(&self, line: &str, text: &str, wanted: &[&str]) {
        let program = self.path.display();
        for wanted in wanted {
            assert!(text.contains(wanted), "{program} {line} does not print {wanted:?}: {text}");
        }
    }

    /// Runs a command with `-o json`, which has to succeed. The result is its output.
    pub(crate) async fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.expect(&format!("{line} -o json"), &[]).await).unwrap()
    }

    /// Deletes an object, written as `RESOURCE/NAME`, while a `wait` for its deletion runs: a finalizer holds it until
    /// that watches.
    pub(crate) async fn wait_for_deletion(&self, server: &Server, object: &str) {
        let patch = |finalizers: &str| {
            let changes = format!("{{\"metadata\":{{\"finalizers\":{finalizers}}}}}");
            format!("patch {object} --type=merge -p {changes}")
        };
        self.expect(&patch("[\"example.com/held\"]"), &["patched"]).await;
        self.expect(&format!("delete {object} --wait=false"), &["deleted"]).await;
        let resource = object.split('/').next().unwrap();
        let mut fewest = watches(server, resource).await;
        let releasing = async {
            wait::until("kubectl to watch", async || {
                let now = watches(server, resource).await;
                fewest = fewest.min(now);
                (now > fewest).then_some(())
            })
            .await;
            self.expect(&patch("null"), &["patched"]).await;
        };
        let line = format!("wait --for=delete {object} --timeout=50s");
        let (waited, ()) = tokio::join!(self.run(&line), releasing);
        let text = format!("{}{}", waited.out, waited.err);
        assert!(waited.ok && waited.out.contains("condition met"), "{text}");
    }

    /// Starts a command that goes on, for a caller that reads its lines.
    pub(crate) fn start(&self, line: &str) -> Running {
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut command = self.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { child, lines }
    }
}

/// How many watches of a resource are open.
async fn watches(server: &Server, resource: &str) -> u64 {
    let text = server.client().get("/metrics").send().await.expect_text(200);
    let labels = ["verb=\"WATCH\"".to_owned(), format!("resource=\"{resource}\"")];
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && labels.iter().all(|label| line.contains(label))
    });
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A kubectl that goes on. Dropping it ends it.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// The next line that it prints; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        wait::within("a line of kubectl", self.lines.next_line()).await.unwrap()
    }

    /// Waits for a line that begins so.
    pub(crate) async fn wait_for(&mut self, start: &str) {
        while let Some(line) = self.next().await {
            if line.starts_with(start) {
                return;
            }
        }
        panic!("it ended before it printed {start}");
    }

    /// Waits for its end, and returns whether it succeeded.
    pub(crate) async fn end(mut self) -> bool {
        while self.next().await.is_some() {}
        wait::within("kubectl to end", self.child.wait()).await.unwrap().success()
    }
}
