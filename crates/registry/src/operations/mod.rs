//! The writing verbs: admission and registry together. Requests, controllers and the administrator's commands all
//! write through these functions.
//!
//! Not here: whether the caller may write (`permit`), and how a write is stored (`registry`).

mod access_keys;
mod apply;
mod create;
mod delete;
mod deletion_warnings;
mod update;

pub use self::deletion_warnings::deletion_warnings;
pub(crate) use access_keys::{
    remove_ended_codes, remove_expired_keys, remove_keys_without_maker, remove_keys_without_owner,
};
pub use apply::{Applied, apply};
pub use create::create;
pub(crate) use delete::log_out;
pub use delete::{delete, delete_collection, release, remove_corrupt};
pub use update::{replace, update};
