//! `OwnerAccount`: what flow control knows of one owner of access keys.
//!
//! All requests and connections of an owner have the same account. It is looked up by name once, when a connection is
//! authenticated; after that, no map is asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::owner_requests::{Counted, OwnerRequests, Ranking, RequestCount};
use super::recent_load::Recently;
use super::spent::Spent;

/// The number of accounts at which unused ones are removed for the first time.
const FIRST_SWEEP: usize = 16;

/// What one owner has now: slots, waiting requests, open watches, bytes, and recent writes.
pub struct OwnerAccount {
    name: Arc<str>,
    /// When a request of the owner waited for its slot. All connections of the owner know it. Otherwise the
    /// connections that find a slot at once would take all slots.
    pub(crate) waits: Recently,
    /// The requests since the account was created.
    pub(crate) requests: RequestCount,
    /// Open watches, and requests to clusters that are under way.
    pub(crate) watches: AtomicUsize,
    /// Bytes that are counted, for each [`ByteBudget`](super::budget::ByteBudget).
    pub(crate) bytes: [AtomicUsize; 2],
    /// Bytes that were written, for each [`WriteRate`](super::write_rate::WriteRate).
    pub(crate) spent: [Mutex<Spent>; 2],
    /// The slots and the waiting requests, for each queue. Locked inside the queue's own lock.
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

    /// Notes that a request of the owner had to wait for its slot.
    pub fn set_waits(&self) {
        self.waits.set();
    }

    /// Whether a request of the owner had to wait for its slot within the last second.
    pub fn waits(&self) -> bool {
        self.waits.get()
    }
}

/// The number of queues in which an owner can wait.
pub(crate) const QUEUES: usize = 7;

/// The seats and the waiting requests of one owner in one queue.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) taken: usize,
    pub(crate) waiting: BTreeMap<u64, oneshot::Sender<Seat>>,
}

impl Share {
    /// The ticket of the request that has waited longest.
    pub(crate) fn first(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(ticket, _)| *ticket)
    }
}

/// A queue that gets its seats back.
pub(crate) trait SlotQueue: Send + Sync {
    /// Takes back a seat of an owner.
    fn release(self: Arc<Self>, account: &Arc<OwnerAccount>);
}

/// A seat. It is given back on drop.
pub struct Seat {
    queue: Arc<dyn SlotQueue>,
    account: Arc<OwnerAccount>,
    has_waited: bool,
}

impl Seat {
    pub(crate) fn new(
        queue: Arc<dyn SlotQueue>,
        account: Arc<OwnerAccount>,
        has_waited: bool,
    ) -> Self {
        Self { queue, account, has_waited }
    }

    /// Whether there was a wait for it.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.queue.clone().release(&self.account);
    }
}

/// The accounts of all owners who hold something, or have written within the last minute.
#[derive(Default)]
pub(crate) struct Accounts {
    by_owner: HashMap<Arc<str>, Arc<OwnerAccount>>,
    /// The number of accounts at which those that hold nothing are removed.
    sweep_at: usize,
    ranking: Ranking,
}

impl Accounts {
    /// The account of one owner. `bytes_per_minute` are what an owner gets back of the written bytes.
    pub(crate) fn of(&mut self, owner: &str, bytes_per_minute: u64) -> Arc<OwnerAccount> {
        if let Some(known) = self.by_owner.get(owner) {
            return known.clone();
        }
        if self.by_owner.len() >= self.sweep_at {
            // Under the lock of this table, no other thread can take an account that only the table has.
            self.by_owner.retain(|_, account| {
                let has_spent = |spent: &Mutex<Spent>| !spent.lock().is_paid_back(bytes_per_minute);
                Arc::strong_count(account) > 1 || account.spent.iter().any(has_spent)
            });
            self.sweep_at = 2 * self.by_owner.len() + FIRST_SWEEP;
        }
        let account = OwnerAccount::new(owner);
        self.by_owner.insert(account.name.clone(), account.clone());
        account
    }

    /// The owners with most requests lately.
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
        assert!(!all.of("a", 60).spent[0].lock().is_paid_back(60));
    }
}
