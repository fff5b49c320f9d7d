//! `OwnerAccount`: the flow control state of one owner of access keys.
//!
//! All requests and connections of an owner share one account. The server looks it up by name once, when a connection
//! is authenticated. Later requests read no map.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::owner_requests::{Counted, OwnerRequests, Ranking, RequestCount};
use super::recent_load::Recently;
use super::spent::Spent;

/// The number of accounts at which the first sweep removes unused ones.
const FIRST_SWEEP: usize = 16;

/// The current use of one owner: slots, waiting requests, open watches, bytes, and recent writes.
pub struct OwnerAccount {
    name: Arc<str>,
    /// When a request of the owner last waited for a slot. All connections of the owner share it. Otherwise
    /// connections that find a slot at once would stay on the normal threads.
    pub(crate) waits: Recently,
    /// The requests since the account was created.
    pub(crate) requests: RequestCount,
    /// Open watches, and requests to clusters in progress.
    pub(crate) watches: AtomicUsize,
    /// The bytes in use, for each [`ByteBudget`](super::budget::ByteBudget).
    pub(crate) bytes: [AtomicUsize; 2],
    /// The bytes written recently, for each [`WriteRate`](super::write_rate::WriteRate).
    pub(crate) spent: [Mutex<Spent>; 2],
    /// The slots and the waiting requests, for each queue. Take the queue's lock before this one.
    pub(crate) shares: [Mutex<Share>; QUEUES],
}

impl OwnerAccount {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::from(name),
            waits: Recently::default(),
            requests: RequestCount::default(),
            watches: AtomicUsize::new(0),
            bytes: Default::default(),
            spent: Default::default(),
            shares: Default::default(),
        })
    }

    /// The name of the owner; empty for unauthenticated clients.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Records that a request of the owner waited for its slot.
    pub fn set_waits(&self) {
        self.waits.set();
    }

    /// Whether a request of the owner waited for its slot within the last second.
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// The present load of the owner in the queues of these numbers.
    pub(crate) fn load(&self, queues: Range<usize>) -> OwnerLoad {
        let watches = self.watches.load(Ordering::Relaxed);
        let none = OwnerLoad { in_flight: 0, waiting: 0, watches };
        self.shares[queues].iter().fold(none, |load, share| {
            let share = share.lock();
            OwnerLoad {
                in_flight: load.in_flight + share.taken,
                waiting: load.waiting + share.waiting.len(),
                ..load
            }
        })
    }
}

/// What one owner has now. It does not say which owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerLoad {
    /// Requests that have a slot.
    pub in_flight: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Open watches, and requests to clusters that are under way.
    pub watches: usize,
}

/// The number of queues in which an owner's requests can wait.
pub(crate) const QUEUES: usize = 7;

/// The slots and the waiting requests of one owner in one queue.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) taken: usize,
    pub(crate) waiting: BTreeMap<u64, oneshot::Sender<Slot>>,
}

impl Share {
    /// The ticket of the request that has waited the longest.
    pub(crate) fn first(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(ticket, _)| *ticket)
    }
}

/// A queue to which slots are returned.
pub(crate) trait SlotQueue: Send + Sync {
    /// Takes back a slot of an owner.
    fn release(self: Arc<Self>, account: &Arc<OwnerAccount>);
}

/// A slot: room for one request in flight. It is released on drop.
pub struct Slot {
    queue: Arc<dyn SlotQueue>,
    account: Arc<OwnerAccount>,
    has_waited: bool,
}

impl Slot {
    pub(crate) fn new(
        queue: Arc<dyn SlotQueue>,
        account: Arc<OwnerAccount>,
        has_waited: bool,
    ) -> Self {
        Self { queue, account, has_waited }
    }

    /// Whether the request waited for it.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.queue.clone().release(&self.account);
    }
}

/// The accounts of all owners with a connection or a request, or with writes in the last minute.
#[derive(Default)]
pub(crate) struct Accounts {
    by_owner: HashMap<Arc<str>, Arc<OwnerAccount>>,
    /// The number of accounts at which the next sweep removes unused ones.
    sweep_at: usize,
    ranking: Ranking,
}

impl Accounts {
    /// The account of one owner. `bytes_per_minute` is the rate at which the written bytes are forgiven.
    pub(crate) fn of(&mut self, owner: &str, bytes_per_minute: u64) -> Arc<OwnerAccount> {
        if let Some(known) = self.by_owner.get(owner) {
            return known.clone();
        }
        if self.by_owner.len() >= self.sweep_at {
            // The lock of this table keeps other threads from taking an account that only the table refers to.
            self.by_owner.retain(|_, account| {
                let has_spent = |spent: &Mutex<Spent>| !spent.lock().is_forgiven(bytes_per_minute);
                Arc::strong_count(account) > 1 || account.spent.iter().any(has_spent)
            });
            self.sweep_at = 2 * self.by_owner.len() + FIRST_SWEEP;
        }
        let account = OwnerAccount::new(owner);
        self.by_owner.insert(account.name.clone(), account.clone());
        account
    }

    /// The present loads of the owners in the queues of these numbers, in no order.
    pub(crate) fn loads(&self, queues: &Range<usize>) -> Vec<OwnerLoad> {
        self.by_owner.values().map(|account| account.load(queues.clone())).collect()
    }

    /// The owners with most requests recently.
    pub(crate) fn most_requests(&mut self) -> Vec<OwnerRequests> {
        self.ranking.rank(self.by_owner.values().map(|account| Counted {
            owner: &account.name,
            count: &account.requests,
            watches: account.watches.load(Ordering::Relaxed),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_owner_share_an_account_and_idle_owners_are_forgotten() {
        let mut all = Accounts::default();
        let (one, same, other) = (all.of("a", 1), all.of("a", 1), all.of("b", 1));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        one.set_waits();
        assert!(same.waits() && !other.waits());
        for number in 0..1000 {
            all.of(&number.to_string(), 1);
        }
        assert!(all.by_owner.len() < 100, "owners without connections are forgotten");
        assert!(Arc::ptr_eq(&all.of("a", 1), &one));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_who_connects_again_still_owes_what_was_written() {
        let mut all = Accounts::default();
        all.of("a", 60).spent[0].lock().add(600);
        for number in 0..1000 {
            all.of(&number.to_string(), 60);
        }
        assert!(!all.of("a", 60).spent[0].lock().is_forgiven(60));
    }
}
