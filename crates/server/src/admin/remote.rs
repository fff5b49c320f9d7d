//! Commands on a store that several servers share, without one of its servers: backup, check, restore, a new epoch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use postern_store::backup::{self as stored_backup, RestoreOptions, WriteOptions};
use postern_store::{Member, Position, RemoteEngine, Store as _, StoreState};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep};

use super::backup::{self, content, keyring_for, not_restored, progress, system_time};
use super::{AdminCommand, CommandOutput, Progress, ServerFiles, check};
use crate::data_dir::DataDir;
use crate::database;
use crate::keyring::KeySource;

/// How long servers that were killed are still announced, and some more.
const MEMBERS_WAIT: Duration = Duration::from_secs(10);
/// The time between two looks at the members.
const MEMBERS_POLL: Duration = Duration::from_millis(500);

/// Runs a command on a shared store. Servers may run meanwhile.
pub(super) async fn run(
    files: &ServerFiles<'_>,
    store: &dyn RemoteEngine,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, keyring, clock, .. } = *files;
    // Opening would create a missing store.
    ensure!(
        store.state().await? != StoreState::Unused,
        "there is no store at {}: pass the --store of the servers",
        store.url()
    );
    let keys = KeySource::with_file(keyring, DataDir::keyring_file_in(data_dir, key_dir));
    let sealed = database::open_remote(&keys, store, false).await?;
    let output = match command {
        AdminCommand::Check => check::run(&sealed, report).await,
        AdminCommand::Backup { skip_corrupt } => {
            let options = WriteOptions { now: system_time(clock), skip_corrupt };
            backup::write(&sealed, options, out, report).await
        }
        other => Err(anyhow::anyhow!(
            "{} needs a running server: run it on a machine of one, without --store",
            other.name()
        )),
    };
    sealed.close().await;
    output
}

/// Restores a backup to an unused shared store. `above` is the highest resourceVersion that any
/// client saw, or 0. If it is interrupted, no server starts on the store, and the same call
/// continues.
///
/// # Errors
/// When the store is in use, when the backup is corrupt, and when its at-rest keys are missing.
pub async fn restore_remote(
    files: &ServerFiles<'_>,
    store: &dyn RemoteEngine,
    file: &Path,
    above: u64,
    mut report: impl FnMut(Progress) + Send,
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, keyring, clock, .. } = *files;
    let keys = KeySource::with_file(keyring, DataDir::keyring_file_in(data_dir, key_dir));
    let mut opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let keyring = keyring_for(&keys, &mut opened).await?;
    let now = system_time(clock);
    let options = RestoreOptions { now, above: Position::from_packed(above).revision() };
    let mut report = |at| report(progress(at));
    let restoring =
        stored_backup::restore_remote(opened, &keyring, store, options, &mut report).await;
    let restored = restoring.map_err(|error| not_restored(error, file, &keys))?;
    Ok(CommandOutput::Restore {
        database: PathBuf::from(store.url()),
        content: content(&restored.summary),
        revision: restored.revision,
        clock_is_behind: now < restored.summary.created,
    })
}

/// The result of [`new_epoch`].
#[derive(Clone, Copy, Debug)]
pub struct NewEpoch {
    /// The number of the epoch.
    pub number: u32,
    /// The first resourceVersion of the epoch. All earlier ones are lower.
    pub first_resource_version: u64,
}

/// Begins a new epoch on a shared store after its database was restored while no server ran.
/// `above` is the highest resourceVersion that any client saw, if that is known.
///
/// # Errors
/// When there is no store, or a server runs on it.
pub async fn new_epoch(store: &dyn RemoteEngine, above: Option<u64>) -> anyhow::Result<NewEpoch> {
    let members = members_of(store).await?;
    if !members.is_empty() {
        bail!(
            "servers run on {} ({}), and have noticed a restore themselves: stop them first if they have not",
            store.url(),
            named(&members)
        );
    }
    let above = above.map(|above| Position::from_packed(above).revision());
    let epoch = store.begin_epoch(above).await?;
    let first_resource_version = Position::new(epoch.begins, 0).packed();
    Ok(NewEpoch { number: epoch.number, first_resource_version })
}

/// The servers that are announced on a store, after those that were killed are gone.
pub(super) async fn members_of(store: &dyn RemoteEngine) -> anyhow::Result<Vec<Member>> {
    let deadline = Instant::now() + MEMBERS_WAIT;
    loop {
        let members = store.members().await?;
        if members.is_empty() || Instant::now() >= deadline {
            return Ok(members);
        }
        sleep(MEMBERS_POLL).await;
    }
}

/// The addresses of servers.
pub(super) fn named(members: &[Member]) -> String {
    let addresses: Vec<&str> = members.iter().map(|member| member.address.as_str()).collect();
    addresses.join(", ")
}
