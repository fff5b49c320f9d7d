//! A set of texts that is made once and asked often. Large ones cost little more than small ones.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;

/// A set of this many texts or fewer is searched one by one.
const FEW: usize = 8;

/// The verbs that most rules have.
const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// A text that others share: all rules have the same verbs, groups and resources. It takes less
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
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSet {
    texts: Box<[Arc<str>]>,
    /// The same texts as a hash set, if there are many. A query then takes one look-up instead of a
    /// linear search.
    many: Option<Arc<HashSet<Arc<str>, RandomState>>>,
}

impl PartialEq for TextSet {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl Eq for TextSet {}

impl TextSet {
    /// The set of these texts.
    pub(crate) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut texts: Vec<Arc<str>> = texts.into_iter().map(shared).collect();
        texts.sort_unstable();
        texts.dedup();
        let many = (texts.len() > FEW).then(|| Arc::new(texts.iter().cloned().collect()));
        Self { texts: texts.into_boxed_slice(), many }
    }

    /// Whether the set contains a text.
    pub(crate) fn has(&self, text: &str) -> bool {
        match &self.many {
            Some(many) => many.contains(text),
            None => self.texts.iter().any(|one| **one == *text),
        }
    }

    /// Whether the set contains all texts of another set.
    pub(crate) fn has_all(&self, other: &Self) -> bool {
        other.iter().all(|one| self.has(one))
    }

    /// The texts, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.texts.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}
