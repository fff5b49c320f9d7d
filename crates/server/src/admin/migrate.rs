//! Moves the data of a store to another one: from a data directory to a remote store, back, or between remote stores.
//! The store copies and compares. This module decides when, and marks both stores so that never both can be used.
//!
//! | step | source | target |
//! |---|---|---|
//! | copy, while servers may run on the source | in use | has the mark "unfinished" |
//! | copy of the rest, and comparison, without servers | in use | has the mark "unfinished" |
//! | the source gets its mark | has the mark "moved" | has the mark "unfinished" |
//! | the mark of the target is removed | has the mark "moved" | in use |
//!
//! Each step can be repeated, so the same command continues after an interruption.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use postern_registry::clock::Source;
use postern_store::backup::BackupEntries;
use postern_store::migrate::{
    Copied, EntrySource, REVISION_GAP, StoreEntries, Survey, Verified, copy_to_path,
    copy_to_remote, survey, verify, verify_remote,
};
use postern_store::redb::log_path;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{
    Limits, MigrationMark, MigrationTarget, Options, RemoteEngine, Store, StoreState,
};
use rustix::fs::{FlockOperation, flock};

use super::backup::keyring_for;
use super::backup_file::{BackupFile, backup};
use super::client::is_server_running;
use super::remote::{members_of, named};
use super::{Progress, ServerFiles};
use crate::data_dir::{DataDir, write_private};
use crate::database;
use crate::keyring::{KeySource, KeyringSetting};

/// A store, as it is named on the command line.
#[derive(Clone, Debug)]
pub enum Location {
    /// The database in a data directory.
    Directory(PathBuf),
    /// A store that several servers can share.
    Remote(Arc<dyn RemoteEngine>),
}

impl Location {
    /// The name of the store: `file:` and the absolute path, or the URL.
    pub fn name(&self) -> String {
        match self {
            Self::Directory(path) => format!("file:{}", database::absolute(path).display()),
            Self::Remote(remote) => remote.url(),
        }
    }
}

/// A migration.
#[derive(Clone, Debug)]
pub struct Migration {
    /// The store with the data to move.
    pub from: Location,
    /// The target. Servers use it after the migration.
    pub to: Location,
    /// The directory of the keyring of both stores, if it is not in the data directory of one of them.
    pub key_dir: Option<PathBuf>,
    /// Where the at-rest keys of both stores come from.
    pub keyring: KeyringSetting,
    /// Whether nothing is changed.
    pub dry_run: bool,
}

/// The result of a migration.
#[derive(Clone, Debug)]
pub enum Migrated {
    /// Nothing was changed.
    Planned {
        /// What would be copied.
        survey: Survey,
        /// Whether servers run on the source, so that the data would be copied and not moved yet.
        is_online: bool,
    },
    /// The data was copied while servers run on the source. The same command, without them, moves it.
    Copied(Copied),
    /// The data was moved.
    Moved {
        /// The values that this run has copied.
        copied: Copied,
        /// The values that were compared.
        verified: Verified,
        /// The first revision in the target.
        revision: u64,
    },
    /// An earlier run has moved the data.
    AlreadyMoved,
}

type Report<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Moves the data of a store, or copies it while servers run on the source. The same call continues
/// after an interruption.
///
/// # Errors
/// When a store cannot be used, with what to do.
pub async fn migrate(
    migration: &Migration,
    clock: &dyn Source,
    mut progress: impl FnMut(Progress) + Send,
) -> anyhow::Result<Migrated> {
    let Migration { from, to, .. } = migration;
    ensure!(from.name() != to.name(), "--from and --to are the same store");
    let names = Names { from: from.name(), to: to.name() };
    match (from, to) {
        (Location::Directory(from), Location::Remote(to)) => {
            let plan = Plan { migration, names, clock };
            plan.out_of_directory(from, &**to, &mut progress).await
        }
        (Location::Remote(from), Location::Directory(to)) => {
            let plan = Plan { migration, names, clock };
            plan.to_directory(&**from, to, &mut progress).await
        }
        (Location::Remote(from), Location::Remote(to)) => {
            let plan = Plan { migration, names, clock };
            plan.between(&**from, &**to, &mut progress).await
        }
        (Location::Directory(_), Location::Directory(_)) => anyhow::bail!(
            "both stores are files: copy the data directory while no server runs, or use postern storage backup \
             and restore"
        ),
    }
}

