//! TLS of clients, versions 1.2 and 1.3, by rustls and aws-lc-rs: [`ServerTrust`] says which certificates of servers a
//! client accepts. The client of the API and the proxy use it, and neither of them needs the other.
//!
//! This crate reads no files, except the authorities that the system trusts. Its errors contain no bytes of a PEM text.

mod ca_digest;
mod pem;
mod server_trust;

pub use ca_digest::{CaDigest, InvalidDigest};
pub use pem::{PemError, certificates, roots, system_roots};
pub use server_trust::{ServerTrust, client_config};
