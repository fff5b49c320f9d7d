//! The keys that a change concerns. They are resolved in steps, so that a lock of the index is never held for long.

use std::collections::BTreeSet;
use std::ops::Bound;

use postern_kinds::Owner;

use super::{MAX_ANCESTORS, PrincipalIndex};

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

impl Concerned {
    /// All keys of an owner.
    pub(super) fn keys_of(owner: Owner) -> Self {
        Self::KeysOf(owner, String::new())
    }
}

impl PrincipalIndex {
    /// Resolves a key, and notes those that end with it. `level`: so many keys are between it and the change. Keys that end
    /// with each other in a circle give no access, and end here.
    pub(super) fn resolve_key(&mut self, name: &str, level: usize) {
        for digest in self.digests_of.get(name).cloned().unwrap_or_default() {
            self.resolve_digest(digest);
        }
        let uid = self.keys.get(name).map(|key| &key.uid);
        let uid = uid.filter(|uid| level < MAX_ANCESTORS && self.children_of.contains_key(*uid));
        if let Some(uid) = uid.cloned() {
            self.note_children(uid, level);
        }
    }

    /// Notes the keys that end with the key of a uid. After each change, they are noted once, however many paths lead to
    /// them: of these, there can be exponentially many.
    pub(super) fn note_children(&mut self, uid: String, level: usize) {
        if self.noted.get(&uid).is_some_and(|known| *known <= level) {
            return;
        }
        self.noted.insert(uid.clone(), level);
        let all = ChildrenOf { uid, level, after: String::new() };
        self.concerned.push_back(Concerned::ChildrenOf(all));
    }

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
