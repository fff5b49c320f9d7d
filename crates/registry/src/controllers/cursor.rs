//! A position in the events of one kind, for controllers.

use std::sync::Arc;

use postern_store::Position;

use crate::cache::{CacheEvent, Next, ResourceCache};

/// A position in the events of one kind. A new cursor has read nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor(Option<Position>);

/// The result of a read after a cursor.
pub(super) enum CursorRead {
    /// Events, oldest first.
    Events(Vec<Arc<CacheEvent>>),
    /// All objects of the kind must be read: their events are no longer in memory. A change during the read comes
    /// again as an event.
    Expired,
}

impl Cursor {
    /// A cursor after the present objects of a kind.
    pub(super) fn after_present(resource: &ResourceCache) -> Self {
        Self(Some(Position::end_of(resource.revision())))
    }

    /// Moves on. `None` if there is no event now.
    pub(super) fn next(&mut self, resource: &ResourceCache) -> Option<CursorRead> {
        let read = self.0.map(|position| (position, resource.events_after(position)));
        match read {
            Some((_, Next::Events(events))) => {
                self.0 = events.last().map(|event| event.position());
                Some(CursorRead::Events(events))
            }
            Some((position, Next::Idle(revision))) => {
                self.0 = Some(position.max(Position::end_of(revision)));
                None
            }
            None | Some((_, Next::Expired(_))) => {
                *self = Self::after_present(resource);
                Some(CursorRead::Expired)
            }
        }
    }
}
