//! The specification's requests (part 4) with common clients: the oldest supported kubectl, the
//! newest one, and curl.
//!
//! `POSTERN_TEST_KUBECTL_OLD` names the oldest. If it is not set, the tests for it print this and do
//! nothing.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is how it fails, and it prints what was not run"
)]

mod curl;
mod kubectl;
