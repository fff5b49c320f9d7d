//! Slots, and one queue of waiting requests for each owner of access keys.
//!
//! A free slot goes to the owner with the fewest slots. Among equal owners it goes to the request
//! that has waited the longest (max-min fairness). So an owner that sends too many requests waits
//! behind their own requests, and other owners do not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::account::{OwnerAccount, Share, Slot, SlotQueue};
use super::recent_load::Contention;

/// The number of slots, and of requests that may wait for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// All slots.
    pub(super) slots: usize,
    /// The most slots of one owner while others send requests.
    pub(super) slots_per_owner: usize,
    /// The most slots of one owner while no other owner sends requests.
    pub(super) slots_alone: usize,
    /// The most waiting requests of one owner.
    pub(super) waiting_per_owner: usize,
    /// The most waiting requests of all owners. An owner without a waiting request may add one beyond it.
    pub(super) waiting: usize,
    /// The longest wait.
    pub(super) wait: Duration,
}

/// Slots with a queue for each owner.
pub(super) struct FairQueue {
    limits: QueueLimits,
    /// The index of this queue's share in each account.
    index: usize,
    contention: Arc<Contention>,
    state: Mutex<State>,
    /// Requests that had to wait, since the start.
    queued: AtomicU64,
    /// Requests that got no slot, since the start.
    rejected: AtomicU64,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    tickets: u64,
    /// The owners with waiting requests that may have another slot. They are ordered by their
    /// slots, then by the ticket of their first waiting request.
    next: BTreeMap<(usize, u64), Arc<OwnerAccount>>,
}

/// The channel on which the slot arrives, and the request's number in the order of arrival.
type Ticket = (oneshot::Receiver<Slot>, u64);

/// A waiting request. It leaves the queue on drop.
struct Waiting<'a> {
    queue: &'a FairQueue,
    account: &'a Arc<OwnerAccount>,
    ticket: u64,
}

impl FairQueue {
    pub(super) fn new(limits: QueueLimits, index: usize, contention: Arc<Contention>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            index,
            contention,
            state: Mutex::default(),
            queued: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// The most slots of one owner now. It can change at any time. An owner that waits because of
    /// it has slots, and is considered again when one of these is released.
    fn per_owner(&self) -> usize {
        let limits = &self.limits;
        if self.contention.get() { limits.slots_per_owner } else { limits.slots_alone }
    }

    /// The number of taken slots and of waiting requests.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.taken, state.waiting)
    }

