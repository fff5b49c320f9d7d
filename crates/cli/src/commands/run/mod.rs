//! `postern run`: a command with the values of secrets in its environment, and nowhere else. Without `--on-change` it
//! takes the place of this process; otherwise `supervise.rs` runs it.

mod signals;
mod supervise;
mod watches;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use clap::Args;
use postern_client::Collection;
use rustix::process::Signal;

use super::secret_names::GivenPath;
use super::secret_read::{Need, ReadSecret, Search};
use super::secrets::{LocationFlags, find_secret};
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::parse::{self, SecretPath};
use crate::process::Process;
use crate::session::Session;
use crate::variables::{Data, Variable, VariableFlags};

/// The variable with the access key, which the command does not get: it can read more than the command is given.
const KEY_VARIABLE: &str = "POSTERN_ACCESS_KEY";
/// How long a command may take to end before it is killed, by default.
const GRACE_DEFAULT: Duration = Duration::from_secs(10);
/// How often secrets are read that change between two requests.
const READS_MAX: usize = 5;
/// The exit codes of shells for a command that cannot be started.
const NOT_FOUND_CODE: u8 = 127;
const NOT_EXECUTABLE_CODE: u8 = 126;

/// Run a command with the values of secrets in its environment.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern run --secret db --only user,password -- ./server\n  \
    postern run --secret db.user --secret mail.password --prefix APP_ -- env\n  \
    postern run --secret tls --only tls.crt --map tls.crt=CERT --on-change restart -- ./server\n  \
    postern run --secret db --only user,password --on-change signal:HUP -- ./server")]
pub struct Run {
    /// A secret, or one key of it: its keys become variables. May be repeated
    #[arg(long = "secret", value_name = "NAME[.KEY]", required = true, value_parser = parse::secret_path)]
    secrets: Vec<SecretPath>,

    /// Use the arguments of --secret as the whole names of secrets, dots included
    #[arg(long)]
    whole: bool,

    #[command(flatten)]
    location: LocationFlags,

    #[command(flatten)]
    variables: VariableFlags,

    /// What to do when a value changes: restart the command, send it a signal, or nothing. A signal does not
    /// change the environment of the command: restart does
    #[arg(
        long,
        value_name = "restart|signal:NAME|ignore",
        default_value = "ignore",
        value_parser = on_change
    )]
    on_change: OnChange,

    /// With --on-change restart: how long the command may take to end before it is killed [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse::timeout)]
    grace: Option<Duration>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The action when a value changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnChange {
    Ignore,
    Restart,
    Signal(Signal),
}

fn on_change(text: &str) -> Result<OnChange, String> {
    let wrong = || "use restart, ignore, or a signal such as signal:HUP".to_owned();
    match text {
        "ignore" => return Ok(OnChange::Ignore),
        "restart" => return Ok(OnChange::Restart),
        _ => {}
    }
    let name = text.strip_prefix("signal:").ok_or_else(wrong)?.to_ascii_uppercase();
    let signals = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ];
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let found = signals.iter().find(|(known, _)| *known == name);
    found.map(|(_, signal)| OnChange::Signal(*signal)).ok_or_else(|| {
        let names = signals.map(|(name, _)| name).join(", ");
        format!("the signals are {names}")
    })
}

