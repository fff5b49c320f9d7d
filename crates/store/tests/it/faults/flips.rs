//! Flipped bits: a read returns the written data, or an error. Never anything else, and never a
//! panic.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{
    Change, Error, Event, ListRequest, Page, Position, Replaced, Result, Store, Txn, WithOld,
};

use crate::faults::disk::{Disk, Faults, Rng};
use crate::faults::workload::{for_segments, new_disk, open};
use crate::faults::{for_seeds, only_for_seeds};

const SEEDS: u64 = 400;
/// The time at which the database is written, and how long it keeps history.
const NOW: Duration = Duration::from_secs(1_000_000_000);
const KEEP: Duration = Duration::from_mins(5);

/// The contents of an intact database.
struct Truth {
    values: BTreeMap<Arc<str>, (Bytes, Position)>,
    events: Vec<Event>,
    image: Vec<u8>,
    /// The offsets of the bytes in the image that are not zero.
    written: Vec<usize>,
}

impl Truth {
    fn with_image(self, image: Vec<u8>) -> Self {
        let written = image.iter().enumerate().filter(|(_, byte)| **byte != 0);
        Self { written: written.map(|(offset, _)| offset).collect(), image, ..self }
    }
}

/// Writes some keys, some of them deleted, and some history; values of one page and of several.
async fn fill(store: &impl Store) {
    for round in 0..4_u8 {
        let put = |number: usize| Change::Put {
            key: format!("/k{number:02}").into(),
            value: Bytes::from(vec![round; if number.is_multiple_of(7) { 9000 } else { 200 }]),
        };
        let changes = (0..20).map(put).collect();
        store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    }
    let delete = |number| Change::Delete { key: format!("/k{number:02}").into() };
    let changes = (0..20).step_by(5).map(delete).collect();
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    store.age_history(NOW, KEEP).await.unwrap();
    store.compact_noting(2, &noted()).await.unwrap();
}

/// Prefixes for which last changes are noted. Nothing has changed under the last one.
fn noted() -> Vec<String> {
    ["/k00", "/k1", "/none"].map(str::to_owned).to_vec()
}

/// Checks the notes on history other than the changes: no changed prefix is reported as unchanged,
/// and no history as too old. Tells whether any corruption was detected.
async fn compare_notes(store: &impl Store) -> bool {
    // The last transaction deletes four keys.
    let truth = [Position::new(5, 0), Position::new(5, 3), Position::ZERO];
    let detected = match store.last_changes(&noted(), 5).await {
        Ok(found) => {
            assert!(found.iter().zip(&truth).all(|(found, truth)| found >= truth), "{found:?}");
            found != truth
        }
        Err(error) => is_reported(&error),
    };
    match store.age_history(NOW + KEEP, KEEP).await {
        Ok(old) => assert_eq!(old, 0, "a fifth of it has passed"),
        // It writes, and whether that reached the corrupt file need not be known.
        Err(Error::Unknown(_)) => return true,
        Err(error) => return is_reported(&error) || detected,
    }
    detected
}

async fn events(store: &impl Store) -> Result<Vec<Event>> {
    let newest = store.revision().await?;
    let mut delivered = store.compacted().await?;
    let mut watch = store.watch("", Position::end_of(delivered), WithOld::Yes).await?;
    let mut events = Vec::new();
    while delivered < newest {
        let batch = watch.next().await?;
        delivered = batch.revision;
        events.extend(batch.events);
    }
    Ok(events)
}

async fn scanned(store: &impl Store) -> Result<Page> {
    let whole = Arc::new(Mutex::new(Page::default()));
    let into = Arc::clone(&whole);
    let visit = move |page: Page| {
        let mut whole = into.lock().unwrap();
        whole.entries.extend(page.entries);
        whole.corrupt.extend(page.corrupt);
    };
    store.scan(store.revision().await?, Arc::new(visit)).await?;
    Ok(std::mem::take(&mut *whole.lock().unwrap()))
}

