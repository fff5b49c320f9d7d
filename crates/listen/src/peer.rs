//! `Peer`: the state of a connection in the table of connections.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// The time after which a connection that takes no byte is closed. It ends watches with clients
/// that do not read.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The client of a connection. It is unauthenticated until a request with a valid credential arrives.
#[derive(Debug)]
pub struct Peer {
    address: IpAddr,
    /// The address of the client, if a proxy has said it.
    behind_proxy: OnceLock<IpAddr>,
    /// The owner of the first valid credential, and whether it is a member of `system:masters`.
    owner: OnceLock<(Box<str>, bool)>,
    /// Wakes the task of the connection, which then ends.
    closing: Notify,
    /// Whether the connection must end. It also ends transfers after an upgrade to another protocol.
    is_closing: AtomicBool,
    /// The time for which the client may take no bytes, in milliseconds.
    stall_timeout_millis: AtomicU64,
    /// The task that waits for bytes.
    bytes: AtomicWaker,
}

impl Peer {
    /// The client of a connection that has just been accepted.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            behind_proxy: OnceLock::new(),
            owner: OnceLock::new(),
            closing: Notify::new(),
            is_closing: AtomicBool::new(false),
            stall_timeout_millis: AtomicU64::new(millis(STALL_TIMEOUT)),
            bytes: AtomicWaker::new(),
        }
    }

    /// The address of the client. With the PROXY protocol, it is the one that the proxy has said.
    pub fn address(&self) -> IpAddr {
        self.behind_proxy.get().copied().unwrap_or(self.address)
    }

    /// Sets the address that a proxy has said. Only the table does so, while the connection is not in it.
    pub(crate) fn set_behind_proxy(&self, address: IpAddr) {
        self.behind_proxy.get_or_init(|| address);
    }

    /// Records the owner of a valid credential. Connections of the system are never closed for another client.
    pub fn set_authenticated(&self, owner: &str, is_system: bool) {
        self.owner.get_or_init(|| (owner.into(), is_system));
    }

    /// Whether a request with a valid credential has arrived.
    pub fn is_authenticated(&self) -> bool {
        self.owner.get().is_some()
    }

    /// The owner of the first valid credential, and whether it is a member of `system:masters`.
    pub fn owner(&self) -> Option<(&str, bool)> {
        self.owner.get().map(|(owner, is_system)| (&**owner, *is_system))
    }

    /// The owner of the first valid credential, unless it is a member of `system:masters`.
    pub fn tenant(&self) -> Option<&str> {
        let (owner, is_system) = self.owner()?;
        (!is_system).then_some(owner)
    }

    /// Lets the client take no bytes for this time, from now on. [`Duration::MAX`] is any time: the connection has another
    /// way to notice a dead client.
    pub fn set_stall_timeout(&self, timeout: Duration) {
        self.stall_timeout_millis.store(millis(timeout), Ordering::Release);
    }

    /// The time for which the client may take no bytes; `None` for any time.
    pub(crate) fn stall_timeout(&self) -> Option<Duration> {
        let millis = self.stall_timeout_millis.load(Ordering::Acquire);
        (millis != u64::MAX).then(|| Duration::from_millis(millis))
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.closing.notify_one();
        self.bytes.wake();
    }

    /// Whether the connection must end.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Registers a task that is woken when the connection must end.
    pub(crate) fn wake_at_close(&self, waker: &Waker) {
        self.bytes.register(waker);
    }

    /// Waits until the connection must end.
    pub async fn closed(&self) {
        self.closing.notified().await;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
