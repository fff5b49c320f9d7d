//! The restore of a backup. The backup is first verified as a whole, and then becomes a new store.
//! The history of the new store begins after every revision that the lost store may have returned.

use std::io::{BufReader, Read, Seek};
use std::path::PathBuf;
use std::time::SystemTime;

use super::format::{Decoder, Part};
use super::{BackupError, Progress, Summary, io_error, to_millis};
use crate::seal::{Keyring, WrappedKeys};
use crate::{Entry, RestoreTarget, Result as StoreResult, engine, limits, seal};

/// Revisions by which a restored store begins behind its backup, in addition to the revisions for the
/// time that has passed since: see [`restore`].
pub const REVISION_MARGIN: u64 = 1 << 40;
/// Revisions for each millisecond since the backup was made, as a power of two: a million in a second,
/// which is more than any engine can commit.
const REVISIONS_PER_MILLISECOND: u32 = 10;
/// The greatest revision at which a restored store may begin: half of all.
const LAST_BEGIN: u64 = limits::REVISION / 2;

/// How a backup is restored.
#[derive(Clone, Copy, Debug)]
pub struct RestoreOptions {
    /// The time now.
    pub now: SystemTime,
    /// A revision that is known to have been handed out after the backup; 0 if none is. The
    /// restored store always begins after it, independently of the clock.
    pub above: u64,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The contents of the backup.
    pub summary: Summary,
    /// The newest revision of the restored store.
    pub revision: u64,
}

/// Reads a backup to its end, and returns its summary. It needs no key: it does not tell whether
/// the values can be decrypted.
///
/// # Errors
/// [`BackupError::CorruptBackup`] when the backup is corrupt, [`BackupError::NotABackup`] and
/// [`BackupError::UnknownFormat`] when it is something else.
pub fn verify(file: &mut impl Read) -> Result<Summary, BackupError> {
    let mut decoder = Decoder::new(BufReader::new(file))?;
    loop {
        if let Part::End(summary) = decoder.next()? {
            return Ok(summary);
        }
    }
}

/// Reads a backup to its end, and returns the at-rest keys in it. With a KMS they are the keyring that [`restore`] needs.
///
/// # Errors
/// As for [`verify`].
pub fn wrapped_keys(file: &mut (impl Read + Seek)) -> Result<WrappedKeys, BackupError> {
    file.rewind().map_err(io_error("read"))?;
    let mut decoder = Decoder::new(BufReader::new(file))?;
    let mut records = Vec::new();
    loop {
        match decoder.next()? {
            Part::Entry(entry) if WrappedKeys::id_of(&entry).is_some() => records.push(entry),
            Part::Entry(_) => {}
            Part::End(_) => return Ok(WrappedKeys::of_entries(&records)?),
        }
    }
}

/// Restores a backup to a new database at a path, with the engine for it. Blocks.
///
/// # Errors
/// As for [`restore`]. A database that exists is not overwritten.
pub fn restore_to(
    path: impl Into<PathBuf>,
    file: &mut (impl Read + Seek),
    keyring: &Keyring,
    options: RestoreOptions,
    report: impl FnMut(Progress),
) -> Result<Restored, BackupError> {
    let path = path.into();
    let begin = |revision| engine::begin_restore(path, revision);
    restore(file, keyring, options, begin, report).map(|((), restored)| restored)
}

