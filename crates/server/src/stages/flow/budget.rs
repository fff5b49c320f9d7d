//! Bytes that clients make wait: counted as a whole and for each owner of keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Requester;

/// Members of `system:masters` have this part of all bytes in addition.
const SYSTEM_PART: usize = 4;

/// How many bytes may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteLimits {
    /// Bytes of all owners.
    pub(crate) total: usize,
    /// Bytes of one owner.
    pub(crate) per_owner: usize,
}

/// Bytes that wait now.
pub(crate) struct ByteBudget {
    limits: ByteLimits,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    total: usize,
    by_owner: HashMap<Arc<str>, usize>,
}

/// Bytes of one owner that are counted. They are given back on drop.
pub(crate) struct Charge {
    budget: Arc<ByteBudget>,
    owner: Arc<str>,
    bytes: usize,
    is_system: bool,
}

impl ByteBudget {
    pub(crate) fn new(limits: ByteLimits) -> Arc<Self> {
        Arc::new(Self { limits, used: Mutex::default() })
    }

    /// Returns how many bytes wait.
    pub(crate) fn used(&self) -> usize {
        self.used.lock().total
    }

    /// Returns an owner's charge of no bytes, which can grow.
    pub(crate) fn open(self: &Arc<Self>, requester: Requester<'_>) -> Charge {
        let Requester { owner, is_system } = requester;
        let known = self.used.lock().by_owner.get_key_value(owner).map(|(owner, _)| owner.clone());
        let owner = known.unwrap_or_else(|| Arc::from(owner));
        Charge { budget: self.clone(), owner, bytes: 0, is_system }
    }

    /// Returns a charge of so many bytes; `None` when there is no room for them.
    pub(crate) fn charge(
        self: &Arc<Self>,
        requester: Requester<'_>,
        bytes: usize,
    ) -> Option<Charge> {
        let mut charge = self.open(requester);
        charge.grow(bytes).then_some(charge)
    }
}

impl Charge {
    /// Returns whether it is this owner's.
    pub(crate) fn is_of(&self, owner: &str) -> bool {
        &*self.owner == owner
    }

    /// Counts this many bytes more. Returns whether they are within the limits; if not, nothing is
    /// counted.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut limits = self.budget.limits;
        if self.is_system {
            // Others cannot take all.
            limits.total += limits.total / SYSTEM_PART;
        }
        let mut used = self.budget.used.lock();
        let total = used.total.saturating_add(bytes);
        let of_owner = used.by_owner.get(&self.owner).copied().unwrap_or_default();
        let of_owner = of_owner.saturating_add(bytes);
        if total > limits.total || of_owner > limits.per_owner {
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

    #[test]
    fn bytes_are_bounded_for_each_owner_and_as_a_whole() {
        let budget = ByteBudget::new(ByteLimits { total: 100, per_owner: 60 });
        let by = |owner| Requester { owner, is_system: false };
        let mut one = budget.open(by("a"));
        assert!(one.grow(50));
        assert!(!one.grow(11), "the owner has 60");
        let mut two = budget.open(by("a"));
        assert!(two.grow(10) && !two.grow(1));
        let mut other = budget.open(by("b"));
        assert!(!other.grow(41), "all together have 100");
        assert!(other.grow(40) && !other.grow(usize::MAX));
        assert_eq!(budget.used(), 100);
        let mut admin = budget.open(Requester { owner: "admin", is_system: true });
        assert!(admin.grow(25) && !admin.grow(1), "what others cannot take");
        drop(admin);
        drop((one, two));
        assert_eq!(budget.used(), 40);
        drop(other);
        assert_eq!(budget.used(), 0);
        assert!(budget.used.lock().by_owner.is_empty());
    }
}
