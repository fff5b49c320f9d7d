//! The entries of a backup as a source of copies, and the restore of a backup to a store on other machines.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _};

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use super::format::{Decoder, Part};
use super::restore::{RestoreOptions, Restored, check_keys, first_revision, verify};
use super::{BackupError, Progress, Summary, io_error};
use crate::mark::MigrationMark;
use crate::migrate::{EntrySource, copy_to_remote, survey, verify_remote};
use crate::seal::Keyring;
use crate::{Entry, Error, RemoteEngine, Result as StoreResult};

/// The entries that are read at once, and their bytes. The last value may exceed them.
const PAGE_ENTRIES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// The entries of a backup, in order.
pub struct BackupEntries<R> {
    /// `None` at the end.
    decoder: Option<Decoder<BufReader<R>>>,
}

impl<R: Read> BackupEntries<R> {
    /// Begins to read a backup.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`] and [`BackupError::UnknownFormat`] for something else.
    pub fn new(file: R) -> Result<Self, BackupError> {
        Ok(Self { decoder: Some(Decoder::new(BufReader::new(file))?) })
    }
}

#[async_trait]
impl<R: Read + Send + 'static> EntrySource for BackupEntries<R> {
    async fn next_entries(&mut self) -> StoreResult<Vec<Entry>> {
        let Some(decoder) = self.decoder.take() else { return Ok(Vec::new()) };
        let read = spawn_blocking(move || read_page(decoder)).await;
        let read = read?;
        let (entries, decoder) = read.map_err(|error| match error {
            BackupError::Store(error) => error,
            error => Error::Corrupt { key: None, reason: error.to_string() },
        })?;
        self.decoder = decoder;
        Ok(entries)
    }
}

/// Entries, and the decoder if there may be more. There are none only at the end.
type BackupPage<R> = (Vec<Entry>, Option<Decoder<R>>);

fn read_page<R: Read>(mut decoder: Decoder<R>) -> Result<BackupPage<R>, BackupError> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while entries.len() < PAGE_ENTRIES && bytes < PAGE_BYTES {
        match decoder.next()? {
            Part::Entry(entry) => {
                bytes += entry.value.len();
                entries.push(entry);
            }
            Part::End(_) => return Ok((entries, None)),
        }
    }
    Ok((entries, Some(decoder)))
}

/// Restores a backup to an unused store on other machines, as [`restore`](super::restore) does to a store of this
/// process. If it is interrupted, no server starts on the store, and the same call goes on.
///
/// # Errors
/// As for [`restore`](super::restore); [`Error::Invalid`] for a store that is in use.
pub async fn restore_remote(
    mut file: File,
    keyring: &Keyring,
    remote: &dyn RemoteEngine,
    options: RestoreOptions,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Restored, BackupError> {
    file.rewind().map_err(io_error("read"))?;
    let (file, summary) =
        blocking(move || verify(&mut file).map(|summary| (file, summary))).await?;
    check_keys(&summary, keyring)?;
    let revision = first_revision(&summary, options)?;
    let mut again = entries_of(&file)?;
    survey(&mut again, keyring, remote.limits(), |_| ()).await?.check()?;
    let mark = MigrationMark::of_restore(&summary.checksum);
    let mut target = remote.begin_target(&mark).await?;
    let Summary { entries: total, .. } = summary;
    let mut report = |entries| report(Progress { entries, total });
    copy_to_remote(&mut entries_of(&file)?, &mut *target, &mut report).await?;
    verify_remote(&mut entries_of(&file)?, &*target, keyring, &mut report).await?;
    let revision = target.finish(revision).await?;
    Ok(Restored { summary, revision })
}

/// The entries of a file from its beginning.
fn entries_of(file: &File) -> Result<BackupEntries<File>, BackupError> {
    let mut file = file.try_clone().map_err(io_error("read"))?;
    file.rewind().map_err(io_error("read"))?;
    BackupEntries::new(file)
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    spawn_blocking(run).await.map_err(Error::from)?
}
