//! The stages of a request, in the order in which it passes them. Each is a plain function that consumes the
//! proof of the one before and makes its own; a handler that leaves one out does not compile.
//!
//! | stage | proof | rejects with |
//! |---|---|---|
//! | [`parse`] | `Parsed` | 400, 405 |
//! | [`authenticate`] | `Authenticated` | 401 |
//! | [`impersonate`] | `Acting` | 400, 403 |
//! | `postern_flow` | `InFlightPermit` | 429 |
//! | [`authorize`] | `Permit` | 403 |
//! | `postern_registry::admit` | `Admitted` | 400, 403, 409, 422 |
//!
//! The WebSocket headers of a request are read in [`websocket`].
//!
//! Not here: the code that calls the stages (`pipeline`), and what happens with a permit (`postern_registry`).
//! The audit log follows a request through all of them (`audit`).

mod not_served;
pub(crate) mod parse;

pub(crate) mod websocket;

pub(crate) mod authenticate;

pub(crate) mod impersonate;

pub(crate) mod authorize;
