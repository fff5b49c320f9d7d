//! The checker passes histories that keep the promises, and finds each lie that is planted in one.

use super::checker::{GUARDED, Rule, check};
use super::history::{Action, End, History, Kind, Operation, Outcome, Session, Start, Version};
use super::simulation::{Simulation, USER};

const STEPS: usize = 3_000;

fn history(seed: u64) -> History {
    Simulation::run(seed, STEPS)
}

/// Fails unless the lie is possible in each of several histories, and is found in each, by one of the rules.
fn found(rules: &[Rule], lie: impl Fn(&mut History)) {
    for seed in 0..8 {
        let mut history = history(seed);
        assert!(check(&history).is_empty(), "seed {seed}: {:?}", check(&history));
        lie(&mut history);
        let violations = check(&history);
        let is_found = violations.iter().any(|violation| rules.contains(&violation.rule));
        assert!(is_found, "seed {seed}: {rules:?} is not in {violations:?}");
    }
}

/// The first operation that fits.
fn position(history: &History, fits: impl Fn(&Operation) -> bool) -> usize {
    history.operations.iter().position(fits).expect("the history has such an operation")
}

/// A stream of a watcher of all objects with more than this many events.
fn stream(history: &mut History, more_than: usize) -> &mut Session {
    let mut sessions = history.sessions.iter_mut();
    sessions
        .find(|one| one.user.is_none() && one.events.len() > more_than)
        .expect("there is a stream")
}

fn is_update_of(one: &Operation, of: &str) -> bool {
    matches!(&one.action, Action::Update { name, .. } if name == of)
}

/// Two versions of the guarded object that were acknowledged, and the moment after both.
fn two_versions(history: &History) -> [(Version, String); 2] {
    let mut written =
        history.operations.iter().filter_map(|one| match (&one.action, &one.outcome) {
            (Action::Update { name, value, .. }, Outcome::Written(version)) if name == GUARDED => {
                Some((*version, value.clone()))
            }
            _ => None,
        });
    let mut next = || written.next().expect("the guarded object was changed");
    [next(), next()]
}

/// A read at the end of the history.
fn read(history: &mut History, action: Action, outcome: Outcome) {
    let last = history.operations.iter().map(|one| one.completed).max().unwrap();
    history.operations.push(Operation {
        client: "liar".to_owned(),
        server: 1,
        invoked: last + 1_000_000,
        completed: last + 1_000_001,
        action,
        outcome,
    });
}

#[test]
fn histories_that_keep_the_promises_pass() {
    for seed in 0..40 {
        let history = history(seed);
        let violations = check(&history);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        let has = |fits: fn(&Operation) -> bool| history.operations.iter().any(fits);
        assert!(has(|one| matches!(one.outcome, Outcome::Unknown(_))));
        assert!(has(|one| matches!(one.outcome, Outcome::Refused(_))));
        assert!(has(
            |one| matches!(one.action, Action::GetAs { .. }) && one.outcome != Outcome::Absent
        ));
    }
}

#[test]
fn a_restore_is_no_violation_but_all_else_stays_one() {
    for seed in 0..20 {
        let mut history = Simulation::run_with_restore(seed, STEPS);
        let violations = check(&history);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        let cut = history.cuts.remove(0);
        assert!(!check(&history).is_empty(), "the restore took nothing away");
        // A state from before the lost versions.
        history.cuts.push(super::history::Cut { kept: cut.kept / 2, ..cut });
        assert!(!check(&history).is_empty(), "seed {seed}");
    }
}

#[test]
fn a_watch_that_goes_on_over_a_restore_is_found() {
    let mut history = Simulation::run_with_restore(3, STEPS);
    let cut = history.cuts[0];
    let name = history.sessions[0].watcher.clone();
    let after =
        history.sessions.iter().position(|one| one.watcher == name && one.opened == cut.ended);
    let after = history.sessions.remove(after.unwrap());
    let mut before = history.sessions.iter_mut().filter(|one| one.watcher == name);
    let before = before.find(|one| one.end == End::Expired).unwrap();
    before.events.extend(after.events);
    let violations = check(&history);
    assert!(violations.iter().any(|one| one.rule == Rule::WatchOverRestore), "{violations:?}");
}

