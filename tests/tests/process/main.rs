//! The binary as a process: its settings, files, shutdown, and crashes.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod backup;
mod canaries;
mod crash;
mod damage;
mod files;
mod ledger;
mod settings;
mod shutdown;
mod starting;
