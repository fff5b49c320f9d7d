//! The last change under each of some prefixes: the notes that a compaction makes, and the search
//! in the history that is left. Common to all engines; each engine supplies the changes.

use std::ops::ControlFlow;

use crate::Position;

/// The most changes that one search looks at. Earlier changes count as changed.
const SEARCH_CHANGES: usize = 8192;

/// The position of the last change under each prefix, up to the compacted revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotedChanges {
    /// The compacted revision for which this holds. For another one it says nothing.
    pub(crate) compacted: u64,
    /// Prefixes, each with a packed position.
    pub(crate) last: Vec<(String, u64)>,
}

impl NotedChanges {
    /// The packed position after which no key under a prefix was changed up to the compacted
    /// revision. Unknown prefixes count as changed.
    fn last_change(&self, prefix: &str, compacted: u64) -> u64 {
        // If the two do not agree, one of them is corrupt, and the later one is safe.
        let unknown = match compacted.max(self.compacted) {
            0 => 0,
            gone => Position::end_of(gone).packed(),
        };
        if self.compacted != compacted {
            return unknown;
        }
        let noted = self.last.iter().find(|(noted, _)| noted == prefix);
        noted.map_or(unknown, |(_, packed)| *packed)
    }
}

/// Notes the changes that a compaction goes over.
#[derive(Debug)]
pub(crate) struct ChangeCollector<'a> {
    prefixes: &'a [String],
    /// For each prefix, a packed position.
    last: Vec<u64>,
}

impl<'a> ChangeCollector<'a> {
    /// Begins at the revision that is compacted now, with the notes made there.
    pub(crate) fn new(prefixes: &'a [String], noted: &NotedChanges, compacted: u64) -> Self {
        let last = prefixes.iter().map(|prefix| noted.last_change(prefix, compacted)).collect();
        Self { prefixes, last }
    }

    /// Notes a change. A change with an unreadable key counts for every prefix.
    pub(crate) fn see(&mut self, key: Option<&str>, packed: u64) {
        for (prefix, last) in self.prefixes.iter().zip(&mut self.last) {
            if is_under(key, prefix) {
                *last = packed.max(*last);
            }
        }
    }

    /// Ends with the compacted revision.
    pub(crate) fn finish(self, compacted: u64) -> NotedChanges {
        let last = self.prefixes.iter().cloned().zip(self.last).collect();
        NotedChanges { compacted, last }
    }
}

/// Searches history, from its end, for the last change under each prefix.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    prefixes: &'a [String],
    /// For each prefix, a packed position, once it is known.
    found: Vec<Option<u64>>,
    looked_at: usize,
}

impl<'a> Search<'a> {
    /// Begins a search.
    pub(crate) fn new(prefixes: &'a [String]) -> Self {
        Self { prefixes, found: vec![None; prefixes.len()], looked_at: 0 }
    }

    /// Looks at a change, which is before all changes that it has looked at. Breaks when there is
    /// nothing left to search for. A change with an unreadable key counts for every prefix.
    pub(crate) fn see(&mut self, key: Option<&str>, packed: u64) -> ControlFlow<()> {
        let key = if self.looked_at < SEARCH_CHANGES { key } else { None };
        self.looked_at += 1;
        for (prefix, found) in self.prefixes.iter().zip(&mut self.found) {
            if found.is_none() && is_under(key, prefix) {
                *found = Some(packed);
            }
        }
        if self.found.iter().all(Option::is_some) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Ends with the notes that were made when earlier history was compacted.
    pub(crate) fn finish(self, noted: &NotedChanges, compacted: u64) -> Vec<Position> {
        let of = |(prefix, found): (&String, Option<u64>)| {
            let packed = found.unwrap_or_else(|| noted.last_change(prefix, compacted));
            Position::from_packed(packed)
        };
        self.prefixes.iter().zip(self.found).map(of).collect()
    }
}

fn is_under(key: Option<&str>, prefix: &str) -> bool {
    key.is_none_or(|key| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes() -> Vec<String> {
        ["/a/", "/b/"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_note_for_another_compacted_revision_says_nothing() {
        let noted = ChangeCollector::new(&prefixes(), &NotedChanges::default(), 0).finish(9);
        assert_eq!(noted.last_change("/a/", 9), 0);
        assert_eq!(noted.last_change("/c/", 9), Position::end_of(9).packed());
        assert_eq!(noted.last_change("/a/", 10), Position::end_of(10).packed());
        assert_eq!(noted.last_change("/a/", 0), Position::end_of(9).packed());
    }

    #[test]
    fn a_change_without_a_key_counts_for_every_prefix() {
        let prefixes = prefixes();
        let mut collector = ChangeCollector::new(&prefixes, &NotedChanges::default(), 0);
        collector.see(None, 700);
        collector.see(Some("/b/1"), 800);
        let noted = collector.finish(4);
        assert_eq!([700, 800].map(Some), [0, 1].map(|index| Some(noted.last[index].1)));
        let mut search = Search::new(&prefixes);
        assert!(search.see(Some("/a/1"), 2000).is_continue());
        assert!(search.see(None, 1900).is_break());
        let found = search.finish(&noted, 4);
        assert_eq!(found, [2000, 1900].map(Position::from_packed));
    }

    #[test]
    fn a_search_is_bounded_and_what_it_did_not_see_counts_as_changed() {
        let prefixes = prefixes();
        let mut search = Search::new(&prefixes);
        let mut packed = 1 << 30;
        while search.see(Some("/other"), packed).is_continue() {
            packed -= 1;
        }
        assert_eq!(packed, (1 << 30) - SEARCH_CHANGES as u64);
        let found = search.finish(&NotedChanges::default(), 0);
        assert_eq!(found, [Position::from_packed(packed); 2]);
    }
}
