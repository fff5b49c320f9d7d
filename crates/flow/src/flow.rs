//! `Flow`: the state of flow control, and what a request takes from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postern_kinds::Verb;
use postern_meta::status::ApiError;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};

use super::account::{Accounts, OwnerAccount, Seat as InFlightPermit};
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

/// Requests of one owner that wait, besides those that have a seat: kube-apiserver has as many in
/// flight.
const READS_WAITING_PER_OWNER: usize = 400;
const WRITES_WAITING_PER_OWNER: usize = 200;
const PROXIED_WAITING_PER_OWNER: usize = 400;

/// The part of the seats that one owner has at most. Whatever has a seat waits for a thread before those who
/// come later, and reads wait for nothing else: a few of them keep all threads busy, and more would only make
/// others wait. Writes wait for the disk together.
const READS_SHARE: usize = 8;
const WRITES_SHARE: usize = 4;
const PROXIED_SHARE: usize = 2;
const SYSTEM_SHARE: usize = 1;
const LARGE_SHARE: usize = 2;

/// The part of the seats for writes that stays free when one owner writes alone. More writes in flight share a
/// commit, and the next owner finds a seat.
const WRITES_RESERVE: usize = 4;

/// Requests to clusters that wait for the heads of their answers, at once. They cost little but memory.
const PROXIED_SEATS: usize = 512;

/// Requests of all owners that wait.
const MOST_WAITING: usize = 10_000;

/// Seats for `system:masters`, of each class.
const SYSTEM_SEATS: usize = 16;

/// Requests at once that need much processor time: two, since every machine can do that and still
/// answer others.
const LARGE_SEATS: usize = 2;

/// Strangers who wait for the store.
const STRANGERS_WAITING: usize = 64;

/// The shortest delay of a rejection; the longest is twice as long. The delays differ, so that
/// clients that were rejected together do not come again together.
const REJECTION_DELAY: Duration = Duration::from_millis(500);
const REJECTION_STEPS: u32 = 64;

/// Rejections that are delayed at the same time; more than these are sent without a delay.
const MAX_DELAYED: usize = 10_000;

/// How often the queue for threads is measured, and from which time on it is long. It is far above
/// what a full server without overload has, and below what a client notices.
const QUEUE_INTERVAL: Duration = Duration::from_millis(10);
const LONG_QUEUE: Duration = Duration::from_millis(5);

/// Bytes of bodies of requests that are on their way: several of the longest for each owner, a quarter for one alone.
const BODY_BYTES: ByteLimits = ByteLimits { total: 96 * 1024 * 1024, free_times: 3 };

/// Bytes of responses that clients have not taken yet, and of streams until they have: a third for one owner alone.
const RESPONSE_BYTES: ByteLimits = ByteLimits { total: 144 * 1024 * 1024, free_times: 2 };

/// The limits of flow control.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read, in flight at once. One owner has at most an eighth of them.
    pub reading: usize,
    /// Requests that write, in flight at once. One owner has at most a quarter of them next to others, and three quarters alone.
    pub writing: usize,
    /// Open watches of one owner of access keys.
    pub watches_per_owner: usize,
    /// Bytes of objects that one owner writes in a minute. It does not hold for `system:masters`.
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

/// The class of a request: each has seats of its own.
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
    seats: [Arc<FairQueue>; 3],
    /// By [`Class`].
    system: [Arc<FairQueue>; 3],
    large: Arc<FairQueue>,
    large_threads: Arc<LargeThreads>,
    queued_threads: QueuedThreads,
    accounts: Mutex<Accounts>,
    /// The account of all clients without a valid key.
    unauthenticated: Arc<OwnerAccount>,
    contention: Arc<Contention>,
    /// Bytes of bodies of requests.
    pub bodies: Arc<ByteBudget>,
    /// Bytes of responses.
    pub responses: Arc<ByteBudget>,
    /// Strangers who wait for the store before it is known who they are.
    pub strangers: Semaphore,
    /// The bytes that owners write.
    pub write_rate: WriteRate,
    /// The bytes that the server copies for owners by secret sync. They are counted separately: a caller that
    /// changes a source must not keep an owner from writing.
    pub copy_rate: WriteRate,
    has_slow_threads: AtomicBool,
    runtime: RuntimeMetrics,
    delayed: AtomicUsize,
    rejections: AtomicU32,
}

/// The requests and bytes in flight now.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowCounts {
    /// Reads that have a seat, and that wait for one.
    pub reads: (usize, usize),
    /// Writes that have a seat, and that wait for one.
    pub writes: (usize, usize),
    /// Requests to clusters that have a seat, and that wait for one.
    pub proxied: (usize, usize),
    /// Bytes of bodies of requests.
    pub body_bytes: usize,
    /// Bytes of responses.
    pub response_bytes: usize,
}

