//! Acknowledged transactions survive when the disk fails: power cuts in the middle of writes, syncs
//! that fail, full disks, unreadable disks, flipped bits.
//!
//! All faults are derived from seeds, so that a failure can be repeated: its seed is printed.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod disk;
mod flips;
mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use disk::{Faults, Rng};
use postern_store::redb::Redb;
use postern_store::{Change, Error, ListRequest, Position, Store, Txn};
use tokio::task::JoinSet;
use workload::{Workload, for_segments, new_disk, open};

/// Runs an async test for each of many seeds, with long and with short segments of history.
fn for_seeds<F: Future<Output = ()>>(count: u64, test: impl Fn(u64) -> F) {
    for_segments(|| only_for_seeds(count, &test));
}

/// How many seeds a run takes: a third, unless `POSTERN_TEST_FORM=full` asks for all.
fn seeds(count: u64) -> u64 {
    let is_full = std::env::var("POSTERN_TEST_FORM").is_ok_and(|form| form == "full");
    if is_full { count } else { count.div_ceil(3) }
}

/// Runs an async test for each of many seeds; for a third of them, unless `POSTERN_TEST_FORM=full` asks for all.
fn only_for_seeds<F: Future<Output = ()>>(count: u64, test: impl Fn(u64) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 0..seeds(count) {
        // Shown only when the test fails.
        println!("seed {seed}");
        runtime.block_on(test(seed));
    }
}

/// How many operations a run without faults takes. Faults are injected somewhere among them.
async fn operations(seed: u64, steps: usize) -> usize {
    let disk = new_disk(seed);
    let before = disk.operations();
    let store = open(&disk).unwrap();
    Workload::new(seed).steps(&store, steps).await.unwrap();
    drop(store);
    usize::try_from(disk.operations() - before).unwrap()
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    const STEPS: usize = 12;
    for_seeds(120, async |seed| {
        let bound = operations(seed, STEPS).await;
        let (disk, mut rng) = (new_disk(seed), Rng::new(seed));
        let mut workload = Workload::new(seed);
        for _ in 0..4 {
            let at = disk.operations() + 1 + rng.below(bound) as u64;
            disk.inject(Faults { power_cut_at: Some(at), ..Faults::default() });
            if let Ok(store) = open(&disk) {
                drop(workload.steps(&store, STEPS).await);
            }
            disk.cut_power();
            let store = open(&disk).unwrap();
            workload.check(&store).await;
            workload.steps(&store, 2).await.unwrap();
        }
        workload.check(&open(&disk).unwrap()).await;
    });
}

#[test]
fn a_failed_sync_is_reported_and_survived() {
    const STEPS: usize = 12;
    for_seeds(120, async |seed| {
        let bound = operations(seed, STEPS).await;
        let (disk, mut rng) = (new_disk(seed), Rng::new(seed));
        let mut workload = Workload::new(seed);
        let store = open(&disk).unwrap();
        for _ in 0..3 {
            let at = disk.operations() + 1 + rng.below(bound) as u64;
            disk.inject(Faults { sync_fails_at: Some(at), ..Faults::default() });
            if let Err(error) = workload.steps(&store, STEPS).await {
                let is_reported = matches!(error, Error::Unknown(_) | Error::Unavailable(_));
                assert!(is_reported, "{error:?}");
            }
            // Opening it again may have met the fault as well, or nothing may have met it yet.
            disk.inject(Faults::default());
            store.recover().await.unwrap();
            store.health().unwrap();
            workload.check(&store).await;
            workload.steps(&store, 2).await.unwrap();
        }
        // Acknowledged writes after a failed sync are no less durable.
        disk.cut_power();
        drop(store);
        workload.check(&open(&disk).unwrap()).await;
    });
}

