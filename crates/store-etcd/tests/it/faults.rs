//! What only etcd has: crashes of the member, a restore of its data, a full quota, data of something else, members and
//! leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postern_store::{
    Change, Condition, Error, ListRequest, Member, Page, Position, Store as _, Txn, WithOld,
};
use postern_store_etcd::{Etcd, EtcdAccess, EtcdUrl};
use tokio::time::timeout;

use crate::open;
use crate::server::{EtcdServer, access};

fn put(key: &str, value: &str) -> Change {
    Change::Put { key: key.into(), value: value.to_owned().into() }
}

fn change(change: Change) -> Txn {
    Txn { conditions: Vec::new(), changes: vec![change] }
}

fn member(id: &str) -> Member {
    Member {
        id: id.into(),
        address: format!("{id}:8443"),
        format: 1,
        seal_keys: vec!["00".to_owned()],
    }
}

/// Repeats a call while etcd is away.
async fn again<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..200 {
        match call().await {
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            result => return result,
        }
    }
    call().await
}

async fn message(access: &EtcdAccess, url: &str) -> String {
    let url: EtcdUrl = match url.parse() {
        Ok(url) => url,
        Err(error) => {
            let error: Error = error;
            return error.to_string();
        }
    };
    Etcd::open(&url, access).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_is_refused_and_left_as_it_is() {
    let server = EtcdServer::start();
    let address = server.address();
    let at = |prefix: &str| format!("etcd://{address}{prefix}");
    let old = message(&EtcdAccess::default(), &at("/a")).await;
    assert!(old.contains("--allow-old-etcd"), "{old}");
    assert!(message(&access(), "etcd://10.0.0.1/a").await.contains("--etcd-ca-file"));
    let none = EtcdAccess { ca_file: Some("/nowhere/ca.pem".into()), ..access() };
    assert!(message(&none, &at("/a")).await.contains("/nowhere/ca.pem"));
    let nothing_listens = message(&access(), "etcd://127.0.0.1:1/a").await;
    assert!(nothing_listens.contains("refused"), "{nothing_listens}");

    // The data of something else, which is a store under a shorter prefix here.
    let other = open(&server.url("/other/e")).await;
    other.commit(change(put("/a", "1"))).await.unwrap();
    other.close().await;
    let foreign = message(&access(), &at("/other")).await;
    assert!(
        foreign.contains("data of something else") && foreign.contains("/other/e"),
        "{foreign}"
    );
    let store = open(&server.url("/ours")).await;
    store.commit(change(put("/a", "1"))).await.unwrap();
    // Another store under a prefix next to it.
    let next = open(&server.url("/ours2")).await;
    assert_eq!(next.list(ListRequest::default()).await.unwrap().entries, []);
    assert_eq!(next.revision().await.unwrap(), 0);
    let revision = next.commit(change(put("/b", "1"))).await.unwrap();
    assert!(revision > store.revision().await.unwrap());
    assert_eq!(store.list(ListRequest::default()).await.unwrap().entries.len(), 1);
    let no_slash = store.commit(change(put("a", "1"))).await;
    assert!(matches!(no_slash, Err(Error::Invalid(_))), "{no_slash:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_when_etcd_crashes() {
    const WRITERS: usize = 4;
    let mut server = EtcdServer::start();
    let store = open(&server.url("/crash")).await;
    store.commit(change(put("/counter", "0"))).await.unwrap();
    let mut watch = store.watch("/counter", Position::ZERO, WithOld::Yes).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let (mut acknowledged, mut unknown) = (0_u64, 0_u64);
            while acknowledged < 60 {
                let Ok(found) = store.get("/counter").await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                let entry = found.value.unwrap();
                let count: u64 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                let txn = Txn {
                    conditions: vec![Condition::At("/counter".into(), entry.position)],
                    changes: vec![put("/counter", &(count + 1).to_string())],
                };
                match store.commit(txn).await {
                    Ok(_) => acknowledged += 1,
                    Err(Error::Conflict { .. } | Error::Unavailable(_)) => {}
                    Err(Error::Unknown(_)) => unknown += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            (acknowledged, unknown)
        });
    }
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.crash_and_restart();
    }
    let sums = writers.join_all().await;
    let acknowledged: u64 = sums.iter().map(|(acknowledged, _)| acknowledged).sum();
    let unknown: u64 = sums.iter().map(|(_, unknown)| unknown).sum();
    let found = again(async || store.get("/counter").await).await.unwrap().value.unwrap();
    let count: u64 = std::str::from_utf8(&found.value).unwrap().parse().unwrap();
    assert!(
        (acknowledged..=acknowledged + unknown).contains(&count),
        "{count} increments, {acknowledged} acknowledged, {unknown} unknown"
    );
    // The watch has seen each increment once, over all crashes.
    let mut next = 0;
    while next <= count {
        let batch = timeout(Duration::from_mins(1), watch.next()).await.unwrap().unwrap();
        for event in batch.events {
            assert_eq!(event.value.as_deref(), Some(next.to_string().as_bytes()));
            next += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_etcd_begins_an_epoch_for_all_servers() {
    let mut server = EtcdServer::start();
    let url = server.url("/restored");
    let (one, two) = (open(&url).await, open(&url).await);
    let first = one.commit(change(put("/a", "1"))).await.unwrap();
    server.save();
    let mut last = 0;
    for number in 0..20 {
        last =
            again(async || one.commit(change(put("/b", &number.to_string()))).await).await.unwrap();
    }
    let mut watch = two.watch("", Position::end_of(last), WithOld::No).await.unwrap();
    assert_eq!(two.revision().await.unwrap(), last);

    server.restore();

    for store in [&one, &two] {
        let begins = match again(async || store.revision().await).await {
            Err(Error::EpochChanged { begins }) => begins,
            other => panic!("expected the new epoch, got {other:?}"),
        };
        assert!(begins > last);
        // Before the first transaction, too: a cache with the state of before is behind.
        assert_eq!(store.revision().await.unwrap(), begins);
        assert_eq!(store.epoch().await.unwrap().begins, begins);
        assert!(store.epoch().await.unwrap().number == 1);
    }
    let ended = timeout(Duration::from_secs(30), watch.next()).await.unwrap();
    assert!(matches!(ended, Err(Error::EpochChanged { .. })), "{ended:?}");
    // Before anything is committed, the newest revision is one of the epoch, and can be read.
    for store in [&one, &two] {
        let now = store.revision().await.unwrap();
        assert!(now >= store.epoch().await.unwrap().begins, "{now}");
        store.scan(now, Arc::new(drop)).await.unwrap();
    }
    // The data is that of the copy, under its old positions, and new revisions are greater than all.
    let listed = one.list(ListRequest::default()).await.unwrap();
    let positions: Vec<_> =
        listed.entries.iter().map(|entry| (&*entry.key, entry.position)).collect();
    assert_eq!(positions, [("/a", Position::new(first, 0))]);
    let too_old = two.watch("", Position::end_of(last), WithOld::No).await.map(drop);
    assert!(matches!(too_old, Err(Error::Compacted { .. })), "{too_old:?}");
    let replaced = Txn {
        conditions: vec![Condition::At("/a".into(), Position::new(first, 0))],
        changes: vec![put("/a", "2")],
    };
    let next = one.commit(replaced).await.unwrap();
    assert!(next > last + 20);
    let mut watch = two.watch("", Position::end_of(next - 1), WithOld::Yes).await.unwrap();
    let batch = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
    assert_eq!((batch.revision, batch.events.len()), (next, 1));
    // A server that starts now goes on in the same epoch.
    let three = open(&url).await;
    assert_eq!(three.epoch().await.unwrap(), one.epoch().await.unwrap());
    assert_eq!(three.revision().await.unwrap(), next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_with_a_greater_revision_begins_an_epoch_too() {
    let mut server = EtcdServer::start();
    let store = open(&server.url("/bumped")).await;
    store.commit(change(put("/a", "1"))).await.unwrap();
    server.save();
    let mut last = 0;
    for number in 0..20 {
        let text = number.to_string();
        last = again(async || store.commit(change(put("/b", &text))).await).await.unwrap();
    }
    server.restore();
    // Another store raises etcd's revision above all that the first one has seen.
    let other = open(&server.url("/other")).await;
    while other.commit(change(put("/c", "1"))).await.unwrap() <= last + 20 {}

    let begins = match again(async || store.revision().await).await {
        Err(Error::EpochChanged { begins }) => begins,
        other => panic!("expected the new epoch, got {other:?}"),
    };
    assert!(begins > last);
    assert_eq!(store.get("/b").await.unwrap().value, None);
    assert!(store.commit(change(put("/b", "1"))).await.unwrap() > begins);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_missed_the_beginning_of_an_epoch_learns_of_it_at_its_next_read() {
    let mut server = EtcdServer::start();
    let (one, two) = (open(&server.url("/missed")).await, open(&server.url("/missed")).await);
    one.commit(change(put("/a", "1"))).await.unwrap();
    server.save();
    for number in 0..20 {
        let text = number.to_string();
        again(async || one.commit(change(put("/b", &text))).await).await.unwrap();
    }
    two.revision().await.unwrap();
    server.restore();
    let Err(Error::EpochChanged { begins }) = again(async || one.revision().await).await else {
        panic!("the first store notices the restore");
    };
    // So many commits happen that both etcd's revision and the head are at least as high as those
    // that the second store has seen.
    for number in 0..60 {
        one.commit(change(put("/c", &number.to_string()))).await.unwrap();
    }
    let noticed = again(async || two.revision().await).await;
    assert!(
        matches!(noticed, Err(Error::EpochChanged { begins: of }) if of == begins),
        "{noticed:?}"
    );
    assert_eq!(two.revision().await.unwrap(), one.revision().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_commit_after_a_restore_gets_no_position_of_before() {
    let mut server = EtcdServer::start();
    let store = open(&server.url("/first")).await;
    store.commit(change(put("/a", "1"))).await.unwrap();
    server.save();
    let mut last = 0;
    for number in 0..20 {
        let text = number.to_string();
        last = again(async || store.commit(change(put("/b", &text))).await).await.unwrap();
    }
    server.restore();
    // No read comes before.
    let mut committed = None;
    for _ in 0..50 {
        match store.commit(change(put("/c", "1"))).await {
            Ok(revision) => {
                committed = Some(revision);
                break;
            }
            Err(Error::EpochChanged { .. } | Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(committed.unwrap() > last + 20, "{committed:?} after {last}");
    let found = store.get("/c").await.unwrap().value.unwrap();
    assert_eq!(found.position, Position::new(committed.unwrap(), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_committed_through_a_fence_that_a_restore_left_as_it_was() {
    let mut server = EtcdServer::start();
    let (one, two) = (open(&server.url("/idle")).await, open(&server.url("/idle")).await);
    one.commit(change(put("/a", "1"))).await.unwrap();
    server.save();
    let mut last = 0;
    for number in 0..20 {
        let text = number.to_string();
        last = again(async || two.commit(change(put("/b", &text))).await).await.unwrap();
    }
    assert_eq!(again(async || one.revision().await).await.unwrap(), last);
    server.restore();
    let noticed = again(async || one.commit(change(put("/c", "1"))).await).await;
    assert!(matches!(noticed, Err(Error::EpochChanged { .. })), "{noticed:?}");
    assert_eq!(one.get("/c").await.unwrap().value, None);
    assert!(one.commit(change(put("/c", "1"))).await.unwrap() > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_removes_fences_of_processes_that_have_ended() {
    let server = EtcdServer::start();
    let (one, two) = (open(&server.url("/old")).await, open(&server.url("/old")).await);
    one.commit(change(put("/a", "1"))).await.unwrap();
    one.close().await;
    let last = two.commit(change(put("/a", "2"))).await.unwrap();
    // A store can be made only where no key is. This one would be inside the other, even without its keys.
    let fences = server.url("/old/f");
    let refused = Etcd::open(&fences, &access()).await.unwrap_err();
    assert!(refused.to_string().contains("data of something else"), "{refused}");
    two.compact(last).await.unwrap();
    let refused = Etcd::open(&fences, &access()).await.unwrap_err();
    assert!(refused.to_string().contains("is inside the store"), "{refused}");
    // Its own fence is gone, too.
    assert!(two.commit(change(put("/a", "3"))).await.unwrap() > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_refuses_writes_with_advice_and_serves_reads() {
    let server = EtcdServer::start_with(&["--quota-backend-bytes", "8000000"]);
    let store = open(&server.url("/full")).await;
    let large = "x".repeat(500_000);
    let (mut written, mut refused) = (Vec::new(), None);
    // etcd looks at its size some times a second.
    for number in 0..400 {
        let key = format!("/k{number:03}");
        match store.commit(change(put(&key, &large))).await {
            Ok(_) => written.push(key),
            Err(error @ Error::Full) => {
                refused = Some((key, error.to_string()));
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let (key, reason) = refused.unwrap();
    assert!(reason.contains("full") && reason.contains("quota"), "{reason}");
    assert!(written.len() > 3);
    assert_eq!(store.get(&key).await.unwrap().value, None);
    let listed = store.list(ListRequest::default()).await.unwrap().entries;
    let keys: Vec<_> = listed.iter().map(|entry| entry.key.to_string()).collect();
    assert_eq!(keys, written);
    // Also for a server that cannot announce itself.
    let joined = store.fleet().unwrap().join(member("one")).await;
    assert!(matches!(joined, Err(Error::Full)), "{joined:?}");
    store.health().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_etcd_is_a_fault_before_any_call_has_failed() {
    let server = EtcdServer::start();
    let store = open(&server.url("/silent")).await;
    store.commit(change(put("/a", "1"))).await.unwrap();
    store.health().unwrap();
    server.pause(true);
    let fault = async {
        loop {
            if let Err(fault) = store.health() {
                return fault.to_string();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // It is tried for five seconds.
    let mut reading = store.revision();
    let fault = tokio::select! {
        biased;
        read = &mut reading => panic!("a read ended before the fault was known: {read:?}"),
        fault = fault => fault,
    };
    assert!(fault.contains("etcd does not answer"), "{fault}");
    server.pause(false);
    reading.await.unwrap();
    store.health().unwrap();
}

/// A server that is cut off must learn it, also if no caller asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_grows_while_etcd_does_not_answer_and_ends_with_it() {
    let server = EtcdServer::start();
    let store = open(&server.url("/cut-off")).await;
    store.fleet().unwrap().join(member("one")).await.unwrap();
    let until = async |reached: &dyn Fn(Duration) -> bool| {
        let reaches = async {
            while !reached(store.silence()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), reaches).await.unwrap();
    };
    // The engine sends calls without a caller, so silence stays short and begins again and again.
    until(&|silence| silence > Duration::from_millis(300)).await;
    until(&|silence| silence < Duration::from_millis(300)).await;
    server.pause(true);
    until(&|silence| silence > Duration::from_secs(4)).await;
    server.pause(false);
    until(&|silence| silence < Duration::from_secs(1)).await;
}

/// A member that is cut off from the majority answers some calls. They do not end the silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_majority_is_silent_whatever_it_answers() {
    let [one, two] = EtcdServer::start_two();
    let url = one.url("/minority");
    let store = again(async || Etcd::open_or_create(&url, &access()).await).await.unwrap();
    again(async || store.commit(change(put("/a", "1"))).await).await.unwrap();
    store.fleet().unwrap().join(member("one")).await.unwrap();
    two.pause(true);
    let cut_off = async {
        while store.silence() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), cut_off).await.unwrap();
    // The member itself answers.
    assert!(store.figures().remote.unwrap().members[0].answers);
    two.pause(false);
    let back = async {
        while store.silence() > Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), back).await.unwrap();
}

/// The packaged etcd leaves out the deletion at the revision of a compaction. A watch from there ends, or has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_continues_at_a_compaction_misses_no_deletion() {
    let server = EtcdServer::start();
    let store = open(&server.url("/watched")).await;
    let other = open(&server.url("/other")).await;
    store.commit(change(put("/a", "1"))).await.unwrap();
    let before = store.commit(change(put("/b", "1"))).await.unwrap();
    let deleted = store.commit(change(Change::Delete { key: "/a".into() })).await.unwrap();
    store.commit(change(put("/b", "2"))).await.unwrap();
    // etcd has one history for all stores on it, and this store does not know of the compaction.
    other.commit(change(put("/c", "1"))).await.unwrap();
    other.compact(deleted).await.unwrap();

    let mut watch = store.watch("", Position::end_of(before), WithOld::No).await.unwrap();
    match timeout(Duration::from_secs(30), watch.next()).await.unwrap() {
        Ok(batch) => assert_eq!(batch.events.len(), 1, "{batch:?}"),
        Err(error) => assert!(matches!(error, Error::Compacted { .. }), "{error}"),
    }
    // History that begins after it is delivered.
    let mut watch = store.watch("", Position::end_of(deleted), WithOld::No).await.unwrap();
    let batch = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
    assert_eq!(&*batch.events[0].key, "/b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_values_that_follow_small_ones_are_read() {
    let server = EtcdServer::start();
    let store = open(&server.url("/large")).await;
    // Pages grow over the small values. The next one would have 70 MB.
    let small: Vec<Change> = (0..1_008).map(|number| put(&format!("/a{number:04}"), "1")).collect();
    for changes in small.chunks(126) {
        let changes = changes.to_vec();
        store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    }
    let large = "x".repeat(1_250_000);
    for number in 0..56 {
        store.commit(change(put(&format!("/b{number}"), &large))).await.unwrap();
    }
    let (revision, seen) = (store.revision().await.unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    let count = move |page: Page| {
        counted.fetch_add(page.entries.len(), Ordering::SeqCst);
    };
    store.scan(revision, Arc::new(count)).await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1_064);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_know_each_other_and_share_leases() {
    let server = EtcdServer::start();
    let url = server.url("/fleet");
    let (one, two) = (open(&url).await, open(&url).await);
    let fleets = [one.fleet().unwrap(), two.fleet().unwrap()];
    fleets[0].join(member("one")).await.unwrap();
    fleets[1].join(member("two")).await.unwrap();
    for fleet in fleets {
        let mut members = fleet.members();
        let both = members.wait_for(|members| members.len() == 2);
        let both = timeout(Duration::from_secs(30), both).await.unwrap().unwrap().clone();
        assert_eq!(*both, [member("one"), member("two")]);
    }
    let held = fleets[0].lease("compaction").await.unwrap();
    assert!(timeout(Duration::from_millis(700), fleets[1].lease("compaction")).await.is_err());
    drop(held);
    let held =
        timeout(Duration::from_secs(30), fleets[1].lease("compaction")).await.unwrap().unwrap();
    // A server that is closed gives back all at once.
    two.close().await;
    timeout(Duration::from_secs(5), held.lost()).await.unwrap();
    let _next =
        timeout(Duration::from_secs(30), fleets[0].lease("compaction")).await.unwrap().unwrap();
    let mut members = fleets[0].members();
    let alone = members.wait_for(|members| members.len() == 1);
    timeout(Duration::from_secs(30), alone).await.unwrap().unwrap();
}
