//! The servers that share the store: how many there are, and which one does the server's own work first.
//!
//! Controllers run on every server, and their work has preconditions. So no server is needed, and work that two servers
//! do at once does no harm. The order only saves work: the first server acts at once. The others wait a moment, and
//! then find that little is left to do.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use postern_meta::status::ApiError;
use postern_store::{Fleet, Member, Store};
use tokio::sync::watch;

use crate::clock::{Source, new_uid};

/// The time after which the next server does the work, if the one before it has not. With three servers, work that has
/// to be done within a second is done even if two of them have just ended.
const STAGGER: Duration = Duration::from_millis(300);

/// The most that a server waits, however many there are.
const LONGEST_STAGGER: Duration = Duration::from_millis(900);

/// How far the clock of a server may be from those of the others while it issues keys and tokens. Clients and agents
/// accept as much.
pub const CLOCK_DEVIATION_MAX_SECONDS: i64 = 60;

/// The deviation of a clock that is compared with no other one.
const UNKNOWN: i64 = i64::MIN;

/// The seconds after which a client may retry at a server with a wrong clock.
const CLOCK_RETRY_SECONDS: u32 = 5;

/// The servers that share the store.
pub struct Servers {
    /// The id of this server, which no other process has.
    id: Arc<str>,
    /// Those that are announced; `None` if this server has the store for itself.
    members: Option<watch::Receiver<Arc<[Member]>>>,
    /// How far the clock of this server is from that of most others, in milliseconds, or [`UNKNOWN`].
    clock_deviation_milliseconds: AtomicI64,
    is_clock_judged: AtomicBool,
}

impl Servers {
    pub(crate) fn of(store: &dyn Store, source: &dyn Source) -> Self {
        let members = store.fleet().map(Fleet::members);
        Self {
            id: new_uid(source).into(),
            members,
            clock_deviation_milliseconds: AtomicI64::new(UNKNOWN),
            is_clock_judged: AtomicBool::new(false),
        }
    }

    /// Sets how far the clock of this server certainly is from that of most others, in milliseconds; `None` if no other
    /// clock is known. `is_judged`: whether so many clocks are known that this one is the wrong one.
    pub fn set_clock(&self, deviation_milliseconds: Option<i64>, is_judged: bool) {
        let known = deviation_milliseconds.unwrap_or(UNKNOWN);
        self.clock_deviation_milliseconds.store(known, Ordering::Release);
        self.is_clock_judged.store(is_judged, Ordering::Release);
    }

    /// How far the clock of this server certainly is from that of most others, in milliseconds. It is positive if it is
    /// ahead of them. `None` if no other clock is known.
    pub fn clock_deviation_milliseconds(&self) -> Option<i64> {
        let known = self.clock_deviation_milliseconds.load(Ordering::Acquire);
        (known != UNKNOWN).then_some(known)
    }

    /// Checks that the clock of this server may say when keys and tokens begin and end. With a wrong one, they are dead at
    /// birth at the other servers, or live too long.
    ///
    /// # Errors
    /// 503 if it is off by more than [`CLOCK_DEVIATION_MAX_SECONDS`].
    pub fn check_clock(&self) -> Result<(), ApiError> {
        let seconds = self.clock_deviation_milliseconds().unwrap_or_default() / 1000;
        let is_judged = self.is_clock_judged.load(Ordering::Acquire);
        if !is_judged || seconds.abs() <= CLOCK_DEVIATION_MAX_SECONDS {
            return Ok(());
        }
        let how = if seconds > 0 { "ahead of" } else { "behind" };
        let message = format!(
            "the clock of this server is {} s {how} the clocks of the other servers, so it issues no keys and tokens: use \
             another server, and synchronize its clock",
            seconds.abs()
        );
        Err(ApiError::unavailable(&message, Some(CLOCK_RETRY_SECONDS)))
    }

    /// The id of this server. It is another one after each start.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The servers that are announced, which changes when one joins or ends; `None` if this server has the store for
    /// itself.
    pub fn members(&self) -> Option<watch::Receiver<Arc<[Member]>>> {
        self.members.clone()
    }

