//! The server's own work. It removes namespaces and their content, and objects whose grace period is over. It
//! collects garbage, keeps roles in step, stores when keys were used, and removes expired keys and old events.
//! It rotates signing keys, revokes tokens of impersonations that have ended, and compacts old history.
//! Each controller works only from the store, so a restart loses nothing; but an event about a quota may be lost.

pub mod access_keys;
pub mod compaction;
pub mod events;
pub mod garbage;
pub mod impersonations;
pub mod namespaces;
pub mod phases;
pub mod project_secrets;
pub mod reaper;
pub mod roles;
pub mod signing_keys;
