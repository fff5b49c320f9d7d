//! A history: the requests of clients to servers, the responses to them, and their order.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A place in the order of all that the test process has done. Two places are never equal.
pub(crate) type Moment = u64;

/// A resourceVersion.
pub(crate) type Version = u64;

/// One request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The client, for people.
    pub(crate) client: String,
    /// The number of the server.
    pub(crate) server: usize,
    /// Before the request was sent.
    pub(crate) invoked: Moment,
    /// After the answer was read, or the client gave up.
    pub(crate) completed: Moment,
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
}

/// A request. Each value is written by one operation only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create {
        name: String,
        value: String,
    },
    /// With a version as its precondition, or a patch without one.
    Update {
        name: String,
        value: String,
        from: Option<Version>,
    },
    Delete {
        name: String,
        from: Version,
    },
    Get {
        name: String,
    },
    List,
    /// Lets a user read the guarded object.
    Grant {
        user: String,
    },
    /// Ends the last grant.
    Withdraw {
        user: String,
    },
    /// A get of the guarded object by a user that needs a grant.
    GetAs {
        user: String,
    },
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A write, with its version.
    Written(Version),
    /// A deletion or a withdrawal. The response does not contain its version.
    Done,
    Found {
        version: Version,
        value: String,
    },
    Absent,
    Listed {
        version: Version,
        items: Vec<Item>,
    },
    /// The operation was not done, and never will be.
    Refused(u16),
    /// The operation may have been done already, may be done later, or may never be done.
    Unknown(String),
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) value: String,
}

/// One stream of a watcher.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) watcher: String,
    pub(crate) server: usize,
    /// The user, if it needs a grant; it sees the guarded object alone.
    pub(crate) user: Option<String>,
    pub(crate) start: Start,
    /// The version after which it starts.
    pub(crate) after: Version,
    pub(crate) opened: Moment,
    pub(crate) events: Vec<Event>,
    pub(crate) end: End,
}

/// Where a stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At a list.
    Listed,
    /// Where the stream before it ended.
    Resumed,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was over, or its connection was lost.
    Closed,
    /// With 410: the watcher lists again.
    Expired,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) seen: Moment,
    pub(crate) kind: Kind,
    /// Empty for a bookmark.
    pub(crate) name: String,
    pub(crate) version: Version,
    /// The value; for a deletion the last one; empty for a bookmark.
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

/// A restore of an older state. No client writes while the state is saved, nor while it is restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The newest version of the state that was restored.
    pub(crate) kept: Version,
    /// The newest version before the restore: versions after `kept` up to this one are lost.
    pub(crate) last: Version,
    pub(crate) began: Moment,
    /// From here on, each server responds from the restored data.
    pub(crate) ended: Moment,
}

/// All that happened in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) cuts: Vec<Cut>,
    /// The last write, which each watcher has waited for.
    pub(crate) last: Version,
    /// The faults at the servers, for human readers.
    pub(crate) notes: Vec<(Moment, String)>,
}

impl History {
    /// The history as text: a line for each operation, event and note, in the order of completion.
    pub(crate) fn text(&self) -> String {
        let mut lines: Vec<(Moment, String)> = Vec::new();
        for (number, one) in self.operations.iter().enumerate() {
            let line = format!(
                "{:>8} to {:>8} operation {number} {} at server {}: {:?} -> {:?}",
                one.invoked, one.completed, one.client, one.server, one.action, one.outcome
            );
            lines.push((one.completed, line));
        }
        for (number, one) in self.sessions.iter().enumerate() {
            let line = format!(
                "{:>8} stream {number} of {} at server {} after {}: {:?}, {:?}",
                one.opened, one.watcher, one.server, one.after, one.start, one.end
            );
            lines.push((one.opened, line));
            lines.extend(one.events.iter().map(|event| {
                let line = format!(
                    "{:>8} stream {number} of {}: {:?} {} {} {}",
                    event.seen, one.watcher, event.kind, event.name, event.version, event.value
                );
                (event.seen, line)
            }));
        }
        lines.extend(self.notes.iter().map(|(at, note)| (*at, format!("{at:>8} == {note}"))));
        lines.extend(
            self.cuts.iter().map(|cut| (cut.ended, format!("{:>8} == {cut:?}", cut.ended))),
        );
        lines.sort();
        let mut text = String::new();
        for (_, line) in lines {
            writeln!(text, "{line}").unwrap();
        }
        text
    }
}

/// Writes a history down while it happens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    clock: Arc<AtomicU64>,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// The next moment.
    pub(crate) fn now(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn operation(&self, operation: Operation) {
        self.history.lock().unwrap().operations.push(operation);
    }

    pub(crate) fn session(&self, session: Session) {
        self.history.lock().unwrap().sessions.push(session);
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.history.lock().unwrap().cuts.push(cut);
    }

    pub(crate) fn note(&self, note: &str) {
        let now = self.now();
        self.history.lock().unwrap().notes.push((now, note.to_owned()));
    }

    /// The history so far.
    pub(crate) fn history(&self) -> History {
        self.history.lock().unwrap().clone()
    }
}
