//! The revision since which each name means its present identity. A caller that impersonates a name
//! can read past versions only back to this revision.

use std::collections::HashMap;

/// How many names of users and teams that are gone are kept.
const MAX_GONE: usize = 4096;

/// The revisions of the changes of names.
#[derive(Debug, Default)]
pub(super) struct NameChanges {
    /// The last change of a name, if it is later than that of the others.
    changed_at: HashMap<String, u64>,
    /// Since when all other names are as they are, as far as is known.
    others_since: u64,
}

impl NameChanges {
    /// Sets since when all names are as they are, if no other revision is known yet.
    pub(super) fn begin(&mut self, revision: u64) {
        if self.others_since == 0 && self.changed_at.is_empty() {
            self.others_since = revision;
        }
    }

    /// Notes that a name means another identity from a revision on. `known` is how many users and teams there are.
    pub(super) fn note(&mut self, name: &str, revision: u64, known: usize) {
        if revision <= self.since(name) || name.is_empty() {
            return;
        }
        // Each may have a name and a subject.
        if self.changed_at.len() > 2 * known + MAX_GONE {
            self.changed_at.clear();
            self.others_since = revision;
        } else {
            self.changed_at.insert(name.to_owned(), revision);
        }
    }

    /// The revision since which a name means the identity that it means now.
    pub(super) fn since(&self, name: &str) -> u64 {
        self.changed_at.get(name).copied().unwrap_or(self.others_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_taken_for_changed() {
        let mut names = NameChanges::default();
        names.begin(5);
        names.begin(7);
        assert_eq!(names.since("ada"), 5);
        names.note("ada", 8, 1);
        assert_eq!((names.since("ada"), names.since("bob")), (8, 5));
        for number in 0..2 * MAX_GONE as u64 {
            names.note(&format!("gone-{number}"), 9 + number, 1);
        }
        assert!(names.changed_at.len() <= MAX_GONE + 3);
        assert!(names.since("ada") > 8);
        assert_eq!(names.since("bob"), names.others_since);
    }
}
