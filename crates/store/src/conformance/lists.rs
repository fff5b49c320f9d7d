//! Cases on lists: order, prefixes, pages, the past.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Subject, bytes, commit, delete, key, listed, put, set, under};
use crate::{Error, ListRequest, Page, Position};

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The order is that of bytes, and a prefix is a prefix of bytes.
pub async fn lists_in_byte_order_under_a_prefix(subject: &impl Subject) {
    let store = subject.create().await;
    for name in ["/b/2", "/a/z", "/b", "/b/10", "/b/ü", "/c", "/b0", "/b/\u{10ffff}", "/B/1"] {
        set(&store, name, "v").await;
    }
    commit(&store, vec![delete("/c")]).await;
    let names = |pairs: Vec<(String, String)>| -> Vec<String> {
        pairs.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        names(listed(&store, under("/b/")).await),
        ["/b/10", "/b/2", "/b/ü", "/b/\u{10ffff}"]
    );
    assert_eq!(
        names(listed(&store, under("")).await),
        ["/B/1", "/a/z", "/b", "/b/10", "/b/2", "/b/ü", "/b/\u{10ffff}", "/b0"]
    );
    assert_eq!(names(listed(&store, under("/b0")).await), ["/b0"]);
    assert!(listed(&store, under("/d")).await.is_empty());
}

/// Pages of one list show one state, even if other writes happen between them.
pub async fn pages_fit_together_while_writes_go_on(subject: &impl Subject) {
    let store = subject.create().await;
    let expected: Vec<_> =
        (0..25).map(|number| (format!("/k{number:02}"), format!("v{number}"))).collect();
    for (name, value) in &expected {
        set(&store, name, value).await;
    }
    let mut found = Vec::new();
    let mut request = ListRequest { limit: 4, ..under("/k") };
    loop {
        let page = store.list(request.clone()).await.unwrap();
        assert_eq!(page.remaining, 25 - (found.len() + page.entries.len()) as u64);
        found.extend(page.entries.iter().map(|entry| {
            (entry.key.to_string(), String::from_utf8(entry.value.to_vec()).unwrap())
        }));
        if page.remaining == 0 {
            break;
        }
        assert_eq!(page.entries.len(), 4);
        request.after = page.last_key().cloned();
        request.at = Some(page.revision);
        // A key more, one changed, one gone, and then that one back.
        let next = format!("/k{:02}", found.len());
        commit(&store, vec![put("/k000", "new"), put(&next, "changed"), delete("/k23")]).await;
        set(&store, "/k23", "back").await;
    }
    assert_eq!(found, expected);
}

/// `remaining` counts the keys under the prefix that are after the page.
pub async fn counts_what_remains(subject: &impl Subject) {
    let store = subject.create().await;
    for name in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        set(&store, name, "v").await;
    }
    for (limit, listed, remaining) in [(1, 1, 2), (2, 2, 1), (3, 3, 0), (4, 3, 0), (0, 3, 0)] {
        let page = store.list(ListRequest { limit, ..under("/a/") }).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (listed, remaining), "limit {limit}");
    }
    for (limit, listed, remaining) in [(1, 1, 3), (3, 3, 1), (4, 4, 0), (5, 4, 0)] {
        let page = store.list(ListRequest { limit, ..under("") }).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (listed, remaining), "limit {limit}");
    }
}

/// A list at a revision shows the state right after it.
pub async fn sees_the_past_as_it_was(subject: &impl Subject) {
    let store = subject.create().await;
    let before = store.revision().await.unwrap();
    let created = commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    let changed = commit(&store, vec![put("/a", "2"), delete("/b")]).await;
    let returned = set(&store, "/b", "3").await;
    for (at, expected) in [
        (before, pairs(&[])),
        (created, pairs(&[("/a", "1"), ("/b", "1")])),
        (changed, pairs(&[("/a", "2")])),
        (returned, pairs(&[("/a", "2"), ("/b", "3")])),
    ] {
        let request = ListRequest { at: Some(at), ..under("/") };
        assert_eq!(store.list(request.clone()).await.unwrap().revision, at);
        assert_eq!(listed(&store, request).await, expected, "at {at}");
    }
    let page = store.list(ListRequest { at: Some(created), ..under("/b") }).await.unwrap();
    assert_eq!(page.entries[0].position, Position::new(created, 1));
    assert_eq!(page.entries[0].value, bytes("1"));
}

/// A list at a revision that does not exist yet, or that is compacted, fails.
pub async fn refuses_future_and_compacted_revisions(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let second = set(&store, "/a", "2").await;
    let third = set(&store, "/a", "3").await;
    let at = |revision| ListRequest { at: Some(revision), ..under("") };
    match store.list(at(third + 1)).await {
        Err(Error::Future { current }) => assert_eq!(current, third),
        other => panic!("expected the future, got {other:?}"),
    }
    store.compact(second).await.unwrap();
    for revision in [first, second] {
        match store.list(at(revision)).await {
            Err(Error::Compacted { compacted }) => assert_eq!(compacted, second),
            other => panic!("expected it compacted, got {other:?}"),
        }
    }
    assert_eq!(listed(&store, at(third)).await, pairs(&[("/a", "3")]));
    assert_eq!(listed(&store, under("")).await, pairs(&[("/a", "3")]));
}