/// One of the open watches of an owner, or one of the owner's requests to a cluster. It is given back on drop.
pub struct WatchPermit {
    account: Arc<OwnerAccount>,
}

/// A rejection that is being delayed. It ends early when the client closes the connection.
struct DelayedRejection<'a>(&'a AtomicUsize);

impl Drop for DelayedRejection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limits of a queue of which one owner has at most this share of the seats.
fn class_limits(seats: usize, share: usize, waiting_per_owner: usize) -> QueueLimits {
    let seats_per_owner = seats.div_ceil(share);
    QueueLimits {
        seats,
        seats_per_owner,
        seats_alone: seats_per_owner,
        waiting_per_owner,
        waiting: MOST_WAITING,
        wait: LONGEST_WAIT,
    }
}

impl Flow {
    /// Makes flow control with nothing in flight, for the runtime that it is called in.
    pub fn new(limits: Limits) -> Self {
        let waiting =
            [READS_WAITING_PER_OWNER, WRITES_WAITING_PER_OWNER, PROXIED_WAITING_PER_OWNER];
        let [reads, writes, proxied] = waiting;
        let contention = Arc::<Contention>::default();
        let queue = |index, limits| FairQueue::new(limits, index, contention.clone());
        let mut writes = class_limits(limits.writing, WRITES_SHARE, writes);
        writes.seats_alone = writes.seats - writes.seats / WRITES_RESERVE;
        Self {
            limits,
            seats: [
                queue(0, class_limits(limits.reading, READS_SHARE, reads)),
                queue(1, writes),
                queue(2, class_limits(PROXIED_SEATS, PROXIED_SHARE, proxied)),
            ],
            system: [3, 4, 5].map(|index| {
                queue(index, class_limits(SYSTEM_SEATS, SYSTEM_SHARE, waiting[index - 3]))
            }),
            large: queue(6, class_limits(LARGE_SEATS, LARGE_SHARE, READS_WAITING_PER_OWNER)),
            large_threads: LargeThreads::start(LARGE_SEATS),
            queued_threads: QueuedThreads::start(),
            accounts: Mutex::default(),
            unauthenticated: OwnerAccount::new(""),
            contention,
            bodies: ByteBudget::new(BytesOf::Bodies, BODY_BYTES),
            responses: ByteBudget::new(BytesOf::Responses, RESPONSE_BYTES),
            strangers: Semaphore::new(STRANGERS_WAITING),
            write_rate: WriteRate::new(WrittenBy::Requests, limits.write_bytes_per_owner),
            copy_rate: WriteRate::new(WrittenBy::SecretSync, limits.write_bytes_per_owner),
            has_slow_threads: AtomicBool::new(false),
            runtime: Handle::current().metrics(),
            delayed: AtomicUsize::new(0),
            rejections: AtomicU32::new(0),
        }
    }

    /// A seat for a request.
    ///
    /// # Errors
    /// 429 when the owner's queue is full, or when they waited too long.
    pub async fn acquire(
        &self,
        verb: Option<Verb>,
        requester: &Requester,
    ) -> Result<InFlightPermit, ApiError> {
        let class = Class::of(verb);
        let seat = self.seat(class, requester).await.ok_or_else(too_many_requests)?;
        if class == Class::Reads && !seat.has_waited() && self.has_long_queue() {
            tokio::task::yield_now().await;
        }
        Ok(seat)
    }

    /// A seat for a request to a cluster, which it needs until the head of the answer is there.
    ///
    /// # Errors
    /// As [`Flow::acquire`].
    pub async fn acquire_proxied(&self, requester: &Requester) -> Result<InFlightPermit, ApiError> {
        self.seat(Class::Proxied, requester).await.ok_or_else(too_many_requests)
    }

    async fn seat(&self, class: Class, requester: &Requester) -> Option<InFlightPermit> {
        requester.account.requests.add();
        // The address of the account is that of no other owner.
        self.contention.note(Arc::as_ptr(&requester.account) as u64);
        let seats = &self.seats[class as usize];
        if requester.is_system {
            let free = seats.try_acquire(&requester.account);
            let free = free.or_else(|| self.system[class as usize].try_acquire(&requester.account));
            if free.is_some() {
                return free;
            }
        }
        // No request waits for a system seat, or a later one would pass it.
        seats.acquire(&requester.account).await
    }

