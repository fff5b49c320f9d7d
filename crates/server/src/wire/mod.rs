//! The bodies of requests and responses, and the encoding of objects in the negotiated formats.

pub(crate) mod body;
pub(crate) mod encode;
pub(crate) mod incoming;
pub(crate) mod input;
pub(crate) mod list;
pub(crate) mod respond;
pub(crate) mod table;
pub(crate) mod websocket;
