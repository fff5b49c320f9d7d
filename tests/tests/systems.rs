//! The processes as a whole: starts, kills and restores, agents, streams, attacks on availability,
//! and the data that operators observe of them. One module for each suite.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is how it fails, and figures of attacks are printed"
)]

mod agent;
mod attacks;
mod fleet;
mod histories;
mod keyring;
mod observe;
mod process;
mod streams;
