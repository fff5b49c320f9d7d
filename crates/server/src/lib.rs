//! The server: from a connection to a response.
//!
//! [`open`] prepares everything from what is on disk, [`Running::serve`] answers requests until it
//! is told to stop. The modules are floors: each uses only those below it (`ARCHITECTURE.md` draws
//! them). What a request does is in other crates: the state machine of the API (`registry`), the rules of
//! access (`auth`), the definitions of kinds (`kinds`), and storage (`store`).

pub mod admin;
mod audit;
mod data_dir;
mod database;
mod endpoints;
mod gateway;
mod listen;
mod metrics;
mod pipeline;
mod stages;
mod start;
mod supervise;
mod tls;
mod wire;

pub use postern_flow::Limits;
pub use postern_proxy::UpstreamAddresses;
pub use postern_registry::admit::KeyPolicy;
pub use postern_registry::clock::{Source, System};
pub use postern_registry::registry::namespace_names::GivenNames;
pub use postern_registry::signing_keys::TokenPolicy;

pub use audit::{AuditLog, AuditSettings};
pub use data_dir::DataDir;
pub use endpoints::version::Build;
pub use gateway::GatewaySettings;
pub use start::{Running, Settings, Welcome, open};
pub use tls::GivenCertificate;
