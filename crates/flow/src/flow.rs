//! `Flow`: the state of flow control, and the slots, bytes and watches that requests take from it.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use postern_kinds::Verb;
use postern_meta::status::ApiError;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::account::{Accounts, OwnerAccount, OwnerLoad, Slot};
use super::budget::{ByteBudget, ByteLimits, BytesOf};
use super::fair_queue::{FairQueue, QueueLimits};
use super::large::{LargeThreads, LargeWork};
use super::owner_requests::OwnerRequests;
use super::queued::QueuedThreads;
use super::recent_load::Contention;
use super::requester::{RETRY_AFTER_SECONDS, Requester, too_many_requests};
use super::write_rate::{WriteRate, WrittenBy};

/// The longest wait in a queue.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The most waiting requests of one owner, in addition to those with a slot. kube-apiserver has as many in flight.
const READS_WAITING_PER_OWNER: usize = 400;
const WRITES_WAITING_PER_OWNER: usize = 200;
const PROXIED_WAITING_PER_OWNER: usize = 400;

/// The part of the slots that one owner may have, as numerator and denominator. Reads wait only for a thread: a few
/// keep all threads busy, and more would only make other owners wait. Writes wait for the disk together.
const MAX_READ_FRACTION: (usize, usize) = (1, 8);
const MAX_WRITE_FRACTION: (usize, usize) = (1, 4);
const MAX_PROXIED_FRACTION: (usize, usize) = (1, 2);
const MAX_SYSTEM_FRACTION: (usize, usize) = (1, 1);
const MAX_LARGE_FRACTION: (usize, usize) = (1, 2);

/// The part of the slots for writes that stays free when one owner writes alone. More writes in flight share a commit,
/// and the next owner finds a free slot.
const RESERVED_WRITE_FRACTION: (usize, usize) = (1, 4);

/// The most requests to clusters that wait for the head of the response. They cost memory and little else.
const PROXIED_SLOTS: usize = 512;

/// The most waiting requests of all owners.
const MOST_WAITING: usize = 10_000;

/// The reserved slots for `system:masters`, of each class.
const SYSTEM_SLOTS: usize = 16;

/// The queues in which a request waits for its slot: those of each class, and their system slots.
const REQUEST_QUEUES: Range<usize> = 0..6;

/// How many owners the metrics show.
const BUSIEST: usize = 5;

/// The slots for requests that need much processor time. Every machine can run two of them and still answer others.
const LARGE_SLOTS: usize = 2;

/// The most unauthenticated requests that wait for the store at once.
const MAX_UNAUTHENTICATED_WAITING: usize = 64;

/// The shortest delay of a rejection; the longest is twice as long. The delays differ, so that clients that were
/// rejected together do not retry together.
const REJECTION_DELAY: Duration = Duration::from_millis(500);
const REJECTION_STEPS: u32 = 64;

/// The most rejections that are delayed at once. Further ones are sent without a delay.
const MAX_DELAYED: usize = 10_000;

/// How often the queue for threads is measured: while requests are in flight, and otherwise, since each measurement wakes
/// a thread. And the wait from which it counts as long. A busy server without overload has far shorter waits, and no client
/// notices this one.
const QUEUE_INTERVAL: Duration = Duration::from_millis(10);
const IDLE_QUEUE_INTERVAL: Duration = Duration::from_millis(100);
const LONG_QUEUE: Duration = Duration::from_millis(5);

/// The limits of request bodies in memory. An owner can send several bodies of the maximum length at once. A single
/// owner can use a quarter.
const BODY_BYTES: ByteLimits = ByteLimits { total: 96 * 1024 * 1024, free_times: 3 };

/// The limits of responses, and their streams, that clients have not read yet. A single owner can use a third.
const RESPONSE_BYTES: ByteLimits = ByteLimits { total: 144 * 1024 * 1024, free_times: 2 };

/// The limits of flow control.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most reads in flight. One owner has at most an eighth of them.
    pub reading: usize,
    /// The most writes in flight. One owner has at most a quarter of them next to others, and three quarters alone.
    pub writing: usize,
    /// The most open watches of one owner of access keys.
    pub watches_per_owner: usize,
    /// The most bytes of objects that one owner writes in a minute. `system:masters` are exempt.
    pub write_bytes_per_owner: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reading: 64,
            writing: 64,
            watches_per_owner: 1000,
            write_bytes_per_owner: 256 * 1024 * 1024,
        }
    }
}

/// The class of a request. Each class has separate slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Reads,
    Writes,
    /// To clusters, through the gateway.
    Proxied,
}

