//! Tokens and documents of other identity providers: the checks on them, and the identity of the
//! bearer.
//!
//! A provider publishes a document ([`discovery`]) and its public keys ([`jwks`]). Its tokens are
//! JWTs ([`jwt`]). A token that it issues at a login is an [`id_token`]. Its claims are mapped to a
//! user and groups ([`mapping`]). Between the begin and the end of a login, its state is in the
//! browser ([`login`]). A [`command_line`] logs in through a browser. Tokens from a pipeline
//! platform are compared with the claims that a workload identity expects ([`workload`]).
//!
//! Everything here is untrusted input, also after its signature was verified. No text of a token is in an error.

pub mod command_line;
pub mod discovery;
pub mod id_token;
pub mod jwks;
pub mod jwt;
pub mod login;
pub mod mapping;
pub mod workload;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

/// The difference between the clocks of a provider and of this server that is allowed, in seconds.
pub const SKEW_SECONDS: i64 = 60;
