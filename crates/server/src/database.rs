//! Opens the database with encryption at rest, for the server and for the administrator's commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Error, MigrationMark, Options, RemoteEngine, Store};

use crate::data_dir::{DataDir, read_if_there};
use crate::keyring::KeySource;

/// The advice for a corrupt database. A copy of the file of a running database mixes old and new pages.
const CORRUPT_ADVICE: &str = "; if the file was copied while a server used it, the copy is inconsistent: \
                    make a backup with postern storage backup and restore it; otherwise restore \
                    the last backup";

/// Opens the database with its keyring. A database without its keyring is an error. No new keyring is created for
/// it, because that would hide the loss of the old one.
///
/// # Errors
/// When a file is missing or cannot be used. The error names the file, and what to do.
pub(crate) async fn open(
    dir: &DataDir,
    keys: &KeySource,
    cache_bytes: usize,
) -> anyhow::Result<Sealed> {
    check_not_moved(dir.root())?;
    open_unless(dir, keys, cache_bytes, check_not_moved).await
}

/// Opens the database as [`open`] does, also when its data is being moved.
pub(crate) async fn open_marked(
    dir: &DataDir,
    keys: &KeySource,
    cache_bytes: usize,
) -> anyhow::Result<Sealed> {
    open_unless(dir, keys, cache_bytes, |_| Ok(())).await
}

/// Opens the database. `check` runs once more when no other process has the database open: the data
/// may have been moved while this one waited.
async fn open_unless(
    dir: &DataDir,
    keys: &KeySource,
    cache_bytes: usize,
    check: fn(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Sealed> {
    let database = dir.database();
    check_not_lost(dir, &database)?;
    let keyring = match keys {
        KeySource::KeyDirectory(file) | KeySource::Mounted(file) => {
            Some(file_keyring(keys, file, &database)?)
        }
        KeySource::Wrapped(_) => None,
    };
    let options = Options { cache_bytes, ..Options::default() };
    let opened = postern_store::open(&database, options).await;
    let store = opened.map_err(|error| open_error(&database, &error))?;
    if let Err(moved) = check(dir.root()) {
        store.close().await;
        return Err(moved);
    }
    match keyring {
        Some(keyring) => Ok(Sealed::open(store, keyring).await?),
        // Boxed, because it is large, and most servers have no KMS.
        None => Box::pin(open_with_kms(keys, store, true)).await,
    }
}

/// The keyring in a file. A new database gets a new one, if the file is in the key directory.
fn file_keyring(keys: &KeySource, file: &Path, database: &Path) -> anyhow::Result<Keyring> {
    anyhow::ensure!(
        !file.is_dir(),
        "{} is a directory, but must be the keyring file: put the file back",
        file.display()
    );
    if file.try_exists()? {
        return keys.read_file();
    }
    let is_new = matches!(keys, KeySource::KeyDirectory(_)) && !database.try_exists()?;
    anyhow::ensure!(
        is_new,
        "the keyring {} of the database {} is missing: put it back, or pass --key-dir or --keyring; without it the \
         database cannot be decrypted",
        file.display(),
        database.display()
    );
    create_keyring(file)
}

fn create_keyring(file: &Path) -> anyhow::Result<Keyring> {
    // The error is formatted, because it includes its source already.
    Keyring::create(file)
        .map_err(|error| anyhow!("cannot use the keyring {}: {error}", file.display()))
}

/// Opens a remote store with the keyring of this server. Both must exist: another keyring could not
/// decrypt the values that the servers have stored. Only `init` makes a new keyring, and writes to
/// a store that is not prepared.
///
/// # Errors
/// When the store or the keyring cannot be used. The error says what to do.
pub(crate) async fn open_remote(
    keys: &KeySource,
    remote: &dyn RemoteEngine,
    may_make_keyring: bool,
) -> anyhow::Result<Sealed> {
    let store = if may_make_keyring { remote.prepare().await } else { remote.open().await };
    let store = store.map_err(|error| match error {
        // It names the store.
        Error::Invalid(why) => anyhow!(why),
        error => anyhow!("cannot open the store {}: {error}", remote.url()),
    })?;
    // An `init` that was interrupted may have left an empty one.
    let is_empty = store.revision().await? == 0;
    anyhow::ensure!(
        may_make_keyring || !is_empty,
        "the store {} is not prepared: run postern init with the same --store and {} first",
        remote.url(),
        if keys.kms().is_some() { "--keyring" } else { "--key-dir" }
    );
    let (file, may_make_keyring) = match keys {
        KeySource::KeyDirectory(file) => (file, may_make_keyring),
        KeySource::Mounted(file) => (file, false),
        KeySource::Wrapped(_) => {
            return Box::pin(open_with_kms(keys, store, may_make_keyring)).await;
        }
    };
    let has_keyring = file.try_exists()?;
    // A keyring that is made for a store in use would open nothing of it.
    let makes_keyring = !has_keyring && may_make_keyring && is_empty;
    let keyring = match has_keyring {
        true => keys.read_file()?,
        false if makes_keyring => create_keyring(file)?,
        false => anyhow::bail!(
            "the keyring {} of the store {} is missing: copy it from the key directory in which postern init \
             has run, or pass --key-dir or --keyring",
            file.display(),
            remote.url()
        ),
    };
    Ok(Sealed::open(store, keyring).await?)
}

/// The mark of a migration in a data directory, if there is one.
///
/// # Errors
/// When it cannot be read, or is of another version.
pub(crate) fn migration_mark(root: &Path) -> anyhow::Result<Option<MigrationMark>> {
    let path = DataDir::migration_mark_in(root);
    let Some(text) = read_if_there(&path)? else { return Ok(None) };
    let mark = MigrationMark::parse(&text);
    let mark = mark.ok_or_else(|| {
        anyhow!("{} is not a mark that this version knows: {text:?}", path.display())
    })?;
    Ok(Some(mark))
}

/// Checks that the data of a directory was not moved, and is not being moved there.
///
/// # Errors
/// With the other store, and what to do.
pub(crate) fn check_not_moved(root: &Path) -> anyhow::Result<()> {
    match migration_mark(root)? {
        None => Ok(()),
        Some(mark) => {
            anyhow::bail!(mark.explain(&format!("file:{}", absolute(root).display())));
        }
    }
}

/// The absolute path of a directory without links, by which a mark names it. The directory may not exist yet.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let of_parent = || Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?));
    absolute.canonicalize().ok().or_else(of_parent).unwrap_or(absolute)
}

/// Opens a store that has its keys, wrapped by a KMS.
async fn open_with_kms(
    keys: &KeySource,
    store: Arc<dyn Store>,
    may_create: bool,
) -> anyhow::Result<Sealed> {
    let kms = keys.kms().context("there is no KMS")?;
    let opened = Sealed::open_with_kms(store.clone(), kms, may_create).await;
    if opened.is_err() {
        // Another process may open the database at once.
        store.close().await;
    }
    opened.map_err(|error| match error {
        Error::Unavailable(why) => {
            anyhow!("cannot use the at-rest keys of --keyring {}: {why}", kms.address())
        }
        error => error.into(),
    })
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
