//! The lost store and the restored one: no position of the one means anything in the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postern_store::backup::{BackupError, REVISION_MARGIN, RestoreOptions};
use postern_store::memory::{Memory, MemoryRestore};
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Change, Error, ListRequest, Position, Store, WithOld, limits};

use crate::backup::{
    MADE, RESTORED, backed_up, commit, entries, on_file, options, put, restore_to, restored, time,
};

/// Checks that a watch from a position fails with `Compacted`.
async fn assert_compacted(store: &Sealed, after: Position) {
    match store.watch("", after, WithOld::Yes).await.map(drop) {
        Err(Error::Compacted { .. }) => {}
        other => panic!("a watch from {after} gave {other:?}"),
    }
}

/// An encrypted store with a few keys.
async fn filled(keyring: &Keyring) -> Sealed {
    let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
    for round in 0..5 {
        commit(&store, vec![put("/a", format!("a{round}")), put("/b", format!("b{round}"))]).await;
    }
    store
}

#[tokio::test]
async fn every_position_of_the_lost_store_is_compacted() {
    let keyring = Keyring::generate().unwrap();
    let store = filled(&keyring).await;
    let (summary, file) = backed_up(&store).await;
    for round in 0..5 {
        commit(&store, vec![put("/a", format!("lost{round}")), put("/c", "lost")]).await;
    }
    let lost = store.revision().await.unwrap();
    assert!(lost > summary.revision);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    restore_to(&path, &file, &keyring).unwrap();
    let on_file = Sealed::open(on_file(&path).await, keyring.clone()).await.unwrap();
    for store in [restored(&file, &keyring, options()).await, on_file] {
        for revision in 0..=lost + 1 {
            for after in
                [Position::new(revision, 0), Position::new(revision, 1), Position::end_of(revision)]
            {
                assert_compacted(&store, after).await;
            }
            let at = ListRequest { at: Some(revision), ..ListRequest::default() };
            assert!(matches!(store.list(at).await, Err(Error::Compacted { .. })));
        }
        // The revision that the lost store could have reached until now, at a million revisions in
        // a second.
        let seconds = RESTORED.as_secs() - MADE.as_secs();
        assert_compacted(&store, Position::end_of(summary.revision + seconds * 1_000_000)).await;
        let listed = store.list(ListRequest::default()).await.unwrap();
        assert!(store.watch("", Position::end_of(listed.revision), WithOld::Yes).await.is_ok());
        // A client with an object of the lost store that was changed after the backup gets a
        // conflict.
        let all = entries(&store).await;
        assert!(all.iter().all(|entry| entry.position.revision() <= summary.revision));
        assert!(commit(&store, vec![put("/c", "new")]).await > lost);
    }
}

/// A backup that is restored twice makes two timelines, and the second begins behind the first.
#[tokio::test]
async fn a_second_restore_begins_behind_the_first() {
    let keyring = Keyring::generate().unwrap();
    let (_, file) = backed_up(&filled(&keyring).await).await;
    let first = restored(&file, &keyring, options()).await;
    let begin = first.revision().await.unwrap();
    for round in 0..50 {
        commit(&first, vec![put("/a", format!("{round}"))]).await;
    }
    let handed_out = first.revision().await.unwrap();
    let later = RestoreOptions { now: time(RESTORED + Duration::from_millis(1)), above: 0 };
    // A clock that was set back, and the revision that is known instead.
    let known = RestoreOptions { now: time(Duration::ZERO), above: handed_out };
    for options in [later, known] {
        let second = restored(&file, &keyring, options).await;
        for revision in begin..=handed_out {
            assert_compacted(&second, Position::end_of(revision)).await;
        }
    }
}

/// The backup of a restored store can be restored, many times over.
#[tokio::test]
async fn restores_can_be_chained() {
    let keyring = Keyring::generate().unwrap();
    let mut store = filled(&keyring).await;
    for _ in 0..50 {
        let before = store.revision().await.unwrap();
        let (_, file) = backed_up(&store).await;
        store = restored(&file, &keyring, options()).await;
        let after = store.revision().await.unwrap();
        assert!(after >= before + REVISION_MARGIN);
        assert!(i64::try_from(Position::end_of(after).packed()).is_ok());
    }
    assert_eq!(entries(&store).await.len(), 2);
}