async fn paged(store: &impl Store) -> Result<Page> {
    let at = store.revision().await?;
    let (mut whole, mut after) = (Page::default(), None);
    loop {
        let page = store.next_page("", at, after).await?;
        after = page.last_key().cloned();
        if after.is_none() {
            return Ok(whole);
        }
        whole.entries.extend(page.entries);
        whole.corrupt.extend(page.corrupt);
    }
}

async fn truth(store: &impl Store) -> Truth {
    let page = store.list(ListRequest::default()).await.unwrap();
    let values =
        page.entries.into_iter().map(|entry| (entry.key, (entry.value, entry.position))).collect();
    Truth { values, events: events(store).await.unwrap(), image: Vec::new(), written: Vec::new() }
}

/// Reads everything, with every operation, and says whether any corruption was detected. Panics
/// when a result is neither the truth nor an error.
async fn compare(store: &impl Store, truth: &Truth) -> bool {
    let mut detected = false;
    for number in 0..20 {
        let key = format!("/k{number:02}");
        match store.get(&key).await {
            Ok(found) => {
                let found = found.value.map(|entry| (entry.value, entry.position));
                assert_eq!(found, truth.values.get(&*key).cloned(), "{key}");
            }
            Err(error) => detected |= is_reported(&error),
        }
    }
    let listed = store.list(ListRequest::default()).await;
    for page in [listed, scanned(store).await, paged(store).await] {
        match page {
            Ok(page) => {
                detected |= !page.corrupt.is_empty();
                let mut keys: Vec<_> = page.corrupt.iter().map(|corrupt| &corrupt.key).collect();
                // The row of a deleted key can be corrupt, or its location in its page, so that its
                // deletion is not known. The key is then named as corrupt.
                keys.retain(|key| truth.values.contains_key(*key));
                for entry in &page.entries {
                    let (value, position) = &truth.values[&entry.key];
                    assert_eq!((&entry.value, &entry.position), (value, position));
                    keys.push(&entry.key);
                }
                keys.sort();
                let named: Vec<_> = keys.into_iter().collect();
                let expected: Vec<_> = truth.values.keys().collect();
                assert_eq!(named, expected, "every key is named; corrupt: {:?}", page.corrupt);
            }
            Err(error) => detected |= is_reported(&error),
        }
    }
    match events(store).await {
        Ok(events) => detected |= compare_events(events, &truth.events),
        Err(error) => detected |= is_reported(&error),
    }
    detected | compare_notes(store).await
}

/// Panics when an event is not the true one. It may lack the previous entry, if that is corrupt; returns
/// whether one does.
fn compare_events(events: Vec<Event>, truth: &[Event]) -> bool {
    assert_eq!(events.len(), truth.len());
    let mut detected = false;
    for (event, truth) in events.into_iter().zip(truth) {
        let is_without = event.replaced == Replaced::Old(None) && truth.replaced.entry().is_some();
        let replaced = if is_without { truth.replaced.clone() } else { event.replaced };
        assert_eq!(Event { replaced, ..event }, *truth);
        detected |= is_without;
    }
    detected
}

fn is_reported(error: &Error) -> bool {
    assert!(matches!(error, Error::Corrupt { .. } | Error::Unavailable(_)), "{error:?}");
    true
}

/// Flips one bit: sometimes in the first sector, on which everything depends, otherwise in a byte that
/// is not zero, since most of a file is empty.
fn flip(truth: &Truth, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut image = truth.image.clone();
    let offset = if seed.is_multiple_of(4) {
        rng.below(512)
    } else {
        truth.written[rng.below(truth.written.len())]
    };
    image[offset] ^= 1 << rng.below(8);
    image
}