    /// How many requests had to wait, and how many were rejected, since the start.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.queued.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed))
    }

    /// A slot, if one is free and the owner may have another.
    pub(super) fn try_acquire(self: &Arc<Self>, account: &Arc<OwnerAccount>) -> Option<Slot> {
        self.try_take(&mut self.state.lock(), account)
    }

    fn try_take(self: &Arc<Self>, state: &mut State, account: &Arc<OwnerAccount>) -> Option<Slot> {
        let per_owner = self.per_owner();
        let taken = account.shares[self.index].lock().taken;
        if state.taken >= self.limits.slots || taken >= per_owner {
            return None;
        }
        state.taken += 1;
        self.reorder(state, account, per_owner, |share| share.taken += 1);
        Some(Slot::new(self.clone(), account.clone(), false))
    }

    /// A slot, as soon as it is this request's turn. `None` when the owner's queue is full, or when the wait takes
    /// too long.
    pub(super) async fn acquire(self: &Arc<Self>, account: &Arc<OwnerAccount>) -> Option<Slot> {
        let (granted, ticket) = match self.take_or_enter(account) {
            Some(Ok(slot)) => return Some(slot),
            Some(Err(waiting)) => waiting,
            None => return self.reject(),
        };
        self.queued.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting { queue: self, account, ticket };
        match tokio::time::timeout(self.limits.wait, granted).await {
            Ok(Ok(slot)) => Some(slot),
            Ok(Err(_)) | Err(_) => self.reject(),
        }
    }

    fn reject(&self) -> Option<Slot> {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// A slot for work that had one before. It is never rejected. The number of these waiters is bounded by the
    /// large work in progress.
    pub(super) async fn acquire_again(
        self: &Arc<Self>,
        account: &Arc<OwnerAccount>,
    ) -> Option<Slot> {
        let entered = {
            let mut state = self.state.lock();
            match self.try_take(&mut state, account) {
                Some(slot) => return Some(slot),
                None => self.enter(&mut state, account),
            }
        };
        let (granted, ticket) = entered;
        let _waiting = Waiting { queue: self, account, ticket };
        granted.await.ok()
    }

    /// Takes a slot, or enters the owner's queue; `None` when the queue is full. Both happen under one lock.
    /// Otherwise a slot that becomes free in between would not go to this request.
    fn take_or_enter(
        self: &Arc<Self>,
        account: &Arc<OwnerAccount>,
    ) -> Option<Result<Slot, Ticket>> {
        let mut state = self.state.lock();
        if let Some(slot) = self.try_take(&mut state, account) {
            return Some(Ok(slot));
        }
        let own = account.shares[self.index].lock().waiting.len();
        let full = own > 0 && state.waiting >= self.limits.waiting;
        if own >= self.limits.waiting_per_owner || full {
            return None;
        }
        Some(Err(self.enter(&mut state, account)))
    }

    fn enter(&self, state: &mut State, account: &Arc<OwnerAccount>) -> Ticket {
        let (sender, receiver) = oneshot::channel();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting += 1;
        let per_owner = self.per_owner();
        self.reorder(state, account, per_owner, |share| share.waiting.insert(ticket, sender));
        (receiver, ticket)
    }

    fn leave(&self, account: &Arc<OwnerAccount>, ticket: u64) {
        let mut state = self.state.lock();
        let per_owner = self.per_owner();
        let left =
            self.reorder(&mut state, account, per_owner, |share| share.waiting.remove(&ticket));
        if left.is_some() {
            state.waiting -= 1;
        }
    }

    /// Takes a slot for the next waiting request, if a slot is free.
    fn take_next(
        &self,
        state: &mut State,
        per_owner: usize,
    ) -> Option<(Arc<OwnerAccount>, oneshot::Sender<Slot>)> {
        let (&(taken, ticket), account) = state.next.first_key_value()?;
        // The owner may have been alone when the request was queued.
        if state.taken >= self.limits.slots || taken >= per_owner {
            return None;
        }
        let account = account.clone();
        let sender = self.reorder(state, &account, per_owner, |share| {
            share.taken += 1;
            share.waiting.remove(&ticket)
        })?;
        state.taken += 1;
        state.waiting -= 1;
        Some((account, sender))
    }

    /// Changes an owner's share, and moves the owner to the new position in the order of waiting owners.
    fn reorder<T>(
        &self,
        state: &mut State,
        account: &Arc<OwnerAccount>,
        per_owner: usize,
        change: impl FnOnce(&mut Share) -> T,
    ) -> T {
        let mut share = account.shares[self.index].lock();
        if let Some(first) = share.first() {
            state.next.remove(&(share.taken, first));
        }
        let changed = change(&mut share);
        if let Some(first) = share.first().filter(|_| share.taken < per_owner) {
            state.next.insert((share.taken, first), account.clone());
        }
        changed
    }
}

impl SlotQueue for FairQueue {
    fn release(self: Arc<Self>, account: &Arc<OwnerAccount>) {
        let mut granted = Vec::new();
        let per_owner = self.per_owner();
        let mut state = self.state.lock();
        state.taken -= 1;
        self.reorder(&mut state, account, per_owner, |share| share.taken -= 1);
        while let Some(next) = self.take_next(&mut state, per_owner) {
            granted.push(next);
        }
        drop(state);
        for (account, sender) in granted {
            // If the request has just left, the slot is dropped, which gives it to the next request.
            let _ = sender.send(Slot::new(self.clone(), account, true));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.account, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Poll;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        slots: 4,
        slots_per_owner: 3,
        slots_alone: 4,
        waiting_per_owner: 5,
        waiting: 8,
        wait: Duration::from_secs(5),
    };

    /// A queue that several owners use at once.
    fn shared(limits: QueueLimits) -> Arc<FairQueue> {
        let queue = FairQueue::new(limits, 0, Arc::default());
        queue.contention.set(true);
        queue
    }

    fn acquiring(
        queue: &Arc<FairQueue>,
        account: &Arc<OwnerAccount>,
    ) -> BoxFuture<'static, Option<Slot>> {
        let (queue, account) = (queue.clone(), account.clone());
        async move { queue.acquire(&account).await }.boxed()
    }

