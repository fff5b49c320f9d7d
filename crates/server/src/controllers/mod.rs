//! The server's own work. It removes namespaces and their content, and objects whose grace period is over. It
//! collects garbage, keeps roles in step, stores when keys were used, and removes expired keys and old events.
//! It rotates signing keys, revokes tokens of impersonations that have ended, and compacts old history.
//! Each controller works only from the store, so a restart loses nothing; but an event about a quota may be lost.

pub(crate) mod access_keys;
pub(crate) mod compaction;
pub(crate) mod events;
pub(crate) mod garbage;
pub(crate) mod impersonations;
pub(crate) mod namespaces;
pub(crate) mod phases;
pub(crate) mod project_secrets;
pub(crate) mod reaper;
pub(crate) mod roles;
pub(crate) mod signing_keys;
