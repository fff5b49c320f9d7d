//! Endpoint tokens: the JWT (RFC 7519, RFC 9068) with which a client goes to a connected cluster, and
//! which the cluster's agent verifies without asking the central server (decision 6).
//!
//! A token says who its bearer is and within which scopes: [`Claims`]. A [`SigningKey`] makes it; a
//! [`Verifier`] knows the public keys ([`JwkSet`]) and what has been revoked, and returns the identity,
//! which is then judged by the same [`Policy`](crate::policy::Policy) as any other.
//!
//! Nothing of this reads a clock, or stores anything. Where keys and revocations come from is not known
//! here.

mod audience;
mod cache;
mod claims;
mod keys;
mod refusal;
mod verifier;

pub use audience::{ConnectedCluster, GENERAL_AUDIENCE, NoCluster, audiences, cluster_audience};
pub use claims::{
    ActorClaim, Bearer, Claims, Issuance, KeyClaim, PlatformClaims, impersonation_id, keys_of,
};
pub use keys::{InvalidKey, IssueError, Jwk, JwkSet, SigningKey};
pub use refusal::TokenRefusal;
pub use verifier::{VerifiedToken, Verifier};

use crate::bearer::MAX_TOKEN_BYTES;

/// By how many seconds the clocks of two machines may differ.
pub const SKEW_SECONDS: i64 = 60;

/// How long a stream (exec, attach, port-forward) goes on at most that a token has opened, in seconds
/// (decision 6). So long after its end, what takes its rights away has to be known.
pub const MAX_SESSION_SECONDS: i64 = 8 * 60 * 60;

/// The type of a token (RFC 9068 section 2.1): no other JWT is one.
const TYPE: &str = "at+jwt";

/// The one algorithm.
const ALGORITHM: &str = "ES256";

#[cfg(test)]
mod tests;
