//! `Gateway`: the connections to targets, and the routes of requests of the server itself.

use super::short_tokens::ShortTokens;
use super::target_state::Route;
use super::tunnels::TunnelRegistry;
use super::upstreams::{Reached, Upstreams};
use crate::MemberTrust;
use crate::TargetState;
use crate::members;
use crate::own_token;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use postern_auth::endpoint_token::server_audience;
use postern_auth::gateway_path::GatewayTarget;
use postern_listen::{raise_descriptor_limit, upstream_descriptors};
use postern_meta::status::ApiError;
use postern_proxy::{Limits, Proxy, STREAM_STALL, TcpDial, Upstream, UpstreamAddresses};
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// The default maximum duration of streams other than watches.
pub(crate) const DEFAULT_MAX_SESSION: Duration = Duration::from_hours(8);

/// The operator's settings for the gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The addresses that are allowed for clusters.
    pub upstream_addresses: UpstreamAddresses,
    /// The groups of callers that are forwarded to clusters, in addition to the platform's groups.
    pub forward_groups: Vec<String>,
    /// The maximum duration of exec, attach, port-forward and other streams.
    pub max_session: Duration,
    /// The time for which a client may read nothing of a stream or a response of a target.
    pub stream_stall: Duration,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            upstream_addresses: UpstreamAddresses::default(),
            forward_groups: Vec::new(),
            max_session: DEFAULT_MAX_SESSION,
            stream_stall: STREAM_STALL,
        }
    }
}

/// The route of a request of the server itself.
pub(crate) struct OwnRoute {
    pub(crate) state: TargetState,
    pub(crate) upstream: Upstream,
    pub(crate) headers: HeaderMap,
}

/// The part of the server that forwards requests to targets.
pub struct Gateway {
    pub(crate) settings: GatewaySettings,
    pub(crate) proxy: Proxy,
    /// The proxy for probes, which do not count as requests of clients.
    pub(crate) probes: Proxy,
    pub(crate) upstreams: Upstreams,
    pub(crate) tunnels: Arc<TunnelRegistry>,
    pub(crate) short_tokens: ShortTokens,
}

impl Gateway {
    /// A gateway without connections. `server` is the name of this server for agents, and `members` how it reaches
    /// others.
    pub fn new(
        settings: GatewaySettings,
        server: String,
        members: MemberTrust,
        source: Arc<dyn Source>,
    ) -> Self {
        let max_connections = upstream_descriptors(raise_descriptor_limit());
        let tunnels = TunnelRegistry::new(server, source, max_connections);
        let upstreams =
            Upstreams::new(settings.upstream_addresses.clone(), tunnels.clone(), members);
        let stream_stall = settings.stream_stall;
        let limits = Limits { max_connections, stream_stall, ..Limits::default() };
        let proxy = Proxy::with(limits, Arc::new(TcpDial::new()));
        let (probes, short_tokens) = (Proxy::new(), ShortTokens::default());
        Self { settings, proxy, probes, upstreams, tunnels, short_tokens }
    }

    /// The upstream of a cluster, and the headers of requests to it, for the documents of the cluster as an issuer of
    /// tokens.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn issuer_of(
        &self,
        registry: &Registry,
        cluster: &str,
    ) -> Result<(Upstream, HeaderMap), String> {
        let target = GatewayTarget::Cluster { cluster: cluster.to_owned() };
        let route = self.own_route(registry, &target).await;
        let OwnRoute { upstream, headers, .. } =
            route.map_err(|error| error.status().message.clone())?;
        Ok((upstream, headers))
    }

    /// The route of requests of the server itself: with the kubeconfig, or with a special token
    /// that the agent accepts for nothing else.
    ///
    /// # Errors
    /// 503 with the reason why there is none.
    pub(crate) async fn own_route(
        &self,
        registry: &Registry,
        target: &GatewayTarget,
    ) -> Result<OwnRoute, ApiError> {
        let state = TargetState::find(registry, target).await?;
        let Reached { upstream, member, .. } = self.upstreams.of(registry, &state).await?;
        let mut headers = HeaderMap::new();
        if let Route::Agent(route) = state.route() {
            let audience = server_audience(&route.uid);
            headers.insert(AUTHORIZATION, own_token::header(registry, "Bearer ", audience)?);
        }
        if let Some(member) = member {
            headers.extend([members::token(registry, &member)?]);
        }
        Ok(OwnRoute { state, upstream, headers })
    }

    /// The groups of callers that are forwarded to clusters.
    pub fn forward_groups(&self) -> &[String] {
        &self.settings.forward_groups
    }

    /// The time for which a client may read nothing of a target's response.
    pub fn stream_stall(&self) -> Duration {
        self.settings.stream_stall
    }

    /// The tunnels that agents have opened.
    pub fn tunnels(&self) -> &Arc<TunnelRegistry> {
        &self.tunnels
    }

    /// The tokens of short requests to agents.
    pub(crate) fn short_tokens(&self) -> &ShortTokens {
        &self.short_tokens
    }

    /// The proxy, for its counters and its shutdown.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }
}
