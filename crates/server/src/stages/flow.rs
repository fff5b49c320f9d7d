//! How much may go on at once: requests in flight, watches of one key, connections at work.
//!
//! What is over a limit is refused with 429 and `Retry-After`, so that the work that was taken on
//! is done in time. Health checks are not counted. Three things keep the surplus from hurting:
//!
//! - **A reserve.** The last tenth of the places goes only to whoever is not part of the crowd: the
//!   whole of it to an owner of keys who has nothing in flight, half of it to connections with their
//!   first few requests. So an operator gets in while somebody else, even with the same key, sends
//!   ten times what can be carried; and nobody can take all places, however he connects.
//! - **Holding.** A refused client that comes again at once would cost as much as one that is
//!   served, so the answer to it waits a moment. With more connections waiting so than there are
//!   places for writes, refusing takes its share of the processors, and half of the places are
//!   left free for that.
//! - **Crowding.** Reads are answered out of memory and are hardly ever in flight for long: with
//!   more connections at work than there are places, they wait unseen until the server gets around
//!   to them. When all its threads are busy besides, connections draw lots for turns, half as
//!   many as there are places, and those that lose are refused. Each owner has some requests let in
//!   without a turn, so that one whose connections are no part of the crowd does not notice it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postern_kinds::Verb;
use postern_meta::status::ApiError;
use tokio::time::MissedTickBehavior;

const RETRY_AFTER_SECONDS: u32 = 1;

/// One place in so many is reserved for those who are not part of the crowd.
const RESERVE_PART: usize = 10;

/// A connection is new for so many requests, if none was refused.
const NEW_FOR_REQUESTS: u32 = 20;

/// A refused request is held for this long, and up to twice as long, so that those which were
/// refused together do not come again together.
const HOLD: Duration = Duration::from_millis(400);

/// Refused requests that are held at once; more are answered at once.
const MAX_HELD: usize = 20_000;

/// How often it is looked how many connections are at work: longer than a request takes when
/// there are as many as places, so that each shows.
const CROWD_INTERVAL: Duration = Duration::from_millis(100);

/// A connection's turn, in intervals: as long as a refused one is held on average, so that of all
/// connections the part that wins is the part that is at work.
const TURN_INTERVALS: u32 = 6;

/// Threads that work for more than so many hundredths of the time are busy.
const BUSY_HUNDREDTHS: u32 = 90;

/// The chance of a connection for which there is room.
const CERTAIN: u32 = 1000;

/// The golden ratio's fraction of 2^64: its multiples are spread evenly, which is all the
/// randomness that is needed here.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The limits.
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

/// A connection, as far as flow control cares.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    requests: AtomicU32,
    refused: AtomicBool,
    /// The interval in which it was at work last.
    interval: AtomicU32,
    /// The interval in which its turn ends.
    turn_end: AtomicU32,
    /// Its requests that are held: those that read, those that write.
    held: [AtomicU32; 2],
}

impl ConnectionState {
    /// One that has just been opened.
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU32::new(0),
            refused: AtomicBool::new(false),
            interval: AtomicU32::new(0),
            turn_end: AtomicU32::new(0),
            held: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// Notes a request. Returns whether the connection is new.
    fn is_new(&self) -> bool {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        requests < NEW_FOR_REQUESTS && !self.refused.load(Ordering::Relaxed)
    }
}

/// What is going on.
pub(crate) struct Flow {
    limits: Limits,
    reading: Places,
    writing: Places,
    watches: Arc<Mutex<HashMap<String, usize>>>,
    interval: AtomicU32,
    /// Connections with requests that were let in, in this interval.
    at_work: AtomicUsize,
    /// Requests that were let in without a turn, in this interval.
    early: Mutex<Early>,
    /// The chance of a connection without a turn to get one, in thousandths.
    chance: AtomicU32,
    held: AtomicUsize,
    /// Connections with requests that are held: that read, that write.
    held_lines: [AtomicUsize; 2],
    spread: AtomicU64,
}

/// What a request does, as far as flow control cares.
#[derive(Clone, Copy)]
enum Class {
    Reads,
    Writes,
}

/// Who was let in without a turn.
#[derive(Default)]
struct Early {
    of_owner: HashMap<String, usize>,
    from_owners: usize,
    from_new: usize,
}

/// A refused request that waits for its answer; no longer, when its client has gone.
struct Held<'a> {
    flow: &'a Flow,
    line: &'a ConnectionState,
    class: Class,
}

