//! Opens the database and its seal, for the server and for the administrator's commands.

use std::path::Path;

use anyhow::anyhow;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Error, Options};

use crate::data_dir::DataDir;

/// The end of the error of a corrupt database. A copy of a running database's file mixes pages of
/// before and after its changes.
const TORN: &str = "; if this is a copy that was made while a server had the file open, it is torn: \
                    make one with postern storage backup, and restore that; if not, restore the \
                    last backup";

/// Opens the database and its seal. A database without its keys does not start, and no new keys are
/// made for it: they would only hide that the old ones are missing.
///
/// # Errors
/// A file is missing or cannot be used. The error says which, and what to do.
pub(crate) async fn open(dir: &DataDir, cache_bytes: usize) -> anyhow::Result<Sealed> {
    let (database, keys) = (dir.database(), dir.seal_keys());
    check_not_lost(dir, &database)?;
    anyhow::ensure!(
        !keys.is_dir(),
        "{} is a directory, and should be the file with the seal keys: put the file back",
        keys.display()
    );
    let keyring = match (database.try_exists()?, keys.try_exists()?) {
        (_, true) => Keyring::load(&keys),
        (false, false) => Keyring::create(&keys),
        (true, false) => anyhow::bail!(
            "the database {} is sealed, and its keys {} are missing: put them back (or point \
             --key-dir at them); without them nothing in it can be read",
            database.display(),
            keys.display()
        ),
    };
    // As text: the error names its source already.
    let keyring =
        keyring.map_err(|error| anyhow!("cannot use the seal keys {}: {error}", keys.display()))?;
    let options = Options { cache_bytes, ..Options::default() };
    let opened = postern_store::open(&database, options).await;
    let store = opened.map_err(|error| unopened(&database, &error))?;
    Ok(Sealed::open(store, keyring).await?)
}

/// Refuses to make a new database where there was one. All of these files are made after the database, so one of them
/// without it means that it was lost, or that a restore did not come to its end.
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
        "the database {} is missing or empty, and of an earlier start there is still {}: put the \
         database back, or restore a backup; to start with a new, empty database, move these files \
         away",
        database.display(),
        left.join(", ")
    );
    Ok(())
}

fn unopened(database: &Path, error: &Error) -> anyhow::Error {
    let hint = if matches!(error, Error::Corrupt { .. }) { TORN } else { "" };
    anyhow!("cannot open the database {}: {error}{hint}", database.display())
}
