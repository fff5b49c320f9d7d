//! Single sign-on: logins through identity providers (`docs/reference/single-sign-on.md`).
//!
//! `postern_oidc` has the rules for documents and tokens of a provider, and `registry` makes users
//! and keys. This crate has the requests to providers (`fetch`, `providers`), and the requests
//! of browsers (`browser`).

mod arriving;
mod browser;
mod command_line;
mod connector;
mod connector_test;
mod device_polls;
mod document;
mod exchange;
mod fetch;
mod form;
mod login_cookie;
mod logout;
mod person;
mod places;
mod providers;
mod redeem;
pub mod refresh;
mod refused;
mod serve;
mod sso;
mod token_error;

pub use self::refused::Refused;
pub use self::serve::{Visit, error, is_failure};
pub use self::sso::Sso;