impl<'a> Held<'a> {
    fn new(flow: &'a Flow, line: &'a ConnectionState, class: Class) -> Self {
        flow.held.fetch_add(1, Ordering::Relaxed);
        if line.held[class as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            flow.held_lines[class as usize].fetch_add(1, Ordering::Relaxed);
        }
        Self { flow, line, class }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let class = self.class as usize;
        self.flow.held.fetch_sub(1, Ordering::Relaxed);
        if self.line.held[class].fetch_sub(1, Ordering::Relaxed) == 1 {
            self.flow.held_lines[class].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Places for requests in flight, and who has them.
#[derive(Clone)]
struct Places {
    limit: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of_owner: HashMap<String, usize>,
}

/// A place among the requests in flight; given back when dropped.
pub(crate) struct Place {
    taken: Arc<Mutex<Taken>>,
    owner: String,
}

/// A place among the open watches of a key; given back when dropped.
pub(crate) struct WatchSlot {
    watches: Arc<Mutex<HashMap<String, usize>>>,
    key: String,
}

impl Places {
    fn new(limit: usize) -> Self {
        Self { limit, taken: Arc::default() }
    }

    /// A place for somebody, when fewer are taken than `limit` without what is kept back.
    fn enter(&self, owner: &str, is_new: bool, squeezed: usize) -> Option<Place> {
        let mut taken = self.taken.lock();
        let of_owner = taken.of_owner.get(owner).copied().unwrap_or_default();
        let reserve = self.limit / RESERVE_PART;
        let kept_back = match (of_owner, is_new) {
            (0, _) => 0,
            (_, true) => squeezed + reserve.div_ceil(2),
            (_, false) => squeezed + reserve,
        };
        if taken.all >= self.limit - kept_back {
            return None;
        }
        taken.all += 1;
        taken.of_owner.insert(owner.to_owned(), of_owner + 1);
        drop(taken);
        Some(Place { taken: self.taken.clone(), owner: owner.to_owned() })
    }
}

impl Flow {
    /// With nothing going on.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            reading: Places::new(limits.reading),
            writing: Places::new(limits.writing),
            watches: Arc::default(),
            interval: AtomicU32::new(1),
            at_work: AtomicUsize::new(0),
            early: Mutex::default(),
            chance: AtomicU32::new(CERTAIN),
            held: AtomicUsize::new(0),
            held_lines: [AtomicUsize::new(0), AtomicUsize::new(0)],
            spread: AtomicU64::new(0),
        }
    }

    /// A place among the requests in flight, for a request of this owner's over this connection.
    /// What is refused is held for a moment, which is why this takes its time.
    ///
    /// # Errors
    /// 429 when there is none.
    pub(crate) async fn enter(
        &self,
        verb: Option<Verb>,
        owner: &str,
        line: &ConnectionState,
    ) -> Result<Place, ApiError> {
        let is_new = line.is_new();
        let class = match verb {
            None | Some(Verb::Get | Verb::List | Verb::Watch) => Class::Reads,
            Some(_) => Class::Writes,
        };
        let place = match class {
            Class::Reads if self.has_turn(owner, line, is_new) => {
                self.reading.enter(owner, is_new, 0).inspect(|_| self.note_at_work(line))
            }
            Class::Reads => None,
            Class::Writes => self.writing.enter(owner, is_new, self.squeezed()),
        };
        if let Some(place) = place {
            return Ok(place);
        }
        line.refused.store(true, Ordering::Relaxed);
        self.hold(line, class).await;
        Err(ApiError::too_many_requests(
            "Too many requests, please try again later.",
            RETRY_AFTER_SECONDS,
        ))
    }

    /// Places for writes that are left free while a crowd is refused.
    fn squeezed(&self) -> usize {
        let held_lines = self.held_lines[Class::Writes as usize].load(Ordering::Relaxed);
        if held_lines > self.limits.writing { self.limits.writing / 2 } else { 0 }
    }

    /// May this connection be at work? When there is a crowd, it draws lots for a turn.
    fn has_turn(&self, owner: &str, line: &ConnectionState, is_new: bool) -> bool {
        let chance = self.chance.load(Ordering::Relaxed);
        let now = self.interval.load(Ordering::Relaxed);
        if chance >= CERTAIN || now < line.turn_end.load(Ordering::Relaxed) {
            return true;
        }
        if self.is_early(owner, is_new) {
            return true;
        }
        let wins = self.spread_below(CERTAIN.into()) < u64::from(chance);
        if wins {
            line.turn_end.store(now + TURN_INTERVALS, Ordering::Relaxed);
        }
        wins
    }

    /// Is it let in without a turn? In each interval, so many requests of each owner are as make a
    /// twentieth of the places, and as many from connections that are new; of all owners together
    /// half the places.
    fn is_early(&self, owner: &str, is_new: bool) -> bool {
        let reserve = (self.limits.reading / RESERVE_PART).div_ceil(2);
        let mut early = self.early.lock();
        if is_new && early.from_new < reserve {
            early.from_new += 1;
            return true;
        }
        let of_owner = early.of_owner.get(owner).copied().unwrap_or_default();
        if of_owner >= reserve || early.from_owners >= self.limits.reading / 2 {
            return false;
        }
        early.from_owners += 1;
        early.of_owner.insert(owner.to_owned(), of_owner + 1);
        true
    }

    /// The next of numbers that are spread evenly.
    fn spread_below(&self, end: u64) -> u64 {
        let next = self.spread.fetch_add(SPREAD, Ordering::Relaxed).wrapping_add(SPREAD);
        ((next >> 32) * end) >> 32
    }

    async fn hold(&self, line: &ConnectionState, class: Class) {
        let held = Held::new(self, line, class);
        if self.held.load(Ordering::Relaxed) <= MAX_HELD {
            let most = u64::try_from(HOLD.as_micros()).unwrap_or(u64::MAX);
            tokio::time::sleep(HOLD + Duration::from_micros(self.spread_below(most))).await;
        }
        drop(held);
    }

    fn note_at_work(&self, line: &ConnectionState) {
        let now = self.interval.load(Ordering::Relaxed);
        if line.interval.swap(now, Ordering::Relaxed) != now {
            self.at_work.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks for crowds for as long as it runs.
    pub(crate) async fn watch_overload(&self) {
        let mut ticks = tokio::time::interval(CROWD_INTERVAL);
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
            let could = (now - last) * workers;
            self.interval.fetch_add(1, Ordering::Relaxed);
            *self.early.lock() = Early::default();
            let at_work = self.at_work.swap(0, Ordering::Relaxed);
            let held = self.held_lines[Class::Reads as usize].load(Ordering::Relaxed);
            self.adjust(at_work + held, worked * 100 > could * BUSY_HUNDREDTHS);
            (last, busy_until_last) = (now, busy_until_now);
        }
    }

    /// Gives `wanting` connections a chance for half as many turns as there are places, since
    /// refusing the others takes time, too; a greater one each time while there is time left.
    fn adjust(&self, wanting: usize, busy: bool) {
        let chance = self.chance.load(Ordering::Relaxed);
        let next = if busy {
            let crowd = wanting > self.limits.reading;
            let part = self.limits.reading / 2 * CERTAIN as usize / wanting.max(1);
            if crowd { u32::try_from(part).unwrap_or(CERTAIN) } else { CERTAIN }
        } else {
            chance + chance / 4 + 1
        };
        self.chance.store(next.clamp(1, CERTAIN), Ordering::Relaxed);
    }

    /// Requests in flight: those that read, those that write.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        (self.reading.taken.lock().all, self.writing.taken.lock().all)
    }

    /// A place among the open watches of a key.
    ///
    /// # Errors
    /// 429 when there is none.
    pub(crate) fn enter_watch(&self, key: &str) -> Result<WatchSlot, ApiError> {
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
        Ok(WatchSlot { watches: self.watches.clone(), key: key.to_owned() })
    }
}

/// One less for somebody; those with none are forgotten.
fn count_down(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.all -= 1;
        count_down(&mut taken.of_owner, &self.owner);
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        count_down(&mut self.watches.lock(), &self.key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn flow(places: usize) -> Flow {
        Flow::new(Limits { reading: places, writing: places, watches_per_key: 1 })
    }

    /// A connection that is no longer new.
    fn old_line() -> ConnectionState {
        let line = ConnectionState::new();
        line.requests.store(NEW_FOR_REQUESTS, Ordering::Relaxed);
        line
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_given_back() {
        let flow = flow(1);
        let line = ConnectionState::new();
        let place = flow.enter(Some(Verb::Get), "k", &line).await.unwrap();
        assert_eq!(flow.in_flight(), (1, 0));
        let refused = flow.enter(Some(Verb::List), "k", &line).await.err().unwrap();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(1)));
        let other = flow.enter(Some(Verb::Create), "k", &line).await;
        assert!(other.is_ok(), "writes have places of their own");
        drop(place);
        assert!(flow.enter(None, "k", &line).await.is_ok());

        let slot = flow.enter_watch("k").unwrap();
        let refused = flow.enter_watch("k").err().unwrap();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(1)));
        assert!(flow.enter_watch("other").is_ok());
        drop(slot);
        assert!(flow.enter_watch("k").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_for_those_who_are_not_the_crowd() {
        let flow = flow(40);
        let (crowd, mut places) = (old_line(), Vec::new());
        while let Ok(place) = flow.enter(None, "crowd", &crowd).await {
            places.push(place);
        }
        assert_eq!(places.len(), 36);
        while let Ok(place) = flow.enter(None, "crowd", &ConnectionState::new()).await {
            places.push(place);
        }
        assert_eq!(places.len(), 38, "new connections get a half of it");
        let place = flow.enter(None, "other", &old_line()).await.unwrap();
        let second = flow.enter(None, "other", &old_line()).await;
        assert!(second.is_err(), "he has a place already");
        assert!(flow.enter(None, "third", &old_line()).await.is_ok());
        drop((places, place));
        assert_eq!(flow.in_flight(), (0, 0));
        assert!(flow.reading.taken.lock().of_owner.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_is_no_longer_held() {
        let flow = flow(1);
        let (line, other) = (old_line(), old_line());
        let _place = flow.enter(None, "k", &line).await.unwrap();
        let mut waiting: Vec<_> =
            [&line, &line, &other].map(|line| Box::pin(flow.enter(None, "k", line))).into();
        for one in &mut waiting {
            let waits = tokio::time::timeout(Duration::ZERO, one).await;
            assert!(waits.is_err());
        }
        let held_lines = &flow.held_lines[Class::Reads as usize];
        let held = || (flow.held.load(Ordering::Relaxed), held_lines.load(Ordering::Relaxed));
        assert_eq!(held(), (3, 2), "three requests of two connections");
        waiting.truncate(1);
        assert_eq!(held(), (1, 1));
        drop(waiting);
        assert_eq!(held(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_request_is_held() {
        let flow = flow(1);
        let line = old_line();
        let _place = flow.enter(None, "k", &line).await.unwrap();
        let begin = Instant::now();
        assert!(flow.enter(None, "k", &line).await.is_err());
        let held = begin.elapsed();
        assert!(held >= HOLD && held <= HOLD * 2 + Duration::from_millis(1), "{held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_writers_is_squeezed() {
        let flow = flow(20);
        let lines: Vec<ConnectionState> = (0..60).map(|_| old_line()).collect();
        let enter = |line| flow.enter(Some(Verb::Create), "crowd", line);
        let mut places = Vec::new();
        let mut held: Vec<_> = Vec::new();
        for line in &lines {
            let mut one = Box::pin(enter(line));
            match tokio::time::timeout(Duration::ZERO, &mut one).await {
                Ok(place) => places.push(place.unwrap()),
                Err(_) => held.push(one),
            }
        }
        assert_eq!((places.len(), held.len()), (18, 42));
        places.truncate(9);
        assert!(enter(&lines[0]).await.is_err(), "half of the places are left free");
        let read = flow.enter(Some(Verb::Get), "crowd", &lines[0]).await;
        assert!(read.is_ok(), "reads are not concerned");
        let other = flow.enter(Some(Verb::Create), "admin", &lines[0]).await;
        assert!(other.is_ok(), "nor who is no part of the crowd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_draws_lots_for_turns() {
        let flow = flow(100);
        let lines: Vec<ConnectionState> = (0..500).map(|_| old_line()).collect();
        let has_turn = |line: &ConnectionState| flow.has_turn("crowd", line, false);
        flow.adjust(500, false);
        assert!(lines.iter().all(has_turn), "there is time for all");
        flow.adjust(100, true);
        assert!(lines.iter().all(has_turn), "and places for these");

        flow.adjust(500, true);
        assert_eq!((0..5).filter(|_| flow.is_early("crowd", false)).count(), 5, "without a turn");
        let winners: Vec<&ConnectionState> = lines.iter().filter(|line| has_turn(line)).collect();
        assert!((45..=55).contains(&winners.len()), "about a tenth: {}", winners.len());
        assert!(winners.iter().all(|line| has_turn(line)), "a turn lasts");
        flow.interval.fetch_add(TURN_INTERVALS, Ordering::Relaxed);
        let again = winners.iter().filter(|line| has_turn(line)).count();
        assert!(again < winners.len() / 2, "and ends: {again}");

        flow.adjust(1_000_000, true);
        assert!(flow.enter(None, "crowd", &old_line()).await.is_err(), "who has none is refused");
        let admin = (0..6).filter(|_| flow.is_early("admin", false)).count();
        assert_eq!(admin, 5, "who is no part of the crowd does not notice it");
        let new = (0..6).filter(|_| flow.is_early("crowd", true)).count();
        assert_eq!(new, 5, "nor does a connection that is new");
        let others = (0..100).filter(|n| flow.is_early(&n.to_string(), false)).count();
        assert_eq!(others, 40, "as long as they are not a crowd together");

        for _ in 0..30 {
            flow.adjust(500, false);
        }
        assert!(lines.iter().all(has_turn));
    }
}
