//! Projects and what is in them: migration, lists, kubeconfigs, secrets that follow others.

mod deletions;
mod kubeconfigs;
mod lists;
mod many_copies;
mod migration;
mod migration_under_load;
mod scene;
mod sync;
