//! The common part of the proxies that end TLS in front of Postern servers: their socket and their
//! kubeconfig.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Child;

use crate::{Kubeconfig, wait};

/// A proxy that runs.
#[derive(Debug)]
pub(crate) struct TlsProxy {
    pub(crate) child: Child,
    directory: PathBuf,
    log: &'static str,
    port: u16,
}

/// A socket that listens already, for a proxy to take over, so that no other process can take the port.
pub(crate) fn inherited_listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

impl TlsProxy {
    /// A proxy that was just started. Its certificate and its log are in its directory.
    pub(crate) fn new(child: Child, directory: PathBuf, log: &'static str, port: u16) -> Self {
        Self { child, directory, log, port }
    }

    /// Waits until the proxy responds for the server behind it. `name` is the name of its program.
    pub(crate) async fn until_it_answers(&mut self, name: &str, behind: &Kubeconfig) {
        let client = crate::http::Client::new(&self.kubeconfig(behind));
        wait::until(&format!("{name} to answer"), async || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{name} ended with {status}: {}", self.logged());
            }
            client.get("/healthz").try_send().await.ok().map(drop)
        })
        .await;
    }

    /// The kubeconfig that reaches the server behind it through the proxy.
    pub(crate) fn kubeconfig(&self, behind: &Kubeconfig) -> Kubeconfig {
        let own = format!("127.0.0.1:{}", self.port);
        Kubeconfig {
            server: behind.server.replacen(behind.authority_of_server(), &own, 1),
            authority: std::fs::read(self.directory.join("ca.pem")).unwrap(),
            ..behind.clone()
        }
    }

    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.directory.join(self.log)).unwrap_or_default()
    }
}
