//! The route through a cluster's agent (`docs/reference/clusters.md#routes`). Each request has a JWT that is issued for
//! its caller and this cluster. The agent decides from it, as from any other token. So the central server stores no
//! credential of the cluster, and the gateway has only the permissions of the token. Short requests of one caller share
//! a token for half of its lifetime, unless the caller's key, user or team changes.

use crate::agent_route::AgentRoute;
use std::sync::Arc;

use http::HeaderValue;
use postern_auth::bearer::MAX_TUNNEL_TOKEN_BYTES;
use postern_auth::endpoint_token::{Bearer, Claims, Issuance, cluster_audience};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_proxy::Renewal;
use postern_registry::clock::new_uid;
use postern_registry::registry::issued_tokens::TokenIdentity;

use super::session::Caller;
use super::short_tokens::{ShortToken, ShortTokens, Use};
use super::target_state::Route;

/// The lifetime of the token (a JWT). It only has to last until the agent has read the head of the request.
const TOKEN_TTL_SECONDS: i64 = 60;

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
        return Ok(Some(issue(caller, route, longest, &noted(caller, now).await?, now)?.value));
    }
    let identity = TokenIdentity::now(registry, credential, now).await?;
    let keys = registry.cache().signing_keys();
    let of = keys.signer(now).filter(|_| credential.wanted().is_none()).map(|signer| Use {
        key_uid: identity.current.key.uid.clone(),
        cluster_uid: route.uid.clone(),
        signer: signer.id().to_owned(),
    });
    let Some(of) = of else {
        return Ok(Some(issue(caller, route, longest, &identity, now)?.value));
    };
    let seconds = TOKEN_TTL_SECONDS / 2;
    if let Some(value) = tokens.find(&of, &identity, now.unix_seconds(), seconds) {
        return Ok(Some(value));
    }
    let token = issue(caller, route, longest, &identity, now)?;
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
    route: &AgentRoute,
    max_bytes: usize,
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

/// Issues a new token, of at most so many bytes, for a request that is sent again; `None` if the same token works. A stream can
/// outlive its token only if the agent sees the token for the first time. The agent may have seen it before the connection failed.
pub(super) fn renewal(caller: &Arc<Caller>, max_bytes: usize) -> Option<Renewal> {
    let (is_long, route) = (caller.request.kube.is_long(), caller.target.route());
    if !is_long || !matches!(route, Route::Agent(_)) {
        return None;
    }
    let caller = caller.clone();
    Some(Box::new(move || {
        Box::pin(async move {
            let Route::Agent(route) = caller.target.route() else { return None };
            let now = caller.registry.source().now();
            let noted = noted(&caller, now).await;
            let renewed = noted.and_then(|noted| issue(&caller, route, max_bytes, &noted, now));
            renewed
                .inspect_err(|error| tracing::debug!(%error, "cannot renew the token for an agent"))
                .ok()
                .map(|token| token.value)
        })
    }))
}
