//! The gateway: requests that go through the central server to connected clusters. One cluster is
//! another Postern server, which speaks the Kubernetes API. Another is a server of the test itself,
//! which records the requests that arrive.

mod bytes;
mod phases;
mod playground;
mod reaching;
pub(crate) mod recording;
mod reviews;
mod same_decision;
mod scene;
mod spaces;
mod streams;
mod traces;
mod virtual_clusters;
