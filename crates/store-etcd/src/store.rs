//! The open store: the contract of [`Store`] on etcd.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use postern_store::age::Ages;
use postern_store::check::{self, Overhead};
use postern_store::cursor::{Cursor, EventsPage};
use postern_store::{
    Batch, Change, Condition, Entry, Epoch, Error, Events, Figures, Fleet, Gate, Limits,
    ListRequest, Page, Position, RemoteFigures, Result, SharedCall, Snapshot, Store, StoreState,
    Txn, Visitor, Watch, WithOld,
};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::commit::Fences;
use crate::fleet::{EtcdFleet, Session};
use crate::layout::LIMITS;
use crate::list::PageSize;
use crate::observed::Look;
use crate::proto::{CompactionRequest, CompactionResponse};
use crate::shared::{Creation, NOTE_ATTEMPTS, Presence, Shared};
use crate::state::{connect_checked, read_state};
use crate::url::{EtcdAccess, EtcdUrl};
use crate::watch::{EtcdWatch, Reader};
use crate::{rpc, target};

/// The time between two looks at the members of etcd.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// A store on etcd.
pub struct Etcd {
    pub(crate) shared: Arc<Shared>,
    fences: Fences,
    session: Arc<Session>,
    fleet: EtcdFleet,
    page_size: PageSize,
    /// The task that looks at the members of etcd. It ends with the engine.
    _observer: JoinSet<()>,
}

impl Etcd {
    /// Opens the store at an address. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address, files or a version of etcd that cannot be used. The same for data of something
    /// else under the prefix, and if nothing is there. [`Error::Unavailable`] if etcd does not answer, or refuses this
    /// server.
    pub async fn open(url: &EtcdUrl, access: &EtcdAccess) -> Result<Self> {
        Self::open_with(url, access, Creation::Never).await
    }

    /// Opens the store at an address. If nothing is there, the first transaction creates it.
    ///
    /// # Errors
    /// As for [`Etcd::open`].
    pub async fn open_or_create(url: &EtcdUrl, access: &EtcdAccess) -> Result<Self> {
        Self::open_with(url, access, Creation::Plain).await
    }

    /// Does the same for a prefix that another store may have had before: its revisions are compacted.
    ///
    /// # Errors
    /// As for [`Etcd::open`].
    pub(crate) async fn prepare(url: &EtcdUrl, access: &EtcdAccess) -> Result<Self> {
        Self::open_with(url, access, Creation::Compacted).await
    }

    async fn open_with(url: &EtcdUrl, access: &EtcdAccess, creation: Creation) -> Result<Self> {
        let shared = connect_checked(url, access).await?;
        let creation = match read_state(&shared, url).await?.0 {
            StoreState::InUse => Creation::Never,
            StoreState::Unused if creation != Creation::Never => creation,
            StoreState::Unused => {
                return Err(Error::Invalid(format!(
                    "the store {url} is not prepared: run postern init with the same --store first"
                )));
            }
            StoreState::Marked(mark) => return Err(Error::Invalid(mark.explain(&url.to_string()))),
        };
        let presence = Presence { url: url.clone(), creation };
        if shared.presence.set(presence).is_err() {
            tracing::error!("a store is opened twice");
        }
        Self::over(shared).await
    }

    /// A store with a format that was checked.
    pub(crate) async fn over(shared: Arc<Shared>) -> Result<Self> {
        shared.load_timeline().await?;
        let session = Session::new(Arc::clone(&shared));
        session.start();
        let fleet = EtcdFleet(Arc::clone(&session));
        let observer = observe_members(Arc::clone(&shared));
        let (fences, page_size) = (Fences::new(), PageSize::default());
        Ok(Self { shared, fences, session, fleet, page_size, _observer: observer })
    }

    /// Puts entries into an unused store, with their positions, as a restore does. The store begins at a revision.
    ///
    /// # Errors
    /// As for [`Etcd::open`]; [`Error::Invalid`] for entries that no store can have.
    pub async fn restore(
        url: &EtcdUrl,
        access: &EtcdAccess,
        revision: u64,
        entries: &[Entry],
    ) -> Result<()> {
        target::restore(url, access, revision, entries).await
    }
}

/// Looks at the members of etcd until the store is closed, or the task is dropped.
fn observe_members(shared: Arc<Shared>) -> JoinSet<()> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut closing = shared.is_closed.subscribe();
        loop {
            shared.observed.note(shared.client.statuses().await);
            tokio::select! {
                () = sleep(LOOK_INTERVAL) => {}
                _ = closing.changed() => return,
            }
        }
    });
    task
}

