//! The objects of one kind by their keys: in order for lists, and by hash for gets.
//!
//! With a million keys, a search in order compares about twenty keys, none of which is in the processor's cache. A
//! search by hash finds the key at once.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use hashbrown::HashTable;
use postern_kinds::Owner;
use postern_store::Position;

use super::object::CachedObject;

/// The number of hash tables. A growing table is copied while all readers wait. With a million objects, a sixteenth
/// of them takes less than a millisecond.
const SHARDS: usize = 16;

/// The objects of one kind.
pub(super) struct Objects {
    ordered: BTreeMap<Arc<str>, CacheEntry>,
    hasher: RandomState,
    /// The intact objects, with the hashes of their keys.
    shards: [HashTable<(u64, Arc<CachedObject>)>; SHARDS],
    /// The intact objects that have an owner, by the owner and in order.
    by_owner: HashMap<Owner, BTreeMap<Arc<str>, Arc<CachedObject>>>,
}

impl Objects {
    /// An empty collection.
    pub(super) fn new() -> Self {
        Self {
            ordered: BTreeMap::new(),
            hasher: RandomState::new(),
            shards: [const { HashTable::new() }; SHARDS],
            by_owner: HashMap::new(),
        }
    }

    /// All objects of a kind, in any order.
    pub(super) fn of(mut all: Vec<(Arc<str>, CacheEntry)>) -> Self {
        let mut objects = Self::new();
        for shard in &mut objects.shards {
            shard.reserve(all.len().div_ceil(SHARDS), |(hash, _)| *hash);
        }
        // A tree from sorted items is built at once and without gaps. The pages are already in order, so the sort is
        // fast.
        all.sort_by(|one, other| one.0.cmp(&other.0));
        for (key, entry) in &all {
            objects.index(key, entry);
        }
        objects.ordered = all.into_iter().collect();
        objects
    }

    /// The number of values, including corrupt ones.
    pub(super) fn len(&self) -> usize {
        self.ordered.len()
    }

    /// The number of corrupt values.
    pub(super) fn corrupt(&self) -> usize {
        let intact: usize = self.shards.iter().map(HashTable::len).sum();
        self.ordered.len() - intact
    }

    /// The object under a key, if it exists and is intact.
    pub(super) fn intact(&self, key: &str) -> Option<&Arc<CachedObject>> {
        let hash = self.hasher.hash_one(key);
        let shard = &self.shards[shard_of(hash)];
        let entry = shard.find(hash, |(of, object)| is(*of, object, hash, key));
        entry.map(|(_, object)| object)
    }

    /// The stored value under a key.
    pub(super) fn get(&self, key: &str) -> Option<&CacheEntry> {
        self.ordered.get(key)
    }

    /// The stored value under a key, with the key itself.
    pub(super) fn get_key_value(&self, key: &str) -> Option<(&Arc<str>, &CacheEntry)> {
        self.ordered.get_key_value(key)
    }

    /// The values in a range of keys, in order. The keys have a prefix and come after `after`.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a CacheEntry)> {
        let start = match after {
            Some(after) if after >= prefix => Excluded(after),
            _ => Included(prefix),
        };
        let range = self.ordered.range::<str, _>((start, Unbounded));
        range.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The intact objects of these owners, in key order. Their keys have a prefix and come after
    /// `after`.
    pub(super) fn owned(
        &self,
        prefix: &str,
        after: Option<&str>,
        owners: &[Owner],
    ) -> Vec<Arc<CachedObject>> {
        let of = owners.iter().filter_map(|owner| self.by_owner.get(owner));
        let mut objects: Vec<_> = of
            .flatten()
            .filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| &***key > after))
            .map(|(_, object)| object.clone())
            .collect();
        objects.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        objects
    }

    /// The number of intact objects of an owner.
    pub(super) fn count_owned(&self, owner: &Owner) -> usize {
        self.by_owner.get(owner).map_or(0, BTreeMap::len)
    }

    /// Sets the stored value under a key.
    pub(super) fn insert(&mut self, key: Arc<str>, entry: CacheEntry) {
        self.remove_index(&key);
        self.index(&key, &entry);
        self.ordered.insert(key, entry);
    }

    /// Removes the stored value under a key.
    pub(super) fn remove(&mut self, key: &str) {
        self.remove_index(key);
        self.ordered.remove(key);
    }

    fn index(&mut self, key: &str, entry: &CacheEntry) {
        let CacheEntry::Intact(object) = entry else { return };
        let hash = self.hasher.hash_one(key);
        let shard = &mut self.shards[shard_of(hash)];
        shard.insert_unique(hash, (hash, object.clone()), |(hash, _)| *hash);
        if let Some(owned_by) = object.owner() {
            let owned = self.by_owner.entry(owned_by.owner.clone()).or_default();
            owned.insert(object.key().clone(), object.clone());
        }
    }

    fn remove_index(&mut self, key: &str) {
        let hash = self.hasher.hash_one(key);
        let shard = &mut self.shards[shard_of(hash)];
        let Ok(entry) = shard.find_entry(hash, |(of, object)| is(*of, object, hash, key)) else {
            return;
        };
        let ((_, object), _) = entry.remove();
        let Some(owned_by) = object.owner() else { return };
        if let Some(owned) = self.by_owner.get_mut(&owned_by.owner) {
            owned.remove(key);
            if owned.is_empty() {
                self.by_owner.remove(&owned_by.owner);
            }
        }
    }
}