/// The names of both stores.
struct Names {
    from: String,
    to: String,
}

/// A migration in progress.
struct Plan<'a> {
    migration: &'a Migration,
    names: Names,
    clock: &'a dyn Source,
}

impl Plan<'_> {
    async fn out_of_directory(
        &self,
        from: &Path,
        to: &dyn RemoteEngine,
        report: Report<'_>,
    ) -> anyhow::Result<Migrated> {
        let _lock = lock_database(from).await?;
        let mark = database::migration_mark(from)?;
        let is_marked = mark == Some(MigrationMark::Moved { to: self.names.to.clone() });
        if is_marked && to.state().await? == StoreState::InUse {
            put_aside(from)?;
            return Ok(Migrated::AlreadyMoved);
        }
        if let Some(mark) = mark.filter(|_| !is_marked) {
            anyhow::bail!(mark.explain(&self.names.from));
        }
        let database = DataDir::database_in(from);
        if !database.try_exists()? {
            database::check_not_moved(from)?;
            anyhow::bail!("the database {} does not exist", database.display());
        }
        let keys = self.keys(Some(from))?;
        if is_server_running(&self.files(from)).await {
            return self.copy_from_server(from, to, &keys, report).await;
        }
        let dir = DataDir::open(from, self.migration.key_dir.as_deref())?;
        let sealed =
            Arc::new(database::open_marked(&dir, &keys, Options::DEFAULT_CACHE_BYTES).await?);
        let moved = async {
            let keyring = keys.load(&sealed).await?;
            let at = sealed.revision().await?;
            let entries = || -> anyhow::Result<_> { Ok(entries_of(&sealed, at)) };
            let survey = surveyed(&mut *entries()?, &keyring, to.limits(), report).await?;
            if self.migration.dry_run {
                return self.planned(to, survey, false).await;
            }
            let (target, copied) = self.copy(&entries, to, &survey, report).await?;
            let verified = verified(&entries, &*target, &keyring, &survey, report).await?;
            write_mark(from, &MigrationMark::Moved { to: self.names.to.clone() })?;
            let revision = target.finish(at + REVISION_GAP).await?;
            Ok(Migrated::Moved { copied, verified, revision })
        };
        let moved = moved.await;
        sealed.close().await;
        if matches!(moved, Ok(Migrated::Moved { .. })) {
            put_aside(from)?;
        }
        moved
    }

    /// Copies a backup that the running server makes.
    async fn copy_from_server(
        &self,
        from: &Path,
        to: &dyn RemoteEngine,
        keys: &KeySource,
        report: Report<'_>,
    ) -> anyhow::Result<Migrated> {
        let path = DataDir::migration_mark_in(from).with_extension("backup");
        let file = BackupFile { path: path.clone(), overwrite: true, skip_corrupt: false };
        let _removed = Removed(path.clone());
        backup(&self.files(from), &file, &mut *report)
            .await
            .context("the running server makes no backup")?;
        let entries = || {
            let file =
                File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            Ok(Box::new(BackupEntries::new(file)?) as Box<dyn EntrySource>)
        };
        let keyring = keyring_for(keys, &mut File::open(&path)?).await?;
        let survey = surveyed(&mut *entries()?, &keyring, to.limits(), report).await?;
        if self.migration.dry_run {
            return self.planned(to, survey, true).await;
        }
        let (_, copied) = self.copy(&entries, to, &survey, report).await?;
        Ok(Migrated::Copied(copied))
    }

    async fn to_directory(
        &self,
        from: &dyn RemoteEngine,
        to: &Path,
        report: Report<'_>,
    ) -> anyhow::Result<Migrated> {
        let database = DataDir::database_in(to);
        let exists = database.try_exists()?;
        let is_left_over = match database::migration_mark(to)? {
            Some(MigrationMark::Unfinished { from: found }) if found == self.names.from => true,
            // An earlier move may have ended before it renamed the database.
            Some(MigrationMark::Moved { to: found }) if found == self.names.from => false,
            Some(MigrationMark::Moved { .. }) | None if !exists => false,
            None if from.state().await? == self.moved() => return Ok(Migrated::AlreadyMoved),
            None => anyhow::bail!(
                "the database {} already exists: move it away, or pass another directory",
                database.display()
            ),
            Some(mark) => anyhow::bail!(mark.explain(&self.names.to)),
        };
        ensure!(
            !is_server_running(&self.files(to)).await,
            "a server runs on {}: stop it",
            to.display()
        );
        let keys = self.keys(Some(to))?;
        let source = from.open_source(&self.names.to).await?;
        let sealed = Arc::new(open_sealed(source.store(), &keys).await?);
        let moved = async {
            let keyring = keys.load(&sealed).await?;
            let members = members_of(from).await?;
            let at = sealed.revision().await?;
            let entries = || entries_of(&sealed, at);
            let survey = surveyed(&mut *entries(), &keyring, Limits::EMBEDDED, report).await?;
            if self.migration.dry_run {
                return Ok(Migrated::Planned { survey, is_online: !members.is_empty() });
            }
            ensure!(members.is_empty(), "servers run on {}: stop {}", from.url(), named(&members));
            let dir = DataDir::open(to, self.migration.key_dir.as_deref())?;
            let path = dir.database();
            if is_left_over {
                remove_if_there(&path)?;
                remove_if_there(&log_path(&path))?;
            } else {
                put_aside(to)?;
                write_mark(to, &self.unfinished())?;
            }
            let revision = at + REVISION_GAP;
            let values = survey.values;
            copy_to_path(&mut *entries(), path, revision, of_all(report, values)).await?;
            let copy =
                Arc::new(database::open_marked(&dir, &keys, Options::DEFAULT_CACHE_BYTES).await?);
            let mut written = entries_of(&copy, revision);
            let verified =
                verify(&mut *entries(), &mut *written, &keyring, of_all(report, values)).await;
            copy.close().await;
            let verified = verified?;
            source.mark_moved(&self.names.to, at).await?;
            remove_if_there(&DataDir::migration_mark_in(to))?;
            let copied = Copied { values, put: values, removed: 0 };
            Ok(Migrated::Moved { copied, verified, revision })
        };
        let moved = moved.await;
        sealed.close().await;
        moved
    }

    async fn between(
        &self,
        from: &dyn RemoteEngine,
        to: &dyn RemoteEngine,
        report: Report<'_>,
    ) -> anyhow::Result<Migrated> {
        let keys = self.keys(None)?;
        let source = from.open_source(&self.names.to).await?;
        if from.state().await? == self.moved() && to.state().await? == StoreState::InUse {
            return Ok(Migrated::AlreadyMoved);
        }
        let sealed = Arc::new(open_sealed(source.store(), &keys).await?);
        let moved = async {
            let keyring = keys.load(&sealed).await?;
            let is_online = !members_of(from).await?.is_empty();
            let at = sealed.revision().await?;
            let entries = || -> anyhow::Result<_> { Ok(entries_of(&sealed, at)) };
            let survey = surveyed(&mut *entries()?, &keyring, to.limits(), report).await?;
            if self.migration.dry_run {
                return self.planned(to, survey, is_online).await;
            }
            let (target, copied) = self.copy(&entries, to, &survey, report).await?;
            if is_online {
                return Ok(Migrated::Copied(copied));
            }
            let verified = verified(&entries, &*target, &keyring, &survey, report).await?;
            source.mark_moved(&self.names.to, at).await?;
            let revision = target.finish(at + REVISION_GAP).await?;
            Ok(Migrated::Moved { copied, verified, revision })
        };
        let moved = moved.await;
        sealed.close().await;
        moved
    }

    fn files<'b>(&'b self, data_dir: &'b Path) -> ServerFiles<'b> {
        let key_dir = self.migration.key_dir.as_deref();
        ServerFiles {
            data_dir,
            key_dir,
            keyring: &self.migration.keyring,
            clock: self.clock,
            store: None,
        }
    }

    /// The state of a source on etcd after its data was moved to this target.
    fn moved(&self) -> StoreState {
        StoreState::Marked(MigrationMark::Moved { to: self.names.to.clone() })
    }

    /// The mark of the target until it has all data.
    fn unfinished(&self) -> MigrationMark {
        MigrationMark::Unfinished { from: self.names.from.clone() }
    }

    /// The result of a dry run, if the target can be filled.
    async fn planned(
        &self,
        to: &dyn RemoteEngine,
        survey: Survey,
        is_online: bool,
    ) -> anyhow::Result<Migrated> {
        to.check_target(&self.unfinished()).await?;
        Ok(Migrated::Planned { survey, is_online })
    }

    /// Makes the entries of the target those of the source.
    async fn copy(
        &self,
        entries: &(dyn Fn() -> anyhow::Result<Box<dyn EntrySource>> + Sync),
        to: &dyn RemoteEngine,
        survey: &Survey,
        report: Report<'_>,
    ) -> anyhow::Result<(Box<dyn MigrationTarget>, Copied)> {
        let mut target = to.begin_target(&self.unfinished()).await?;
        let copied =
            copy_to_remote(&mut *entries()?, &mut *target, of_all(report, survey.values)).await;
        let copied = copied.with_context(|| {
            format!("the copy to {} is not complete: run the command again", to.url())
        })?;
        Ok((target, copied))
    }

    /// The source of the at-rest keys of both stores. A missing file is an error: a new keyring would open nothing.
    fn keys(&self, data_dir: Option<&Path>) -> anyhow::Result<KeySource> {
        let Migration { key_dir, keyring, .. } = self.migration;
        let is_in_key_dir = *keyring == KeyringSetting::KeyDirectory;
        ensure!(
            !is_in_key_dir || data_dir.is_some() || key_dir.is_some(),
            "pass --key-dir with the directory of the keyring of both stores, or --keyring"
        );
        let file = DataDir::keyring_file_in(data_dir.unwrap_or(Path::new("")), key_dir.as_deref());
        ensure!(
            !is_in_key_dir || file.try_exists()?,
            "the keyring {} is missing: copy the seal.keys of the servers to this path, or pass --key-dir or --keyring",
            file.display()
        );
        Ok(KeySource::with_file(keyring, file))
    }
}