/// `after` need not exist, nor be under the prefix.
pub async fn lists_after_any_key(subject: &impl Subject) {
    let store = subject.create().await;
    for name in ["/a", "/b", "/b/1", "/c"] {
        set(&store, name, "v").await;
    }
    let request = |after: &str, prefix: &str| ListRequest {
        after: Some(Arc::clone(&key(after))),
        ..under(prefix)
    };
    for (after, prefix, expected) in [
        ("/b", "/", vec!["/b/1", "/c"]),
        ("/a0", "/", vec!["/b", "/b/1", "/c"]),
        ("/a", "/b", vec!["/b", "/b/1"]),
        ("/b", "/b", vec!["/b/1"]),
        ("/d", "/b", vec![]),
        ("/z", "", vec![]),
        ("", "", vec!["/a", "/b", "/b/1", "/c"]),
    ] {
        let found: Vec<_> = listed(&store, request(after, prefix)).await;
        let found: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, expected, "{prefix:?} after {after:?}");
    }
}

/// An empty store lists nothing, with and without a limit.
pub async fn lists_nothing_in_an_empty_store(subject: &impl Subject) {
    let store = subject.create().await;
    for limit in [0, 1, 2] {
        let page = store.list(ListRequest { limit, ..under("") }).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (0, 0));
        assert_eq!(page.last_key(), None);
    }
}

/// A scan visits the entries of a list, in another order.
pub async fn scans_what_a_list_of_the_past_shows(subject: &impl Subject) {
    let store = subject.create().await;
    for round in 0..3 {
        // More than any engine hands over at once.
        for part in 0..8 {
            let names = (0..100).map(|number| format!("/k{}", (number * 37 + part * 100) % 800));
            let value = format!("v{round}");
            commit(&store, names.map(|name| put(&name, &value)).collect()).await;
        }
        commit(&store, vec![delete("/k7"), delete("/k600")]).await;
        set(&store, "/k7", "back").await;
    }
    store.compact(5).await.unwrap();
    let newest = store.revision().await.unwrap();
    for at in [newest, newest - 1, newest - 12, 6] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let visit = move |page: Page| {
            assert_eq!(page.corrupt, Vec::new());
            into.lock().extend(page.entries);
        };
        store.scan(at, Arc::new(visit)).await.unwrap();
        let mut seen = std::mem::take(&mut *seen.lock());
        seen.sort_by(|one, other| one.key.cmp(&other.key));
        let listed = store.list(ListRequest { at: Some(at), ..under("") }).await.unwrap();
        assert_eq!(seen, listed.entries);
    }
    let nothing = |_| unreachable!("there is nothing to see");
    let future = store.scan(newest + 1, Arc::new(nothing)).await;
    assert!(matches!(future, Err(Error::Future { .. })));
    let compacted = store.scan(4, Arc::new(nothing)).await;
    assert!(matches!(compacted, Err(Error::Compacted { compacted: 5 })));
}

/// Pages one after the other are a list, also at the compacted revision, and while writes go on.
pub async fn next_pages_are_a_list_of_the_past(subject: &impl Subject) {
    let store = subject.create().await;
    let large = "x".repeat(300_000);
    for part in 0..16 {
        let names = (0..100).map(|number| format!("/k{:03}", part * 100 + number));
        commit(&store, names.map(|name| put(&name, "1")).collect()).await;
    }
    for number in 0..20 {
        set(&store, &format!("/large{number:02}"), &large).await;
    }
    let at = commit(&store, vec![put("/k500", "2"), delete("/k600")]).await;
    let listed = store.list(ListRequest { at: Some(at), ..under("") }).await.unwrap().entries;
    assert_eq!(listed.len(), 1_619);
    store.compact(at).await.unwrap();
    for prefix in ["", "/k", "/k5", "/large", "/none"] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.next_page(prefix, at, after).await.unwrap();
            assert_eq!((page.revision, &page.corrupt), (at, &Vec::new()));
            after = page.last_key().cloned();
            if after.is_none() {
                break;
            }
            assert!(page.entries.len() < 1_100, "a page is bounded");
            seen.extend(page.entries);
            commit(&store, vec![put("/k001", "3"), put("/zz", "3")]).await;
        }
        let under_it = listed.iter().filter(|entry| entry.key.starts_with(prefix));
        assert_eq!(seen, under_it.cloned().collect::<Vec<_>>(), "{prefix}");
    }
    let newest = store.revision().await.unwrap();
    assert!(matches!(store.next_page("", newest + 1, None).await, Err(Error::Future { .. })));
    store.compact(newest).await.unwrap();
    assert!(matches!(store.next_page("", at, None).await, Err(Error::Compacted { .. })));
}
