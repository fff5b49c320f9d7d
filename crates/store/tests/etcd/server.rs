//! An etcd of the tests' own, on loopback, with its data in a directory that goes with it.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postern_store::etcd::{EtcdAccess, EtcdUrl};
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

/// The program, which `cargo xtask fetch` unpacks from Debian's package.
fn program() -> PathBuf {
    match std::env::var_os("POSTERN_TEST_ETCD") {
        Some(path) => PathBuf::from(path),
        None => panic!("POSTERN_TEST_ETCD names no etcd: run these tests with `cargo xtask test`"),
    }
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
        let directory = tempfile::tempdir().unwrap();
        // The ports are free until etcd takes them; another process may take one before, so there are attempts.
        for _ in 0..5 {
            let [client_port, peer_port] = free_ports();
            let mut arguments: Vec<String> = [
                ("--name", "one".to_owned()),
                ("--data-dir", directory.path().join("data").display().to_string()),
                ("--listen-client-urls", format!("http://127.0.0.1:{client_port}")),
                ("--advertise-client-urls", format!("http://127.0.0.1:{client_port}")),
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
            if std::net::TcpStream::connect(("127.0.0.1", self.client_port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Ends the process without any notice, and starts it again on the same data.
    pub(crate) fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.arguments, &self.directory);
        assert!(self.wait_until_ready(), "{}", log_of(&self.directory));
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

fn spawn(arguments: &[String], directory: &TempDir) -> Child {
    let log = File::options().append(true).create(true).open(directory.path().join("log")).unwrap();
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

fn log_of(directory: &TempDir) -> String {
    std::fs::read_to_string(directory.path().join("log")).unwrap_or_default()
}

fn free_ports() -> [u16; 2] {
    let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
