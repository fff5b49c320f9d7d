//! The snapshots of the policy: the present one, and those after the last changes, each with the revision from which
//! it decides.
//!
//! A watch needs past snapshots: it may send an event only if its caller could see the object at that time.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use postern_auth::policy::{NamedChange as BorrowedChange, Policy};
use postern_kinds::rbac::PolicyChange;

/// The policy changes that are kept. If a watch is further behind and its caller may see other objects now, the watch
/// ends. Each change has memory that no other snapshot shares, also if several changes make one snapshot.
const KEPT_CHANGES: usize = 1024;

/// A snapshot of the policy.
pub struct PolicyAt {
    /// The revision from which it decides.
    pub(crate) revision: u64,
    policy: Policy,
    /// The number of changes since the snapshot before.
    changes: usize,
}

impl Deref for PolicyAt {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

impl PolicyAt {
    /// A snapshot without an earlier one.
    fn first(revision: u64, policy: Policy) -> Self {
        Self { revision, policy, changes: 0 }
    }

    /// The policy without stored objects. The server itself acts with it.
    pub(crate) fn built_in() -> Arc<Self> {
        static BUILT_IN: LazyLock<Arc<PolicyAt>> =
            LazyLock::new(|| Arc::new(PolicyAt::first(0, Policy::clone(&Policy::built_in()))));
        BUILT_IN.clone()
    }
}

/// A change of one object of the policy: its namespace, its name, and its new content.
pub(super) type NamedChange = (Option<String>, String, PolicyChange);

/// The present snapshot, and those after the last changes.
pub(super) struct Policies {
    current: ArcSwap<PolicyAt>,
    history: Mutex<History>,
}

/// The kept snapshots.
struct History {
    /// The oldest first; the last is the present one.
    snapshots: VecDeque<Arc<PolicyAt>>,
    /// The number of changes from the oldest one to the present one.
    changes: usize,
}

impl History {
    fn new(first: Arc<PolicyAt>) -> Self {
        Self { snapshots: VecDeque::from([first]), changes: 0 }
    }

    /// Adds the next snapshot, and removes the oldest ones. The snapshot before it always stays: a watch that is up
    /// to date must not lose a change because of its size.
    fn push(&mut self, next: Arc<PolicyAt>) {
        self.changes += next.changes;
        self.snapshots.push_back(next);
        while self.changes > KEPT_CHANGES && self.snapshots.len() > 2 {
            self.snapshots.pop_front();
            // The changes of the new oldest snapshot come before it, so they no longer count.
            self.changes -= self.snapshots.front().map_or(0, |oldest| oldest.changes);
        }
    }
}

impl Policies {
    /// The policy of an empty store.
    pub(super) fn new() -> Self {
        let first = PolicyAt::built_in();
        Self { current: ArcSwap::new(first.clone()), history: Mutex::new(History::new(first)) }
    }

    /// The present snapshot.
    pub(super) fn current(&self) -> Arc<PolicyAt> {
        self.current.load_full()
    }

    /// Makes the next snapshot from the changes at a revision. Returns whether the policy has changed.
    pub(super) fn apply(&self, changes: &[NamedChange], revision: u64) -> bool {
        let (current, changes) = (self.current.load(), borrowed(changes));
        if !changes.iter().any(|change| current.is_changed_by(change)) {
            return false;
        }
        let policy = current.policy.with(&changes);
        let next = Arc::new(PolicyAt { revision, policy, changes: changes.len() });
        let mut history = self.history.lock();
        history.push(next.clone());
        self.current.store(next);
        true
    }

    /// The snapshot of all stored objects at a revision: each object once.
    pub(super) fn snapshot_of(stored: Vec<NamedChange>, revision: u64) -> Arc<PolicyAt> {
        Arc::new(PolicyAt::first(revision, Policy::of(stored)))
    }

    /// Replaces all snapshots with one.
    pub(super) fn load(&self, next: Arc<PolicyAt>) {
        *self.history.lock() = History::new(next.clone());
        self.current.store(next);
    }

