//! The workload of a store with a failing disk, and the check of its contents afterwards. The
//! faults are chosen by the tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postern_store::redb::Redb;
use postern_store::{
    Change, Condition, Error, ListRequest, Options, Position, Result, Store, Txn, WithOld,
};

use crate::faults::disk::{Disk, LOG_BYTES, Rng};

/// Small, so that pages leave the cache and are read again.
const CACHE_BYTES: usize = 256 * 1024;

thread_local! {
    /// Revisions in one segment of history, of the stores that this thread opens.
    static SEGMENT_REVISIONS: Cell<u64> = const { Cell::new(Options::DEFAULT_SEGMENT_REVISIONS) };
}

/// Runs a test with segments of the usual length, and with short ones, so that a few transactions fill many.
pub(crate) fn for_segments(test: impl Fn()) {
    for revisions in [Options::DEFAULT_SEGMENT_REVISIONS, 3] {
        // Shown only when the test fails.
        println!("{revisions} revisions in a segment");
        SEGMENT_REVISIONS.set(revisions);
        test();
    }
    SEGMENT_REVISIONS.set(Options::DEFAULT_SEGMENT_REVISIONS);
}

/// Key to value and position.
type State = BTreeMap<Arc<str>, (Bytes, Position)>;

/// The prefixes for which each compaction notes the last changes.
fn noted() -> Vec<String> {
    ["/k1", "/k2", "/none"].map(str::to_owned).to_vec()
}

/// A disk with an empty store on it. (A file gets its name when that much is durable, so a
/// power cut before it leaves no store.)
pub(crate) fn new_disk(seed: u64) -> Disk {
    let disk = Disk::new(seed);
    drop(open(&disk).unwrap());
    disk
}

/// Opens a store on a disk.
pub(crate) fn open(disk: &Disk) -> Result<Redb> {
    let disk = disk.clone();
    let segment_revisions = SEGMENT_REVISIONS.get();
    let log_bytes = LOG_BYTES as u64;
    let options = Options { cache_bytes: CACHE_BYTES, segment_revisions, log_bytes };
    let log = disk.clone();
    Redb::open_with_backends(move || disk.open(), move || log.open_log(), options)
}

