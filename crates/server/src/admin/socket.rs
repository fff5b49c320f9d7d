//! The answering side: a socket in the data directory, for the server's own user and root.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postern_store::seal::Sealed;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::reset_key::reset_key;
use super::{
    Access, AdminCommand, CommandOutput, Progress, Reply, Request, read_line, storage, to_line,
};
use crate::audit::Audit;
use crate::audit::Command;
use crate::data_dir::DataDir;
use crate::registry::Registry;

/// Bytes of a request.
const MAX_REQUEST_BYTES: u64 = 4096;

/// Whoever connects has this long to say what he wants, and to take in each line of the answer.
const CALLER_TIMEOUT: Duration = Duration::from_secs(10);

/// Callers at once; more wait in the kernel's queue.
const MAX_CALLERS: usize = 8;

/// After a failed accept the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a caller hears from a command that goes on, at the most.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// What commands work with.
pub(crate) struct Admin {
    /// The registry of the server.
    pub(crate) registry: Arc<Registry>,
    /// The audit log, in which commands are recorded.
    pub(crate) audit: Arc<Audit>,
    /// Its database.
    pub(crate) sealed: Arc<Sealed>,
    /// Its files.
    pub(crate) dir: DataDir,
    /// The administrator's way in.
    pub(crate) access: Arc<Access>,
    /// Held by the command that runs.
    pub(crate) busy: Mutex<()>,
}

/// The socket's name in the file system, which goes with it.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // If it is gone already, all the better.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Opens the socket. The database is ours, so nobody else can be listening there: what lies there
/// is left of a server that was killed.
///
/// # Errors
/// When something else than a socket has the name, or it cannot be made: the path of a socket is
/// limited to about a hundred bytes.
fn bind(path: &Path) -> io::Result<(UnixListener, Name)> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::other("there is something else of that name")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    let name = Name(path.to_owned());
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((listener, name))
}

/// Answers for as long as it runs. A server without the socket is still a server: when it cannot
/// be opened, that is said and nothing more.
pub(crate) async fn serve(admin: Arc<Admin>) {
    let path = admin.dir.admin_socket();
    let (listener, _name) = match bind(&path) {
        Ok(bound) => bound,
        Err(error) => {
            tracing::error!("commands cannot be given, for want of {}: {error}", path.display());
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
                    if let Err(error) = answer(&admin, stream).await {
                        tracing::warn!("a command was not answered: {error:#}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("a command could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(admin: &Admin, mut stream: UnixStream) -> anyhow::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid();
    anyhow::ensure!(uid == own.as_raw() || uid == 0, "user {uid} may not give commands");
    let reply = match request(&mut stream).await {
        Ok(command) => {
            tracing::info!(uid, ?command, "a command of the machine's administrator");
            recorded(admin, command, uid, &mut stream).await?
        }
        Err(error) => Err(error),
    };
    let reply = match reply {
        Ok(answer) => Reply::Output(answer),
        Err(error) => Reply::Error(format!("{error:#}")),
    };
    say(&mut stream, &reply).await
}

async fn request(stream: &mut UnixStream) -> anyhow::Result<AdminCommand> {
    let mut line = Vec::new();
    let mut bounded = BufReader::new(stream).take(MAX_REQUEST_BYTES);
    let read = tokio::time::timeout(CALLER_TIMEOUT, bounded.read_until(b'\n', &mut line));
    read.await.context("no command has come")??;
    anyhow::ensure!(line.ends_with(b"\n"), "a command is one line of JSON");
    let request: Request = read_line(&line).context("this is no command")?;
    Ok(request.command)
}

async fn say(stream: &mut UnixStream, reply: &Reply) -> anyhow::Result<()> {
    let line = to_line(reply)?;
    tokio::time::timeout(CALLER_TIMEOUT, stream.write_all(&line)).await??;
    Ok(())
}

/// Nothing is done that is not in the audit log first.
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
    let done = perform(admin, command, stream).await;
    let failure = match &done {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some("the caller has left before the end".to_owned()),
    };
    record.end(failure.as_deref());
    done
}

/// Does what is asked for, and tells the caller how far it has come. The outer error means that
/// the caller is gone; what goes on for long then stops.
async fn perform(
    admin: &Admin,
    command: AdminCommand,
    stream: &mut UnixStream,
) -> anyhow::Result<anyhow::Result<CommandOutput>> {
    let Ok(_busy) = admin.busy.try_lock() else {
        return Ok(Err(anyhow::anyhow!("another command is being carried out: try again later")));
    };
    if command == AdminCommand::ResetKey {
        return Ok(reset_key(&admin.registry, &admin.access).await);
    }
    let (tell, mut told) = watch::channel(Progress::default());
    let mut report = move |at| {
        tell.send_replace(at);
    };
    let work = storage::run(&admin.dir, &admin.sealed, command, &mut report);
    let mut work = std::pin::pin!(work);
    let mut pace = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            biased;
            done = work.as_mut() => return Ok(done),
            _ = pace.tick() => {
                let at = *told.borrow_and_update();
                say(stream, &Reply::Progress(at)).await?;
            }
        }
    }
}
