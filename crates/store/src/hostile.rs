//! A remote store that behaves badly, for tests: everything that the contract permits a store behind a network, often.
//!
//! It is slow, and its revisions have gaps. Watches lose their connection, and commits end without
//! an outcome. Replaced values are left out, last changes are unknown, and values must be small. It
//! is restored while servers run. Data is in memory, and each server has its own connection
//! ([`Remote::connect`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::memory::{Memory, MemoryRestore};
use crate::{
    Batch, ClockOffset, Entry, Epoch, Error, Events, Fleet, Gate, Introduction, Lease, Limits,
    ListRequest, Member, Page, Peer, Position, Replaced, RestoreTarget as _, Result, Snapshot,
    Store, Txn, Watch, WithOld,
};

/// The sizes that etcd accepts with its default settings.
const LIMITS: Limits = Limits { value_bytes: 1_300_000, txn_bytes: 1_400_000 };

/// Revisions that a restore skips.
const RESTORE_GAP: u64 = 1000;

/// How a remote store behaves. Each number says that it happens once in so many calls on average; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The longest time that a call takes on the way, in microseconds.
    pub delay_microseconds: u64,
    /// Calls of [`Watch::next`] that fail.
    pub lost_watches: u64,
    /// Commits that fail and change nothing.
    pub refused_commits: u64,
    /// Commits without an outcome. Every second one is done.
    pub unknown_outcomes: u64,
}

/// A database on another machine.
pub struct Remote {
    faults: Mutex<Faults>,
    /// Replaced by a restore.
    data: Mutex<Arc<Memory>>,
    random: AtomicU64,
    members: watch::Sender<Arc<[Member]>>,
    /// The leases that are held, with a number for each time that one is taken.
    leases: Mutex<BTreeMap<String, (u64, watch::Sender<bool>)>>,
    lease_is_free: Notify,
    gone: watch::Sender<Option<Arc<str>>>,
    silence: Mutex<Duration>,
    /// What servers tell of themselves, by their ids.
    introductions: Mutex<BTreeMap<Arc<str>, Introduction>>,
    next_number: AtomicU64,
}

impl Remote {
    /// An empty database.
    pub fn new(faults: Faults) -> Arc<Self> {
        Self::with(Memory::sparse(), faults)
    }

    /// A database that was restored from these entries.
    ///
    /// # Errors
    /// As for [`crate::RestoreTarget`].
    pub fn restored(revision: u64, entries: Vec<Entry>, faults: Faults) -> Result<Arc<Self>> {
        let mut restore = MemoryRestore::begin(revision)?.sparse();
        for entry in entries {
            restore.add(entry)?;
        }
        Ok(Self::with(restore.finish()?, faults))
    }

    fn with(data: Memory, faults: Faults) -> Arc<Self> {
        Arc::new(Self {
            faults: Mutex::new(faults),
            data: Mutex::new(Arc::new(data)),
            random: AtomicU64::new(1),
            members: watch::Sender::new(Arc::from([])),
            leases: Mutex::default(),
            lease_is_free: Notify::new(),
            gone: watch::Sender::new(None),
            silence: Mutex::default(),
            introductions: Mutex::default(),
            next_number: AtomicU64::new(0),
        })
    }

    /// A connection for one server.
    pub fn connect(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::new(Connection {
            remote: Arc::clone(self),
            member: Mutex::default(),
            introduction: Mutex::default(),
            gate: OnceLock::new(),
            is_closed: watch::Sender::new(false),
        })
    }

    /// Restores the database to the state after a revision, while servers run.
    ///
    /// # Errors
    /// As for [`Store::list`] at that revision.
    pub async fn restore(&self, at: u64) -> Result<()> {
        let before = self.data();
        let page = before.list(ListRequest { at: Some(at), ..ListRequest::default() }).await?;
        let epoch = before.epoch().await?;
        let begins = before.revision().await? + RESTORE_GAP;
        let mut restore =
            MemoryRestore::begin_epoch(Epoch { number: epoch.number + 1, begins })?.sparse();
        for entry in page.entries {
            restore.add(entry)?;
        }
        *self.data.lock() = Arc::new(restore.finish()?);
        before.close().await;
        Ok(())
    }

