//! Watches: one stream for each, over all values and the head, resumed inside.
//!
//! etcd delivers the changes of a transaction in their order, and the head is the last one. So a change's index is the
//! number of changes before it, and the head marks the end of the transaction, however etcd cuts its messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postern_store::cursor::Cursor;
use postern_store::{Batch, Entry, Error, Event, Position, Replaced, Result, Watch, WithOld};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::freshness::{HeadLook, WatchFreshness};
use crate::layout::{Stored, no_header};
use crate::proto::{Event as RawEvent, KeyValue, RangeRequest, WatchCreateRequest, WatchResponse};
use crate::rpc;
use crate::shared::Shared;

/// Transactions that a stream reads ahead of its caller.
const READ_AHEAD: usize = 256;

/// The pause before a stream is opened again, which doubles up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// A stream that delivers nothing for so long is checked: a linearizable read says whether it misses something.
const SILENCE: Duration = Duration::from_secs(1);

/// The looks at a silent stream after which it is opened anew.
const MIN_PATIENCE: u32 = 2;
const MAX_PATIENCE: u32 = 64;

/// A read of history that gets nothing for so long begins again.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// After so long without events, the next ones may be of a revision that was compacted meanwhile.
const AWAY: Duration = Duration::from_millis(500);

/// A deletion in etcd's events.
const DELETION: i32 = 1;

/// A running watch.
pub(crate) struct EtcdWatch {
    batches: mpsc::Receiver<Result<Batch>>,
    cursor: Cursor,
    /// The task that reads the stream. It ends with the watch.
    _task: JoinSet<()>,
}

impl EtcdWatch {
    /// A watch that starts right after a position.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the position is compacted.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        prefix: &str,
        after: Position,
        old: WithOld,
    ) -> Result<Self> {
        let cursor = Cursor::new(prefix, after);
        cursor.check_not_compacted(shared.now().await?.compacted)?;
        let (sender, batches) = mpsc::channel(READ_AHEAD);
        let reader = Reader::new(Arc::clone(shared), cursor.clone(), old);
        let mut task = JoinSet::new();
        task.spawn(reader.run(sender));
        Ok(Self { batches, cursor, _task: task })
    }
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Batch> {
        loop {
            let batch = self.batches.recv().await.unwrap_or_else(|| Err(Error::closed()))?;
            // A watch from the future reads earlier batches, and delivers nothing of them.
            if batch.revision > self.cursor.delivered_revision() {
                self.cursor.advance_to(batch.revision);
                return Ok(batch);
            }
        }
    }
}

/// Reads the stream of a watch.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    cursor: Cursor,
    old: WithOld,
    epoch: u32,
    /// The revision of etcd at which the next stream starts.
    next: i64,
    /// When the last events of the stream came; `None` for a stream that has delivered none.
    heard: Option<Instant>,
    /// How often a look at a silent stream has found that it lacks something, at one value of `next`.
    looks: u32,
    /// The looks after which the stream is opened anew. A member that is slow to read history gets more time each time.
    patience: u32,
    /// The version of the last head, which rises by one with each transaction.
    head_version: Option<i64>,
    /// The changes of the transaction that is being read.
    pending: Vec<RawEvent>,
    /// Whole transactions that were read and not taken.
    ready: VecDeque<Batch>,
    /// The last look at the head that the reader knows of.
    looked: Instant,
    /// The look at the head until which the reader has still to deliver everything. It stays until that is done: otherwise
    /// a reader that is always a little late would never have everything.
    wanted: Option<HeadLook>,
}

