//! Cases on what a store knows of its history other than the changes: what has not changed, and what is old.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, commit, delete, events_until, put, rewrite, set, watch};
use crate::{Entry, Error, HISTORY_STEPS, Position, Store, limits};

const DAY: u64 = 24 * 3600;
/// How long the cases on age keep history; a step is 20 s.
const KEEP: Duration = Duration::from_secs(100);
const STEP: u64 = 100 / HISTORY_STEPS as u64;

fn prefixes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The last change under each prefix, up to now.
async fn last<const N: usize>(store: &Arc<dyn Store>, names: [&str; N]) -> [Position; N] {
    let newest = store.revision().await.unwrap();
    store.last_changes(&prefixes(&names), newest).await.unwrap().try_into().unwrap()
}

async fn age(store: &Arc<dyn Store>, seconds: u64) -> u64 {
    store.age_history(Duration::from_secs(seconds), KEEP).await.unwrap()
}

/// Puts, deletions and their indexes count; rewrites and other keys do not.
pub async fn finds_the_last_change_under_each_prefix(subject: &impl Subject) {
    let store = subject.create().await;
    let first = commit(&store, vec![put("/a/1", "1"), put("/b/1", "1"), put("/b/2", "1")]).await;
    let second = commit(&store, vec![put("/c", "1"), delete("/b/1")]).await;
    commit(&store, vec![rewrite("/a/1", "one")]).await;
    let found = last(&store, ["/a/", "/b/", "/d/", "/c"]).await;
    let nothing = Position::ZERO;
    let expected = [(first, 0), (second, 1), (0, 0), (second, 0)];
    assert_eq!(found, expected.map(|(revision, index)| Position::new(revision, index)));
    assert_eq!(found[2], nothing);
    assert_eq!(last(&store, []).await, []);
}

/// The last change up to a revision, whatever came after it.
pub async fn knows_the_past_as_it_was(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a/1", "1").await;
    let second = commit(&store, vec![put("/b", "1"), delete("/a/1")]).await;
    for (at, expected) in [(first, Position::new(first, 0)), (second, Position::new(second, 1))] {
        let found = store.last_changes(&prefixes(&["/a/"]), at).await.unwrap();
        assert_eq!(found, [expected]);
    }
}

/// Compaction removes changes, tombstones too, and does not make what is idle look changed.
pub async fn remembers_last_changes_over_compaction(subject: &impl Subject) {
    let store = subject.create().await;
    let names = prefixes(&["/a/", "/b/", "/none/"]);
    let first = commit(&store, vec![put("/a/1", "1"), put("/b/1", "1")]).await;
    let second = set(&store, "/a/1", "2").await;
    let gone = commit(&store, vec![put("/c", "1"), delete("/b/1")]).await;
    let expected = [Position::new(second, 0), Position::new(gone, 1), Position::ZERO];
    let mut newest = gone;
    for compacted in [first, second, gone] {
        store.compact_noting(compacted, &names).await.unwrap();
        newest = set(&store, "/c", "2").await;
        assert_eq!(last(&store, ["/a/", "/b/", "/none/"]).await, expected, "{compacted}");
    }
    store.compact_noting(newest, &names).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/", "/none/"]).await, expected);
    // Compacting less, or nothing, changes nothing.
    store.compact_noting(first, &prefixes(&["/b/"])).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/", "/none/"]).await, expected);
    let Some(store) = subject.reopen(store).await else { return };
    assert_eq!(last(&store, ["/a/", "/b/", "/none/"]).await, expected);
    let again = set(&store, "/none/1", "1").await;
    assert_eq!(last(&store, ["/none/"]).await, [Position::new(again, 0)]);
}

