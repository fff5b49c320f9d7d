//! The gateway: requests that go through the central server to connected clusters. One cluster is another
//! server of ours, which speaks the Kubernetes API; one is a server of the test's own, which tells what
//! arrives.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod bytes;
mod playground;
mod reaching;
mod recording;
mod reviews;
mod same_decision;
mod scene;
mod spaces;
mod streams;
mod virtual_clusters;
