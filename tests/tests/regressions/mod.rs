//! Security holes that were found and mended, reproduced over HTTP with the binary. Each test is named for what must
//! hold. It fails with every variant of the attack that succeeds.
//!
//! Not here: what the unit tests of a crate already show.

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