impl Class {
    fn of(verb: Option<Verb>) -> Self {
        match verb {
            None | Some(Verb::Get | Verb::List | Verb::Watch) => Self::Reads,
            Some(_) => Self::Writes,
        }
    }
}

/// The state of flow control.
pub struct Flow {
    limits: Limits,
    /// By [`Class`].
    slots: [Arc<FairQueue>; 3],
    /// By [`Class`].
    system: [Arc<FairQueue>; 3],
    large: Arc<FairQueue>,
    large_threads: Arc<LargeThreads>,
    queued_threads: QueuedThreads,
    accounts: Mutex<Accounts>,
    /// The account that all unauthenticated clients share.
    unauthenticated: Arc<OwnerAccount>,
    contention: Arc<Contention>,
    /// Bytes of request bodies.
    pub bodies: Arc<ByteBudget>,
    /// Bytes of responses.
    pub responses: Arc<ByteBudget>,
    /// The unauthenticated requests that wait for the store.
    pub unauthenticated_permits: Semaphore,
    /// The bytes that owners write.
    pub write_rate: WriteRate,
    /// The bytes that secret sync copies for owners. They are counted separately: a caller that changes a source
    /// must not use up the write rate of another owner.
    pub copy_rate: WriteRate,
    has_slow_threads: AtomicBool,
    runtime: RuntimeMetrics,
    delayed: AtomicUsize,
    rejections: AtomicU32,
    /// The most watches that one owner may have open on this server.
    watches_per_owner: AtomicUsize,
}

/// The requests and bytes in flight now.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowCounts {
    /// Reads with a slot, and reads that wait for one.
    pub reads: (usize, usize),
    /// Writes with a slot, and writes that wait for one.
    pub writes: (usize, usize),
    /// Requests to clusters with a slot, and those that wait for one.
    pub proxied: (usize, usize),
    /// Bytes of request bodies.
    pub body_bytes: usize,
    /// Bytes of responses.
    pub response_bytes: usize,
}

/// The requests of one class since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QueueTotals {
    /// Those that had to wait for a slot.
    pub queued: u64,
    /// Those that got none: the queue was full, or the wait too long.
    pub rejected: u64,
}

/// The owners with most requests or watches now.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct BusiestOwners {
    /// Those with most requests, in flight and waiting together, the busiest first.
    pub by_requests: Vec<OwnerLoad>,
    /// The numbers of open watches of those with most, the largest first.
    pub by_watches: Vec<usize>,
}

/// One of the open watches of an owner, or one of the owner's requests to a cluster. It is released on drop.
pub struct WatchPermit {
    account: Arc<OwnerAccount>,
}

/// A rejection that is being delayed. The delay ends early when the client closes the connection.
struct DelayedRejection<'a>(&'a AtomicUsize);

impl Drop for DelayedRejection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limits of a queue in which one owner has at most this fraction of the slots.
fn class_limits(
    slots: usize,
    (numerator, denominator): (usize, usize),
    waiting_per_owner: usize,
) -> QueueLimits {
    let slots_per_owner = (slots * numerator).div_ceil(denominator);
    QueueLimits {
        slots,
        slots_per_owner,
        slots_alone: slots_per_owner,
        waiting_per_owner,
        waiting: MOST_WAITING,
        wait: LONGEST_WAIT,
    }
}

impl Flow {
    /// Flow control with nothing in flight. Call it in the runtime that serves the requests.
    pub fn new(limits: Limits) -> Self {
        let waiting =
            [READS_WAITING_PER_OWNER, WRITES_WAITING_PER_OWNER, PROXIED_WAITING_PER_OWNER];
        let [reads, writes, proxied] = waiting;
        let contention = Arc::<Contention>::default();
        let queue = |index, limits| FairQueue::new(limits, index, contention.clone());
        let mut writes = class_limits(limits.writing, MAX_WRITE_FRACTION, writes);
        let (numerator, denominator) = RESERVED_WRITE_FRACTION;
        writes.slots_alone = writes.slots - writes.slots * numerator / denominator;
        Self {
            limits,
            slots: [
                queue(0, class_limits(limits.reading, MAX_READ_FRACTION, reads)),
                queue(1, writes),
                queue(2, class_limits(PROXIED_SLOTS, MAX_PROXIED_FRACTION, proxied)),
            ],
            system: [3, 4, 5].map(|index| {
                queue(index, class_limits(SYSTEM_SLOTS, MAX_SYSTEM_FRACTION, waiting[index - 3]))
            }),
            large: queue(6, class_limits(LARGE_SLOTS, MAX_LARGE_FRACTION, READS_WAITING_PER_OWNER)),
            large_threads: LargeThreads::start(LARGE_SLOTS),
            queued_threads: QueuedThreads::start(),
            accounts: Mutex::default(),
            unauthenticated: OwnerAccount::new(""),
            contention,
            bodies: ByteBudget::new(BytesOf::Bodies, BODY_BYTES),
            responses: ByteBudget::new(BytesOf::Responses, RESPONSE_BYTES),
            unauthenticated_permits: Semaphore::new(MAX_UNAUTHENTICATED_WAITING),
            write_rate: WriteRate::new(WrittenBy::Requests, limits.write_bytes_per_owner),
            copy_rate: WriteRate::new(WrittenBy::SecretSync, limits.write_bytes_per_owner),
            has_slow_threads: AtomicBool::new(false),
            runtime: Handle::current().metrics(),
            delayed: AtomicUsize::new(0),
            rejections: AtomicU32::new(0),
            watches_per_owner: AtomicUsize::new(limits.watches_per_owner),
        }
    }

