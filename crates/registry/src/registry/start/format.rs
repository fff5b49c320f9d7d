//! The version of the layout of stored data, and its rise while several servers run.
//!
//! A server of version n + 1 can read and write the layouts of n and of n + 1. It writes the one that the record in the
//! store names. When all servers on the store announce n + 1, one of them raises the record, and all write n + 1. So
//! servers can be replaced one after the other.

use anyhow::Context as _;
use bytes::Bytes;
use postern_meta::decode::decode_typed;
use postern_store::{Change, Condition, Entry, Error, Position, Store, Txn};
use serde::{Deserialize, Serialize};

use crate::storage_key;

/// The newest version that this server can write, which it announces to others.
pub const NEWEST: u32 = 1;

/// The oldest version that this server can read and write.
const OLDEST: u32 = 1;

/// The record in the store. If all versions are equal, it is stored as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Format {
    /// The version that servers write.
    current: u32,
    /// The newest version of values that may be stored: a server must be able to read it.
    min_reader: u32,
    /// The version that a server must be able to write.
    min_writer: u32,
}

impl Format {
    fn of(version: u32) -> Self {
        Self { current: version, min_reader: version, min_writer: version }
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        number.map_or_else(|| Ok(decode_typed(bytes)?), |version| Ok(Self::of(version)))
    }

    fn change(self) -> Change {
        let is_one_number = self == Self::of(self.current);
        let value = if is_one_number {
            self.current.to_string()
        } else {
            serde_json::to_string(&self).unwrap_or_default()
        };
        Change::Put { key: storage_key::FORMAT.into(), value: Bytes::from(value) }
    }

    /// Checks that a server with these versions can use the store.
    fn check(self, oldest: u32, newest: u32) -> anyhow::Result<()> {
        let needed = self.min_reader.max(self.min_writer).max(self.current);
        anyhow::ensure!(
            newest >= needed,
            "the database has format {needed}, and this server knows formats up to {newest}: run the version of Postern \
             that last used the database, or a newer one"
        );
        anyhow::ensure!(
            oldest <= self.current,
            "the database has format {}, and this server knows formats from {oldest} on: run the version of Postern \
             before this one first",
            self.current
        );
        Ok(())
    }
}

/// The record of the newest version, for a new store.
pub(super) fn record() -> Change {
    Format::of(NEWEST).change()
}

/// Checks that this server can read and write the stored data. Runs before anything else is read.
///
/// # Errors
/// The errors of the store; an error if the version is missing, or is not one of this server.
pub async fn check(store: &dyn Store) -> anyhow::Result<()> {
    read(store).await?.0.check(OLDEST, NEWEST)
}

async fn read(store: &dyn Store) -> anyhow::Result<(Format, Position)> {
    let found = store.get(storage_key::FORMAT).await?.value;
    let Entry { value, position, .. } =
        found.context("the format version of the database is missing: restore a backup")?;
    let format = Format::parse(&value)
        .context("the format version of the database cannot be read: restore a backup")?;
    Ok((format, position))
}

/// Raises the version that servers write to the newest one of this server. The caller must make sure that all servers on
/// the store can write it. Older values may still be stored, so `minReader` stays.
///
/// # Errors
/// The errors of the store.
pub async fn raise(store: &dyn Store) -> anyhow::Result<()> {
    raise_to(store, NEWEST).await
}

async fn raise_to(store: &dyn Store, newest: u32) -> anyhow::Result<()> {
    let (format, position) = read(store).await?;
    if format.current >= newest {
        return Ok(());
    }
    let raised = Format { current: newest, min_writer: newest, ..format };
    let key = storage_key::FORMAT.into();
    let txn =
        Txn { conditions: vec![Condition::At(key, position)], changes: vec![raised.change()] };
    match store.commit(txn).await {
        Ok(_) => {
            tracing::info!(from = format.current, to = newest, "the format of the store has risen");
            Ok(())
        }
        // Another server has raised it.
        Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_store::memory::Memory;

    use super::*;

    async fn stored(record: &str) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let value = Bytes::copy_from_slice(record.as_bytes());
        let change = Change::Put { key: storage_key::FORMAT.into(), value };
        store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
        store
    }

    async fn text(store: &Arc<dyn Store>) -> String {
        let found = store.get(storage_key::FORMAT).await.unwrap().value.unwrap();
        String::from_utf8(found.value.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_store_of_another_format_is_refused() {
        let checked = async |record: &str| {
            let result = check(&*stored(record).await).await;
            result.err().map_or_else(String::new, |error| format!("{error:#}"))
        };
        assert_eq!(checked(&NEWEST.to_string()).await, "");
        let newer = checked(&(NEWEST + 1).to_string()).await;
        assert!(newer.contains("has format 2, and this server knows formats up to 1"), "{newer}");
        for corrupt in ["x", "", "{}", r#"{"current":1,"minReader":1,"minWriter":1,"more":1}"#] {
            let refused = checked(corrupt).await;
            assert!(refused.contains("cannot be read: restore a backup"), "{refused}");
        }
        let empty: Arc<dyn Store> = Arc::new(Memory::new());
        assert!(check(&*empty).await.unwrap_err().to_string().contains("is missing"));
    }

    #[tokio::test]
    async fn a_server_uses_a_store_while_its_versions_overlap() {
        // (record, oldest and newest version of the server, whether it may use the store)
        for (record, oldest, newest, is_usable) in [
            ("4", 4, 4, true),
            ("4", 3, 4, true),
            ("4", 4, 5, true),
            ("4", 5, 5, false),
            ("4", 3, 3, false),
            (r#"{"current":5,"minReader":4,"minWriter":5}"#, 4, 5, true),
            (r#"{"current":5,"minReader":4,"minWriter":5}"#, 4, 4, false),
            (r#"{"current":4,"minReader":5,"minWriter":4}"#, 4, 4, false),
        ] {
            let format = Format::parse(record.as_bytes()).unwrap();
            assert_eq!(
                format.check(oldest, newest).is_ok(),
                is_usable,
                "{record} {oldest} {newest}"
            );
        }
    }

    #[tokio::test]
    async fn the_format_rises_once_and_is_a_number_while_all_versions_are_equal() {
        let store = stored("1").await;
        raise_to(&*store, 1).await.unwrap();
        assert_eq!((text(&store).await.as_str(), store.revision().await.unwrap()), ("1", 1));
        tokio::join!(
            async {
                raise_to(&*store, 2).await.unwrap();
            },
            async {
                raise_to(&*store, 2).await.unwrap();
            }
        );
        assert_eq!(text(&store).await, r#"{"current":2,"minReader":1,"minWriter":2}"#);
        assert_eq!(store.revision().await.unwrap(), 2);
        assert!(read(&*store).await.unwrap().0.check(1, 2).is_ok());
    }
}
