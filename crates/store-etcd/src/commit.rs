//! Transactions, and what became of them when etcd did not say.
//!
//! Each transaction passes a **fence**: a key of this process, which the transaction compares and sets to an id. One
//! transaction at a time uses a fence. If the outcome of a transaction is unknown, a second one finds it out. Either the
//! fence has the id, and the first one was committed. Or the second one moves the fence on, and the first one never can
//! be committed.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use bytes::Bytes;
use parking_lot::Mutex;
use postern_store::{Change, Condition, Error, Position, Result, Txn, check};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::layout::{LIMITS, Stored, Timeline, encode};
use crate::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, Request, Response, TxnRequest,
    TxnResponse,
};
use crate::requests::{delete, exists, is_at, is_at_least, one, op, ranges_of};
use crate::rpc;
use crate::shared::{Floor, Shared};

/// Transactions that one process sends at the same time.
const FENCES: usize = 64;

/// Conditions that etcd takes in one transaction by default, with the one on the fence.
const MAX_COMPARES: usize = 128;

/// Attempts at a transaction while values are rewritten.
const ATTEMPTS: usize = 16;

/// The longest time until an outcome is resolved, or stays unknown.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts to resolve an outcome.
const RESOLVE_PAUSE: Duration = Duration::from_millis(50);

const TRANSACTION_ID_BYTES: usize = 16;

/// The fences of this process.
pub(crate) struct Fences {
    permits: Semaphore,
    free: Mutex<Vec<Fence>>,
}

/// A key that one transaction at a time compares and sets.
struct Fence {
    number: usize,
    /// The revision of etcd of its last change; `None` if a transaction through it may still be on the way.
    at: Option<i64>,
}

/// A fence that a transaction uses. It is free again when this is dropped.
struct FenceGuard<'a> {
    fences: &'a Fences,
    fence: Option<Fence>,
    _permit: SemaphorePermit<'a>,
}

impl Fences {
    pub(crate) fn new() -> Self {
        let free = (0..FENCES).map(|number| Fence { number, at: None }).collect();
        Self { permits: Semaphore::new(FENCES), free: Mutex::new(free) }
    }

    async fn take(&self) -> Result<FenceGuard<'_>> {
        let unavailable = || Error::Unavailable("the store was closed".to_owned());
        let permit = self.permits.acquire().await.map_err(|_| unavailable())?;
        let fence = self.free.lock().pop().ok_or_else(unavailable)?;
        Ok(FenceGuard { fences: self, fence: Some(fence), _permit: permit })
    }
}

impl FenceGuard<'_> {
    fn fence(&mut self) -> Result<&mut Fence> {
        self.fence
            .as_mut()
            .ok_or_else(|| Error::Unavailable("a transaction has no fence".to_owned()))
    }
}

impl Drop for FenceGuard<'_> {
    fn drop(&mut self) {
        self.fences.free.lock().extend(self.fence.take());
    }
}

/// What became of an attempt.
enum Attempt {
    /// It was committed at this revision of etcd.
    Committed(i64),
    /// It was not committed, and another attempt may be.
    Again,
}

impl Shared {
    /// Commits a transaction that has changes. Returns its revision.
    pub(crate) async fn commit(&self, fences: &Fences, txn: &Txn) -> Result<u64> {
        let mut guard = fences.take().await?;
        for _ in 0..ATTEMPTS {
            let plan = self.plan(txn).await?;
            if !plan.has_room() {
                // The head is read just before.
                guard.fence()?.at = None;
            }
            let at = self.prepare(guard.fence()?).await?;
            let (fence, floor) = (guard.fence()?, self.floor());
            match self.attempt(fence, at, &plan, txn).await? {
                Attempt::Committed(revision) => {
                    let timeline = self.timeline();
                    self.see(Some(revision), revision, floor).await?;
                    return Ok(timeline.logical(revision));
                }
                Attempt::Again => {}
            }
        }
        Err(Error::Unavailable("the values of the transaction keep being rewritten".to_owned()))
    }

