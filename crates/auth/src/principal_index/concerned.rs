//! The keys that a change concerns. They are resolved in steps, so that a lock of the index is never held for long.

use std::collections::BTreeSet;
use std::ops::Bound;

use postern_kinds::Owner;

use super::PrincipalIndex;

/// The most keys that one call of [`PrincipalIndex::resolve_next`] resolves.
pub(super) const KEYS_AT_ONCE: usize = 64;

/// Keys that a change concerns.
#[derive(Debug)]
pub(super) enum Concerned {
    /// Those of an owner, from the name after this one on.
    KeysOf(Owner, String),
    /// This key.
    Key(String),
    /// Those that the key of a uid made.
    ChildrenOf(ChildrenOf),
}

/// The keys that another one made.
#[derive(Debug)]
pub(super) struct ChildrenOf {
    /// The uid of that key.
    uid: String,
    /// How many keys made each other since the change.
    level: usize,
    /// The names after this one are still to be resolved.
    after: String,
}

impl ChildrenOf {
    pub(super) fn all(uid: String, level: usize) -> Concerned {
        Concerned::ChildrenOf(Self { uid, level, after: String::new() })
    }
}

impl Concerned {
    /// All keys of an owner.
    pub(super) fn keys_of(owner: Owner) -> Self {
        Self::KeysOf(owner, String::new())
    }
}

impl PrincipalIndex {
    /// Resolves some of the affected keys, at most `KEYS_AT_ONCE`. It returns whether there are more. An owner may have
    /// many keys, and a team many members, so a caller with a lock can release it in between. Until then the other keys
    /// are as they were.
    pub fn resolve_next(&mut self) -> bool {
        match self.concerned.pop_front() {
            None => {}
            Some(Concerned::KeysOf(owner, after)) => {
                let names = next_names(self.keys_of.get(&owner), &after);
                for name in &names {
                    self.resolve_key(name, 0);
                }
                if let Some(last) = names.into_iter().nth(KEYS_AT_ONCE - 1) {
                    self.concerned.push_front(Concerned::KeysOf(owner, last));
                }
            }
            Some(Concerned::Key(name)) => self.resolve_key(&name, 0),
            Some(Concerned::ChildrenOf(ChildrenOf { uid, level, after })) => {
                let names = next_names(self.children_of.get(&uid), &after);
                for name in &names {
                    self.resolve_key(name, level + 1);
                }
                if let Some(after) = names.into_iter().nth(KEYS_AT_ONCE - 1) {
                    let rest = ChildrenOf { uid, level, after };
                    self.concerned.push_front(Concerned::ChildrenOf(rest));
                }
            }
        }
        !self.concerned.is_empty()
    }
}

/// The next names of a set after one of them, at most [`KEYS_AT_ONCE`].
fn next_names(names: Option<&BTreeSet<String>>, after: &str) -> Vec<String> {
    let Some(names) = names else { return Vec::new() };
    let rest = names.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
    rest.take(KEYS_AT_ONCE).cloned().collect()
}
