//! A TCP proxy between client and server that can be disconnected. The client uses one address,
//! even if the port of the server changes.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::Server;

/// The proxy. While it has no server, it accepts connections and closes them at once.
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
    /// Starts a proxy that has no server yet.
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state))).abort_handle();
        Self { port, state, accepting }
    }

    /// Forwards new connections to a server from now on.
    pub fn connect_to(&self, server: &Server) {
        let target = server.kubeconfig().authority_of_server().to_owned();
        self.state.lock().unwrap().target = Some(target);
    }

    /// Has no server from now on, and closes all connections.
    pub fn disconnect(&self) {
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
        self.disconnect();
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        let mut state = state.lock().unwrap();
        let Some(target) = state.target.clone() else { continue };
        state.connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                // Either side may close it, cleanly or not.
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
}