    /// Makes sure that no earlier transaction through a fence is on the way. Returns the revision of its last change.
    async fn prepare(&self, fence: &mut Fence) -> Result<i64> {
        if let Some(at) = fence.at {
            return Ok(at);
        }
        let key = self.keys.fence(&self.member, fence.number);
        let floor = self.floor();
        // A migration removes the format and all fences, so that nothing is committed after it.
        let request = TxnRequest {
            compare: vec![exists(self.keys.own("format"))],
            success: vec![
                op(put(key, Bytes::from(new_id()?.to_vec()))),
                op(Request::Range(self.head_range())),
                one_range(&self.keys.own("epochs")),
                op(Request::Range(self.format_range())),
            ],
            failure: Vec::new(),
        };
        let response: TxnResponse = self.noted(self.client.read(rpc::TXN, request).await)?;
        if !response.succeeded {
            self.create().await?;
            return Box::pin(self.prepare(fence)).await;
        }
        let at = response.header.as_ref().map_or(0, |header| header.revision);
        let mut found = ranges_of(response).into_iter().map(|range| range.kvs.into_iter().next());
        let mut next = || found.next().flatten();
        let (head, epochs, format) = (next(), next(), next());
        // A restore of etcd takes most fences back. So it is noticed here, before anything is committed after it, and
        // no transaction gets a position that was given out before.
        self.see(Some(head.map_or(0, |head| head.mod_revision)), at, floor).await?;
        self.adopt(epochs.as_ref())?;
        // Another store may have taken the place of this one.
        if format.is_none_or(|format| !self.saw_format(floor, format.create_revision)) {
            return Err(self.gone().await);
        }
        fence.at = Some(at);
        Ok(at)
    }

    async fn attempt(&self, fence: &mut Fence, at: i64, plan: &Plan, txn: &Txn) -> Result<Attempt> {
        let id = new_id()?;
        let key = self.keys.fence(&self.member, fence.number);
        let floor = self.floor();
        let request = self.request(plan, &key, at, id, floor);
        // Until there is an outcome, and also when this future is dropped before.
        fence.at = None;
        let result: std::result::Result<TxnResponse, Status> =
            self.client.call(rpc::TXN, request).await;
        let status = match result {
            Ok(response) => {
                self.noted(Ok(()))?;
                let revision = response.header.as_ref().map_or(0, |header| header.revision);
                if response.succeeded {
                    fence.at = Some(revision);
                    return Ok(Attempt::Committed(revision));
                }
                if plan.has_room() {
                    let head = last_range(&response).map_or(0, |head| head.mod_revision);
                    self.see(Some(head), revision, floor).await?;
                }
                return self.refused(fence, at, response, txn).await;
            }
            Err(status) => status,
        };
        if rpc::is_full(&status) || rpc::is_ambiguous(&status) {
            let resolved = self.resolve(&key, at, id, rpc::is_full(&status)).await;
            let Some((revision, committed)) = resolved else {
                return Err(Error::Unknown(rpc::explain(&status)));
            };
            fence.at = Some(revision);
            if committed {
                return Ok(Attempt::Committed(revision));
            }
            if rpc::is_full(&status) {
                return Err(Error::Full);
            }
            tracing::warn!("a transaction is sent again: {}", rpc::explain(&status));
            return Ok(Attempt::Again);
        }
        fence.at = Some(at);
        if status.code() == Code::InvalidArgument && status.message().contains("too large") {
            let found = txn.changes.iter().map(check::value_bytes).sum();
            let advice = Some("raise etcd's --max-request-bytes");
            return Err(Error::TooLarge {
                of: "a transaction",
                found,
                limit: LIMITS.txn_bytes,
                advice,
            });
        }
        self.noted(Err(status))
    }

    /// The request of a transaction.
    fn request(
        &self,
        plan: &Plan,
        fence: &Bytes,
        at: i64,
        id: [u8; TRANSACTION_ID_BYTES],
        floor: Floor,
    ) -> TxnRequest {
        let put = |key: Bytes| {
            op(Request::Put(PutRequest { key, value: Bytes::copy_from_slice(&id), lease: 0 }))
        };
        let range =
            |key: &Bytes| op(Request::Range(RangeRequest { keys_only: true, ..one(key.clone()) }));
        let compares = plan.compares.iter().cloned();
        let changes = plan.changes.iter().cloned().map(op);
        // A fence that was not used since a snapshot of etcd is the same after its restore. The head is not.
        let head = plan.has_room().then(|| is_at_least(self.keys.head(), floor.head()));
        let read_head = plan.has_room().then(|| op(Request::Range(self.head_range())));
        TxnRequest {
            compare: std::iter::once(is_at(fence.clone(), at))
                .chain(head)
                .chain(compares)
                .collect(),
            // The head is the last one: it marks the end of the transaction for watches.
            success: std::iter::once(put(fence.clone()))
                .chain(changes)
                .chain([put(self.keys.head())])
                .collect(),
            failure: std::iter::once(range(fence))
                .chain(plan.compares.iter().map(|one| range(&one.key)))
                .chain(read_head)
                .collect(),
        }
    }

