//! exec, attach, cp and port-forward by real kubectls, over SPDY and over WebSocket, by each way to a pod; and
//! streams that an upstream of the test's own makes slow, long, broken or malformed.

mod faults;
mod firewalled;
mod identities;
mod kubectl;
mod pods;
mod scene;
mod upstream;
