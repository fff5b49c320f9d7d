//! The server's responses to requests: what each part of the API promises, who may do what, and what may never be
//! in an answer or a log. One module for each suite.
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
