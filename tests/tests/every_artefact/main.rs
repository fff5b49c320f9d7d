//! The installed artefacts, as a user would use them, with programs that only `cargo xtask test
//! --all` fetches or makes.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod charts;
mod debian;
#[path = "../deploy/helm.rs"]
mod helm;
mod traces;
