//! The store: its contract on the engines of this crate, and the further promises of each engine, the log,
//! encryption at rest and backups.

mod backup;
mod common;
mod conformance;
mod faults;
mod hostile;
mod log;
mod model;
mod redb;
mod restore;
mod rotation;
mod seal;
mod wrapped;
