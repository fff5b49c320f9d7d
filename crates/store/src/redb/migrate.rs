//! Layout 1, and the way from it to the one of `layout`. It had all changes that were kept in one table,
//! and the positions of each key in another.

use std::collections::HashMap;

use ::redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};

use super::layout::{
    self, Before, CHECK_BYTES, Corruption, Head, LIVE, META, PUT, SEGMENTS, STATE, State,
    TOMBSTONE, checksum,
};
use super::read::{corrupt_database, engine_error};
use super::verify::inconsistent;
use super::write::Tables;
use crate::{Position, Result};

/// The version of the layout that this code reads.
pub(super) const FORMAT: u64 = 1;

/// All changes that are kept: packed position to record.
const CHANGES: TableDefinition<u64, &[u8]> = TableDefinition::new("changes");
/// The positions of each key: (key, packed position) to [`PUT`] or [`TOMBSTONE`].
const INDEX: TableDefinition<(&[u8], u64), u8> = TableDefinition::new("index");
/// In [`META`]: the newest revision.
const META_REVISION: &str = "revision";
/// In [`META`]: every revision up to this one is compacted.
const META_COMPACTED: &str = "compacted";

const FIXED_BYTES: usize = 1 + 8 + 2;

/// Brings a database up to date, in one transaction: it has the old layout or the new one, and nothing
/// in between.
///
/// # Errors
/// [`crate::Error::Corrupt`] when a key could be lost: when the two tables do not match. A corrupt
/// value stays one.
pub(super) fn migrate(transaction: &WriteTransaction, segment_revisions: u64) -> Result<()> {
    tracing::info!("the database is being brought to layout {}", layout::FORMAT);
    let changes = transaction.open_table(CHANGES).map_err(engine_error)?;
    let mut meta = transaction.open_table(META).map_err(engine_error)?;
    let take = |meta: &mut ::redb::Table<'_, &'static str, u64>, name: &'static str| {
        let taken = meta.remove(name).map_err(engine_error)?.map(|number| number.value());
        taken.ok_or_else(|| corrupt_database(format!("database file: the {name} is missing")))
    };
    let revision = take(&mut meta, META_REVISION)?;
    let compacted = take(&mut meta, META_COMPACTED)?;
    drop(transaction.open_table(LIVE).map_err(engine_error)?);
    drop(transaction.open_table(SEGMENTS).map_err(engine_error)?);
    let state = State { revision, compacted, ..State::default() };
    {
        let mut table = transaction.open_table(STATE).map_err(engine_error)?;
        let bytes = state.encode();
        table.insert(layout::STATE_NOW, bytes.as_slice()).map_err(engine_error)?;
    }
    let mut tables = Tables::open(transaction, segment_revisions)?;
    if compacted > revision {
        return Err(inconsistent("it is compacted beyond its newest revision"));
    }
    let (keys, deletions) = keys(transaction, &changes, &mut tables)?;
    history(&changes, &mut tables, deletions)?;
    tables.finish()?;
    drop(changes);
    meta.insert(layout::META_FORMAT, layout::FORMAT).map_err(engine_error)?;
    drop(meta);
    transaction.delete_table(CHANGES).map_err(engine_error)?;
    transaction.delete_table(INDEX).map_err(engine_error)?;
    tracing::info!(keys, "the database was brought to layout {}", layout::FORMAT);
    Ok(())
}

/// The keys of deletions whose records are corrupt, by packed position: the index knows them.
type CorruptDeletions = HashMap<u64, String>;