    /// Behaves in another way from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    fn faults(&self) -> Faults {
        *self.faults.lock()
    }

    /// Tells all servers that the data was moved elsewhere.
    pub fn move_away(&self, reason: &str) {
        self.gone.send_replace(Some(Arc::from(reason)));
    }

    /// Makes all servers see a store that has not answered for so long.
    pub fn set_silence(&self, silence: Duration) {
        *self.silence.lock() = silence;
    }

    /// Takes a lease from its holder.
    pub fn expire_lease(&self, name: &str) {
        let held = self.leases.lock().remove(name);
        if let Some((_, is_lost)) = held {
            is_lost.send_replace(true);
        }
        self.lease_is_free.notify_waiters();
    }

    fn data(&self) -> Arc<Memory> {
        Arc::clone(&self.data.lock())
    }

    /// A number that looks random and is below another one.
    fn random_below(&self, end: u64) -> u64 {
        let state = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// Whether something that happens once in so many calls happens now.
    fn happens(&self, one_in: u64) -> bool {
        one_in > 0 && self.random_below(one_in) == 0
    }

    /// The way over the network.
    async fn travel(&self) {
        let microseconds = self.random_below(self.faults().delay_microseconds);
        if microseconds > 0 {
            sleep(Duration::from_micros(microseconds)).await;
        }
    }
}

/// The connection of one server.
struct Connection {
    remote: Arc<Remote>,
    /// The id of the server, once it has joined.
    member: Mutex<Option<Arc<str>>>,
    introduction: Mutex<Option<Introduction>>,
    gate: OnceLock<Arc<Gate>>,
    is_closed: watch::Sender<bool>,
}

impl Connection {
    /// Reaches the database.
    async fn data(&self) -> Result<Arc<Memory>> {
        self.check_open()?;
        self.remote.travel().await;
        self.check_open()?;
        Ok(self.remote.data())
    }

    fn check_open(&self) -> Result<()> {
        if *self.is_closed.borrow() { Err(Error::closed()) } else { Ok(()) }
    }

    async fn pass_gate(&self) -> Result<()> {
        let Some(gate) = self.gate.get().map(Arc::clone) else { return Ok(()) };
        let passed = spawn_blocking(move || gate()).await;
        passed?.map_err(Error::Gated)
    }

