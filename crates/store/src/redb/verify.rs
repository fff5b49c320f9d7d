//! Verification of a database when it is opened: nothing is missing from its tables, nothing in them is
//! older than it should be, and lookups find all of it. Values are not read: corruption of a
//! value is detected when it is read, and concerns one key only.

use ::redb::{AccessGuard, ReadableTable, ReadableTableMetadata};
use bytes::Bytes;

use super::history::Segment;
use super::layout;
use super::read::{View, corrupt_database, engine_error};
use super::scan::{Filled, adjoin, for_each_job, join, with_workers};
use crate::{Position, Result};

/// Bytes between two keys of a page of the table: headers of pages are longer.
const KEY_GAP: usize = 3;
/// Keys that are looked up together.
const LOOKUPS: usize = 512;

/// The result of the walk over all keys.
#[derive(Debug, Default)]
pub(super) struct Verification {
    /// The sum of all rows, if it has to be recorded again, because rows with an unknown share of
    /// the sum were replaced.
    pub(super) sum: Option<u64>,
    /// Keys in order that split all of them into ranges of similar size, for [`View::scan`].
    pub(super) splits: Vec<Bytes>,
}

/// Refuses a database in which a lookup could miss a key that exists.
///
/// A row that cannot be read is still there: reads report it, and it can be replaced and deleted. As long as
/// there is one, the sum says nothing about the others, and is left as it is.
///
/// This walks over everything. It is done at each start, because a corrupt page would
/// otherwise hide keys, and no later check could tell a hidden key from one that never existed.
///
/// Only the first and the last key of each page are looked up. The path through the tree to both of
/// them is the same, and so is the path to all keys between them. Each step compares with one key,
/// and two keys on different sides of it end on different pages.
pub(super) fn verify(view: &View) -> Result<Verification> {
    if view.state.compacted > view.state.revision {
        return Err(inconsistent("it is compacted beyond its newest revision"));
    }
    let segments = view.segments()?;
    verify_segments(view, segments)?;
    // One thread walks over the keys; the processors that it leaves are for history.
    std::thread::scope(|scope| {
        let keys = scope.spawn(|| verify_keys(view));
        let work = |number| verify_segment(view, segments, number);
        let history = for_each_job(segments.len(), work);
        let keys = join(keys);
        history.and(keys)
    })
}

fn verify_keys(view: &View) -> Result<Verification> {
    let mut walk = Walk::default();
    let look_up = |edges: Vec<Bytes>| edges.iter().try_for_each(|key| check_key_found(view, key));
    with_workers(|send| walk.run(view, send), look_up)?;
    if view.live().len().map_err(engine_error)? != walk.rows {
        return Err(inconsistent("a table does not have the length that it records"));
    }
    let sum = match (walk.corrupt, view.state.unsummed) {
        (0, 0) if view.state.live != walk.sum => {
            return Err(inconsistent("its keys are not those that were written last"));
        }
        (0, 1..) => Some(walk.sum),
        _ => None,
    };
    Ok(Verification { sum, splits: walk.splits })
}

/// The walk over all rows in key order.
#[derive(Default)]
struct Walk {
    rows: u64,
    sum: u64,
    corrupt: u64,
    splits: Vec<Bytes>,
}

impl Walk {
    /// Checks all rows, and passes on the first and the last key of each page of the table.
    fn run(&mut self, view: &View, send: &dyn Fn(Vec<Bytes>) -> bool) -> Result<()> {
        let (mut edges, mut filled) = (Vec::new(), Filled::default());
        let mut before: Option<AccessGuard<'_, &'static [u8]>> = None;
        for item in view.live().iter().map_err(engine_error)? {
            let (key, row) = item.map_err(engine_error)?;
            let (name, last) = (key.value(), before.as_ref().map(AccessGuard::value));
            if last.is_some_and(|last| last >= name) {
                return Err(inconsistent("a table is out of order"));
            }
            if last.is_none_or(|last| !adjoin(last, name, KEY_GAP)) {
                edges.extend(last.map(Bytes::copy_from_slice));
                edges.push(Bytes::copy_from_slice(name));
            }
            if filled.add(name.len() + row.value().len()) {
                self.splits.push(Bytes::copy_from_slice(name));
            }
            self.check(view, name, row.value())?;
            before = Some(key);
            if edges.len() >= LOOKUPS && !send(std::mem::take(&mut edges)) {
                return Ok(());
            }
        }
        edges.extend(before.as_ref().map(|key| Bytes::copy_from_slice(key.value())));
        send(edges);
        Ok(())
    }