#[tokio::test]
async fn a_restore_without_room_for_revisions_is_refused() {
    let keyring = Keyring::generate().unwrap();
    let (_, file) = backed_up(&filled(&keyring).await).await;
    let far = Duration::from_secs(1 << 45);
    let wrong = [
        RestoreOptions { above: limits::REVISION, ..options() },
        RestoreOptions { above: u64::MAX, ..options() },
        RestoreOptions { now: time(far), ..options() },
    ];
    for options in wrong {
        let mut file = std::io::Cursor::new(&file);
        let begin = |_| -> postern_store::Result<MemoryRestore> { panic!("begun") };
        let result = postern_store::backup::restore(&mut file, &keyring, options, begin, |_| ());
        let error = result.map(|(_, restored)| restored).unwrap_err();
        assert!(matches!(error, BackupError::NoRevisionsLeft(_)), "{error:?}");
    }
}

/// A client that keeps a copy of the store, as Kubernetes' informers do: it lists once, then watches,
/// and lists anew when it is told that its position is compacted.
#[derive(Default)]
struct Informer {
    copy: BTreeMap<Arc<str>, (Bytes, Position)>,
    after: Option<Position>,
    lists: usize,
}

impl Informer {
    /// Goes on until it has everything up to a revision.
    async fn follow(&mut self, store: &Sealed, until: u64) {
        loop {
            let Some(after) = self.after else {
                self.list(store).await;
                continue;
            };
            if after >= Position::end_of(until) {
                return;
            }
            match self.watch(store, after, until).await {
                Err(Error::Compacted { .. }) => self.after = None,
                result => result.unwrap(),
            }
        }
    }

    async fn list(&mut self, store: &Sealed) {
        self.lists += 1;
        let page = store.list(ListRequest::default()).await.unwrap();
        self.copy =
            page.entries.into_iter().map(|one| (one.key, (one.value, one.position))).collect();
        self.after = Some(Position::end_of(page.revision));
    }

    async fn watch(
        &mut self,
        store: &Sealed,
        after: Position,
        until: u64,
    ) -> postern_store::Result<()> {
        let mut watch = store.watch("", after, WithOld::Yes).await?;
        let mut delivered = 0;
        while delivered < until {
            let batch = watch.next().await?;
            for event in batch.events {
                match event.value {
                    Some(value) => self.copy.insert(event.key, (value, event.position)),
                    None => self.copy.remove(&event.key),
                };
            }
            delivered = batch.revision;
            self.after = Some(Position::end_of(delivered));
        }
        Ok(())
    }
}

/// Changes that differ for each seed and each round: some keys come, some change, some go.
async fn step(store: &Sealed, seed: u64, round: u64) {
    let key = format!("/k{}", (seed * 7 + round * 5) % 11);
    let is_there = store.get(&key).await.unwrap().value.is_some();
    let change = if is_there && (seed + round).is_multiple_of(3) {
        Change::Delete { key: key.as_str().into() }
    } else {
        put(&key, format!("{seed} {round}"))
    };
    commit(store, vec![change]).await;
}

#[tokio::test]
async fn an_informer_survives_a_restore() {
    for seed in 0..20 {
        let keyring = Keyring::generate().unwrap();
        let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
        // One that stopped before the backup, one at it, one after it, and one that did not exist
        // then.
        let mut informers: [Informer; 4] = Default::default();
        for round in 0..20 {
            step(&store, seed, round).await;
        }
        informers[0].follow(&store, store.revision().await.unwrap()).await;
        step(&store, seed, 20).await;
        let (summary, file) = backed_up(&store).await;
        informers[1].follow(&store, summary.revision).await;
        for round in 21..30 {
            step(&store, seed, round).await;
        }
        let lost = store.revision().await.unwrap();
        for informer in &mut informers[1..3] {
            informer.follow(&store, lost).await;
            assert_eq!(informer.lists, 1);
        }
        let lost_copy = informers[2].copy.clone();

        let store = restored(&file, &keyring, options()).await;
        // As many changes as were lost, and others: equal numbers must not mean equal states.
        for round in 30..39 {
            step(&store, seed + 1, round).await;
        }
        let newest = store.revision().await.unwrap();
        let now: BTreeMap<_, _> = entries(&store)
            .await
            .into_iter()
            .map(|one| (one.key, (one.value, one.position)))
            .collect();
        assert_ne!(now, lost_copy);
        for (informer, lists) in informers.iter_mut().zip([2, 2, 2, 1]) {
            informer.follow(&store, newest).await;
            assert_eq!((&informer.copy, informer.lists), (&now, lists));
        }
    }
}
