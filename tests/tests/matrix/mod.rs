//! The matrix of permissions: every operation that the server describes, asked by every sort of
//! identity, and compared with the tables in `golden/`.
//!
//! One file of tables for each kind. [`world`] makes the users, keys and roles, [`fixture`] the objects,
//! [`routes`] the requests out of the `OpenAPI` documents, [`answer`] the words in the cells.

mod answer;
mod canaries;
pub(crate) mod fixture;
mod golden;
mod hidden;
mod identities;
mod leaks;
mod paths;
mod routes;
mod tables;
mod targets;
mod world;
