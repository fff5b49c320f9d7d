//! The proxy against an upstream that can do anything, byte by byte.

mod bodies;
mod deadlines;
mod dialling;
mod forwarding;
mod header_rules;
mod known_bugs;
mod liveness;
mod long_heads;
mod malformed;
mod pooling;
mod support;
mod tls_cases;
mod tunnels;
mod upgrades;
