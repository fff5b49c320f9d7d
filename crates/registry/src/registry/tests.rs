//! The registry over a store in memory, with a clock that stands still, for states that are hard to cause from outside.
//! The black-box tests cover everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use postern_flow::large::LargeWork;
use postern_flow::{Flow, Limits};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{AnyKind as _, Verb};
use postern_meta::event::WatchEventType;
use postern_meta::object::Object;
use postern_meta::options::{DeleteOptions, ListOptions, Query};
use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;
use postern_store::memory::Memory;
use postern_store::{Change, Position, Store, Txn};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::objects::{AnyKindRef, At, at, secret, within};
use super::first_start::Prepared;
use super::watch::{Delivery, Watcher};
use super::{EncodedObject, Registry, first_start};
use crate::admit::UserPolicy;
use crate::admit::Writing;
use crate::cache::{Cache, EVENT_WINDOW};
use crate::clock::Source;
use crate::operations;
use crate::permit::Permit;
use crate::permit::SELECTABLE_FIELDS;
use crate::signing_keys::{self, TokenPolicy};

/// Only the test moves the time. The random bytes are the same in each run.
struct Fixed {
    now_unix_seconds: AtomicI64,
    next_number: parking_lot::Mutex<u64>,
    /// The number of readings until the clock is set back by an hour.
    readings_until_step: AtomicI64,
}

/// More than the tests need, except those of this limit.
const MAX_KEYS_PER_OWNER: usize = 60;

const START_UNIX_SECONDS: i64 = 1_700_000_000;

impl Source for Fixed {
    fn now_micro(&self) -> MicroTimestamp {
        if self.readings_until_step.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.now_unix_seconds.fetch_sub(3600, Ordering::Relaxed);
        }
        let seconds = self.now_unix_seconds.load(Ordering::Relaxed);
        MicroTimestamp::from_unix_microseconds(seconds * 1_000_000)
    }

    fn fill(&self, bytes: &mut [u8]) {
        // SplitMix64: the same numbers in each run, without a repetition for a long time.
        let mut state = self.next_number.lock();
        for byte in bytes {
            *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = mixed.to_le_bytes()[7];
        }
    }
}

/// The threads for large work, with one owner.
fn large_work() -> LargeWork {
    let flow = Flow::new(Limits::default());
    flow.large_work(flow.account("a"))
}

/// One server: a registry with its cache, over a store that other servers may share.
pub(crate) struct Fixture {
    pub(crate) registry: Arc<Registry>,
    store: Arc<dyn Store>,
    clock: Arc<Fixed>,
    ending: watch::Sender<Option<Duration>>,
    following: tokio::task::JoinHandle<()>,
    /// Whether it created the administrator.
    first: bool,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Fixed {
    fn at(now_unix_seconds: i64) -> Arc<Self> {
        Arc::new(Self {
            now_unix_seconds: AtomicI64::new(now_unix_seconds),
            next_number: parking_lot::Mutex::new(0),
            readings_until_step: AtomicI64::new(i64::MAX),
        })
    }
}

async fn over(store: Arc<dyn Store>) -> Fixture {
    start(store, Fixed::at(START_UNIX_SECONDS)).await
}

async fn over_at(store: Arc<dyn Store>, now_unix_seconds: i64) -> Fixture {
    start(store, Fixed::at(now_unix_seconds)).await
}

#[expect(clippy::disallowed_methods, reason = "a test has no task set; the fixture aborts it")]
async fn start(store: Arc<dyn Store>, clock: Arc<Fixed>) -> Fixture {
    let source: Arc<dyn Source> = clock.clone();
    let Prepared { digester, first } =
        first_start::prepare(&store, &*source, |_| Ok(())).await.unwrap();
    let token_policy =
        TokenPolicy { issuer: "https://postern.test".to_owned(), ..TokenPolicy::default() };
    signing_keys::prepare(&store, source.now(), &token_policy).await.unwrap();
    let cache = Cache::new(store.clone());
    let changes = cache.load().await.unwrap();
    let following = tokio::spawn(cache.clone().follow(Some(changes)));
    let keys = UserPolicy { max_per_owner: MAX_KEYS_PER_OWNER, ..UserPolicy::default() };
    let registry = Registry::new(store.clone(), cache, source, digester, keys, token_policy);
    let registry = Arc::new(registry);
    Fixture { registry, store, clock, ending: watch::Sender::new(None), following, first }
}

pub(crate) async fn fixture() -> Fixture {
    over(Arc::new(Memory::new())).await
}

fn permit(verb: Verb, name: &str) -> Permit {
    secret(name).permit(verb)
}

fn options(query: &str) -> ListOptions {
    ListOptions::parse(&Query::parse(query).unwrap(), SELECTABLE_FIELDS).unwrap()
}

mod agent_configs;
mod conflicts;
mod corruption;
mod events;
mod fleet;
mod generated_names;
mod hostile;
mod keys;
mod limits;
mod login_sequences;
mod logins;
mod migration;
mod name_prefixes;
mod objects;
mod owners;
mod probes;
mod readers;
mod subscriptions;
mod sync;
mod tokens;
mod transactions;
mod zero_values;

impl Fixture {
    /// Replaces the stored bytes of an object by other bytes.
    pub(crate) async fn corrupt(&self, at: At<'_>) {
        self.overwrite(at.key()).await;
    }