/// Writes the row of each key, and checks that the index and the changes match. Returns the number of
/// rows, and the deletions whose records do not say of which key they are.
fn keys(
    transaction: &WriteTransaction,
    changes: &impl ReadableTable<u64, &'static [u8]>,
    tables: &mut Tables<'_>,
) -> Result<(u64, CorruptDeletions)> {
    let index = transaction.open_table(INDEX).map_err(engine_error)?;
    let (mut versions, mut keys, mut deletions) = (0, 0, CorruptDeletions::new());
    let newest = Position::end_of(tables.state.revision).packed();
    let mut last: Option<(String, u64, u8)> = None;
    for item in index.iter().map_err(engine_error)? {
        let (version, mark) = item.map_err(engine_error)?;
        let ((key, packed), mark) = (version.value(), mark.value());
        let key = std::str::from_utf8(key).map_err(|_| inconsistent("a key is not UTF-8"))?;
        if packed > newest {
            return Err(inconsistent("a key is newer than the newest revision"));
        }
        if !check_version(changes, key, packed, mark)? && mark == TOMBSTONE {
            deletions.insert(packed, key.to_owned());
        }
        versions += 1;
        match last.take() {
            Some(before) if (before.0.as_str(), before.1) >= (key, packed) => {
                return Err(inconsistent("the index is out of order"));
            }
            Some(before) if before.0 != key => keys += put_row(changes, tables, &before)?,
            _ => {}
        }
        last = Some((key.to_owned(), packed, mark));
    }
    if let Some(last) = last {
        keys += put_row(changes, tables, &last)?;
    }
    let lengths = [index.len().map_err(engine_error)?, changes.len().map_err(engine_error)?];
    if lengths != [versions; 2] {
        return Err(inconsistent("the tables do not have the length that they record"));
    }
    Ok((keys, deletions))
}

/// Checks that a version of the index has its record. A corrupt record is not an error; returns whether the
/// record is intact.
fn check_version(
    changes: &impl ReadableTable<u64, &'static [u8]>,
    key: &str,
    packed: u64,
    mark: u8,
) -> Result<bool> {
    if mark != PUT && mark != TOMBSTONE {
        return Err(inconsistent("a mark in the index is unknown"));
    }
    let Some(record) = changes.get(packed).map_err(engine_error)? else {
        return Err(inconsistent("a record of the index does not exist"));
    };
    match decode(packed, record.value()) {
        Ok((head, _)) if head.key != key || head.mark != mark => {
            Err(inconsistent("the index and a record do not match"))
        }
        Ok(_) => Ok(true),
        Err(reason) => {
            tracing::warn!(%key, reason, "a stored value is corrupt, and stays so");
            Ok(false)
        }
    }
}

/// Writes the row of the last version of a key; none for a deletion that is compacted. Returns how many.
fn put_row(
    changes: &impl ReadableTable<u64, &'static [u8]>,
    tables: &mut Tables<'_>,
    (key, packed, mark): &(String, u64, u8),
) -> Result<u64> {
    let is_compacted = Position::from_packed(*packed).revision() <= tables.state.compacted;
    if *mark != PUT && is_compacted {
        return Ok(0);
    }
    let body = body_of(changes, *packed)?;
    tables.put_row(key, *mark, *packed, &body, 0)?;
    Ok(1)
}

/// Returns the value and the checksum of a record as they are. For a corrupt record, which does not say
/// where they are, returns none, which is corrupt as well.
fn body_of(changes: &impl ReadableTable<u64, &'static [u8]>, packed: u64) -> Result<Vec<u8>> {
    let record = changes.get(packed).map_err(engine_error)?;
    let body = record.as_ref().and_then(|record| decode(packed, record.value()).ok());
    Ok(body.map(|(_, body)| body.to_vec()).unwrap_or_default())
}