    fn leave(&self) {
        self.is_closed.send_replace(true);
        if let Some(id) = self.member.lock().take() {
            self.remote.members.send_modify(|members| {
                *members = members.iter().filter(|member| member.id != id).cloned().collect();
            });
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

#[async_trait]
impl Store for Connection {
    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn revision(&self) -> Result<u64> {
        let revision = self.data().await?.revision().await?;
        self.remote.travel().await;
        Ok(revision)
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.data().await?.epoch().await
    }

    async fn compacted(&self) -> Result<u64> {
        self.data().await?.compacted().await
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let found = self.data().await?.get(key).await?;
        self.remote.travel().await;
        Ok(found)
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.data().await?.list(request).await
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        self.data().await?.next_page(prefix, at, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        self.check_open()?;
        crate::check::txn(&txn, LIMITS, crate::check::Overhead::Envelope)?;
        self.pass_gate().await?;
        let (remote, faults) = (&self.remote, self.remote.faults());
        if remote.happens(faults.refused_commits) {
            return Err(Error::Unavailable("the database has no leader".to_owned()));
        }
        let is_unknown = remote.happens(faults.unknown_outcomes);
        let unknown = || Error::Unknown("the connection was lost".to_owned());
        if is_unknown && remote.happens(2) {
            return Err(unknown());
        }
        let committed = self.data().await?.commit(txn).await;
        remote.travel().await;
        if is_unknown { Err(unknown()) } else { committed }
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        let data = self.data().await?;
        Ok(Box::new(LossyWatch {
            remote: Arc::clone(&self.remote),
            epoch: data.epoch().await?,
            inner: data.watch(prefix, after, old).await?,
            is_closed: self.is_closed.subscribe(),
            old,
        }))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        self.data().await?.next_events(prefix, after, until).await
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        self.data().await?.compact_noting(revision, prefixes).await
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        self.data().await?.age_history(now, keep).await
    }

    fn set_gate(&self, gate: Gate) {
        if self.gate.set(Arc::new(gate)).is_err() {
            tracing::error!("a store has one gate; a second one was not taken");
        }
    }

    fn health(&self) -> Result<()> {
        self.check_open()
    }

    fn silence(&self) -> Duration {
        *self.remote.silence.lock()
    }

    async fn recover(&self) -> Result<()> {
        self.health()
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        Some(self)
    }

    async fn close(&self) {
        self.leave();
    }
}

#[async_trait]
impl Fleet for Connection {
    fn introduce(&self, introduction: Introduction) {
        *self.introduction.lock() = Some(introduction);
    }

    async fn join(&self, me: Member) -> Result<()> {
        self.check_open()?;
        self.remote.travel().await;
        let has_address = |other: &Member| {
            other.id != me.id && other.address == me.address && !me.address.is_empty()
        };
        if self.remote.members.borrow().iter().any(has_address) {
            return Err(Error::address_taken(&me.address));
        }
        if let Some(own) = self.introduction.lock().clone() {
            self.remote.introductions.lock().insert(Arc::clone(&me.id), own);
        }
        *self.member.lock() = Some(Arc::clone(&me.id));
        self.remote.members.send_modify(|members| {
            let others = members.iter().filter(|member| member.id != me.id);
            let mut all: Vec<_> = others.cloned().collect();
            all.push(me);
            all.sort_by(|one, other| one.id.cmp(&other.id));
            *members = all.into();
        });
        Ok(())
    }

    fn peers(&self) -> Vec<Peer> {
        let (own, me) = (self.introduction.lock().clone(), self.member.lock().clone());
        let introductions = self.remote.introductions.lock();
        let peer = |member: &Member| {
            let introduction = introductions.get(&member.id);
            let clocks = own.as_ref().zip(introduction);
            Peer {
                id: Arc::clone(&member.id),
                address: member.address.clone(),
                external_url: introduction.map(|introduction| introduction.external_url.clone()),
                clock: clocks.map(|(own, introduction)| ClockOffset {
                    milliseconds: (introduction.clock)() - (own.clock)(),
                    error_milliseconds: 0,
                }),
            }
        };
        let members = self.remote.members.borrow();
        members.iter().filter(|member| Some(&member.id) != me.as_ref()).map(peer).collect()
    }

    fn members(&self) -> watch::Receiver<Arc<[Member]>> {
        self.remote.members.subscribe()
    }

    fn gone(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.remote.gone.subscribe()
    }

    async fn lease(&self, name: &str) -> Result<Lease> {
        let mut is_closed = self.is_closed.subscribe();
        loop {
            let freed = self.remote.lease_is_free.notified();
            self.check_open()?;
            if let Some(lease) = self.remote.take_lease(name) {
                return Ok(lease);
            }
            tokio::select! {
                () = freed => {}
                _ = is_closed.changed() => {}
            }
        }
    }
}

impl Remote {
    /// The lease of a name, if nothing holds it.
    fn take_lease(self: &Arc<Self>, name: &str) -> Option<Lease> {
        let mut leases = self.leases.lock();
        if leases.contains_key(name) {
            return None;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (is_lost, receiver) = watch::channel(false);
        leases.insert(name.to_owned(), (number, is_lost));
        let held = HeldLease { remote: Arc::clone(self), name: name.to_owned(), number };
        Some(Lease::new(receiver, Box::new(held)))
    }
}

/// Gives a lease back when it is dropped.
struct HeldLease {
    remote: Arc<Remote>,
    name: String,
    number: u64,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let mut leases = self.remote.leases.lock();
        if leases.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            leases.remove(&self.name);
        }
        drop(leases);
        self.remote.lease_is_free.notify_waiters();
    }
}

/// A watch over the network.
struct LossyWatch {
    remote: Arc<Remote>,
    /// The epoch in which it began.
    epoch: Epoch,
    inner: Box<dyn Watch>,
    is_closed: watch::Receiver<bool>,
    old: WithOld,
}

impl LossyWatch {
    /// The next batch of the database, with the epoch's change in place of its end.
    async fn read(&mut self) -> Result<Batch> {
        let next = self.inner.next().await;
        let epoch = self.remote.data().epoch().await?;
        if epoch == self.epoch { next } else { Err(Error::EpochChanged { begins: epoch.begins }) }
    }
}

#[async_trait]
impl Watch for LossyWatch {
    async fn next(&mut self) -> Result<Batch> {
        if self.remote.happens(self.remote.faults().lost_watches) {
            return Err(Error::Unavailable("the watch lost its connection".to_owned()));
        }
        // Before the read: a call that is dropped on the way loses nothing.
        self.remote.travel().await;
        let mut is_closed = self.is_closed.clone();
        let mut batch = tokio::select! {
            biased;
            _ = is_closed.wait_for(|closed| *closed) => return Err(Error::closed()),
            batch = self.read() => batch?,
        };
        if self.old == WithOld::No {
            for event in &mut batch.events {
                if let Replaced::Old(entry) = &mut event.replaced {
                    *entry = None;
                }
            }
        }
        Ok(batch)
    }
}
