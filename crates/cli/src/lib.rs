//! The command line: what people and scripts do with a server.
//!
//! Commands, kubeconfigs, and what is printed. Data goes to the standard output, talk to the
//! standard error; the end is 0, 1 for a failure, 2 for a command that cannot be understood.
//! Requests are made by `postern-client`. The server is not here, and nothing of it is started.

mod commands;
mod connect;
mod explain;
mod failure;
mod files;
mod flags;
mod impersonation;
mod kubeconfig;
mod output;
mod parse;
mod similar;
mod surroundings;
mod usage;

use std::process::ExitCode;

pub use commands::Command;
pub use usage::parse_or_exit;

use crate::surroundings::Surroundings;

/// Runs one command to its end. `root` is the whole command line, for completions and man pages.
pub fn run(command: Command, root: clap::Command) -> ExitCode {
    let mut surroundings = Surroundings::system();
    match commands::run(command, root, &mut surroundings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            surroundings.tell_failure(&failure);
            failure.exit_code()
        }
    }
}
