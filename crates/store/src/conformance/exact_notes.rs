//! Cases on the last changes, for engines that know them exactly.

use std::sync::Arc;

use super::notes::prefixes;
use super::{Subject, commit, delete, events_until, put, rewrite, set, watch};
use crate::{Entry, Position, Store};

/// The last change under each prefix, up to now.
async fn last<const N: usize>(store: &Arc<dyn Store>, names: [&str; N]) -> [Position; N] {
    let newest = store.revision().await.unwrap();
    store.last_changes(&prefixes(&names), newest).await.unwrap().try_into().unwrap()
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

/// The last change up to a revision, independently of later changes.
pub async fn knows_the_past_as_it_was(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a/1", "1").await;
    let second = commit(&store, vec![put("/b", "1"), delete("/a/1")]).await;
    for (at, expected) in [(first, Position::new(first, 0)), (second, Position::new(second, 1))] {
        let found = store.last_changes(&prefixes(&["/a/"]), at).await.unwrap();
        assert_eq!(found, [expected]);
    }
}

/// Compaction removes changes, tombstones too, and does not make an idle prefix look changed.
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

/// For any writes and compactions, no change under a prefix comes after the position that is
/// returned. After a compaction that noted the prefix, it is the position of the very last change.
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
