//! The command line: commands, kubeconfigs, and output.
//!
//! Data goes to the standard output, everything else to the standard error. The exit code is 0, 1
//! for a failure, or 2 for a command that makes no sense. A few commands have further codes.
//! `postern-client` makes the requests; the server and its commands are in other crates.

mod access_rules;
mod arguments;
mod base64_text;
mod batch;
mod changes;
mod commands;
mod completion;
mod duration;
mod editor;
mod env_file;
mod error;
mod escape;
mod explain;
mod flags;
mod impersonation_config;
mod jsonpath;
mod key_list;
mod kinds;
mod kubeconfig;
mod locked_file;
mod manifest;
mod manifest_files;
mod output;
mod output_format;
mod parse;
mod process;
mod removed;
mod resources;
mod role_bindings;
mod scope_flags;
mod server_table;
mod session;
mod similar;
mod sort;
mod startup_variables;
mod target;
mod token_cache;
mod usage;
mod variables;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub use commands::{Command, Link};
pub use duration::{parse_duration, parse_positive_duration};
pub use escape::escape_lines;
pub use usage::parse_or_exit;

use postern_client::Settings;

use crate::process::Process;
use crate::session::Session;

/// A login link for the web console, with the access key of a kubeconfig. It takes at most
/// `timeout`.
///
/// # Errors
/// A sentence that names the cause.
pub async fn console_link(kubeconfig: &Path, timeout: Duration) -> Result<Link, String> {
    let made = Link::by_kubeconfig(kubeconfig, timeout, &Process::system()).await;
    made.map_err(|error| error.message)
}

/// The command by which other users log in at the server of a kubeconfig.
///
/// # Errors
/// A sentence that names the cause.
pub fn login_command(kubeconfig: &Path) -> Result<String, String> {
    let session = Session::of_file(kubeconfig, Duration::ZERO, &Process::system());
    let session = session.map_err(|error| error.message)?;
    let Settings { server, trust, .. } = session.client.settings();
    Ok(commands::login_command(server, trust))
}

/// Runs one command and returns the exit code. `root` is the whole command line, for completions
/// and manual pages.
pub fn run(command: Command, root: clap::Command) -> ExitCode {
    let process = Process::system();
    match commands::run(command, root, &process) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process.print_error(&error);
            error.exit_code()
        }
    }
}
