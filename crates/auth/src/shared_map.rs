//! Maps that share structure with their next version: a change costs as much as the depth of the
//! tree, and the version before stays as it is.

/// A map that shares structure with its next version.
pub(crate) type SharedMap<K, V> = rpds::HashTrieMapSync<K, V, foldhash::fast::RandomState>;

/// A set that shares structure with its next version.
pub(crate) type SharedSet<K> = SharedMap<K, ()>;