/// Opens a store that is the source of a migration.
async fn open_sealed(store: Arc<dyn Store>, keys: &KeySource) -> anyhow::Result<Sealed> {
    match keys.kms() {
        Some(kms) => Ok(Sealed::open_with_kms(store, kms, false).await?),
        None => Ok(Sealed::open(store, keys.read_file()?).await?),
    }
}

fn entries_of(sealed: &Arc<Sealed>, at: u64) -> Box<dyn EntrySource> {
    Box::new(StoreEntries::new(sealed.clone(), at))
}

/// The survey of the values to copy. It fails if one of them cannot be copied.
async fn surveyed(
    entries: &mut dyn EntrySource,
    keyring: &Keyring,
    limits: Limits,
    report: Report<'_>,
) -> anyhow::Result<Survey> {
    let seen = |seen| report(Progress { seen, remaining: 0 });
    let survey = survey(entries, keyring, limits, seen).await?;
    survey.check().context("nothing was copied")?;
    Ok(survey)
}

async fn verified(
    entries: &(dyn Fn() -> anyhow::Result<Box<dyn EntrySource>> + Sync),
    target: &dyn MigrationTarget,
    keyring: &Keyring,
    survey: &Survey,
    report: Report<'_>,
) -> anyhow::Result<Verified> {
    let of_all = of_all(report, survey.values);
    let verified = verify_remote(&mut *entries()?, target, keyring, of_all).await;
    verified
        .context("the copy differs from the source, which is still in use: run the command again")
}

