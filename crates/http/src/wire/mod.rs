//! The bodies of requests and responses, and the encoding of objects in the negotiated formats.

pub mod body;
pub mod encode;
pub mod incoming;
pub mod input;
pub mod list;
pub mod respond;
pub mod table;
pub mod websocket;
