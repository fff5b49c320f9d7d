//! `HAProxy` in front of a Postern server: it ends TLS with its own certificate, and speaks TLS
//! with the server behind it. It closes a connection that is idle for 60 seconds.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use crate::tls_proxy::{TlsProxy, inherited_listener};
use crate::{Home, Kubeconfig, SelfSigned};

/// `HAProxy`. Dropping it ends it.
#[derive(Debug)]
pub struct HaProxy {
    proxy: TlsProxy,
}

impl HaProxy {
    /// Starts it in front of the server that a kubeconfig leads to, with its files in a directory of the home. A test that
    /// needs it fails where it is not installed.
    pub async fn start(home: &Home, behind: &Kubeconfig) -> Self {
        let directory = home.path().join("haproxy");
        std::fs::create_dir_all(&directory).unwrap();
        SelfSigned::make().write(&directory);
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let both = format!("{}{}", read("ca.pem"), read("key.pem"));
        std::fs::write(directory.join("both.pem"), both).unwrap();
        std::fs::write(directory.join("behind.pem"), &behind.authority).unwrap();
        let (listener, port) = inherited_listener();
        let text = configuration(&directory, listener.as_raw_fd(), behind.authority_of_server());
        std::fs::write(directory.join("haproxy.cfg"), text).unwrap();
        let log = File::create(directory.join("log")).unwrap();
        let child = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(directory.join("haproxy.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("HAProxy can be started: `cargo xtask fetch --all` installs it where it may");
        drop(listener);
        let mut haproxy = Self { proxy: TlsProxy::new(child, directory, "log", port) };
        haproxy.proxy.until_it_answers("HAProxy", behind).await;
        haproxy
    }

    /// How the server behind it is reached through it.
    #[must_use]
    pub fn kubeconfig(&self, behind: &Kubeconfig) -> Kubeconfig {
        self.proxy.kubeconfig(behind)
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.proxy.child.kill().is_ok() {
            drop(self.proxy.child.wait());
        }
    }
}

fn configuration(directory: &std::path::Path, socket: i32, behind: &str) -> String {
    let dir = directory.display();
    format!(
        "defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tunnel 60s
frontend in
  bind fd@{socket} ssl crt {dir}/both.pem alpn http/1.1
  default_backend postern
backend postern
  server one {behind} ssl verify required ca-file {dir}/behind.pem
"
    )
}