#[test]
fn an_event_that_is_missing_is_found() {
    found(&[Rule::WatchMissed], |history| {
        stream(history, 4).events.remove(2);
    });
    // Also if no watch has it: the answer to the write says that it was there.
    found(&[Rule::WatchMissed, Rule::PreconditionIgnored], |history| {
        let number = position(history, |one| {
            matches!(one.action, Action::Delete { .. }) && one.outcome == Outcome::Done
        });
        let Action::Delete { name, from } = history.operations[number].action.clone() else {
            return;
        };
        let is_deletion =
            |event: &super::history::Event| event.kind == Kind::Deleted && event.name == name;
        let deletions =
            history.sessions.iter().flat_map(|one| &one.events).filter(|one| is_deletion(one));
        let version =
            deletions.map(|event| event.version).filter(|version| *version > from).min().unwrap();
        for session in &mut history.sessions {
            session.events.retain(|event| event.version != version);
        }
    });
}

#[test]
fn events_in_another_order_or_twice_are_found() {
    found(&[Rule::WatchOrder], |history| stream(history, 4).events.swap(1, 2));
    found(&[Rule::WatchOrder], |history| {
        let events = &mut stream(history, 4).events;
        let again = events[2].clone();
        events.insert(3, again);
    });
    // A stream that begins later than the one before it ended.
    found(&[Rule::WatchMissed], |history| {
        let mut sessions = history.sessions.iter_mut();
        let resumed =
            sessions.find(|one| one.start == Start::Resumed && one.events.len() > 4).unwrap();
        resumed.after = resumed.events[2].version;
        resumed.events.drain(..3);
    });
}

#[test]
fn an_event_of_the_wrong_kind_or_with_another_value_is_found() {
    found(&[Rule::WatchKind], |history| {
        let events = stream(history, 10).events.iter_mut();
        let event = events.filter(|event| event.kind == Kind::Modified).nth(1);
        event.unwrap().kind = Kind::Added;
    });
    found(&[Rule::TwoStates, Rule::NeverWritten], |history| {
        stream(history, 4).events[2].value = "other".to_owned();
    });
}

#[test]
fn a_watcher_that_stays_behind_is_found() {
    found(&[Rule::WatcherBehind], |history| {
        let is_it = |one: &Session| one.watcher == "watcher 1";
        let last =
            history.sessions.iter().rposition(|one| is_it(one) && !one.events.is_empty()).unwrap();
        history.sessions[last].events.pop();
        let mut number = 0;
        history.sessions.retain(|one| {
            number += 1;
            number <= last + 1 || !is_it(one)
        });
    });
}

#[test]
fn a_stale_read_is_found() {
    found(&[Rule::StaleRead], |history| {
        let [(version, value), _] = two_versions(history);
        let outcome = Outcome::Found { version, value };
        read(history, Action::Get { name: GUARDED.to_owned() }, outcome);
    });
    found(&[Rule::StaleRead], |history| {
        read(history, Action::Get { name: GUARDED.to_owned() }, Outcome::Absent);
    });
    found(&[Rule::StaleRead], |history| {
        let list = position(history, |one| matches!(one.outcome, Outcome::Listed { .. }));
        let outcome = history.operations[list].outcome.clone();
        read(history, Action::List, outcome);
    });
}

#[test]
fn an_acknowledged_write_that_is_lost_is_found() {
    found(&[Rule::LostWrite, Rule::WrongList], |history| {
        let list = history.operations.iter_mut().rev().find_map(|one| match &mut one.outcome {
            Outcome::Listed { items, .. } => Some(items),
            _ => None,
        });
        list.unwrap().retain(|item| item.name != "last");
    });
    found(&[Rule::WrongList, Rule::TwoStates, Rule::LostWrite], |history| {
        let [(version, value), _] = two_versions(history);
        let list = history.operations.iter_mut().rev().find_map(|one| match &mut one.outcome {
            Outcome::Listed { items, .. } => items.iter_mut().find(|item| item.name == GUARDED),
            _ => None,
        });
        let item = list.unwrap();
        (item.version, item.value) = (version, value);
    });
}

