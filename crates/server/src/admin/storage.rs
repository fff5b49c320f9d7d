//! Commands that only need the database. They work with and without a running server.

use anyhow::Context as _;
use postern_registry::clock::Source;
use postern_store::backup::WriteOptions;
use postern_store::seal::{KeyId, Sealed};
use postern_store::{Options, Store as _};
use tokio::io::AsyncWrite;
use zeroize::Zeroizing;

use super::{AdminCommand, CommandOutput, Progress, ServerFiles, backup, check};
use crate::data_dir::DataDir;
use crate::keyring::KeySource;
use crate::{database, members};

/// Runs a command on a database that this process opens.
pub(super) async fn run_offline(
    files: &ServerFiles<'_>,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, keyring, clock, .. } = *files;
    database::check_not_moved(data_dir)?;
    // Opening would create a missing database.
    let database = DataDir::database_in(data_dir);
    let exists = database.try_exists()?;
    anyhow::ensure!(
        exists,
        "the database {} does not exist: pass the --data-dir of the server",
        database.display()
    );
    let dir = DataDir::open(data_dir, key_dir)?;
    let keys = KeySource::new(keyring, &dir);
    let sealed = database::open(&dir, &keys, Options::DEFAULT_CACHE_BYTES).await?;
    let target = Target { sealed: &sealed, keys: &keys, clock };
    let output = run(&target, command, out, report).await;
    sealed.close().await;
    output
}

/// The database, its keys and the clock that a command uses.
pub(super) struct Target<'a> {
    /// The open database.
    pub(super) sealed: &'a Sealed,
    /// Where its at-rest keys come from.
    pub(super) keys: &'a KeySource,
    /// The clock.
    pub(super) clock: &'a dyn Source,
}

/// Runs a command on an open database. `out` receives the bytes of a backup.
pub(super) async fn run(
    target: &Target<'_>,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let Target { sealed, keys, clock } = target;
    match command {
        AdminCommand::ResetKey
        | AdminCommand::RotateSigningKey { .. }
        | AdminCommand::DropSigningKey { .. }
        | AdminCommand::Health => {
            anyhow::bail!("this command requires a running server")
        }
        AdminCommand::RotateKey => rotate_key(keys, sealed).await,
        AdminCommand::Rewrap => rewrap(sealed, report).await,
        AdminCommand::DropKey { id } => drop_key(keys, sealed, &id).await,
        AdminCommand::Check => check::run(sealed, report).await,
        AdminCommand::Backup { skip_corrupt } => {
            let options = WriteOptions { now: backup::system_time(*clock), skip_corrupt };
            backup::write(sealed, options, out, report).await
        }
    }
}

/// Creates an at-rest key. It is on the disk before any value is encrypted with it. If several servers share the store,
/// they use it when all of them have it.
async fn rotate_key(keys: &KeySource, sealed: &Sealed) -> anyhow::Result<CommandOutput> {
    if let Some(prepared) = sealed.prepared_key() {
        let without = members::without_key(sealed, prepared);
        anyhow::ensure!(
            !without.is_empty(),
            "the at-rest key {prepared} is prepared, all servers have it, and it becomes active soon: try again later"
        );
        anyhow::bail!(
            "the at-rest key {prepared} is prepared already. It becomes active when the servers {} have it: {}",
            without.join(", "),
            keys.way_to_others()
        );
    }
    let _changing = sealed.lock_keyring().await;
    let keyring = keys.add_key(sealed).await?;
    let (current, all) = (keyring.current().to_string(), to_strings(keyring.ids()));
    sealed.use_keyring(keyring).await?;
    match sealed.prepared_key() {
        None => Ok(CommandOutput::RotateKey { current, all }),
        Some(prepared) => {
            let without = members::without_key(sealed, prepared);
            let (prepared, in_store) = (prepared.to_string(), keys.kms().is_some());
            Ok(CommandOutput::PrepareKey { prepared, without, in_store })
        }
    }
}

/// The text of a server's keyring with one more key, which is the current one. Changes nothing. The text is secret.
///
/// # Errors
/// When the keyring cannot be read.
pub fn rotated_keyring(files: &ServerFiles<'_>) -> anyhow::Result<Zeroizing<String>> {
    let ServerFiles { data_dir, key_dir, keyring, .. } = *files;
    let keys = KeySource::with_file(keyring, DataDir::keyring_file_in(data_dir, key_dir));
    Ok(keys.read_file()?.rotated()?.to_text())
}

/// Removes an at-rest key from the keyring, unless a value or the history needs it.
async fn drop_key(keys: &KeySource, sealed: &Sealed, id: &str) -> anyhow::Result<CommandOutput> {
    let id: KeyId = id.parse()?;
    // The command says first what does not depend on the stored values: reading all of them may take long.
    keys.load(sealed).await?.without(id).context("cannot change the keyring")?;
    anyhow::ensure!(
        sealed.is_retired(id),
        "the at-rest key {id} was never active, and another server may make it active at any moment: remove it from the \
         keyrings of all servers by hand, or let it become active and rotate once more"
    );
    let needed = sealed.key_ids_in_use().await;
    let needed = needed.context("cannot determine which at-rest keys are still needed")?;
    anyhow::ensure!(
        !needed.contains(&id),
        "stored values or their history need the at-rest key {id}: run postern storage rewrap, wait until history is \
         compacted (--history), and try again"
    );
    let _changing = sealed.lock_keyring().await;
    let keyring = keys.remove_key(sealed, id).await?;
    let left = to_strings(keyring.ids());
    sealed.use_keyring(keyring).await?;
    Ok(CommandOutput::DropKey { left, in_store: keys.kms().is_some() })
}

async fn rewrap(
    sealed: &Sealed,
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let done = sealed.rewrap(|at| report(Progress { seen: at.seen, remaining: at.remaining }));
    let done = done.await?;
    let needed = match sealed.key_ids_in_use().await {
        Ok(ids) => Some(to_strings(ids)),
        Err(error) => {
            tracing::warn!("cannot determine which at-rest keys are still needed: {error}");
            None
        }
    };
    let postern_store::seal::Progress { seen, rewritten, corrupt, .. } = done;
    Ok(CommandOutput::Rewrap { seen, rewritten, corrupt, needed })
}

/// The ids as strings.
pub(super) fn to_strings(ids: impl IntoIterator<Item = KeyId>) -> Vec<String> {
    ids.into_iter().map(|id| id.to_string()).collect()
}