    /// A slot for a request.
    ///
    /// # Errors
    /// 429 when the owner's queue is full, or when the wait takes too long.
    pub async fn acquire(
        &self,
        verb: Option<Verb>,
        requester: &Requester,
    ) -> Result<Slot, ApiError> {
        let class = Class::of(verb);
        let slot = self.slot(class, requester).await.ok_or_else(too_many_requests)?;
        if class == Class::Reads && !slot.has_waited() && self.has_long_queue() {
            tokio::task::yield_now().await;
        }
        Ok(slot)
    }

    /// A slot for a request to a cluster. The request keeps it until the head of the response arrives.
    ///
    /// # Errors
    /// As [`Flow::acquire`].
    pub async fn acquire_proxied(&self, requester: &Requester) -> Result<Slot, ApiError> {
        self.slot(Class::Proxied, requester).await.ok_or_else(too_many_requests)
    }

    async fn slot(&self, class: Class, requester: &Requester) -> Option<Slot> {
        requester.account.requests.add();
        // The address of the account identifies the owner.
        self.contention.note(Arc::as_ptr(&requester.account) as u64);
        let slots = &self.slots[class as usize];
        if requester.is_system {
            let free = slots.try_acquire(&requester.account);
            let free = free.or_else(|| self.system[class as usize].try_acquire(&requester.account));
            if free.is_some() {
                return free;
            }
        }
        // No request waits for a system slot: a later request could overtake it.
        slots.acquire(&requester.account).await
    }

