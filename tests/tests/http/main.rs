//! What the server answers over plain HTTP, request by request.
//!
//! One file for each part of the contract. Each test starts a server of its own.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod access_keys;
mod creates;
mod deletes;
mod discovery;
mod failures;
mod finalizers;
mod flow;
mod garbage;
mod health;
mod impersonation;
mod limits;
mod lists;
mod namespaces;
mod negotiation;
mod patches;
mod protocol;
mod rude;
mod selectors;
mod strictness;
mod tables;
mod updates;
mod versions;
mod watches;