/// A workload: the committed states, and so the states that must be found.
pub(crate) struct Workload {
    rng: Rng,
    /// After each acknowledged revision.
    states: Vec<State>,
    /// The state after a transaction of which it is not known whether it was committed.
    maybe: Option<State>,
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), states: vec![State::new()], maybe: None }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// Does one random operation, and records its outcome.
    pub(crate) async fn step(&mut self, store: &Redb) -> Result<()> {
        if self.revision() > 3 && self.rng.below(10) == 0 {
            let ago = self.rng.below(4) as u64;
            return store.compact_noting(self.revision() - ago, &noted()).await;
        }
        let txn = self.txn();
        let after = self.after(&txn);
        match store.commit(txn).await {
            Ok(revision) => {
                self.states.push(after);
                assert_eq!(revision, self.revision());
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Unknown(_)) {
                    self.maybe = Some(after);
                }
                Err(error)
            }
        }
    }

    /// Does `count` steps, or fewer if one fails.
    pub(crate) async fn steps(&mut self, store: &Redb, count: usize) -> Result<()> {
        for _ in 0..count {
            self.step(store).await?;
        }
        Ok(())
    }

    fn txn(&mut self) -> Txn {
        let mut txn = Txn::default();
        for _ in 0..=self.rng.below(4) {
            let key: Arc<str> = format!("/k{}", self.rng.below(12)).into();
            if txn.changes.iter().any(|change| *change.key() == key) {
                continue;
            }
            let found = self.now().get(&key).map(|(_, position)| *position);
            let value = self.value();
            let (condition, change) = match (found, self.rng.below(5)) {
                (None, _) => (Condition::Absent(key.clone()), Change::Put { key, value }),
                (Some(position), 0) => {
                    (Condition::At(key.clone(), position), Change::Delete { key })
                }
                (Some(position), 1) => {
                    (Condition::At(key.clone(), position), Change::Rewrite { key, value })
                }
                (Some(position), _) => {
                    (Condition::At(key.clone(), position), Change::Put { key, value })
                }
            };
            txn.conditions.push(condition);
            txn.changes.push(change);
        }
        txn
    }

    /// Most are short, some take several pages.
    fn value(&mut self) -> Bytes {
        let length = if self.rng.below(8) == 0 { 20_000 } else { 300 };
        let length = self.rng.below(length);
        let byte = self.rng.next().to_le_bytes()[0];
        Bytes::from(vec![byte; length])
    }

    fn after(&self, txn: &Txn) -> State {
        let mut state = self.now().clone();
        for (index, change) in (0..).zip(&txn.changes) {
            let position = Position::new(self.revision() + 1, index);
            match change {
                Change::Put { key, value } => {
                    state.insert(key.clone(), (value.clone(), position));
                }
                Change::Delete { key } => {
                    state.remove(key);
                }
                Change::Rewrite { key, value } => {
                    state.get_mut(key).unwrap().0 = value.clone();
                }
            }
        }
        state
    }

    /// Checks that all acknowledged transactions are there, and any other one completely or not at all.
    /// Records which.
    pub(crate) async fn check(&mut self, store: &Redb) {
        let revision = store.revision().await.unwrap();
        if let Some(state) = self.maybe.take()
            && revision > self.revision()
        {
            self.states.push(state);
        }
        assert_eq!(revision, self.revision(), "neither more nor less");
        let page = store.list(ListRequest::default()).await.unwrap();
        assert_eq!(page.corrupt, Vec::new());
        let found: State = page
            .entries
            .into_iter()
            .map(|entry| (entry.key, (entry.value, entry.position)))
            .collect();
        assert!(found == *self.now(), "the state is another at revision {revision}");
        self.check_last_changes(store, revision).await;
        self.check_history(store, revision).await;
    }

    /// Checks that the store knows the last change under each prefix after any compaction.
    async fn check_last_changes(&self, store: &Redb, newest: u64) {
        let found = store.last_changes(&noted(), newest).await.unwrap();
        for (prefix, found) in noted().iter().zip(found) {
            let under = |revision| {
                let mut positions = self.positions(revision);
                positions.retain(|(key, _)| key.starts_with(prefix));
                positions
            };
            let last = (1..=newest).rev().find(|at| under(*at) != under(*at - 1)).unwrap_or(0);
            assert_eq!(found.revision(), last, "under {prefix}");
        }
    }

    /// Checks that the history that is kept leads from each state to the next.
    async fn check_history(&self, store: &Redb, newest: u64) {
        let mut delivered = store.compacted().await.unwrap();
        let mut state: Vec<_> = self.positions(delivered);
        if delivered == newest {
            return;
        }
        let start = if delivered == 0 { Position::ZERO } else { Position::end_of(delivered) };
        let mut watch = store.watch("", start, WithOld::Yes).await.unwrap();
        while delivered < newest {
            let batch = watch.next().await.unwrap();
            for event in batch.events {
                let before = state.iter().position(|(key, _)| *key == event.key);
                let before = before.map(|index| state.swap_remove(index));
                let previous =
                    event.replaced.entry().map(|entry| (entry.key.clone(), entry.position));
                assert_eq!(before, previous);
                if event.value.is_some() {
                    state.push((event.key, event.position));
                }
            }
            delivered = batch.revision;
            state.sort();
            assert_eq!(state, self.positions(delivered));
        }
    }

    fn positions(&self, revision: u64) -> Vec<(Arc<str>, Position)> {
        let state = &self.states[usize::try_from(revision).unwrap()];
        state.iter().map(|(key, (_, position))| (key.clone(), *position)).collect()
    }
}
