//! The state of the agent for other programs of its machine or its container, on a socket in the state directory. An agent
//! that listens nowhere can be checked with it (`postern health --agent-state-dir`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use crate::serve::Agent;
use crate::state_dir::StateDir;

/// The name of the socket in the state directory.
pub const SOCKET: &str = "health.sock";

/// The text of a ready agent. Any other text is the reason why the agent is not ready.
pub const READY: &str = "ok";

/// How long a program may take to read the text.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// After a failed accept the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Opens the socket. Its directory is for the agent's user alone, and no other agent uses it.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn open(dir: &StateDir) -> anyhow::Result<UnixListener> {
    let path = dir.join(SOCKET);
    remove(&path);
    UnixListener::bind(&path).with_context(|| format!("cannot make the socket {}", path.display()))
}

/// Removes the socket of an earlier run.
fn remove(path: &Path) {
    // It usually does not exist. Another failure shows when the socket is created.
    let _ = std::fs::remove_file(path);
}

/// Tells each program that connects whether the agent is ready. It never returns.
pub(crate) async fn serve(agent: Arc<Agent>, listener: UnixListener) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let text = agent.problem().unwrap_or_else(|| READY.to_owned());
        // A program that does not read learns nothing.
        let _ = timeout(WRITE_TIMEOUT, stream.write_all(text.as_bytes())).await;
    }
}
