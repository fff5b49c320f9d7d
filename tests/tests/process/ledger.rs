//! A ledger of writes: the writes that were sent and those that were acknowledged. It checks a
//! server's state and the events of a watch against these writes.

use std::collections::{BTreeMap, BTreeSet};

use postern_tests::objects::{name_of, value_of, version_of};
use postern_tests::watching::Event;
use serde_json::Value;

/// One write that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The object's name.
    pub(crate) name: String,
    /// The value of the object afterwards; `None` for a deletion.
    pub(crate) value: Option<String>,
    /// The outcome that the response reported, if there was one.
    pub(crate) outcome: Outcome,
}

/// The known outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Acknowledged, with the new version. The response to a deletion has no version.
    Done(Option<u64>),
    /// The connection ended before the response: the write may or may not have happened.
    Unknown,
}

/// All writes that were sent.
#[derive(Default)]
pub(crate) struct Ledger {
    attempts: Vec<Attempt>,
    /// For each name, the values that it may have now; `None` is absent.
    possible: BTreeMap<String, BTreeSet<Option<String>>>,
}

impl Ledger {
    /// Records a write. Writes to one name have to be recorded in their order.
    pub(crate) fn record(&mut self, attempt: Attempt) {
        let possible = self.possible.entry(attempt.name.clone()).or_insert_with(|| [None].into());
        if attempt.outcome != Outcome::Unknown {
            possible.clear();
        }
        possible.insert(attempt.value.clone());
        self.attempts.push(attempt);
    }

    /// The number of acknowledged writes.
    pub(crate) fn acknowledged(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.outcome != Outcome::Unknown).count()
    }

    /// The value of a name, which is certain after [`Ledger::compare`].
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.possible.get(name).and_then(|possible| possible.first().cloned().flatten())
    }

    /// Compares the writes with a list of the current state, which also decides unknown writes.
    pub(crate) fn compare(&mut self, list: &Value) {
        let items = list["items"].as_array().expect("a list");
        let mut found: BTreeMap<&str, String> =
            items.iter().map(|item| (name_of(item), value_of(item))).collect();
        for (name, possible) in &mut self.possible {
            let value = found.remove(name.as_str());
            assert!(
                possible.contains(&value),
                "{name} passes {value:?}, but was acknowledged as {possible:?}"
            );
            *possible = [value].into();
        }
        assert!(found.is_empty(), "objects that no write made: {found:?}");
        for item in items {
            assert!(version_of(item) <= version_of(list), "an item from the future: {item}");
        }
    }

    /// Checks all events of a watch: order, completeness, uniqueness.
    pub(crate) fn check_events(&self, events: &[Event], list: &Value) {
        assert!(
            events.is_sorted_by(|one, two| one.version() < two.version()),
            "versions ascend strictly"
        );
        let state = replay(events);
        let items = list["items"].as_array().expect("a list");
        let listed: BTreeMap<&str, String> =
            items.iter().map(|item| (name_of(item), value_of(item))).collect();
        assert_eq!(state, listed, "the events lead to the current state");
        self.check_writes(events);
        self.check_order(events);
    }

    /// Every acknowledged write is one event, every event one write.
    fn check_writes(&self, events: &[Event]) {
        let written = |event: &&Event| event.kind != "DELETED";
        let versions: BTreeMap<u64, &Event> =
            events.iter().filter(written).map(|event| (event.version(), event)).collect();
        let mut values = BTreeSet::new();
        for event in versions.values() {
            assert!(values.insert(value_of(&event.object)), "a write has two events: {event:?}");
        }
        for attempt in &self.attempts {
            let (Some(value), Outcome::Done(version)) = (&attempt.value, attempt.outcome) else {
                continue;
            };
            let version = version.expect("the response to a write has a version");
            let event = versions.get(&version);
            let event =
                event.unwrap_or_else(|| panic!("{attempt:?} was acknowledged and has no event"));
            assert_eq!(name_of(&event.object), attempt.name);
            assert_eq!(&value_of(&event.object), value);
        }
        let sent: BTreeSet<&str> =
            self.attempts.iter().filter_map(|attempt| attempt.value.as_deref()).collect();
        for value in &values {
            assert!(sent.contains(value.as_str()), "{value} was never sent");
        }
        let count = |outcome: fn(&Outcome) -> bool| {
            let deletions = self.attempts.iter().filter(|attempt| attempt.value.is_none());
            deletions.filter(|attempt| outcome(&attempt.outcome)).count()
        };
        let certain = count(|outcome| *outcome != Outcome::Unknown);
        let deleted = events.iter().filter(|event| event.kind == "DELETED").count();
        let most = certain + count(|outcome| *outcome == Outcome::Unknown);
        assert!(
            (certain..=most).contains(&deleted),
            "{deleted} deletions have events, {certain} to {most} were made"
        );
    }

    /// The events of each name are in the order in which its writes were sent.
    fn check_order(&self, events: &[Event]) {
        let mut values_by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind != "DELETED") {
            values_by_name.entry(name_of(&event.object)).or_default().push(value_of(&event.object));
        }
        for (name, values) in values_by_name {
            let mut sent = self.attempts.iter().filter(|attempt| attempt.name == name);
            for value in &values {
                let found = sent.any(|attempt| attempt.value.as_ref() == Some(value));
                assert!(found, "{name}: {value} is out of order: {values:?}");
            }
        }
    }
}

