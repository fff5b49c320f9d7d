//! The operator's commands: `postern admin …` and `postern storage …`. They do not use the API.
//!
//! A running server carries them out, over its socket in the data directory; without one, those
//! that need the database alone are carried out here. Data goes to stdout, messages and progress
//! to stderr.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use postern_server::admin::{AdminCommand, CommandOutput, Progress, call};

/// The interval at which progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Where the server's data is.
#[derive(Args)]
pub(crate) struct Directories {
    /// The server's data directory
    #[arg(long, env = "POSTERN_DATA_DIR", value_name = "DIR", default_value = "postern-data")]
    data_dir: PathBuf,

    /// Where the seal keys are, if not in the data directory
    #[arg(long, env = "POSTERN_KEY_DIR", value_name = "DIR")]
    key_dir: Option<PathBuf>,
}

/// `postern admin …`
#[derive(Subcommand)]
pub(crate) enum Admin {
    /// Create a new access key for the user admin, and write the administrator's kubeconfig.
    ///
    /// For when the first key is lost. It works through the socket in the data directory, so only
    /// whoever runs the server (or root) can do it, and the server must be running.
    ResetKey(Directories),
}

/// `postern storage …`
#[derive(Subcommand)]
pub(crate) enum Storage {
    /// Create a new seal key, for everything that is written from now on.
    RotateKey(Directories),
    /// Seal everything with the current seal key that is still sealed with an older one.
    Reseal(Directories),
    /// Open and decode everything that is stored, and print what is corrupt.
    ///
    /// The exit code is 1 when something is corrupt.
    Check(Directories),
}

impl Admin {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::ResetKey(directories) = self;
        run(&directories, AdminCommand::ResetKey)
    }
}

impl Storage {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::RotateKey(directories) => run(&directories, AdminCommand::RotateKey),
            Self::Reseal(directories) => run(&directories, AdminCommand::Reseal),
            Self::Check(directories) => run(&directories, AdminCommand::Check),
        }
    }
}

fn run(directories: &Directories, command: AdminCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut progress = ProgressLine::new();
    let Directories { data_dir, key_dir } = directories;
    let called = call(data_dir, key_dir.as_deref(), command, |now| progress.update(now));
    let answer = runtime.block_on(called);
    progress.finish();
    print_answer(&answer?, data_dir)
}

/// The progress of a long command: one line that is overwritten, on a terminal only.
struct ProgressLine {
    printed: bool,
    last: Instant,
    terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { printed: false, last: Instant::now(), terminal: io::stderr().is_terminal() }
    }

    fn update(&mut self, now: Progress) {
        if !self.terminal || self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        self.printed = true;
        let all = now.seen.saturating_add(now.remaining);
        let _ = write!(io::stderr(), "\r{} of {all} values", now.seen);
    }

    fn finish(&self) {
        if self.printed {
            let _ = writeln!(io::stderr());
        }
    }
}

/// Prints what was done. The exit code is 1 where something is corrupt.
fn print_answer(answer: &CommandOutput, data_dir: &Path) -> anyhow::Result<ExitCode> {
    let (mut data, mut messages) = (String::new(), Vec::new());
    let mut corrupt = 0;
    match answer {
        CommandOutput::ResetKey { kubeconfig, key_name, user_mended, other_keys } => {
            writeln!(data, "{}", kubeconfig.display())?;
            messages
                .push(format!("The file above holds the new access key {key_name}: keep it safe."));
            if *user_mended {
                messages.push(
                    "The user admin was missing, disabled or without rights, and is repaired."
                        .to_owned(),
                );
            }
            if !other_keys.is_empty() {
                messages.push(format!("Other keys of admin stay valid: {}", other_keys.join(" ")));
                messages.push("Disable a lost one with: postern disable accesskey NAME".to_owned());
            }
        }
        CommandOutput::RotateKey { current, all } => {
            let (count, data_dir) = (all.len(), data_dir.display());
            writeln!(data, "{current}")?;
            messages.push(format!(
                "From now on everything is sealed with this key; {count} keys in all.\n\
                 Older values stay readable with the other keys until they are resealed:\n  \
                 postern storage reseal --data-dir {data_dir}"
            ));
        }
        CommandOutput::Reseal { seen, rewritten, damaged, needed } => {
            corrupt = *damaged;
            writeln!(data, "{rewritten}")?;
            messages.push(format!(
                "{rewritten} of {seen} values were sealed again with the current seal key."
            ));
            if let Some(ids) = needed.as_ref().filter(|ids| ids.len() > 1) {
                let ids = ids.join(" ");
                messages.push(format!("History needs the keys {ids} until it is compacted."));
            }
            if corrupt > 0 {
                messages.push(format!(
                    "{corrupt} are corrupt and were left as they are: see postern storage check"
                ));
            }
        }
        CommandOutput::Check { seen, damaged, damaged_total } => {
            corrupt = *damaged_total;
            for one in damaged {
                writeln!(data, "{}\t{}", one.key, one.reason)?;
            }
            messages.push(format!("{seen} values were checked, {corrupt} are corrupt."));
        }
    }
    let _ = writeln!(io::stderr(), "{}", messages.join("\n"));
    io::stdout().write_all(data.as_bytes())?;
    Ok(if corrupt > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