#[test]
fn a_full_disk_is_reported_and_works_again_when_there_is_room() {
    for_seeds(60, async |seed| {
        let (disk, mut rng) = (new_disk(seed), Rng::new(seed));
        let mut workload = Workload::new(seed);
        let store = open(&disk).unwrap();
        workload.steps(&store, 4).await.unwrap();
        // Somewhere in the used part of the file, or a little after it: pages are scattered.
        let limit = 4096 + rng.below(disk.files()[0].len());
        disk.inject(Faults { full_after: Some(limit), ..Faults::default() });
        let mut failed = 0;
        for _ in 0..60 {
            match workload.step(&store).await {
                Ok(()) => {}
                Err(Error::Unknown(reason) | Error::Unavailable(reason)) => {
                    assert!(reason.contains("database"), "{reason}");
                    failed += 1;
                    // Whether the last one happened must be known before the next is made up. Changes that
                    // are only in the log cannot be listed while the database has no room for them.
                    drop(store.recover().await);
                    if store.list(ListRequest::default()).await.is_ok() {
                        workload.check(&store).await;
                    } else {
                        break;
                    }
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(failed > 0, "the disk was not full");
        disk.inject(Faults::default());
        store.recover().await.unwrap();
        workload.check(&store).await;
        workload.steps(&store, 10).await.unwrap();
        workload.check(&store).await;
    });
}

#[test]
fn an_unreadable_disk_is_reported_and_survived() {
    for_seeds(20, async |seed| {
        let disk = new_disk(seed);
        let mut workload = Workload::new(seed);
        let store = open(&disk).unwrap();
        workload.steps(&store, 10).await.unwrap();
        drop(store);
        let store = open(&disk).unwrap();
        disk.inject(Faults { reads_fail: true, ..Faults::default() });
        for _ in 0..5 {
            // Cached pages can still be read; the rest is unavailable.
            if let Err(error) = store.list(ListRequest::default()).await {
                assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
            }
        }
        disk.inject(Faults::default());
        store.recover().await.unwrap();
        workload.check(&store).await;
        workload.steps(&store, 4).await.unwrap();
        workload.check(&store).await;
    });
}

#[test]
fn a_log_that_cannot_be_read_stops_only_a_start_that_needs_it() {
    for_seeds(10, async |seed| {
        let disk = new_disk(seed);
        let mut workload = Workload::new(seed);
        let store = open(&disk).unwrap();
        workload.steps(&store, 10).await.unwrap();
        store.close().await;
        drop(store);
        disk.inject(Faults { log_reads_fail: true, ..Faults::default() });
        let store = open(&disk).unwrap();
        disk.inject(Faults::default());
        workload.check(&store).await;
        workload.steps(&store, 10).await.unwrap();
        // Killed: what only the log has must not be lost.
        disk.cut_power();
        drop(store);
        disk.inject(Faults { log_reads_fail: true, ..Faults::default() });
        assert!(matches!(open(&disk), Err(Error::Unavailable(_))));
        disk.inject(Faults::default());
        let store = open(&disk).unwrap();
        workload.check(&store).await;
    });
}

/// Many callers at once, so that one commit carries many transactions. How they are grouped does
/// not depend on the seed, but the checks afterwards do not depend on the grouping.
#[test]
fn a_group_is_lost_or_kept_one_transaction_at_a_time() {
    for_seeds(60, async |seed| {
        let (disk, mut rng) = (new_disk(seed), Rng::new(seed));
        let store = Arc::new(open(&disk).unwrap());
        let at = disk.operations() + 1 + rng.below(120) as u64;
        disk.inject(Faults { power_cut_at: Some(at), ..Faults::default() });
        let mut callers = JoinSet::new();
        for number in 0..24 {
            let store = Arc::clone(&store);
            callers.spawn(async move {
                let put = |half| Change::Put {
                    key: format!("/{number:02}/{half}").into(),
                    value: Bytes::from(vec![number; 2000]),
                };
                let txn = Txn { conditions: Vec::new(), changes: vec![put('a'), put('b')] };
                (number, store.commit(txn).await)
            });
        }
        let results = callers.join_all().await;
        drop(store);
        disk.cut_power();
        let store = open(&disk).unwrap();
        let newest = store.revision().await.unwrap();
        let mut seen = BTreeSet::new();
        for (number, result) in results {
            let half = async |half| {
                let found = store.get(&format!("/{number:02}/{half}")).await.unwrap().value;
                if let Some(entry) = &found {
                    assert_eq!(entry.value, vec![number; 2000]);
                }
                found.map(|entry| entry.position)
            };
            let found = (half('a').await, half('b').await);
            let revision = found.0.map(Position::revision);
            let whole = revision.map(|at| (Position::new(at, 0), Position::new(at, 1)));
            assert_eq!(found, (whole.map(|w| w.0), whole.map(|w| w.1)));
            match result {
                Ok(returned) => assert_eq!(revision, Some(returned)),
                Err(Error::Unknown(_)) => {}
                Err(Error::Unavailable(_)) => assert_eq!(revision, None),
                Err(error) => panic!("{error:?}"),
            }
            seen.extend(revision);
        }
        assert!(seen.into_iter().eq(1..=newest), "a revision for each, and no gaps");
    });
}

#[test]
fn callers_who_wait_together_share_a_commit() {
    const CALLERS: u8 = 64;
    for_seeds(1, async |seed| {
        let disk = new_disk(seed);
        let store = Arc::new(open(&disk).unwrap());
        let before = disk.operations();
        commit_one(&store, 0).await;
        let alone = disk.operations() - before;
        let before = disk.operations();
        let mut callers = JoinSet::new();
        for number in 1..=CALLERS {
            let store = Arc::clone(&store);
            callers.spawn(async move { commit_one(&store, number).await });
        }
        callers.join_all().await;
        let together = disk.operations() - before;
        assert!(together < alone * u64::from(CALLERS) / 2, "{together} for all, {alone} for one");
    });
}

/// Keys that are far apart from each other, as objects that are updated at one time are.
#[test]
fn forgetting_writes_little_however_much_is_forgotten() {
    const KEYS: u32 = 2000;
    only_for_seeds(1, async |seed| {
        let disk = new_disk(seed);
        let store = open(&disk).unwrap();
        for round in 0..2_u8 {
            for first in 0..KEYS / 100 {
                let put = |one| Change::Put {
                    key: format!("/{:04}", one * (KEYS / 100) + first).into(),
                    value: Bytes::from(vec![round; 1000]),
                };
                let changes = (0..100).map(put).collect();
                store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
            }
        }
        let before = disk.operations();
        store.compact(store.revision().await.unwrap()).await.unwrap();
        let operations = disk.operations() - before;
        assert!(operations < u64::from(KEYS) / 5, "{operations} to forget {KEYS} values");
    });
}

async fn commit_one(store: &Redb, number: u8) {
    let value = Bytes::from(vec![number; 100]);
    let changes = vec![Change::Put { key: format!("/{number}").into(), value }];
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
}
