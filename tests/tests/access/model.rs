//! A model of the objects that a user may get while shares, teams, roles and a scope change. It is
//! the test's own account, with the revisions at which each state held.

use std::collections::{BTreeMap, BTreeSet};

use postern_tests::Random;

/// How many secrets there are at most.
pub(crate) const SECRETS: usize = 10;

/// How many teams there are.
pub(crate) const TEAMS: usize = 3;

/// The secret that the group `readers` may read.
pub(crate) const OF_READERS: usize = 0;

/// Names of secrets.
pub(crate) type Names = BTreeSet<String>;

/// The state that decides which secrets one user may read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) existing: BTreeSet<usize>,
    /// For each secret, whether it is shared with the user, and the teams that it is shared with.
    pub(crate) shares: BTreeMap<usize, (bool, BTreeSet<usize>)>,
    pub(crate) member_of: BTreeSet<usize>,
    /// The teams that are in the group `readers`.
    pub(crate) reading_teams: BTreeSet<usize>,
    /// Secrets for which the user holds a role.
    pub(crate) roles: BTreeSet<usize>,
    /// The secrets that the scope of the user's key allows; `None` for all.
    pub(crate) scope: Option<BTreeSet<usize>>,
}

pub(crate) fn name_of(secret: usize) -> String {
    format!("s{secret}")
}

impl Model {
    /// The secrets that the user may get.
    pub(crate) fn visible(&self) -> Names {
        let may = |secret: &usize| {
            let (own, teams) = self.shares.get(secret).cloned().unwrap_or_default();
            let by_team = teams.intersection(&self.member_of).next().is_some();
            let by_group = *secret == OF_READERS
                && self.reading_teams.intersection(&self.member_of).next().is_some();
            own || by_team || by_group || self.roles.contains(secret)
        };
        let in_scope = |secret: &usize| self.scope.as_ref().is_none_or(|all| all.contains(secret));
        let readable = self.existing.iter().filter(|secret| may(secret) && in_scope(secret));
        readable.map(|secret| name_of(*secret)).collect()
    }
}

/// Puts a number into a set, or takes it out. Returns whether it is in now.
pub(crate) fn toggle(set: &mut BTreeSet<usize>, number: usize) -> bool {
    if set.remove(&number) { false } else { set.insert(number) }
}

/// Draws a set of numbers below `end`.
pub(crate) fn some_below(random: &mut Random, end: usize) -> BTreeSet<usize> {
    (0..end).filter(|_| random.below(2) == 0).collect()
}

/// A state, and between which revisions it began.
#[derive(Debug)]
pub(crate) struct State {
    /// The state began after this revision.
    after: u64,
    /// The state began at this revision at the latest.
    latest: u64,
    /// The secrets that the user might get.
    pub(crate) names: Names,
    /// The change with which it began, to read in failures.
    #[expect(dead_code, reason = "it is printed")]
    change: &'static str,
}

/// The states, in order.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Vec<State>);

impl Timeline {
    /// Adds the state that began at a revision.
    pub(crate) fn at(&mut self, revision: u64, names: Names, change: &'static str) {
        // A write that changed nothing answers with an older version.
        if self.0.last().is_none_or(|state| state.latest < revision) {
            self.0.push(State { after: revision - 1, latest: revision, names, change });
        }
    }

    /// Adds the state that began after everything that is known, and not after a revision.
    pub(crate) fn until(&mut self, revision: u64, names: Names, change: &'static str) {
        let after = self.0.last().map_or(0, |state| state.latest);
        self.0.push(State { after, latest: revision, names, change });
    }

    /// The states in which everything may have been at a revision.
    pub(crate) fn possible(&self, revision: u64) -> impl Iterator<Item = &State> {
        let next = self.0.iter().skip(1).map(|state| state.latest).chain([u64::MAX]);
        let states = self.0.iter().zip(next);
        states
            .filter(move |(state, next)| state.after < revision && revision < *next)
            .map(|(state, _)| state)
    }

    /// The last states that had begun by a revision, to read in failures.
    pub(crate) fn before(&self, revision: u64) -> Vec<&State> {
        let begun = self.0.iter().filter(|state| state.after <= revision);
        begun.rev().take(4).collect()
    }
}
