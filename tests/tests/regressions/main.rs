//! Security holes that were found and mended, reproduced over HTTP with the binary. Each test is named for what must
//! hold. It fails with every variant of the attack that succeeds.
//!
//! Not here: what the unit tests of a crate already show.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod child_keys;
mod clusters;
mod deputies;
mod impersonation;
mod made_for;
mod migration;
mod options;
mod past;
mod scene;
mod scoped_siblings;
mod wire;
