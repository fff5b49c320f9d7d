//! The upstreams of targets: their addresses and credentials. They are made from kubeconfigs, and cached until these
//! change.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::secret;
use postern_meta::status::ApiError;
use postern_proxy::{ClientCertificate, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_registry::registry::Registry;
use postern_store::Position;

use super::agent_route::{AgentRoute, Endpoint};
use super::members::{self, MemberTrust};
use super::target_state::{Route, SecretKey, TargetState, secret_of};
use super::tunnels::TunnelRegistry;

/// The most upstreams in the cache. Beyond it, an arbitrary one is removed, and made again on its next use.
const MAX_CACHED: usize = 10_000;

/// The seconds after which a client may retry while a route is being changed.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The source of an upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Origin {
    /// The namespace, name and key of a Secret.
    Secret(String, String, String),
    Agent(Endpoint),
    /// Another server, and the route from there.
    Member(String, AgentRoute),
}

/// An upstream, and the other server that it is behind.
pub(super) struct Reached {
    pub(super) upstream: Upstream,
    pub(super) member: Option<String>,
    /// Whether each connection is a tunnel of the agent, which takes heads of any length.
    pub(super) is_tunnel: bool,
}

impl From<Upstream> for Reached {
    fn from(upstream: Upstream) -> Self {
        Self { upstream, member: None, is_tunnel: false }
    }
}

/// The cache of upstreams.
pub(super) struct Upstreams {
    addresses: UpstreamAddresses,
    tunnels: Arc<TunnelRegistry>,
    members: MemberTrust,
    cached: Mutex<HashMap<Origin, (Option<Position>, Upstream)>>,
}

impl Upstreams {
    pub(super) fn new(
        addresses: UpstreamAddresses,
        tunnels: Arc<TunnelRegistry>,
        members: MemberTrust,
    ) -> Self {
        Self { addresses, tunnels, members, cached: Mutex::default() }
    }

    /// The upstream of a target.
    ///
    /// # Errors
    /// 503 with the reason why there is no usable route.
    pub(super) async fn of(
        &self,
        registry: &Registry,
        target: &TargetState,
    ) -> Result<Reached, ApiError> {
        match target.route() {
            Route::Kubeconfig(key) => self.by_kubeconfig(registry, key).await.map(Into::into),
            Route::Agent(route) => self.by_agent(registry, route).await,
            Route::None(why) => Err(no_route(why)),
        }
    }

    async fn by_kubeconfig(
        &self,
        registry: &Registry,
        key: &SecretKey,
    ) -> Result<Upstream, ApiError> {
        let at = format!("the key {:?} of the Secret {:?}", key.key, key.name);
        if key.position.is_none() {
            return Err(no_route(&format!("its kubeconfig must be in {at}, which does not exist")));
        }
        let origin = Origin::Secret(key.namespace.clone(), key.name.clone(), key.key.clone());
        if let Some(upstream) = self.cached(&origin, key.position) {
            return Ok(upstream);
        }
        let changed = || {
            let message = "the kubeconfig of the target is being changed: retry later";
            ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS))
        };
        let secret = secret_of(registry, key)?.ok_or_else(changed)?;
        let (name, addresses) = (key.key.clone(), self.addresses.clone());
        let upstream = on_blocking_thread(move || {
            let secret = secret.part().map_err(|_| "the Secret is corrupt".to_owned())?;
            upstream_of(&secret, &name, addresses)
        });
        let upstream = upstream.await;
        let upstream =
            upstream.map_err(|why| no_route(&format!("invalid kubeconfig in {at}: {why}")))?;
        self.cache(origin, key.position, &upstream);
        Ok(upstream)
    }

    /// The upstream behind a tunnel of the agent to this server or to another one, if it has one; otherwise its
    /// endpoint.
    async fn by_agent(&self, registry: &Registry, route: &AgentRoute) -> Result<Reached, ApiError> {
        let AgentRoute { uid, by_tunnel, endpoint, .. } = route;
        let mut tunnels = by_tunnel.then(|| self.tunnels.of_cluster(uid)).flatten();
        if tunnels.is_none()
            && *by_tunnel
            && let Some(member) =
                members::member_with_tunnel(registry, self.tunnels.server(), route)
        {
            let upstream = self.behind_member(&member, route).await?;
            return Ok(Reached { member: Some(member), ..Reached::from(upstream) });
        }
        if tunnels.is_none() && endpoint.is_none() {
            tunnels = self.tunnels.wait_for(uid).await;
        }
        if let Some(tunnels) = tunnels {
            let upstream = route.through(&tunnels).map_err(|why| no_route(&why))?;
            return Ok(Reached { is_tunnel: true, ..Reached::from(upstream) });
        }
        let Some(endpoint) = endpoint else {
            return Err(no_route(route.leads_to.without_agent()));
        };
        self.at_endpoint(endpoint).await.map(Into::into)
    }

    async fn behind_member(&self, member: &str, route: &AgentRoute) -> Result<Upstream, ApiError> {
        let origin = Origin::Member(member.to_owned(), route.clone());
        if let Some(upstream) = self.cached(&origin, None) {
            return Ok(upstream);
        }
        let (name, trust, of) = (member.to_owned(), self.members.clone(), route.clone());
        let upstream = on_blocking_thread(move || members::upstream(&name, &trust, &of)).await;
        let upstream = upstream.map_err(|why| no_route(&why))?;
        self.cache(origin, None, &upstream);
        Ok(upstream)
    }

    async fn at_endpoint(&self, route: &Endpoint) -> Result<Upstream, ApiError> {
        let origin = Origin::Agent(route.clone());
        if let Some(upstream) = self.cached(&origin, None) {
            return Ok(upstream);
        }
        let (of, addresses) = (route.clone(), self.addresses.clone());
        let upstream = on_blocking_thread(move || {
            Upstream::new(of.config(addresses)?).map_err(|error| error.to_string())
        });
        let upstream = upstream.await;
        let upstream =
            upstream.map_err(|why| no_route(&format!("invalid route to its agent: {why}")))?;
        self.cache(origin, None, &upstream);
        Ok(upstream)
    }

    fn cached(&self, origin: &Origin, position: Option<Position>) -> Option<Upstream> {
        let cached = self.cached.lock();
        let (of, upstream) = cached.get(origin)?;
        (*of == position).then(|| upstream.clone())
    }

    fn cache(&self, origin: Origin, position: Option<Position>, upstream: &Upstream) {
        let mut cached = self.cached.lock();
        if cached.len() >= MAX_CACHED
            && !cached.contains_key(&origin)
            && let Some(other) = cached.keys().next().cloned()
        {
            cached.remove(&other);
        }
        cached.insert(origin, (position, upstream.clone()));
    }
}

