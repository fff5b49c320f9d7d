//! The writing verbs: admission and registry put together. Requests, controllers and the administrator's
//! commands all write through here.
//!
//! Not here: whether a write is allowed (`stages`), and how it is stored (`registry`).

mod access_keys;
mod apply;
mod create;
mod delete;
mod update;

pub(crate) use access_keys::{
    remove_expired_keys, remove_keys_without_maker, remove_keys_without_owner,
};
pub(crate) use apply::{Applied, apply};
pub(crate) use create::create;
pub(crate) use delete::{delete, delete_collection, release, remove_corrupt};
pub(crate) use update::{replace, update};
