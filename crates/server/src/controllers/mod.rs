//! What the server does on its own: it removes namespaces and their content, removes objects whose
//! grace period is over, collects garbage, keeps roles in step, stores when keys were used, removes
//! expired keys and old events, rotates signing keys, revokes tokens of impersonations that have ended, and compacts old history. Each controller works only from
//! what is stored, so a restart loses nothing; but an event about a quota may be lost.

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