/// Writes the changes after the compacted revision, in order.
fn history(
    changes: &impl ReadableTable<u64, &'static [u8]>,
    tables: &mut Tables<'_>,
    mut deletions: CorruptDeletions,
) -> Result<()> {
    let State { revision: newest, compacted, .. } = tables.state;
    if newest > compacted {
        tables.begin_segment(compacted + 1)?;
    }
    let first = Position::end_of(compacted).packed() + 1;
    let mut revision = 0;
    // The old layout did not say after which deletion a key was set again.
    let mut removed = HashMap::new();
    for item in changes.range(first..).map_err(engine_error)? {
        let (packed, record) = item.map_err(engine_error)?;
        let packed = packed.value();
        if Position::from_packed(packed).revision() != revision {
            revision = Position::from_packed(packed).revision();
            tables.begin_segment(revision)?;
        }
        let Ok((mut head, body)) = decode(packed, record.value()) else {
            // It stays corrupt, in its place.
            tables.put_record_bytes(packed, &[])?;
            if let Some(key) = deletions.remove(&packed) {
                removed.insert(key, packed);
            }
            continue;
        };
        if head.before == Before::Nothing {
            let removed = removed.remove(head.key);
            head.before = removed.map_or(Before::Nothing, Before::Tombstone);
        }
        if head.mark == TOMBSTONE {
            removed.insert(head.key.to_owned(), packed);
        }
        let is_needed = tables.is_in_older_segment(head.before);
        let before = is_needed.then(|| body_of(changes, head.before.packed()));
        tables.put_record(packed, head, before.transpose()?.as_deref(), body)?;
    }
    Ok(())
}