impl Run {
    /// Reads the secrets, and runs the command.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        self.check()?;
        let given = self.given()?;
        let mut session = Session::open(&self.connection, process)?;
        let (info, namespace) = self.location.locate(&mut session).await?;
        let of = Collection::new(info, Some(&namespace));
        let read = read_all(&mut session, of, &given, process).await?;
        let paths: Vec<SecretPath> = read.iter().map(|read| read.path.clone()).collect();
        let all: Vec<Data> =
            read.into_iter().map(|read| values_of(&read.path, read.data)).collect();
        if self.on_change == OnChange::Ignore {
            return Err(self.replace_process(&self.variables_of(&paths, &all)?));
        }
        self.supervise(&session, of, paths, process).await
    }

    /// Refuses flags that make no sense together.
    fn check(&self) -> Result<(), CliError> {
        self.variables.check()?;
        if self.grace.is_some() && self.on_change != OnChange::Restart {
            return Err(CliError::usage("--grace requires --on-change restart"));
        }
        if self.connection.target.credential.reads_key_from_stdin() {
            let text = "the standard input belongs to the command, and cannot be the access key";
            return Err(CliError::usage(text).hint("set POSTERN_ACCESS_KEY"));
        }
        Ok(())
    }

    fn given(&self) -> Result<Vec<GivenPath>, CliError> {
        self.secrets.iter().map(|path| GivenPath::new(path, None, self.whole)).collect()
    }

    /// The variables of all secrets.
    fn variables_of(&self, paths: &[SecretPath], all: &[Data]) -> Result<Vec<Variable>, CliError> {
        let secrets: Vec<(&str, &Data)> =
            paths.iter().map(|path| path.name.as_str()).zip(all).collect();
        self.variables.variables(&secrets)
    }

    /// The command with its environment. Its `Debug` form has the values, and is not used.
    fn prepared(&self, variables: &[Variable]) -> std::process::Command {
        let program = self.command.first().cloned().unwrap_or_default();
        let mut command = std::process::Command::new(program);
        command.args(self.command.iter().skip(1)).env_remove(KEY_VARIABLE);
        for variable in variables {
            command.env(&variable.name, OsString::from_vec(variable.expose().to_vec()));
        }
        command
    }

    /// Becomes the command. So its exit code, its signals and its terminal need no help. Returns only after an error.
    fn replace_process(&self, variables: &[Variable]) -> CliError {
        let error = self.prepared(variables).exec();
        self.cannot_start(&error)
    }

    fn cannot_start(&self, error: &std::io::Error) -> CliError {
        let program = self.command.first().map(|program| program.to_string_lossy().into_owned());
        let message = format!("cannot run {}: {error}", program.unwrap_or_default());
        let code = match error.kind() {
            ErrorKind::NotFound => NOT_FOUND_CODE,
            _ => NOT_EXECUTABLE_CODE,
        };
        CliError::with_code(message, code)
    }
}

/// Reads all secrets. The paths of one secret are separate requests, which are repeated until they return the same version
/// of it.
async fn read_all(
    session: &mut Session,
    of: Collection<'_>,
    all: &[GivenPath],
    process: &Process,
) -> Result<Vec<ReadSecret>, CliError> {
    let search = Search { with_key: false, need: Need::Values };
    for _ in 0..READS_MAX {
        let mut read = Vec::new();
        for given in all {
            read.push(find_secret(session, of, given, search, process).await?);
        }
        if have_one_version_each(&read) {
            return Ok(read);
        }
    }
    let message = "a secret changes too often to read several of its keys from one version";
    Err(CliError::new(message).hint("try again, or name the secret without a key"))
}

/// Whether no secret was read in two versions.
fn have_one_version_each(read: &[ReadSecret]) -> bool {
    let mut versions = BTreeMap::new();
    read.iter().all(|read| {
        let version = &read.object.metadata.resource_version;
        versions.insert(&read.path.name, version).is_none_or(|other| other == version)
    })
}

/// The values that a path names: all of the secret, or one.
fn values_of(path: &SecretPath, mut data: Data) -> Data {
    if let Some(key) = &path.key {
        data.retain(|other, _| other == key);
    }
    data
}

#[cfg(test)]
mod tests {
    use postern_meta::object::Object;

    use super::*;
    use crate::commands::secret_read::Sizes;

    #[test]
    fn all_keys_of_a_secret_are_read_from_one_version() {
        let read = |name: &str, version: &str| {
            let mut object = Object::default();
            object.metadata.resource_version = version.to_owned();
            let path = SecretPath { name: name.to_owned(), key: None };
            ReadSecret { path, object, data: Data::new(), sizes: Sizes::new() }
        };
        assert!(have_one_version_each(&[read("db", "7"), read("mail", "8"), read("db", "7")]));
        assert!(!have_one_version_each(&[read("db", "7"), read("mail", "8"), read("db", "9")]));
    }

    #[test]
    fn what_is_done_on_a_change() {
        for (text, wanted) in [
            ("ignore", OnChange::Ignore),
            ("restart", OnChange::Restart),
            ("signal:HUP", OnChange::Signal(Signal::HUP)),
            ("signal:sigusr1", OnChange::Signal(Signal::USR1)),
        ] {
            assert_eq!(on_change(text), Ok(wanted), "{text}");
        }
        for (text, wanted) in
            [("", "restart"), ("signal", "signal:HUP"), ("signal:KILL", "USR2"), ("signal:", "HUP")]
        {
            assert!(on_change(text).unwrap_err().contains(wanted), "{text}");
        }
    }
}
