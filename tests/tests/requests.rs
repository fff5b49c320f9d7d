//! The server's responses to requests: the promises of each part of the API, the rights of each
//! caller, and the secrecy of responses and logs. One module for each suite.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod access;
mod gateway;
mod http;
mod kinds;
mod matrix;
mod projects;
mod regressions;
mod secrecy;
mod serving;
mod single_sign_on;