#[test]
fn a_lie_about_an_outcome_is_found() {
    // Refused, and yet there.
    found(&[Rule::RefusedWriteAppears], |history| {
        let number = position(history, |one| {
            is_update_of(one, GUARDED) && matches!(one.outcome, Outcome::Written(_))
        });
        history.operations[number].outcome = Outcome::Refused(409);
    });
    found(&[Rule::RefusedWriteAppears], |history| {
        let is_deletion = |one: &Operation| {
            matches!(one.action, Action::Delete { .. }) && one.outcome == Outcome::Done
        };
        let number = position(history, is_deletion);
        history.operations[number].outcome = Outcome::Refused(409);
    });
    // Unknown, and in one view only.
    found(&[Rule::WatchMissed], |history| {
        let number = position(history, |one| {
            matches!(one.outcome, Outcome::Unknown(_)) && is_update_of(one, GUARDED)
        });
        let Action::Update { value, .. } = history.operations[number].action.clone() else {
            return;
        };
        let mut sessions = history.sessions.iter_mut().filter(|one| one.user.is_none());
        let has = |one: &Session| one.events.iter().any(|event| event.value == value);
        let session = sessions.find(|one| has(one)).unwrap();
        session.events.retain(|event| event.value != value);
        // Something later, so that the stream is beyond it.
        let last = history.last;
        session.events.push(super::history::Event {
            seen: 10_000_000,
            kind: Kind::Bookmark,
            name: String::new(),
            version: last + 255,
            value: String::new(),
        });
    });
    // At another version than was acknowledged.
    found(&[Rule::Contradicted], |history| {
        let number = position(history, |one| {
            is_update_of(one, GUARDED) && matches!(one.outcome, Outcome::Written(_))
        });
        let Outcome::Written(version) = &mut history.operations[number].outcome else { return };
        *version += 1;
    });
    // Twice.
    found(&[Rule::AppearsTwice, Rule::Contradicted], |history| {
        let [(_, value), _] = two_versions(history);
        let outcome = Outcome::Found { version: history.last + 256, value };
        read(history, Action::Get { name: GUARDED.to_owned() }, outcome);
    });
}

#[test]
fn writes_out_of_order_or_against_their_precondition_are_found() {
    found(&[Rule::PreconditionIgnored], |history| {
        let number = position(history, |one| {
            matches!(one.action, Action::Update { from: Some(_), .. })
                && matches!(one.outcome, Outcome::Written(_))
        });
        let Action::Update { from, .. } = &mut history.operations[number].action else { return };
        *from = from.map(|from| from - 256);
    });
    found(&[Rule::PreconditionIgnored], |history| {
        let number = position(history, |one| {
            is_update_of(one, GUARDED) && matches!(one.outcome, Outcome::Written(_))
        });
        let Action::Update { name, value, .. } = history.operations[number].action.clone() else {
            return;
        };
        history.operations[number].action = Action::Create { name, value };
    });
    found(&[Rule::VersionWentBack], |history| {
        let number = position(history, |one| {
            is_update_of(one, GUARDED) && matches!(one.outcome, Outcome::Written(_))
        });
        history.operations[number].invoked += 10_000_000;
        history.operations[number].completed += 10_000_000;
    });
    found(&[Rule::FromTheFuture, Rule::NeverWritten], |history| {
        let number = position(history, |one| matches!(one.outcome, Outcome::Unknown(_)));
        history.operations[number].invoked += 10_000_000;
        history.operations[number].completed += 10_000_000;
        let Action::Delete { .. } = history.operations[number].action else { return };
        // A deletion has no value, so it is removed from the history.
        read(
            history,
            Action::Get { name: "n0".to_owned() },
            Outcome::Found { version: 1, value: "never".to_owned() },
        );
    });
}

#[test]
fn what_a_user_gets_after_a_withdrawal_is_found() {
    let user = || USER.to_owned();
    let withdraw = |history: &mut History| {
        read(history, Action::Withdraw { user: user() }, Outcome::Done);
    };
    found(&[Rule::ReadAfterWithdrawal], |history| {
        withdraw(history);
        let (version, value) = newest(history);
        let at = history.operations.last().unwrap().completed;
        read(history, Action::GetAs { user: user() }, Outcome::Found { version, value });
        assert!(history.operations.last().unwrap().invoked > at);
    });
    found(&[Rule::EventAfterWithdrawal], |history| {
        withdraw(history);
        let version = history.last + 1_024;
        let (name, value) = (GUARDED.to_owned(), "secret".to_owned());
        let action = Action::Update { name: name.clone(), value: value.clone(), from: None };
        read(history, action, Outcome::Written(version));
        let stream = history.sessions.iter_mut().find(|one| one.user.is_some()).unwrap();
        let (seen, kind) = (100_000_000, Kind::Modified);
        stream.events.push(super::history::Event { seen, kind, name, version, value });
    });
    found(&[Rule::DeniedAfterGrant], |history| {
        withdraw(history);
        let version = history.last + 1_024;
        read(history, Action::Grant { user: user() }, Outcome::Written(version));
        read(history, Action::GetAs { user: user() }, Outcome::Absent);
    });
}

/// The newest acknowledged version of the guarded object.
fn newest(history: &History) -> (Version, String) {
    let list = history.operations.iter().rev().find_map(|one| match &one.outcome {
        Outcome::Listed { items, .. } => items.iter().find(|item| item.name == GUARDED),
        _ => None,
    });
    let item = list.unwrap();
    (item.version, item.value.clone())
}
