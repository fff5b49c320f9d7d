//! The endpoints that are not objects: health, version, discovery, OpenAPI, metrics, public keys, the web console.

mod aggregated;
mod fixed;
mod openapi;

pub(crate) mod console;
pub(crate) mod discovery;
pub(crate) mod documents;
pub(crate) mod health;
pub(crate) mod jwks;
pub(crate) mod version;

pub(crate) use self::fixed::tagged;
