//! A network namespace from which one port of the outside can be reached, and into which nothing leads.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinSet;

use crate::{Home, python, wait};

/// The state of a socket that listens, in the tables of the kernel.
const LISTEN: &str = "0A";

/// The address of the outside in the namespace, besides loopback.
pub const ADDRESS: &str = "10.99.99.99";

/// The namespace. Dropping it ends its relay, and nothing in it reaches anything then.
#[derive(Debug)]
pub struct Firewall {
    /// The process that holds the namespace: the relay, a child of `unshare`.
    relay: Child,
    directory: PathBuf,
    _outside: JoinSet<()>,
}

impl Firewall {
    /// Makes one in which a port of loopback is that port outside.
    pub async fn new(home: &Home, port: u16) -> Self {
        let directory = home.path().join("firewall");
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("outside.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut outside = JoinSet::new();
        outside.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut inner, _)) = listener.accept().await {
                connections.spawn(async move {
                    let Ok(mut outer) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    // An end of either side is passed on.
                    let _ = copy_bidirectional(&mut inner, &mut outer).await;
                });
            }
        });
        let output = |name: &str| File::create(directory.join(name)).unwrap();
        let relay = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--"])
            .arg(python::program())
            .arg(python::script("firewall.py"))
            .arg(port.to_string())
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("unshare can be started: it is in Debian's util-linux");
        let mut firewall = Self { relay, directory, _outside: outside };
        wait::until("the namespace", async || {
            if let Some(status) = firewall.relay.try_wait().unwrap() {
                panic!("the relay ended with {status}: {}", firewall.read("stderr"));
            }
            firewall.read("stdout").contains("ready").then_some(())
        })
        .await;
        firewall
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    /// A script that runs a program in the namespace, with all arguments that it gets.
    #[must_use]
    pub fn inside(&self, program: &Path) -> PathBuf {
        let name = program.file_name().unwrap().to_str().unwrap();
        let script = self.directory.join(format!("inside-{name}"));
        let text = format!(
            "#!/bin/sh\nexec nsenter --target {} --user --net --preserve-credentials -- '{}' \"$@\"\n",
            self.relay.id(),
            program.display()
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        script
    }

    /// The names of the network interfaces in the namespace.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let table = std::fs::read_to_string(format!("/proc/{}/net/dev", self.relay.id())).unwrap();
        let names = table.lines().skip(2).filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.trim().to_owned()).collect()
    }

    /// The ports on which something listens in the namespace, in order.
    #[must_use]
    pub fn listening(&self) -> Vec<u16> {
        let mut ports = Vec::new();
        for table in ["tcp", "tcp6"] {
            let path = format!("/proc/{}/net/{table}", self.relay.id());
            let table = std::fs::read_to_string(path).unwrap_or_default();
            for line in table.lines().skip(1) {
                let fields: Vec<&str> = line.split_whitespace().collect();
                if fields[3] == LISTEN {
                    let port = fields[1].rsplit_once(':').unwrap().1;
                    ports.push(u16::from_str_radix(port, 16).unwrap());
                }
            }
        }
        ports.sort_unstable();
        ports
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.relay.kill().is_ok() {
            drop(self.relay.wait());
        }
    }
}