    /// Waits until it is this server's turn to do some work of this name. Afterwards, the caller must look whether the
    /// work is still needed.
    pub async fn turn(&self, work: &str) {
        let rank = self.members.as_ref().map_or(0, |members| self.rank(work, &members.borrow()));
        if rank > 0 {
            tokio::time::sleep((STAGGER * rank).min(LONGEST_STAGGER)).await;
        }
    }

    /// Whether this server has the first turn for some work of this name.
    pub(crate) fn is_first_for(&self, work: &str) -> bool {
        self.members.as_ref().is_none_or(|members| self.rank(work, &members.borrow()) == 0)
    }

    /// How many of the members have their turn before this server. Each work has another order, which all servers
    /// know without asking each other. It hardly changes when a server joins or ends.
    fn rank(&self, work: &str, members: &[Member]) -> u32 {
        let key = |id: &str| {
            let mut hasher = DefaultHasher::new();
            (work, id).hash(&mut hasher);
            Reverse((hasher.finish(), id.to_owned()))
        };
        let mine = key(&self.id);
        let before = members.iter().filter(|member| key(&member.id) < mine).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str) -> (Servers, Member) {
        let members = watch::channel(Arc::from([])).1;
        let member =
            Member { id: id.into(), address: String::new(), format: 1, seal_keys: Vec::new() };
        let servers = Servers {
            id: id.into(),
            members: Some(members),
            clock_deviation_milliseconds: AtomicI64::new(UNKNOWN),
            is_clock_judged: AtomicBool::new(false),
        };
        (servers, member)
    }

    #[test]
    fn each_work_has_one_first_server_and_all_servers_have_some_work() {
        let (servers, mut members): (Vec<_>, Vec<_>) =
            ["a", "b", "c"].map(server).into_iter().unzip();
        let mut firsts = [0; 3];
        for work in 0..60 {
            let work = format!("work {work}");
            let ranks: Vec<u32> = servers.iter().map(|one| one.rank(&work, &members)).collect();
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            firsts[ranks.iter().position(|rank| *rank == 0).unwrap()] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 5), "{firsts:?}");
        // If a server ends, the order of the others stays.
        let of_two = |work: &str| {
            servers[..2].iter().map(|one| one.rank(work, &members[..2])).collect::<Vec<_>>()
        };
        for work in ["garbage", "roles", "phases"] {
            let all: Vec<u32> = servers[..2].iter().map(|one| one.rank(work, &members)).collect();
            assert_eq!(all[0] < all[1], of_two(work)[0] < of_two(work)[1]);
        }
        // A server that is not announced yet, or alone, waits for no other one than those that are.
        members.clear();
        assert_eq!(servers[0].rank("garbage", &members), 0);
    }

    #[test]
    fn a_server_with_a_wrong_clock_issues_nothing() {
        let (servers, _) = server("me");
        for (milliseconds, is_right) in
            [(0, true), (60_999, true), (61_000, false), (-60_999, true), (-3_600_000, false)]
        {
            servers.set_clock(Some(milliseconds), true);
            let code = servers.check_clock().err().map(|error| error.code());
            assert_eq!(code.is_none(), is_right, "{milliseconds}: {code:?}");
        }
        // Of two clocks, either may be wrong.
        servers.set_clock(Some(3_600_000), false);
        assert!(servers.check_clock().is_ok());
        servers.set_clock(None, true);
        assert!(servers.check_clock().is_ok() && servers.clock_deviation_milliseconds().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_turn_is_bounded() {
        let (mut servers, _) = server("me");
        let begun = tokio::time::Instant::now();
        servers.turn("garbage").await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let members: Vec<Member> = (0..200).map(|n| server(&format!("server {n}")).1).collect();
        let (_sender, receiver) = watch::channel(Arc::from(members));
        servers.members = Some(receiver);
        servers.turn("garbage").await;
        assert_eq!(begun.elapsed(), LONGEST_STAGGER);
    }
}