/// The index of the table for a hash. The tables use the other bits of the hash.
fn shard_of(hash: u64) -> usize {
    usize::try_from(hash >> 32).unwrap_or_default() % SHARDS
}

fn is(of: u64, object: &CachedObject, hash: u64, key: &str) -> bool {
    of == hash && **object.key() == *key
}

/// The stored value under a key.
#[derive(Clone, Debug)]
pub enum CacheEntry {
    /// An object.
    Intact(Arc<CachedObject>),
    /// Bytes that differ from the written bytes.
    Corrupt {
        /// The position of the last change.
        position: Position,
        /// The reason; it never contains stored bytes.
        reason: Arc<str>,
    },
}

impl CacheEntry {
    /// The object, if it is intact.
    pub(super) fn intact(&self) -> Option<&Arc<CachedObject>> {
        match self {
            Self::Intact(object) => Some(object),
            Self::Corrupt { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::OwnedBy;
    use postern_meta::event::WatchEventType;
    use postern_store::Position;
    use proptest::prelude::*;

    use super::*;

    fn entry(key: &str, revision: u64, is_intact: bool) -> CacheEntry {
        let position = Position::new(revision, 0);
        let object =
            CachedObject::from_stored("{", key.into(), position, WatchEventType::Added, b"{}");
        match object.filter(|_| is_intact) {
            Some(object) => CacheEntry::Intact(Arc::new(object)),
            None => CacheEntry::Corrupt { position, reason: "a test".into() },
        }
    }

    fn position_of(entry: &CacheEntry) -> Position {
        match entry {
            CacheEntry::Intact(object) => object.position(),
            CacheEntry::Corrupt { position, .. } => *position,
        }
    }

    #[test]
    fn objects_are_found_by_their_owners() {
        let owned = |key: &str, owner: &str| {
            let position = Position::new(1, 0);
            let object =
                CachedObject::from_stored("{", key.into(), position, WatchEventType::Added, b"{}");
            let owner = OwnedBy { owner: Owner::User(owner.into()), uid: "1".into() };
            CacheEntry::Intact(Arc::new(object.unwrap().owned_by(Some(owner))))
        };
        let mut objects = Objects::of(vec![("/k/c".into(), owned("/k/c", "ada"))]);
        objects.insert("/k/a".into(), owned("/k/a", "ada"));
        objects.insert("/k/b".into(), owned("/k/b", "bob"));
        let of = |objects: &Objects, after, name: &str| -> Vec<String> {
            let wanted = Owner::User(name.into());
            let found = objects.owned("/k/", after, &[wanted]);
            found.iter().map(|object| object.key().to_string()).collect()
        };
        assert_eq!(of(&objects, None, "ada"), ["/k/a", "/k/c"]);
        assert_eq!(of(&objects, Some("/k/a"), "ada"), ["/k/c"]);
        objects.insert("/k/a".into(), owned("/k/a", "bob"));
        assert_eq!(of(&objects, None, "bob"), ["/k/a", "/k/b"]);
        objects.remove("/k/c");
        assert!(of(&objects, None, "ada").is_empty() && objects.by_owner.len() == 1);
    }

    proptest! {
        #[test]
        fn order_and_hash_find_the_same(
            loaded in prop::collection::btree_map("[a-c]{1,3}", any::<bool>(), 0..20),
            steps in prop::collection::vec(("[a-c]{1,3}", prop::option::of(any::<bool>())), 0..60),
        ) {
            let all = loaded.iter().map(|(key, intact)| (key.as_str().into(), entry(key, 1, *intact)));
            let mut objects = Objects::of(all.collect());
            let mut model: BTreeMap<String, (u64, bool)> =
                loaded.into_iter().map(|(key, intact)| (key, (1, intact))).collect();
            for (revision, (key, intact)) in (2..).zip(steps) {
                if let Some(intact) = intact {
                    objects.insert(key.as_str().into(), entry(&key, revision, intact));
                    model.insert(key.clone(), (revision, intact));
                } else {
                    objects.remove(&key);
                    model.remove(&key);
                }
                let want = model.get(&key);
                let intact = objects.intact(&key).map(|object| object.position());
                prop_assert_eq!(intact, want.filter(|of| of.1).map(|of| Position::new(of.0, 0)));
                let any = objects.get(&key).map(position_of);
                prop_assert_eq!(any, want.map(|of| Position::new(of.0, 0)));
                prop_assert_eq!(objects.len(), model.len());
            }
            let listed: Vec<_> = objects.range("a", Some("aa")).map(|(key, _)| key.to_string()).collect();
            let want = model.keys().filter(|key| key.starts_with('a') && key.as_str() > "aa");
            prop_assert_eq!(listed, want.cloned().collect::<Vec<_>>());
            let indexed: usize = objects.shards.iter().map(HashTable::len).sum();
            prop_assert_eq!(indexed, model.values().filter(|of| of.1).count());
        }
    }
}
