//! An independent client: kube-rs, with the Kubernetes project's own types.
//!
//! No test here builds a request by hand: any controller can do the same.

mod objects;
mod reflecting;
mod resuming;
mod setup;
