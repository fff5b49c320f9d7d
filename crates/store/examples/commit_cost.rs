//! Measures the cost of commits and starts: `commit_cost DIRECTORY [KEYS]` makes a database with this many keys in a
//! directory. It prints processor time and waiting for each kind of commit, next to those of a bare write. It also
//! prints the time of a start after a clean end and after a crash. The figures of the store's design records come from
//! it. Build it with optimisation.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postern_store::redb::Redb;
use postern_store::{Change, Condition, ListRequest, Options, Position, Store, Txn};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

/// Bytes of a value, about those of a small object.
const VALUE_BYTES: usize = 1300;
/// Creates that wait for one commit.
const TOGETHER: u64 = 14;
/// Pages of the file of the bare writes.
const PAGES: u64 = 2048;
/// Rounds of each measurement.
const ROUNDS: u64 = 600;
/// Rounds of updates, while history is forgotten.
const UPDATE_ROUNDS: u64 = 2400;
/// Rounds of updates with history that is kept.
const KEEP_ROUNDS: u64 = 200;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn used_since(before: Duration) -> Duration {
    processor_time().saturating_sub(before)
}

fn key(number: u64) -> Arc<str> {
    // In no order of time, as names of objects are.
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("/kinds/secrets/namespace-{}/{mixed:016x}", number % 50).into()
}

fn value(seed: u64) -> Bytes {
    let mut seed = seed;
    let random = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        seed.to_be_bytes()[0]
    });
    random.take(VALUE_BYTES).collect()
}

/// The registry's conditions: one on the object itself, and one on another object that it depends
/// on.
fn create(number: u64) -> Txn {
    let (key, other) = (key(number), key(0));
    let conditions =
        vec![Condition::Absent(Arc::clone(&key)), Condition::At(other, Position::new(1, 0))];
    Txn { conditions, changes: vec![Change::Put { key, value: value(number) }] }
}

fn update(number: u64, seed: u64) -> Txn {
    let changes = vec![Change::Put { key: key(number), value: value(seed) }];
    Txn { conditions: vec![Condition::At(key(0), Position::new(1, 0))], changes }
}

async fn fill(store: &Redb, keys: u64) {
    for first in (0..keys).step_by(100) {
        let put = |number| Change::Put { key: key(number), value: value(number) };
        let changes = (first..keys.min(first + 100)).map(put).collect();
        store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    }
}

/// Commits the transactions of a number of rounds, those of one round at once, and prints the cost of one.
async fn measure(name: &str, store: &Arc<Redb>, rounds: u64, each: impl Fn(u64) -> Vec<Txn>) {
    let (mut waits, mut txns, mut used) = (Vec::new(), 0, Duration::ZERO);
    for round in 0..rounds {
        let all = each(round);
        txns += u32::try_from(all.len()).unwrap();
        let (begin, before) = (Instant::now(), processor_time());
        let mut callers = JoinSet::new();
        for txn in all {
            let store = Arc::clone(store);
            callers.spawn(async move { store.commit(txn).await.unwrap() });
        }
        callers.join_all().await;
        waits.push(begin.elapsed().as_micros());
        used += used_since(before);
    }
    print_cost(name, txns, waits, used);
}

fn print_cost(name: &str, count: u32, mut waits: Vec<u128>, used: Duration) {
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() * share / 100).min(waits.len() - 1)];
    let [p50, p99, longest] = [50, 99, 100].map(at);
    let used = (used / count).as_micros();
    println!(
        "{name:24} {used:6} µs of processor time, p50 {p50:6} µs, p99 {p99:6} µs, longest {longest:6} µs"
    );
}

/// Writes the bytes of a small group again and again over a file that has them, each time with a sync, and prints the
/// cost of one.
fn measure_bare_writes(directory: &Path) {
    let path = directory.join("bare");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let (file, bytes) = (file.unwrap(), [7; 4096]);
    for page in 0..PAGES {
        file.write_all_at(&bytes, page * 4096).unwrap();
    }
    file.sync_all().unwrap();
    let (mut waits, before) = (Vec::new(), processor_time());
    for round in 0..ROUNDS {
        let begin = Instant::now();
        file.write_all_at(&bytes, round % PAGES * 4096).unwrap();
        file.sync_data().unwrap();
        waits.push(begin.elapsed().as_micros());
    }
    print_cost("bare write of 4 KiB", u32::try_from(ROUNDS).unwrap(), waits, used_since(before));
    std::fs::remove_file(path).unwrap();
}

/// Forgets history all the time, but for that of the last rounds.
async fn forget(store: Arc<Redb>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let newest = store.revision().await.unwrap();
        store.compact(newest.saturating_sub(KEEP_ROUNDS * TOGETHER)).await.unwrap();
    }
}

async fn measure_commits(store: &Arc<Redb>, keys: u64) {
    let creates = |round| (0..TOGETHER).map(|one| create(keys + round * TOGETHER + one)).collect();
    measure("14 creates together", store, ROUNDS, creates).await;
    let next = keys + ROUNDS * TOGETHER;
    measure("create, alone", store, ROUNDS, |round| vec![create(next + round)]).await;
    let mut forgetting = JoinSet::new();
    forgetting.spawn(forget(Arc::clone(store)));
    let updates = |round: u64| {
        let number = |one| 1 + (round * 7919 + one * 104_729) % (keys - 1);
        (0..TOGETHER).map(|one| update(number(one), round)).collect()
    };
    measure("14 updates, forgetting", store, UPDATE_ROUNDS, updates).await;
    forgetting.shutdown().await;
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db.log")
}

/// Opens and closes the database, and prints how long the former took.
async fn start(name: &str, path: &Path) {
    let (begin, before) = (Instant::now(), processor_time());
    let store = Redb::open(path, Options::default()).unwrap();
    let (opened, used) = (begin.elapsed().as_millis(), used_since(before).as_millis());
    let page = store.list(ListRequest { limit: 1, ..ListRequest::default() }).await.unwrap();
    let keys = page.remaining + 1;
    println!("{name:24} {opened:6} ms, {used:6} ms of processor time, {keys} keys");
    store.close().await;
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let directory = Path::new(arguments.first().map_or(".", String::as_str));
    let keys = arguments.get(1).map_or(100_000, |keys| keys.parse().unwrap());
    let [path, crashed] = ["commit-cost.db", "crashed.db"].map(|name| directory.join(name));
    let store = Arc::new(Redb::open(&path, Options::default()).unwrap());
    fill(&store, keys).await;
    measure_bare_writes(directory);
    store.compact(store.revision().await.unwrap()).await.unwrap();
    measure_commits(&store, keys).await;
    let (begin, before) = (Instant::now(), processor_time());
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let used = used_since(before).as_millis();
    println!(
        "the rest is forgotten in {} ms, {used} ms of processor time",
        begin.elapsed().as_millis()
    );
    // As after a process was killed: the log has the last writes.
    store.commit(update(1, 1)).await.unwrap();
    for (path, crashed) in [(&path, &crashed), (&log_of(&path), &log_of(&crashed))] {
        std::fs::copy(path, crashed).unwrap();
        File::open(crashed).unwrap().sync_all().unwrap();
    }
    store.close().await;
    println!("the file has {} KiB", std::fs::metadata(&path).unwrap().len() / 1024);
    start("start, clean end", &path).await;
    start("start, after a crash", &crashed).await;
    for path in [log_of(&path), log_of(&crashed), path, crashed] {
        std::fs::remove_file(path).unwrap();
    }
}
