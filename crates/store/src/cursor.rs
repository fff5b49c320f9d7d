//! The cursor of a watch: arithmetic on positions, common to all engines. Where the changes come from
//! is up to the engines.

use std::ops::ControlFlow;

use crate::{Error, Event, Events, Position, Result};

/// The prefix of a watch, and the position up to which everything is delivered.
#[derive(Clone, Debug)]
pub struct Cursor {
    prefix: String,
    after: Position,
}

impl Cursor {
    /// The cursor of a watch that starts right after a position.
    pub fn new(prefix: &str, after: Position) -> Self {
        Self { prefix: prefix.to_owned(), after }
    }

    /// The newest revision of which nothing is left to deliver. When the watch began between
    /// two changes of a revision, that revision is not delivered yet.
    pub fn delivered_revision(&self) -> u64 {
        if self.after.index() == u8::MAX {
            self.after.revision()
        } else {
            self.after.revision().saturating_sub(1)
        }
    }

    /// The first packed position that is not delivered; `None` when there can be none.
    pub(crate) fn first_packed(&self) -> Option<u64> {
        self.after.packed().checked_add(1)
    }

    /// The end of a revision, or the end of the delivered changes if that is later.
    pub(crate) fn end_of(&self, revision: u64) -> Position {
        self.after.max(Position::end_of(revision))
    }

    /// Whether the watch covers a key: whether the key is under its prefix.
    pub fn covers(&self, key: &str) -> bool {
        key.starts_with(&self.prefix)
    }

    /// Whether an event is still to be delivered.
    pub fn should_deliver(&self, event: &Event) -> bool {
        event.position > self.after && self.covers(&event.key)
    }

    /// Notes that everything up to the end of a revision is delivered. Never moves back.
    pub fn advance_to(&mut self, revision: u64) {
        self.after = self.end_of(revision);
    }

    /// Checks that no history that is still to be delivered is compacted: [`Error::Compacted`] if
    /// it is.
    pub fn check_not_compacted(&self, compacted: u64) -> Result<()> {
        if compacted > 0 && self.after < Position::end_of(compacted) {
            return Err(Error::Compacted { compacted });
        }
        Ok(())
    }
}

/// Changes that are looked at for one page of events.
const EVENTS_CHANGES: usize = 1024;
/// Bytes of values, new and previous, on one page of events, about.
const EVENTS_BYTES: usize = 64 * 1024;

/// A page of events that is being read: see [`crate::Store::next_events`].
pub struct EventsPage {
    read: Events,
    seen: usize,
    bytes: usize,
}

impl EventsPage {
    /// An empty page after a cursor and up to a position, for an engine with the given newest
    /// revision.
    pub fn new(cursor: &Cursor, newest: u64, until: Position) -> Self {
        let through = cursor.after.max(cursor.end_of(newest).min(until));
        let read = Events { events: Vec::new(), through };
        Self { read, seen: 0, bytes: 0 }
    }

    /// Counts the change at a packed position. Breaks when the page ends before it.
    pub fn see(&mut self, packed: u64) -> ControlFlow<()> {
        if packed > self.read.through.packed() {
            return ControlFlow::Break(());
        }
        if self.seen >= EVENTS_CHANGES || self.bytes >= EVENTS_BYTES {
            self.read.through = Position::from_packed(packed - 1);
            return ControlFlow::Break(());
        }
        self.seen += 1;
        ControlFlow::Continue(())
    }

    /// Adds the event of the change that was counted last.
    pub fn add(&mut self, event: Event) {
        self.bytes += event.bytes();
        self.read.events.push(event);
    }

    /// The events that were read.
    pub fn finish(self) -> Events {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Replaced;

    #[test]
    fn a_page_of_events_ends_where_it_is_full() {
        let event = |packed, length| Event {
            key: "/a".into(),
            position: Position::from_packed(packed),
            value: Some(vec![0; length].into()),
            replaced: Replaced::New,
        };
        let mut page = EventsPage::new(&Cursor::new("", Position::ZERO), 9, Position::MAX);
        for packed in [300, 301] {
            assert!(page.see(packed).is_continue());
            page.add(event(packed, EVENTS_BYTES / 2));
        }
        assert!(page.see(512).is_break());
        let read = page.finish();
        assert_eq!((read.events.len(), read.through), (2, Position::end_of(1)));

        let mut page = EventsPage::new(&Cursor::new("", Position::ZERO), 9, Position::MAX);
        assert!((0..EVENTS_CHANGES as u64).all(|packed| page.see(packed).is_continue()));
        assert!(page.see(EVENTS_CHANGES as u64).is_break());
        assert_eq!(page.finish().through.packed(), EVENTS_CHANGES as u64 - 1);
        let page = EventsPage::new(&Cursor::new("", Position::new(12, 3)), 9, Position::MAX);
        assert_eq!(page.finish().through, Position::new(12, 3), "it never goes back");
        let mut page = EventsPage::new(&Cursor::new("", Position::ZERO), 9, Position::new(4, 1));
        assert!(page.see(Position::new(4, 1).packed()).is_continue());
        assert!(page.see(Position::new(4, 2).packed()).is_break());
        assert_eq!(page.finish().through, Position::new(4, 1), "it ends where the caller wants");
    }

    #[test]
    fn a_cursor_between_two_changes_has_not_delivered_their_revision() {
        assert_eq!(Cursor::new("", Position::ZERO).delivered_revision(), 0);
        assert_eq!(Cursor::new("", Position::new(7, 3)).delivered_revision(), 6);
        assert_eq!(Cursor::new("", Position::end_of(7)).delivered_revision(), 7);
    }

    #[test]
    fn a_cursor_never_moves_back() {
        let mut cursor = Cursor::new("", Position::end_of(9));
        cursor.advance_to(4);
        assert_eq!(cursor.delivered_revision(), 9);
    }

    #[test]
    fn the_end_of_the_compacted_revision_is_not_compacted() {
        assert!(Cursor::new("", Position::end_of(4)).check_not_compacted(4).is_ok());
        assert!(Cursor::new("", Position::new(4, 200)).check_not_compacted(4).is_err());
        assert!(Cursor::new("", Position::ZERO).check_not_compacted(0).is_ok());
    }
}
