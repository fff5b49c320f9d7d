//! The API from its clients' side: one server, one access key, and requests in terms of the kinds.
//!
//! What does not live here: where the address and the key come from, anything that is printed, and
//! the waiting for changes. Secret values pass through and are in no error and no log.

mod client;
mod collection;
mod connection;
mod error;
mod impersonation;
mod server_url;
mod trust;

#[cfg(test)]
mod tests;

pub use client::{Client, Form, Settings, fields};
pub use collection::Collection;
pub use error::{CertificateProblem, Error};
pub use server_url::ServerUrl;
pub use trust::Trust;