    /// Finds out why a transaction was refused.
    async fn refused(
        &self,
        fence: &mut Fence,
        fence_at: i64,
        response: TxnResponse,
        txn: &Txn,
    ) -> Result<Attempt> {
        let at = response.header.as_ref().map_or(0, |header| header.revision);
        let mut found = ranges_of(response).into_iter().map(|range| range.kvs.into_iter().next());
        if found.next().flatten().map_or(0, |kv| kv.mod_revision) != fence_at {
            // The fence was removed. Nothing was committed through it.
            return Ok(Attempt::Again);
        }
        fence.at = Some(fence_at);
        let found: Vec<Option<KeyValue>> = found.collect();
        for (condition, now) in txn.conditions.iter().zip(&found) {
            match (condition, now) {
                (Condition::Absent(key), Some(_)) => {
                    return Err(conflict(
                        key,
                        self.position_at(key, at).await?.map(|(position, _)| position),
                    ));
                }
                (Condition::Absent(_), None) => {}
                (Condition::At(key, _), None) => return Err(conflict(key, None)),
                (Condition::At(key, wanted), Some(_)) => {
                    let Some((position, physical)) = self.position_at(key, at).await? else {
                        return Err(conflict(key, None));
                    };
                    if position.revision() != wanted.revision() {
                        return Err(conflict(key, Some(position)));
                    }
                    // It has its position in its header.
                    self.note_placed(key, position, physical);
                }
            }
        }
        let must_exist = must_exist(txn).zip(found.iter().skip(txn.conditions.len()));
        match must_exist.into_iter().find(|(_, now)| now.is_none()) {
            Some((key, _)) => Err(conflict(key, None)),
            None => Ok(Attempt::Again),
        }
    }

    /// The position of a key at a revision of etcd, and the revision of its last change.
    async fn position_at(&self, key: &Arc<str>, revision: i64) -> Result<Option<(Position, i64)>> {
        let request = RangeRequest { revision, ..one(self.keys.data(key)) };
        let read = match self.range(request).await {
            // The key was compacted in the meantime: its present state tells as much.
            Err(status) if rpc::is_compacted(&status).is_some() => {
                self.range(one(self.keys.data(key))).await
            }
            read => read,
        };
        let found = self.noted(read)?.kvs.into_iter().next();
        let timeline = self.timeline();
        Ok(found.map(|kv| {
            let position =
                Stored::decode(&kv.value).map(|stored| stored.position(&timeline, kv.mod_revision));
            let of_corrupt = || Position::new(timeline.logical(kv.mod_revision), 0);
            (position.unwrap_or_else(of_corrupt), kv.mod_revision)
        }))
    }

