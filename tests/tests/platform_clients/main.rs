//! Clients of the vCluster platform: their requests, replayed in the order and with the bodies that they send, and what
//! their users see of the answers. The clients themselves are not run here.
//!
//! Each client sends the names that this server has: its API group and its annotations. All else is as the client
//! sends it. docs/how-to/clients-of-vcluster-platform.md is the same for readers.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod direct_endpoint;
mod go;
mod javascript;
mod kept_fields;
mod loft_cli;
mod loft_cli_refusals;
mod scene;
mod team_story;
mod terraform;
mod typed;
mod vcluster_cli;
