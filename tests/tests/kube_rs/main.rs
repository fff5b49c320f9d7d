//! An independent client: kube-rs, with the Kubernetes project's own types.
//!
//! Nothing here builds a request by hand; what these tests can do, any controller can.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod objects;
mod reflecting;
mod resuming;
mod setup;
