//! The specification's requests (part 4) with the clients that people have: the oldest supported
//! kubectl, the newest one, and curl.
//!
//! `POSTERN_TEST_KUBECTL_OLD` names the oldest; without it, its tests say so and do nothing.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is how it fails, and what was not run is said"
)]

mod curl;
mod kubectl;
