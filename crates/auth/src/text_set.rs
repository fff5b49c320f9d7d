//! A set of texts that is made once and asked often. Large ones cost little more than small ones.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

/// A set of this many texts or fewer is searched one by one.
const FEW: usize = 8;

/// The verbs that most rules have.
const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Returns a text that others share: all rules have the same verbs, groups and resources. It takes less
/// memory, and what many decisions read is fast to read.
pub(crate) fn shared(text: &str) -> Arc<str> {
    static COMMON: LazyLock<HashSet<Arc<str>>> = LazyLock::new(|| {
        let kinds = postern_kinds::all().iter().map(|kind| kind.info());
        let of_kinds = kinds.flat_map(|info| [info.version.group, info.plural]);
        VERBS.into_iter().chain(["", "status"]).chain(of_kinds).map(Arc::from).collect()
    });
    COMMON.get(text).cloned().unwrap_or_else(|| Arc::from(text))
}

/// A set of texts, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextSet(Box<[Arc<str>]>);

impl TextSet {
    /// Returns the set of these texts.
    pub(crate) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut texts: Vec<Arc<str>> = texts.into_iter().map(shared).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.into_boxed_slice())
    }

    /// Is this text in the set?
    pub(crate) fn has(&self, text: &str) -> bool {
        if self.0.len() <= FEW {
            return self.0.iter().any(|one| **one == *text);
        }
        self.0.binary_search_by(|one| (**one).cmp(text)).is_ok()
    }

    /// Are all texts of another set in this one?
    pub(crate) fn has_all(&self, other: &Self) -> bool {
        other.0.iter().all(|one| self.has(one))
    }

    /// Returns the texts, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
