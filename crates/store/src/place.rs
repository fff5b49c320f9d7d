//! How far a watch has come. Pure arithmetic on positions; where the changes come from is the
//! engines' business.

use crate::{Error, Event, Position, Result};

/// A watch's prefix, and the last position that it has no further need of.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    prefix: String,
    after: Position,
}

impl Place {
    /// A watch that starts just behind a position.
    pub(crate) fn new(prefix: &str, after: Position) -> Self {
        Self { prefix: prefix.to_owned(), after }
    }

    /// The newest revision of which nothing is left to deliver. When the watch began between two
    /// changes of a revision, that revision is not done yet.
    pub(crate) fn done(&self) -> u64 {
        if self.after.index() == u8::MAX {
            self.after.revision()
        } else {
            self.after.revision().saturating_sub(1)
        }
    }

    /// The first packed position that is still to come; `None` when there can be none.
    pub(crate) fn first_packed(&self) -> Option<u64> {
        self.after.packed().checked_add(1)
    }

    /// Whether a change to this key belongs to the watch at all.
    pub(crate) fn covers(&self, key: &str) -> bool {
        key.starts_with(&self.prefix)
    }

    /// Whether this event is still to be delivered.
    pub(crate) fn wants(&self, event: &Event) -> bool {
        event.position > self.after && self.covers(&event.key)
    }

    /// Everything up to the end of a revision is delivered.
    pub(crate) fn reached(&mut self, revision: u64) {
        self.after = self.after.max(Position::end_of(revision));
    }

    /// Fails when history that is still to be delivered has been compacted.
    pub(crate) fn check_kept(&self, compacted: u64) -> Result<()> {
        if compacted > 0 && self.after < Position::end_of(compacted) {
            return Err(Error::Compacted { compacted });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_between_two_changes_has_not_done_their_revision() {
        assert_eq!(Place::new("", Position::ZERO).done(), 0);
        assert_eq!(Place::new("", Position::new(7, 3)).done(), 6);
        assert_eq!(Place::new("", Position::end_of(7)).done(), 7);
    }

    #[test]
    fn progress_never_goes_back() {
        let mut place = Place::new("", Position::end_of(9));
        place.reached(4);
        assert_eq!(place.done(), 9);
    }

    #[test]
    fn the_end_of_the_compacted_revision_is_kept() {
        assert!(Place::new("", Position::end_of(4)).check_kept(4).is_ok());
        assert!(Place::new("", Position::new(4, 200)).check_kept(4).is_err());
        assert!(Place::new("", Position::ZERO).check_kept(0).is_ok());
    }
}
