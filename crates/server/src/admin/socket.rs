//! The server's side: a socket in the data directory, for the server's user and root.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use postern_store::seal::Sealed;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::client::MAX_DATA_BYTES;
use super::reset_key::reset_key;
use super::{
    Access, AdminCommand, CommandOutput, Progress, Reply, Request, read_line, signing_keys,
    storage, to_line,
};
use crate::data_dir::DataDir;
use crate::endpoints::health;
use crate::keyring::KeySource;
use crate::pipeline::Server;
use postern_audit::Audit;
use postern_audit::Command;

/// The maximum length of a request, in bytes.
const MAX_REQUEST_BYTES: u64 = 4096;

/// How long the server waits for a command, and for the caller to read each line of the reply.
const CALLER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the server waits for the caller to read a piece of a backup. The caller's disk may be slow.
const DATA_TIMEOUT: Duration = Duration::from_mins(1);

/// The most callers at once. Further ones wait in the kernel's queue.
const MAX_CALLERS: usize = 8;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The shortest interval between two reports of a command's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The parts of the server that commands use.
pub(crate) struct Admin {
    /// The registry of the server.
    pub(crate) registry: Arc<Registry>,
    /// The audit log, in which commands are recorded.
    pub(crate) audit: Arc<Audit>,
    /// The database of the server.
    pub(crate) sealed: Arc<Sealed>,
    /// Where its at-rest keys come from.
    pub(crate) keys: KeySource,
    /// The files of the server.
    pub(crate) dir: DataDir,
    /// The administrator's kubeconfig.
    pub(crate) access: Arc<Access>,
    /// The server that responds to requests.
    pub(crate) server: Arc<Server>,
    /// The clock.
    pub(crate) clock: Arc<dyn Source>,
    /// Locked by the command that runs.
    pub(crate) busy: Mutex<()>,
    /// Locked by the backup in progress. Backups change nothing, so other commands do not wait for them.
    pub(crate) backup: Mutex<()>,
}

/// The path of the socket. The socket is removed on drop.
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        // The socket may be removed already.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Opens the socket. This process has the database open, so no other server listens there. An existing socket is left
/// from a server that was killed. A new socket gets its mode after its creation. So it is created with another name,
/// which is not longer.
///
/// # Errors
/// When another file has the path, or the socket cannot be created. The system limits its path to about 100 bytes.
fn bind(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
    is_socket(path)?;
    let made = path.with_extension("new");
    if is_socket(&made)? {
        std::fs::remove_file(&made)?;
    }
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok((listener, SocketPath(path.to_owned())))
}

