//! The least that a server has to do for the watch load: TLS, the syncs of a durable commit, and
//! the event to every watcher. It has no store, no JSON, and no access checks.
//!
//! The additional time of a real server is the cost of everything else that it does.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate;

/// One page of a database.
const PAGE_BYTES: usize = 4096;

/// Pages are written round and round in a file of this many, as a database reuses its own.
const FILE_PAGES: u64 = 4096;

/// Events that a slow watcher may be behind before it is disconnected.
const BEHIND_MAX: usize = 1024;

/// The longest request.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// `postern-bench fanout-probe`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where it keeps its file, and puts `ca.pem` and `address` once it listens
    #[arg(long)]
    dir: PathBuf,
    /// Syncs for each write
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=16))]
    syncs: u32,
    /// Pages of 4 KiB written for each write
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=256))]
    pages: u32,
    /// End after so many seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// A write that is not on the disk yet.
struct Write {
    body: Bytes,
    done: oneshot::Sender<()>,
}

/// The state that every connection shares.
#[derive(Clone)]
struct Server {
    writes: mpsc::SyncSender<Write>,
    events: broadcast::Sender<Bytes>,
}

/// Serves until the time in the options is over.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let certificate = certificate::make()?;
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let (writes, queue) = mpsc::sync_channel(BEHIND_MAX);
    let (events, _) = broadcast::channel(BEHIND_MAX);
    let file = File::create(options.dir.join("pages")).context("cannot make the file")?;
    // Like a log that has all its pages already.
    for page in 0..FILE_PAGES {
        file.write_all_at(&[0; PAGE_BYTES], page * PAGE_BYTES as u64)?;
    }
    file.sync_all()?;
    let disk = Disk { file, syncs: options.syncs, pages: options.pages, next: 0 };
    let sender = events.clone();
    std::thread::spawn(move || commit(disk, &queue, &sender));
    certificate::announce(&options.dir, &certificate.certificate, listener.local_addr()?)?;
    let server = Server { writes, events };
    let serve = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let (server, acceptor) = (server.clone(), acceptor.clone());
            // A connection that fails is the client's to notice.
            tokio::spawn(async move { drop(connection(server, acceptor, stream).await) });
        }
    };
    match tokio::time::timeout(Duration::from_secs(options.seconds), serve).await {
        Ok(ended) => ended,
        Err(_) => Ok(json!({ "op": "fanout-probe" })),
    }
}

struct Disk {
    file: File,
    syncs: u32,
    pages: u32,
    next: u64,
}

impl Disk {
    /// Pages, then a sync, as often as is wanted; the pages are shared out between the syncs.
    fn write(&mut self, body: &[u8]) -> std::io::Result<()> {
        let mut page = [0; PAGE_BYTES];
        let length = body.len().min(PAGE_BYTES);
        page[..length].copy_from_slice(&body[..length]);
        let rounds = self.syncs.max(1);
        for round in 0..rounds {
            let pages = self.pages / rounds + u32::from(round < self.pages % rounds);
            for _ in 0..pages {
                self.file.write_all_at(&page, (self.next % FILE_PAGES) * PAGE_BYTES as u64)?;
                self.next += 1;
            }
            if self.syncs > 0 {
                self.file.sync_data()?;
            }
        }
        Ok(())
    }
}

/// The one thread that writes: to the disk, to the watchers, to the writer.
fn commit(mut disk: Disk, queue: &mpsc::Receiver<Write>, events: &broadcast::Sender<Bytes>) {
    while let Ok(write) = queue.recv() {
        if disk.write(&write.body).is_err() {
            return;
        }
        // There may be no watchers, and the writer may have disconnected.
        drop(events.send(chunk(&write.body)));
        write.done.send(()).ok();
    }
}

/// The event as a chunk of a chunked body: a line.
fn chunk(body: &[u8]) -> Bytes {
    let mut chunk = format!("{:x}\r\n", body.len() + 1).into_bytes();
    chunk.extend_from_slice(body);
    chunk.extend_from_slice(b"\n\r\n");
    chunk.into()
}

async fn connection(server: Server, acceptor: TlsAcceptor, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut buffer = BytesMut::new();
    loop {
        let Some((head, body)) = request(&mut stream, &mut buffer).await? else { return Ok(()) };
        if head.starts_with(b"POST ") {
            let (done, committed) = oneshot::channel();
            server
                .writes
                .try_send(Write { body: body.clone(), done })
                .context("too many writes")?;
            committed.await?;
            let head = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        } else if memmem::find(&head, b"watch=true").is_some() {
            return watch(stream, server.events.subscribe()).await;
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
        stream.flush().await?;
    }
}

/// Reads the head and body of the next request; `None` if the client has closed the connection.
async fn request(
    stream: &mut TlsStream<TcpStream>,
    buffer: &mut BytesMut,
) -> Result<Option<(Bytes, Bytes)>> {
    loop {
        if let Some(end) = memmem::find(buffer, b"\r\n\r\n") {
            let total = end + 4 + content_length(&buffer[..end]);
            ensure!(total <= REQUEST_BYTES_MAX, "the request is too long");
            if buffer.len() >= total {
                let mut request = buffer.split_to(total).freeze();
                let head = request.split_to(end + 4);
                return Ok(Some((head, request)));
            }
        }
        ensure!(buffer.len() <= REQUEST_BYTES_MAX, "the request is too long");
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Sends the head at once, then each event as it comes.
async fn watch(
    mut stream: TlsStream<TcpStream>,
    mut events: broadcast::Receiver<Bytes>,
) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    stream.flush().await?;
    loop {
        stream.write_all(&events.recv().await?).await?;
        stream.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_chunk_with_its_line_end() {
        assert_eq!(chunk(b"abc").as_ref(), b"4\r\nabc\n\r\n");
    }

    #[test]
    fn the_length_of_a_body_is_read_in_any_case() {
        assert_eq!(content_length(b"POST / HTTP/1.1\r\nContent-Length: 12"), 12);
        assert_eq!(content_length(b"GET / HTTP/1.1"), 0);
    }
}
