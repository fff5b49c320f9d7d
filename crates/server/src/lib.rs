//! The server: from a connection to a response.
//!
//! [`open`] prepares everything from what is on disk, [`Running::serve`] answers requests until it
//! is told to stop. The modules are floors: each uses only those below it (`ARCHITECTURE.md` draws
//! them). Other crates have the rules of access (`auth`), the definitions of kinds (`kinds`), and
//! storage (`store`).

mod actions;
pub mod admin;
mod audit;
mod cache;
mod clock;
mod controllers;
mod data_dir;
mod database;
mod default_namespaces;
mod default_roles;
mod endpoints;
mod errors;
mod events;
mod gateway;
mod kubeconfig;
mod listen;
mod metrics;
mod operations;
mod pipeline;
mod protobuf;
mod registry;
mod secret_record;
mod signing_keys;
mod stages;
mod start;
mod storage_key;
mod supervise;
mod tls;
mod wire;

pub use audit::{AuditLog, AuditSettings};
pub use clock::{Source, System};
pub use data_dir::DataDir;
pub use endpoints::version::Build;
pub use gateway::GatewaySettings;
pub use postern_proxy::UpstreamAddresses;
pub use registry::namespace_names::GivenNames;
pub use signing_keys::TokenPolicy;
pub use stages::admit::KeyPolicy;
pub use stages::flow::Limits;
pub use start::{Running, Settings, Welcome, open};
pub use tls::GivenCertificate;
