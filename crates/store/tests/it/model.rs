//! Random sequences of operations on every engine, compared with a simple model: the complete state of
//! each revision, and the list of all events.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{InMemory, OnFile};
use bytes::Bytes;
use postern_store::conformance::{Encrypted, Subject};
use postern_store::{
    Change, Condition, Entry, Error, Event, ListRequest, Position, Replaced, Store, Txn, WithOld,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Names that are prefixes of each other, so that a scan which stops too late is detected.
const NAMES: [&str; 6] = ["/a", "/a/1", "/a/2", "/a0", "/b", "/b/1"];
const PREFIXES: [&str; 5] = ["", "/a", "/a/", "/b", "/c"];

#[derive(Clone, Debug)]
enum Op {
    Commit { conditions: Vec<(usize, Precondition)>, changes: Vec<(usize, Write)> },
    List { prefix: usize, limit: usize, after: Option<usize>, ago: Option<u64> },
    Watch { prefix: usize, start: usize },
    Compact { ago: u64 },
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum Precondition {
    Absent,
    AsItIs,
    Stale,
}

#[derive(Clone, Debug)]
enum Write {
    Put(u8),
    Delete,
    Rewrite(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let precondition = prop_oneof![1 => Just(Precondition::Absent), 4 => Just(Precondition::AsItIs), 1 => Just(Precondition::Stale)];
    let write = prop_oneof![
        5 => any::<u8>().prop_map(Write::Put),
        2 => Just(Write::Delete),
        1 => any::<u8>().prop_map(Write::Rewrite),
    ];
    let name = 0..NAMES.len();
    prop_oneof![
        8 => (
            proptest::collection::vec((name.clone(), precondition), 0..2),
            proptest::collection::vec((name.clone(), write), 0..4),
        ).prop_map(|(conditions, changes)| Op::Commit { conditions, changes }),
        3 => (0..PREFIXES.len(), 0..4_usize, proptest::option::of(name), proptest::option::of(0..12_u64))
            .prop_map(|(prefix, limit, after, ago)| Op::List { prefix, limit, after, ago }),
        3 => (0..PREFIXES.len(), any::<usize>()).prop_map(|(prefix, start)| Op::Watch { prefix, start }),
        1 => (0..12_u64).prop_map(|ago| Op::Compact { ago }),
        1 => Just(Op::Reopen),
    ]
}

/// Key to the position of its live version.
type State = BTreeMap<&'static str, Position>;

/// A change that watchers see.
struct Recorded {
    position: Position,
    name: &'static str,
    is_put: bool,
    previous: Option<Position>,
}

#[derive(Default)]
struct Model {
    /// The revision before the first state.
    base: u64,
    states: Vec<State>,
    bytes: BTreeMap<Position, Bytes>,
    changes: Vec<Recorded>,
    compacted: u64,
}

impl Model {
    fn new(base: u64) -> Self {
        Self { base, states: vec![State::new()], ..Self::default() }
    }

    fn revision(&self) -> u64 {
        self.base + self.states.len() as u64 - 1
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn txn(&self, conditions: &[(usize, Precondition)], changes: &[(usize, Write)]) -> Txn {
        let condition = |(name, precondition): &(usize, Precondition)| {
            let position = self.now().get(NAMES[*name]).copied();
            let key: Arc<str> = NAMES[*name].into();
            match (precondition, position) {
                (Precondition::Absent, _) | (Precondition::AsItIs, None) => Condition::Absent(key),
                (Precondition::AsItIs, Some(position)) => Condition::At(key, position),
                (Precondition::Stale, _) => Condition::At(key, Position::new(self.base + 1, 3)),
            }
        };
        let change = |(name, write): &(usize, Write)| {
            let key: Arc<str> = NAMES[*name].into();
            match write {
                Write::Put(value) => Change::Put { key, value: value_of(*value) },
                Write::Delete => Change::Delete { key },
                Write::Rewrite(value) => Change::Rewrite { key, value: value_of(*value) },
            }
        };
        Txn {
            conditions: conditions.iter().map(condition).collect(),
            changes: changes.iter().map(change).collect(),
        }
    }

    /// Applies a transaction to the model, and returns the expected result.
    fn commit(&mut self, txn: &Txn) -> Result<u64, &'static str> {
        let mut names: Vec<_> = txn.changes.iter().map(Change::key).collect();
        names.sort();
        names.dedup();
        if names.len() < txn.changes.len() {
            return Err("invalid");
        }
        let held = txn.conditions.iter().all(|condition| match condition {
            Condition::Absent(key) => !self.now().contains_key(&**key),
            Condition::At(key, position) => self.now().get(&**key) == Some(position),
        });
        let there = txn.changes.iter().all(|change| {
            matches!(change, Change::Put { .. }) || self.now().contains_key(&**change.key())
        });
        if !held || !there {
            return Err("conflict");
        }
        if !txn.changes.is_empty() {
            self.apply(txn);
        }
        Ok(self.revision())
    }

    fn apply(&mut self, txn: &Txn) {
        let revision = self.revision() + 1;
        let mut state = self.now().clone();
        for (index, change) in txn.changes.iter().enumerate() {
            let name = *NAMES.iter().find(|name| **name == &**change.key()).unwrap();
            let position = Position::new(revision, u8::try_from(index).unwrap());
            let previous = state.get(name).copied();
            match change {
                Change::Put { value, .. } => {
                    state.insert(name, position);
                    self.bytes.insert(position, value.clone());
                    self.changes.push(Recorded { position, name, is_put: true, previous });
                }
                Change::Delete { .. } => {
                    state.remove(name);
                    self.changes.push(Recorded { position, name, is_put: false, previous });
                }
                Change::Rewrite { value, .. } => {
                    self.bytes.insert(previous.unwrap(), value.clone());
                }
            }
        }
        self.states.push(state);
    }

    fn entry(&self, name: &'static str, position: Position) -> Entry {
        Entry { key: name.into(), value: self.bytes[&position].clone(), position }
    }

    /// The expected page: entries, and how many remain.
    fn list(&self, request: &ListRequest) -> (Vec<Entry>, u64) {
        let at = request.at.unwrap_or(self.revision());
        let state = &self.states[usize::try_from(at - self.base).unwrap()];
        let mut entries: Vec<_> = state
            .iter()
            .filter(|(name, _)| name.starts_with(&request.prefix))
            .filter(|(name, _)| request.after.as_deref().is_none_or(|after| **name > after))
            .map(|(name, position)| self.entry(name, *position))
            .collect();
        let all = entries.len();
        if request.limit != 0 {
            entries.truncate(request.limit);
        }
        let remaining = all - entries.len();
        (entries, remaining as u64)
    }

    /// Every position from which a watch can start.
    fn starts(&self) -> Vec<Position> {
        let ends = (self.base..=self.revision()).map(Position::end_of);
        let mut starts: Vec<_> =
            ends.chain(self.changes.iter().map(|change| change.position)).collect();
        starts.push(Position::ZERO);
        starts
    }

    fn events(&self, prefix: &str, after: Position) -> Vec<Event> {
        let changes = self.changes.iter();
        let wanted = changes.filter(|c| c.position > after && c.name.starts_with(prefix));
        let event = |change: &Recorded| Event {
            key: change.name.into(),
            position: change.position,
            value: change.is_put.then(|| self.bytes[&change.position].clone()),
            replaced: match change.previous {
                Some(previous) => Replaced::Old(Some(self.entry(change.name, previous))),
                None => Replaced::New,
            },
        };
        wanted.map(event).collect()
    }
}

fn value_of(seed: u8) -> Bytes {
    Bytes::from(vec![seed; usize::from(seed % 7) * 3])
}

async fn check_commit(model: &mut Model, store: &Arc<dyn Store>, txn: Txn) {
    let expected = model.commit(&txn);
    match (store.commit(txn).await, expected) {
        (Ok(revision), expected) => assert_eq!(expected, Ok(revision)),
        (Err(Error::Conflict { key, found }), Err("conflict")) => {
            assert_eq!(found, model.now().get(&*key).copied());
        }
        (Err(Error::Invalid(_)), Err("invalid")) => {}
        (result, expected) => panic!("got {result:?}, expected {expected:?}"),
    }
    for name in NAMES {
        let snapshot = store.get(name).await.unwrap();
        let expected = model.now().get(name).map(|position| model.entry(name, *position));
        assert_eq!((snapshot.value, snapshot.revision), (expected, model.revision()));
    }
}

async fn check_list(model: &Model, store: &Arc<dyn Store>, request: ListRequest) {
    let is_gone = request.at.is_some_and(|at| model.compacted > 0 && at <= model.compacted);
    match store.list(request.clone()).await {
        Err(Error::Compacted { compacted }) => {
            assert!(is_gone);
            assert_eq!(compacted, model.compacted);
        }
        page => {
            assert!(!is_gone);
            let page = page.unwrap();
            assert_eq!(page.corrupt, Vec::new());
            assert_eq!((page.entries, page.remaining), model.list(&request));
            assert_eq!(page.revision, request.at.unwrap_or(model.revision()));
        }
    }
}

async fn check_watch(model: &Model, store: &Arc<dyn Store>, prefix: &str, after: Position) {
    let is_gone = model.compacted > 0 && after < Position::end_of(model.compacted);
    let mut watch = match store.watch(prefix, after, WithOld::Yes).await {
        Err(Error::Compacted { compacted }) => {
            assert!(is_gone);
            assert_eq!(compacted, model.compacted);
            return;
        }
        watch => watch.unwrap(),
    };
    assert!(!is_gone);
    let mut found = Vec::new();
    let mut reached = if after.index() == u8::MAX { after.revision() } else { 0 };
    while reached < model.revision() {
        let batch = watch.next().await.unwrap();
        reached = batch.revision;
        found.extend(batch.events);
    }
    assert_eq!(found, model.events(prefix, after));
}

async fn run<T: Subject>(subject: &T, is_durable: bool, ops: Vec<Op>) {
    let mut store = subject.create().await;
    let mut model = Model::new(store.revision().await.unwrap());
    for op in ops {
        match op {
            Op::Commit { conditions, changes } => {
                let txn = model.txn(&conditions, &changes);
                check_commit(&mut model, &store, txn).await;
            }
            Op::List { prefix, limit, after, ago } => {
                let request = ListRequest {
                    prefix: PREFIXES[prefix].to_owned(),
                    after: after.map(|name| NAMES[name].into()),
                    limit,
                    at: ago.map(|ago| model.revision().saturating_sub(ago).max(model.base)),
                };
                check_list(&model, &store, request).await;
            }
            Op::Watch { prefix, start } => {
                let starts = model.starts();
                let after = starts[start % starts.len()];
                check_watch(&model, &store, PREFIXES[prefix], after).await;
            }
            Op::Compact { ago } => {
                let revision = model.revision().saturating_sub(ago).max(model.base);
                store.compact(revision).await.unwrap();
                model.compacted = model.compacted.max(revision);
                assert_eq!(store.compacted().await.unwrap(), model.compacted);
            }
            Op::Reopen if is_durable => store = subject.reopen(store).await.unwrap(),
            Op::Reopen => {}
        }
    }
    check_list(&model, &store, ListRequest::default()).await;
}

/// Runs random operations. Of the cases on a file, a usual run does a quarter: each sync takes its time.
fn check<T: Subject>(cases: u32, is_durable: bool, subject: impl Fn() -> T) {
    let is_full = std::env::var("POSTERN_TEST_FORM").is_ok_and(|form| form == "full");
    let cases = if is_full || !is_durable { cases } else { cases.div_ceil(4) };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    TestRunner::new_with_rng(config, rng)
        .run(&proptest::collection::vec(op(), 1..60), |ops| {
            runtime.block_on(run(&subject(), is_durable, ops));
            Ok(())
        })
        .unwrap();
}

#[test]
fn memory_does_what_the_model_does() {
    check(1000, false, || InMemory);
}

#[test]
fn redb_does_what_the_model_does() {
    check(120, true, OnFile::new);
}

#[test]
fn redb_with_short_segments_does_what_the_model_does() {
    check(240, true, OnFile::with_short_segments);
}

#[test]
fn sealed_memory_does_what_the_model_does() {
    check(500, false, || Encrypted::new(InMemory));
}

#[test]
fn sealed_redb_does_what_the_model_does() {
    check(120, true, || Encrypted::new(OnFile::new()));
}
