//! What the server does on its own: it ends namespaces, ends objects whose time has come, collects
//! garbage, stores when keys were used, removes expired ones, and forgets old history. Each works from what is stored alone, so that a restart loses nothing.

pub(crate) mod access_keys;
pub(crate) mod compaction;
pub(crate) mod garbage;
pub(crate) mod namespaces;
pub(crate) mod reaper;