/// Whether the path is a socket; false if it does not exist.
fn is_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::other("a file that is not a socket has this path: remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Serves commands until it is dropped. If the socket cannot be opened, an error is logged, and the server runs
/// without it.
pub(crate) async fn serve(admin: Arc<Admin>) {
    let path = admin.dir.admin_socket();
    let (listener, _socket_path) = match bind(&path) {
        Ok(bound) => bound,
        Err(error) => {
            tracing::error!(
                "cannot open the socket for administrator commands {}: {error}",
                path.display()
            );
            return;
        }
    };
    let mut callers = JoinSet::new();
    loop {
        while callers.len() >= MAX_CALLERS {
            callers.join_next().await;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = callers.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let admin = admin.clone();
                callers.spawn(async move {
                    if let Err(error) = serve_caller(&admin, stream).await {
                        tracing::warn!("cannot reply to an administrator command: {error:#}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection for an administrator command: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_caller(admin: &Admin, mut stream: UnixStream) -> anyhow::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid();
    anyhow::ensure!(
        uid == own.as_raw() || uid == 0,
        "the user with uid {uid} must not run commands: only the server's user and root can"
    );
    let reply = match request(&mut stream).await {
        // A health check reads no object and changes nothing, and comes every few seconds.
        Ok(AdminCommand::Health) => {
            let failed = health::failed_checks(admin.server.condition());
            Ok(CommandOutput::Health { failed: failed.into_iter().map(str::to_owned).collect() })
        }
        Ok(command) => {
            tracing::info!(uid, ?command, "an administrator command was received");
            recorded(admin, command, uid, &mut stream).await?
        }
        Err(error) => Err(error),
    };
    let reply = match reply {
        Ok(output) => Reply::Output(output),
        Err(error) => Reply::Error(format!("{error:#}")),
    };
    send(&mut stream, &reply).await
}

async fn request(stream: &mut UnixStream) -> anyhow::Result<AdminCommand> {
    let mut line = Vec::new();
    let mut bounded = BufReader::new(stream).take(MAX_REQUEST_BYTES);
    let read = tokio::time::timeout(CALLER_TIMEOUT, bounded.read_until(b'\n', &mut line));
    read.await.context("no command was received in time")??;
    anyhow::ensure!(
        line.ends_with(b"\n"),
        "a command must be one line of JSON of at most {MAX_REQUEST_BYTES} bytes"
    );
    let request: Request = read_line(&line).context("invalid command")?;
    Ok(request.command)
}

async fn send(stream: &mut UnixStream, reply: &Reply) -> anyhow::Result<()> {
    let line = to_line(reply)?;
    tokio::time::timeout(CALLER_TIMEOUT, stream.write_all(&line)).await??;
    Ok(())
}

/// Runs a command, with audit records before and after it.
async fn recorded(
    admin: &Admin,
    command: AdminCommand,
    uid: u32,
    stream: &mut UnixStream,
) -> anyhow::Result<anyhow::Result<CommandOutput>> {
    let record = match Command::begin(&admin.audit, command.name(), uid).await {
        Ok(record) => record,
        Err(error) => return Ok(Err(anyhow::anyhow!("{}", error.status().message))),
    };
    let result = perform(admin, command, stream).await;
    let error = match &result {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => {
            Some("the caller closed the connection before the command was complete".to_owned())
        }
    };
    record.end(error.as_deref());
    result
}

/// Runs a command, and reports its progress to the caller. The outer error means that the caller closed the
/// connection. A command that reports progress then stops.
async fn perform(
    admin: &Admin,
    command: AdminCommand,
    stream: &mut UnixStream,
) -> anyhow::Result<anyhow::Result<CommandOutput>> {
    let is_backup = matches!(command, AdminCommand::Backup { .. });
    let Ok(_busy) = (if is_backup { &admin.backup } else { &admin.busy }).try_lock() else {
        return Ok(Err(anyhow::anyhow!("another command is running: retry later")));
    };
    match &command {
        AdminCommand::ResetKey => return Ok(reset_key(&admin.registry, &admin.access).await),
        AdminCommand::RotateSigningKey { force } => {
            return Ok(signing_keys::rotate(&admin.registry, *force).await);
        }
        AdminCommand::DropSigningKey { kid } => {
            return Ok(signing_keys::drop_key(&admin.registry, kid).await);
        }
        _ => {}
    }
    let (sender, mut progress) = watch::channel(Progress::default());
    let mut report = move |at| {
        sender.send_replace(at);
    };
    let (mut out, mut data) = tokio::io::duplex(MAX_DATA_BYTES);
    // The end of the work closes the output.
    let work = async move {
        let Admin { sealed, keys, clock, registry, .. } = admin;
        let server = Some(&**registry.servers().id());
        let target = storage::Target { sealed, keys, clock: &**clock, server };
        storage::run(&target, command, &mut out, &mut report).await
    };
    let mut work = std::pin::pin!(work);
    let mut result = None;
    let mut piece = vec![0; MAX_DATA_BYTES];
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            biased;
            done = work.as_mut(), if result.is_none() => result = Some(done),
            bytes = data.read(&mut piece) => match (bytes?, result.take()) {
                (0, Some(result)) => return Ok(result),
                (bytes, not_returned) => {
                    result = not_returned;
                    send_data(stream, &piece[..bytes]).await?;
                }
            },
            _ = ticks.tick() => {
                let at = *progress.borrow_and_update();
                send(stream, &Reply::Progress(at)).await?;
            }
        }
    }
}

async fn send_data(stream: &mut UnixStream, data: &[u8]) -> anyhow::Result<()> {
    let line = to_line(&Reply::Data(data.len()))?;
    let sending = async {
        stream.write_all(&line).await?;
        stream.write_all(data).await
    };
    tokio::time::timeout(DATA_TIMEOUT, sending).await??;
    Ok(())
}
