//! The central server: serves requests, from the connection to the response.
//!
//! [`open`] opens all files and the listener. [`Running::serve`] serves requests until the shutdown. A module uses
//! only modules below it (see `ARCHITECTURE.md`). Other crates have the state machine of the API (`registry`), the
//! access decisions (`auth`), the kinds (`kinds`), and storage (`store`).

pub mod admin;
mod data_dir;
mod database;
mod endpoints;
mod keyring;
mod listen;
mod members;
mod pipeline;
mod start;
mod supervise;
mod tls;
mod transit;

pub use postern_flow::Limits;
pub use postern_kinds::Sharing;
pub use postern_listen::Networks;
pub use postern_proxy::UpstreamAddresses;
pub use postern_registry::admit::UserPolicy;
pub use postern_registry::cache::DEFAULT_STORE_SILENCE;
pub use postern_registry::clock::{Source, System};
pub use postern_registry::registry::namespace_names::GivenNames;
pub use postern_registry::signing_keys::TokenPolicy;

pub use data_dir::DataDir;
pub use endpoints::version::Build;
pub use keyring::KeyringSetting;
pub use pipeline::{ClientAddresses, DEFAULT_LOGIN_FAILURES};
pub use postern_audit::{AuditLog, AuditSettings};
pub use postern_gateway::GatewaySettings;
pub use postern_store::RemoteEngine;
pub use start::{Running, Settings, Welcome, host_name, init, open};
pub use tls::GivenCertificate;
pub use transit::TransitSettings;
