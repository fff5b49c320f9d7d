//! From `Acting` to `InFlightPermit`: is there a seat for this request?
//!
//! Flow control limits the requests in flight, the open watches of a key and, under overload, the
//! connections whose reads are admitted. What is over a limit is rejected with 429
//! and `Retry-After`, so that the requests that were admitted are done in time. Health checks are
//! not counted. Three things keep an overload from hurting everybody:
//!
//! - **A reserve.** The last tenth of the seats is not for those who cause the overload: an owner
//!   of keys who has no request in flight can have any of it, and a connection with its first few
//!   requests can have half of it. So an operator is admitted while another client, even with the
//!   same key, sends ten times what the server can do. And no client can take all seats, however
//!   many connections it opens.
//! - **Delayed rejection.** A rejected client that comes again at once would cost as much as one
//!   that is served. So the response to it is delayed for a moment. When more connections have
//!   delayed rejections than there are seats for writes, rejecting takes its share of the
//!   processors, and half of the seats are left free for that.
//! - **Random admission.** Reads are served from memory and are hardly ever in flight for long:
//!   with more active connections than seats, requests wait where nothing counts them, until a
//!   thread has time for them. When all threads are busy as well, only some connections are
//!   admitted, at random and for a short time: half as many as there are seats. The reads of all
//!   others are rejected. A small share of reads is guaranteed to each owner and to new
//!   connections, so that a client that does not cause the overload does not notice it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postern_kinds::Verb;
use postern_meta::status::ApiError;
use tokio::time::MissedTickBehavior;

const RETRY_AFTER_SECONDS: u32 = 1;

/// One seat in this many is kept in reserve for those who do not cause an overload.
const RESERVE_PART: usize = 10;

/// A connection counts as new for this many requests, as long as none was rejected.
const NEW_FOR_REQUESTS: u32 = 20;

/// The shortest delay of a rejection; the longest is twice as long. The delays differ, so that
/// clients that were rejected together do not come again together.
const REJECTION_DELAY: Duration = Duration::from_millis(400);

/// Rejections that are delayed at the same time; more than these are sent without a delay.
const MAX_DELAYED: usize = 20_000;

/// How often active connections are counted. It is longer than a request takes with as many
/// requests as there are seats, so that every active connection is counted.
const OVERLOAD_INTERVAL: Duration = Duration::from_millis(100);

/// How long random admission admits a connection, in intervals: as long as the average delay of a
/// rejection. So the share of connections that is admitted is also the share that is active.
const ADMISSION_INTERVALS: u32 = 6;

/// Threads that work for more than this many hundredths of the time are busy.
const BUSY_HUNDREDTHS: u32 = 90;

/// The admission probability without an overload, in thousandths.
const ADMIT_ALL: u32 = 1000;

/// The golden ratio's fraction of 2^64. Its multiples are spread evenly (a Weyl sequence), which is
/// all the randomness that is needed here.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// The limits of flow control.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read, in flight at once. kube-apiserver's default is 400.
    pub reading: usize,
    /// Requests that write, in flight at once. kube-apiserver's default is 200.
    pub writing: usize,
    /// Open watches of one access key.
    pub watches_per_key: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reading: 400, writing: 200, watches_per_key: 1000 }
    }
}

/// What flow control knows about a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    requests: AtomicU32,
    rejected: AtomicBool,
    /// The last interval in which it was active.
    active_in: AtomicU32,
    /// The interval in which its random admission ends.
    admitted_until: AtomicU32,
    /// Its requests whose rejection is being delayed, by [`Class`].
    delayed: [AtomicU32; 2],
}

impl ConnectionState {
    /// Returns the state of a connection that has just been opened.
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU32::new(0),
            rejected: AtomicBool::new(false),
            active_in: AtomicU32::new(0),
            admitted_until: AtomicU32::new(0),
            delayed: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// Counts a request. Returns whether the connection is new.
    fn count_request(&self) -> bool {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        requests < NEW_FOR_REQUESTS && !self.rejected.load(Ordering::Relaxed)
    }
}

/// The state of flow control.
pub(crate) struct Flow {
    limits: Limits,
    reading: InFlightLimiter,
    writing: InFlightLimiter,
    watches: Arc<Mutex<HashMap<String, usize>>>,
    interval: AtomicU32,
    /// Connections that had a read admitted in this interval.
    active_connections: AtomicUsize,
    /// What was admitted from the guaranteed shares in this interval.
    guaranteed: Mutex<GuaranteedShares>,
    /// The probability of a connection to be admitted, in thousandths.
    admission_probability: AtomicU32,
    delayed: AtomicUsize,
    /// Connections with requests whose rejection is being delayed, by [`Class`].
    delayed_connections: [AtomicUsize; 2],
    random_sequence: AtomicU64,
}

