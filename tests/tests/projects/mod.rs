//! Projects and their content: migration, lists, kubeconfigs, secret sync.

mod deletions;
mod kubeconfigs;
mod lists;
mod many_copies;
mod migration;
mod migration_under_load;
mod offers;
mod scene;
mod sync;