/// Makes an upstream on a thread that may block: it parses certificates, and may read the system's from the disk.
async fn on_blocking_thread(
    work: impl FnOnce() -> Result<Upstream, String> + Send + 'static,
) -> Result<Upstream, String> {
    let made = tokio::task::spawn_blocking(work).await;
    made.unwrap_or_else(|_| Err("its configuration cannot be read".to_owned()))
}

/// The 503 of a target without a usable route. It has no `Retry-After`: an operator must act first, and clients would
/// retry for minutes before they report the reason.
fn no_route(why: &str) -> ApiError {
    ApiError::unavailable(format!("there is no route to the target: {why}"), None)
}

/// Makes an upstream from the kubeconfig in a Secret. No error contains a value of the kubeconfig.
fn upstream_of(
    secret: &secret::Spec,
    key: &str,
    addresses: UpstreamAddresses,
) -> Result<Upstream, String> {
    let kubeconfig = Kubeconfig::of_secret(secret, key).map_err(|error| error.to_string())?;
    let url = kubeconfig.server.parse().map_err(|_| "the server is not a URL".to_owned())?;
    let bytes = |text: &str| SecretBytes::new(text.as_bytes().to_vec());
    let authorization = kubeconfig.token.as_ref().map(|token| bearer(token.expose()));
    let certificate = kubeconfig.client_certificate.map(|certificate| ClientCertificate {
        certificate_pem: certificate.chain_pem.into_bytes(),
        key_pem: bytes(certificate.key_pem.expose()),
    });
    let config = UpstreamConfig {
        ca_pem: kubeconfig.ca_pem.map(String::into_bytes),
        server_name: kubeconfig.tls_server_name,
        insecure: kubeconfig.is_insecure,
        client_certificate: certificate,
        authorization,
        addresses,
        ..UpstreamConfig::new(url)
    };
    Upstream::new(config).map_err(|error| error.to_string())
}

/// The value of `Authorization`. It is written in one step, so that no copy stays in memory.
fn bearer(token: &str) -> SecretBytes {
    const SCHEME: &str = "Bearer ";
    let mut value = Vec::with_capacity(SCHEME.len() + token.len());
    value.extend_from_slice(SCHEME.as_bytes());
    value.extend_from_slice(token.as_bytes());
    SecretBytes::new(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kubeconfig: &str) -> secret::Spec {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(kubeconfig);
        serde_json::from_value(serde_json::json!({ "data": { "config": data } })).unwrap()
    }

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    #[test]
    fn an_upstream_is_made_from_a_kubeconfig() {
        let of = |text: &str| upstream_of(&spec(text), "config", UpstreamAddresses::default());
        let upstream = of(&kubeconfig("https://10.0.0.1:6443/k8s", "{token: hunter2}")).unwrap();
        assert_eq!(upstream.address(), "10.0.0.1:6443");
        assert!(!format!("{upstream:?}").contains("hunter2"));
        for (user, word) in [("{exec: {command: x}}", "exec"), ("{tokenFile: /x}", "tokenFile")] {
            let error = of(&kubeconfig("https://10.0.0.1", user)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(upstream_of(&spec("x"), "other", UpstreamAddresses::default()).is_err());
        let error = of("token: hunter2").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
