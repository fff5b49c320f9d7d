//! The parts that the engine shares: connections, names of keys, the timeline, and the calls that
//! all of them make.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use postern_store::{Error, Position, Result, SharedCall};
use tokio::sync::watch;
use tonic::Status;

use crate::freshness::Freshness;
use crate::layout::{Keys, Timeline};
use crate::observed::Observed;
use crate::proto::{
    KeyValue, PutRequest, RangeRequest, RangeResponse, Request, TxnRequest, TxnResponse,
};
use crate::requests::{exists, is_at, one, op, ranges_of};
use crate::rpc::{self, Client};
use crate::url::EtcdUrl;

/// Revisions that are left out when etcd was restored. More than a store can commit while no server notices.
const RESTORE_GAP: u64 = 1 << 20;

/// Values that have their positions in their headers, of which the revision of etcd is remembered.
const MAX_PLACED: usize = 4096;

/// Attempts to change a note of the engine while other servers change it, too.
pub(crate) const NOTE_ATTEMPTS: usize = 16;

/// The engine, without its tasks.
pub(crate) struct Shared {
    pub(crate) client: Client,
    /// Watches have connections of their own: a large response must not delay them.
    pub(crate) watch_client: Client,
    pub(crate) keys: Keys,
    /// The id of this process among the members.
    pub(crate) member: String,
    /// Transactions that wait for it at one time share one run.
    pub(crate) gate: OnceLock<SharedCall<Result<()>>>,
    pub(crate) is_closed: watch::Sender<bool>,
    /// The store that must be there; unset for one that is being moved.
    pub(crate) presence: OnceLock<Presence>,
    /// Why the store cannot be used any more.
    pub(crate) gone: watch::Sender<Option<Arc<str>>>,
    timeline: RwLock<Arc<Timeline>>,
    /// The newest revisions that were seen in the present epoch. Locked before the timeline.
    seen: Mutex<Floor>,
    /// The revisions of etcd of values that have their positions in their headers, where conditions have met them. A
    /// migrated store has only those.
    placed: Mutex<HashMap<Arc<str>, (u64, i64)>>,
    /// Held while a restore of etcd is being noticed.
    noticing: tokio::sync::Mutex<()>,
    fault: Mutex<Option<String>>,
    warned_of_compaction: AtomicBool,
    loses_deletions: AtomicBool,
    pub(crate) observed: Observed,
    pub(crate) freshness: Arc<Freshness>,
}

/// The newest revisions of etcd that were seen in an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    epoch: u32,
    /// In a head, or in an answer to a put.
    revision: i64,
    /// In a head.
    head: i64,
    /// At which the format was created; 0 if it was not seen.
    format: i64,
}

impl Floor {
    /// The newest revision of etcd of a head that was seen.
    pub(crate) fn head(self) -> i64 {
        self.head
    }

    /// The revision of etcd at which the format was created; 0 if it was not seen.
    pub(crate) fn format(self) -> i64 {
        self.format
    }
}

/// The revisions of the store at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The newest revision of the store.
    pub(crate) revision: u64,
    /// The compacted revision of the store.
    pub(crate) compacted: u64,
    /// The revision of etcd, at which both were read.
    pub(crate) at: i64,
}

