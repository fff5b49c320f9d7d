//! Projects and what is in them: migration, lists, kubeconfigs, secrets that follow others.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod kubeconfigs;
mod lists;
mod many_copies;
mod migration;
mod migration_under_load;
mod scene;
mod sync;