    /// Checks one row, and counts it.
    fn check(&mut self, view: &View, key: &[u8], row: &[u8]) -> Result<()> {
        self.rows += 1;
        let row = match layout::decode_row(key, row) {
            Ok(row) => row,
            // The key that it was written for would not be found.
            Err(layout::OTHER_KEY) if !is_lost(row) => {
                return Err(inconsistent("a key is corrupt"));
            }
            // It is still there; reading it reports the corruption.
            Err(reason) => {
                self.corrupt += 1;
                tracing::error!(key = %String::from_utf8_lossy(key), reason, "a key is corrupt");
                return Ok(());
            }
        };
        if Position::from_packed(row.packed).revision() > view.state.revision {
            return Err(inconsistent("a key is newer than the newest revision"));
        }
        self.sum = self.sum.wrapping_add(row.sum);
        Ok(())
    }
}

/// Checks that a lookup finds a key.
fn check_key_found(view: &View, key: &[u8]) -> Result<()> {
    match view.live().get(key).map_err(engine_error)? {
        Some(_) => Ok(()),
        None => Err(inconsistent("a key is not found where it should be")),
    }
}

/// Whether nothing is left of a row: both of its heads are the same then, too.
fn is_lost(row: &[u8]) -> bool {
    row.iter().all(|byte| *byte == 0)
}

/// Checks that there are segments for all of history, and no others.
fn verify_segments(view: &View, segments: &[u64]) -> Result<()> {
    let begins = segments.first().map_or(view.state.revision, |first| first.saturating_sub(1));
    if begins > view.state.compacted {
        return Err(inconsistent("the beginning of its history is missing"));
    }
    let is_ordered = segments.is_sorted_by(|one, next| one < next);
    let newest = segments.last().copied().unwrap_or(0);
    if !is_ordered || newest != view.state.segment || view.segment_tables()? != segments.len() {
        return Err(inconsistent("a part of its history is missing"));
    }
    Ok(())
}

