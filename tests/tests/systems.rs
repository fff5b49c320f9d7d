//! The processes as a whole: starts, kills and restores, agents, streams, and attacks on availability. One module
//! for each suite.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is how it fails, and figures of attacks are printed"
)]

mod agent;
mod attacks;
mod process;
mod streams;
