//! Opens the database with encryption at rest, for the server and for the administrator's commands.

use std::path::Path;

use anyhow::anyhow;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Error, Options, RemoteStore};

use crate::data_dir::DataDir;

/// The advice for a corrupt database. A copy of the file of a running database mixes old and new pages.
const CORRUPT_ADVICE: &str = "; if the file was copied while a server used it, the copy is inconsistent: \
                    make a backup with postern storage backup and restore it; otherwise restore \
                    the last backup";

/// Opens the database with its keyring. A database without its keyring is an error. No new keyring is created for
/// it, because that would hide the loss of the old one.
///
/// # Errors
/// When a file is missing or cannot be used. The error names the file, and what to do.
pub(crate) async fn open(dir: &DataDir, cache_bytes: usize) -> anyhow::Result<Sealed> {
    let (database, keys) = (dir.database(), dir.keyring_file());
    check_not_lost(dir, &database)?;
    anyhow::ensure!(
        !keys.is_dir(),
        "{} is a directory, but must be the keyring file: put the file back",
        keys.display()
    );
    let keyring = match (database.try_exists()?, keys.try_exists()?) {
        (_, true) => Keyring::load(&keys),
        (false, false) => Keyring::create(&keys),
        (true, false) => anyhow::bail!(
            "the keyring {} of the database {} is missing: put it back, or pass --key-dir; without it \
             the database cannot be decrypted",
            keys.display(),
            database.display()
        ),
    };
    // The error is formatted, because it includes its source already.
    let keyring =
        keyring.map_err(|error| anyhow!("cannot use the keyring {}: {error}", keys.display()))?;
    let options = Options { cache_bytes, ..Options::default() };
    let opened = postern_store::open(&database, options).await;
    let store = opened.map_err(|error| open_error(&database, &error))?;
    Ok(Sealed::open(store, keyring).await?)
}

/// Opens a remote store with the keyring of this server. It must exist: another one would not open what the servers have
/// stored. Only `init` makes a new keyring.
///
/// # Errors
/// When the store or the keyring cannot be used. The error says what to do.
pub(crate) async fn open_remote(
    dir: &DataDir,
    remote: &RemoteStore,
    may_make_keyring: bool,
) -> anyhow::Result<Sealed> {
    let keys = dir.keyring_file();
    let has_keyring = keys.try_exists()?;
    let store = remote.open().await;
    let store = store.map_err(|error| anyhow!("cannot open the store {}: {error}", remote.url))?;
    // A keyring that is made for a store in use would open nothing of it.
    let makes_keyring = !has_keyring && may_make_keyring && store.revision().await? == 0;
    let keyring = match has_keyring {
        true => Keyring::load(&keys),
        false if makes_keyring => Keyring::create(&keys),
        false => anyhow::bail!(
            "the keyring {} of the store {} is missing: copy it from the key directory in which postern init \
             has run, or pass --key-dir",
            keys.display(),
            remote.url
        ),
    };
    let keyring =
        keyring.map_err(|error| anyhow!("cannot use the keyring {}: {error}", keys.display()))?;
    Ok(Sealed::open(store, keyring).await?)
}

/// Checks that a missing database was not lost. All of these files are created after the database. If one exists
/// without the database, the database was lost, or a restore was not completed.
fn check_not_lost(dir: &DataDir, database: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(database).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    let later =
        [postern_store::redb::log_path(database), dir.admin_kubeconfig(), dir.ca_certificate()];
    let left: Vec<String> = later
        .iter()
        .filter(|path| std::fs::symlink_metadata(path).is_ok())
        .map(|path| path.display().to_string())
        .collect();
    anyhow::ensure!(
        left.is_empty(),
        "the database {} is missing or empty, but files of an earlier start exist ({}): put the \
         database back, or restore a backup; to start with an empty database, move these files \
         away",
        database.display(),
        left.join(", ")
    );
    Ok(())
}

fn open_error(database: &Path, error: &Error) -> anyhow::Error {
    let hint = if matches!(error, Error::Corrupt { .. }) { CORRUPT_ADVICE } else { "" };
    anyhow!("cannot open the database {}: {error}{hint}", database.display())
}