impl Shared {
    pub(crate) fn new(client: Client, watch_client: Client, keys: Keys, member: String) -> Self {
        Self {
            client,
            watch_client,
            keys,
            member,
            gate: OnceLock::new(),
            is_closed: watch::Sender::new(false),
            presence: OnceLock::new(),
            gone: watch::Sender::new(None),
            timeline: RwLock::default(),
            seen: Mutex::default(),
            placed: Mutex::default(),
            noticing: tokio::sync::Mutex::default(),
            fault: Mutex::new(None),
            warned_of_compaction: AtomicBool::new(false),
            loses_deletions: AtomicBool::new(false),
            observed: Observed::default(),
            freshness: Arc::default(),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.is_closed.borrow() {
            return Err(Error::closed());
        }
        match &*self.gone.borrow() {
            Some(reason) => Err(Error::Unavailable(reason.to_string())),
            None => Ok(()),
        }
    }

    /// The last fault, if no call has succeeded since; or that etcd does not answer the calls of the moment.
    pub(crate) fn health(&self) -> Result<()> {
        self.check_open()?;
        match &*self.fault.lock() {
            Some(reason) => Err(Error::Unavailable(reason.clone())),
            None if self.client.is_silent() => {
                Err(Error::Unavailable("etcd does not answer".to_owned()))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.timeline.read())
    }

    /// Notes whether etcd serves reads, and converts the error. When its storage is full, it does.
    pub(crate) fn noted<T>(&self, result: std::result::Result<T, Status>) -> Result<T> {
        let result = result.map_err(|status| rpc::to_error(&status));
        *self.fault.lock() = match &result {
            Ok(_) | Err(Error::Full) => None,
            Err(error) => Some(error.to_string()),
        };
        self.check_open()?;
        result
    }

    pub(crate) async fn range(
        &self,
        request: RangeRequest,
    ) -> std::result::Result<RangeResponse, Status> {
        self.client.read(rpc::RANGE, request).await
    }

    /// The entry of one key now, with etcd's revision.
    pub(crate) async fn key(&self, key: Bytes) -> Result<(Option<KeyValue>, i64)> {
        let response =
            self.noted(self.range(RangeRequest { key, ..RangeRequest::default() }).await)?;
        let at = response.header.map_or(0, |header| header.revision);
        Ok((response.kvs.into_iter().next(), at))
    }

    /// Reads several ranges at one revision of etcd, which is the second part of the result.
    pub(crate) async fn ranges(
        &self,
        ranges: Vec<RangeRequest>,
    ) -> Result<(Vec<RangeResponse>, i64)> {
        let success = ranges.iter().cloned().map(|range| op(Request::Range(range))).collect();
        let request = TxnRequest { success, ..TxnRequest::default() };
        let response: std::result::Result<TxnResponse, Status> =
            self.client.read(rpc::TXN, request).await;
        if response.as_ref().is_err_and(rpc::is_full) {
            return self.ranges_one_by_one(ranges).await;
        }
        let response = self.noted(response)?;
        let at = response.header.as_ref().map_or(0, |header| header.revision);
        Ok((ranges_of(response), at))
    }

    /// Reads several ranges at one revision, each in a separate call: some versions of etcd refuse
    /// all transactions while their storage is full.
    async fn ranges_one_by_one(
        &self,
        ranges: Vec<RangeRequest>,
    ) -> Result<(Vec<RangeResponse>, i64)> {
        let (mut read, mut at) = (Vec::with_capacity(ranges.len()), 0);
        for range in ranges {
            // The first one is linearizable, and says at which revision the others are read.
            let range = self.range(RangeRequest { revision: at, ..range }).await;
            let range = self.noted(range)?;
            if at == 0 {
                at = range.header.as_ref().map_or(0, |header| header.revision);
            }
            read.push(range);
        }
        Ok((read, at))
    }

    /// Sets a key of a store that is there, if the key was not changed since it was read at this revision of etcd; 0
    /// means that it did not exist.
    pub(crate) async fn put_if(&self, key: Bytes, read_at: i64, value: Bytes) -> Result<bool> {
        self.create_if_new().await?;
        let request = TxnRequest {
            compare: vec![is_at(key.clone(), read_at), exists(self.keys.own("format"))],
            success: vec![op(Request::Put(PutRequest { key, value, lease: 0 }))],
            failure: Vec::new(),
        };
        let response: TxnResponse = self.noted(self.client.call(rpc::TXN, request).await)?;
        Ok(response.succeeded)
    }

    /// The newest and the compacted revision.
    pub(crate) async fn now(&self) -> Result<Now> {
        let floor = self.floor();
        // The epochs, too. Another server may have begun one, and committed so much that both the
        // revision and the head are at least as high as those seen before.
        let own = |name| one(self.keys.own(name));
        let (read, at) = self
            .ranges(vec![self.head_range(), own("compacted"), own("epochs"), self.format_range()])
            .await?;
        self.adopt(read.get(2).and_then(|range| range.kvs.first()))?;
        let now = self.now_of(&read, at, floor).await?;
        self.check_format(read.get(3), floor).await?;
        Ok(now)
    }

    /// The range that reads the head without its value.
    pub(crate) fn head_range(&self) -> RangeRequest {
        RangeRequest { keys_only: true, ..one(self.keys.head()) }
    }

    /// The lower bound for the answer of a call that begins now, unless etcd is restored.
    pub(crate) fn floor(&self) -> Floor {
        *self.seen.lock()
    }

    /// Notes the revision of etcd of a head that a watch has delivered in an epoch.
    pub(crate) fn saw_head(&self, epoch: u32, at: i64) {
        self.saw(epoch, Some(at), at);
    }

    /// Notes revisions that were seen in an epoch, unless another epoch has begun: a late answer
    /// says nothing about that one.
    fn saw(&self, epoch: u32, head: Option<i64>, at: i64) {
        let mut seen = self.seen.lock();
        if seen.epoch == epoch {
            seen.revision = seen.revision.max(head.unwrap_or(at));
            seen.head = seen.head.max(head.unwrap_or(0));
        }
    }

    /// Notes at which revision of etcd the format was created. Returns whether it is the one that was seen before. If
    /// another epoch has begun since the floor was taken, that says nothing.
    pub(crate) fn saw_format(&self, floor: Floor, created: i64) -> bool {
        let mut seen = self.seen.lock();
        if seen.epoch != floor.epoch {
            return true;
        }
        if seen.format == 0 {
            seen.format = created;
        }
        seen.format == created
    }

    /// The first revision of etcd at which the store has a state. Older data under the prefix
    /// belongs to another store, which was removed.
    pub(crate) fn first_physical(&self) -> i64 {
        let created = self.floor().format;
        self.timeline().begin_of(created).max(1)
    }

    /// The revision of etcd at which a key with a position is, unless it was changed since.
    pub(crate) fn physical_of(&self, key: &str, position: Position) -> i64 {
        let placed = self.placed.lock().get(key).copied();
        let placed = placed.filter(|(revision, _)| *revision == position.revision());
        // No key was changed at revision 0, so a condition on it fails as it should.
        placed.map_or_else(|| self.timeline().physical(position.revision()).max(1), |(_, at)| at)
    }

    /// Notes at which revision of etcd a key with a position is.
    pub(crate) fn note_placed(&self, key: &Arc<str>, position: Position, at: i64) {
        let mut placed = self.placed.lock();
        if placed.len() >= MAX_PLACED {
            placed.clear();
        }
        placed.insert(Arc::clone(key), (position.revision(), at));
    }

    /// Takes over a timeline. If it has another epoch, nothing has been seen in it.
    fn set_timeline(&self, timeline: Timeline) {
        let mut seen = self.seen.lock();
        let epoch = timeline.epoch().number;
        if seen.epoch != epoch {
            *seen = Floor { epoch, ..Floor::default() };
            self.placed.lock().clear();
        }
        *self.timeline.write() = Arc::new(timeline);
    }

    /// The newest and the compacted revision, from the responses for the head and the note of the compaction, which
    /// were read at a revision of etcd, and after the floor was taken.
    pub(crate) async fn now_of(
        &self,
        read: &[RangeResponse],
        at: i64,
        floor: Floor,
    ) -> Result<Now> {
        let first = |number: usize| read.get(number).and_then(|range| range.kvs.first());
        let head = first(0).map_or(0, |head| head.mod_revision);
        self.see(Some(head), at, floor).await?;
        let timeline = self.timeline();
        let compacted = first(1).and_then(|kv| Some(u64::from_be_bytes(*kv.value.first_chunk()?)));
        let restored = timeline.epoch().begins.saturating_sub(1);
        let compacted = compacted.unwrap_or(0).max(restored);
        // An epoch is a change of everything, even before its first transaction. So a cache with the state of the epoch
        // before is behind.
        let revision = timeline.logical(head).max(timeline.epoch().begins);
        Ok(Now { revision, compacted, at })
    }

    /// Notes the revision of etcd of a read, and that of the head if it was read. If either is
    /// below the floor from before the call, etcd was restored. A restore can raise the revision,
    /// but the head goes back with the state.
    ///
    /// # Errors
    /// [`Error::EpochChanged`] in that case.
    pub(crate) async fn see(&self, head: Option<i64>, at: i64, floor: Floor) -> Result<()> {
        if at >= floor.revision && head.is_none_or(|head| head >= floor.head) {
            self.saw(floor.epoch, head, at);
            return Ok(());
        }
        let _one_at_a_time = self.noticing.lock().await;
        let present = self.timeline().epoch();
        if present.number != floor.epoch {
            // Another call has noticed it.
            return Err(Error::EpochChanged { begins: present.begins });
        }
        tracing::error!(?floor, ?head, at, "etcd went back: it was restored");
        let begins = self.begin_epoch(floor.revision, at).await?;
        Err(Error::EpochChanged { begins })
    }

    /// Adds an epoch to the timeline, unless another server has done that. Nothing is written if
    /// the store does not exist: then etcd has lost it.
    async fn begin_epoch(&self, newest: i64, at: i64) -> Result<u64> {
        loop {
            let known = self.timeline();
            let (stored, _) = self.key(self.keys.own("epochs")).await?;
            let stored_at = stored.as_ref().map_or(0, |kv| kv.mod_revision);
            let stored = self.decode_timeline(stored.as_ref())?;
            if stored.epoch().begins > known.epoch().begins {
                let begins = stored.epoch().begins;
                self.set_timeline(stored);
                return Ok(begins);
            }
            // The restore may have raised the revision beyond the gap.
            let begins = (known.logical(newest) + RESTORE_GAP).max(known.logical(at) + 1);
            let next = known.with(begins, at + 1);
            let put = |key, value| op(Request::Put(PutRequest { key, value, lease: 0 }));
            let epochs = self.keys.own("epochs");
            // With the head, so that the newest revision is one of the new epoch before anything is committed in it.
            // Otherwise the cache of each server would have more than the newest revision, and serve it.
            let request = TxnRequest {
                compare: vec![exists(self.keys.own("format")), is_at(epochs.clone(), stored_at)],
                success: vec![put(epochs, next.encode()), put(self.keys.head(), Bytes::new())],
                failure: Vec::new(),
            };
            let response: TxnResponse = self.noted(self.client.call(rpc::TXN, request).await)?;
            if response.succeeded {
                self.set_timeline(next);
                return Ok(begins);
            }
            let (format, _) = self.key(self.keys.own("format")).await?;
            if format.is_none() {
                return Err(self.gone().await);
            }
        }
    }

    /// Takes over the timeline that is stored, if an epoch has begun that this server does not know.
    ///
    /// # Errors
    /// [`Error::EpochChanged`] in that case.
    pub(crate) fn adopt(&self, stored: Option<&KeyValue>) -> Result<()> {
        let stored = self.decode_timeline(stored)?;
        let begins = stored.epoch().begins;
        if begins <= self.timeline().epoch().begins {
            return Ok(());
        }
        self.set_timeline(stored);
        Err(Error::EpochChanged { begins })
    }

    /// Reads the timeline that is stored.
    pub(crate) async fn load_timeline(&self) -> Result<()> {
        let (stored, _) = self.key(self.keys.own("epochs")).await?;
        self.set_timeline(self.decode_timeline(stored.as_ref())?);
        Ok(())
    }

    fn decode_timeline(&self, stored: Option<&KeyValue>) -> Result<Timeline> {
        let Some(stored) = stored else { return Ok(Timeline::default()) };
        Timeline::decode(&stored.value).ok_or_else(|| Error::Corrupt {
            key: None,
            reason: format!("{} has no epochs", String::from_utf8_lossy(&self.keys.own("epochs"))),
        })
    }

    /// Whether this version of etcd can lose a deletion at the revision of a compaction.
    pub(crate) fn loses_deletions(&self) -> bool {
        self.loses_deletions.load(Ordering::Relaxed)
    }

    /// Notes that this version of etcd can lose a deletion at the revision of a compaction.
    pub(crate) fn set_loses_deletions(&self) {
        self.loses_deletions.store(true, Ordering::Relaxed);
    }

    /// Warns once that this server may not compact.
    pub(crate) fn warn_of_compaction(&self, status: &Status) {
        if !self.warned_of_compaction.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "etcd does not let this server compact its history: {}",
                status.message()
            );
        }
    }

    /// The error for a read at a revision that etcd no longer has, or does not have yet.
    pub(crate) async fn out_of_range(&self, status: Status) -> Error {
        let Some(is_compacted) = rpc::is_compacted(&status) else { return rpc::to_error(&status) };
        match self.now().await {
            Ok(now) if is_compacted => Error::Compacted { compacted: now.compacted },
            Ok(now) => Error::Future { current: now.revision },
            Err(error) => error,
        }
    }
}

/// The store that an engine was opened for.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) url: EtcdUrl,
    pub(crate) creation: Creation,
}

/// The effect of the first transaction if the store does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// The transaction is rejected.
    Never,
    /// The transaction creates the store.
    Plain,
    /// The transaction creates the store, and all older revisions are compacted. Clients of a store
    /// that was removed may have them.
    Compacted,
}
