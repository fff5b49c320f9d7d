//! The route through a cluster's agent (`docs/reference/clusters.md#routes`). Each request has a JWT that is issued for
//! its caller and this cluster. The agent decides from it, as from any other token. So the central server stores no
//! credential of the cluster, and the gateway has only the permissions of the token. Short requests of one caller share
//! a token for half of its lifetime, unless the caller's key, user or team changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use postern_auth::bearer::MAX_TUNNEL_TOKEN_BYTES;
use postern_auth::endpoint_token::{Bearer, Claims, Issuance, cluster_audience};
use postern_kinds::base64_text;
use postern_kinds::cluster::{DIRECT_ENDPOINT, RouteRule};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_proxy::{Renewal, Tunnels, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_registry::clock::new_uid;
use postern_registry::registry::issued_tokens::TokenIdentity;

use super::session::Caller;
use super::short_tokens::{ShortToken, ShortTokens, Use};
use super::target_state::Route;

/// The lifetime of the token (a JWT). It only has to last until the agent has read the head of the request.
const TOKEN_TTL_SECONDS: i64 = 60;

/// The route to a target through its cluster's agent: through the agent's tunnels, or at its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AgentRoute {
    /// The name of the Cluster.
    pub(super) cluster: String,
    /// The uid of the Cluster.
    pub(super) uid: String,
    /// Whether the tunnels of the agent are used.
    pub(super) by_tunnel: bool,
    /// The endpoint of the agent, if it has one and it is used.
    pub(super) endpoint: Option<Endpoint>,
    /// The prefix of the target's paths at the agent.
    pub(super) prefix: String,
    /// The kind of the target.
    pub(super) leads_to: LeadsTo,
}

/// What an agent leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeadsTo {
    /// Its cluster, or a space in it.
    Cluster,
    /// A virtual cluster in it. A kubeconfig of the cluster does not lead there.
    VirtualCluster,
}

impl LeadsTo {
    /// Why there is no route if the agent has neither a tunnel nor an endpoint.
    pub(super) fn without_agent(self) -> &'static str {
        match self {
            Self::Cluster => {
                "the Cluster has no kubeconfig (spec.config), its agent has opened no tunnel to this server, and it has no \
                 agent endpoint (annotation platform.sh/direct-cluster-endpoint)"
            }
            Self::VirtualCluster => {
                "the VirtualClusterInstance has no kubeconfig (its own spec.config), and the agent of its cluster, which \
                 would lead there, has opened no tunnel to this server and has no endpoint (annotation \
                 platform.sh/direct-cluster-endpoint of the Cluster)"
            }
        }
    }
}

/// The address of a cluster's agent, and the target behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    /// `HOST[:PORT]`
    host: String,
    is_insecure: bool,
    /// The certificate authorities of the agent, as base64 of PEM.
    ca_data: Option<String>,
    /// The prefix of the target's paths at the agent.
    prefix: String,
}

impl AgentRoute {
    /// The route through the agent of a Cluster, from the annotations with its endpoint; `None` if the rule allows no
    /// tunnel, and there is no endpoint that it allows.
    pub(super) fn of(
        (cluster, uid): (&str, &str),
        annotations: &BTreeMap<String, String>,
        rule: RouteRule,
        prefix: String,
        leads_to: LeadsTo,
    ) -> Option<Self> {
        let endpoint = rule.endpoint.then(|| Endpoint::of(annotations, prefix.clone())).flatten();
        let (cluster, uid, by_tunnel) = (cluster.to_owned(), uid.to_owned(), rule.tunnel);
        let is_one = by_tunnel || endpoint.is_some();
        is_one.then_some(Self { cluster, uid, by_tunnel, endpoint, prefix, leads_to })
    }

    /// The upstream behind tunnels of the agent.
    ///
    /// # Errors
    /// When the path of the target is not valid.
    pub(super) fn through(&self, tunnels: &Tunnels) -> Result<Upstream, String> {
        let url = format!("http://agent{}", self.prefix).parse();
        let url = url.map_err(|_| "the path of the target is not valid".to_owned())?;
        Upstream::through(&url, tunnels).map_err(|error| error.to_string())
    }
}

