//! An independent client: kube-rs, with the Kubernetes project's own types.
//!
//! No test here builds a request by hand. What these tests do, any controller can do.

mod objects;
mod reflecting;
mod resuming;
mod setup;
