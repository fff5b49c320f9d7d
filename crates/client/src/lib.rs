//! A client of the API: one server, one access key, and requests in terms of the kinds.
//!
//! This crate does not read the address or the key from anywhere, and prints nothing. Secret values pass through it and
//! are in no error and no log.

mod client;
mod collection;
mod connection;
mod error;
mod health;
mod impersonation_headers;
mod pinning;
mod proxy;
mod request;
mod selection;
mod server_url;
mod trust;
mod tunnel;
mod upgrade;
mod warnings;
mod watch;

#[cfg(test)]
mod tests;

pub use client::{Client, FormResponse, Settings};
pub use collection::Collection;
pub use error::{CertificateProblem, Error};
pub use health::{Health, health};
pub use pinning::pinned_trust;
pub use postern_tls::CaDigest;
pub use proxy::Proxy;
pub use request::{Representation, decode_fields};
pub use selection::{ApplyOptions, Selection};
pub use server_url::ServerUrl;
pub use trust::Trust;
pub use upgrade::{Switched, Upgrader};
pub use warnings::WarningHandler;
pub use watch::{Change, ChangeType, Watch, WatchEvent};
