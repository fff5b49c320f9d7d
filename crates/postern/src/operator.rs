//! What the machine's own administrator asks for: `postern admin …` and `postern storage …`.
//!
//! A running server does it, over its socket in the data directory; without one, what concerns the
//! database alone is done here. Data goes to stdout, talk and
//! progress to stderr.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use postern_server::admin::{AdminCommand, Answer, Progress, call};

/// Progress is told this often.
const TELL_INTERVAL: Duration = Duration::from_millis(500);

/// Which server, or which database.
#[derive(Args)]
pub(crate) struct Place {
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
    /// Make a new access key for the user admin, and write the administrator's kubeconfig.
    ///
    /// For when the first one is lost. It works through the socket in the data directory, so only
    /// whoever runs the server (or root) can do it, and the server must be running.
    ResetKey(Place),
}

/// `postern storage …`
#[derive(Subcommand)]
pub(crate) enum Storage {
    /// Make a new seal key, for everything that is written from now on.
    RotateKey(Place),
    /// Bring everything that is stored under an older seal key under the current one.
    Reseal(Place),
    /// Open and decode everything that is stored, and name what is damaged.
    ///
    /// Ends with 1 when something is damaged.
    Check(Place),
}

impl Admin {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::ResetKey(place) = self;
        ask(&place, AdminCommand::ResetKey)
    }
}

impl Storage {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::RotateKey(place) => ask(&place, AdminCommand::RotateKey),
            Self::Reseal(place) => ask(&place, AdminCommand::Reseal),
            Self::Check(place) => ask(&place, AdminCommand::Check),
        }
    }
}

fn ask(place: &Place, command: AdminCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut meter = Meter::new();
    let asked = call(&place.data_dir, place.key_dir.as_deref(), command, |now| meter.tell(now));
    let answer = runtime.block_on(asked);
    meter.end();
    tell(&answer?, &place.data_dir)
}

/// How far a long command has come: one line that is written over on a terminal, nothing elsewhere.
struct Meter {
    shown: bool,
    last: Instant,
    terminal: bool,
}

impl Meter {
    fn new() -> Self {
        Self { shown: false, last: Instant::now(), terminal: io::stderr().is_terminal() }
    }

    fn tell(&mut self, now: Progress) {
        if !self.terminal || self.last.elapsed() < TELL_INTERVAL {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let all = now.seen.saturating_add(now.remaining);
        let _ = write!(io::stderr(), "\r{} of {all} values", now.seen);
    }

    fn end(&self) {
        if self.shown {
            let _ = writeln!(io::stderr());
        }
    }
}

fn tell(answer: &Answer, data_dir: &Path) -> anyhow::Result<ExitCode> {
    let (mut data, mut talk) = (String::new(), String::new());
    let mut code = ExitCode::SUCCESS;
    match answer {
        Answer::ResetKey { kubeconfig, key_name, user_mended, other_keys } => {
            writeln!(data, "{}", kubeconfig.display())?;
            writeln!(talk, "The file above holds the new access key {key_name}: keep it safe.")?;
            if *user_mended {
                writeln!(
                    talk,
                    "The user admin was missing, disabled or powerless, and is mended."
                )?;
            }
            if !other_keys.is_empty() {
                let keys = other_keys.join(" ");
                writeln!(talk, "Other keys of admin go on working: {keys}")?;
                writeln!(talk, "A lost one is stopped with: postern disable accesskey NAME")?;
            }
        }
        Answer::RotateKey { current, all } => {
            writeln!(data, "{current}")?;
            writeln!(
                talk,
                "Everything is sealed with this key from now on; {} in all.",
                all.len()
            )?;
            writeln!(talk, "What is older stays readable with the others until it is resealed:")?;
            writeln!(talk, "  postern storage reseal --data-dir {}", data_dir.display())?;
        }
        Answer::Reseal { seen, rewritten, damaged, needed } => {
            writeln!(data, "{rewritten}")?;
            writeln!(
                talk,
                "{rewritten} of {seen} values were brought under the current seal key."
            )?;
            match needed {
                Some(ids) if ids.len() > 1 => {
                    let ids = ids.join(" ");
                    writeln!(talk, "History still needs the keys {ids}, until it is forgotten.")?;
                }
                _ => {}
            }
            if *damaged > 0 {
                writeln!(talk, "{damaged} are damaged and were left: see postern storage check")?;
                code = ExitCode::FAILURE;
            }
        }
        Answer::Check { seen, damaged, damaged_total } => {
            for one in damaged {
                writeln!(data, "{}\t{}", one.key, one.reason)?;
            }
            writeln!(talk, "{seen} values were looked at, {damaged_total} are damaged.")?;
            if *damaged_total > 0 {
                code = ExitCode::FAILURE;
            }
        }
    }
    let _ = io::stderr().write_all(talk.as_bytes());
    io::stdout().write_all(data.as_bytes())?;
    Ok(code)
}
