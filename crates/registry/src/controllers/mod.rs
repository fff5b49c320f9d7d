//! The controllers: the background tasks of the server.
//!
//! They remove namespaces with their content, and objects after their grace period. They collect
//! garbage, keep roles, phases, offers of secrets and the lists of connected agents up to date, and try the routes to
//! targets. They store the last use of keys and the readers of secrets, and remove expired keys and old events. They rotate
//! signing keys, revoke tokens of ended impersonations, and compact old history. Each controller
//! works only from the store, so a restart loses nothing, except possibly an event for a quota.

pub mod access_keys;
pub mod compaction;
pub mod connected_agents;
mod cursor;
pub mod events;
pub mod garbage;
pub mod impersonations;
pub mod namespaces;
pub mod offers;
pub mod phases;
pub mod probes;
pub mod project_secrets;
pub mod readers;
pub mod reaper;
pub mod roles;
pub mod signing_keys;
