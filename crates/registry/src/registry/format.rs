//! The version of the layout of stored data.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_store::{Change, Store};

use crate::storage_key;

/// The version that this server reads and writes.
pub(crate) const CURRENT: u32 = 1;

/// The record of the current version, for a new store.
pub(super) fn record() -> Change {
    Change::Put { key: storage_key::FORMAT.into(), value: Bytes::from(CURRENT.to_string()) }
}

/// Checks that this server can read the stored data. Runs before anything else is read.
///
/// # Errors
/// The errors of the store; an error if the version is missing, or is not the version of this server.
pub(crate) async fn check(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let found = store.get(storage_key::FORMAT).await?.value;
    let found = found.context("the format version of the database is missing: restore a backup")?;
    let text = std::str::from_utf8(&found.value).unwrap_or_default();
    let version: u32 = text.parse().with_context(|| {
        format!("the format version of the database is not a number: {text:?}; restore a backup")
    })?;
    anyhow::ensure!(
        version == CURRENT,
        "the database has format {version}, and this server reads format {CURRENT}: run the version of Postern \
         that last used the database"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use postern_store::Txn;
    use postern_store::memory::Memory;

    use super::*;

    async fn checked(version: Option<&str>) -> String {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        if let Some(version) = version {
            let value = Bytes::copy_from_slice(version.as_bytes());
            let change = Change::Put { key: storage_key::FORMAT.into(), value };
            store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
        }
        check(&store).await.err().map_or_else(String::new, |error| error.to_string())
    }

    #[tokio::test]
    async fn a_store_of_another_format_is_refused() {
        assert_eq!(checked(Some(&CURRENT.to_string())).await, "");
        let newer = checked(Some(&(CURRENT + 1).to_string())).await;
        assert!(newer.contains("has format 2, and this server reads format 1"), "{newer}");
        let corrupt = checked(Some("x")).await;
        assert!(corrupt.contains("not a number"), "{corrupt}");
        let missing = checked(None).await;
        assert!(missing.contains("missing"), "{missing}");
    }
}
