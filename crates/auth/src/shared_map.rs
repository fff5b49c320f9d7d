//! Maps that share structure with their next version: a change costs as much as the depth of the
//! tree, and the version before stays as it is.

use std::ops::{Deref, DerefMut};

use foldhash::fast::RandomState;
use rpds::HashTrieMapSync;

/// The branches of a node. A change copies every node on its path, and touches all that branch off it. So
/// with few branches a change costs less, and nearly the same in a large map as in a small one.
const BRANCHES: u8 = 16;

/// A map that shares structure with its next version.
#[derive(Clone, Debug)]
pub(crate) struct SharedMap<K: Eq + std::hash::Hash, V>(HashTrieMapSync<K, V, RandomState>);

/// A set that shares structure with its next version.
pub(crate) type SharedSet<K> = SharedMap<K, ()>;

impl<K: Eq + std::hash::Hash, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        let map = HashTrieMapSync::new_with_hasher_and_degree_and_ptr_kind(
            RandomState::default(),
            BRANCHES,
        );
        Self(map)
    }
}

impl<K: Eq + std::hash::Hash, V> Deref for SharedMap<K, V> {
    type Target = HashTrieMapSync<K, V, RandomState>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Eq + std::hash::Hash, V> DerefMut for SharedMap<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
