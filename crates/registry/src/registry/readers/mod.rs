//! The readers of secrets: the identities that were sent values. They are kept as the last use of access keys is.
//!
//! A response notes its caller in memory: `notes`. Once a minute and at its end, each server adds its notes to a record
//! next to the secret: `stored`. So a read changes no resourceVersion and sends no event
//! (`docs/reference/shared-secrets.md#readers`).

mod notes;
mod stored;

pub(crate) use self::notes::{NotedSecret, Reader, ReaderNotes, uid_of};
pub(crate) use self::stored::StoredReader;