/// A prefix that a compaction did not note may have changed in all that is gone.
pub async fn counts_what_it_did_not_note_as_changed(subject: &impl Subject) {
    let store = subject.create().await;
    let first = commit(&store, vec![put("/a/1", "1"), put("/b/1", "1")]).await;
    let second = set(&store, "/c", "2").await;
    let third = set(&store, "/c", "3").await;
    let fourth = set(&store, "/c", "4").await;
    store.compact_noting(first, &prefixes(&["/a/"])).await.unwrap();
    let (a, end) = (Position::new(first, 0), Position::end_of);
    assert_eq!(
        last(&store, ["/a/", "/b/", "/a/1", "/a"]).await,
        [a, end(first), end(first), end(first)]
    );
    // A prefix that is noted from now on is known from now on.
    store.compact_noting(second, &prefixes(&["/a/", "/b/"])).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [a, end(first)]);
    store.compact_noting(third, &prefixes(&["/b/"])).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [end(third), end(first)]);
    // A compaction that notes nothing.
    store.compact(fourth).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [end(fourth); 2]);
}

/// The lost history before a restore may have had any changes.
pub async fn counts_what_was_before_a_restore_as_changed(subject: &impl Subject) {
    const BEGIN: u64 = 1 << 40;
    let entry =
        Entry { key: super::key("/a/1"), value: super::bytes("1"), position: Position::new(9, 0) };
    let store = subject.restore(BEGIN, vec![entry]).await;
    let lost = Position::end_of(BEGIN - 1);
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [lost; 2]);
    let changed = set(&store, "/a/1", "2").await;
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [Position::new(changed, 0), lost]);
    let newest = set(&store, "/c", "1").await;
    store.compact_noting(newest, &prefixes(&["/a/", "/b/"])).await.unwrap();
    assert_eq!(last(&store, ["/a/", "/b/"]).await, [Position::new(changed, 0), lost]);
}

/// A search over a long history ends, with a position that is not too early.
pub async fn counts_what_is_beyond_its_search_as_changed(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a/1", "1").await;
    let mut newest = first;
    for round in 0..100 {
        let changes = (0..100).map(|number| put(&format!("/k{number}"), &round.to_string()));
        newest = commit(&store, changes.collect()).await;
    }
    let [found] = last(&store, ["/a/"]).await;
    assert!(found > Position::new(first, 0) && found < Position::new(newest, 0), "{found}");
    // A compaction goes over all of it.
    store.compact_noting(newest, &prefixes(&["/a/"])).await.unwrap();
    assert_eq!(last(&store, ["/a/"]).await, [Position::new(first, 0)]);
}

/// Positions that are compacted or in the future, and too many prefixes.
pub async fn refuses_last_changes_that_it_cannot_know(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let second = set(&store, "/a", "2").await;
    let names = prefixes(&["/a"]);
    store.compact_noting(second, &names).await.unwrap();
    match store.last_changes(&names, first).await {
        Err(Error::Compacted { compacted }) => assert_eq!(compacted, second),
        other => panic!("expected it compacted, got {other:?}"),
    }
    match store.last_changes(&names, second + 1).await {
        Err(Error::Future { current }) => assert_eq!(current, second),
        other => panic!("expected the future, got {other:?}"),
    }
    assert!(matches!(store.compact_noting(second + 1, &names).await, Err(Error::Future { .. })));
    let many = vec![String::new(); limits::PREFIXES + 1];
    assert!(matches!(store.last_changes(&many, second).await, Err(Error::Invalid(_))));
    assert!(matches!(store.compact_noting(second, &many).await, Err(Error::Invalid(_))));
}

