//! The owners and dependents of objects, by storage keys.
//!
//! The index has keys and no uids: the uid of the object with a key is checked in the cache when it is needed. So
//! objects without owners cost nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Owners and dependents, each by the other.
#[derive(Default)]
pub(super) struct Index {
    owners: HashMap<Arc<str>, Vec<Arc<str>>>,
    dependents: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Index {
    /// Sets the owners of an object. Returns the owners that it no longer has.
    pub(super) fn set(&mut self, key: &Arc<str>, owners: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let before = self.owners.remove(key).unwrap_or_default();
        for owner in &before {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for owner in &owners {
            self.dependents.entry(owner.clone()).or_default().insert(key.clone());
        }
        let removed = before.into_iter().filter(|owner| !owners.contains(owner)).collect();
        if !owners.is_empty() {
            self.owners.insert(key.clone(), owners);
        }
        removed
    }

    /// The objects that name this one as owner.
    pub(super) fn dependents_of(&self, owner: &str) -> Vec<Arc<str>> {
        self.dependents.get(owner).into_iter().flatten().cloned().collect()
    }

    /// Removes the owners of all objects of a collection, but not their dependents. Returns these owners and
    /// dependents.
    pub(super) fn clear_collection(&mut self, prefix: &str) -> Vec<Arc<str>> {
        let members: Vec<_> =
            self.owners.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut related = Vec::new();
        for key in members {
            related.extend(self.set(&key, Vec::new()));
        }
        let of_members = self.dependents.iter().filter(|(owner, _)| owner.starts_with(prefix));
        related.extend(of_members.flat_map(|(_, dependents)| dependents.iter().cloned()));
        related
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn both_sides_are_kept_in_step() {
        let mut index = Index::default();
        assert!(index.set(&"a".into(), keys(&["x", "y"])).is_empty());
        index.set(&"b".into(), keys(&["x"]));
        assert_eq!(index.dependents_of("x"), keys(&["a", "b"]));
        assert_eq!(index.set(&"a".into(), keys(&["y"])), keys(&["x"]));
        assert_eq!(index.dependents_of("x"), keys(&["b"]));
        assert_eq!(index.set(&"b".into(), Vec::new()), keys(&["x"]));
        assert!(index.dependents_of("x").is_empty());
        assert!(!index.dependents.contains_key("x") && !index.owners.contains_key("b"));
    }

    #[test]
    fn a_collection_is_cleared_and_related_objects_are_returned() {
        let mut index = Index::default();
        index.set(&"k/1".into(), keys(&["u/1"]));
        index.set(&"z/1".into(), keys(&["k/1"]));
        assert_eq!(index.clear_collection("k/"), keys(&["u/1", "z/1"]));
        assert_eq!(index.dependents_of("k/1"), keys(&["z/1"]));
    }
}
