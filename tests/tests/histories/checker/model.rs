//! The store as a history describes it: each version of each name with its writer, and the versions
//! known at each moment.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violations};
use crate::histories::history::{Action, History, Kind, Moment, Operation, Outcome, Version};

/// The store, as far as it was seen.
pub(crate) struct Model<'a> {
    pub(crate) history: &'a History,
    pub(crate) versions: BTreeMap<Version, Known<'a>>,
    /// The versions of each name, rising.
    pub(crate) names: HashMap<&'a str, Vec<Version>>,
    /// The operation that writes a value.
    writers: HashMap<&'a str, usize>,
    /// The deletions of a version of a name that were not refused.
    deletions: HashMap<&'a str, HashMap<Version, Vec<usize>>>,
    /// The newest version that was seen until a moment.
    seen: Vec<(Moment, Version)>,
}

/// A version of a name.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) name: &'a str,
    /// The value; of a deletion the last one.
    pub(crate) value: &'a str,
    pub(crate) is_deletion: bool,
    /// The place where it was seen first, for people.
    pub(crate) place: String,
}

/// A version, as one answer or event showed it.
struct Sight<'a> {
    at: Moment,
    version: Version,
    name: &'a str,
    value: &'a str,
    is_deletion: bool,
    place: String,
}

impl<'a> Model<'a> {
    pub(crate) fn new(history: &'a History, violations: &mut Violations) -> Self {
        let mut model = Self {
            history,
            versions: BTreeMap::new(),
            names: HashMap::new(),
            writers: HashMap::new(),
            deletions: HashMap::new(),
            seen: Vec::new(),
        };
        model.note_writers();
        model.note_seen();
        for sight in sights(history) {
            model.add(sight, violations);
        }
        for (&version, known) in &model.versions {
            model.names.entry(known.name).or_default().push(version);
        }
        model
    }

    fn note_writers(&mut self) {
        for (number, one) in self.history.operations.iter().enumerate() {
            match &one.action {
                Action::Create { value, .. } | Action::Update { value, .. } => {
                    self.writers.insert(value, number);
                }
                Action::Delete { name, from } if !matches!(one.outcome, Outcome::Refused(_)) => {
                    let of_name = self.deletions.entry(name).or_default();
                    of_name.entry(*from).or_default().push(number);
                }
                _ => {}
            }
        }
    }

    fn note_seen(&mut self) {
        for one in &self.history.operations {
            match &one.outcome {
                Outcome::Written(version)
                | Outcome::Found { version, .. }
                | Outcome::Listed { version, .. } => self.seen.push((one.completed, *version)),
                _ => {}
            }
        }
        let events = self.history.sessions.iter().flat_map(|one| &one.events);
        self.seen.extend(events.map(|event| (event.seen, event.version)));
        self.seen.sort_unstable();
        let mut newest = 0;
        for (_, version) in &mut self.seen {
            newest = newest.max(*version);
            *version = newest;
        }
    }

    /// The newest version that a client had seen before a moment.
    pub(crate) fn newest_seen_before(&self, moment: Moment) -> Version {
        let end = self.seen.partition_point(|(at, _)| *at < moment);
        end.checked_sub(1).map_or(0, |last| self.seen[last].1)
    }

    fn add(&mut self, sight: Sight<'a>, violations: &mut Violations) {
        let Sight { at, version, name, value, is_deletion, place } = sight;
        if let Some(known) = self.versions.get(&version) {
            let same = (known.name, known.value, known.is_deletion) == (name, value, is_deletion);
            violations.check(same, Rule::TwoStates, || {
                let other = &known.place;
                format!("version {version} is {name} = {value} in {place}, but in {other} it is {known:?}")
            });
            return;
        }
        match self.writers.get(value) {
            None => violations.add(Rule::NeverWritten, || {
                format!("{place} shows {name} = {value} at {version}, which nothing has written")
            }),
            Some(&writer) if !is_deletion => {
                self.check_writer(writer, version, &place, violations);
            }
            Some(_) => {}
        }
        // Sights come in the order of time, so this is the first one of the version.
        if !is_deletion && let Some(&writer) = self.writers.get(value) {
            let invoked = self.history.operations[writer].invoked;
            violations.check(invoked < at, Rule::FromTheFuture, || {
                format!("{place} shows {value}, which operation {writer} began to write later")
            });
        }
        self.versions.insert(version, Known { name, value, is_deletion, place });
    }

    fn check_writer(
        &self,
        writer: usize,
        version: Version,
        place: &str,
        violations: &mut Violations,
    ) {
        let one = &self.history.operations[writer];
        match one.outcome {
            Outcome::Written(written) => violations.check(written == version, Rule::Contradicted, || {
                format!("operation {writer} was acknowledged at {written}, and {place} shows it at {version}")
            }),
            Outcome::Refused(code) => violations.add(Rule::RefusedWriteAppears, || {
                format!("operation {writer} was refused with {code}, and {place} shows it at {version}")
            }),
            _ => {}
        }
    }