/// The class of a request: reads and writes have limits of their own.
#[derive(Clone, Copy)]
enum Class {
    Reads,
    Writes,
}

/// Reads that were admitted under overload without random admission.
#[derive(Default)]
struct GuaranteedShares {
    by_owner: HashMap<String, usize>,
    for_owners: usize,
    for_new_connections: usize,
}

/// A rejection that is being delayed. It ends early when the client closes the connection.
struct DelayedRejection<'a> {
    flow: &'a Flow,
    connection: &'a ConnectionState,
    class: Class,
}

impl<'a> DelayedRejection<'a> {
    fn new(flow: &'a Flow, connection: &'a ConnectionState, class: Class) -> Self {
        flow.delayed.fetch_add(1, Ordering::Relaxed);
        if connection.delayed[class as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            flow.delayed_connections[class as usize].fetch_add(1, Ordering::Relaxed);
        }
        Self { flow, connection, class }
    }
}

impl Drop for DelayedRejection<'_> {
    fn drop(&mut self) {
        let class = self.class as usize;
        self.flow.delayed.fetch_sub(1, Ordering::Relaxed);
        if self.connection.delayed[class].fetch_sub(1, Ordering::Relaxed) == 1 {
            self.flow.delayed_connections[class].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The seats for requests in flight of one class.
#[derive(Clone)]
struct InFlightLimiter {
    limit: usize,
    seats: Arc<Mutex<SeatsTaken>>,
}

/// How many seats are taken.
#[derive(Default)]
struct SeatsTaken {
    total: usize,
    by_owner: HashMap<String, usize>,
}

/// A seat among the requests in flight. It is given back on drop.
pub(crate) struct InFlightPermit {
    seats: Arc<Mutex<SeatsTaken>>,
    owner: String,
}

/// One of the open watches of a key. It is given back on drop.
pub(crate) struct WatchPermit {
    watches: Arc<Mutex<HashMap<String, usize>>>,
    key: String,
}

impl InFlightLimiter {
    fn new(limit: usize) -> Self {
        Self { limit, seats: Arc::default() }
    }

    /// Returns a seat, when one is free for this owner: `headroom` and the reserve may not be.
    fn acquire(
        &self,
        owner: &str,
        is_new_connection: bool,
        headroom: usize,
    ) -> Option<InFlightPermit> {
        let mut seats = self.seats.lock();
        let of_owner = seats.by_owner.get(owner).copied().unwrap_or_default();
        let reserve = self.limit / RESERVE_PART;
        let kept_free = match (of_owner, is_new_connection) {
            (0, _) => 0,
            (_, true) => headroom + reserve.div_ceil(2),
            (_, false) => headroom + reserve,
        };
        if seats.total >= self.limit - kept_free {
            return None;
        }
        seats.total += 1;
        seats.by_owner.insert(owner.to_owned(), of_owner + 1);
        drop(seats);
        Some(InFlightPermit { seats: self.seats.clone(), owner: owner.to_owned() })
    }
}

impl Flow {
    /// Returns flow control with nothing in flight.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            reading: InFlightLimiter::new(limits.reading),
            writing: InFlightLimiter::new(limits.writing),
            watches: Arc::default(),
            interval: AtomicU32::new(1),
            active_connections: AtomicUsize::new(0),
            guaranteed: Mutex::default(),
            admission_probability: AtomicU32::new(ADMIT_ALL),
            delayed: AtomicUsize::new(0),
            delayed_connections: [AtomicUsize::new(0), AtomicUsize::new(0)],
            random_sequence: AtomicU64::new(0),
        }
    }

    /// Returns a seat for a request that came over this connection with a key of this owner. A
    /// rejection is delayed, which is why this is async.
    ///
    /// # Errors
    /// 429 when no seat is free, or when random admission did not admit the connection.
    pub(crate) async fn acquire(
        &self,
        verb: Option<Verb>,
        owner: &str,
        connection: &ConnectionState,
    ) -> Result<InFlightPermit, ApiError> {
        let is_new = connection.count_request();
        let class = match verb {
            None | Some(Verb::Get | Verb::List | Verb::Watch) => Class::Reads,
            Some(_) => Class::Writes,
        };
        let permit = match class {
            Class::Reads if self.is_admitted(owner, connection, is_new) => {
                self.reading.acquire(owner, is_new, 0).inspect(|_| self.note_active(connection))
            }
            Class::Reads => None,
            Class::Writes => self.writing.acquire(owner, is_new, self.write_headroom()),
        };
        if let Some(permit) = permit {
            return Ok(permit);
        }
        connection.rejected.store(true, Ordering::Relaxed);
        self.delay_rejection(connection, class).await;
        Err(ApiError::too_many_requests(
            "Too many requests, please try again later.",
            RETRY_AFTER_SECONDS,
        ))
    }

    /// Returns how many seats for writes are left free while many connections are rejected.
    fn write_headroom(&self) -> usize {
        let delayed = self.delayed_connections[Class::Writes as usize].load(Ordering::Relaxed);
        if delayed > self.limits.writing { self.limits.writing / 2 } else { 0 }
    }

    /// Returns whether this connection may have a read in flight. Under overload, random admission
    /// decides.
    fn is_admitted(&self, owner: &str, connection: &ConnectionState, is_new: bool) -> bool {
        let probability = self.admission_probability.load(Ordering::Relaxed);
        let now = self.interval.load(Ordering::Relaxed);
        if probability >= ADMIT_ALL || now < connection.admitted_until.load(Ordering::Relaxed) {
            return true;
        }
        if self.take_guaranteed(owner, is_new) {
            return true;
        }
        let admitted = self.random_below(ADMIT_ALL.into()) < u64::from(probability);
        if admitted {
            connection.admitted_until.store(now + ADMISSION_INTERVALS, Ordering::Relaxed);
        }
        admitted
    }

    /// Takes a read out of the guaranteed shares. Returns whether one was left. In each interval,
    /// the share of an owner is a twentieth of the seats; that of all owners together is half of
    /// the seats, and that of all new connections a twentieth.
    fn take_guaranteed(&self, owner: &str, is_new: bool) -> bool {
        let share = (self.limits.reading / RESERVE_PART).div_ceil(2);
        let mut guaranteed = self.guaranteed.lock();
        if is_new && guaranteed.for_new_connections < share {
            guaranteed.for_new_connections += 1;
            return true;
        }
        let of_owner = guaranteed.by_owner.get(owner).copied().unwrap_or_default();
        if of_owner >= share || guaranteed.for_owners >= self.limits.reading / 2 {
            return false;
        }
        guaranteed.for_owners += 1;
        guaranteed.by_owner.insert(owner.to_owned(), of_owner + 1);
        true
    }

    /// Returns the next number of a sequence that is spread evenly over 0 to `end`.
    fn random_below(&self, end: u64) -> u64 {
        let next = self.random_sequence.fetch_add(GOLDEN_RATIO, Ordering::Relaxed);
        ((next.wrapping_add(GOLDEN_RATIO) >> 32) * end) >> 32
    }

    async fn delay_rejection(&self, connection: &ConnectionState, class: Class) {
        let delayed = DelayedRejection::new(self, connection, class);
        if self.delayed.load(Ordering::Relaxed) <= MAX_DELAYED {
            let most = u64::try_from(REJECTION_DELAY.as_micros()).unwrap_or(u64::MAX);
            let more = Duration::from_micros(self.random_below(most));
            tokio::time::sleep(REJECTION_DELAY + more).await;
        }
        drop(delayed);
    }

    fn note_active(&self, connection: &ConnectionState) {
        let now = self.interval.load(Ordering::Relaxed);
        if connection.active_in.swap(now, Ordering::Relaxed) != now {
            self.active_connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks for overload, and sets the admission probability, until it is dropped.
    pub(crate) async fn watch_overload(&self) {
        let mut ticks = tokio::time::interval(OVERLOAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let metrics = tokio::runtime::Handle::current().metrics();
        let busy =
            || (0..metrics.num_workers()).map(|n| metrics.worker_total_busy_duration(n)).sum();
        let (mut last, mut busy_until_last): (_, Duration) = (ticks.tick().await, busy());
        loop {
            let now = ticks.tick().await;
            let busy_until_now: Duration = busy();
            let worked = busy_until_now.saturating_sub(busy_until_last);
            let workers = u32::try_from(metrics.num_workers()).unwrap_or(u32::MAX);
            let available = (now - last) * workers;
            self.interval.fetch_add(1, Ordering::Relaxed);
            *self.guaranteed.lock() = GuaranteedShares::default();
            let active = self.active_connections.swap(0, Ordering::Relaxed);
            let delayed = self.delayed_connections[Class::Reads as usize].load(Ordering::Relaxed);
            self.adjust_admission(active + delayed, worked * 100 > available * BUSY_HUNDREDTHS);
            (last, busy_until_last) = (now, busy_until_now);
        }
    }

    /// Sets the admission probability for this many competing connections. While the threads are
    /// busy, it admits half as many connections as there are seats, since rejecting the others
    /// takes time, too. It grows in each interval in which the threads are not busy.
    fn adjust_admission(&self, connections: usize, busy: bool) {
        let probability = self.admission_probability.load(Ordering::Relaxed);
        let next = if busy {
            let overload = connections > self.limits.reading;
            let part = self.limits.reading / 2 * ADMIT_ALL as usize / connections.max(1);
            if overload { u32::try_from(part).unwrap_or(ADMIT_ALL) } else { ADMIT_ALL }
        } else {
            probability + probability / 4 + 1
        };
        self.admission_probability.store(next.clamp(1, ADMIT_ALL), Ordering::Relaxed);
    }

    /// Returns how many requests are in flight: reads, and writes.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        (self.reading.seats.lock().total, self.writing.seats.lock().total)
    }

    /// Returns a permit for one more open watch of a key.
    ///
    /// # Errors
    /// 429 when the key has as many as it may have.
    pub(crate) fn acquire_watch(&self, key: &str) -> Result<WatchPermit, ApiError> {
        let mut watches = self.watches.lock();
        let open = watches.entry(key.to_owned()).or_default();
        if *open >= self.limits.watches_per_key {
            return Err(ApiError::too_many_requests(
                format!(
                    "this access key has {open} open watches, the most that it may have: close \
                     some"
                ),
                RETRY_AFTER_SECONDS,
            ));
        }
        *open += 1;
        Ok(WatchPermit { watches: self.watches.clone(), key: key.to_owned() })
    }
}

/// Counts one less under a name, and removes a name whose count is zero.
fn count_down(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut seats = self.seats.lock();
        seats.total -= 1;
        count_down(&mut seats.by_owner, &self.owner);
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        count_down(&mut self.watches.lock(), &self.key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn flow(seats: usize) -> Flow {
        Flow::new(Limits { reading: seats, writing: seats, watches_per_key: 1 })
    }

    /// Returns a connection that is no longer new.
    fn old_connection() -> ConnectionState {
        let connection = ConnectionState::new();
        connection.requests.store(NEW_FOR_REQUESTS, Ordering::Relaxed);
        connection
    }

    #[tokio::test(start_paused = true)]
    async fn seats_are_given_back() {
        let flow = flow(1);
        let connection = ConnectionState::new();
        let permit = flow.acquire(Some(Verb::Get), "k", &connection).await.unwrap();
        assert_eq!(flow.in_flight(), (1, 0));
        let rejected = flow.acquire(Some(Verb::List), "k", &connection).await.err().unwrap();
        assert_eq!((rejected.code(), rejected.retry_after_seconds()), (429, Some(1)));
        let other = flow.acquire(Some(Verb::Create), "k", &connection).await;
        assert!(other.is_ok(), "writes have seats of their own");
        drop(permit);
        assert!(flow.acquire(None, "k", &connection).await.is_ok());

        let watch = flow.acquire_watch("k").unwrap();
        let rejected = flow.acquire_watch("k").err().unwrap();
        assert_eq!((rejected.code(), rejected.retry_after_seconds()), (429, Some(1)));
        assert!(flow.acquire_watch("other").is_ok());
        drop(watch);
        assert!(flow.acquire_watch("k").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_for_those_who_do_not_cause_the_overload() {
        let flow = flow(40);
        let (connection, mut permits) = (old_connection(), Vec::new());
        while let Ok(permit) = flow.acquire(None, "busy", &connection).await {
            permits.push(permit);
        }
        assert_eq!(permits.len(), 36);
        while let Ok(permit) = flow.acquire(None, "busy", &ConnectionState::new()).await {
            permits.push(permit);
        }
        assert_eq!(permits.len(), 38, "new connections get a half of it");
        let permit = flow.acquire(None, "other", &old_connection()).await.unwrap();
        let second = flow.acquire(None, "other", &old_connection()).await;
        assert!(second.is_err(), "this owner has a seat already");
        assert!(flow.acquire(None, "third", &old_connection()).await.is_ok());
        drop((permits, permit));
        assert_eq!(flow.in_flight(), (0, 0));
        assert!(flow.reading.seats.lock().by_owner.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_ends_the_delay_of_its_rejection() {
        let flow = flow(1);
        let (connection, other) = (old_connection(), old_connection());
        let _permit = flow.acquire(None, "k", &connection).await.unwrap();
        let mut waiting: Vec<_> = [&connection, &connection, &other]
            .map(|connection| Box::pin(flow.acquire(None, "k", connection)))
            .into();
        for one in &mut waiting {
            let waits = tokio::time::timeout(Duration::ZERO, one).await;
            assert!(waits.is_err());
        }
        let connections = &flow.delayed_connections[Class::Reads as usize];
        let delayed =
            || (flow.delayed.load(Ordering::Relaxed), connections.load(Ordering::Relaxed));
        assert_eq!(delayed(), (3, 2), "three requests of two connections");
        waiting.truncate(1);
        assert_eq!(delayed(), (1, 1));
        drop(waiting);
        assert_eq!(delayed(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_is_delayed() {
        let flow = flow(1);
        let connection = old_connection();
        let _permit = flow.acquire(None, "k", &connection).await.unwrap();
        let start = Instant::now();
        assert!(flow.acquire(None, "k", &connection).await.is_err());
        let delay = start.elapsed();
        let longest = REJECTION_DELAY * 2 + Duration::from_millis(1);
        assert!(delay >= REJECTION_DELAY && delay <= longest, "{delay:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_of_writes_leaves_half_of_the_seats_free() {
        let flow = flow(20);
        let connections: Vec<ConnectionState> = (0..60).map(|_| old_connection()).collect();
        let acquire = |connection| flow.acquire(Some(Verb::Create), "busy", connection);
        let mut permits = Vec::new();
        let mut delayed: Vec<_> = Vec::new();
        for connection in &connections {
            let mut one = Box::pin(acquire(connection));
            match tokio::time::timeout(Duration::ZERO, &mut one).await {
                Ok(permit) => permits.push(permit.unwrap()),
                Err(_) => delayed.push(one),
            }
        }
        assert_eq!((permits.len(), delayed.len()), (18, 42));
        permits.truncate(9);
        assert!(acquire(&connections[0]).await.is_err(), "half of the seats are left free");
        let read = flow.acquire(Some(Verb::Get), "busy", &connections[0]).await;
        assert!(read.is_ok(), "reads are not concerned");
        let other = flow.acquire(Some(Verb::Create), "admin", &connections[0]).await;
        assert!(other.is_ok(), "nor is an owner who does not cause the overload");
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_of_reads_is_admitted_at_random() {
        let flow = flow(100);
        let connections: Vec<ConnectionState> = (0..500).map(|_| old_connection()).collect();
        let is_admitted =
            |connection: &ConnectionState| flow.is_admitted("busy", connection, false);
        flow.adjust_admission(500, false);
        assert!(connections.iter().all(is_admitted), "there is time for all");
        flow.adjust_admission(100, true);
        assert!(connections.iter().all(is_admitted), "and there are seats for these");

        flow.adjust_admission(500, true);
        let guaranteed = (0..5).filter(|_| flow.take_guaranteed("busy", false)).count();
        assert_eq!(guaranteed, 5, "the guaranteed share");
        let admitted: Vec<&ConnectionState> =
            connections.iter().filter(|connection| is_admitted(connection)).collect();
        assert!((45..=55).contains(&admitted.len()), "about a tenth: {}", admitted.len());
        assert!(admitted.iter().all(|connection| is_admitted(connection)), "admission lasts");
        flow.interval.fetch_add(ADMISSION_INTERVALS, Ordering::Relaxed);
        let again = admitted.iter().filter(|connection| is_admitted(connection)).count();
        assert!(again < admitted.len() / 2, "and ends: {again}");

        flow.adjust_admission(1_000_000, true);
        let rejected = flow.acquire(None, "busy", &old_connection()).await;
        assert!(rejected.is_err(), "a connection that is not admitted is rejected");
        let admin = (0..6).filter(|_| flow.take_guaranteed("admin", false)).count();
        assert_eq!(admin, 5, "an owner who does not cause the overload does not notice it");
        let new = (0..6).filter(|_| flow.take_guaranteed("busy", true)).count();
        assert_eq!(new, 5, "nor does a connection that is new");
        let others = (0..100).filter(|n| flow.take_guaranteed(&n.to_string(), false)).count();
        assert_eq!(others, 40, "as long as all owners together do not cause one");

        for _ in 0..30 {
            flow.adjust_admission(500, false);
        }
        assert!(connections.iter().all(is_admitted));
    }
}
