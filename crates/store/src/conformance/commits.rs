//! Cases on transactions: revisions, conditions, atomicity, limits.

use bytes::Bytes;

use super::{Subject, absent, at, bytes, commit, delete, get, key, put, rewrite, set, text, txn};
use crate::{Change, Condition, Error, Limits, Position, Txn, limits};

/// Each transaction takes a revision that is greater than all before.
pub async fn assigns_revisions_in_order_of_commit(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let second = set(&store, "/a", "2").await;
    let third = set(&store, "/b", "1").await;
    assert!(1 <= first && first < second && second < third, "{first}, {second}, {third}");
    assert_eq!(store.revision().await.unwrap(), third);
    let snapshot = store.get("/a").await.unwrap();
    assert_eq!(snapshot.revision, third);
}

/// Changes are numbered in the order in which the transaction names them.
pub async fn gives_each_change_its_index(subject: &impl Subject) {
    let store = subject.create().await;
    let changes: Vec<_> = (0..limits::CHANGES_PER_TXN)
        .rev()
        .map(|number| put(&format!("/k{number:03}"), "v"))
        .collect();
    let revision = commit(&store, changes).await;
    for number in 0..limits::CHANGES_PER_TXN {
        let entry = get(&store, &format!("/k{number:03}")).await.unwrap();
        let index = u8::try_from(limits::CHANGES_PER_TXN - 1 - number).unwrap();
        assert_eq!(entry.position, Position::new(revision, index));
    }
}

/// An entry has the position of its key's last change, independently of changes to other keys.
pub async fn keeps_the_position_with_the_value(subject: &impl Subject) {
    let store = subject.create().await;
    let revision = set(&store, "/a", "1").await;
    set(&store, "/b", "1").await;
    let entry = get(&store, "/a").await.unwrap();
    assert_eq!(entry.key, key("/a"));
    assert_eq!(entry.value, bytes("1"));
    assert_eq!(entry.position, Position::new(revision, 0));
    assert_eq!(get(&store, "/c").await, None);
    assert_eq!(get(&store, "/").await, None, "a prefix of keys is not a key");
}

/// A change on the condition that the key was not changed in the meantime.
pub async fn compares_and_sets(subject: &impl Subject) {
    let store = subject.create().await;
    let first = Position::new(set(&store, "/a", "1").await, 0);
    let update = |position| txn(vec![at("/a", position)], vec![put("/a", "2")]);
    let second = Position::new(store.commit(update(first)).await.unwrap(), 0);
    let before = store.revision().await.unwrap();
    // The revision alone tells: a transaction changes a key once.
    for stale in [first, Position::ZERO] {
        match store.commit(update(stale)).await {
            Err(Error::Conflict { key, found }) => {
                assert_eq!((&*key, found), ("/a", Some(second)));
            }
            other => panic!("expected a conflict, got {other:?}"),
        }
    }
    assert_eq!(store.revision().await.unwrap(), before);
    assert!(store.commit(update(second)).await.is_ok());
}

/// A creation on the condition that the key does not exist.
pub async fn refuses_what_must_be_absent(subject: &impl Subject) {
    let store = subject.create().await;
    let create = || txn(vec![absent("/a")], vec![put("/a", "1")]);
    let revision = store.commit(create()).await.unwrap();
    match store.commit(create()).await {
        Err(Error::Conflict { found, .. }) => assert_eq!(found, Some(Position::new(revision, 0))),
        other => panic!("expected a conflict, got {other:?}"),
    }
    commit(&store, vec![delete("/a")]).await;
    assert!(store.commit(create()).await.is_ok(), "a deleted key is absent");
}

/// When one condition fails, none of the changes is made.
pub async fn takes_all_changes_or_none(subject: &impl Subject) {
    let store = subject.create().await;
    let revision = commit(&store, vec![put("/a", "1"), put("/b", "1"), put("/c", "1")]).await;
    let changes = vec![put("/a", "2"), delete("/b"), rewrite("/c", "2"), put("/d", "2")];
    let refused = txn(vec![at("/a", Position::new(revision, 0)), absent("/c")], changes.clone());
    assert!(matches!(store.commit(refused).await, Err(Error::Conflict { .. })));
    assert_eq!(store.revision().await.unwrap(), revision);
    for name in ["/a", "/b", "/c"] {
        assert_eq!(text(&store, name).await.as_deref(), Some("1"));
    }
    assert_eq!(text(&store, "/d").await, None);
    let taken = commit(&store, changes).await;
    assert!(taken > revision);
    assert_eq!(text(&store, "/a").await.as_deref(), Some("2"));
    assert_eq!(text(&store, "/b").await, None);
    assert_eq!(text(&store, "/c").await.as_deref(), Some("2"));
    assert_eq!(get(&store, "/d").await.unwrap().position, Position::new(taken, 3));
}

