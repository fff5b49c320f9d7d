//! The commands of kubectl on a pod, by one way there.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use postern_tests::kubectl::{CommandOutput, Kubectl};
use postern_tests::{Home, Kubeconfig, Pod, wait};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

/// The names of SPDY and WebSocket in the pod's cluster, for commands and for ports.
pub(crate) const SPDY: [&str; 2] = ["SPDY/3.1 v4.channel.k8s.io", "SPDY/3.1 portforward.k8s.io"];
pub(crate) const WEBSOCKET: [&str; 2] =
    ["websocket v5.channel.k8s.io", "websocket SPDY/3.1+portforward.k8s.io"];

/// One kubectl by one way in.
pub(crate) struct Session<'a> {
    pub(crate) what: String,
    program: PathBuf,
    protocols: [&'static str; 2],
    kubeconfig: PathBuf,
    kubectl: Kubectl,
    pod: &'a Pod,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        home: &Home,
        pod: &'a Pod,
        program: &Program,
        way: &(String, Kubeconfig),
    ) -> Self {
        let what = format!("kubectl {} through {}", program.name, way.0);
        let file = home.path().join(what.replace(' ', "-"));
        Self {
            program: program.path.clone(),
            protocols: program.protocols,
            kubeconfig: way.1.write(&file),
            kubectl: Kubectl::new(home),
            pod,
            what,
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.kubectl.command_of(&self.program, arguments);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.kubectl.run_command(self.command(arguments)).await
    }

    /// Runs kubectl with something on its standard input, which then ends.
    async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = tokio::spawn(async move { stdin.write_all(&input).await });
        let what = format!("{arguments:?} by {}", self.what);
        let ended = wait::within(&what, child.wait_with_output()).await.unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{what}: {} {errors}", ended.status);
        feeding.await.unwrap().unwrap();
        ended.stdout
    }

    async fn executes(&self) {
        let script = "echo to the output; echo to the errors >&2; echo $CALLER; exit 3";
        let done = self.run(&["exec", "p", "--", "sh", "-c", script]).await;
        assert_eq!(done.out, "to the output\nada\n", "{}: {done:?}", self.what);
        assert!(done.err.contains("to the errors") && done.err.contains("exit code 3"), "{done:?}");
        // The input ends, so the command does.
        let long = bytes(1024 * 1024);
        let back = self.run_with(&["exec", "-i", "p", "--", "cat"], &long).await;
        assert!(back == long, "{}: {} bytes came back", self.what, back.len());
    }

    async fn attaches(&self) {
        let back = self.run_with(&["attach", "-i", "p"], b"hello\n").await;
        assert_eq!(String::from_utf8_lossy(&back), "attached\nhello\n", "{}", self.what);
    }

    async fn copies(&self, home: &Home) {
        let content = bytes(300_000);
        let (up, down) = (home.path().join("up"), home.path().join("down"));
        std::fs::write(&up, &content).unwrap();
        let done = self.run(&["cp", path(&up), "p:copied"]).await;
        assert!(done.ok, "{}: {done:?}", self.what);
        assert!(
            std::fs::read(self.pod.files().join("copied")).unwrap() == content,
            "{}",
            self.what
        );
        let done = self.run(&["cp", "p:copied", path(&down)]).await;
        assert!(done.ok, "{}: {done:?}", self.what);
        assert!(std::fs::read(&down).unwrap() == content, "{}", self.what);
        std::fs::remove_file(down).unwrap();
    }

    async fn forwards_ports(&self) {
        let ports = ["port-forward", "--address=127.0.0.1", "pod/p", ":7", ":13", ":99"];
        let mut command = self.command(&ports);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut local = Vec::new();
        while local.len() < 3 {
            let line = wait::within("a port", lines.next_line()).await.unwrap();
            let line = line.unwrap_or_else(|| panic!("{} ended", self.what));
            let (_, rest) = line.split_once("127.0.0.1:").unwrap();
            local.push(rest.split_once(' ').unwrap().0.parse().unwrap());
        }
        let long = bytes(300_000);
        let (first, second) =
            tokio::join!(send_and_read(local[0], &long), send_and_read(local[0], b"short"));
        assert!(first == long, "{}: {} bytes came back", self.what, first.len());
        assert_eq!(second, b"short", "{}", self.what);
        let ended = send_and_read(local[1], b"").await;
        assert_eq!(ended, b"the end comes first from here\n", "{}", self.what);
        // Where nothing listens, kubectl says so, and newer ones end.
        let refused = TcpStream::connect(("127.0.0.1", local[2])).await.unwrap();
        let what = format!("{} to say that nothing listens", self.what);
        wait::within(&what, async {
            while let Some(line) = errors.next_line().await.unwrap() {
                if line.contains("nothing listens on port 99 of the pod") {
                    return;
                }
            }
            panic!("{} ended without a word", self.what);
        })
        .await;
        drop(refused);
        // Fails if it has ended already, which is fine.
        drop(child.kill().await);
    }

    /// Checks that the pod's cluster got only the protocols of this kubectl version, from ada.
    fn spoke_its_protocols(&self, before: usize) {
        let upgrades = self.pod.upgrades().split_off(before);
        for what in ["exec", "attach", "portforward"] {
            let protocol = self.protocols[usize::from(what == "portforward")];
            let of_it: Vec<_> = upgrades.iter().filter(|line| line.starts_with(what)).collect();
            let expected = format!("{what} {protocol} ada");
            assert!(!of_it.is_empty(), "{}: {upgrades:?}", self.what);
            assert!(of_it.iter().all(|line| **line == expected), "{}: {of_it:?}", self.what);
        }
    }

    pub(crate) async fn does_everything(&self, home: &Home) {
        let before = self.pod.upgrades().len();

        self.executes().await;
        self.attaches().await;
        self.copies(home).await;
        self.forwards_ports().await;
        self.spoke_its_protocols(before);
    }
}

/// A kubectl, and its protocols.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) protocols: [&'static str; 2],
}

pub(crate) fn newest() -> Program {
    Program { name: "of today", path: Kubectl::program(), protocols: WEBSOCKET }
}

pub(crate) fn oldest() -> Program {
    Program { name: "of Debian", path: Kubectl::oldest_program(), protocols: SPDY }
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// A number of bytes that do not repeat soon.
fn bytes(number: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..number).map(step).collect()
}

/// Sends to a port, says that nothing more comes, and reads until the other side says so too.
async fn send_and_read(port: u16, data: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut received = Vec::new();
    let sending = async {
        writer.write_all(data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let reading = async { reader.read_to_end(&mut received).await.unwrap() };
    wait::within("the bytes of a forwarded port", async { tokio::join!(sending, reading) }).await;
    received
}