impl Endpoint {
    /// The endpoint in the annotations of a Cluster; `None` without one.
    fn of(annotations: &BTreeMap<String, String>, prefix: String) -> Option<Self> {
        let with = |suffix: &str| annotations.get(&format!("{DIRECT_ENDPOINT}{suffix}"));
        Some(Self {
            host: with("").filter(|host| !host.is_empty())?.clone(),
            is_insecure: with("-insecure").is_some_and(|text| text == "true"),
            ca_data: with("-ca-data").filter(|data| !data.is_empty()).cloned(),
            prefix,
        })
    }

    /// The configuration of the upstream. It has no credential, because each request has its own token.
    ///
    /// # Errors
    /// The annotation that is invalid.
    pub(super) fn config(&self, addresses: UpstreamAddresses) -> Result<UpstreamConfig, String> {
        let url = format!("https://{}{}", self.host, self.prefix);
        let url = url
            .parse()
            .map_err(|_| format!("the annotation {DIRECT_ENDPOINT} must be HOST or HOST:PORT"))?;
        let wrong = |_| format!("the annotation {DIRECT_ENDPOINT}-ca-data must be base64");
        let ca_pem = self.ca_data.as_ref().map(|data| base64_text::decode(data)).transpose();
        let insecure = self.is_insecure;
        Ok(UpstreamConfig {
            addresses,
            insecure,
            ca_pem: ca_pem.map_err(wrong)?.map(|pem| pem.to_vec()),
            ..UpstreamConfig::new(url)
        })
    }
}

/// The value of `Authorization` for a request through an agent; `None` on another route. Short requests of one caller
/// share a token for a while.
///
/// # Errors
/// Those of [`issue`].
pub(super) async fn authorization(
    caller: &Caller,
    tokens: &ShortTokens,
) -> Result<Option<HeaderValue>, ApiError> {
    let Route::Agent(route) = caller.target.route() else { return Ok(None) };
    let longest = MAX_TUNNEL_TOKEN_BYTES;
    let Caller { registry, credential, request, .. } = caller;
    let now = registry.source().now();
    if request.kube.is_long() {
        return Ok(Some(issue(caller, (route, longest), &noted(caller, now).await?, now)?.value));
    }
    let identity = TokenIdentity::now(registry, credential, now).await?;
    let keys = registry.cache().signing_keys();
    let of = keys.signer(now).filter(|_| credential.wanted().is_none()).map(|signer| Use {
        key_uid: identity.current.key.uid.clone(),
        cluster_uid: route.uid.clone(),
        signer: signer.id().to_owned(),
    });
    let Some(of) = of else {
        return Ok(Some(issue(caller, (route, longest), &identity, now)?.value));
    };
    let seconds = TOKEN_TTL_SECONDS / 2;
    if let Some(value) = tokens.find(&of, &identity, now.unix_seconds(), seconds) {
        return Ok(Some(value));
    }
    let token = issue(caller, (route, longest), &identity, now)?;
    let value = token.value.clone();
    tokens.keep(of, token);
    Ok(Some(value))
}

/// The identity for the token of a long request. A watch or exec outlives its token at the agent, until the session of the
/// request ends it here. Such a token is recorded for the key, so that a change of the key also ends the stream at the
/// agent. No stream can outlive any other token.
async fn noted(caller: &Caller, now: Timestamp) -> Result<TokenIdentity, ApiError> {
    TokenIdentity::noted(&caller.registry, &caller.credential, now, TOKEN_TTL_SECONDS).await
}