/// Replaces and deletes keys with corrupt values, and returns the events of both, from a watch that
/// follows.
async fn repaired(store: &impl Store) -> Vec<Event> {
    let begin = store.revision().await.unwrap();
    let mut watch = store.watch("", Position::end_of(begin), WithOld::Yes).await.unwrap();
    let replace = Change::Put { key: "/a".into(), value: Bytes::from_static(b"new") };
    let delete = Change::Delete { key: "/b".into() };
    let mut events = Vec::new();
    for change in [replace, delete] {
        store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await.unwrap();
        events.extend(watch.next().await.unwrap().events);
    }
    events
}

#[test]
fn repairing_a_corrupt_value_is_an_event() {
    for_seeds(4, async |seed| {
        let disk = new_disk(seed);
        let store = open(&disk).unwrap();
        let put = |key: &str, byte| Change::Put { key: key.into(), value: vec![byte; 100].into() };
        let changes = vec![put("/a", 0xA1), put("/b", 0xB1), put("/c", 0xC1)];
        let filled = store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        store.close().await;
        let mut image = disk.image();
        for byte in [0xA1, 0xB1] {
            let starts: Vec<_> =
                (0..image.len() - 100).filter(|at| image[*at..*at + 100] == [byte; 100]).collect();
            assert!(!starts.is_empty());
            for at in starts {
                image[at + 50] ^= 1;
            }
        }
        let disk = Disk::with(seed, image);
        let store = open(&disk).unwrap();
        assert!(store.get("/a").await.is_err() && store.get("/b").await.is_err());
        let events = repaired(&store).await;
        let seen: Vec<_> = events
            .iter()
            .map(|event| (&*event.key, event.value.as_deref(), event.replaced.entry().is_some()))
            .collect();
        assert_eq!(seen, [("/a", Some(b"new".as_slice()), false), ("/b", None, false)]);
        // From the file too.
        store.close().await;
        let store = open(&disk).unwrap();
        // A reader of history bit by bit cannot tell a lost previous value from none: it must list
        // again.
        let error =
            store.next_events("", Position::end_of(filled), Position::MAX).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { key: Some(key), .. } if &*key == "/a"));
        let mut watch = store.watch("", Position::end_of(filled), WithOld::Yes).await.unwrap();
        let mut read = Vec::new();
        while read.len() < events.len() {
            read.extend(watch.next().await.unwrap().events);
        }
        assert_eq!(read, events);
    });
}

/// Damage and the end of a process together: a start must not be refused for either of them.
#[test]
fn a_corrupt_value_does_not_stop_a_start_after_a_crash() {
    for_seeds(4, async |seed| {
        let disk = new_disk(seed);
        let store = open(&disk).unwrap();
        let put = |key: &str, byte| Change::Put { key: key.into(), value: vec![byte; 100].into() };
        for (key, byte) in [("/a", 0xA1), ("/b", 0xB1), ("/c", 0xC1)] {
            let changes = vec![put(key, byte)];
            store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        }
        // Not closed.
        let mut image = disk.image();
        for at in 0..image.len() - 100 {
            if image[at..at + 100] == [0xB1; 100] {
                image[at + 50] ^= 1;
            }
        }
        let disk = Disk::with(seed, image);
        for _ in 0..2 {
            let store = open(&disk).unwrap();
            let page = store.list(ListRequest::default()).await.unwrap();
            let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
            let corrupt: Vec<_> = page.corrupt.iter().map(|one| &*one.key).collect();
            assert_eq!((keys, corrupt), (vec!["/a", "/c"], vec!["/b"]));
            // Not closed this time either: it has written, and its disk is taken away.
            store.age_history(NOW, KEEP).await.unwrap();
            disk.cut_power();
        }
        // A fault while it runs opens the corrupt file again.
        let store = open(&disk).unwrap();
        let at = disk.operations() + 1;
        disk.inject(Faults { sync_fails_at: Some(at), ..Faults::default() });
        let changes = vec![put("/d", 0xD1)];
        assert!(store.commit(Txn { conditions: Vec::new(), changes }).await.is_err());
        disk.inject(Faults::default());
        store.recover().await.unwrap();
        assert!(store.get("/b").await.is_err());
        let changes = vec![put("/b", 0xE1)];
        store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        assert!(store.get("/b").await.unwrap().value.is_some());
    });
}

