//! Two servers on one store: one commits a write, and the other is faster.

use std::collections::VecDeque;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use postern_auth::digest::Digest;
use postern_store::{
    Entry, Epoch, Events, Gate, ListRequest, Page, Result, Snapshot, Watch, WithOld,
};

use super::super::*;
use crate::admit::{self, Admitted, Previous};
use crate::registry::commit::CommitError;
use crate::secret_record::SecretRecord;

/// A write of the other server.
pub(super) type OtherWrite = BoxFuture<'static, ()>;

/// A store in memory, on which another server writes right before the next commits.
struct Interrupted {
    inner: Arc<dyn Store>,
    /// The writes before the next commits, one for each.
    writes: Mutex<VecDeque<OtherWrite>>,
}

#[async_trait]
impl Store for Interrupted {
    async fn revision(&self) -> Result<u64> {
        self.inner.revision().await
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.inner.epoch().await
    }

    async fn compacted(&self) -> Result<u64> {
        self.inner.compacted().await
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.inner.list(request).await
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        self.inner.next_page(prefix, at, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        let write = self.writes.lock().pop_front();
        if let Some(write) = write {
            write.await;
        }
        self.inner.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        self.inner.watch(prefix, after, old).await
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        self.inner.next_events(prefix, after, until).await
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        self.inner.compact_noting(revision, prefixes).await
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        self.inner.age_history(now, keep).await
    }

    fn set_gate(&self, gate: Gate) {
        self.inner.set_gate(gate);
    }

    fn health(&self) -> Result<()> {
        self.inner.health()
    }

    fn silence(&self) -> Duration {
        self.inner.silence()
    }

    async fn recover(&self) -> Result<()> {
        self.inner.recover().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Two writes of the other server, one after the other.
pub(super) fn both(first: OtherWrite, second: OtherWrite) -> OtherWrite {
    Box::pin(async move {
        first.await;
        second.await;
    })
}

/// The two servers.
pub(super) struct Race {
    pub(super) one: Fixture,
    other: Fixture,
    interrupted: Arc<Interrupted>,
}

impl Race {
    pub(super) async fn new() -> Self {
        let inner: Arc<dyn Store> = Arc::new(Memory::new());
        let other = over(inner.clone()).await;
        let interrupted = Arc::new(Interrupted { inner, writes: Mutex::default() });
        let one = start(interrupted.clone(), other.clock.clone()).await;
        Self { one, other, interrupted }
    }

    /// A create by the other server.
    pub(super) fn make(&self, at: At<'static>, fields: Value) -> OtherWrite {
        let registry = self.other.registry.clone();
        Box::pin(async move {
            let (permit, writing) = (at.permit(Verb::Create), Writing::by_server());
            operations::create(&registry, &permit, at.object(&fields), &writing).await.unwrap();
        })
    }

    /// A change by the other server: it sets a value at a path.
    pub(super) fn set(&self, at: At<'static>, path: &'static str, value: Value) -> OtherWrite {
        let registry = self.other.registry.clone();
        Box::pin(async move {
            let (permit, writing) = (at.permit(Verb::Update), Writing::by_server());
            let change = |object: &Object| Ok(with(object, path, &value));
            operations::update(&registry, &permit, &writing, change).await.unwrap();
        })
    }

    /// A change by the other server that has no meaning.
    pub(super) fn touch(&self, at: At<'static>, number: usize) -> OtherWrite {
        self.set(at, "/metadata/labels", json!({ "touched": number.to_string() }))
    }

    /// A deletion by the other server.
    pub(super) fn delete(&self, at: At<'static>) -> OtherWrite {
        let registry = self.other.registry.clone();
        Box::pin(async move {
            let permit = at.permit(Verb::Delete);
            operations::delete(&registry, &permit, &DeleteOptions::default()).await.unwrap();
        })
    }

    /// A change of records by the other server.
    pub(super) fn put(&self, keys: Vec<Arc<str>>, value: String) -> OtherWrite {
        let store = self.interrupted.inner.clone();
        let value = bytes::Bytes::from(value);
        Box::pin(async move {
            let put = |key| Change::Put { key, value: value.clone() };
            let changes = keys.into_iter().map(put).collect();
            store.commit(Txn { conditions: vec![], changes }).await.unwrap();
        })
    }

    /// A create that the one server has admitted.
    pub(super) async fn admit_new(&self, at: At<'static>, fields: Value) -> Admitted {
        self.admit_by(at.permit(Verb::Create), at, fields).await
    }

    /// A create that the one server has admitted, by the bearer of a key.
    pub(super) async fn admit_new_by(
        &self,
        digest: Digest,
        at: At<'static>,
        fields: Value,
    ) -> Admitted {
        let permit = at.permit(Verb::Create).with_credential(self.one.credential(digest)).of_own();
        self.admit_by(permit, at, fields).await
    }

    async fn admit_by(&self, permit: Permit, at: At<'static>, fields: Value) -> Admitted {
        self.one.registry.cache().wait_until_current().await.unwrap();
        let (view, writing) = (self.one.registry.admission(), Writing::by_server());
        admit::create(&view, &permit, at.object(&fields), &writing).unwrap()
    }

    /// A change that the one server has admitted.
    pub(super) async fn admit_set(&self, at: At<'static>, path: &str, value: Value) -> Admitted {
        let (previous, secrets) = self.read(at).await;
        let (view, writing) = (self.one.registry.admission(), Writing::by_server());
        let new = with(&previous.object, path, &value);
        admit::update(&view, &at.permit(Verb::Update), new, previous, secrets, &writing).unwrap()
    }

    /// A deletion that the one server has admitted.
    pub(super) async fn admit_delete(&self, at: At<'static>) -> Admitted {
        let (previous, _) = self.read(at).await;
        let view = self.one.registry.admission();
        admit::delete(&view, &at.permit(Verb::Delete), previous, 0, None).unwrap()
    }

    /// The removal of a terminating object, from which the one server has taken the finalizers of its kind.
    pub(super) async fn admit_release(&self, at: At<'static>) -> Admitted {
        let (previous, _) = self.read(at).await;
        let new = with(&previous.object, "/spec/finalizers", &json!([]));
        let view = self.one.registry.admission();
        admit::release(&view, &at.permit(Verb::Update), new, previous).unwrap()
    }

    async fn read(&self, at: At<'static>) -> (Previous, SecretRecord) {
        let cache = self.one.registry.cache();
        cache.wait_until_current().await.unwrap();
        let cached = cache.of(at.kind.info()).get(&at.key()).unwrap().unwrap();
        let of = crate::registry::side_records::RecordsOf {
            kind: at.kind,
            namespace: at.namespace,
            name: at.name,
        };
        let secrets = self.one.registry.secret_record(of).await.unwrap();
        (Previous::of(cached).unwrap(), secrets)
    }

    /// Lets the other server make a write before the next commit of the one server.
    pub(super) async fn before_next_commit(&self, write: OtherWrite) {
        self.other.current().await;
        self.interrupted.writes.lock().push_back(write);
    }

    /// Commits a write, while these writes are made before each attempt.
    pub(super) async fn commit(
        &self,
        write: Admitted,
        before: Vec<OtherWrite>,
        dry_run: bool,
    ) -> String {
        self.interrupted.writes.lock().extend(before);
        let stored = Box::pin(self.one.registry.try_commit(write, dry_run)).await;
        let left = std::mem::take(&mut *self.interrupted.writes.lock()).len();
        let answer = match stored {
            Ok(_) => "stored".to_owned(),
            Err(CommitError::Changed(_)) => "read again".to_owned(),
            Err(CommitError::Api(error)) => {
                let status = error.status();
                format!("{} {}", error.code(), status.message)
            }
        };
        if left == 0 { answer } else { format!("{answer} ({left} writes too many)") }
    }
}

/// The object with another value at a path.
fn with(object: &Object, path: &str, value: &Value) -> Object {
    let mut whole = object.clone().into_value();
    let mut place = &mut whole;
    for step in path.split('/').skip(1) {
        place = &mut place[step];
    }
    *place = value.clone();
    Object::from_value(whole).unwrap()
}
