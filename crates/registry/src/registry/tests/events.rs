//! Events: their lifetime, and the events that the server records itself.

use postern_kinds::event::Event;

use super::*;
use crate::controllers::access_keys::record_expiries;
use crate::controllers::events::Sweep;
use crate::events::{self, NewEvent};

const HOUR: i64 = 3600;

fn event(name: &str) -> At<'_> {
    within("default", &Event, name)
}

impl Fixture {
    async fn record(&self, name: &str) {
        let about = json!({ "kind": "User", "name": "admin" });
        self.make(event(name), json!({ "involvedObject": about })).await;
    }

    /// Writes an event again, with another message.
    async fn repeat(&self, name: &str, message: &str) {
        self.change(event(name), |event| event["message"] = message.into()).await;
    }

    /// The events of a namespace, as they are stored.
    async fn events(&self) -> Vec<Value> {
        self.current().await;
        let page = self.registry.cache().of(Event.info()).page(None, usize::MAX);
        page.iter().map(|event| event.decode().unwrap().into_value()).collect()
    }

    async fn event_names(&self) -> Vec<String> {
        let events = self.events().await;
        events.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Reason, object and count of each event.
    async fn told(&self) -> Vec<(String, String, i64)> {
        let events = self.events().await;
        let mut told: Vec<_> = events
            .iter()
            .map(|event| {
                assert_eq!(event["metadata"]["namespace"], "default", "its object has none");
                assert_eq!(event["involvedObject"]["kind"], "OwnedAccessKey");
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let count = event["count"].as_i64().unwrap();
                (text(&event["reason"]), text(&event["involvedObject"]["name"]), count)
            })
            .collect();
        told.sort();
        told
    }
}

#[tokio::test]
async fn events_live_for_an_hour_from_their_last_write() {
    let fixture = fixture().await;
    let mut sweep = Sweep::new(&fixture.registry);
    for name in ["left", "repeated"] {
        fixture.record(name).await;
    }
    sweep.run(&fixture.registry).await;
    fixture.pass_seconds(HOUR - 1);
    fixture.repeat("repeated", "again").await;
    sweep.run(&fixture.registry).await;
    assert_eq!(fixture.event_names().await, ["left", "repeated"]);
    fixture.pass_seconds(1);
    sweep.run(&fixture.registry).await;
    assert_eq!(fixture.event_names().await, ["repeated"]);
    fixture.pass_seconds(HOUR);
    sweep.run(&fixture.registry).await;
    assert_eq!(fixture.event_names().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_restart_makes_no_event_live_longer() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let first = over(store.clone()).await;
    first.record("old").await;
    first.pass_seconds(HOUR / 2);
    first.record("newer").await;
    let later = START_UNIX_SECONDS + HOUR;
    drop(first);
    let second = over_at(store, later).await;
    let mut sweep = Sweep::new(&second.registry);
    sweep.run(&second.registry).await;
    assert_eq!(second.event_names().await, ["newer"]);
    second.pass_seconds(HOUR / 2);
    sweep.run(&second.registry).await;
    assert_eq!(second.event_names().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_end_of_a_key_is_told_once_and_a_day_before() {
    const DAY: i64 = 24 * HOUR;
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = Fixed::at(START_UNIX_SECONDS);
    let servers = [start(store.clone(), clock.clone()).await, start(store.clone(), clock).await];
    let one = &servers[0];
    one.key("long", json!({ "ttl": 3 * DAY })).await;
    one.key("short", json!({ "ttl": 2 * DAY + HOUR - 60 })).await;
    one.key("brief", json!({ "ttl": HOUR })).await;
    one.key("endless", json!({})).await;
    let told_at = async |seconds: i64| {
        let passed = one.clock.now().unix_seconds() - START_UNIX_SECONDS;
        one.pass_seconds(seconds - passed);
        let mut sweep = Sweep::new(&one.registry);
        for server in &servers {
            server.current().await;
            record_expiries(&server.registry).await;
            record_expiries(&server.registry).await;
        }
        sweep.run(&one.registry).await;
        one.told().await
    };
    let told = |reason: &str, name: &str| (reason.to_owned(), name.to_owned(), 1);
    assert_eq!(told_at(0).await, []);
    assert_eq!(told_at(HOUR + 1).await, [told("KeyExpired", "brief")]);
    assert_eq!(told_at(DAY + HOUR).await, [told("KeyExpiresSoon", "short")]);
    assert_eq!(told_at(2 * DAY).await, []);
    assert_eq!(told_at(2 * DAY + 1).await, [told("KeyExpiresSoon", "long")]);
    assert_eq!(told_at(3 * DAY).await, []);
    assert_eq!(told_at(3 * DAY + 1).await, [told("KeyExpired", "long")]);
    // After a restart the event is not recorded again, although it was removed.
    let third = over_at(store, START_UNIX_SECONDS + 3 * DAY + HOUR + 2).await;
    Sweep::new(&third.registry).run(&third.registry).await;
    record_expiries(&third.registry).await;
    assert_eq!(third.told().await, []);
}

/// Each interval records at most a hundred events, for keys without an event.
#[tokio::test]
async fn the_ends_of_many_keys_are_told_bit_by_bit() {
    let fixture = over(Arc::new(Memory::new())).await;
    for number in 0..130 {
        fixture.key(&format!("k{number}"), json!({ "ttl": 60 })).await;
    }
    fixture.pass_seconds(61);
    let mut counts = Vec::new();
    for _ in 0..3 {
        fixture.current().await;
        record_expiries(&fixture.registry).await;
        counts.push(fixture.told().await.len());
    }
    assert_eq!(counts, [100, 130, 130]);
}

#[tokio::test]
async fn what_comes_again_is_one_event_with_a_count() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = Fixed::at(START_UNIX_SECONDS);
    let servers = [start(store.clone(), clock.clone()).await, start(store, clock).await];
    servers[0].key("k", json!({})).await;
    let resource =
        servers[0].registry.cache().of(postern_kinds::owned_access_key::OwnedAccessKey.info());
    let key = resource.page(None, usize::MAX);
    let key = key.iter().map(|key| key.decode().unwrap()).find(|key| key.metadata.name == "k");
    let object = &key.unwrap();
    for minute in 0..3 {
        for server in &servers {
            for number in 0..10 {
                let message = format!("minute {minute}, {number}");
                let what = NewEvent { object, reason: "Tested", message: &message };
                events::warn(&server.registry, &what).await;
            }
        }
        servers[0].pass_seconds(60);
    }
    // Ten events of the first server in each of two minutes, and the first event of the third minute. The other server
    // would write its count at its next event, which does not come here.
    assert_eq!(servers[0].told().await, [("Tested".to_owned(), "k".to_owned(), 21)]);
    let event = &servers[0].events().await[0];
    assert_eq!(event["message"], "minute 2, 0");
    assert_eq!(event["type"], "Warning");
    assert!(event["involvedObject"].get("namespace").is_none());
}