/// Zeroes the sector of a byte that is not zero.
fn lose_sector(truth: &Truth, seed: u64) -> Vec<u8> {
    const SECTOR_BYTES: usize = 512;
    let mut rng = Rng::new(seed);
    let mut image = truth.image.clone();
    let at = truth.written[rng.below(truth.written.len())] / SECTOR_BYTES * SECTOR_BYTES;
    image[at..at + SECTOR_BYTES].fill(0);
    image
}

/// Fills a store, and opens corrupt images of it. Gives the number of rejected starts, and the
/// number of the other starts that detected the corruption.
fn open_damaged(is_closed: bool, damage: impl Fn(&Truth, u64) -> Vec<u8>) -> (usize, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let disk = new_disk(1);
    let truth = runtime.block_on(async {
        let store = open(&disk).unwrap();
        fill(&store).await;
        let truth = truth(&store).await;
        if is_closed {
            store.close().await;
        }
        // Otherwise it is the image after a process was killed.
        truth.with_image(disk.image())
    });
    let (refused, detected) = (Cell::new(0), Cell::new(0));
    only_for_seeds(SEEDS, async |seed| {
        let disk = Disk::with(seed, damage(&truth, seed));
        match open(&disk) {
            Ok(store) => {
                detected.set(detected.get() + usize::from(compare(&store, &truth).await));
            }
            Err(error) => refused.set(refused.get() + usize::from(is_reported(&error))),
        }
    });
    println!("{} starts refused, {} times detected", refused.get(), detected.get());
    (refused.get(), detected.get())
}

/// The least number of corrupt files of a run that are noticed, and the least number noticed by a
/// value.
fn bounds() -> (usize, usize) {
    let seeds = usize::try_from(crate::faults::seeds(SEEDS)).unwrap();
    (seeds / 2, seeds / 8)
}

#[test]
fn a_flipped_bit_never_shows_as_data() {
    let (most, _) = bounds();
    for_segments(|| {
        let (refused, detected) = open_damaged(true, flip);
        assert!(refused + detected > most, "most bits matter");
    });
}

#[test]
fn a_flipped_bit_after_a_crash_never_shows_as_data() {
    let (most, some) = bounds();
    for_segments(|| {
        let (refused, detected) = open_damaged(false, flip);
        assert!(refused + detected > most, "most bits matter");
        assert!(detected > some, "most of what is stored is values");
    });
}

#[test]
fn a_lost_sector_never_shows_as_data() {
    let (most, some) = bounds();
    for_segments(|| {
        for is_closed in [true, false] {
            let (refused, detected) = open_damaged(is_closed, lose_sector);
            assert!(refused + detected > most, "most sectors matter");
            assert!(detected > some, "most of what is stored is values");
        }
    });
}

#[test]
fn a_flipped_bit_never_shows_through_the_seal() {
    for_segments(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let disk = new_disk(1);
        let keyring = Keyring::generate().unwrap();
        let truth = runtime.block_on(async {
            let store =
                Sealed::open(Arc::new(open(&disk).unwrap()), keyring.clone()).await.unwrap();
            fill(&store).await;
            let truth = truth(&store).await;
            store.close().await;
            truth.with_image(disk.image())
        });
        let detected = Cell::new(0);
        only_for_seeds(SEEDS, async |seed| {
            let disk = Disk::with(seed, flip(&truth, seed));
            let sealed = match open(&disk) {
                Ok(store) => Sealed::open(Arc::new(store), keyring.clone()).await,
                Err(error) => Err(error),
            };
            match sealed {
                Ok(store) => {
                    detected.set(detected.get() + usize::from(compare(&store, &truth).await));
                }
                Err(error) => detected.set(detected.get() + usize::from(is_reported(&error))),
            }
        });
        let (most, _) = bounds();
        assert!(detected.get() > most, "most bits matter, {} were detected", detected.get());
    });
}
