//! An etcd of the tests' own, on loopback, with its data in a directory that goes with it.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postern_store_etcd::{EtcdAccess, EtcdUrl};
use tempfile::TempDir;

/// The longest wait until an etcd serves.
const START: Duration = Duration::from_mins(1);

/// One etcd. It ends when this is dropped.
pub(crate) struct EtcdServer {
    child: Child,
    client_port: u16,
    directory: TempDir,
    arguments: Vec<String>,
}

/// The program: the one that is named, or the one that `cargo xtask fetch` has unpacked.
fn program() -> PathBuf {
    let unpacked =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/etcd-server/usr/bin/etcd");
    let program = std::env::var_os("POSTERN_TEST_ETCD").map_or_else(unpacked, PathBuf::from);
    assert!(
        program.exists(),
        "there is no etcd: run `cargo xtask fetch`, or name one with POSTERN_TEST_ETCD"
    );
    program
}

/// How tests reach it: the packaged versions have faults that these tests do not meet.
pub(crate) fn access() -> EtcdAccess {
    EtcdAccess { allow_old: true, ..EtcdAccess::default() }
}

impl EtcdServer {
    /// Starts an etcd with one member.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an etcd with more arguments.
    pub(crate) fn start_with(more: &[&str]) -> Self {
        Self::start_on("http", more)
    }

    /// Starts an etcd with TLS for its clients, with the arguments for that.
    pub(crate) fn start_with_tls(more: &[&str]) -> Self {
        Self::start_on("https", more)
    }

    /// Starts an etcd with two members, which need each other.
    pub(crate) fn start_two() -> [Self; 2] {
        let ports = free_ports();
        let peer = |index: usize| format!("http://127.0.0.1:{}", ports[index]);
        let cluster = format!("one={},two={}", peer(0), peer(1));
        [0, 1].map(|index| {
            let more = [
                ("--name", ["one", "two"][index]),
                ("--listen-peer-urls", &peer(index)),
                ("--initial-advertise-peer-urls", &peer(index)),
                ("--initial-cluster", &cluster),
            ];
            Self::start_with(&more.map(<[&str; 2]>::from).concat())
        })
    }

    fn start_on(scheme: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The ports are free until etcd takes them; another process may take one before, so there are attempts.
        for _ in 0..5 {
            let [client_port, peer_port] = free_ports();
            let mut arguments: Vec<String> = [
                ("--name", "one".to_owned()),
                ("--data-dir", directory.path().join("data").display().to_string()),
                ("--listen-client-urls", format!("{scheme}://127.0.0.1:{client_port}")),
                ("--advertise-client-urls", format!("{scheme}://127.0.0.1:{client_port}")),
                ("--listen-peer-urls", format!("http://127.0.0.1:{peer_port}")),
                ("--initial-advertise-peer-urls", format!("http://127.0.0.1:{peer_port}")),
                ("--initial-cluster", format!("one=http://127.0.0.1:{peer_port}")),
                ("--logger", "zap".to_owned()),
            ]
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
            // The disks of test machines are slow, and nothing of these tests outlives the machine.
            arguments.push("--unsafe-no-fsync".to_owned());
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            let child = spawn(&arguments, &directory);
            let mut server =
                Self { child, client_port, directory: tempfile::tempdir().unwrap(), arguments };
            if server.wait_until_ready() {
                server.directory = directory;
                return server;
            }
            drop(server);
            let _ = std::fs::remove_dir_all(directory.path().join("data"));
        }
        panic!("no etcd starts: {}", log_of(&directory));
    }

    fn wait_until_ready(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.client_port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Ends the process without any notice, and starts it again on the same data.
    pub(crate) fn crash_and_restart(&mut self) {
        self.stop();
        self.run_again();
    }

    /// Stops the process where it is, or lets it go on. Its connections stay open.
    pub(crate) fn pause(&self, pause: bool) {
        let signal = if pause { "-STOP" } else { "-CONT" };
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn run_again(&mut self) {
        self.child = spawn(&self.arguments, &self.directory);
        assert!(self.wait_until_ready(), "{}", log_of(&self.directory));
    }

    /// Copies the data, while the process is stopped for a moment.
    pub(crate) fn save(&mut self) {
        self.stop();
        copy(&self.directory.path().join("data"), &self.directory.path().join("saved"));
        self.run_again();
    }

    /// Puts the copy of the data back, as an operator restores a snapshot.
    pub(crate) fn restore(&mut self) {
        self.stop();
        let data = self.directory.path().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        copy(&self.directory.path().join("saved"), &data);
        self.run_again();
    }

    /// Starts again without the data.
    pub(crate) fn lose_data(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.directory.path().join("data")).unwrap();
        self.run_again();
    }

    /// A store under a prefix.
    pub(crate) fn url(&self, prefix: &str) -> EtcdUrl {
        format!("etcd://127.0.0.1:{}{prefix}", self.client_port).parse().unwrap()
    }

    /// The address of its clients.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

fn spawn(arguments: &[String], directory: &TempDir) -> Child {
    let log = File::options().append(true).create(true).open(directory.path().join("log")).unwrap();
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the log of a failed etcd, for the message of the test"
)]
fn log_of(directory: &TempDir) -> String {
    let text = std::fs::read(directory.path().join("log")).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

fn free_ports() -> [u16; 2] {
    let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