    /// Replaces the stored bytes of a key by bytes that are not intact.
    async fn overwrite(&self, key: Arc<str>) {
        self.put(key, bytes::Bytes::from_static(b"flipped")).await;
    }

    /// The stored bytes of a key.
    pub(crate) async fn stored(&self, key: &str) -> bytes::Bytes {
        self.store.get(key).await.unwrap().value.unwrap().value
    }

    /// Replaces the stored bytes of a key.
    pub(crate) async fn put(&self, key: Arc<str>, value: bytes::Bytes) {
        let revision = self.commit(vec![Change::Put { key, value }]).await;
        self.registry.cache().wait_for_revision(Position::end_of(revision)).await.unwrap();
    }

    async fn create(&self, name: &str) -> Result<EncodedObject, ApiError> {
        let (at, writing) = (secret(name), Writing::by_server());
        let (permit, object) = (at.permit(Verb::Create), at.object(&json!({})));
        operations::create(&self.registry, &permit, object, &writing).await
    }

    /// A watch on the whole collection, although the permit has a name.
    async fn watch(&self, query: &str) -> Watcher {
        let whole = permit(Verb::Watch, "unused").of_all();
        let ending = self.ending.subscribe();
        let large = large_work();
        self.registry.watch(&whole, &options(query), ending, large).await.unwrap()
    }
}

fn names(deliveries: &[Delivery]) -> Vec<String> {
    let name = |delivery: &Delivery| match delivery {
        Delivery::Event { event_type, object, .. } => {
            format!("{} {}", event_type.as_str(), object.decode().unwrap().metadata.name)
        }
        Delivery::Bookmark { initial_end, .. } => format!("BOOKMARK {initial_end}"),
        Delivery::Failed(error) => format!("ERROR {}", error.code()),
    };
    deliveries.iter().map(name).collect()
}

#[tokio::test]
async fn a_watch_list_tells_what_is_there_then_marks_its_end_then_follows() {
    let fixture = fixture().await;
    fixture.create("a").await.unwrap();
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let mut watcher = fixture.watch(query).await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
    assert_eq!(names(&watcher.next().await.unwrap()), ["BOOKMARK true"]);
    fixture.create("b").await.unwrap();
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_does_not_age() {
    let fixture = fixture().await;
    let mut watcher = fixture.watch("watch=1&resourceVersion=0&allowWatchBookmarks=1").await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["BOOKMARK true"]);
    // The history of other keys grows and is compacted, while this kind does not change.
    for _ in 0..3 {
        let revision = write_elsewhere(&fixture).await;
        fixture.registry.cache().wait_for_revision(Position::end_of(revision)).await.unwrap();
        fixture.store.compact(revision - 1).await.unwrap();
        fixture.registry.cache().forget(revision - 1);
    }
    let Some(Delivery::Bookmark { position, .. }) = watcher.next().await.unwrap().pop() else {
        panic!("no bookmark")
    };
    assert_eq!(position, Position::end_of(fixture.store.revision().await.unwrap()));
    fixture.create("a").await.unwrap();
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_a_bookmark_when_its_time_is_over() {
    let fixture = fixture().await;
    let mut watcher =
        fixture.watch("watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=5").await;
    let begun = tokio::time::Instant::now();
    assert_eq!(names(&watcher.next().await.unwrap()), ["BOOKMARK true"]);
    assert_eq!(names(&watcher.next().await.unwrap()), ["BOOKMARK false"]);
    assert!(watcher.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_after_silence_each_minute_and_at_the_end() {
    let fixture = fixture().await;
    let query = "watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=110";
    let mut watcher = fixture.watch(query).await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["BOOKMARK true"]);
    let begun = tokio::time::Instant::now();
    let mut seen = Vec::new();
    let mut tick = 0;
    loop {
        // In the first minute there is an event every 20 s, and then no event.
        let next = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await;
        let Ok(next) = next else {
            if begun.elapsed() < Duration::from_secs(70) {
                tick += 1;
                fixture.create(&format!("s{tick}")).await.unwrap();
            }
            continue;
        };
        let Some(next) = next else { break };
        seen.push((begun.elapsed().as_secs(), names(&next).join(",")));
    }
    let seen: Vec<_> = seen.iter().map(|(at, what)| (*at, &**what)).collect();
    let bookmark = "BOOKMARK false";
    assert_eq!(
        seen,
        [(20, "ADDED s1"), (40, "ADDED s2"), (60, bookmark), (90, bookmark), (110, bookmark),]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_has_one_more_event_ends_in_time_all_the_same() {
    let fixture = fixture().await;
    let query = "watch=1&resourceVersion=0&timeoutSeconds=5";
    let mut watcher = fixture.watch(query).await;
    fixture.create("a").await.unwrap();
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
    fixture.create("b").await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(watcher.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_watches_one_after_the_other() {
    let fixture = fixture().await;
    let mut watchers = Vec::new();
    for _ in 0..50 {
        watchers.push(fixture.watch("watch=1&resourceVersion=0").await);
    }
    let begin = Instant::now();
    fixture.ending.send_replace(Some(Duration::from_secs(2)));
    let mut ends = tokio::task::JoinSet::new();
    for mut watcher in watchers {
        ends.spawn(async move {
            assert!(watcher.next().await.is_none());
            begin.elapsed()
        });
    }
    let mut in_half = [0, 0];
    for end in ends.join_all().await {
        assert!(end <= Duration::from_secs(2), "{end:?}");
        in_half[usize::from(end > Duration::from_secs(1))] += 1;
    }
    assert!(in_half.into_iter().all(|count| count > 10), "{in_half:?}");
}

/// Commits more changes of the SharedSecret `a` than memory keeps. Every second change has the label. Returns their
/// number.
async fn more_changes_than_are_in_memory(fixture: &Fixture) -> usize {
    let key = secret("a").key();
    let mut object = fixture.read(secret("a")).await.unwrap();
    let values: [_; 2] = ["odd", "even"].map(|value| {
        object.metadata.labels = [("number".to_owned(), value.to_owned())].into();
        crate::cache::to_stored(object.clone())
    });
    let count = EVENT_WINDOW + 1;
    for value in values.iter().cycle().take(count) {
        fixture.commit(vec![Change::Put { key: key.clone(), value: value.clone() }]).await;
    }
    fixture.current().await;
    count
}

/// The deliveries of a watcher, up to a position, with their versions.
async fn delivered_up_to(watcher: &mut Watcher, last: Position) -> Vec<(String, Position)> {
    let mut all = Vec::new();
    while all.last().is_none_or(|(_, position)| *position < last) {
        for delivery in watcher.next().await.unwrap() {
            let Delivery::Event { object, .. } = &delivery else {
                panic!("{:?}", names(&[delivery]))
            };
            let position = object.position();
            all.push((names(&[delivery]).remove(0), position));
        }
    }
    all
}

#[tokio::test]
async fn a_watcher_that_falls_behind_reads_the_history() {
    let fixture = fixture().await;
    let begin = fixture.store.revision().await.unwrap();
    fixture.create("a").await.unwrap();
    let mut slow = fixture.watch("watch=1&resourceVersion=0").await;
    assert_eq!(names(&slow.next().await.unwrap()), ["ADDED a"]);
    let created = fixture.store.revision().await.unwrap();
    let count = more_changes_than_are_in_memory(&fixture).await;
    let newest = fixture.store.revision().await.unwrap();
    let last = Position::new(newest, 0);
    let expected = (created + 1..=newest)
        .map(|revision| ("MODIFIED a".to_owned(), Position::new(revision, 0)));
    let expected: Vec<_> = expected.collect();
    assert_eq!(expected.len(), count);
    assert_eq!(delivered_up_to(&mut slow, last).await, expected);

    // A resumed watch gets them too. Its selector also needs the state before each event.
    let version = Position::end_of(begin);
    let mut back = fixture.watch(&format!("watch=1&resourceVersion={version}")).await;
    let mut whole = delivered_up_to(&mut back, last).await;
    assert_eq!(whole.remove(0).0, "ADDED a");
    assert_eq!(whole, expected);
    let selected = format!("watch=1&labelSelector=number%3Dodd&resourceVersion={version}");
    let mut selected = fixture.watch(&selected).await;
    let selected = delivered_up_to(&mut selected, last).await;
    let expected: Vec<_> = expected
        .iter()
        .enumerate()
        .map(|(index, (_, position))| (["ADDED a", "DELETED a"][index % 2].to_owned(), *position))
        .collect();
    assert_eq!(selected, expected);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_history_is_closed_and_not_skipped() {
    let fixture = fixture().await;
    fixture.create("a").await.unwrap();
    let mut watcher = fixture.watch("watch=1&resourceVersion=0").await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
    let created = fixture.store.revision().await.unwrap();
    more_changes_than_are_in_memory(&fixture).await;
    fixture.store.compact(created + 1).await.unwrap();
    assert_eq!(names(&watcher.next().await.unwrap()), ["ERROR 410"]);
    assert!(watcher.next().await.is_none());
}

#[tokio::test]
async fn a_cache_that_is_loaded_anew_still_has_the_history() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let first = over(store.clone()).await;
    first.create("a").await.unwrap();
    let seen = store.revision().await.unwrap();
    first.create("b").await.unwrap();
    first.delete(secret("a")).await;
    drop(first);
    let second = over(store).await;
    let version = Position::end_of(seen);
    let mut watcher = second.watch(&format!("watch=1&resourceVersion={version}")).await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED b", "DELETED a"]);
}

#[tokio::test]
async fn a_namespace_that_goes_away_takes_nothing_in() {
    let fixture = fixture().await;
    let absent = within("none", &SharedSecret, "a");
    let error = fixture.try_make(absent, json!({})).await.unwrap_err();
    assert_eq!(error.status().message, "namespaces \"none\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_read_from_the_future_waits_and_then_says_so() {
    let fixture = fixture().await;
    let begun = tokio::time::Instant::now();
    let error =
        fixture.registry.cache().wait_for_revision(Position::end_of(1_000_000)).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after_seconds()), (504, Some(1)));
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn selections_see_objects_come_and_go() {
    let fixture = fixture().await;
    fixture.create("a").await.unwrap();
    let mut watcher = fixture.watch("watch=1&resourceVersion=0&labelSelector=app%3Dweb").await;
    let label = async |labels: Value| {
        let set = |object: &mut Value| object["metadata"]["labels"] = labels.clone();
        fixture.change(secret("a"), set).await;
    };
    label(json!({ "app": "web" })).await;
    assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
    label(json!({})).await;
    let left = watcher.next().await.unwrap();
    assert_eq!(names(&left), ["DELETED a"]);
    let Some(Delivery::Event { object, event_type, .. }) = left.first() else { panic!("no event") };
    assert_eq!(*event_type, WatchEventType::Deleted);
    assert_eq!(object.labels().get("app").map(String::as_str), Some("web"), "the old state");
    let newest = Position::new(fixture.store.revision().await.unwrap(), 0);
    assert_eq!(object.position(), newest, "under the new version");
}

/// Writes as another server would, so that the revision rises without an event of the kind.
async fn write_elsewhere(fixture: &Fixture) -> u64 {
    let change = Change::Put { key: "/elsewhere".into(), value: bytes::Bytes::new() };
    fixture.commit(vec![change]).await
}

const HISTORY: Duration = Duration::from_mins(5);

/// Compacts as the controller does, until all earlier history is older than the limit.
async fn let_history_pass(fixture: &Fixture) {
    for _ in 0..=postern_store::HISTORY_STEPS {
        crate::controllers::compaction::compact(&fixture.registry, HISTORY).await.unwrap();
        fixture.clock.now_unix_seconds.fetch_add(60, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_idle_watch_resumes_after_a_restart_from_the_last_event_it_saw() {
    let fixture = fixture().await;
    let mut watcher = fixture.watch("watch=1&resourceVersion=0&allowWatchBookmarks=1").await;
    watcher.next().await.unwrap();
    fixture.create("a").await.unwrap();
    fixture.create("b").await.unwrap();
    fixture.delete(secret("b")).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(watcher.next().await.unwrap());
    }
    let positions: Vec<_> = seen
        .iter()
        .map(|delivery| match delivery {
            Delivery::Event { object, .. } => object.position().packed(),
            _ => panic!("{:?}", names(&seen)),
        })
        .collect();
    for _ in 0..3 {
        write_elsewhere(&fixture).await;
        let_history_pass(&fixture).await;
    }
    assert!(fixture.store.compacted().await.unwrap() > positions[2] >> 8, "it is compacted");
    let again = start(fixture.store.clone(), fixture.clock.clone()).await;
    let mut resumed = again.watch(&format!("watch=1&resourceVersion={}", positions[2])).await;
    again.create("c").await.unwrap();
    assert_eq!(names(&resumed.next().await.unwrap()), ["ADDED c"]);
    // A watcher that has not seen the deletion must list again.
    let mut behind = again.watch(&format!("watch=1&resourceVersion={}", positions[1])).await;
    assert_eq!(names(&behind.next().await.unwrap()), ["ERROR 410"]);
}

#[tokio::test]
async fn history_grows_older_although_servers_restart() {
    let fixture = fixture().await;
    let first = write_elsewhere(&fixture).await;
    for _ in 0..20 {
        let again = start(fixture.store.clone(), fixture.clock.clone()).await;
        crate::controllers::compaction::compact(&again.registry, HISTORY).await.unwrap();
        write_elsewhere(&again).await;
        fixture.clock.now_unix_seconds.fetch_add(30, Ordering::Relaxed);
    }
    let compacted = fixture.store.compacted().await.unwrap();
    assert!(compacted > first, "nothing older than {HISTORY:?} is kept: {compacted}");
    let newest = fixture.store.revision().await.unwrap();
    assert!(compacted < newest - 8, "what is younger is kept: {compacted} of {newest}");
}