/// Whatever is written and compacted: no change under a prefix comes after the position that is
/// returned, and after a compaction that noted it, it is the position of the very last one.
pub async fn says_of_any_history_what_a_watch_shows(subject: &impl Subject) {
    const PREFIXES: [&str; 4] = ["/p0/", "/p1/", "/p2/", "/p3/"];
    let store = subject.create().await;
    let mut watching = watch(&store, "", Position::end_of(store.revision().await.unwrap())).await;
    let mut truth = [Position::ZERO; 4];
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let name = format!("{}{}", PREFIXES[usize::try_from(random(4)).unwrap()], random(3));
        let is_there = super::get(&store, &name).await.is_some();
        let change = if is_there && random(2) == 0 { delete(&name) } else { put(&name, "1") };
        let newest = commit(&store, vec![put("/other", "1"), change]).await;
        for event in events_until(watching.as_mut(), newest).await {
            for (prefix, last) in PREFIXES.iter().zip(&mut truth) {
                if event.key.starts_with(prefix) {
                    *last = event.position;
                }
            }
        }
        if random(4) == 0 {
            let compacted = newest - random(5).min(newest);
            store.compact_noting(compacted, &prefixes(&PREFIXES)).await.unwrap();
        }
        assert_eq!(last(&store, PREFIXES).await, truth);
    }
}

/// The answer is the revision that was the newest one that long ago.
pub async fn knows_which_revision_is_old(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let mut answers = Vec::new();
    for call in 0..8 {
        answers.push(age(&store, call * STEP).await);
        set(&store, "/a", "2").await;
    }
    assert_eq!(answers, [0, 0, 0, 0, 0, first, first + 1, first + 2]);
    // It takes no revision.
    assert_eq!(store.revision().await.unwrap(), first + 8);
}

/// A restart makes nothing young again, and a crash before the compaction loses nothing.
pub async fn keeps_the_age_over_restarts(subject: &impl Subject) {
    let mut store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    for call in 0..6 {
        let old = age(&store, call * STEP).await;
        assert_eq!(old, if call < 5 { 0 } else { first });
        set(&store, "/a", "2").await;
        store = match subject.reopen(store).await {
            Some(store) => store,
            None => return,
        };
    }
    assert_eq!(age(&store, 5 * STEP).await, first);
    // After a long time in which nothing ran, nothing is older by more than a step.
    assert_eq!(age(&store, 116 * DAY).await, first + 1);
}

/// Two servers whose clocks differ, and one whose clock goes back and forth by months.
pub async fn keeps_the_age_while_clocks_step_and_differ(subject: &impl Subject) {
    for clocks in [[0, 0], [0, 116 * DAY], [3, 0]] {
        let store = subject.create().await;
        let mut newest = Vec::new();
        for call in 0..20_u64 {
            for clock in clocks {
                let old = age(&store, 200 * DAY + clock + call * STEP).await;
                let known = usize::try_from(call).unwrap().checked_sub(4);
                assert!(
                    old <= known.map_or(0, |known| newest[known]),
                    "{clocks:?}: {old} at {call}"
                );
            }
            newest.push(set(&store, "/a", "1").await);
        }
        let old = age(&store, 200 * DAY + 20 * STEP).await;
        assert!(old >= newest[10], "{clocks:?}: it is forgotten: {old}");
    }
    let store = subject.create().await;
    let mut newest = Vec::new();
    for call in 0..20_u64 {
        let set_back = if call % 2 == 0 { 116 * DAY } else { 0 };
        let old = age(&store, 200 * DAY + call * STEP - set_back).await;
        let known = usize::try_from(call).unwrap().checked_sub(6);
        assert!(old <= known.map_or(0, |known| newest[known]), "{old} at {call}");
        newest.push(set(&store, "/a", "1").await);
    }
    assert!(age(&store, 200 * DAY + 20 * STEP).await >= newest[5], "it is forgotten");
}

/// Starts that are closer together than history is kept do not make it grow without end.
pub async fn forgets_in_spite_of_restarts(subject: &impl Subject) {
    let mut store = subject.create().await;
    for start in 0..180 {
        let old = age(&store, start).await;
        store.compact_noting(old.saturating_sub(1), &prefixes(&["/a/"])).await.unwrap();
        let newest = set(&store, "/k", &start.to_string()).await;
        let compacted = store.compacted().await.unwrap();
        assert!(newest - compacted <= 150, "{} revisions at {start}", newest - compacted);
        store = match subject.reopen(store).await {
            Some(store) => store,
            None => return,
        };
    }
}