/// Checks the records of a segment. Its revisions end before the next segment begins.
fn verify_segment(view: &View, segments: &[u64], number: usize) -> Result<()> {
    let Some(first) = segments.get(number).copied() else { return Ok(()) };
    let end = segments.get(number + 1).copied().unwrap_or(view.state.revision + 1);
    let segment = view.segment(first)?;
    let (mut records, mut sum, mut corrupt) = (0, 0_u64, false);
    let mut before: Option<(u64, AccessGuard<'_, &'static [u8]>)> = None;
    for item in segment.iter().map_err(engine_error)? {
        let (packed, record) = item.map_err(engine_error)?;
        let packed = packed.value();
        let is_in_order = before.as_ref().is_none_or(|(last, _)| *last < packed);
        if !is_in_order || !(first..end).contains(&Position::from_packed(packed).revision()) {
            return Err(inconsistent("its history is out of order"));
        }
        if before.as_ref().is_none_or(|(_, last)| !adjoin(last.value(), record.value(), 0)) {
            before.as_ref().map_or(Ok(()), |(last, _)| check_found(&segment, *last))?;
            check_found(&segment, packed)?;
        }
        match layout::decode_record(packed, record.value()) {
            Ok(record) => sum = sum.wrapping_add(record.sum),
            // It is still there; reading it reports the corruption.
            Err(reason) => {
                corrupt = true;
                tracing::warn!(packed, reason, "a change in history is corrupt");
            }
        }
        records += 1;
        before = Some((packed, record));
    }
    before.as_ref().map_or(Ok(()), |(last, _)| check_found(&segment, *last))?;
    if segment.len().map_err(engine_error)? != records {
        return Err(inconsistent("a table does not have the length that it records"));
    }
    match view.recorded_sum(first)? {
        // Nothing else is wrong, and a start must not fail because of a value that is only
        // compared.
        None => tracing::warn!(first, "the sum of a part of history is corrupt"),
        Some(recorded) if !corrupt && recorded != sum => {
            return Err(inconsistent("its history is not the one that was written"));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Checks that a lookup finds a record.
fn check_found(segment: &Segment, packed: u64) -> Result<()> {
    match segment.get(packed).map_err(engine_error)? {
        Some(_) => Ok(()),
        None => Err(inconsistent("a change is not found where it should be")),
    }
}

/// The error for a database that cannot be intact.
pub(super) fn inconsistent(how: &str) -> crate::Error {
    corrupt_database(format!("the database file is corrupt: {how}; restore it from a copy"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ::redb::{Database, WriteTransaction};

    use super::*;
    use crate::redb::Redb;
    use crate::redb::layout::{LIVE, SEGMENTS, segment_name, segment_table};
    use crate::{Change, Condition, CorruptEntry, Error, ListRequest, Options, Store, Txn};

    /// Some keys in some segments of history, of which the first one is forgotten.
    async fn fill(path: &Path) {
        let store = Redb::open(path, Options::default()).unwrap();
        for round in 0..4_u8 {
            let put = |number: u32| {
                let value = vec![round; 20_000].into();
                Change::Put { key: format!("/k{number:02}").into(), value }
            };
            let changes = (0..60).map(put).collect();
            store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        }
        store.compact(1).await.unwrap();
        store.close().await;
    }

    fn change(path: &Path, run: impl FnOnce(&WriteTransaction)) {
        let database = Database::open(path).unwrap();
        let transaction = database.begin_write().unwrap();
        run(&transaction);
        transaction.commit().unwrap();
    }

    /// Each is a table of which a part is missing or older, with all checksums of redb.
    #[tokio::test]
    async fn what_is_missing_or_old_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let [whole, path] = ["whole", "db"].map(|name| directory.path().join(name));
        fill(&whole).await;
        let mut old = Vec::new();
        change(&whole, |transaction| {
            let row = layout::encode_row("/k30", layout::PUT, 256, &layout::encode_value(256, b""));
            old = row.0;
            let segments = transaction.open_table(SEGMENTS).unwrap();
            let firsts: Vec<_> =
                segments.iter().unwrap().map(|one| one.unwrap().0.value()).collect();
            assert_eq!(firsts, [2, 3, 4]);
        });
        let segment = |transaction: &WriteTransaction, first, change: &dyn Fn(&mut Table<'_>)| {
            let name = segment_name(first);
            change(&mut transaction.open_table(segment_table(&name)).unwrap());
        };
        let damages: [&dyn Fn(&WriteTransaction); 8] = [
            // As a flipped bit in a key leaves it.
            &|transaction| {
                let mut live = transaction.open_table(LIVE).unwrap();
                let row = live.remove(b"/k30".as_slice()).unwrap().unwrap().value().to_vec();
                live.insert(b"/k30x".as_slice(), row.as_slice()).unwrap();
            },
            &|transaction| {
                transaction.open_table(LIVE).unwrap().remove(b"/k30".as_slice()).unwrap();
            },
            &|transaction| {
                let mut live = transaction.open_table(LIVE).unwrap();
                live.insert(b"/k30".as_slice(), old.as_slice()).unwrap();
            },
            &|transaction| {
                segment(transaction, 3, &|table| drop(table.remove(3 << 8).unwrap()));
            },
            &|transaction| {
                let name = segment_name(3);
                transaction.delete_table(segment_table(&name)).unwrap();
            },
            &|transaction| {
                let name = segment_name(3);
                transaction.delete_table(segment_table(&name)).unwrap();
                transaction.open_table(SEGMENTS).unwrap().remove(3).unwrap();
                segment(transaction, 1, &|_| {});
            },
            &|transaction| {
                transaction.open_table(SEGMENTS).unwrap().remove(2).unwrap();
            },
            &|transaction| {
                transaction.open_table(SEGMENTS).unwrap().remove(4).unwrap();
            },
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            std::fs::copy(&whole, &path).unwrap();
            assert!(Redb::open(&path, Options::default()).is_ok());
            change(&path, damage);
            let opened = Redb::open(&path, Options::default()).map(drop);
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "{number}: {opened:?}");
        }
    }

    #[tokio::test]
    async fn a_corrupt_sum_of_history_does_not_stop_a_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        fill(&path).await;
        change(&path, |transaction| {
            let mut segments = transaction.open_table(SEGMENTS).unwrap();
            let mut sum = segments.get(3).unwrap().unwrap().value().to_vec();
            sum[0] ^= 1;
            segments.insert(3, sum.as_slice()).unwrap();
        });
        let store = Redb::open(&path, Options::default()).unwrap();
        assert_eq!(listed(&store, 2).await.0.len(), 60);
    }

    /// The keys that are listed, and those that are listed as corrupt, after a revision.
    async fn listed(store: &Redb, at: u64) -> (Vec<String>, Vec<CorruptEntry>) {
        let request = ListRequest { at: Some(at), ..ListRequest::default() };
        let page = store.list(request).await.unwrap();
        (page.entries.iter().map(|entry| entry.key.to_string()).collect(), page.corrupt)
    }

    /// As a disk leaves them that lost a sector.
    fn zero_rows(path: &Path, keys: &[&str]) {
        change(path, |transaction| {
            let mut live = transaction.open_table(LIVE).unwrap();
            for key in keys {
                let length = live.get(key.as_bytes()).unwrap().unwrap().value().len();
                live.insert(key.as_bytes(), vec![0; length].as_slice()).unwrap();
            }
        });
    }

    #[tokio::test]
    async fn a_key_whose_row_is_lost_is_named_and_can_be_replaced_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        fill(&path).await;
        zero_rows(&path, &["/k30", "/k31", "/k32"]);
        let store = Redb::open(&path, Options::default()).unwrap();
        let (keys, corrupt) = listed(&store, 4).await;
        assert_eq!(keys.len(), 57);
        let named: Vec<_> = corrupt.iter().map(|one| (&*one.key, one.position)).collect();
        let none = Position::ZERO;
        assert_eq!(named, [("/k30", none), ("/k31", none), ("/k32", none)]);
        let commit = async |key: &str, change| {
            let conditions = vec![Condition::At(key.into(), none)];
            store.commit(Txn { conditions, changes: vec![change] }).await
        };
        let value = bytes::Bytes::from_static(b"again");
        let rewrite = Change::Rewrite { key: "/k30".into(), value: value.clone() };
        assert!(matches!(commit("/k30", rewrite).await, Err(Error::Corrupt { key: Some(_), .. })));
        let absent = vec![Condition::Absent("/k30".into())];
        let refused = store.commit(Txn { conditions: absent, changes: Vec::new() }).await;
        assert!(matches!(refused, Err(Error::Conflict { found: Some(_), .. })));
        let put = Change::Put { key: "/k30".into(), value };
        assert_eq!(commit("/k30", put).await.unwrap(), 5);
        assert_eq!(commit("/k31", Change::Delete { key: "/k31".into() }).await.unwrap(), 6);
        // The earlier values of these keys are not known.
        assert_eq!(listed(&store, 4).await.1.len(), 3);
        store.close().await;
        for _ in 0..2 {
            let store = Redb::open(&path, Options::default()).unwrap();
            let (keys, corrupt) = listed(&store, 6).await;
            assert_eq!((keys.len(), corrupt.len()), (58, 1));
            assert!(!keys.iter().any(|key| key == "/k31"));
            store.close().await;
        }
        let store = Redb::open(&path, Options::default()).unwrap();
        let changes = vec![Change::Delete { key: "/k32".into() }];
        store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        store.close().await;
        for _ in 0..2 {
            let store = Redb::open(&path, Options::default()).unwrap();
            let (keys, corrupt) = listed(&store, 7).await;
            assert_eq!((keys.len(), corrupt.len()), (58, 0));
            store.close().await;
        }
        // All rows were added up anew, so that one that is missing is noticed again.
        change(&path, |transaction| {
            transaction.open_table(LIVE).unwrap().remove(b"/k40".as_slice()).unwrap();
        });
        assert!(matches!(Redb::open(&path, Options::default()), Err(Error::Corrupt { .. })));
    }

    type Table<'t> = ::redb::Table<'t, u64, &'static [u8]>;
}
