//! Endpoint tokens: the JWT (RFC 7519, RFC 9068) that a client presents to a connected cluster. The
//! cluster's agent verifies it without asking the central server (`docs/reference/endpoint-tokens.md`).
//!
//! A token has the identity of its bearer and its scopes: [`Claims`]. A [`SigningKey`] makes it. A
//! [`Verifier`] has the public keys ([`JwkSet`]) and the revocations, and returns the identity. The
//! same [`Policy`](crate::policy::Policy) decides about it as about any other.
//!
//! This module reads no clock and stores nothing. The caller supplies keys and revocations.

mod audience;
mod cache;
mod claims;
mod keys;
mod recognize;
mod refusal;
mod verifier;

pub use audience::{
    ConnectedCluster, GENERAL_AUDIENCE, NoCluster, audiences, cluster_audience,
    cluster_gateway_audience, member_audience, server_audience,
};
pub use claims::{
    ActorClaim, Bearer, Claims, Issuance, KeyClaim, PlatformClaims, VerifiedToken,
    impersonation_id, keys_of,
};
pub use keys::{InvalidKey, IssueError, Jwk, JwkSet, SigningKey};
pub use recognize::looks_like_endpoint_token;
pub use refusal::TokenRefusal;
pub use verifier::Verifier;

use crate::bearer::{MAX_TOKEN_BYTES, MAX_TUNNEL_TOKEN_BYTES};

/// By how many seconds the clocks of two machines may differ.
pub const SKEW_SECONDS: i64 = 60;

/// The maximum time that a stream (exec, attach, port-forward) continues after its token has opened
/// it, in seconds. Revocations are kept for the same time after the token's end.
pub const MAX_SESSION_SECONDS: i64 = 8 * 60 * 60;

/// The type of a token (RFC 9068 section 2.1): no other JWT is one.
const TYPE: &str = "at+jwt";

/// The one algorithm.
const ALGORITHM: &str = "ES256";

#[cfg(test)]
mod tests;
