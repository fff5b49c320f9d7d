//! A wire between client and server that can be cut: one address for the client, whatever port
//! the server has just now.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::Server;

/// The wire. While it is cut, connections are accepted and dropped at once.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    state: Arc<Mutex<State>>,
    accepting: AbortHandle,
}

#[derive(Debug, Default)]
struct State {
    target: Option<String>,
    connections: JoinSet<()>,
}

impl Relay {
    /// A new wire that leads nowhere yet.
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state))).abort_handle();
        Self { port, state, accepting }
    }

    /// Leads to a server from now on.
    pub fn join(&self, server: &Server) {
        let target = server.kubeconfig().authority_of_server().to_owned();
        self.state.lock().unwrap().target = Some(target);
    }

    /// Leads nowhere from now on, and ends what was connected.
    pub fn cut(&self) {
        *self.state.lock().unwrap() = State::default();
    }

    /// The port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        let mut state = state.lock().unwrap();
        let Some(target) = state.target.clone() else { continue };
        state.connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                // Either side may end it, in whatever way.
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
}