    /// Resolves the outcome of a transaction: the revision of etcd at which it was committed, or at which its fence was
    /// moved on; and which of the two. `None` if that cannot be known, or if etcd does not answer.
    async fn resolve(
        &self,
        fence: &Bytes,
        at: i64,
        id: [u8; TRANSACTION_ID_BYTES],
        is_full: bool,
    ) -> Option<(i64, bool)> {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        if is_full {
            // It has answered, so the transaction is done or refused. It takes neither another fence nor, in some
            // versions, a transaction that only reads.
            let read = self.range(one(fence.clone())).await.ok()?;
            let found = read.kvs.first();
            let committed = found.filter(|kv| *kv.value == id).map(|kv| (kv.mod_revision, true));
            return Some(committed.unwrap_or((at, false)));
        }
        let other = Bytes::copy_from_slice(&new_id().ok()?);
        let moved = PutRequest { key: fence.clone(), value: other.clone(), lease: 0 };
        let request = TxnRequest {
            compare: vec![is_at(fence.clone(), at)],
            success: vec![op(Request::Put(moved))],
            failure: vec![one_range(fence)],
        };
        loop {
            let result: std::result::Result<TxnResponse, Status> =
                self.client.call(rpc::TXN, request.clone()).await;
            match result {
                Ok(response) if response.succeeded => {
                    return Some((response.header.map_or(0, |header| header.revision), false));
                }
                Ok(response) => {
                    let found = ranges_of(response).into_iter().next()?.kvs.into_iter().next()?;
                    if *found.value == id {
                        return Some((found.mod_revision, true));
                    }
                    // An earlier attempt to resolve it has moved the fence, and its answer was lost. Any other value
                    // is from a late request to prepare the fence. It may have come before the transaction or after.
                    return (found.value == other).then_some((found.mod_revision, false));
                }
                Err(status) if Instant::now() < deadline => {
                    tracing::warn!(
                        "the outcome of a transaction is not known yet: {}",
                        rpc::explain(&status)
                    );
                    sleep(RESOLVE_PAUSE).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// Removes fences that nothing has passed since a revision of etcd. Most of them are of processes that have ended. A
    /// process that still has one makes it again: until then, nothing is committed through it.
    pub(crate) async fn remove_old_fences(&self, until: i64) -> Result<()> {
        let (key, range_end) = self.keys.fences();
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: i64::try_from(FENCES).unwrap_or(i64::MAX),
                keys_only: true,
                max_mod_revision: until,
                ..RangeRequest::default()
            };
            let old = self.noted(self.range(request).await)?.kvs;
            let compare = old.iter().map(|kv| is_at(kv.key.clone(), kv.mod_revision)).collect();
            let success = old.iter().map(|kv| delete(kv.key.clone(), Bytes::new())).collect();
            let request = TxnRequest { compare, success, failure: Vec::new() };
            let response: TxnResponse = self.noted(self.client.call(rpc::TXN, request).await)?;
            // If one of them was used in between, the rest goes at the next compaction.
            if old.len() < FENCES || !response.succeeded {
                return Ok(());
            }
        }
    }

    /// Evaluates the conditions of a transaction without changes. Returns the newest revision.
    pub(crate) async fn check(&self, txn: &Txn) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            let plan = self.plan(txn).await?;
            let range = |key: &Bytes| {
                op(Request::Range(RangeRequest { keys_only: true, ..one(key.clone()) }))
            };
            // After a move of the data, the conditions say nothing.
            let is_there = self.must_exist().then(|| exists(self.keys.own("format")));
            let request = TxnRequest {
                compare: plan.compares.iter().cloned().chain(is_there).collect(),
                success: vec![op(Request::Range(self.head_range()))],
                // In place of a fence, so that both kinds of responses are read in one way.
                failure: std::iter::once(range(&self.keys.head()))
                    .chain(plan.compares.iter().map(|one| range(&one.key)))
                    .collect(),
            };
            let floor = self.floor();
            let response: TxnResponse = self.noted(self.client.read(rpc::TXN, request).await)?;
            let at = response.header.as_ref().map_or(0, |header| header.revision);
            if response.succeeded {
                return Ok(self.now_of(&ranges_of(response), at, floor).await?.revision);
            }
            let head = ranges_of(response.clone())
                .into_iter()
                .next()
                .and_then(|range| range.kvs.into_iter().next());
            let head_at = head.map_or(0, |head| head.mod_revision);
            let mut none = Fence { number: 0, at: None };
            self.refused(&mut none, head_at, response, txn).await?;
            self.now().await?;
        }
        Err(Error::Unavailable("the values of the conditions keep being rewritten".to_owned()))
    }

    /// Runs the gate, if there is one.
    pub(crate) async fn pass_gate(&self) -> Result<()> {
        match self.gate.get() {
            Some(gate) => gate.get().await,
            None => Ok(()),
        }
    }

