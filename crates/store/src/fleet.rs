//! Servers that share one store: which of them live, and which one holds a lease.
//!
//! Leases only save work. A holder that does not notice in time that it has lost one may still act, so nothing may be
//! wrong if two servers act at once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

#[cfg(doc)]
use crate::Error;
use crate::Result;

/// A server that shares the store with others, as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id, which no other process has, now or later.
    pub id: Arc<str>,
    /// The address at which other members reach it, such as `10.0.0.1:8443`.
    pub address: String,
    /// The newest format of stored objects that it can write.
    pub format: u32,
    /// The ids of the at-rest keys that it holds.
    pub seal_keys: Vec<String>,
}

/// The clock of a server: milliseconds since 1970.
pub type UnixClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The information that a server announces besides its [`Member`], so that each server can find out
/// whether they fit together.
#[derive(Clone)]
pub struct Introduction {
    /// Its external URL, which is the issuer of its tokens. All servers on a store must have the same one.
    pub external_url: String,
    /// Its clock. The engine writes its time into the announcement again and again.
    pub clock: UnixClock,
}

impl fmt::Debug for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introduction")
            .field("external_url", &self.external_url)
            .finish_non_exhaustive()
    }
}

/// Another server that shares the store, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub id: Arc<str>,
    /// The address of its announcement.
    pub address: String,
    /// Its external URL; `None` if it has not introduced itself, as no server of version 0.2 does.
    pub external_url: Option<String>,
    /// Its clock; `None` if that is not known, or not yet.
    pub clock: Option<ClockOffset>,
}

/// How far the clock of another server is from that of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Its time minus the time of this server.
    pub milliseconds: i64,
    /// The true value differs from this one by at most so much.
    pub error_milliseconds: u64,
}

/// How far the clock of this server is from the median of all servers, this one included. It is positive if this clock is
/// fast. `None` if no other clock is known. With one other server, it is half of the difference, and either clock may be
/// wrong.
pub fn clock_deviation(peers: &[Peer]) -> Option<ClockOffset> {
    let mut known: Vec<ClockOffset> = peers.iter().filter_map(|peer| peer.clock).collect();
    if known.is_empty() {
        return None;
    }
    known.push(ClockOffset { milliseconds: 0, error_milliseconds: 0 });
    known.sort_unstable_by_key(|offset| offset.milliseconds);
    let (low, high) = (known[(known.len() - 1) / 2], known[known.len() / 2]);
    Some(ClockOffset {
        milliseconds: -i64::midpoint(low.milliseconds, high.milliseconds),
        error_milliseconds: known.iter().map(|offset| offset.error_milliseconds).max()?,
    })
}

/// The servers that share a store.
#[async_trait]
pub trait Fleet: Send + Sync {
    /// Sets the information that this server announces besides its [`Member`]. To be called before
    /// [`Fleet::join`].
    fn introduce(&self, introduction: Introduction);

    /// Announces this server, or announces it anew with other facts. The engine keeps the announcement alive until the
    /// store is closed. A server that ends without a close is gone after a few seconds.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another server is announced at the same address. After a crash, that can be this server
    /// itself, so the first call waits until an announcement that nothing keeps alive would have ended.
    async fn join(&self, me: Member) -> Result<()>;

    /// The other servers that are announced, with their clocks.
    fn peers(&self) -> Vec<Peer>;

    /// The servers that are announced, by their ids. They are those of a few seconds ago if the engine has lost its
    /// connection.
    fn members(&self) -> watch::Receiver<Arc<[Member]>>;

    /// Gets the reason when the store cannot be used any more: its data was moved to another store, or removed. A server
    /// must end then, because the others may go on with the other store.
    fn gone(&self) -> watch::Receiver<Option<Arc<str>>>;

    /// Waits until this server holds the lease of a name, which one server at a time holds.
    async fn lease(&self, name: &str) -> Result<Lease>;
}

/// A lease that is held until it is dropped or lost.
pub struct Lease {
    is_lost: watch::Receiver<bool>,
    /// What gives the lease back when it is dropped.
    _held: Box<dyn Any + Send + Sync>,
}

impl Lease {
    /// A lease that is lost when `is_lost` becomes true or its sender is dropped. `held` is dropped with the lease.
    pub fn new(is_lost: watch::Receiver<bool>, held: Box<dyn Any + Send + Sync>) -> Self {
        Self { is_lost, _held: held }
    }

    /// Waits until another server may hold the lease.
    pub async fn lost(&self) {
        // An error means that the engine is gone, and the lease with it.
        let _ = self.is_lost.clone().wait_for(|lost| *lost).await;
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("is_lost", &*self.is_lost.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(milliseconds: Option<i64>) -> Peer {
        let clock = milliseconds
            .map(|milliseconds| ClockOffset { milliseconds, error_milliseconds: 1_500 });
        Peer { id: "a".into(), address: String::new(), external_url: None, clock }
    }

    #[test]
    fn a_clock_is_compared_with_the_median_of_all_servers() {
        for (others, deviation) in [
            (&[][..], None),
            (&[None], None),
            // Of two servers, either can be wrong.
            (&[Some(8_000)], Some(-4_000)),
            // One wrong clock of three says nothing of the others, and its server learns it.
            (&[Some(0), Some(90_000)], Some(0)),
            (&[Some(90_000), Some(90_000)], Some(-90_000)),
            (&[Some(-70_000), None, Some(-71_000)], Some(70_000)),
            (&[Some(10), Some(-20), Some(90_000)], Some(-5)),
        ] {
            let peers: Vec<Peer> = others.iter().map(|offset| peer(*offset)).collect();
            let found = clock_deviation(&peers);
            assert_eq!(found.map(|found| found.milliseconds), deviation, "{others:?}");
        }
        let known = clock_deviation(&[peer(Some(7))]);
        assert_eq!(known.map(|known| known.error_milliseconds), Some(1_500));
    }
}