/// A conflict names the first condition that did not hold.
pub async fn names_the_first_condition_that_fails(subject: &impl Subject) {
    let store = subject.create().await;
    let before = set(&store, "/b", "0").await;
    let revision = commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    let conditions = vec![
        at("/a", Position::new(revision, 0)),
        absent("/nothing"),
        at("/b", Position::new(before, 0)),
        at("/gone", Position::new(revision, 0)),
    ];
    match store.commit(txn(conditions, vec![put("/c", "1")])).await {
        Err(Error::Conflict { key, found }) => {
            assert_eq!((&*key, found), ("/b", Some(Position::new(revision, 1))));
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
    match store.commit(txn(vec![at("/gone", Position::new(1, 0))], Vec::new())).await {
        Err(Error::Conflict { key, found }) => assert_eq!((&*key, found), ("/gone", None)),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// A key that does not exist can be neither deleted nor rewritten.
pub async fn conflicts_on_deleting_and_rewriting_what_is_absent(subject: &impl Subject) {
    let store = subject.create().await;
    set(&store, "/gone", "1").await;
    commit(&store, vec![delete("/gone")]).await;
    let revision = store.revision().await.unwrap();
    for name in ["/never", "/gone"] {
        for change in [delete(name), rewrite(name, "2")] {
            match store.commit(txn(Vec::new(), vec![put("/other", "1"), change])).await {
                Err(Error::Conflict { key, found }) => assert_eq!((&*key, found), (name, None)),
                other => panic!("expected a conflict, got {other:?}"),
            }
        }
    }
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(get(&store, "/other").await, None);
}

/// A transaction without changes takes no revision, but its conditions are evaluated.
pub async fn takes_no_revision_for_no_changes(subject: &impl Subject) {
    let store = subject.create().await;
    let revision = set(&store, "/a", "1").await;
    let ask = |condition: Condition| txn(vec![condition], Vec::new());
    assert_eq!(store.commit(Txn::default()).await.unwrap(), revision);
    assert_eq!(store.commit(ask(at("/a", Position::new(revision, 0)))).await.unwrap(), revision);
    assert!(matches!(store.commit(ask(absent("/a"))).await, Err(Error::Conflict { .. })));
    assert_eq!(store.revision().await.unwrap(), revision);
}

/// A malformed transaction is refused, and does nothing.
pub async fn refuses_malformed_transactions(subject: &impl Subject) {
    let store = subject.create().await;
    let revision = set(&store, "/a", "1").await;
    let long = "k".repeat(limits::KEY_BYTES + 1);
    let many: Vec<_> =
        (0..=limits::CHANGES_PER_TXN).map(|number| put(&format!("/{number}"), "")).collect();
    // An engine takes one more for a store around it.
    let asked: Vec<_> =
        (0..limits::CONDITIONS_PER_TXN + 2).map(|number| absent(&format!("/{number}"))).collect();
    for (what, bad) in [
        ("a key put twice", txn(Vec::new(), vec![put("/b", "1"), put("/b", "2")])),
        ("a key put and deleted", txn(Vec::new(), vec![put("/a", "1"), delete("/a")])),
        ("too many changes", txn(Vec::new(), many)),
        ("too many conditions", txn(asked, vec![put("/b", "1")])),
        ("a key too long", txn(Vec::new(), vec![put(&long, "1")])),
        ("a condition's key too long", txn(vec![absent(&long)], vec![put("/b", "1")])),
        ("an empty key", txn(Vec::new(), vec![put("", "1")])),
    ] {
        let result = store.commit(bad).await;
        assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
    }
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(get(&store, "/b").await, None);
}

/// Everything up to the limits is accepted; values that exceed them by more than an envelope are not.
pub async fn enforces_its_limits(subject: &impl Subject) {
    let store = subject.create().await;
    let long = format!("/{}", "k".repeat(limits::KEY_BYTES - 1));
    let Limits { value_bytes, txn_bytes } = store.limits();
    assert!(value_bytes <= limits::VALUE_BYTES && txn_bytes <= limits::TXN_BYTES);
    let great = Bytes::from(vec![7; value_bytes]);
    let greatest = |count: usize| -> Vec<Change> {
        let put = |number| Change::Put { key: key(&format!("/{number}")), value: great.clone() };
        (0..count).map(put).collect()
    };
    commit(&store, vec![Change::Put { key: key(&long), value: great.clone() }]).await;
    assert_eq!(get(&store, &long).await.unwrap().value, great);
    let fit = txn_bytes / value_bytes;
    commit(&store, greatest(fit)).await;
    let beyond = value_bytes + limits::ENVELOPE_BYTES + 1;
    let too_great = Change::Put { key: key("/b"), value: Bytes::from(vec![7; beyond]) };
    for changes in [vec![too_great], greatest(fit + 1)] {
        let result = store.commit(txn(Vec::new(), changes)).await;
        assert!(matches!(result, Err(Error::TooLarge { .. })), "{result:?}");
    }
}

/// The store does not interpret values, and an empty value is a value.
pub async fn takes_values_of_any_bytes(subject: &impl Subject) {
    let store = subject.create().await;
    let every: Bytes = (0..=255).collect::<Vec<u8>>().into();
    for value in [Bytes::new(), every, Bytes::from_static(&[0, 0, 0])] {
        commit(&store, vec![Change::Put { key: key("/a"), value: value.clone() }]).await;
        assert_eq!(get(&store, "/a").await.unwrap().value, value);
    }
    for name in ["/\u{0}", "/ü/日本", "/a b", "/\u{10ffff}"] {
        set(&store, name, name).await;
        assert_eq!(text(&store, name).await.as_deref(), Some(name));
    }
}

/// A rewrite replaces bytes and leaves the position.
pub async fn rewrites_in_place(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let position = Position::new(first, 0);
    let again = store.commit(txn(vec![at("/a", position)], vec![rewrite("/a", "one")])).await;
    assert!(again.unwrap() > first, "it takes a revision");
    let entry = get(&store, "/a").await.unwrap();
    assert_eq!((entry.value, entry.position), (bytes("one"), position));
    assert!(store.commit(txn(vec![at("/a", position)], vec![put("/a", "2")])).await.is_ok());
    assert_eq!(text(&store, "/a").await.as_deref(), Some("2"));
}

/// A key that is created again after its deletion gets a new position.
pub async fn recreates_a_deleted_key(subject: &impl Subject) {
    let store = subject.create().await;
    set(&store, "/a", "1").await;
    commit(&store, vec![delete("/a")]).await;
    assert_eq!(get(&store, "/a").await, None);
    let again = set(&store, "/a", "2").await;
    assert_eq!(get(&store, "/a").await.unwrap().position, Position::new(again, 0));
}