/// Why a stream ended.
enum End {
    /// It can be resumed.
    Lost(String),
    /// The watch is over.
    Over(Error),
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, cursor: Cursor, old: WithOld) -> Self {
        let timeline = shared.timeline();
        let from = timeline.physical(cursor.delivered_revision());
        let next = from.max(shared.first_physical() - 1) + 1;
        let epoch = timeline.epoch().number;
        Self {
            shared,
            cursor,
            old,
            epoch,
            next,
            heard: None,
            looks: 0,
            patience: MIN_PATIENCE,
            head_version: None,
            pending: Vec::new(),
            ready: VecDeque::new(),
            looked: Instant::now(),
            wanted: None,
        }
    }

    async fn run(mut self, batches: mpsc::Sender<Result<Batch>>) {
        let mut closing = self.shared.is_closed.subscribe();
        let freshness = self.shared.freshness.begin(Instant::now());
        let error = tokio::select! {
            error = self.read_on(&batches, &freshness) => error,
            () = async { closing.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() } => Error::closed(),
        };
        // The caller may be gone.
        let _ = batches.send(Err(error)).await;
    }

    /// Reads until the watch is over.
    async fn read_on(
        &mut self,
        batches: &mpsc::Sender<Result<Batch>>,
        freshness: &WatchFreshness,
    ) -> Error {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.next;
            match self.read_stream(batches, freshness).await {
                End::Over(error) => return error,
                // Only the first of several attempts: an outage can last.
                End::Lost(reason) if pause == FIRST_PAUSE || self.next != before => {
                    self.shared.observed.count_watch_restart();
                    tracing::warn!("a watch of etcd is resumed: {reason}");
                }
                End::Lost(reason) => tracing::debug!("a watch of etcd is resumed: {reason}"),
            }
            if self.next != before {
                pause = FIRST_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            self.shared.watch_client.leave_current_member();
        }
    }

    async fn read_stream(
        &mut self,
        batches: &mpsc::Sender<Result<Batch>>,
        freshness: &WatchFreshness,
    ) -> End {
        let mut stream = match self.open().await {
            Ok(stream) => stream,
            Err(end) => return end,
        };
        loop {
            let Ok(read) = timeout(SILENCE, stream.message()).await else {
                match self.check_silence().await {
                    Ok(()) => self.note_freshness(freshness),
                    Err(end) => return end,
                }
                continue;
            };
            let end = match read {
                Ok(Some(response)) => self.take_checked(response).await.err(),
                Ok(None) => Some(End::Lost("etcd has closed it".to_owned())),
                Err(status) => Some(End::Lost(rpc::explain(&status))),
            };
            while let Some(batch) = self.ready.pop_front() {
                if batches.send(Ok(batch)).await.is_err() {
                    return End::Over(Error::closed());
                }
            }
            if let Some(end) = end {
                return end;
            }
            self.note_freshness(freshness);
        }
    }

    /// Notes until when the reader has delivered everything, if it has got further.
    fn note_freshness(&mut self, freshness: &WatchFreshness) {
        // While events come, they can be late, and the looks are those of the session.
        if let Some(head) = self.shared.freshness.head().filter(|head| head.looked > self.looked) {
            self.looked = head.looked;
            self.wanted.get_or_insert(head);
        }
        if let Some(wanted) = self.wanted.take_if(|wanted| wanted.newest < self.next) {
            freshness.has_everything_until(wanted.looked);
        }
    }

    /// Opens the stream at the next revision.
    async fn open(&mut self) -> std::result::Result<Streaming<WatchResponse>, End> {
        self.pending.clear();
        self.heard = None;
        let (key, range_end) = self.shared.keys.watched();
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: self.next,
            prev_kv: self.old == WithOld::Yes,
            fragment: true,
        };
        let opened = self.shared.watch_client.watch(create).await;
        opened.map_err(|status| End::Lost(rpc::explain(&status)))
    }

    /// Checks that a silent stream misses nothing. An event may be on the way, so one look does not decide.
    async fn check_silence(&mut self) -> std::result::Result<(), End> {
        let looked = Instant::now();
        match self.shared.now().await {
            Ok(now) if self.shared.timeline().epoch().number == self.epoch => {
                let newest = self.shared.timeline().physical(now.revision);
                self.wanted.get_or_insert(HeadLook { newest, looked });
                let is_behind = newest >= self.next;
                self.looks = if is_behind { self.looks + 1 } else { 0 };
                if self.looks < self.patience {
                    return Ok(());
                }
                (self.looks, self.patience) = (0, (self.patience * 2).min(MAX_PATIENCE));
                Err(End::Lost("it delivers nothing".to_owned()))
            }
            Ok(_) => Err(self.epoch_changed()),
            Err(Error::EpochChanged { begins }) => Err(End::Over(Error::EpochChanged { begins })),
            Err(error) => Err(End::Lost(error.to_string())),
        }
    }

    fn epoch_changed(&self) -> End {
        End::Over(Error::EpochChanged { begins: self.shared.timeline().epoch().begins })
    }

    /// Takes a message. Some versions of etcd leave out a deletion at the revision of a compaction, if the stream continues
    /// exactly there. A stream that is on time never does.
    async fn take_checked(&mut self, response: WatchResponse) -> std::result::Result<(), End> {
        if !response.events.is_empty() && self.shared.loses_deletions() {
            let was_away = self.heard.is_none_or(|heard| heard.elapsed() > AWAY);
            self.heard = Some(Instant::now());
            if was_away {
                self.check_not_compacted().await?;
            }
        }
        self.take(response)
    }

    /// Checks that etcd's history still begins before the next revision.
    async fn check_not_compacted(&self) -> std::result::Result<(), End> {
        let last = self.next - 1;
        if last < 1 {
            return Ok(());
        }
        let read = self.shared.range(RangeRequest { revision: last, ..self.shared.head_range() });
        match read.await {
            Ok(_) => Ok(()),
            Err(status) if rpc::is_compacted(&status) == Some(true) => {
                Err(End::Over(self.shared.out_of_range(status).await))
            }
            Err(status) => Err(End::Lost(rpc::explain(&status))),
        }
    }

    /// Takes a message: events are collected until the head ends their transaction.
    fn take(&mut self, response: WatchResponse) -> std::result::Result<(), End> {
        if self.shared.timeline().epoch().number != self.epoch {
            return Err(self.epoch_changed());
        }
        if response.compact_revision > 0 {
            let compacted = self.shared.timeline().logical(response.compact_revision);
            return Err(End::Over(Error::Compacted { compacted }));
        }
        if response.canceled {
            return Err(End::Lost(format!("etcd has canceled it: {}", response.cancel_reason)));
        }
        for event in response.events {
            let Some(kv) = &event.kv else { continue };
            if kv.mod_revision < self.next {
                // etcd has delivered an event again.
                continue;
            }
            if *kv.key != *self.shared.keys.head() {
                self.pending.push(event);
                continue;
            }
            if event.kind == DELETION {
                // The head goes only with all keys. Nothing is missing.
                let reason = "the keys of the store were removed from etcd".to_owned();
                return Err(End::Over(Error::Unavailable(reason)));
            }
            let (version, at) = (kv.version, kv.mod_revision);
            self.check_version(version)?;
            let batch = self.end_of_transaction(at).map_err(End::Over)?;
            self.ready.push_back(batch);
            self.shared.saw_head(self.epoch, at);
            self.next = at + 1;
            (self.looks, self.patience) = (0, MIN_PATIENCE);
        }
        Ok(())
    }

    /// Checks that the head of each transaction was delivered, and once.
    fn check_version(&mut self, version: i64) -> std::result::Result<(), End> {
        let last = self.head_version.replace(version);
        if last.is_none_or(|last| version == last + 1) {
            return Ok(());
        }
        self.shared.observed.count_watch_gap();
        let reason = format!("a watch of etcd went from transaction {last:?} to {version}");
        Err(End::Over(Error::Corrupt { key: None, reason }))
    }

    /// The batch of the transaction with the pending changes.
    fn end_of_transaction(&mut self, at: i64) -> Result<Batch> {
        let timeline = self.shared.timeline();
        let revision = timeline.logical(at);
        let mut events = Vec::new();
        for (index, raw) in (0_u8..=u8::MAX).zip(std::mem::take(&mut self.pending)) {
            let Some(kv) = raw.kv else { continue };
            if kv.mod_revision != at {
                let reason =
                    format!("a transaction of etcd at {at} has a change of {}", kv.mod_revision);
                return Err(Error::Corrupt { key: None, reason });
            }
            let Some(key) = self.shared.keys.storage_key(&kv.key) else { continue };
            let position = Position::new(revision, index);
            let value = if raw.kind == DELETION {
                None
            } else {
                let stored = Stored::decode(&kv.value).ok_or_else(|| no_header(&key))?;
                if stored.placed.is_some() {
                    // A rewrite is no event.
                    continue;
                }
                Some(stored.value)
            };
            let is_new = raw.kind != DELETION && kv.version == 1;
            let replaced = if is_new {
                Replaced::New
            } else {
                Replaced::Old(raw.prev_kv.and_then(|old| self.old_entry(&key, &old)))
            };
            let event = Event { key, position, value, replaced };
            if self.cursor.should_deliver(&event) {
                events.push(event);
            }
        }
        Ok(Batch { events, revision })
    }

    /// A replaced entry, unless it is corrupt.
    fn old_entry(&self, key: &Arc<str>, old: &KeyValue) -> Option<Entry> {
        let stored = Stored::decode(&old.value);
        if stored.is_none() {
            tracing::warn!(%key, "a replaced value is corrupt; its event is without it");
        }
        let stored = stored?;
        let position = stored.position(&self.shared.timeline(), old.mod_revision);
        Some(Entry { key: Arc::clone(key), value: stored.value, position })
    }

    /// Reads transactions until their events are enough, or until a revision is read. For reads of history.
    pub(crate) async fn collect(
        &mut self,
        until: u64,
        mut see: impl FnMut(&Batch) -> std::ops::ControlFlow<()>,
    ) -> Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut stream = match self.open().await {
                Ok(stream) => stream,
                Err(End::Over(error)) => return Err(error),
                Err(End::Lost(reason)) if pause >= MAX_PAUSE => {
                    return Err(Error::Unavailable(reason));
                }
                Err(End::Lost(_)) => {
                    sleep(pause).await;
                    pause *= 2;
                    continue;
                }
            };
            while let Ok(Ok(Some(response))) = timeout(MAX_SILENCE, stream.message()).await {
                match self.take_checked(response).await {
                    Ok(()) => {}
                    Err(End::Over(error)) => return Err(error),
                    Err(End::Lost(_)) => break,
                }
                while let Some(batch) = self.ready.pop_front() {
                    if see(&batch).is_break() || batch.revision >= until {
                        return Ok(());
                    }
                }
            }
            if pause >= MAX_PAUSE {
                return Err(Error::Unavailable("etcd keeps ending a watch".to_owned()));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }
}
