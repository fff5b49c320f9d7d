//! The tunnel between the agent of a cluster and the central server (`docs/reference/clusters.md#tunnels`). The agent
//! opens a WebSocket, and its binary messages carry a stream of bytes. Over this stream the server sends HTTP/1.1
//! requests, one at a time, and the agent answers them.
//!
//! This crate has the stream and the names of the protocol. It knows neither HTTP nor the API.

mod carry;
mod protocol;
mod reading_end;
mod stream;

#[cfg(test)]
mod tests;

pub use carry::{End, SILENCE, agent_end, server_end};
pub use protocol::{
    AGENT_NAME, CLUSTER_UID, MAX_NAME_BYTES, PROTOCOLS, SERVER_NAME, SERVER_VERSION, WAITING,
    is_name, negotiate,
};
pub use stream::TunnelStream;
