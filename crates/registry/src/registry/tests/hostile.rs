//! Three servers with a remote store that is restored while they run, and that leaves commits without an outcome.

use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::status::Reason;
use postern_store::hostile::{Faults, Remote};
use postern_store::seal::{Keyring, Sealed};
use serde_json::json;

use super::fleet::Fleet;
use super::*;

const SLOW: Faults =
    Faults { delay_microseconds: 300, lost_watches: 0, refused_commits: 0, unknown_outcomes: 0 };

/// The names of all shared secrets on a server, once it is current.
async fn listed(server: &Fixture) -> Vec<String> {
    let all = permit(Verb::List, "unused").of_all();
    server.current().await;
    let list = server.registry.list(&all, &options("")).await.unwrap();
    list.objects.iter().map(|object| object.decode().unwrap().metadata.name).collect()
}

#[tokio::test]
async fn a_restore_while_servers_run_is_noticed_by_all_of_them() {
    let remote = Remote::new(SLOW);
    let fleet = Fleet::on(3, || remote.connect()).await;
    fleet.one().create("a").await.unwrap();
    let kept = fleet.one().key("kept", json!({})).await;
    fleet.current().await;
    let kept_until = fleet.one().registry.cache().applied();
    fleet.other().create("b").await.unwrap();
    let later = fleet.one().key("later", json!({})).await;
    fleet.one().delete(at(&OwnedAccessKey, "kept")).await;
    let mut watchers = Vec::new();
    for server in fleet.current().await {
        assert_eq!(server.refusal(&later), None);
        assert!(server.refusal(&kept).is_some());
        let mut watcher = server.watch("watch=1&resourceVersion=0").await;
        let first: Vec<_> = names(&watcher.next().await.unwrap());
        assert_eq!(first, ["ADDED a", "ADDED b"]);
        watchers.push(watcher);
    }
    let before = fleet.one().registry.cache().applied();

    remote.restore(kept_until).await.unwrap();

    for server in fleet.current().await {
        assert!(server.registry.cache().applied() > before, "revisions go on");
        assert_eq!(listed(server).await, ["a"]);
        assert!(server.refusal(&later).is_some(), "its key is not in the restored data");
        assert_eq!(server.refusal(&kept), None);
    }
    for watcher in &mut watchers {
        assert_eq!(names(&watcher.next().await.unwrap()), ["ERROR 410"]);
        assert!(watcher.next().await.is_none());
    }
    // A read of the lost history fails, and does not show other data under its version.
    let lost = format!("resourceVersion={}&resourceVersionMatch=Exact", Position::end_of(before));
    let all = permit(Verb::List, "unused").of_all();
    let error = fleet.other().registry.list(&all, &options(&lost)).await.err().unwrap();
    assert_eq!(error.code(), 410);
    fleet.other().create("c").await.unwrap();
    for server in fleet.current().await {
        assert_eq!(listed(server).await, ["a", "c"]);
    }
}

#[tokio::test]
async fn a_create_without_an_outcome_is_either_done_or_not() {
    let faults = Faults { unknown_outcomes: 4, refused_commits: 5, lost_watches: 30, ..SLOW };
    // Servers start on a store that answers, so they get the faulty one afterwards.
    let remote = Remote::new(SLOW);
    let fleet = Fleet::on(3, || remote.connect()).await;
    remote.set_faults(faults);
    let (mut acknowledged, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..60 {
        let server = &fleet.servers()[number % 3];
        let name = format!("s{number:02}");
        match server.create(&name).await {
            Ok(_) => acknowledged.push(name),
            Err(error) if error.reason() == Reason::ServiceUnavailable => refused.push(name),
            Err(error) => {
                assert_eq!(error.reason(), Reason::InternalError, "{error:?}");
                unknown.push(name);
            }
        }
    }
    assert!(!acknowledged.is_empty() && !refused.is_empty() && unknown.len() > 1);
    let mut lists = Vec::new();
    for server in fleet.current().await {
        lists.push(listed(server).await);
    }
    assert!(lists.iter().all(|list| *list == lists[0]), "all servers agree: {lists:?}");
    for name in acknowledged {
        assert!(lists[0].contains(&name), "{name} was acknowledged");
    }
    for name in refused {
        assert!(!lists[0].contains(&name), "{name} was refused");
    }
    // A client finds out by a read on any server, and a retry settles it.
    let done = unknown.iter().filter(|name| lists[0].contains(name)).count();
    assert!(done > 0 && done < unknown.len(), "{done} of {}", unknown.len());
    remote.set_faults(SLOW);
    for name in unknown {
        let found = fleet.other().read(secret(&name)).await;
        match fleet.one().create(&name).await {
            Ok(_) => assert!(found.is_err()),
            Err(error) => {
                assert_eq!(error.reason(), Reason::AlreadyExists);
                assert!(found.is_ok());
            }
        }
    }
}

#[tokio::test]
async fn a_server_starts_without_a_key_that_only_history_needs() {
    let remote = Remote::new(SLOW);
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let sealed = Arc::new(Sealed::open(remote.connect(), first.clone()).await.unwrap());
    let server = over(sealed.clone()).await;
    for name in ["gone", "kept"] {
        server.create(name).await.unwrap();
    }
    server.delete(secret("gone")).await;
    sealed.use_keyring(second.clone()).await.unwrap();
    sealed.activate_prepared_key().await.unwrap();
    // Values of the present state without the first key fail.
    let late = second.without(first.current()).unwrap();
    let open = async || Arc::new(Sealed::open(remote.connect(), late.clone()).await.unwrap());
    let refused = Cache::new(open().await).load().await.err();
    assert!(matches!(refused, Some(postern_store::Error::UnknownSealKey { .. })), "{refused:?}");
    sealed.rewrap(|_| ()).await.unwrap();
    let needed = sealed.key_ids_in_use().await.unwrap();
    assert!(needed.contains(&first.current()), "history needs it");
    let late = over(open().await).await;
    assert_eq!(listed(&late).await, ["kept"]);
    server.create("new").await.unwrap();
    assert_eq!(listed(&late).await, ["kept", "new"]);
}

#[tokio::test]
async fn a_server_that_is_cut_off_from_its_store_decides_nothing_from_memory() {
    let remote = Remote::new(SLOW);
    let fleet = Fleet::on(1, || remote.connect()).await;
    let server = fleet.one();
    let key = server.key("reader", json!({})).await;
    server.create("a").await.unwrap();
    let cache = fleet.current().await[0].registry.cache().clone();
    let mut following = tokio::task::JoinSet::new();
    following.spawn(cache.clone().watch_lag());
    let mut watch = server.watch_with(key).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
    let credential = server.credential(key);
    let now = server.clock.now();
    let current = || credential.current(&cache, &cache.policy(), now).map(|_| ());
    let limit = crate::cache::DEFAULT_STORE_SILENCE;

    remote.set_silence(limit);
    assert!(current().is_ok() && !cache.is_confirmed(), "within the limit, and without bookmarks");
    remote.set_silence(limit + Duration::from_millis(1));
    let error = current().unwrap_err();
    assert_eq!((error.code(), error.retry_after_seconds().is_some()), (503, true), "{error}");
    // Nothing has changed here, so nothing else wakes the watch.
    let ended = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    assert_eq!(names(&ended.unwrap().unwrap()), ["ERROR 503"]);
    assert!(watch.next().await.is_none());

    remote.set_silence(Duration::ZERO);
    assert!(current().is_ok() && cache.is_confirmed());
}
