//! Writes and reads: one order of all versions, which agrees with the order of time.

use std::collections::HashMap;

use super::model::Model;
use super::{Rule, Violations};
use crate::histories::history::{Action, Item, Moment, Operation, Outcome, Version};

pub(crate) fn check(model: &Model<'_>, violations: &mut Violations) {
    check_versions(model, violations);
    for (number, one) in model.history.operations.iter().enumerate() {
        // While a state is restored, a server may still answer from the one before.
        if model.history.cuts.iter().any(|cut| one.invoked < cut.ended && one.completed > cut.began)
        {
            continue;
        }
        check_read(model, number, one, violations);
    }
}

/// Checks where each version stands among the others.
fn check_versions(model: &Model<'_>, violations: &mut Violations) {
    let mut positions: HashMap<usize, Version> = HashMap::new();
    for (&version, known) in &model.versions {
        let before = model.latest(known.name, version - 1);
        let live = before.filter(|before| !model.versions[before].is_deletion);
        if known.is_deletion {
            check_deletion(model, version, live, violations);
            continue;
        }
        let Some(writer) = model.writer(version) else { continue };
        if let Some(first) = positions.insert(writer, version) {
            violations.add(Rule::AppearsTwice, || {
                format!("operation {writer} appears at {first} and at {version}")
            });
        }
        let one = &model.history.operations[writer];
        check_rises(model, version, writer, one, violations);
        let may_be_absent = live
            .is_none_or(|live| model.may_be_deleted_before(known.name, live, version, Moment::MAX));
        let holds = match &one.action {
            Action::Create { .. } => may_be_absent,
            Action::Update { from: Some(from), .. } => live == Some(*from),
            _ => live.is_some(),
        };
        violations.check(holds, Rule::PreconditionIgnored, || {
            format!(
                "operation {writer} is at {version}, and the version before is {before:?}: {one:?}"
            )
        });
    }
}

fn check_deletion(
    model: &Model<'_>,
    version: Version,
    live: Option<Version>,
    violations: &mut Violations,
) {
    let known = &model.versions[&version];
    let Some(live) = live else {
        return violations.add(Rule::NeverWritten, || {
            format!(
                "{} shows a deletion of {} at {version}, where it is absent",
                known.place, known.name
            )
        });
    };
    let last = model.versions[&live].value;
    violations.check(known.value == last, Rule::TwoStates, || {
        format!(
            "{} shows that {version} deletes {}, but {last} is at {live}",
            known.place, known.value
        )
    });
    let earliest = model.deletions(known.name, live).min_by_key(|(_, one)| one.invoked);
    match earliest {
        Some((number, one)) => check_rises(model, version, number, one, violations),
        None => violations.add(Rule::RefusedWriteAppears, || {
            let (name, place) = (known.name, &known.place);
            format!("{place} shows a deletion of {name} {live} at {version}; it was refused or never asked for")
        }),
    }
}

fn check_rises(
    model: &Model<'_>,
    version: Version,
    number: usize,
    one: &Operation,
    violations: &mut Violations,
) {
    let seen = model.newest_seen_before(one.invoked);
    violations.check(version > seen, Rule::VersionWentBack, || {
        format!("operation {number} began when {seen} was seen, and has version {version}")
    });
}

fn check_read(model: &Model<'_>, number: usize, one: &Operation, violations: &mut Violations) {
    let seen = model.newest_seen_before(one.invoked);
    // After a restore, the state is the restored one, even before the first write.
    let restored =
        model.history.cuts.iter().filter(|cut| cut.ended <= one.invoked).map(|cut| cut.last + 1);
    let floor = restored.max().unwrap_or(0).max(seen);
    match (&one.action, &one.outcome) {
        (Action::Get { name }, Outcome::Found { version, .. }) => {
            check_found(model, number, one, (name, *version), floor, violations);
        }
        (Action::GetAs { .. }, Outcome::Found { version, .. }) => {
            check_found(model, number, one, (super::GUARDED, *version), floor, violations);
        }
        (Action::Get { name }, Outcome::Absent) => {
            let holds = may_be_absent(model, name, floor, one);
            violations.check(holds, Rule::StaleRead, || {
                let states = model.states(name, floor);
                format!(
                    "operation {number} finds no {name}, which {floor} had as {states:?}: {one:?}"
                )
            });
        }
        (Action::List, Outcome::Listed { version, items }) => {
            let rule = if *version < floor && seen < floor {
                Rule::VersionWentBack
            } else {
                Rule::StaleRead
            };
            violations.check(*version >= seen, rule, || {
                format!("operation {number} lists at {version}, and {seen} was seen before")
            });
            check_list(model, number, one, (*version).max(floor), items, violations);
        }
        _ => {}
    }
}

fn check_found(
    model: &Model<'_>,
    number: usize,
    one: &Operation,
    (name, version): (&str, Version),
    floor: Version,
    violations: &mut Violations,
) {
    let next = model.next(name, version, floor.max(version));
    let is_current = !model.is_lost(version, floor) && next.is_none_or(|next| next > floor);
    let deleted = model.deletions(name, version).find(|(_, deletion)| {
        let is_restored = model
            .history
            .cuts
            .iter()
            .any(|cut| deletion.invoked < cut.began && cut.ended <= one.invoked);
        deletion.outcome == Outcome::Done && deletion.completed < one.invoked && !is_restored
    });
    violations.check(is_current && deleted.is_none(), Rule::StaleRead, || {
        let deleted = deleted.map(|(number, _)| format!(", deleted by operation {number}"));
        let deleted = deleted.unwrap_or_default();
        format!(
            "operation {number} reads {name} at {version}, when {floor} was seen and {next:?} was next{deleted}: {one:?}"
        )
    });
}

/// Whether a name may be absent at some version from the floor on, in a read.
fn may_be_absent(model: &Model<'_>, name: &str, floor: Version, one: &Operation) -> bool {
    let (_, absent) = model.states(name, floor);
    if absent {
        return true;
    }
    let mut version = model.latest(name, floor);
    while let Some(present) = version {
        let is_deletion = model.versions[&present].is_deletion;
        if is_deletion && model.earliest(present) < one.completed {
            return true;
        }
        if !is_deletion && model.may_be_deleted_before(name, present, floor, one.completed) {
            return true;
        }
        version = model
            .next(name, present, floor.max(present))
            .filter(|next| model.earliest(*next) < one.completed);
    }
    false
}

fn check_list(
    model: &Model<'_>,
    number: usize,
    one: &Operation,
    at: Version,
    items: &[Item],
    violations: &mut Violations,
) {
    for name in model.names.keys() {
        let (present, may_be_absent) = model.states(name, at);
        let listed = items.iter().find(|item| item.name == **name).map(|item| item.version);
        if listed == present || (listed.is_none() && may_be_absent) {
            continue;
        }
        let writer = present.and_then(|present| model.writer(present));
        let is_acknowledged = writer.is_some_and(|writer| {
            matches!(model.history.operations[writer].outcome, Outcome::Written(_))
        });
        let rule = if is_acknowledged { Rule::LostWrite } else { Rule::WrongList };
        violations.add(rule, || {
            let (client, server) = (&one.client, one.server);
            format!(
                "operation {number} of {client} at server {server} lists {name} as {listed:?} at {at}, not as {present:?}"
            )
        });
    }
}
