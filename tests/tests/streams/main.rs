//! exec, attach, cp and port-forward by real kubectls, over SPDY and over WebSocket, by each way to a pod; and
//! streams that an upstream of the test's own makes slow, long, broken or malformed.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod kubectl;
mod pods;
mod scene;
