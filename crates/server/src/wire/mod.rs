//! The bodies of requests and responses on the wire, and objects in the forms that clients ask for.

pub(crate) mod body;
pub(crate) mod encode;
pub(crate) mod incoming;
pub(crate) mod input;
pub(crate) mod list;
pub(crate) mod respond;
pub(crate) mod table;
pub(crate) mod websocket;
