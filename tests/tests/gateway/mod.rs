//! The gateway: requests that go through the central server to connected clusters. One cluster is another
//! server of ours, which speaks the Kubernetes API; one is a server of the test's own, which tells what
//! arrives.

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
