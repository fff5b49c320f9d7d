//! The open tunnels, and how many more are opened. At least two are idle at any time, and more if many are in use. So a
//! request finds one at once. After failures, the pauses grow from some milliseconds to a second.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The least and the most idle tunnels. Between them, there is one for each eight that are in use.
const MIN_IDLE: usize = 2;
const MAX_IDLE: usize = 8;
const BUSY_FOR_EACH_IDLE: usize = 8;

/// The most tunnels that are being opened at once.
const MAX_DIALLING: usize = 32;

/// The age after which a tunnel that is being opened no longer counts: packets may be lost, and the next attempt may be
/// faster.
const SLOW_DIAL: Duration = Duration::from_secs(1);

/// The pauses after failures: the first, the longest after failures of the network, and the longest after refusals.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// The attempts to reach a server that has no tunnel yet, after which there are pauses. A load balancer chooses the
/// server, and may choose the same one each time.
const MAX_SEARCHES: u32 = 16;
const SEARCH_INTERVAL: Duration = Duration::from_secs(15);

/// The longest time until the pool looks again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Why a tunnel could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection, or no answer.
    Network,
    /// The server is busy, or shuts down.
    Busy,
    /// The server knows no tunnels.
    TooOld,
    /// The server knows no version of the tunnel that this agent knows.
    NoCommonVersion,
    /// The access key may not open tunnels.
    NotAllowed,
    /// The Cluster takes no tunnels.
    NotWanted,
}

/// The state of the tunnels, for the condition of the Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The servers that there are tunnels to.
    pub(crate) connected: BTreeSet<String>,
    /// The servers that there should be tunnels to.
    pub(crate) missing: BTreeSet<String>,
    /// The last failure, if there is no tunnel.
    pub(crate) failure: Option<(Failure, String)>,
}

/// How many tunnels to open now, and when to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) dial: usize,
    pub(crate) next: Instant,
}

/// The tunnels of the agent.
pub(crate) struct Pool {
    max: usize,
    /// From which the lengths of pauses are derived.
    seed: u128,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    tunnels: HashMap<u64, Tunnel>,
    /// The number of requests that wait at the server, from its last message.
    waiting: usize,
    /// The failures since the last tunnel was opened.
    failures: u32,
    last_failure: Option<(Failure, String)>,
    not_before: Option<Instant>,
    /// The attempts to reach servers without a tunnel, since one was reached.
    searches: u32,
    last_search: Option<Instant>,
}

enum Tunnel {
    Dialling { since: Instant },
    Open { server: Arc<str>, is_busy: bool },
}

/// The place of one tunnel in the pool. It is free again when this is dropped.
pub(crate) struct Slot {
    pool: Arc<Pool>,
    id: u64,
}

