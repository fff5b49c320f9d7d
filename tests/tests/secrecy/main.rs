//! Keys stay secret, and in their owners' hands: what is written into fields that are never shown
//! is found in no answer, no log and no file, and nobody reaches what is not his.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod bad_input;
mod canary;
mod changing;
mod crashing;
mod creating;
mod isolation;
mod leak_check;
mod reading;
mod regressions;