    /// The conditions and changes of a transaction in etcd's terms.
    async fn plan(&self, txn: &Txn) -> Result<Plan> {
        let timeline = self.timeline();
        let mut compares = Vec::with_capacity(txn.conditions.len());
        for condition in &txn.conditions {
            compares.push(match condition {
                Condition::Absent(key) => is_at(self.keys.data(key), 0),
                Condition::At(key, position) => {
                    is_at(self.keys.data(key), self.physical_of(key, *position))
                }
            });
        }
        compares.extend(must_exist(txn).map(|key| exists(self.keys.data(key))));
        let mut changes = Vec::with_capacity(txn.changes.len());
        for (index, change) in (0_u8..).zip(&txn.changes) {
            changes.push(match change {
                Change::Put { key, value } => put(self.keys.data(key), encode(index, None, value)),
                Change::Delete { key } => {
                    let key = self.keys.data(key);
                    Request::DeleteRange(DeleteRangeRequest {
                        key,
                        ..DeleteRangeRequest::default()
                    })
                }
                Change::Rewrite { key, value } => {
                    let (position, compare) = self.rewritten(key, &timeline).await?;
                    // The rewrite is of this state and no other, which says more than a condition on its position.
                    match condition_at(txn, key) {
                        None => compares.push(compare),
                        Some((_, wanted)) if wanted.revision() != position.revision() => {
                            return Err(conflict(key, Some(position)));
                        }
                        Some((number, _)) => compares[number] = compare,
                    }
                    put(self.keys.data(key), encode(index, Some(position), value))
                }
            });
        }
        // With the fence.
        if compares.len() + 1 > MAX_COMPARES {
            return Err(Error::Invalid(format!(
                "a transaction on etcd has at most {MAX_COMPARES} conditions and removed keys"
            )));
        }
        Ok(Plan { compares, changes })
    }

    /// The position of a value that is rewritten, and the condition that it was not changed since.
    async fn rewritten(&self, key: &Arc<str>, timeline: &Timeline) -> Result<(Position, Compare)> {
        let (found, _) = self.key(self.keys.data(key)).await?;
        let found = found.ok_or_else(|| conflict(key, None))?;
        let (position, _) = crate::layout::decode(key, &found, timeline)?;
        Ok((position, is_at(self.keys.data(key), found.mod_revision)))
    }
}

/// The number of the condition that a key is at a position, and the position.
fn condition_at(txn: &Txn, key: &Arc<str>) -> Option<(usize, Position)> {
    txn.conditions.iter().enumerate().find_map(|(number, condition)| match condition {
        Condition::At(other, position) if other == key => Some((number, *position)),
        _ => None,
    })
}

/// A transaction in etcd's terms, without its fence and its head. The conditions come first, then those that a key
/// exists, then those of rewrites.
struct Plan {
    compares: Vec<Compare>,
    changes: Vec<Request>,
}

/// The entry in the last range of a response.
fn last_range(response: &TxnResponse) -> Option<&KeyValue> {
    match response.responses.last()?.response.as_ref()? {
        Response::Range(range) => range.kvs.first(),
        _ => None,
    }
}

impl Plan {
    /// Whether etcd takes one more condition, with that on the fence: the one on the head.
    fn has_room(&self) -> bool {
        self.compares.len() + 2 <= MAX_COMPARES
    }
}

/// The keys that must exist because the transaction removes them, where no condition says so.
fn must_exist(txn: &Txn) -> impl Iterator<Item = &Arc<str>> {
    let has_condition = |key: &Arc<str>| {
        txn.conditions
            .iter()
            .any(|condition| matches!(condition, Condition::At(other, _) if other == key))
    };
    txn.changes.iter().filter_map(move |change| match change {
        Change::Delete { key } if !has_condition(key) => Some(key),
        _ => None,
    })
}

fn put(key: Bytes, value: Bytes) -> Request {
    Request::Put(PutRequest { key, value, lease: 0 })
}

fn one_range(key: &Bytes) -> crate::proto::RequestOp {
    op(Request::Range(one(key.clone())))
}

fn new_id() -> Result<[u8; TRANSACTION_ID_BYTES]> {
    let mut id = [0; TRANSACTION_ID_BYTES];
    rand::fill(&mut id)
        .map_err(|_| Error::Unavailable("the system has no random bytes".to_owned()))?;
    Ok(id)
}

fn conflict(key: &Arc<str>, found: Option<Position>) -> Error {
    Error::Conflict { key: Arc::clone(key), found }
}