impl Pool {
    /// A pool of at most `max` tunnels. `seed` is random.
    pub(crate) fn new(max: usize, seed: u128) -> Arc<Self> {
        Arc::new(Self { max, seed, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until something has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Bytes of a value that no other tunnel of this agent has.
    pub(crate) fn random(&self, of: u64) -> [u8; 16] {
        let part = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (self.seed, of, half).hash(&mut hasher);
            hasher.finish().to_be_bytes()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&part(0));
        bytes[8..].copy_from_slice(&part(1));
        bytes
    }

    /// How many tunnels are open, and how many of them are in use.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let open = state.tunnels.values().filter(|one| matches!(one, Tunnel::Open { .. })).count();
        let is_busy = |one: &&Tunnel| matches!(one, Tunnel::Open { is_busy: true, .. });
        (open, state.tunnels.values().filter(is_busy).count())
    }

    /// What to do now. `servers` are the names of all servers; empty if they are not known.
    pub(crate) fn plan(&self, servers: &[String], now: Instant) -> Plan {
        let mut state = self.state.lock();
        let State { tunnels, waiting, not_before, failures, .. } = &mut *state;
        let mut next = now + LONGEST_WAIT;
        if let Some(at) = not_before.filter(|at| *at > now) {
            return Plan { dial: 0, next: at };
        }
        let (mut dialling, mut recent) = (0, 0);
        let mut by_server: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for tunnel in tunnels.values() {
            match tunnel {
                Tunnel::Dialling { since } => {
                    dialling += 1;
                    if *since + SLOW_DIAL > now {
                        recent += 1;
                        next = next.min(*since + SLOW_DIAL);
                    }
                }
                Tunnel::Open { server, is_busy } => {
                    let (idle, busy) = by_server.entry(server.as_ref()).or_default();
                    *(if *is_busy { busy } else { idle }) += 1;
                }
            }
        }
        let wanted = |(idle, busy): &(usize, usize)| {
            (MIN_IDLE + busy / BUSY_FOR_EACH_IDLE).min(MAX_IDLE).saturating_sub(*idle)
        };
        let mut need: usize = by_server.values().map(wanted).sum();
        let is_missing = |server: &&String| !by_server.contains_key(server.as_str());
        let missing = servers.iter().filter(is_missing).count();
        if by_server.is_empty() {
            need = MIN_IDLE;
        }
        let open = tunnels.len() - dialling;
        need += std::mem::take(waiting);
        let may_search = missing > 0 && open > 0;
        if *failures > 0 {
            // One attempt is enough to see whether the server is back.
            need = need.min(1);
        }
        let mut dial = need.saturating_sub(recent);
        if dial == 0 && may_search && recent == 0 {
            dial = state.search(missing, now, &mut next);
        }
        let total = state.tunnels.len();
        let dial =
            dial.min(MAX_DIALLING.saturating_sub(dialling)).min(self.max.saturating_sub(total));
        Plan { dial, next: next.max(now + Duration::from_millis(1)) }
    }

    /// Begins to open a tunnel.
    pub(crate) fn dial(self: &Arc<Self>, now: Instant) -> Slot {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.tunnels.insert(id, Tunnel::Dialling { since: now });
        Slot { pool: self.clone(), id }
    }

    /// The present state. `servers` are the names of all servers.
    pub(crate) fn summary(&self, servers: &[String]) -> Summary {
        let state = self.state.lock();
        let name = |tunnel: &Tunnel| match tunnel {
            Tunnel::Open { server, .. } => Some(server.to_string()),
            Tunnel::Dialling { .. } => None,
        };
        let connected: BTreeSet<String> = state.tunnels.values().filter_map(name).collect();
        let missing = servers.iter().filter(|server| !connected.contains(*server)).cloned();
        let failure = state.last_failure.clone().filter(|_| connected.is_empty());
        Summary { missing: missing.collect(), connected, failure }
    }
}

impl State {
    /// The attempts to reach servers without a tunnel: some at once, then one now and then.
    fn search(&mut self, missing: usize, now: Instant, next: &mut Instant) -> usize {
        let pause = if self.searches < MAX_SEARCHES { FIRST_PAUSE } else { SEARCH_INTERVAL };
        let at = self.last_search.map_or(now, |last| last + pause);
        if at > now {
            *next = (*next).min(at);
            return 0;
        }
        self.last_search = Some(now);
        self.searches = self.searches.saturating_add(1);
        *next = (*next).min(now + pause);
        missing
    }
}

impl Slot {
    /// The number of the tunnel.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The tunnel is open, to this server.
    pub(crate) fn opened(&self, server: &str) {
        let mut state = self.pool.state.lock();
        let is_known = state.tunnels.values().any(
            |tunnel| matches!(tunnel, Tunnel::Open { server: known, .. } if **known == *server),
        );
        if !is_known {
            tracing::info!(server, "connected to the central server through a tunnel");
            state.searches = 0;
        }
        (state.failures, state.not_before, state.last_failure) = (0, None, None);
        state.tunnels.insert(self.id, Tunnel::Open { server: server.into(), is_busy: false });
        drop(state);
        self.pool.changed.notify_one();
    }

    /// The tunnel could not be opened.
    pub(crate) fn failed(&self, failure: Failure, why: &str) {
        let mut state = self.pool.state.lock();
        state.failures = state.failures.saturating_add(1);
        let longest = match failure {
            Failure::Network | Failure::Busy => LONGEST_PAUSE,
            _ => LONGEST_PAUSE_AFTER_REFUSAL,
        };
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(state.failures.min(16) - 1);
        let jitter = u32::from(self.pool.random(self.id)[0]) + 256;
        state.not_before = Some(Instant::now() + pause.min(longest) * jitter / 512);
        let is_new = state.last_failure.as_ref().is_none_or(|(last, _)| *last != failure);
        if is_new {
            tracing::warn!("no tunnel to the central server: {why}");
        }
        state.last_failure = Some((failure, why.to_owned()));
    }

