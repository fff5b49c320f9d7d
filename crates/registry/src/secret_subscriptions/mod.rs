//! Subscriptions of agents to project secrets: the data of a project secret reaches the native Secrets of a connected
//! cluster whose labels name it, if the project secret is offered to their instance.
//!
//! A subscription is one request, and the server keeps nothing of it beyond the request. `offers` decides about one Secret,
//! `spaces` knows which space is in which namespace of the cluster, and [`watch`] sends the answers
//! (`docs/reference/clusters.md#secret-subscriptions`).

mod delivery;
mod offers;
mod spaces;
pub mod watch;