    /// Whether a restore has taken a version away from the state at another one.
    pub(crate) fn is_lost(&self, version: Version, at: Version) -> bool {
        self.history
            .cuts
            .iter()
            .any(|cut| cut.kept < version && version <= cut.last && at > cut.last)
    }

    /// The newest version of a name in the state at a version.
    pub(crate) fn latest(&self, name: &str, at: Version) -> Option<Version> {
        let versions = self.names.get(name)?;
        let end = versions.partition_point(|one| *one <= at);
        versions[..end].iter().rev().find(|one| !self.is_lost(**one, at)).copied()
    }

    /// The version of a name after another one, in the history of the state at a version.
    pub(crate) fn next(&self, name: &str, after: Version, at: Version) -> Option<Version> {
        let versions = self.names.get(name)?;
        let begin = versions.partition_point(|one| *one <= after);
        versions[begin..].iter().find(|one| !self.is_lost(**one, at)).copied()
    }

    /// The possible states of a name at a version: the version that it has, if any; and whether it
    /// may be absent.
    pub(crate) fn states(&self, name: &str, at: Version) -> (Option<Version>, bool) {
        let Some(latest) = self.latest(name, at) else { return (None, true) };
        if self.versions[&latest].is_deletion {
            return (None, true);
        }
        (Some(latest), self.may_be_deleted_before(name, latest, at, Moment::MAX))
    }

    /// Whether a version may have been deleted by a deletion that no watch has shown, and that began before a moment.
    pub(crate) fn may_be_deleted_before(
        &self,
        name: &str,
        version: Version,
        at: Version,
        moment: Moment,
    ) -> bool {
        let next = self.next(name, version, at.max(version));
        let is_in_watch = next.is_some_and(|next| self.versions[&next].is_deletion);
        !is_in_watch && self.deletions(name, version).any(|(_, one)| one.invoked < moment)
    }

    /// The deletions of a version that were not refused, with their numbers.
    pub(crate) fn deletions(
        &self,
        name: &str,
        version: Version,
    ) -> impl Iterator<Item = (usize, &'a Operation)> + use<'_, 'a> {
        let numbers = self.deletions.get(name).and_then(|of_name| of_name.get(&version));
        let numbers = numbers.map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|number| (*number, &self.history.operations[*number]))
    }

    /// The operation that wrote a version, unless it is a deletion.
    pub(crate) fn writer(&self, version: Version) -> Option<usize> {
        let known = self.versions.get(&version).filter(|known| !known.is_deletion)?;
        self.writers.get(known.value).copied()
    }

    /// The moment before which a version cannot have been committed.
    pub(crate) fn earliest(&self, version: Version) -> Moment {
        let known = &self.versions[&version];
        if !known.is_deletion {
            return self.writer(version).map_or(0, |one| self.history.operations[one].invoked);
        }
        let before = self.latest(known.name, version - 1);
        let invoked = before.and_then(|before| {
            self.deletions(known.name, before).map(|(_, one)| one.invoked).min()
        });
        invoked.unwrap_or(0)
    }
}

/// All that was seen, in the order of time.
fn sights(history: &History) -> Vec<Sight<'_>> {
    let mut sights = Vec::new();
    for (number, one) in history.operations.iter().enumerate() {
        let mut see = |version, name, value| {
            let place = format!("operation {number}");
            sights.push(Sight {
                at: one.completed,
                version,
                name,
                value,
                is_deletion: false,
                place,
            });
        };
        match (&one.action, &one.outcome) {
            (
                Action::Create { name, value } | Action::Update { name, value, .. },
                Outcome::Written(version),
            ) => see(*version, name.as_str(), value.as_str()),
            (Action::Get { name }, Outcome::Found { version, value }) => see(*version, name, value),
            (Action::GetAs { .. }, Outcome::Found { version, value }) => {
                see(*version, super::GUARDED, value);
            }
            (_, Outcome::Listed { items, .. }) => {
                for item in items {
                    see(item.version, &item.name, &item.value);
                }
            }
            _ => {}
        }
    }
    for (number, one) in history.sessions.iter().enumerate() {
        for event in one.events.iter().filter(|event| event.kind != Kind::Bookmark) {
            sights.push(Sight {
                at: event.seen,
                version: event.version,
                name: &event.name,
                value: &event.value,
                is_deletion: event.kind == Kind::Deleted,
                place: format!("stream {number} of {}", one.watcher),
            });
        }
    }
    sights.sort_by_key(|sight| sight.at);
    sights
}