    /// Carries out a request that has waited for its seat.
    ///
    /// # Errors
    /// 500 when it panics.
    pub async fn run_queued<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queued_threads.run(work).await
    }

    /// The account of an owner of keys. Keep it for as long as the connection lasts.
    pub fn account(&self, owner: &str) -> Arc<OwnerAccount> {
        self.accounts.lock().of(owner, self.write_rate.bytes_per_minute())
    }

    /// The owners with most requests lately, the busiest first. Their number is bounded.
    pub fn owners_with_most_requests(&self) -> Vec<OwnerRequests> {
        self.accounts.lock().most_requests()
    }

    /// A client without a valid key.
    pub fn unauthenticated(&self) -> Requester {
        Requester { account: self.unauthenticated.clone(), is_system: false }
    }

    /// Whether several owners send requests.
    pub fn has_contention(&self) -> bool {
        self.contention.get()
    }

    /// Serves a connection: on threads that give way to others for as long as its owner's requests wait for their seats.
    /// `waits` says so.
    ///
    /// # Errors
    /// 500 when it panics there.
    pub async fn serve<T: Send + 'static>(
        &self,
        waits: impl Fn() -> bool + Clone + Send + Sync + 'static,
        connection: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queued_threads.serve(waits, connection).await
    }

    /// Begins a stream of a connection, on the threads on which that is served.
    pub fn begin_stream(
        &self,
        waits: impl Fn() -> bool + Send + Sync + 'static,
        stream: impl Future<Output = ()> + Send + 'static,
    ) {
        self.queued_threads.begin(waits, stream);
    }

    /// The queue and the threads for an owner's work that takes much processor time.
    pub fn large_work(&self, account: Arc<OwnerAccount>) -> LargeWork {
        LargeWork::new(self.large_threads.clone(), self.large.clone(), account)
    }

    /// Waits for a moment before a rejection is sent. Each wait is a step longer than the one before,
    /// up to twice the shortest.
    pub async fn delay_rejection(&self) {
        let before = self.delayed.fetch_add(1, Ordering::Relaxed);
        let _delayed = DelayedRejection(&self.delayed);
        if before < MAX_DELAYED {
            let step = self.rejections.fetch_add(1, Ordering::Relaxed) % REJECTION_STEPS;
            tokio::time::sleep(REJECTION_DELAY * (REJECTION_STEPS + step) / REJECTION_STEPS).await;
        }
    }

    /// Is the queue for threads long? A thread's own queue holds 256 tasks at most; those beyond are
    /// in one that all threads share, and wait longest.
    fn has_long_queue(&self) -> bool {
        self.has_slow_threads.load(Ordering::Relaxed) || self.runtime.global_queue_depth() > 0
    }

    /// Measures the threads' own queues, until it is dropped: how long a task that could go on waits
    /// until it does.
    pub async fn watch_queue(&self) {
        let mut ticks = tokio::time::interval(QUEUE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let start = Instant::now();
            tokio::task::yield_now().await;
            self.has_slow_threads.store(start.elapsed() > LONG_QUEUE, Ordering::Relaxed);
        }
    }

    /// The requests and bytes in flight.
    pub fn counts(&self) -> FlowCounts {
        let of = |class: Class| {
            let (seats, system) = (&self.seats[class as usize], &self.system[class as usize]);
            let ((taken, waiting), more) = (seats.counts(), system.counts());
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

    /// A permit for one more open watch of an owner, or one more of the owner's requests to a cluster.
    ///
    /// # Errors
    /// 429 when the owner has as many as they may have.
    pub fn acquire_watch(&self, account: &Arc<OwnerAccount>) -> Result<WatchPermit, ApiError> {
        let open = account.watches.fetch_add(1, Ordering::Relaxed);
        // Given back on drop, also when it is one too many.
        let permit = WatchPermit { account: account.clone() };
        if open >= self.limits.watches_per_owner {
            return Err(ApiError::too_many_requests(
                format!(
                    "the owner of this access key has {open} open watches, those through the gateway \
                     included, the most that they may have: close some"
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
    use super::*;

    fn flow(seats: usize) -> Flow {
        let limits =
            Limits { reading: seats, writing: seats, watches_per_owner: 1, ..Limits::default() };
        Flow::new(limits)
    }

    fn by(owner: &str) -> Requester {
        Requester { account: OwnerAccount::new(owner), is_system: false }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_and_writes_have_seats_of_their_own() {
        let (flow, k) = (flow(1), by("k"));
        let seat = flow.acquire(Some(Verb::Get), &k).await.unwrap();
        assert_eq!(flow.counts().reads, (1, 0));
        let rejected = flow.acquire(Some(Verb::List), &k).await.err().unwrap();
        assert_eq!((rejected.code(), rejected.retry_after_seconds()), (429, Some(1)));
        assert!(flow.acquire(Some(Verb::Create), &k).await.is_ok());
        drop(seat);
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
    async fn administrators_have_seats_in_reserve() {
        let flow = flow(2);
        let _all = [flow.acquire(None, &by("a")).await, flow.acquire(None, &by("b")).await];
        assert!(flow.acquire(None, &by("c")).await.is_err());
        let admin = Requester { is_system: true, ..by("admin") };
        let start = Instant::now();
        assert!(flow.acquire(None, &admin).await.is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO, "without a wait");
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
            "it ends with its client"
        );
    }
}
