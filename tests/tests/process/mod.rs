//! The binary as a process: its settings, files, shutdown, and crashes.

mod backup;
mod canaries;
mod crash;
mod damage;
mod files;
mod ledger;
mod settings;
mod shutdown;
mod starting;
