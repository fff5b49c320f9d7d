//! The HTTP of the API: the first stages of a request, request and response bodies, and metrics.
//!
//! [`stages`] read a request up to its authorization. [`wire`] decodes request bodies, and is the only place that makes
//! responses. [`metrics`] counts both. The server (`postern-server`) calls them in order.

pub mod metrics;
pub mod stages;
pub mod wire;
