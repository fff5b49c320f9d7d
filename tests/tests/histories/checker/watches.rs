//! Watches: all changes, once, in order, on each server.

use std::collections::HashMap;

use super::model::Model;
use super::{Rule, Violations};
use crate::histories::history::{Kind, Moment, Outcome, Session, Start, Version};

pub(crate) fn check(model: &Model<'_>, violations: &mut Violations) {
    let mut reached: HashMap<&str, Version> = HashMap::new();
    for (number, session) in model.history.sessions.iter().enumerate() {
        let last = check_order(number, session, violations);
        let before = reached.insert(&session.watcher, last);
        if session.start == Start::Resumed {
            violations.check(before == Some(session.after), Rule::WatchMissed, || {
                format!(
                    "stream {number} resumes at {}, and the one before ended at {before:?}",
                    session.after
                )
            });
        }
        check_restores(model, number, session, violations);
        if session.user.is_none() {
            check_complete(model, number, session, last, violations);
        }
    }
    for (watcher, reached) in reached {
        let needs_grant =
            model.history.sessions.iter().any(|one| one.watcher == watcher && one.user.is_some());
        let holds = needs_grant || reached >= model.history.last;
        violations.check(holds, Rule::WatcherBehind, || {
            format!("{watcher} ended at {reached}, before the last write at {}", model.history.last)
        });
    }
    check_deletions(model, violations);
}

/// Checks that versions rise. Returns the last one.
fn check_order(number: usize, session: &Session, violations: &mut Violations) -> Version {
    let mut last = session.after;
    for event in &session.events {
        // A bookmark may repeat the version of the start.
        let rises = event.version > last || (event.kind == Kind::Bookmark && event.version == last);
        violations.check(rises, Rule::WatchOrder, || {
            format!("stream {number} of {} has {event:?} after {last}", session.watcher)
        });
        last = last.max(event.version);
    }
    last
}

/// Checks that a watch does not go on after it has shown changes that a restore has removed.
fn check_restores(
    model: &Model<'_>,
    number: usize,
    session: &Session,
    violations: &mut Violations,
) {
    for cut in &model.history.cuts {
        let is_lost = |version: Version| cut.kept < version && version <= cut.last;
        let seen = session.events.iter().map(|event| event.version).chain([session.after]);
        let goes_on = session.events.last().is_some_and(|event| event.version > cut.last);
        let holds = !goes_on || !seen.into_iter().any(is_lost);
        violations.check(holds, Rule::WatchOverRestore, || {
            format!("stream {number} of {} goes on after {cut:?}", session.watcher)
        });
    }
}

/// Checks that each version up to the last one was delivered, with the right kind.
fn check_complete(
    model: &Model<'_>,
    number: usize,
    session: &Session,
    last: Version,
    violations: &mut Violations,
) {
    let mut delivered =
        session.events.iter().filter(|event| event.kind != Kind::Bookmark).peekable();
    for (&version, known) in model.versions.range(session.after + 1..=last.max(session.after + 1)) {
        if version > last || model.is_lost(version, last) {
            continue;
        }
        while delivered.next_if(|event| event.version < version).is_some() {}
        let Some(event) = delivered.next_if(|event| event.version == version) else {
            violations.add(Rule::WatchMissed, || {
                let (watcher, server) = (&session.watcher, session.server);
                format!(
                    "stream {number} of {watcher} at server {server} from {} to {last} has no {version}: {known:?}",
                    session.after
                )
            });
            continue;
        };
        let (before, may_be_absent) = model.states(known.name, version - 1);
        let holds = match event.kind {
            Kind::Added => may_be_absent,
            Kind::Modified | Kind::Deleted => before.is_some(),
            Kind::Bookmark => true,
        };
        violations.check(holds, Rule::WatchKind, || {
            format!("stream {number} of {} has {event:?}, after {before:?}", session.watcher)
        });
    }
}

/// Checks that each acknowledged deletion was delivered by a watch that was there: its version is in no answer.
fn check_deletions(model: &Model<'_>, violations: &mut Violations) {
    for (name, versions) in &model.names {
        for &version in versions {
            let acknowledged =
                model.deletions(name, version).find(|(_, one)| one.outcome == Outcome::Done);
            let Some((number, one)) = acknowledged else { continue };
            let next = model.next(name, version, version);
            if next.is_some_and(|next| model.versions[&next].is_deletion) {
                continue;
            }
            // A version that was written after the deletion.
            let later = first_written_after(model, version, one.completed);
            let witness = later.and_then(|later| {
                model.history.sessions.iter().position(|session| {
                    let last = session.events.last().map_or(0, |event| event.version);
                    session.user.is_none() && session.after <= version && last >= later
                })
            });
            if let Some(witness) = witness {
                violations.add(Rule::WatchMissed, || {
                    format!("stream {witness} has not seen operation {number}, the deletion of {name} {version}")
                });
            }
        }
    }
}

fn first_written_after(model: &Model<'_>, version: Version, moment: Moment) -> Option<Version> {
    let mut later = model.versions.range(version + 1..).map(|(later, _)| *later);
    later.find(|later| model.earliest(*later) > moment)
}
