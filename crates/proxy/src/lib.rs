//! An upgrade-aware reverse proxy. A request comes from hyper, over HTTP/1.1 or HTTP/2, and goes to
//! an upstream over HTTP/1.1. Authorization came before: this crate knows nothing of the API. It
//! makes sure that nothing but the decided request reaches the upstream.
//!
//! [`Proxy`] is one per process. [`Upstream`] is the target of requests, and [`Forward`] describes
//! a forwarded request. Bodies are streamed; an upgrade (WebSocket, SPDY/3.1) is pumped by a task
//! of the proxy. Each request under way has its own connection, so none waits for another one.
//! [`Tunnels`] are connections that an upstream has opened itself.

mod address;
mod body;
mod carry;
mod connect;
mod counts;
mod delivery;
mod dial;
mod error;
mod exchange;
mod forward;
mod headers;
mod link;
mod long_heads;
mod origin;
mod own_addresses;
mod pool;
mod proxy;
mod request_body;
mod secret_bytes;
mod session;
mod shared;
mod tls;
mod tunnels;
mod upgrade;
mod upstream;
mod upstream_config;

#[cfg(test)]
mod tests;

pub use address::{InvalidNetwork, UpstreamAddresses};
pub use body::ProxyBody;
pub use counts::Counts;
pub use delivery::DeliveredBody;
pub use dial::{Dial, DialFuture, Liveness, Resolve, ResolveFuture, Stream, Target, TcpDial};
pub use error::{BoxError, Failure, ProxyError, UNREACHABLE};
pub use forward::{Forward, Renewal};
pub use long_heads::{LONG_HEADS, MAX_LONG_HEAD_BYTES, Opening, is_opening, opened};
pub use proxy::Proxy;
pub use secret_bytes::SecretBytes;
pub use session::{Session, SessionEnd};
pub use shared::{Limits, STREAM_STALL};
pub use tunnels::Tunnels;
pub use upstream::Upstream;
pub use upstream_config::{ClientCertificate, UpstreamConfig, UpstreamError};
