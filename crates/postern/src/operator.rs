//! The operator's commands: `postern admin …` and `postern storage …`. They do not use the API.
//!
//! A running server runs them, over its socket in the data directory. Without a server, this process runs the commands
//! that only need the database. Data goes to stdout. Messages and progress go to stderr.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use postern_server::admin::{
    AdminCommand, BackupContent, BackupFile, CommandOutput, CorruptValue, ServerFiles, backup,
    call, restore, restore_remote, rotated_keyring,
};
use postern_server::{KeyringSetting, RemoteEngine, System};

use crate::etcd_flags::StoreFlags;
use crate::keyring_flags::KeyringFlags;
use crate::migrate::{Migrate, NewEpoch};
use crate::print::{print_data, print_message};
use crate::progress::{block_on, with_progress};

/// The directories of the server.
#[derive(Args)]
pub(crate) struct Directories {
    /// The server's data directory
    #[arg(long, env = "POSTERN_DATA_DIR", value_name = "DIR", default_value = "postern-data")]
    data_dir: PathBuf,

    #[command(flatten)]
    keyring: KeyringFlags,
}

impl Directories {
    fn keyring(&self) -> anyhow::Result<KeyringSetting> {
        self.keyring.setting()
    }

    fn files<'a>(
        &'a self,
        keyring: &'a KeyringSetting,
        clock: &'a System,
        store: Option<&'a dyn RemoteEngine>,
    ) -> ServerFiles<'a> {
        let key_dir = self.keyring.key_dir.as_deref();
        ServerFiles { data_dir: &self.data_dir, key_dir, keyring, clock, store }
    }
}

/// `postern admin …`
#[derive(Subcommand)]
#[expect(clippy::enum_variant_names, reason = "they are the names of the commands")]
pub(crate) enum Admin {
    /// Create a new access key for the user admin, and write the administrator's kubeconfig.
    ///
    /// Use it if the administrator's key is lost. The server must be running, and only its user or root can
    /// run the command.
    ResetKey(Directories),
    /// Create a new key that signs endpoint tokens.
    ///
    /// The key is published at once. It signs after the server's --max-offline, when every agent has the key. Tokens
    /// of the old key stay valid until they expire.
    RotateSigningKey(RotateSigningKey),
    /// Reject all endpoint tokens of a signing key.
    ///
    /// Use it if the key may have been stolen. Replace the current signing key first: postern admin
    /// rotate-signing-key --force
    DropSigningKey(DropSigningKey),
}

/// `postern admin rotate-signing-key`
#[derive(Args)]
pub(crate) struct RotateSigningKey {
    #[command(flatten)]
    directories: Directories,

    /// Sign with the new key at once. An agent rejects its tokens until it has received the key
    #[arg(long)]
    force: bool,
}

/// `postern admin drop-signing-key`
#[derive(Args)]
pub(crate) struct DropSigningKey {
    /// The id of the key: the kid in tokens and in the published keys. It can begin with a hyphen
    #[arg(allow_hyphen_values = true)]
    kid: String,

    #[command(flatten)]
    directories: Directories,
}

