//! The stages of a request, in order. Each stage is a plain function. It consumes the proof of the stage before, and
//! returns its own. A handler that skips a stage does not compile.
//!
//! | stage | proof | rejects with |
//! |---|---|---|
//! | [`parse`] | `Parsed` | 400, 405 |
//! | [`authenticate`] | `Authenticated` | 401 |
//! | [`impersonate`] | `Acting` | 400, 403 |
//! | `postern_flow` | `Slot` | 429 |
//! | [`authorize`] | `Permit` | 403 |
//! | `postern_registry::admit` | `Admitted` | 400, 403, 409, 422 |
//!
//! [`path`] splits the path of a request, and [`websocket`] reads the WebSocket headers.
//!
//! `pipeline` calls the stages, `postern_registry` uses the permits, and `audit` records each request.

pub mod not_served;
pub mod parse;
pub mod path;

pub mod websocket;

pub mod session_cookie;

pub mod authenticate;

pub mod impersonate;

pub mod authorize;
