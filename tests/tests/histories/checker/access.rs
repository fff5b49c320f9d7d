//! Reads of users that need a grant: they get all of the guarded object while they have one, and
//! nothing of it afterwards.

use std::collections::HashMap;

use super::model::Model;
use super::{Rule, Violations};
use crate::histories::history::{Action, History, Kind, Moment, Operation, Outcome, Version};

/// A time in which a user may have had a grant.
#[derive(Debug)]
struct Window {
    began: Moment,
    /// When the grant was acknowledged, if it was.
    granted: Option<Moment>,
    /// Versions of the time are greater.
    after: Version,
    /// When a withdrawal began.
    ending: Moment,
    /// When a withdrawal was acknowledged.
    ended: Moment,
}

pub(crate) fn check(history: &History, model: &Model<'_>, violations: &mut Violations) {
    let mut windows: HashMap<&str, Vec<Window>> = HashMap::new();
    let mut changes: Vec<&Operation> = history.operations.iter().collect();
    changes.sort_by_key(|one| one.invoked);
    for one in changes {
        note(&mut windows, model, one);
    }
    let none = Vec::new();
    for (number, one) in history.operations.iter().enumerate() {
        let Action::GetAs { user } = &one.action else { continue };
        let windows = windows.get(user.as_str()).unwrap_or(&none);
        check_read(windows, number, one, violations);
    }
    for (number, session) in history.sessions.iter().enumerate() {
        let Some(user) = &session.user else { continue };
        let windows = windows.get(user.as_str()).unwrap_or(&none);
        for event in session.events.iter().filter(|event| event.kind != Kind::Bookmark) {
            let written = model.earliest(event.version);
            let may_be_read =
                windows.iter().any(|window| window.after < event.version && written < window.ended);
            violations.check(may_be_read, Rule::EventAfterWithdrawal, || {
                format!("stream {number} of {user} has {event:?}, and the grants are {windows:?}")
            });
        }
    }
}

/// Takes a grant or a withdrawal. They come in their order: one client makes them all.
fn note<'a>(windows: &mut HashMap<&'a str, Vec<Window>>, model: &Model<'_>, one: &'a Operation) {
    match (&one.action, &one.outcome) {
        (Action::Grant { .. }, Outcome::Refused(_)) => {}
        (Action::Grant { user }, outcome) => {
            let (granted, after) = match outcome {
                Outcome::Written(version) => (Some(one.completed), *version),
                _ => (None, model.newest_seen_before(one.invoked)),
            };
            let (ending, ended) = (Moment::MAX, Moment::MAX);
            let window = Window { began: one.invoked, granted, after, ending, ended };
            windows.entry(user).or_default().push(window);
        }
        (Action::Withdraw { user }, outcome) => {
            let windows = windows.entry(user).or_default();
            for window in windows.iter_mut().filter(|window| window.ended == Moment::MAX) {
                window.ending = window.ending.min(one.invoked);
                // A grant with an unknown outcome may still happen.
                if *outcome == Outcome::Done && window.granted.is_some() {
                    window.ended = one.completed;
                }
            }
        }
        _ => {}
    }
}

fn check_read(windows: &[Window], number: usize, one: &Operation, violations: &mut Violations) {
    match one.outcome {
        Outcome::Found { .. } => {
            let may_be_read = windows
                .iter()
                .any(|window| window.began < one.completed && one.invoked < window.ended);
            violations.check(may_be_read, Rule::ReadAfterWithdrawal, || {
                format!("operation {number} reads what it may not, and the grants are {windows:?}: {one:?}")
            });
        }
        Outcome::Absent => {
            let must_be_read = windows.iter().any(|window| {
                window.granted.is_some_and(|granted| granted < one.invoked)
                    && one.completed < window.ending
            });
            violations.check(!must_be_read, Rule::DeniedAfterGrant, || {
                format!("operation {number} is denied, and the grants are {windows:?}: {one:?}")
            });
        }
        _ => {}
    }
}