    /// Sets whether a request is in the tunnel.
    pub(crate) fn set_busy(&self, busy: bool) {
        if let Some(Tunnel::Open { is_busy, .. }) = self.pool.state.lock().tunnels.get_mut(&self.id)
        {
            *is_busy = busy;
        }
        if busy {
            self.pool.changed.notify_one();
        }
    }

    /// So many requests wait at the server for a tunnel.
    pub(crate) fn set_waiting(&self, waiting: usize) {
        let mut state = self.pool.state.lock();
        state.waiting = state.waiting.max(waiting);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool.state.lock().tunnels.remove(&self.id);
        self.pool.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[String] = &[];

    fn open(pool: &Arc<Pool>, server: &str) -> Slot {
        let slot = pool.dial(Instant::now());
        slot.opened(server);
        slot
    }

    #[tokio::test(start_paused = true)]
    async fn two_are_idle_and_more_when_many_are_in_use() {
        let pool = Pool::new(100, 7);
        let dial = || pool.plan(NONE, Instant::now()).dial;
        assert_eq!(dial(), 2);
        let first = pool.dial(Instant::now());
        assert_eq!(dial(), 1, "one is being opened");
        first.opened("s");
        let second = open(&pool, "s");
        assert_eq!(dial(), 0);
        second.set_busy(true);
        assert_eq!(dial(), 1);
        let mut busy: Vec<_> = (0..60).map(|_| open(&pool, "s")).collect();
        for slot in &busy {
            slot.set_busy(true);
        }
        assert_eq!(dial(), 7, "eight are idle then");
        busy.drain(..).for_each(drop);
        second.set_busy(false);
        assert_eq!(dial(), 0);
        // The server says that requests wait.
        second.set_waiting(1000);
        assert_eq!(dial(), MAX_DIALLING);
        assert_eq!(dial(), 0, "each of them is counted once");
        second.set_waiting(1000);
        let _most: Vec<_> = (0..90).map(|_| open(&pool, "s")).collect();
        assert_eq!(dial(), 8, "never more than the setting");
    }

    #[tokio::test(start_paused = true)]
    async fn after_failures_the_pauses_grow_to_a_second_and_end_with_a_success() {
        let pool = Pool::new(100, 7);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            let now = Instant::now();
            let plan = pool.plan(NONE, now);
            if plan.dial == 0 {
                pauses.push(plan.next - now);
                tokio::time::advance(plan.next - now).await;
            }
            assert!(pool.plan(NONE, Instant::now()).dial > 0);
            pool.dial(Instant::now()).failed(Failure::Network, "x");
        }
        assert!(pauses[0] <= FIRST_PAUSE, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(pauses.last().unwrap() >= &(LONGEST_PAUSE / 2), "{pauses:?}");
        tokio::time::advance(LONGEST_PAUSE).await;
        let slot = open(&pool, "s");
        assert_eq!(pool.plan(NONE, Instant::now()).dial, 1);
        drop(slot);
    }

    /// Packets of an attempt may be lost until the network is back. The next attempt does not wait for it.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_holds_up_no_other() {
        let pool = Pool::new(100, 7);
        let mut hanging = Vec::new();
        for _ in 0..5 {
            let plan = pool.plan(NONE, Instant::now());
            assert_eq!(plan.dial, 2);
            (0..2).for_each(|_| hanging.push(pool.dial(Instant::now())));
            let plan = pool.plan(NONE, Instant::now());
            assert_eq!((plan.dial, plan.next - Instant::now()), (0, SLOW_DIAL));
            tokio::time::advance(SLOW_DIAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn servers_without_a_tunnel_are_searched_with_a_bound() {
        let pool = Pool::new(100, 7);
        let servers = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let _a = [open(&pool, "a"), open(&pool, "a")];
        let mut attempts = 0;
        let start = Instant::now();
        while start.elapsed() < Duration::from_mins(2) {
            let now = Instant::now();
            let plan = pool.plan(&servers, now);
            attempts += plan.dial;
            tokio::time::advance(plan.next - now).await;
        }
        assert!((20..=60).contains(&attempts), "{attempts}");
        let summary = pool.summary(&servers);
        assert_eq!(summary.missing, ["b", "c"].map(str::to_owned).into());
        let _b = [open(&pool, "b"), open(&pool, "b"), open(&pool, "c"), open(&pool, "c")];
        assert!(pool.summary(&servers).missing.is_empty());
        assert_eq!(pool.plan(&servers, Instant::now()).dial, 0);
    }
}
