//! The harness of the black-box tests: it starts a server for each test, has clients for it, and
//! waits for conditions.
//!
//! It has no code of the product, and no expectation about the product except how it is started.
//! The tests themselves are in `tests/`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "test code: a panic is how it fails, and the end of the server's log is printed with it"
)]

mod agent;
pub mod binary;
pub mod browser;
mod control_plane;
pub mod firewall;
mod form;
mod haproxy;
mod home;
mod kubeconfig;
mod nanoidp;
mod nginx;
mod oidc_provider;
mod pod;
mod random;
mod relay;
mod server;
mod tls;
mod tls_proxy;

pub mod cli;
pub mod connectors;
pub mod documents;
pub mod downloads;
pub mod etcd;
pub mod etcd_cluster;
mod etcd_gateway;
pub mod fleet_playground;
pub mod http;
pub mod identity_provider;
pub mod kms;
pub mod kubectl;
pub mod links;
pub mod objects;
pub mod openbao;
pub mod playground;
pub mod prometheus;
pub mod python;
pub mod rights;
pub mod slow;
pub mod status;
pub mod tinyproxy;
pub mod transit;
pub mod wait;
pub mod watching;
pub mod websocket;

pub use agent::{Agent, AgentSetup};
pub use control_plane::ControlPlane;
pub use firewall::Firewall;
pub use form::Form;
pub use haproxy::HaProxy;
pub use home::Home;
pub use kubeconfig::Kubeconfig;
pub use nanoidp::NanoIdp;
pub use nginx::Nginx;
pub use oidc_provider::{ClaimsAt, OidcProvider};
pub use pod::Pod;
pub use random::Random;
pub use relay::Relay;
pub use server::{Ended, Server, Setup};
pub use tls::{SelfSigned, TlsServer};
