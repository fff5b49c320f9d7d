//! The client: sends a command to the socket of a running server. Without a server, it runs the command on the
//! database itself.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixStream;

use super::{
    AdminCommand, CommandOutput, Progress, Reply, Request, ServerFiles, read_line, remote, storage,
    to_line,
};
use crate::data_dir::DataDir;

/// The maximum length of one line of a reply, in bytes. The longest line has the corrupt keys of a check.
const MAX_LINE_BYTES: u64 = 4 * 1024 * 1024;

/// The most bytes of a backup that follow one line.
pub(super) const MAX_DATA_BYTES: usize = 64 * 1024;

/// How long the client waits for a line. The server reports its progress more often.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(5);

/// Runs a command, and returns its output. The running server of these files runs it. Without a server, this process
/// does, and no other process may have the database open.
///
/// # Errors
/// The error of the command. Without a running server, a command about access keys or signing keys is an error.
pub async fn call(
    files: &ServerFiles<'_>,
    command: AdminCommand,
    mut progress: impl FnMut(Progress) + Send,
) -> anyhow::Result<CommandOutput> {
    call_with(files, command, &mut tokio::io::sink(), &mut progress).await
}

/// Like [`call`], with an output for the bytes of a backup.
pub(super) async fn call_with(
    files: &ServerFiles<'_>,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    progress: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    if let Some(store) = files.store {
        return Box::pin(remote::run(files, store, command, out, progress)).await;
    }
    let socket = files.data_dir.join(DataDir::ADMIN_SOCKET);
    match UnixStream::connect(&socket).await {
        Ok(stream) => send_command(stream, command, out, progress).await,
        Err(error) if has_no_listener(&error) => {
            anyhow::ensure!(
                !command.needs_server(),
                "no server runs on {}: start it, and repeat the command",
                files.data_dir.display()
            );
            storage::run_offline(files, command, out, progress).await
        }
        Err(error) => Err(error).with_context(|| format!("cannot reach {}", socket.display())),
    }
}

/// Whether a server runs on these files.
pub(super) async fn is_server_running(files: &ServerFiles<'_>) -> bool {
    match UnixStream::connect(files.data_dir.join(DataDir::ADMIN_SOCKET)).await {
        Ok(stream) => {
            // The reply does not matter; a connection without a command would be a warning in the server's log.
            let (out, progress) = (&mut tokio::io::sink(), &mut |_| ());
            drop(send_command(stream, AdminCommand::Health, out, progress).await);
            true
        }
        Err(error) => !has_no_listener(&error),
    }
}

fn has_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

async fn send_command(
    mut stream: UnixStream,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    progress: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let closed = || "the server has closed the connection without a reply";
    stream.write_all(&to_line(&Request { command })?).await.with_context(closed)?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut lines).take(MAX_LINE_BYTES);
        let read = tokio::time::timeout(SILENCE_TIMEOUT, bounded.read_until(b'\n', &mut line));
        read.await.context("the server did not reply in time")?.with_context(closed)?;
        anyhow::ensure!(line.ends_with(b"\n"), closed());
        match read_line(&line)
            .context("cannot decode the server's reply: upgrade both to the same version")?
        {
            Reply::Progress(at) => progress(at),
            Reply::Data(bytes) => {
                anyhow::ensure!(
                    bytes <= MAX_DATA_BYTES,
                    "cannot decode the server's reply: upgrade both to the same version"
                );
                let mut data = vec![0; bytes];
                let read = tokio::time::timeout(SILENCE_TIMEOUT, lines.read_exact(&mut data));
                read.await.context("the server did not reply in time")?.with_context(closed)?;
                out.write_all(&data).await.context("cannot write the backup")?;
            }
            Reply::Output(output) => return Ok(output),
            Reply::Error(error) => anyhow::bail!(error),
        }
    }
}