/// Reports progress towards a number of values.
fn of_all(report: Report<'_>, all: u64) -> impl FnMut(u64) + Send {
    move |seen| report(Progress { seen, remaining: all.saturating_sub(seen) })
}

fn write_mark(data_dir: &Path, mark: &MigrationMark) -> anyhow::Result<()> {
    Ok(write_private(&DataDir::migration_mark_in(data_dir), &format!("{mark}\n"))?)
}

/// Waits until no other migration out of a data directory runs. It may have moved the data in the meantime. While the
/// result is kept, no process creates a database in the directory either.
async fn lock_database(data_dir: &Path) -> anyhow::Result<Option<File>> {
    let database = DataDir::database_in(data_dir);
    let directory = database.parent().unwrap_or(data_dir);
    let opened = match File::open(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("cannot open {}", directory.display()))?,
    };
    let lock = move || flock(&opened, FlockOperation::LockExclusive).map(|()| Some(opened));
    let locked = tokio::task::spawn_blocking(lock).await?;
    locked.with_context(|| format!("cannot lock {}", directory.display()))
}

/// Renames the database after its data was moved, so that older versions do not start on it either.
/// The new name never replaces the database of an earlier move.
fn put_aside(data_dir: &Path) -> anyhow::Result<()> {
    let path = DataDir::database_in(data_dir);
    let log = log_path(&path);
    if !path.try_exists()? && !log.try_exists()? {
        return Ok(());
    }
    let mut moved = with_suffix(&path, ".moved");
    for number in 2.. {
        // Without the log, an earlier run may have ended after it had renamed the log.
        let is_log_taken = log.try_exists()? && log_path(&moved).try_exists()?;
        if !moved.try_exists()? && !is_log_taken {
            break;
        }
        moved = with_suffix(&path, &format!(".moved-{number}"));
    }
    for (from, to) in [(log, log_path(&moved)), (path, moved)] {
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot rename {}", from.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a file durably, if it exists. A mark that came back after a power failure could cost data.
fn remove_if_there(path: &Path) -> anyhow::Result<()> {
    let removed = match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all()),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// A file that is removed on drop.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // It may not have been written.
        drop(std::fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::read_if_there;

    #[test]
    fn a_database_that_is_put_aside_replaces_no_other_one() {
        let home = tempfile::tempdir().unwrap();
        let path = DataDir::database_in(home.path());
        let directory = path.parent().unwrap();
        std::fs::create_dir(directory).unwrap();
        let write = |name: &str, text: &str| write_private(&directory.join(name), text).unwrap();
        let read = |name: &str| read_if_there(&directory.join(name)).unwrap();
        for round in ["first", "second", "third"] {
            write("postern.redb", round);
            write("postern.redb.log", &format!("{round} log"));
            put_aside(home.path()).unwrap();
            put_aside(home.path()).unwrap();
        }
        for (name, round) in [("moved", "first"), ("moved-2", "second"), ("moved-3", "third")] {
            assert_eq!(read(&format!("postern.redb.{name}")).unwrap(), round);
            assert_eq!(read(&format!("postern.redb.{name}.log")).unwrap(), format!("{round} log"));
        }
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 6);
        // This continues a run that ended between the two renames.
        write("postern.redb", "fourth");
        write("postern.redb.moved-4.log", "fourth log");
        put_aside(home.path()).unwrap();
        assert_eq!(read("postern.redb.moved-4").unwrap(), "fourth");
        assert_eq!(read("postern.redb.moved-4.log").unwrap(), "fourth log");
    }
}