/// `postern storage …`
#[derive(Subcommand)]
pub(crate) enum Storage {
    /// Create a new at-rest key for all later writes.
    ///
    /// Servers that share a store use the new key when all of them have it: copy the keyring to the others.
    RotateKey(RotateKey),
    /// Encrypt all values of older at-rest keys with the current key.
    #[command(alias = "reseal")]
    Rewrap(Directories),
    /// Remove an at-rest key from the keyring. A key that a value or the history needs is not removed.
    ///
    /// Backups that were made before may need it: keep a copy of the old keyring with them.
    DropKey(DropKey),
    /// Decrypt and decode every stored value, and print the corrupt ones.
    ///
    /// The exit code is 1 if a value is corrupt.
    Check(Check),
    /// Write a backup of the database to one file, encrypted at rest.
    ///
    /// A running server continues to serve. The file is a consistent snapshot with a checksum. A restore needs the
    /// keyring (seal.keys), which is not in the file: keep it apart.
    Backup(Backup),
    /// Restore a backup into a new database.
    ///
    /// An existing database is never overwritten. The keyring of the backup must be in the key directory.
    /// Clients of the lost database get 410 and list again.
    Restore(Restore),
    /// Move the data of a store to another one: from a data directory to etcd, back, or within
    /// etcd.
    ///
    /// While servers run on the source, the data is only copied to etcd. Without them, the same
    /// command copies the changes, compares all values, and moves the data: servers start on the
    /// target only. An interrupted command can be repeated. The keyring of the source must be in
    /// the key directory.
    Migrate(Migrate),
    /// Begin a new epoch on a store, after a restore of etcd that no running server has noticed.
    ///
    /// Run it if etcd was restored while all servers were stopped, with or without --bump-revision. Without it, clients
    /// could mistake a new version of an object for an old one.
    NewEpoch(NewEpoch),
}

/// `postern storage check`
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    directories: Directories,

    #[command(flatten)]
    store: StoreFlags,
}

/// `postern storage rotate-key`
#[derive(Args)]
pub(crate) struct RotateKey {
    #[command(flatten)]
    directories: Directories,

    /// Print the keyring with one more key, which is secret, and change nothing. For a keyring that is read-only, such
    /// as a Secret in Kubernetes
    #[arg(long)]
    print: bool,
}

/// `postern storage drop-key`
#[derive(Args)]
pub(crate) struct DropKey {
    /// The id of the key, as rotate-key and rewrap print it
    id: String,

    #[command(flatten)]
    directories: Directories,
}

/// `postern storage backup`
#[derive(Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    directories: Directories,

    /// The file to write. It appears when the backup is complete
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,

    /// Omit corrupt values, and print their keys; the exit code is then 1. Without this flag, a corrupt value
    /// is an error, and no backup is written
    #[arg(long)]
    skip_corrupt: bool,

    #[command(flatten)]
    store: StoreFlags,
}

/// `postern storage restore`
#[derive(Args)]
pub(crate) struct Restore {
    /// The backup to restore
    file: PathBuf,

    #[command(flatten)]
    directories: Directories,

    /// The highest resourceVersion that any client saw. Needed if the clock moved back since the backup, or
    /// if a newer backup was restored in between
    #[arg(long, value_name = "RESOURCE_VERSION", default_value_t = 0)]
    above: u64,

    #[command(flatten)]
    store: StoreFlags,
}

impl Admin {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::ResetKey(directories) => run(&directories, AdminCommand::ResetKey),
            Self::RotateSigningKey(RotateSigningKey { directories, force }) => {
                run(&directories, AdminCommand::RotateSigningKey { force })
            }
            Self::DropSigningKey(DropSigningKey { kid, directories }) => {
                run(&directories, AdminCommand::DropSigningKey { kid })
            }
        }
    }
}

impl Storage {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::RotateKey(RotateKey { directories, print: false }) => {
                run(&directories, AdminCommand::RotateKey)
            }
            Self::RotateKey(RotateKey { directories, print: true }) => {
                let keyring = directories.keyring()?;
                let clock = System::default();
                let text = rotated_keyring(&directories.files(&keyring, &clock, None))?;
                print_data(&text)?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Rewrap(directories) => run(&directories, AdminCommand::Rewrap),
            Self::DropKey(DropKey { id, directories }) => {
                run(&directories, AdminCommand::DropKey { id })
            }
            Self::Check(Check { directories, store }) => {
                run_with(&directories, AdminCommand::Check, store.remote()?.as_deref())
            }
            Self::Backup(given) => given.run(),
            Self::Restore(given) => given.run(),
            Self::Migrate(given) => given.run(),
            Self::NewEpoch(given) => given.run(),
        }
    }
}

