//! The registry: the state machine of the API, without HTTP.
//!
//! A caller's [`credential`] and a target become a [`permit`], or the request is rejected. With a permit, objects are read
//! from the [`cache`], and an admitted change is committed to the store. [`operations`] are the writes of one object,
//! [`actions`] are the other subresources, and [`controllers`] are the server's own work. All of them use the same
//! permits, the same admission and the same commit.

pub mod actions;
pub mod admit;
pub mod cache;
pub mod clock;
pub mod controllers;
pub mod credential;
pub mod default_namespaces;
pub mod default_roles;
pub mod errors;
pub mod events;
pub mod kubeconfig;
pub mod operations;
pub mod permit;
pub mod registry;
pub mod secret_record;
pub mod secret_subscriptions;
pub mod servers;
pub mod signing_keys;
pub mod storage_key;
