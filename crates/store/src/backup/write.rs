//! The making of a backup while the store is in use. It reads the state after one revision page by
//! page, and keeps nothing open between two pages: a slow output delays no other operation.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::task::spawn_blocking;

use super::format::Encoder;
use super::{BackupError, Progress, Summary, io_error, to_millis};
use crate::seal::{Keyring, Sealed, ValueOf};
use crate::{CorruptEntry, Entry, Error, ListRequest, Page, Store as _, seal};

/// The most corrupt keys that are named.
const NAMED_KEYS: usize = 100;

/// How a backup is made.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// The time now.
    pub now: SystemTime,
    /// Whether corrupt values are left out. Otherwise there is no backup when a value is corrupt.
    pub skip_corrupt: bool,
}

/// The result of a backup.
#[derive(Clone, Debug)]
pub struct Written {
    /// The contents of the backup.
    pub summary: Summary,
    /// The keys that were left out: the first hundred of them.
    pub omitted: Vec<CorruptEntry>,
}

/// The corrupt keys that were found.
#[derive(Default)]
struct Corrupt {
    named: Vec<CorruptEntry>,
    count: u64,
}

impl Corrupt {
    fn add(&mut self, corrupt: Vec<CorruptEntry>) {
        self.count += corrupt.len() as u64;
        let room = NAMED_KEYS.saturating_sub(self.named.len());
        self.named.extend(corrupt.into_iter().take(room));
    }

    fn into_error(self) -> BackupError {
        BackupError::CorruptValues { entries: self.named, count: self.count }
    }
}

/// A page that is ready to be written.
struct EncodedPage {
    encoder: Encoder,
    bytes: Vec<u8>,
    corrupt: Vec<CorruptEntry>,
}

/// Writes a backup of the newest state, and returns its summary. `report` is called after each
/// page.
///
/// Each value is decrypted, to be sure that it can be restored; the encrypted value is written. The
/// caller has to make the output durable, and to remove it after an error. An output without its
/// end is no backup: it is rejected when it is read.
///
/// # Errors
/// [`BackupError::CorruptValues`] names the corrupt values, unless they are to be left out. A
/// corrupt marker of the encryption, or a corrupt wrapped key, is always an error.
/// [`BackupError::Overtaken`] when the history that is needed was compacted meanwhile.
pub async fn write(
    store: &Sealed,
    options: WriteOptions,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    mut report: impl FnMut(Progress) + Send,
) -> Result<Written, BackupError> {
    let revision = store.revision().await?;
    let total = count_keys(store).await?;
    let (mut encoder, beginning) = Encoder::new(revision, to_millis(options.now));
    out.write_all(&beginning).await.map_err(io_error("write"))?;
    let (mut corrupt, mut after, mut entries) = (Corrupt::default(), None, 0);
    loop {
        let page = read_page(store, revision, after).await?;
        after = page.last_key().cloned();
        if after.is_none() {
            break;
        }
        entries += (page.entries.len() + page.corrupt.len()) as u64;
        // The present keyring: values may have been re-encrypted since the last page.
        let keyring = store.keyring();
        let ready = spawn_blocking(move || encode(encoder, &keyring, page)).await;
        let ready = ready.map_err(Error::from)?;
        encoder = ready.encoder;
        let reserved_is_corrupt = ready.corrupt.iter().any(|one| seal::is_reserved(&one.key));
        corrupt.add(ready.corrupt);
        if reserved_is_corrupt {
            return Err(corrupt.into_error());
        }
        // After a corrupt value the rest is only searched for others.
        if corrupt.count == 0 || options.skip_corrupt {
            out.write_all(&ready.bytes).await.map_err(io_error("write"))?;
        }
        report(Progress { entries, total: total.max(entries) });
    }
    if corrupt.count > 0 && !options.skip_corrupt {
        return Err(corrupt.into_error());
    }
    encoder.omit(corrupt.count);
    let (summary, end) = encoder.finish();
    out.write_all(&end).await.map_err(io_error("write"))?;
    out.flush().await.map_err(io_error("write"))?;
    Ok(Written { summary, omitted: corrupt.named })
}

async fn count_keys(store: &Sealed) -> Result<u64, BackupError> {
    let request = ListRequest { limit: 1, ..ListRequest::default() };
    let page = store.inner().list(request).await?;
    Ok(page.remaining + (page.entries.len() + page.corrupt.len()) as u64)
}

async fn read_page(
    store: &Sealed,
    revision: u64,
    after: Option<Arc<str>>,
) -> Result<Page, BackupError> {
    store.inner().next_page("", revision, after).await.map_err(|error| match error {
        Error::Compacted { .. } => BackupError::Overtaken { revision },
        error => error.into(),
    })
}

fn encode(mut encoder: Encoder, keyring: &Keyring, page: Page) -> EncodedPage {
    let mut corrupt = page.corrupt;
    let (mut intact, mut ids) = (Vec::with_capacity(page.entries.len()), Vec::new());
    for entry in page.entries {
        match seal::check_entry(keyring, &entry) {
            Ok(value) => {
                ids.extend(match value {
                    ValueOf::Sealed(id) => Some(id),
                    ValueOf::WrappedKey => None,
                });
                intact.push(entry);
            }
            Err(reason) => {
                let Entry { key, position, .. } = entry;
                corrupt.push(CorruptEntry { key, position, reason });
            }
        }
    }
    let bytes = encoder.entries(&intact, &ids);
    EncodedPage { encoder, bytes, corrupt }
}
