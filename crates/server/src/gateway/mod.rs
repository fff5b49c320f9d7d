//! The gateway: requests to connected clusters, virtual clusters and spaces are sent on to them
//! (`docs/reference/clusters.md#gateway`).
//!
//! Whether a request gets there is decided in `auth`, by `stages::authorize`. Here are the location of a target
//! ([`place`]), the credential by which it is reached ([`upstreams`], [`agent`]), the end of a request
//! ([`session`]), and the answers to access reviews ([`review`]). Sending is `postern_proxy`'s.

mod agent;
mod place;
mod review;
mod send;
mod session;
mod upstreams;

use std::sync::Arc;
use std::time::Duration;

use postern_listen::{raise_descriptor_limit, upstream_descriptors};
use postern_proxy::{Limits, Proxy, TcpDial, UpstreamAddresses};

pub(crate) use self::place::Found;
pub(crate) use self::send::{SendContext, send};
use self::upstreams::Upstreams;

/// How long a stream other than a watch may go on, unless the operator says otherwise.
const DEFAULT_MAX_SESSION: Duration = Duration::from_hours(8);

/// The operator's settings for the gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Which addresses clusters may be at.
    pub upstream_addresses: UpstreamAddresses,
    /// Groups of callers that clusters are told of, besides the platform's own.
    pub forward_groups: Vec<String>,
    /// How long exec, attach, port-forward and the like go on at most.
    pub max_session: Duration,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            upstream_addresses: UpstreamAddresses::default(),
            forward_groups: Vec::new(),
            max_session: DEFAULT_MAX_SESSION,
        }
    }
}

/// The part of the server that sends requests on to targets.
pub(crate) struct Gateway {
    settings: GatewaySettings,
    proxy: Proxy,
    upstreams: Upstreams,
}

impl Gateway {
    /// A gateway. Nothing is connected yet.
    pub(crate) fn new(settings: GatewaySettings) -> Self {
        let upstreams = Upstreams::new(settings.upstream_addresses.clone());
        let max_connections = upstream_descriptors(raise_descriptor_limit());
        let limits = Limits { max_connections, ..Limits::default() };
        let proxy = Proxy::with(limits, Arc::new(TcpDial::new()));
        Self { settings, proxy, upstreams }
    }

    /// The groups that clusters are told of.
    pub(crate) fn forward_groups(&self) -> &[String] {
        &self.settings.forward_groups
    }

    /// The proxy, for its counts and its shutdown.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }
}
