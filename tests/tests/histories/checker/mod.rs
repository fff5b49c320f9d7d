//! Checks a history against the promises of a fleet. It knows nothing of servers.
//!
//! - Each name is a register, and all registers have one order: the order of the versions. A read
//!   sees the newest version that any client had seen before it began.
//! - Each watch has all changes once and in order.
//! - No acknowledged write is lost, and no refused write happens.
//! - A user never gets an object without the right to read it.

mod access;
mod model;
mod registers;
mod watches;

use self::model::Model;
use super::history::History;

/// The object that users may read only with a grant. It is never deleted.
pub(crate) const GUARDED: &str = "vault";

/// The most violations of one rule that are told.
const MAX_TOLD: usize = 4;

/// The broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// One version has one state.
    TwoStates,
    /// All that is seen was written by a client.
    NeverWritten,
    /// A write that was refused never appears.
    RefusedWriteAppears,
    /// A write appears at the version that was acknowledged.
    Contradicted,
    /// A write appears once.
    AppearsTwice,
    /// A write does not appear before it is asked for.
    FromTheFuture,
    /// A write has a greater version than all that were seen before it was asked for.
    VersionWentBack,
    /// A write with a precondition replaces the state that it names.
    PreconditionIgnored,
    /// A read sees all that was seen before it.
    StaleRead,
    /// A list has all that was acknowledged before its version.
    LostWrite,
    /// A list is the state at its version.
    WrongList,
    /// A watch is in the order of versions, without repetition.
    WatchOrder,
    /// A watch has all changes.
    WatchMissed,
    /// An event says rightly whether the object is new.
    WatchKind,
    /// A watch ends with 410 if it has shown changes that a restore has removed.
    WatchOverRestore,
    /// A watch reaches the last write.
    WatcherBehind,
    /// A user reads nothing after a withdrawal.
    ReadAfterWithdrawal,
    /// A user's watch shows no change after a withdrawal.
    EventAfterWithdrawal,
    /// A user with a grant can read.
    DeniedAfterGrant,
}

/// One broken promise, and where.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

/// The violations found so far.
#[derive(Debug, Default)]
pub(crate) struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, rule: Rule, text: impl FnOnce() -> String) {
        if self.0.iter().filter(|told| told.rule == rule).count() < MAX_TOLD {
            self.0.push(Violation { rule, text: text() });
        }
    }

    fn check(&mut self, holds: bool, rule: Rule, text: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, text);
        }
    }
}

/// Checks a history. Returns the first violations.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut violations = Violations::default();
    let model = Model::new(history, &mut violations);
    registers::check(&model, &mut violations);
    watches::check(&model, &mut violations);
    access::check(history, &model, &mut violations);
    violations.0
}