impl Backup {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Self { directories, to, overwrite, skip_corrupt, store } = self;
        let to = BackupFile { path: to, overwrite, skip_corrupt };
        let (store, keyring, clock) = (store.remote()?, directories.keyring()?, System::default());
        let files = directories.files(&keyring, &clock, store.as_deref());
        let made = with_progress(|progress| block_on(Box::pin(backup(&files, &to, progress)))?)?;
        print_data(&format!("{}\n", to.path.display()))?;
        print_output(&made, &directories.data_dir)
    }
}

impl Restore {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Self { file, directories, above, store } = self;
        let (keyring, clock) = (directories.keyring()?, System::default());
        let files = directories.files(&keyring, &clock, None);
        let restored = with_progress(|progress| match store.remote()? {
            None => restore(&files, &file, above, progress),
            Some(store) => {
                block_on(Box::pin(restore_remote(&files, &*store, &file, above, progress)))?
            }
        })?;
        print_output(&restored, &directories.data_dir)
    }
}

fn run(directories: &Directories, command: AdminCommand) -> anyhow::Result<ExitCode> {
    run_with(directories, command, None)
}

/// Runs a command on a store, or on the server or the database of the data directory.
fn run_with(
    directories: &Directories,
    command: AdminCommand,
    store: Option<&dyn RemoteEngine>,
) -> anyhow::Result<ExitCode> {
    let (keyring, clock) = (directories.keyring()?, System::default());
    let files = directories.files(&keyring, &clock, store);
    let output = with_progress(|progress| block_on(Box::pin(call(&files, command, progress)))?);
    print_output(&output?, &directories.data_dir)
}

/// Prints the location of a panic in one line. The message is omitted, because it may contain a stored value. A panic
/// of the database engine about corrupt data is caught, and reported as corruption.
pub(crate) fn print_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let failed =
            "postern: an internal check failed: report this bug, and run postern storage check";
        print_message(&format!("{failed} ({location})"));
    }));
}