/// The state that the events lead to. Checks that each event fits the state before it.
fn replay(events: &[Event]) -> BTreeMap<&str, String> {
    let mut state = BTreeMap::new();
    for event in events {
        let name = name_of(&event.object);
        let before = match event.kind.as_str() {
            "ADDED" | "MODIFIED" => state.insert(name, value_of(&event.object)),
            "DELETED" => state.remove(name),
            kind => panic!("an event of kind {kind}: {:?}", event.object),
        };
        assert_eq!(
            before.is_none(),
            event.kind == "ADDED",
            "does not fit the state before: {event:?}"
        );
        if event.kind == "DELETED" {
            assert_eq!(before, Some(value_of(&event.object)), "the event has the last state");
        }
    }
    state
}

/// Tests of the ledger itself: it has to detect every mistake in the events or the list.
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serde_json::json;

    use super::*;

    fn object(name: &str, value: &str, version: u64) -> Value {
        let mut object = postern_tests::objects::secret(name, value);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        object
    }

    fn event(kind: &str, name: &str, value: &str, version: u64) -> Event {
        Event { kind: kind.to_owned(), object: object(name, value, version) }
    }

    fn example() -> (Ledger, Vec<Event>, Value) {
        let mut ledger = Ledger::default();
        let mut record = |name: &str, value: Option<&str>, outcome: Outcome| {
            ledger.record(Attempt { name: name.into(), value: value.map(str::to_owned), outcome });
        };
        record("a", Some("1"), Outcome::Done(Some(10)));
        record("b", Some("2"), Outcome::Done(Some(20)));
        record("a", Some("3"), Outcome::Done(Some(30)));
        record("b", None, Outcome::Done(None));
        record("c", Some("4"), Outcome::Unknown);
        let events = vec![
            event("ADDED", "a", "1", 10),
            event("ADDED", "b", "2", 20),
            event("MODIFIED", "a", "3", 30),
            event("DELETED", "b", "2", 40),
        ];
        let list = json!({"metadata": {"resourceVersion": "50"}, "items": [object("a", "3", 30)]});
        (ledger, events, list)
    }

    fn passes(change: impl FnOnce(&mut Ledger, &mut Vec<Event>, &mut Value)) -> bool {
        let (mut ledger, mut events, mut list) = example();
        change(&mut ledger, &mut events, &mut list);
        let check = || {
            ledger.compare(&list);
            ledger.check_events(&events, &list);
        };
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    }

    #[test]
    fn correct_events_pass_with_and_without_the_unknown_write() {
        assert!(passes(|_, _, _| {}));
        assert!(passes(|_, events, list| {
            events.push(event("ADDED", "c", "4", 45));
            list["items"].as_array_mut().unwrap().push(object("c", "4", 45));
        }));
    }

    #[test]
    fn every_mistake_is_detected() {
        for index in 0..4 {
            assert!(!passes(|_, events, _| drop(events.remove(index))), "without event {index}");
            assert!(!passes(|_, events, _| events.insert(index, events[index].clone())), "twice");
        }
        assert!(!passes(|_, events, _| events.swap(0, 1)), "out of order");
        assert!(!passes(|_, _, list| list["items"] = json!([])), "an object is lost");
        assert!(!passes(|_, _, list| list["items"][0] = object("a", "1", 10)), "an update is lost");
        assert!(!passes(|_, _, list| {
            list["items"].as_array_mut().unwrap().push(object("b", "2", 20));
        }));
        assert!(!passes(|_, events, _| events[2] = event("MODIFIED", "a", "3", 31)), "a version");
        assert!(!passes(|_, events, _| events[2] = event("ADDED", "a", "3", 30)), "a type");
    }
}