    /// Runs a request that has waited for its slot, on the low-priority threads.
    ///
    /// # Errors
    /// 500 when it panics.
    pub async fn run_queued<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queued_threads.run(work).await
    }

    /// The account of an owner of access keys. Keep it for as long as the connection lasts.
    pub fn account(&self, owner: &str) -> Arc<OwnerAccount> {
        self.accounts.lock().of(owner, self.write_rate.bytes_per_minute())
    }

    /// The owners with most requests recently, the busiest first. Their number is bounded.
    pub fn owners_with_most_requests(&self) -> Vec<OwnerRequests> {
        self.accounts.lock().most_requests()
    }

    /// The requester of unauthenticated clients.
    pub fn unauthenticated(&self) -> Requester {
        Requester { account: self.unauthenticated.clone(), is_system: false }
    }

    /// Whether several owners sent requests within the last second.
    pub fn has_contention(&self) -> bool {
        self.contention.get()
    }

    /// Serves a connection. While `waits` is true, it is served on the low-priority threads: its owner's requests wait
    /// for slots. It is boxed: each call that passes it on would keep room for it.
    ///
    /// # Errors
    /// 500 when it panics there.
    pub async fn serve<T: Send + 'static>(
        &self,
        waits: impl Fn() -> bool + Clone + Send + Sync + 'static,
        connection: BoxFuture<'static, T>,
    ) -> Result<T, ApiError> {
        self.queued_threads.serve(waits, connection).await
    }

    /// Starts a stream of a connection, on the threads that serve the connection.
    pub fn begin_stream(
        &self,
        waits: impl Fn() -> bool + Send + Sync + 'static,
        stream: impl Future<Output = ()> + Send + 'static,
    ) {
        self.queued_threads.begin(waits, stream);
    }

    /// The queue and the threads for an owner's work that needs much processor time.
    pub fn large_work(&self, account: Arc<OwnerAccount>) -> LargeWork {
        LargeWork::new(self.large_threads.clone(), self.large.clone(), account)
    }

    /// Waits before a rejection is sent. Each wait is a step longer than the one before, up to twice the shortest.
    pub async fn delay_rejection(&self) {
        let before = self.delayed.fetch_add(1, Ordering::Relaxed);
        let _delayed = DelayedRejection(&self.delayed);
        if before < MAX_DELAYED {
            let step = self.rejections.fetch_add(1, Ordering::Relaxed) % REJECTION_STEPS;
            tokio::time::sleep(REJECTION_DELAY * (REJECTION_STEPS + step) / REJECTION_STEPS).await;
        }
    }

    /// Whether the queue for threads is long. A thread's own queue holds at most 256 tasks. Further tasks are in a
    /// queue that all threads share, and wait the longest.
    fn has_long_queue(&self) -> bool {
        self.has_slow_threads.load(Ordering::Relaxed) || self.runtime.global_queue_depth() > 0
    }

    /// Measures the threads' own queues until it is dropped: how long a task that is ready waits for its thread.
    pub async fn watch_queue(&self) {
        loop {
            let is_idle =
                self.slots.iter().chain(&self.system).all(|slots| slots.counts() == (0, 0));
            let interval = if is_idle { IDLE_QUEUE_INTERVAL } else { QUEUE_INTERVAL };
            tokio::time::sleep(interval).await;
            let start = Instant::now();
            tokio::task::yield_now().await;
            self.has_slow_threads.store(start.elapsed() > LONG_QUEUE, Ordering::Relaxed);
        }
    }

    /// The requests and bytes in flight.
    pub fn counts(&self) -> FlowCounts {
        let of = |class: Class| {
            let (slots, system) = (&self.slots[class as usize], &self.system[class as usize]);
            let ((taken, waiting), more) = (slots.counts(), system.counts());
            (taken + more.0, waiting + more.1)
        };
        FlowCounts {
            reads: of(Class::Reads),
            writes: of(Class::Writes),
            proxied: of(Class::Proxied),
            body_bytes: self.bodies.used(),
            response_bytes: self.responses.used(),
        }
    }

    /// The requests that had to wait, and those that were rejected: reads, writes and requests to clusters.
    pub fn totals(&self) -> [QueueTotals; 3] {
        [Class::Reads, Class::Writes, Class::Proxied].map(|class| {
            let (queued, rejected) = self.slots[class as usize].totals();
            QueueTotals { queued, rejected }
        })
    }

    /// The owners with most requests, and those with most watches. Metrics show them without their names.
    pub fn busiest(&self) -> BusiestOwners {
        let mut by_requests = self.accounts.lock().loads(&REQUEST_QUEUES);
        let mut by_watches: Vec<usize> = by_requests.iter().map(|load| load.watches).collect();
        by_requests.sort_unstable_by_key(|load| Reverse(load.in_flight + load.waiting));
        by_watches.sort_unstable_by_key(|watches| Reverse(*watches));
        by_requests.truncate(BUSIEST);
        by_watches.truncate(BUSIEST);
        BusiestOwners { by_requests, by_watches }
    }

    /// Divides the limits of an owner among this many servers on one store: open watches and written bytes. Slots are
    /// not divided. They protect this server, and not the store.
    pub fn divide_among(&self, servers: usize) {
        let of_each = self.limits.watches_per_owner.div_ceil(servers.max(1));
        self.watches_per_owner.store(of_each, Ordering::Relaxed);
        self.write_rate.divide(servers);
        self.copy_rate.divide(servers);
    }

    /// The most watches that one owner may have open on this server.
    pub fn watches_per_owner(&self) -> usize {
        self.watches_per_owner.load(Ordering::Relaxed)
    }

    /// A permit for one more open watch of an owner, or for one more of the owner's requests to a cluster.
    ///
    /// # Errors
    /// 429 when the owner has reached the limit.
    pub fn acquire_watch(&self, account: &Arc<OwnerAccount>) -> Result<WatchPermit, ApiError> {
        let open = account.watches.fetch_add(1, Ordering::Relaxed);
        // It is released on drop, also when it exceeds the limit.
        let permit = WatchPermit { account: account.clone() };
        let limit = self.watches_per_owner();
        if open >= limit {
            return Err(ApiError::too_many_requests(
                format!(
                    "the owner of this access key has reached the limit of {limit} open watches, which includes \
                     requests through the gateway: close some of them"
                ),
                RETRY_AFTER_SECONDS,
            ));
        }
        Ok(permit)
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.account.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn flow(slots: usize) -> Flow {
        let limits =
            Limits { reading: slots, writing: slots, watches_per_owner: 1, ..Limits::default() };
        Flow::new(limits)
    }

    fn by(owner: &str) -> Requester {
        Requester { account: OwnerAccount::new(owner), is_system: false }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_and_writes_have_slots_of_their_own() {
        let (flow, k) = (flow(1), by("k"));
        let slot = flow.acquire(Some(Verb::Get), &k).await.unwrap();
        assert_eq!(flow.counts().reads, (1, 0));
        let rejected = flow.acquire(Some(Verb::List), &k).await.err().unwrap();
        assert_eq!((rejected.code(), rejected.retry_after_seconds()), (429, Some(1)));
        assert!(flow.acquire(Some(Verb::Create), &k).await.is_ok());
        drop(slot);
        assert!(flow.acquire(None, &k).await.is_ok());
        let to_cluster = flow.acquire_proxied(&k).await.unwrap();
        assert_eq!((flow.counts().proxied, flow.counts().reads), ((1, 0), (0, 0)));
        drop(to_cluster);
        assert_eq!(flow.counts(), FlowCounts::default());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_owner_also_when_they_are_rejected() {
        let flow = flow(1);
        let by = |owner: &str| Requester { account: flow.account(owner), is_system: false };
        let (a, b) = (by("a"), by("b"));
        let _seat = flow.acquire(None, &b).await.unwrap();
        assert!(flow.acquire(None, &a).await.is_err());
        flow.acquire_proxied(&a).await.unwrap();
        let _watch = flow.acquire_watch(&a.account).unwrap();
        let counted = flow.owners_with_most_requests();
        let of = |owner: &str, requests, watches| OwnerRequests {
            owner: Arc::from(owner),
            requests,
            watches,
        };
        assert_eq!(counted, [of("a", 2, 1), of("b", 1, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_of_an_owner_are_bounded() {
        let flow = flow(1);
        let (k, other) = (flow.account("k"), flow.account("other"));
        let watch = flow.acquire_watch(&k).unwrap();
        let rejected = flow.acquire_watch(&k).err().unwrap();
        assert_eq!((rejected.code(), rejected.retry_after_seconds()), (429, Some(1)));
        assert!(flow.acquire_watch(&other).is_ok());
        drop(watch);
        assert!(flow.acquire_watch(&k).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_busiest_owners_are_those_with_most_requests_and_watches() {
        let flow = flow(8);
        let by = |owner: &str| Requester { account: flow.account(owner), is_system: false };
        let (busy, calm, watching) = (by("busy"), by("calm"), by("watching"));
        let _watch = flow.acquire_watch(&watching.account).unwrap();
        let _own = flow.acquire(None, &calm).await.unwrap();
        let _slot = flow.acquire(None, &busy).await.unwrap();
        let mut waiting = flow.acquire(None, &busy).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        let found = flow.busiest();
        assert_eq!(
            found.by_requests[0],
            OwnerLoad { in_flight: 1, waiting: 1, watches: 0 },
            "one owner has one of eight slots"
        );
        assert_eq!(found.by_requests[1].in_flight, 1);
        assert_eq!((found.by_requests.len(), found.by_watches), (3, vec![1, 0, 0]));
        assert_eq!(flow.totals()[0], QueueTotals { queued: 1, rejected: 0 });
        assert!(waiting.await.is_err());
        assert_eq!(flow.totals()[0], QueueTotals { queued: 1, rejected: 1 });
        assert_eq!(flow.totals()[1], QueueTotals::default());
    }

    #[tokio::test(start_paused = true)]
    async fn administrators_have_slots_in_reserve() {
        let flow = flow(2);
        let _all = [flow.acquire(None, &by("a")).await, flow.acquire(None, &by("b")).await];
        assert!(flow.acquire(None, &by("c")).await.is_err());
        let admin = Requester { is_system: true, ..by("admin") };
        let start = Instant::now();
        assert!(flow.acquire(None, &admin).await.is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO, "the request did not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_is_delayed_and_the_delays_differ() {
        let flow = flow(1);
        let mut delays = Vec::new();
        for _ in 0..REJECTION_STEPS {
            let start = Instant::now();
            flow.delay_rejection().await;
            delays.push(start.elapsed());
        }
        let longest = REJECTION_DELAY * 2 + Duration::from_millis(1);
        assert!(delays.iter().all(|delay| *delay >= REJECTION_DELAY && *delay <= longest));
        assert!(delays.is_sorted() && delays.first() != delays.last());
        assert_eq!(flow.delayed.load(Ordering::Relaxed), 0);
        let left = tokio::time::timeout(Duration::from_millis(1), flow.delay_rejection()).await;
        assert!(
            left.is_err() && flow.delayed.load(Ordering::Relaxed) == 0,
            "the delay ends with its client"
        );
    }
}
