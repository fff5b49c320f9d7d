//! Completion scripts, and manual pages from the command line's own definition. `completion/` finds the candidates.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::error::CliError;
use crate::process::Process;

/// The shells that have a completion script.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("../completion/postern.bash"),
            Self::Zsh => include_str!("../completion/postern.zsh"),
            Self::Fish => include_str!("../completion/postern.fish"),
        }
    }
}

/// Print a completion script for a shell.
///
/// The script completes commands, flags and the names of objects: it asks the server, at most one second.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    bash: source <(postern completion bash)\n  \
    zsh:  postern completion zsh > \"${fpath[1]}/_postern\"\n  \
    fish: postern completion fish > ~/.config/fish/completions/postern.fish")]
pub struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write them all.
#[derive(Args, Debug)]
pub struct Man {
    /// Write a page for each command into this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Completion {
    /// Prints the script.
    pub(crate) fn run(self, process: &Process) -> Result<(), CliError> {
        process.write_stdout(self.shell.script().as_bytes())
    }
}

impl Man {
    /// Prints one page, or writes all of them.
    pub(crate) fn run(self, root: clap::Command, process: &Process) -> Result<(), CliError> {
        let Some(directory) = &self.out else {
            let mut page = Vec::new();
            clap_mangen::Man::new(root)
                .render(&mut page)
                .map_err(|error| CliError::new(format!("cannot render the page: {error}")))?;
            return process.write_stdout(&page);
        };
        write_all(root, directory)
            .map_err(|error| {
                CliError::new(format!("cannot write into {}: {error}", directory.display()))
            })
            .map(|()| process.print_status(&format!("manual pages are in {}", directory.display())))
    }
}

fn write_all(root: clap::Command, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(root, directory)
}
