//! tinyproxy, an HTTP proxy with the method CONNECT, in the network of a cluster.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Firewall, Home, wait};

/// The port of the proxy. The network has no other user of it.
pub const PORT: u16 = 8888;

/// tinyproxy. Dropping it ends it.
#[derive(Debug)]
pub struct TinyProxy {
    child: Child,
    directory: PathBuf,
}

impl TinyProxy {
    /// Starts it in a network, with its files in a directory of the home. A test that needs it fails where it is not
    /// installed.
    pub async fn start(home: &Home, firewall: &Firewall) -> Self {
        let directory = home.path().join("tinyproxy");
        std::fs::create_dir_all(&directory).unwrap();
        let log = directory.join("log");
        let text = format!(
            "Port {PORT}\nListen 127.0.0.1\nTimeout 60\nMaxClients 200\nLogLevel Connect\nLogFile \"{}\"\n",
            log.display()
        );
        let configuration = directory.join("tinyproxy.conf");
        std::fs::write(&configuration, text).unwrap();
        let output = File::create(directory.join("output")).unwrap();
        let child = Command::new(firewall.inside("tinyproxy".as_ref()))
            .args(["-d", "-c"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("a shell can be started");
        let mut proxy = Self { child, directory };
        wait::until("tinyproxy to listen", async || {
            if let Some(status) = proxy.child.try_wait().unwrap() {
                panic!(
                    "tinyproxy ended with {status}; `cargo xtask fetch --all` installs it where it may: {}",
                    proxy.read("output")
                );
            }
            firewall.listening().contains(&PORT).then_some(())
        })
        .await;
        proxy
    }

    /// Its log: a line for each connection that it was asked for.
    #[must_use]
    pub fn logged(&self) -> String {
        self.read("log")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }
}

impl Drop for TinyProxy {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