/// Issues a token of at most so many bytes for a request through an agent.
///
/// # Errors
/// 401 and 409 when the caller's key or permissions have changed; 503 when no token can be issued.
fn issue(
    caller: &Caller,
    (route, max_bytes): (&AgentRoute, usize),
    identity: &TokenIdentity,
    now: Timestamp,
) -> Result<ShortToken, ApiError> {
    let Caller { registry, credential, request, .. } = caller;
    let is_long = request.kube.is_long();
    let TokenIdentity { revocation_revision, current, .. } = identity;
    let bearer = Bearer {
        key: &current.key,
        identity: current.identity(),
        wanted: credential.wanted(),
        scope: None,
    };
    let issuance = Issuance {
        issuer: registry.token_policy().issuer.clone(),
        audiences: vec![cluster_audience(&route.uid)],
        issued_at: now.unix_seconds(),
        ttl_seconds: TOKEN_TTL_SECONDS,
        token_id: new_uid(registry.source()),
        revocation_revision: *revocation_revision,
    };
    let keys = registry.cache().signing_keys();
    let unavailable = |why: &str| {
        ApiError::unavailable(format!("cannot issue a token for the agent: {why}"), None)
    };
    let signer = keys.signer(now).ok_or_else(|| unavailable("there is no signing key"))?;
    let mut claims = Claims::of(&bearer, issuance);
    // The expiry of the key is checked here repeatedly, because use can extend it.
    claims.platform.keys_end = (!is_long).then_some(claims.exp);
    claims.platform.gateway_session = is_long;
    let token = signer.issue_within(max_bytes, &claims).map_err(|_| {
        unavailable(
            "with the caller's groups and teams and the scopes of the access key, it would have more than 1 MiB: remove \
             groups, or use a key with fewer entries in its scope",
        )
    })?;
    let value = HeaderValue::from_str(&["Bearer ", token.expose()].concat());
    let mut value = value.map_err(|error| ApiError::internal("a token", error))?;
    value.set_sensitive(true);
    Ok(ShortToken {
        value,
        revocation_revision: *revocation_revision,
        issued_at: claims.iat,
        expires_at: claims.exp,
    })
}

/// Issues a new token, of at most so many bytes, for a request that is sent again; `None` if the same token works. A stream can outlive its token
/// only if the agent sees the token for the first time. The agent may have seen it before the connection failed.
pub(super) fn renewal(caller: &Arc<Caller>, max_bytes: usize) -> Option<Renewal> {
    let (is_long, route) = (caller.request.kube.is_long(), caller.target.route());
    if !is_long || !matches!(route, Route::Agent(_)) {
        return None;
    }
    let caller = caller.clone();
    Some(Box::new(move || {
        Box::pin(async move {
            let Route::Agent(route) = caller.target.route() else { return None };
            let route = (route, max_bytes);
            let now = caller.registry.source().now();
            let renewed = async { issue(&caller, route, &noted(&caller, now).await?, now) }.await;
            renewed
                .inspect_err(|error| tracing::debug!(%error, "cannot renew the token for an agent"))
                .ok()
                .map(|token| token.value)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_are_used_unless_they_are_excluded() {
        let of = |connection: &str, host: &str| {
            let annotations = [(DIRECT_ENDPOINT.to_owned(), host.to_owned())].into();
            let rule = RouteRule::of(connection).to_agent();
            let route =
                AgentRoute::of(("c", "u"), &annotations, rule, "/p".to_owned(), LeadsTo::Cluster)?;
            Some((route.by_tunnel, route.endpoint.is_some()))
        };
        assert_eq!(of("", "h"), Some((true, true)));
        assert_eq!(of("Auto", ""), Some((true, false)));
        assert_eq!(of("Tunnel", "h"), Some((true, false)));
        assert_eq!(of("Endpoint", "h"), Some((false, true)));
        assert_eq!(of("Endpoint", ""), None);
        // The virtual clusters of a cluster with a kubeconfig.
        assert_eq!(of("Kubeconfig", "h"), Some((true, true)));
    }

    #[test]
    fn the_route_to_an_agent_is_in_the_annotations() {
        let of = |annotations: &[(&str, &str)]| {
            let named = |(suffix, value): &(&str, &str)| {
                (format!("{DIRECT_ENDPOINT}{suffix}"), (*value).to_owned())
            };
            Endpoint::of(&annotations.iter().map(named).collect(), "/kubernetes/cluster".to_owned())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", "")]), None);
        let route = of(&[("", "agent.example:6443"), ("-ca-data", "Y2\nE=\n")]).unwrap();
        let config = route.config(UpstreamAddresses::default()).unwrap();
        assert_eq!(config.url, "https://agent.example:6443/kubernetes/cluster");
        assert_eq!((config.insecure, config.ca_pem.as_deref()), (false, Some(&b"ca"[..])));
        assert!(
            of(&[("", "h"), ("-ca-data", "?")])
                .unwrap()
                .config(UpstreamAddresses::default())
                .is_err()
        );
        let insecure = of(&[("", "h"), ("-insecure", "true")]).unwrap();
        assert!(insecure.config(UpstreamAddresses::default()).unwrap().insecure);
    }
}
