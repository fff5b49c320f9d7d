//! The route through a cluster's agent (`docs/reference/clusters.md#routes`). Each request carries a JWT that
//! is issued for this caller and this cluster, and the agent decides from it as from any other token. So the
//! central server stores no credential of the cluster, and the gateway can do nothing that the token does not
//! allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use postern_auth::endpoint_token::{Bearer, Claims, Issuance, cluster_audience};
use postern_kinds::cluster::DIRECT_ENDPOINT;
use postern_meta::status::ApiError;
use postern_proxy::{Renewal, UpstreamAddresses, UpstreamConfig};
use postern_registry::clock::new_uid;
use postern_registry::registry::issued_tokens::AsOf;

use super::place::Way;
use super::session::Caller;

/// How long a token (a JWT) counts: an agent need only see the head of the request.
const TOKEN_TTL_SECONDS: i64 = 60;

/// How a cluster's agent is reached, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AgentRoute {
    /// The Cluster's uid.
    uid: String,
    /// `HOST[:PORT]`
    endpoint: String,
    is_insecure: bool,
    /// The authorities of its certificate, in base64 of PEM.
    ca_data: Option<String>,
    /// The prefix of the target's paths at the agent.
    prefix: String,
}

impl AgentRoute {
    /// The way through the agent of a Cluster, which says its endpoint in annotations; `None` without
    /// one.
    pub(super) fn of(
        uid: &str,
        annotations: &BTreeMap<String, String>,
        prefix: String,
    ) -> Option<Self> {
        let with = |suffix: &str| annotations.get(&format!("{DIRECT_ENDPOINT}{suffix}"));
        Some(Self {
            uid: uid.to_owned(),
            endpoint: with("").filter(|host| !host.is_empty())?.clone(),
            is_insecure: with("-insecure").is_some_and(|text| text == "true"),
            ca_data: with("-ca-data").filter(|data| !data.is_empty()).cloned(),
            prefix,
        })
    }

    /// The configuration of the upstream. It has no credential: each request has its own.
    ///
    /// # Errors
    /// Which annotation is wrong.
    pub(super) fn config(&self, addresses: UpstreamAddresses) -> Result<UpstreamConfig, String> {
        let url = format!("https://{}{}", self.endpoint, self.prefix);
        let url = url.parse().map_err(|_| format!("{DIRECT_ENDPOINT} is not a host"))?;
        let wrong = |_| format!("{DIRECT_ENDPOINT}-ca-data is not base64");
        let ca_pem = self.ca_data.as_ref().map(|data| STANDARD.decode(data)).transpose();
        let insecure = self.is_insecure;
        Ok(UpstreamConfig {
            addresses,
            insecure,
            ca_pem: ca_pem.map_err(wrong)?,
            ..UpstreamConfig::new(url)
        })
    }
}

/// The value of `Authorization` for a request through an agent. If the request goes on (a watch, exec), the agent
/// keeps what the token has opened until the session of the request ends it here. It is noted that the key has such
/// a token, so that a change of the key ends it there, too. With any other token, nothing goes on.
///
/// # Errors
/// 401 and 409 when the caller is not who they were; 503 when no token can be made.
pub(super) async fn authorization(
    caller: &Caller,
    route: &AgentRoute,
) -> Result<HeaderValue, ApiError> {
    let Caller { registry, credential, request, .. } = caller;
    let (now, is_long) = (registry.source().now(), request.kube.is_long());
    let as_of = if is_long {
        AsOf::noted(registry, credential, now, TOKEN_TTL_SECONDS).await?
    } else {
        AsOf::now(registry, credential, now).await?
    };
    let AsOf { revocation_revision, current } = as_of;
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
        revocation_revision,
    };
    let keys = registry.cache().signing_keys();
    let unavailable =
        |why: &str| ApiError::unavailable(format!("no token for the agent: {why}"), None);
    let signer = keys.signer(now).ok_or_else(|| unavailable("no key can sign it"))?;
    let mut claims = Claims::of(&bearer, issuance);
    // When the key ends is looked at here, again and again: use may prolong it.
    claims.platform.keys_end = (!is_long).then_some(claims.exp);
    claims.platform.gateway_session = is_long;
    let token = signer.issue(&claims).map_err(|_| {
        unavailable(
            "with the caller's groups and the scopes of the access key, it would be too long",
        )
    })?;
    let value = HeaderValue::from_str(&["Bearer ", token.expose()].concat());
    let mut value = value.map_err(|error| ApiError::internal("a token", error))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Issues a new token for a request that is sent again; `None` if the same token works. An agent lets a stream
/// outlive its token only if it sees that token for the first time. It may have seen the token before the connection
/// died.
pub(super) fn renewal(caller: &Arc<Caller>) -> Option<Renewal> {
    let (is_long, way) = (caller.request.kube.is_long(), caller.found.way());
    if !is_long || !matches!(way, Way::Agent(_)) {
        return None;
    }
    let caller = caller.clone();
    Some(Box::new(move || {
        Box::pin(async move {
            let Way::Agent(route) = caller.found.way() else { return None };
            let renewed = authorization(&caller, route).await;
            renewed.inspect_err(|error| tracing::debug!(%error, "no second token")).ok()
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_reached_as_the_annotations_say() {
        let of = |annotations: &[(&str, &str)]| {
            let named = |(suffix, value): &(&str, &str)| {
                (format!("{DIRECT_ENDPOINT}{suffix}"), (*value).to_owned())
            };
            AgentRoute::of(
                "u1",
                &annotations.iter().map(named).collect(),
                "/kubernetes/cluster".to_owned(),
            )
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", "")]), None);
        let route = of(&[("", "agent.example:6443"), ("-ca-data", "Y2E=")]).unwrap();
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