    /// The snapshot that decides at a revision; `None` if it is no longer kept.
    pub(super) fn at(&self, revision: u64) -> Option<Arc<PolicyAt>> {
        let current = self.current.load();
        if current.revision <= revision {
            return Some(current.clone());
        }
        let snapshots = &self.history.lock().snapshots;
        let after = snapshots.partition_point(|one| one.revision <= revision);
        snapshots.get(after.checked_sub(1)?).cloned()
    }

    /// The snapshots after `known`, the oldest first; `None` if some are no longer kept.
    pub(super) fn after(&self, known: &Arc<PolicyAt>) -> Option<Vec<Arc<PolicyAt>>> {
        let snapshots = &self.history.lock().snapshots;
        let at = snapshots.iter().rposition(|one| Arc::ptr_eq(one, known))?;
        Some(snapshots.range(at + 1..).cloned().collect())
    }
}

fn borrowed(changes: &[NamedChange]) -> Vec<BorrowedChange<'_>> {
    let changes = changes.iter();
    changes.map(|(namespace, name, to)| (namespace.as_deref(), name.as_str(), to.clone())).collect()
}

#[cfg(test)]
mod tests {
    use postern_kinds::AnyKind as _;
    use postern_kinds::namespace::Namespace;

    use super::*;

    #[test]
    fn snapshots_are_kept_with_their_revisions_and_not_for_ever() {
        let policies = Policies::new();
        let first = policies.current();
        let change = || [(None, "n".to_owned(), PolicyChange::Namespace(None))];
        let of_nobody = PolicyChange::Owner(Namespace.info().group_resource(), None);
        assert!(
            !policies.apply(&[], 1) && !policies.apply(&[(None, "n".to_owned(), of_nobody)], 1)
        );
        assert!(Arc::ptr_eq(&first, &policies.current()), "nothing has changed");
        policies.apply(&change(), 2);
        policies.apply(&change(), 5);
        let revisions = |known: &Arc<PolicyAt>| {
            let after = policies.after(known)?;
            Some(after.iter().map(|one| one.revision).collect::<Vec<_>>())
        };
        assert_eq!(revisions(&first), Some(vec![2, 5]));
        assert_eq!(revisions(&policies.current()), Some(vec![]));
        for (revision, decides) in [(0, 0), (1, 0), (2, 2), (4, 2), (5, 5), (9, 5)] {
            assert_eq!(policies.at(revision).map(|one| one.revision), Some(decides));
        }
        let before = policies.current();
        for revision in 6..6 + KEPT_CHANGES as u64 {
            policies.apply(&change(), revision);
        }
        assert_eq!(revisions(&first), None);
        assert_eq!(revisions(&before).map(|after| after.len()), Some(KEPT_CHANGES));
        let before = policies.current();
        policies.load(Policies::snapshot_of(change().into(), 3000));
        assert_eq!(revisions(&before), None);
        assert_eq!(policies.current().revision, 3000);
        assert!(policies.at(2999).is_none());
    }

    #[test]
    fn snapshots_of_many_changes_are_fewer() {
        let policies = Policies::new();
        let many = |count: usize| -> Vec<_> {
            let name = |number| (None, format!("n{number}"), PolicyChange::Namespace(None));
            (0..count).map(name).collect()
        };
        let kept = || policies.history.lock().snapshots.len();
        for revision in 1..=100 {
            policies.apply(&many(KEPT_CHANGES / 4), revision);
        }
        assert_eq!(kept(), 5, "four that were made since the oldest one");
        let before = policies.current();
        policies.apply(&many(2 * KEPT_CHANGES), 101);
        assert_eq!(kept(), 2);
        assert_eq!(policies.after(&before).map(|after| after.len()), Some(1));
        policies.apply(&many(1), 102);
        assert_eq!(kept(), 2, "what was large is behind the oldest one");
        assert_eq!(policies.history.lock().changes, 1);
    }
}
