//! Who may do what: every operation that the server describes, asked by every sort of identity, and
//! compared with the tables in `golden/`.
//!
//! One file of tables for each kind. [`world`] makes the users, keys and roles, [`fixture`] the objects,
//! [`routes`] the requests out of the `OpenAPI` documents, [`answer`] the words in the cells.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod answer;
mod canaries;
mod fixture;
mod golden;
mod hidden;
mod identities;
mod leaks;
mod matrix;
mod paths;
#[expect(dead_code, reason = "the tests of the gateway look at more of what arrives")]
#[path = "../gateway/recording.rs"]
mod recording;
mod routes;
mod targets;
mod world;