/// Returns the head of a record, and its value with its checksum, which is not checked.
fn decode(packed: u64, record: &[u8]) -> std::result::Result<(Head<'_>, &[u8]), Corruption> {
    const SHORT: Corruption = "the record is too short";
    let (fixed, rest) = record.split_first_chunk::<FIXED_BYTES>().ok_or(SHORT)?;
    let [mark, previous @ .., low, high] = *fixed;
    let key_length = usize::from(u16::from_le_bytes([low, high]));
    let (key, rest) = rest.split_at_checked(key_length).ok_or(SHORT)?;
    let (check, body) = rest.split_first_chunk::<CHECK_BYTES>().ok_or(SHORT)?;
    let covered = record.get(..FIXED_BYTES + key_length).ok_or(SHORT)?;
    if checksum(packed, covered) != *check {
        return Err("the record's checksum does not match");
    }
    let key = std::str::from_utf8(key).map_err(|_| "the key is not UTF-8")?;
    if mark != PUT && mark != TOMBSTONE {
        return Err("the record is of no known kind");
    }
    let before = match u64::from_le_bytes(previous) {
        0 => Before::Nothing,
        packed => Before::Value(packed),
    };
    Ok((Head { mark, before, key }, body))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::redb::{Builder, Database, StorageBackend};
    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::redb::Redb;
    use crate::{Change, Entry, Error, Event, ListRequest, Options, Store, Txn};

    /// A database as layout 1 had it.
    struct Old {
        database: Database,
        revision: u64,
    }

    /// A change that is written: the key, its new value, and the packed position that it replaces.
    type Written<'a> = (&'a str, Option<&'a str>, u64);

    impl Old {
        fn create(path: &std::path::Path, compacted: u64) -> Self {
            let database = Builder::new().create(path).unwrap();
            let old = Self { database, revision: compacted };
            old.set("format", FORMAT);
            old.set(META_COMPACTED, compacted);
            old
        }

        fn set(&self, name: &str, number: u64) {
            let transaction = self.database.begin_write().unwrap();
            transaction.open_table(META).unwrap().insert(name, number).unwrap();
            transaction.commit().unwrap();
        }

        fn write(&self, packed: u64, (key, value, previous): Written<'_>) {
            let mark = if value.is_some() { PUT } else { TOMBSTONE };
            let mut record = vec![mark];
            record.extend_from_slice(&previous.to_le_bytes());
            record.extend_from_slice(&u16::try_from(key.len()).unwrap().to_le_bytes());
            record.extend_from_slice(key.as_bytes());
            let check = checksum(packed, &record);
            record.extend_from_slice(&check);
            let value = value.unwrap_or_default().as_bytes();
            record.extend_from_slice(&layout::encode_value(packed, value));
            let transaction = self.database.begin_write().unwrap();
            {
                let mut changes = transaction.open_table(CHANGES).unwrap();
                changes.insert(packed, record.as_slice()).unwrap();
                let mut index = transaction.open_table(INDEX).unwrap();
                index.insert((key.as_bytes(), packed), mark).unwrap();
            }
            transaction.commit().unwrap();
        }

        /// Writes the next revision. Returns the packed position of its first change.
        fn commit(&mut self, changes: &[Written<'_>]) -> u64 {
            self.revision += 1;
            for (index, change) in (0..).zip(changes) {
                self.write(Position::new(self.revision, index).packed(), *change);
            }
            self.set(META_REVISION, self.revision);
            Position::new(self.revision, 0).packed()
        }
    }

    /// History is compacted up to revision 5. `/kept` and `/gone` are older.
    fn written(path: &std::path::Path) -> Old {
        let [kept, gone] = [2, 4].map(|revision| Position::new(revision, 0).packed());
        let mut old = Old::create(path, 5);
        old.write(kept, ("/kept", Some("old"), 0));
        old.write(gone, ("/gone", Some("was"), 0));
        let new = old.commit(&[("/new", Some("1"), 0), ("/kept", Some("newer"), kept)]);
        let again = old.commit(&[("/new", Some("2"), new)]);
        old.commit(&[("/gone", None, gone), ("/new", None, again)]);
        old.commit(&[("/new", Some("3"), 0)]);
        old
    }

    fn open(path: &std::path::Path) -> Result<Redb> {
        Redb::open(path, Options::default())
    }

    async fn listed(store: &Redb, at: u64) -> Vec<String> {
        let request = ListRequest { at: Some(at), ..ListRequest::default() };
        let page = store.list(request).await.unwrap();
        assert_eq!(page.corrupt, []);
        let text = |entry: &Entry| {
            let value = String::from_utf8_lossy(&entry.value).into_owned();
            format!("{}={value}@{}", entry.key, entry.position.revision())
        };
        page.entries.iter().map(text).collect()
    }

    async fn events(store: &Redb, after: u64) -> Vec<Event> {
        let newest = store.revision().await.unwrap();
        let mut watch = store.watch("", Position::end_of(after)).await.unwrap();
        let (mut events, mut through) = (Vec::new(), after);
        while through < newest {
            let batch = watch.next().await.unwrap();
            through = batch.revision;
            events.extend(batch.events);
        }
        events
    }

    #[tokio::test]
    async fn states_and_history_are_those_of_before() {
        for segment_revisions in [Options::DEFAULT_SEGMENT_REVISIONS, 2, 1] {
            let options = Options { segment_revisions, ..Options::default() };
            check_states_and_history(options).await;
        }
    }

    async fn check_states_and_history(options: Options) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        drop(written(&path));
        for _ in 0..2 {
            let store = Redb::open(&path, options).unwrap();
            assert_eq!(store.revision().await.unwrap(), 9);
            assert_eq!(store.compacted().await.unwrap(), 5);
            assert_eq!(listed(&store, 6).await, ["/gone=was@4", "/kept=newer@6", "/new=1@6"]);
            assert_eq!(listed(&store, 7).await, ["/gone=was@4", "/kept=newer@6", "/new=2@7"]);
            assert_eq!(listed(&store, 8).await, ["/kept=newer@6"]);
            assert_eq!(listed(&store, 9).await, ["/kept=newer@6", "/new=3@9"]);
            let before = store.next_page("", 5, None).await.unwrap();
            let names: Vec<_> = before.entries.iter().map(|entry| &*entry.key).collect();
            assert_eq!(names, ["/gone", "/kept"]);
            let seen: Vec<_> = events(&store, 5)
                .await
                .into_iter()
                .map(|event| {
                    let previous = event.previous.map(|entry| entry.value);
                    (event.key, event.value, previous)
                })
                .collect();
            let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
            let expected: [(Arc<str>, _, _); 6] = [
                ("/new".into(), bytes("1"), None),
                ("/kept".into(), bytes("newer"), bytes("old")),
                ("/new".into(), bytes("2"), bytes("1")),
                ("/gone".into(), None, bytes("was")),
                ("/new".into(), None, bytes("2")),
                ("/new".into(), bytes("3"), None),
            ];
            assert_eq!(seen, expected);
            store.close().await;
        }
    }

    /// A file in memory that can be written a number of times.
    #[derive(Clone, Debug)]
    struct Failing {
        bytes: Arc<Mutex<Vec<u8>>>,
        writes_left: Arc<AtomicUsize>,
    }

    impl Failing {
        fn write_once(&self) -> std::io::Result<()> {
            let less = |left: usize| left.checked_sub(1);
            let left = self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            left.map(drop).map_err(|_| std::io::Error::other("the power went off"))
        }
    }

    impl StorageBackend for Failing {
        fn len(&self) -> std::io::Result<u64> {
            Ok(self.bytes.lock().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            let start = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.bytes.lock()[start..start + out.len()]);
            Ok(())
        }

        fn set_len(&self, length: u64) -> std::io::Result<()> {
            self.write_once()?;
            self.bytes.lock().resize(usize::try_from(length).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> std::io::Result<()> {
            self.write_once()
        }

        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.write_once()?;
            let start = usize::try_from(offset).unwrap();
            self.bytes.lock()[start..start + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    /// The bytes of a database and of its log.
    type Both = [Arc<Mutex<Vec<u8>>>; 2];

    /// Opens a database that can be written so often.
    fn open_failing(bytes: &Both, writes: usize) -> Result<Redb> {
        let [file, log] = [(&bytes[0], writes), (&bytes[1], usize::MAX)].map(|(bytes, writes)| {
            Failing { bytes: Arc::clone(bytes), writes_left: Arc::new(AtomicUsize::new(writes)) }
        });
        let options = Options { log_bytes: 0, ..Options::default() };
        Redb::open_with_backends(move || Ok(file.clone()), move || Ok(log.clone()), options)
    }

    #[tokio::test]
    async fn a_migration_that_is_interrupted_anywhere_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        drop(written(&path));
        let mut whole = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::open(&path).unwrap(), &mut whole).unwrap();
        let mut interrupted = 0;
        for writes in 0.. {
            let bytes = [whole.clone(), Vec::new()].map(|bytes| Arc::new(Mutex::new(bytes)));
            let is_done = open_failing(&bytes, writes).is_ok();
            let store = open_failing(&bytes, usize::MAX).unwrap();
            assert_eq!(listed(&store, 7).await, ["/gone=was@4", "/kept=newer@6", "/new=2@7"]);
            assert_eq!(events(&store, 5).await.len(), 6);
            if is_done {
                break;
            }
            interrupted += 1;
        }
        assert!(interrupted > 10, "{interrupted} times");
    }

    #[tokio::test]
    async fn a_corrupt_value_stays_one_and_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let old = written(&path);
        let transaction = old.database.begin_write().unwrap();
        {
            // The head of one, and the value of another.
            let mut changes = transaction.open_table(CHANGES).unwrap();
            for (position, at) in [(Position::new(9, 0), 5), (Position::new(6, 1), 26)] {
                let packed = position.packed();
                let mut record = changes.get(packed).unwrap().unwrap().value().to_vec();
                record[at] ^= 1;
                changes.insert(packed, record.as_slice()).unwrap();
            }
        }
        transaction.commit().unwrap();
        drop(old);
        let store = open(&path).unwrap();
        let page = store.list(ListRequest::default()).await.unwrap();
        assert_eq!(page.entries, []);
        let corrupt: Vec<_> = page.corrupt.iter().map(|one| &*one.key).collect();
        assert_eq!(corrupt, ["/kept", "/new"]);
    }

    #[tokio::test]
    async fn a_key_is_not_said_to_be_absent_before_a_corrupt_deletion() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut old = Old::create(&path, 5);
        let set = old.commit(&[("/k", Some("1"), 0)]);
        old.commit(&[("/other", Some("1"), 0)]);
        let deleted = old.commit(&[("/k", None, set)]);
        old.commit(&[("/k", Some("2"), 0)]);
        let transaction = old.database.begin_write().unwrap();
        {
            let mut changes = transaction.open_table(CHANGES).unwrap();
            let mut record = changes.get(deleted).unwrap().unwrap().value().to_vec();
            record[5] ^= 1;
            changes.insert(deleted, record.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
        drop(old);
        let store = open(&path).unwrap();
        for (at, expected) in [(6, ["/k"].as_slice()), (7, &["/k"]), (8, &[]), (9, &[])] {
            let request = ListRequest { at: Some(at), ..ListRequest::default() };
            let page = store.list(request).await.unwrap();
            let corrupt: Vec<_> = page.corrupt.iter().map(|one| &*one.key).collect();
            assert_eq!(corrupt, expected, "after revision {at}");
        }
    }

    #[test]
    fn a_database_with_impossible_numbers_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        for (number, name, value) in [(0, META_REVISION, 8), (1, META_COMPACTED, 10)] {
            let path = directory.path().join(number.to_string());
            let old = written(&path);
            old.set(name, value);
            drop(old);
            assert!(matches!(open(&path), Err(Error::Corrupt { .. })));
            let database = Database::open(&path).unwrap();
            let transaction = database.begin_write().unwrap();
            let meta = transaction.open_table(META).unwrap();
            assert_eq!(meta.get("format").unwrap().map(|format| format.value()), Some(FORMAT));
        }
    }

    #[test]
    fn a_key_without_its_record_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let old = written(&path);
        let transaction = old.database.begin_write().unwrap();
        transaction.open_table(CHANGES).unwrap().remove(Position::new(6, 1).packed()).unwrap();
        transaction.commit().unwrap();
        drop(old);
        for _ in 0..2 {
            assert!(matches!(open(&path), Err(Error::Corrupt { .. })));
        }
    }

    /// As the layout before left it: its state knows of no log.
    fn as_layout_2(path: &std::path::Path) {
        let database = Database::open(path).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(STATE).unwrap();
            let now = table.get(layout::STATE_NOW).unwrap().unwrap().value().to_vec();
            let numbers = layout::without_checksum(&now).unwrap();
            let without_log = layout::with_checksum(numbers[..7 * 8].to_vec());
            table.insert(layout::STATE_NOW, without_log.as_slice()).unwrap();
            let mut meta = transaction.open_table(META).unwrap();
            meta.insert(layout::META_FORMAT, layout::FORMAT_WITHOUT_LOG).unwrap();
        }
        transaction.commit().unwrap();
    }

    #[tokio::test]
    async fn a_database_without_a_log_gets_one_and_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let [path, log] = ["db", "db.log"].map(|name| directory.path().join(name));
        let set = async |store: &Redb, key: &str| {
            let change = Change::Put { key: key.into(), value: Bytes::from_static(b"value") };
            store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await.unwrap()
        };
        let store = open(&path).unwrap();
        for key in ["/a", "/b", "/a"] {
            set(&store, key).await;
        }
        let before = (listed(&store, 2).await, listed(&store, 3).await, events(&store, 0).await);
        store.close().await;
        as_layout_2(&path);
        std::fs::remove_file(&log).unwrap();
        for revision in [4, 5] {
            let store = open(&path).unwrap();
            let now = (listed(&store, 2).await, listed(&store, 3).await);
            assert_eq!((now.0, now.1, events(&store, 0).await[..3].to_vec()), before);
            assert_eq!(set(&store, "/c").await, revision);
            store.close().await;
            assert!(log.exists());
        }
    }
}
