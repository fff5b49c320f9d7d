//! What is served besides objects: health, version, discovery, OpenAPI.

pub(crate) mod discovery;
pub(crate) mod health;
pub(crate) mod openapi;
pub(crate) mod version;