/// Checks that the engine can store the keys of a transaction, which begin with a slash.
fn check_keys(txn: &Txn) -> Result<()> {
    let conditions = txn.conditions.iter().map(|condition| match condition {
        Condition::Absent(key) | Condition::At(key, _) => key,
    });
    match conditions.chain(txn.changes.iter().map(Change::key)).find(|key| !key.starts_with('/')) {
        Some(key) => Err(Error::Invalid(format!("the key {key:?} does not begin with a slash"))),
        None => Ok(()),
    }
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("member", &self.shared.member).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Etcd {
    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn revision(&self) -> Result<u64> {
        Ok(self.shared.now().await?.revision)
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.shared.now().await?;
        Ok(self.shared.timeline().epoch())
    }

    async fn compacted(&self) -> Result<u64> {
        Ok(self.shared.now().await?.compacted)
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let (value, revision) = self.shared.get(key).await?;
        Ok(Snapshot { value, revision })
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.shared.list(&self.page_size, &request).await
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        self.shared.next_page(&self.page_size, prefix, at, after.as_deref()).await
    }

    async fn scan(&self, at: u64, visit: Visitor) -> Result<()> {
        self.shared.scan(&self.page_size, at, visit).await
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        self.shared.check_open()?;
        check::txn(&txn, LIMITS, Overhead::Envelope)?;
        check_keys(&txn)?;
        if txn.changes.is_empty() {
            return self.shared.check(&txn).await;
        }
        let begun = Instant::now();
        let result = match self.shared.pass_gate().await {
            Ok(()) => self.shared.commit(&self.fences, &txn).await,
            Err(error) => Err(error),
        };
        self.shared.observed.count_commit(begun.elapsed(), &result);
        result
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        Ok(Box::new(EtcdWatch::open(&self.shared, prefix, after, old).await?))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        let now = self.shared.now().await?;
        let cursor = Cursor::new(prefix, after);
        cursor.check_not_compacted(now.compacted)?;
        let mut page = EventsPage::new(&cursor, now.revision, until);
        let last = now.revision.min(until.revision());
        if cursor.delivered_revision() >= last {
            return Ok(page.finish());
        }
        // All keys are read, so that each change has its index.
        let everything = Cursor::new("", after);
        let mut reader = Reader::new(Arc::clone(&self.shared), everything, WithOld::Yes);
        let see = |batch: &Batch| {
            for event in &batch.events {
                if page.see(event.position.packed()).is_break() {
                    return std::ops::ControlFlow::Break(());
                }
                if cursor.covers(&event.key) {
                    page.add(event.clone());
                }
            }
            std::ops::ControlFlow::Continue(())
        };
        reader.collect(last, see).await?;
        Ok(page.finish())
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        check::prefixes(prefixes)?;
        let key = self.shared.keys.own("compacted");
        for _ in 0..NOTE_ATTEMPTS {
            let now = self.shared.now().await?;
            if revision > now.revision {
                return Err(Error::Future { current: now.revision });
            }
            if revision <= now.compacted {
                return Ok(());
            }
            let (stored, _) = self.shared.key(key.clone()).await?;
            let value = Bytes::copy_from_slice(&revision.to_be_bytes());
            // Noted first, so that no read gets data that is being removed.
            if self
                .shared
                .put_if(key.clone(), stored.map_or(0, |kv| kv.mod_revision), value)
                .await?
            {
                let physical = self.shared.timeline().physical(revision);
                self.compact_etcd(physical).await?;
                return self.shared.remove_old_fences(physical).await;
            }
        }
        Err(Error::Unavailable("other servers keep compacting".to_owned()))
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        let key = self.shared.keys.own("age");
        for _ in 0..NOTE_ATTEMPTS {
            let newest = self.shared.now().await?.revision;
            let (stored, _) = self.shared.key(key.clone()).await?;
            let mut ages =
                stored.as_ref().and_then(|kv| Ages::decode(&kv.value)).unwrap_or_default();
            let noted = ages.note(now, keep, newest);
            let read_at = stored.map_or(0, |kv| kv.mod_revision);
            if !noted.changed
                || self.shared.put_if(key.clone(), read_at, ages.encode().into()).await?
            {
                return Ok(noted.revision);
            }
        }
        Err(Error::Unavailable("other servers keep noting the age of history".to_owned()))
    }

    fn set_gate(&self, gate: Gate) {
        let gate = Arc::new(gate);
        let pass = SharedCall::new(move || {
            let gate = Arc::clone(&gate);
            async move {
                let passed = spawn_blocking(move || gate()).await;
                passed.map_err(Error::from)?.map_err(Error::Gated)
            }
            .boxed()
        });
        if self.shared.gate.set(pass).is_err() {
            tracing::error!("a store has one gate; a second one was not taken");
        }
    }

    fn health(&self) -> Result<()> {
        self.shared.health()
    }

    fn silence(&self) -> Duration {
        self.shared.client.silence().max(self.shared.freshness.age(Instant::now()))
    }

    fn figures(&self) -> Figures {
        let observed = &self.shared.observed;
        let Look { members, is_full, is_corrupt } = observed.last_look();
        Figures {
            size_bytes: members.iter().filter_map(|member| member.size_bytes).max(),
            commits: observed.commits().times(),
            failed_commits: observed.commits().failed(),
            remote: Some(RemoteFigures {
                servers: self.session.servers(),
                answer_age: self.shared.client.answer_age(),
                epoch: self.shared.timeline().epoch().number,
                watch_restarts: observed.watch_restarts(),
                watch_gaps: observed.watch_gaps(),
                members,
                is_full,
                is_corrupt,
            }),
            ..Figures::default()
        }
    }

    async fn recover(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.now().await.map(drop)
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        Some(&self.fleet)
    }

    async fn close(&self) {
        if !self.shared.is_closed.send_replace(true) {
            self.session.end().await;
        }
    }
}

impl Etcd {
    /// Compacts etcd's own history. Revisions up to the one that is given are gone for all users of the etcd.
    async fn compact_etcd(&self, revision: i64) -> Result<()> {
        let request = CompactionRequest { revision };
        let result: std::result::Result<CompactionResponse, _> =
            self.shared.client.read(rpc::COMPACT, request).await;
        match result {
            Ok(_) => Ok(()),
            // Another server, or etcd itself, has compacted more.
            Err(status) if rpc::is_compacted(&status) == Some(true) => Ok(()),
            Err(status) if status.code() == Code::PermissionDenied => {
                self.shared.warn_of_compaction(&status);
                Ok(())
            }
            Err(status) => self.shared.noted(Err(status)),
        }
    }
}
