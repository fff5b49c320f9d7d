//! Cases on the store's knowledge of its history other than the changes: unchanged prefixes, and
//! the age of history.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, set};
use crate::{Error, HISTORY_STEPS, Position, Store, limits};

const DAY: u64 = 24 * 3600;
/// How long the cases on age keep history; a step is 20 s.
const KEEP: Duration = Duration::from_secs(100);
const STEP: u64 = 100 / HISTORY_STEPS as u64;

pub(super) fn prefixes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn age(store: &Arc<dyn Store>, seconds: u64) -> u64 {
    store.age_history(Duration::from_secs(seconds), KEEP).await.unwrap()
}

/// No change under a prefix comes after the position that is returned, however exact that is.
pub async fn never_misses_a_last_change(subject: &impl Subject) {
    let store = subject.create().await;
    let names = ["/a/", "/b/", "/none/"];
    let mut truth = [Position::ZERO; 3];
    for round in 0..20 {
        let name = names[round % 2];
        let newest = set(&store, &format!("{name}{round}"), "1").await;
        truth[round % 2] = Position::new(newest, 0);
        if round % 5 == 4 {
            store.compact_noting(newest, &prefixes(&names)).await.unwrap();
        }
        let newest = store.revision().await.unwrap();
        let found = store.last_changes(&prefixes(&names), newest).await.unwrap();
        assert_eq!(found.len(), names.len());
        for (found, truth) in found.into_iter().zip(truth) {
            assert!(truth <= found && found <= Position::end_of(newest), "{found} for {truth}");
        }
    }
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

/// The answer is the revision that was the newest one that long ago.
pub async fn knows_which_revision_is_old(subject: &impl Subject) {
    let store = subject.create().await;
    let mut revisions = vec![set(&store, "/a", "1").await];
    let mut answers = Vec::new();
    for call in 0..8 {
        answers.push(age(&store, call * STEP).await);
        revisions.push(set(&store, "/a", "2").await);
    }
    assert_eq!(answers, [0, 0, 0, 0, 0, revisions[0], revisions[1], revisions[2]]);
    // It takes no revision.
    assert_eq!(store.revision().await.unwrap(), revisions[8]);
}

/// A restart makes nothing young again, and a crash before the compaction loses nothing.
pub async fn keeps_the_age_over_restarts(subject: &impl Subject) {
    let mut store = subject.create().await;
    let mut revisions = vec![set(&store, "/a", "1").await];
    for call in 0..6 {
        let old = age(&store, call * STEP).await;
        assert_eq!(old, if call < 5 { 0 } else { revisions[0] });
        revisions.push(set(&store, "/a", "2").await);
        store = match subject.reopen(store).await {
            Some(store) => store,
            None => return,
        };
    }
    assert_eq!(age(&store, 5 * STEP).await, revisions[0]);
    // After a long time in which nothing ran, nothing is older by more than a step.
    assert_eq!(age(&store, 116 * DAY).await, revisions[1]);
}

/// Two servers with different clocks, and a server with a clock that goes back and forth by months.
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
    let mut revisions = Vec::new();
    for start in 0..180 {
        let old = age(&store, start).await;
        store.compact_noting(old.saturating_sub(1), &prefixes(&["/a/"])).await.unwrap();
        revisions.push(set(&store, "/k", &start.to_string()).await);
        let compacted = store.compacted().await.unwrap();
        let kept = revisions.iter().filter(|revision| **revision > compacted).count();
        assert!(kept <= 150, "{kept} transactions at {start}");
        store = match subject.reopen(store).await {
            Some(store) => store,
            None => return,
        };
    }
}
