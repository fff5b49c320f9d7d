//! Bytes that clients make wait: counted as a whole and for each owner of keys.
//!
//! One owner may have a part of what all others leave free, not a fixed number: the more bytes wait, the fewer
//! one more owner may add, and there is always something left for the next. Switches share their buffers between
//! ports in the same way, by dynamic thresholds.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::requester::Requester;

/// Members of `system:masters` have this part of all bytes in addition.
const SYSTEM_PART: usize = 4;

/// How many bytes may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteLimits {
    /// Bytes of all owners.
    pub(crate) total: usize,
    /// One owner's bytes, this many times, are at most those that are free: alone they have `total / (free_times + 1)`.
    pub(crate) free_times: usize,
}

impl ByteLimits {
    /// Whether an owner may have so many bytes, when all together have `total`.
    fn allow(self, of_owner: usize, total: usize) -> bool {
        let free = self.total.checked_sub(total);
        free.is_some_and(|free| of_owner.saturating_mul(self.free_times) <= free)
    }
}

/// Bytes that wait now.
pub struct ByteBudget {
    limits: ByteLimits,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    total: usize,
    by_owner: HashMap<Arc<str>, usize>,
}

/// Bytes of one owner that are counted. They are given back on drop.
pub struct Charge {
    budget: Arc<ByteBudget>,
    owner: Arc<str>,
    bytes: usize,
    is_system: bool,
}

impl ByteBudget {
    pub(crate) fn new(limits: ByteLimits) -> Arc<Self> {
        Arc::new(Self { limits, used: Mutex::default() })
    }

    /// How many bytes wait.
    pub(crate) fn used(&self) -> usize {
        self.used.lock().total
    }

    fn limits_of(&self, is_system: bool) -> ByteLimits {
        let mut limits = self.limits;
        if is_system {
            // Others cannot take all.
            limits.total += limits.total / SYSTEM_PART;
        }
        limits
    }

    /// An owner's charge of no bytes, which can grow.
    pub fn open(self: &Arc<Self>, requester: Requester<'_>) -> Charge {
        let Requester { owner, is_system } = requester;
        let known = self.used.lock().by_owner.get_key_value(owner).map(|(owner, _)| owner.clone());
        let owner = known.unwrap_or_else(|| Arc::from(owner));
        Charge { budget: self.clone(), owner, bytes: 0, is_system }
    }

    /// A charge of so many bytes; `None` when there is no room for them.
    pub fn charge(self: &Arc<Self>, requester: Requester<'_>, bytes: usize) -> Option<Charge> {
        let mut charge = self.open(requester);
        charge.grow(bytes).then_some(charge)
    }
}

impl Charge {
    /// How many bytes are counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is this owner's.
    pub fn is_of(&self, owner: &str) -> bool {
        &*self.owner == owner
    }

    /// Counts this many bytes more. Returns whether they are within the limits; if not, nothing is
    /// counted.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.count(bytes, Some(self.budget.limits_of(self.is_system)))
    }

    /// Counts this many bytes more that are there in any case: there is less room for others of the owner then.
    pub fn grow_beyond_limits(&mut self, bytes: usize) {
        self.count(bytes, None);
    }

    fn count(&mut self, bytes: usize, limits: Option<ByteLimits>) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut used = self.budget.used.lock();
        let total = used.total.saturating_add(bytes);
        let of_owner = used.by_owner.get(&self.owner).copied().unwrap_or_default();
        let of_owner = of_owner.saturating_add(bytes);
        if limits.is_some_and(|limits| !limits.allow(of_owner, total)) {
            return false;
        }
        used.total = total;
        used.by_owner.insert(self.owner.clone(), of_owner);
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
        used.total -= self.bytes;
        if let Some(of_owner) = used.by_owner.get_mut(&self.owner) {
            *of_owner -= self.bytes;
            if *of_owner == 0 {
                used.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(owner: &str) -> Requester<'_> {
        Requester { owner, is_system: false }
    }

    #[test]
    fn bytes_are_bounded_for_each_owner_and_as_a_whole() {
        let budget = ByteBudget::new(ByteLimits { total: 100, free_times: 1 });
        let mut one = budget.open(by("a"));
        assert!(one.grow(40) && !one.grow(11), "one owner has half of it");
        let mut two = budget.open(by("a"));
        assert!(two.grow(10) && !two.grow(1), "however many requests they send");
        let mut other = budget.open(by("b"));
        assert!(!other.grow(26), "half of what is left");
        assert!(!other.grow(usize::MAX) && other.grow(25));
        assert_eq!(budget.used(), 75);
        let mut admin = budget.open(Requester { owner: "admin", is_system: true });
        assert!(admin.grow(25) && !admin.grow(1), "they have a quarter in addition");
        drop(admin);
        drop((one, two));
        assert_eq!(budget.used(), 25);
        drop(other);
        assert_eq!(budget.used(), 0);
        assert!(budget.used.lock().by_owner.is_empty());
    }

    #[test]
    fn owners_together_leave_room_for_the_next_one() {
        const TOTAL: usize = 96 << 20;
        const BODY: usize = 3 << 20;
        let budget = ByteBudget::new(ByteLimits { total: TOTAL, free_times: 3 });
        let mut charges = Vec::new();
        for number in 0..12 {
            let next = if number <= 6 { BODY } else { 64 << 10 };
            assert!(
                budget.charge(by("next"), next).is_some(),
                "after {number} owners who have what they may"
            );
            let owner = number.to_string();
            let before = budget.used();
            charges.extend(std::iter::from_fn(|| budget.charge(by(&owner), 64 << 10)));
            assert!(budget.used() - before <= TOTAL / 4);
        }
    }

    #[test]
    fn what_cannot_be_refused_leaves_less_room_for_its_owner() {
        let budget = ByteBudget::new(ByteLimits { total: 100, free_times: 1 });
        let mut answer = budget.open(by("a"));
        answer.grow_beyond_limits(60);
        assert_eq!(budget.used(), 60);
        let has_room = |owner, bytes| budget.charge(by(owner), bytes).is_some();
        assert!(!has_room("a", 1) && has_room("b", 20) && !has_room("b", 21));
        answer.grow_beyond_limits(usize::from(u8::MAX));
        assert!(!has_room("b", 1), "nothing is free");
        drop(answer);
        assert!(has_room("a", 50) && budget.used() == 0);
    }
}