/// Prints the output of a command. The exit code is 1 if values are corrupt.
fn print_output(output: &CommandOutput, data_dir: &Path) -> anyhow::Result<ExitCode> {
    let (mut data, mut messages) = (String::new(), Vec::new());
    let mut corrupt_count = 0;
    match output {
        CommandOutput::ResetKey { kubeconfig, key_name, user_repaired, other_keys } => {
            writeln!(data, "{}", kubeconfig.display())?;
            messages.push(format!(
                "The new access key {key_name} is in {}: keep it safe.",
                kubeconfig.display()
            ));
            if *user_repaired {
                messages.push(
                    "The user admin was missing, disabled or without permissions, and was repaired."
                        .to_owned(),
                );
            }
            if !other_keys.is_empty() {
                messages.push(format!("Other keys of admin stay valid: {}", other_keys.join(" ")));
                messages.push("Disable a lost one with: postern disable accesskey NAME".to_owned());
            }
        }
        CommandOutput::RotateSigningKey { kid, .. } | CommandOutput::DropSigningKey { kid } => {
            writeln!(data, "{kid}")?;
            messages.push(about_signing_key(output));
        }
        CommandOutput::RotateKey { current: id, .. }
        | CommandOutput::PrepareKey { prepared: id, .. } => {
            writeln!(data, "{id}")?;
            messages.push(about_rotation(output, data_dir));
        }
        CommandOutput::DropKey { left, .. } => {
            writeln!(data, "{}", left.join("\n"))?;
            messages.push(about_rotation(output, data_dir));
        }
        CommandOutput::Rewrap { seen, rewritten, corrupt, needed } => {
            corrupt_count = *corrupt;
            writeln!(data, "{rewritten}")?;
            messages.push(format!(
                "{rewritten} of {seen} values were rewrapped with the current at-rest key."
            ));
            if let Some(ids) = needed.as_ref().filter(|ids| ids.len() > 1) {
                let ids = ids.join(" ");
                messages.push(format!("History needs the keys {ids} until it is compacted."));
            }
            if *corrupt > 0 {
                messages.push(format!(
                    "{corrupt} values are corrupt and were not changed: run postern storage check"
                ));
            }
        }
        CommandOutput::Health { failed } => writeln!(data, "{}", failed.join("\n"))?,
        CommandOutput::Check { seen, corrupt, corrupt_total } => {
            corrupt_count = *corrupt_total;
            for one in corrupt {
                writeln!(data, "{}\t{}", one.key, one.reason)?;
            }
            messages.push(format!("{seen} values were checked, {corrupt_total} are corrupt."));
        }
        CommandOutput::Backup { content, omitted } => {
            corrupt_count = content.omitted;
            messages.extend(about_backup(content, omitted));
        }
        CommandOutput::Restore { database, content, clock_is_behind, .. } => {
            writeln!(data, "{}", database.display())?;
            messages.extend(about_restore(content, *clock_is_behind));
        }
    }
    print_message(&messages.join("\n"));
    print_data(&data)?;
    Ok(if corrupt_count > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn about_rotation(output: &CommandOutput, data_dir: &Path) -> String {
    match output {
        CommandOutput::RotateKey { all, .. } => format!(
            "All later writes use this at-rest key; the keyring has {} keys.\n\
             Rewrap older values with:\n  \
             postern storage rewrap --data-dir {}",
            all.len(),
            data_dir.display()
        ),
        CommandOutput::PrepareKey { in_store: true, .. } => {
            "This at-rest key is prepared. The servers read it from the store, and it becomes active some seconds after \
             all of them have it."
                .to_owned()
        }
        CommandOutput::PrepareKey { without, .. } => format!(
            "This at-rest key is prepared. It becomes active some seconds after all servers have it.\n\
             Copy the keyring (seal.keys) to the servers: {}",
            if without.is_empty() { "none lacks it".to_owned() } else { without.join(", ") }
        ),
        CommandOutput::DropKey { in_store: true, .. } => {
            "Backups have the keys that they need.".to_owned()
        }
        CommandOutput::DropKey { .. } => {
            "Keep the old keyring as long as backups need it.".to_owned()
        }
        _ => String::new(),
    }
}

fn about_signing_key(output: &CommandOutput) -> String {
    let CommandOutput::RotateSigningKey { signs_from, was_announced, .. } = output else {
        return "Connected agents reject its tokens within a second.".to_owned();
    };
    let known = if *was_announced { "It was published before. " } else { "" };
    format!("{known}The key signs from {signs_from} on.")
}

fn about_backup(content: &BackupContent, omitted: &[CorruptValue]) -> Vec<String> {
    let BackupContent { values, bytes, created, at_rest_keys, wrapped_keys, checksum, .. } =
        content;
    let mut messages = vec![
        format!("{values} values, {bytes} bytes, as of {created}. SHA-256: {checksum}"),
        if wrapped_keys.is_empty() {
            format!(
                "A restore needs these at-rest keys, which are not in the file: {}",
                at_rest_keys.join(" ")
            )
        } else {
            format!(
                "A restore needs the KMS. These at-rest keys are in the file, wrapped by it: {}",
                wrapped_keys.join(" ")
            )
        },
    ];
    if content.omitted > 0 {
        messages.push(format!("{} values are corrupt and NOT in the backup:", content.omitted));
        messages.extend(omitted.iter().map(|one| format!("  {}\t{}", one.key, one.reason)));
    }
    messages
}

fn about_restore(content: &BackupContent, clock_is_behind: bool) -> Vec<String> {
    let BackupContent { values, created, .. } = content;
    let mut messages = vec![format!(
        "The {values} values as of {created} were restored. Everything written after that is lost: \
         deleted objects exist again, and disabled keys are valid again."
    )];
    if content.omitted > 0 {
        messages.push(format!(
            "{} corrupt values were omitted from the backup, and are missing.",
            content.omitted
        ));
    }
    if clock_is_behind {
        messages.push(
            "The clock is behind the time of the backup. If the clock is wrong, move the new \
             database away, and restore again with --above and the highest resourceVersion that \
             any client saw."
                .to_owned(),
        );
    }
    messages
}
