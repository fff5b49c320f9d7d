//! A network of TCP proxies. Each of its links can stall or be cut separately.
//!
//! A link leads from one party to another. A stalled link keeps the bytes, like a network that
//! loses packets: they arrive when it is open again. A link that is cut has no connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes that a connection takes at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Bytes pass.
    Open,
    /// Bytes wait, connections stay.
    Stalled,
    /// Connections are closed, and new ones too.
    Cut,
}

/// The links between all parties. They end with the last clone.
#[derive(Clone, Debug, Default)]
pub struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    links: Mutex<HashMap<(String, String), watch::Sender<Link>>>,
    /// The processes of parties that share the address of a proxy.
    processes: Mutex<HashMap<String, u32>>,
    proxies: Mutex<JoinSet<()>>,
}

/// Where the connections of a proxy come from.
#[derive(Clone, Debug)]
pub enum From {
    /// One party alone knows the address.
    Party(String),
    /// Several parties do. The process that has the connection says which.
    Process,
}

impl Links {
    /// Starts a proxy to a party at a port. Returns the port of the proxy.
    pub async fn proxy(&self, from: From, to: &str, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_port = listener.local_addr().unwrap().port();
        // Weak, so that the proxies end with the network.
        let (shared, to) = (Arc::downgrade(&self.shared), to.to_owned());
        self.shared.proxies.lock().unwrap().spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, address)) = listener.accept().await else { continue };
                while connections.try_join_next().is_some() {}
                let Some(shared) = shared.upgrade() else { return };
                let party = match &from {
                    From::Party(party) => Some(party.clone()),
                    From::Process => shared.party_of(address, own_port),
                };
                // A connection of an unknown process is closed.
                let Some(party) = party else { continue };
                connections.spawn(forward(client, port, shared.state(&party, &to)));
            }
        });
        own_port
    }

    /// Says which process a party is.
    pub fn set_process(&self, party: &str, process: u32) {
        self.shared.processes.lock().unwrap().insert(party.to_owned(), process);
    }

    /// Sets the links between two parties, both ways.
    pub fn set(&self, one: &str, other: &str, link: Link) {
        let mut links = self.shared.links.lock().unwrap();
        for (from, to) in [(one, other), (other, one)] {
            let sender = links.entry((from.to_owned(), to.to_owned()));
            sender.or_insert_with(|| watch::Sender::new(Link::Open)).send_replace(link);
        }
    }

    /// Opens all links.
    pub fn open_all(&self) {
        for link in self.shared.links.lock().unwrap().values() {
            link.send_replace(Link::Open);
        }
    }
}

impl Shared {
    fn state(&self, from: &str, to: &str) -> watch::Receiver<Link> {
        let mut links = self.links.lock().unwrap();
        let sender = links.entry((from.to_owned(), to.to_owned()));
        sender.or_insert_with(|| watch::Sender::new(Link::Open)).subscribe()
    }

    /// The party with a process that has a connection from an address to a port of this network.
    fn party_of(&self, address: SocketAddr, own_port: u16) -> Option<String> {
        let socket = socket_of(address.port(), own_port)?;
        let processes = self.processes.lock().unwrap().clone();
        processes
            .into_iter()
            .find(|(_, process)| has_open(*process, &socket))
            .map(|(party, _)| party)
    }
}

/// The system's name for the socket of a connection between two local ports, such as
/// `socket:[4711]`.
fn socket_of(local: u16, remote: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = port(fields.get(1)?)? == local && port(fields.get(2)?)? == remote;
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    })
}

fn has_open(process: u32, socket: &str) -> bool {
    // The process may have ended.
    let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files
        .flatten()
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == Path::new(socket)))
}

/// Forwards a connection until either side ends, or the link is cut.
async fn forward(client: TcpStream, port: u16, link: watch::Receiver<Link>) {
    if *link.borrow() == Link::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let mut watched = link.clone();
    tokio::select! {
        ((), ()) = async {
            tokio::join!(
                pump(from_client, to_server, link.clone()),
                pump(from_server, to_client, link),
            )
        } => {}
        // The sender ends with the network.
        _ = watched.wait_for(|link| *link == Link::Cut) => {}
    }
}

/// Forwards one direction to its end.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if link.wait_for(|link| *link == Link::Open).await.is_err() {
            return;
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}
