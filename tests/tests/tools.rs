//! The tools that users have: kubectl, helm, client libraries, this project's own command line and web console, and the clients of
//! vCluster Platform. One module for each suite.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod cli;
mod clients;
mod console;
mod deploy;
mod kube_rs;
mod kubectl;
mod platform_clients;
