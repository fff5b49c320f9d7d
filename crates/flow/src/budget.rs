//! Byte budgets: the memory of bodies and responses, counted in total and for each owner of access keys.
//!
//! One owner may use a part of the free bytes, not a fixed number. The more bytes are in use, the fewer one more
//! owner may add, and some always stay free for the next owner. Network switches share their buffers between ports
//! in the same way (dynamic thresholds).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::account::OwnerAccount;
use super::requester::Requester;

/// The divisor of the total that members of `system:masters` have in addition.
const SYSTEM_EXTRA_DIVISOR: usize = 4;

/// The limits of a byte budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteLimits {
    /// The most bytes of all owners.
    pub(crate) total: usize,
    /// One owner's bytes, times this number, must not exceed the free bytes. So a single owner can use
    /// `total / (free_times + 1)`.
    pub(crate) free_times: usize,
}

impl ByteLimits {
    /// Whether an owner may use `of_owner` bytes when all owners together use `total`.
    fn allow(self, of_owner: usize, total: usize) -> bool {
        let free = self.total.checked_sub(total);
        free.is_some_and(|free| of_owner.saturating_mul(self.free_times) <= free)
    }
}

/// The bytes that a budget counts. Each owner has one count for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BytesOf {
    /// Request bodies.
    Bodies,
    /// Responses.
    Responses,
}

/// The bytes in use, and their limits.
pub struct ByteBudget {
    limits: ByteLimits,
    of: BytesOf,
    /// The bytes of all owners. The counts of single owners change only under this lock.
    used: Mutex<usize>,
}

/// Bytes that are counted for one owner. They are released on drop.
pub struct Charge {
    budget: Arc<ByteBudget>,
    account: Arc<OwnerAccount>,
    bytes: usize,
    is_system: bool,
}

impl ByteBudget {
    pub(crate) fn new(of: BytesOf, limits: ByteLimits) -> Arc<Self> {
        Arc::new(Self { limits, of, used: Mutex::default() })
    }

    /// The number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        *self.used.lock()
    }

    fn limits_of(&self, is_system: bool) -> ByteLimits {
        let mut limits = self.limits;
        if is_system {
            // So other callers cannot use everything.
            limits.total += limits.total / SYSTEM_EXTRA_DIVISOR;
        }
        limits
    }

    /// An empty charge for an owner, which can grow.
    pub fn open(self: &Arc<Self>, requester: &Requester) -> Charge {
        let Requester { account, is_system } = requester.clone();
        Charge { budget: self.clone(), account, bytes: 0, is_system }
    }

    /// A charge of this many bytes; `None` when they exceed the limits.
    pub fn charge(self: &Arc<Self>, requester: &Requester, bytes: usize) -> Option<Charge> {
        let mut charge = self.open(requester);
        charge.grow(bytes).then_some(charge)
    }
}

impl Charge {
    /// The number of bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the bytes are counted for this owner.
    pub fn is_of(&self, requester: &Requester) -> bool {
        Arc::ptr_eq(&self.account, &requester.account)
    }

    /// Counts this many more bytes, if they are within the limits. Returns whether they are.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.count(bytes, Some(self.budget.limits_of(self.is_system)))
    }

    /// Counts this many more bytes, even above the limits: they are in memory already. The owner then has less room
    /// for other bytes.
    pub fn grow_beyond_limits(&mut self, bytes: usize) {
        self.count(bytes, None);
    }

    fn count(&mut self, bytes: usize, limits: Option<ByteLimits>) -> bool {
        if bytes == 0 {
            return true;
        }
        let of_owner = &self.account.bytes[self.budget.of as usize];
        let mut used = self.budget.used.lock();
        let total = used.saturating_add(bytes);
        let own = of_owner.load(Ordering::Relaxed).saturating_add(bytes);
        if limits.is_some_and(|limits| !limits.allow(own, total)) {
            return false;
        }
        *used = total;
        of_owner.store(own, Ordering::Relaxed);
        self.bytes += bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.used.lock();
        *used -= self.bytes;
        self.account.bytes[self.budget.of as usize].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(owner: &str) -> Requester {
        Requester { account: OwnerAccount::new(owner), is_system: false }
    }

    fn budget(total: usize, free_times: usize) -> Arc<ByteBudget> {
        ByteBudget::new(BytesOf::Responses, ByteLimits { total, free_times })
    }

    #[test]
    fn bytes_are_bounded_for_each_owner_and_as_a_whole() {
        let budget = budget(100, 1);
        let (a, b) = (by("a"), by("b"));
        let mut one = budget.open(&a);
        assert!(one.grow(40) && !one.grow(11), "one owner has half of it");
        let mut two = budget.open(&a);
        assert!(two.grow(10) && !two.grow(1), "however many requests they send");
        let mut other = budget.open(&b);
        assert!(!other.grow(26), "half of what is left");
        assert!(!other.grow(usize::MAX) && other.grow(25));
        assert_eq!(budget.used(), 75);
        let mut admin = budget.open(&Requester { is_system: true, ..by("admin") });
        assert!(admin.grow(25) && !admin.grow(1), "they have a quarter in addition");
        drop(admin);
        drop((one, two));
        assert_eq!(budget.used(), 25);
        drop(other);
        assert_eq!(budget.used(), 0);
        assert_eq!(a.account.bytes[BytesOf::Responses as usize].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn owners_together_leave_room_for_the_next_one() {
        const TOTAL: usize = 96 << 20;
        const BODY: usize = 3 << 20;
        let budget = budget(TOTAL, 3);
        let mut charges = Vec::new();
        for number in 0..12 {
            let next = if number <= 6 { BODY } else { 64 << 10 };
            assert!(
                budget.charge(&by("next"), next).is_some(),
                "after {number} owners who have what they may"
            );
            let owner = by(&number.to_string());
            let before = budget.used();
            charges.extend(std::iter::from_fn(|| budget.charge(&owner, 64 << 10)));
            assert!(budget.used() - before <= TOTAL / 4);
        }
    }

    #[test]
    fn what_cannot_be_refused_leaves_less_room_for_its_owner() {
        let budget = budget(100, 1);
        let (a, b) = (by("a"), by("b"));
        let mut answer = budget.open(&a);
        answer.grow_beyond_limits(60);
        assert_eq!(budget.used(), 60);
        let has_room = |owner, bytes| budget.charge(owner, bytes).is_some();
        assert!(!has_room(&a, 1) && has_room(&b, 20) && !has_room(&b, 21));
        answer.grow_beyond_limits(usize::from(u8::MAX));
        assert!(!has_room(&b, 1), "nothing is free");
        drop(answer);
        assert!(has_room(&a, 50) && budget.used() == 0);
    }
}
