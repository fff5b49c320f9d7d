//! The start of a server: what it reads from the store, and what the first start writes.
//!
//! - [`first_start`]: the first namespaces, the user `admin`, and its key.
//! - [`format`](mod@format): the version of the layout of stored data.
//! - [`namespace_names`]: the names of namespaces that the operator chooses at the first start.
//! - [`shared_authority`]: the certificate authority of servers that share a store.

pub mod first_start;
pub mod format;
pub mod namespace_names;
pub mod shared_authority;