    fn accounts<const N: usize>(names: [&str; N]) -> [Arc<OwnerAccount>; N] {
        names.map(OwnerAccount::new)
    }

    /// Polls a request once, so that it waits, has its slot, or is rejected.
    fn poll(request: &mut BoxFuture<'static, Option<Slot>>) -> Poll<Option<Slot>> {
        request.now_or_never().map_or(Poll::Pending, Poll::Ready)
    }

    fn slot(polled: Poll<Option<Slot>>) -> Slot {
        match polled {
            Poll::Ready(Some(slot)) => slot,
            Poll::Ready(None) => panic!("rejected"),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn is_refused(polled: &Poll<Option<Slot>>) -> bool {
        matches!(polled, Poll::Ready(None))
    }

    /// Takes the slots that waiting requests have been given.
    fn take_granted(waiting: &mut Vec<BoxFuture<'static, Option<Slot>>>, slots: &mut Vec<Slot>) {
        waiting.retain_mut(|request| match poll(request) {
            Poll::Ready(slot) => {
                slots.extend(slot);
                false
            }
            Poll::Pending => true,
        });
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_leaves_slots_to_others_and_a_free_slot_goes_to_the_owner_with_fewest() {
        let queue = shared(LIMITS);
        let [busy, a, b] = accounts(["busy", "a", "b"]);
        let mut slots: VecDeque<Slot> = (0..3).map(|_| queue.try_acquire(&busy).unwrap()).collect();
        assert!(queue.try_acquire(&busy).is_none(), "the last slot is not for this owner");
        let first = queue.try_acquire(&a).unwrap();
        let mut more: Vec<_> = [&busy, &busy, &b, &a].map(|o| acquiring(&queue, o)).into();
        assert!(more.iter_mut().all(|request| poll(request).is_pending()));
        assert_eq!(queue.counts(), (4, 4));
        slots.pop_front();
        // b has no slot, and so is next. Then comes a, and then the first waiting request.
        let granted = slot(poll(&mut more[2]));
        drop(first);
        let again = slot(poll(&mut more[3]));
        drop(again);
        let third = slot(poll(&mut more[0]));
        assert!(poll(&mut more[1]).is_pending());
        drop((granted, third, slots, more));
        assert_eq!(queue.counts(), (0, 0));
        assert!(queue.state.lock().next.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_alone_has_more_slots_until_others_come() {
        let queue = FairQueue::new(LIMITS, 0, Arc::default());
        let [busy, a] = accounts(["busy", "a"]);
        let mut slots: Vec<Slot> = (0..4).map(|_| queue.try_acquire(&busy).unwrap()).collect();
        let mut waiting = [acquiring(&queue, &busy), acquiring(&queue, &busy)];
        assert!(waiting.iter_mut().all(|request| poll(request).is_pending()));
        queue.contention.set(true);
        let mut other = acquiring(&queue, &a);
        assert!(poll(&mut other).is_pending(), "all slots are taken");
        slots.pop();
        let other = slot(poll(&mut other));
        slots.pop();
        let _again = slot(poll(&mut waiting[0]));
        assert_eq!(queue.counts(), (4, 1));
        drop(other);
        assert!(poll(&mut waiting[1]).is_pending(), "the last slot is not for this owner");
        queue.contention.set(false);
        slots.pop();
        assert!(poll(&mut waiting[1]).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_bounded_in_length_and_in_time() {
        let queue = shared(QueueLimits { slots: 1, slots_per_owner: 1, ..LIMITS });
        let [a, b, c] = accounts(["a", "b", "c"]);
        let slot = queue.try_acquire(&a).unwrap();
        let mut waiting: Vec<_> = (0..5).map(|_| acquiring(&queue, &a)).collect();
        assert!(waiting.iter_mut().all(|request| poll(request).is_pending()));
        assert!(is_refused(&poll(&mut acquiring(&queue, &a))), "their queue is full");
        waiting.extend((0..3).map(|_| acquiring(&queue, &b)));
        assert!(waiting.iter_mut().all(|request| poll(request).is_pending()));
        assert!(is_refused(&poll(&mut acquiring(&queue, &b))), "all queues are full");
        waiting.push(acquiring(&queue, &c));
        assert!(
            poll(waiting.last_mut().unwrap()).is_pending(),
            "one request of each owner may always wait"
        );
        for request in waiting {
            assert!(request.await.is_none(), "no request waits for ever");
        }
        assert_eq!(queue.counts(), (1, 0));
        assert_eq!(queue.totals(), (9, 11), "two found a full queue, and nine waited too long");
        drop(slot);
        assert_eq!(queue.counts(), (0, 0));
    }

    proptest! {
        /// In any order of steps: no slot is lost, none is added, and no request waits next to a free slot that
        /// it may have.
        #[test]
        fn slots_are_neither_lost_nor_made(steps in prop::collection::vec((0..4_usize, 0..3_usize), 1..200)) {
            let owners = accounts(["a", "b", "c"]);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time().start_paused(true).build().unwrap();
            let _inside = runtime.enter();
            let queue = shared(LIMITS);
            let (mut slots, mut waiting) = (Vec::<Slot>::new(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 => slots.extend(queue.try_acquire(&owners[which])),
                    1 => waiting.push(acquiring(&queue, &owners[which])),
                    2 if !slots.is_empty() => drop(slots.swap_remove(which % slots.len())),
                    3 if !waiting.is_empty() => drop(waiting.swap_remove(which % waiting.len())),
                    _ => {}
                }
                take_granted(&mut waiting, &mut slots);
                let state = queue.state.lock();
                prop_assert_eq!(state.taken, slots.len());
                prop_assert!(state.taken <= LIMITS.slots);
                prop_assert_eq!(state.waiting, waiting.len());
                prop_assert!(owners.iter().all(|owner| owner.shares[0].lock().taken <= LIMITS.slots_per_owner));
                prop_assert!(state.taken == LIMITS.slots || state.next.is_empty());
            }
        }

        /// Contention begins and ends: no slot is lost, and no owner exceeds the limit. An owner
        /// that waits next to a free slot has slots, so the owner is considered again.
        #[test]
        fn no_owner_is_left_behind_when_contention_changes(steps in prop::collection::vec((0..5_usize, 0..3_usize), 1..200)) {
            let owners = accounts(["a", "b", "c"]);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time().start_paused(true).build().unwrap();
            let _inside = runtime.enter();
            let queue = FairQueue::new(LIMITS, 0, Arc::default());
            let (mut slots, mut waiting) = (Vec::<Slot>::new(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 => slots.extend(queue.try_acquire(&owners[which])),
                    1 => waiting.push(acquiring(&queue, &owners[which])),
                    2 if !slots.is_empty() => drop(slots.swap_remove(which % slots.len())),
                    3 if !waiting.is_empty() => drop(waiting.swap_remove(which % waiting.len())),
                    4 => queue.contention.set(which > 0),
                    _ => {}
                }
                take_granted(&mut waiting, &mut slots);
                let state = queue.state.lock();
                prop_assert_eq!((state.taken, state.waiting), (slots.len(), waiting.len()));
                prop_assert!(state.taken <= LIMITS.slots);
                let is_seen = |owner: &Arc<OwnerAccount>| {
                    let share = owner.shares[0].lock();
                    share.waiting.is_empty() || share.taken > 0
                };
                prop_assert!(state.taken == LIMITS.slots || owners.iter().all(is_seen));
            }
            while let Some(given_back) = slots.pop() {
                drop(given_back);
                take_granted(&mut waiting, &mut slots);
            }
            prop_assert!(waiting.is_empty(), "all have had their turn");
            let state = queue.state.lock();
            prop_assert!(state.next.is_empty());
            prop_assert!(owners.iter().all(|owner| owner.shares[0].lock().taken == 0));
        }
    }
}