/// Restores a backup to the store that `begin` begins at a revision, and returns that store. Blocks.
///
/// The file is verified first, before `begin` is called. Then it is read again; nothing is visible
/// before each value has been opened with the keyring.
///
/// The store begins at the backup's revision, plus [`REVISION_MARGIN`], plus a million for each
/// second since the backup. No store commits that fast. So its first revision is greater than every
/// possible revision of the lost store. It is also greater than every revision of a store that was
/// restored from the same backup earlier. Positions of the lost store are then compacted, and
/// watches from them fail: none is equal to a new one, and none is in the future. If the clock is
/// wrong, the margin covers twelve days at that rate, or 35 years at a thousand transactions in a
/// second. [`RestoreOptions::above`] covers the revisions that are known.
///
/// # Errors
/// Those of [`verify`]; [`BackupError::MissingKeys`] when the keyring does not hold each key that the
/// backup needs; those of `begin` and of the store. Nothing is left behind then.
pub fn restore<T: RestoreTarget>(
    file: &mut (impl Read + Seek),
    keyring: &Keyring,
    options: RestoreOptions,
    begin: impl FnOnce(u64) -> StoreResult<T>,
    mut report: impl FnMut(Progress),
) -> Result<(T::Output, Restored), BackupError> {
    file.rewind().map_err(io_error("read"))?;
    let summary = verify(file)?;
    check_keys(&summary, keyring)?;
    let revision = first_revision(&summary, options)?;
    file.rewind().map_err(io_error("read"))?;
    let mut target = begin(revision)?;
    copy(file, keyring, &summary, &mut target, &mut report)?;
    Ok((target.finish()?, Restored { summary, revision }))
}

/// Checks that a keyring has all keys that a backup needs.
pub(super) fn check_keys(summary: &Summary, keyring: &Keyring) -> Result<(), BackupError> {
    let is_missing = |id: &_| !keyring.holds(*id);
    let missing: Vec<_> = summary.key_ids.iter().copied().filter(is_missing).collect();
    if missing.is_empty() { Ok(()) } else { Err(BackupError::MissingKeys(missing)) }
}

/// The revision at which a restored store begins: see [`restore`].
pub(super) fn first_revision(
    summary: &Summary,
    options: RestoreOptions,
) -> Result<u64, BackupError> {
    let (now, created) = (to_millis(options.now), to_millis(summary.created));
    if now < created {
        tracing::warn!("the clock is behind the time at which the backup was made");
    }
    let from = summary.revision.max(options.above);
    let for_elapsed = now.saturating_sub(created).checked_mul(1 << REVISIONS_PER_MILLISECOND);
    for_elapsed
        .and_then(|elapsed| from.checked_add(REVISION_MARGIN)?.checked_add(elapsed))
        .filter(|first| *first <= LAST_BEGIN)
        .ok_or(BackupError::NoRevisionsLeft(from))
}

/// Adds all entries of a file that was verified to a store.
fn copy(
    file: &mut impl Read,
    keyring: &Keyring,
    verified: &Summary,
    target: &mut impl RestoreTarget,
    report: &mut impl FnMut(Progress),
) -> Result<(), BackupError> {
    /// Entries between two reports.
    const REPORT_ENTRIES: u64 = 1024;
    let mut decoder = Decoder::new(BufReader::new(file))?;
    let mut progress = Progress { entries: 0, total: verified.entries };
    let mut has_marker = false;
    loop {
        match decoder.next()? {
            Part::Entry(entry) => {
                has_marker |= seal::is_marker(&entry.key);
                check(keyring, &entry)?;
                target.add(entry)?;
                progress.entries += 1;
                if progress.entries.is_multiple_of(REPORT_ENTRIES) {
                    report(progress);
                }
            }
            Part::End(summary) if summary != *verified => {
                return Err(corrupt("it was changed while it was read".to_owned()));
            }
            Part::End(_) if !has_marker => {
                return Err(corrupt("it does not hold the marker of a seal".to_owned()));
            }
            Part::End(_) => {
                report(progress);
                return Ok(());
            }
        }
    }
}

fn check(keyring: &Keyring, entry: &Entry) -> Result<(), BackupError> {
    seal::check_entry(keyring, entry)
        .map(drop)
        .map_err(|reason| corrupt(format!("the value of {} does not open: {reason}", entry.key)))
}

fn corrupt(how: String) -> BackupError {
    BackupError::CorruptBackup(how)
}
