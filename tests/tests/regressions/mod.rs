//! Security holes that were found and mended, reproduced over HTTP with the binary. Each test is
//! named for the rule that must hold. It fails with every variant of the attack that succeeds.
//!
//! The cases that the unit tests of a crate already show are not repeated here.

mod child_keys;
mod clusters;
mod deputies;
mod impersonation;
mod made_for;
mod migration;
mod options;
mod past;
mod references;
mod scene;
mod scoped_siblings;
mod server_fields;
mod squatters;
mod wire;
