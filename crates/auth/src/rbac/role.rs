//! A role, compiled once, and shared by everyone who holds it.

use std::sync::Arc;

use postern_kinds::rbac::PolicyRule;

use super::cells::{Cells, MAX_CELLS};
use super::rule::{ResourceQuery, Rule};
use crate::explanation::PolicyName;

/// A role of this many rules or fewer is searched rule by rule.
const FEW_RULES: usize = 4;

/// The namespace and name of a role or a binding; without a namespace for those that hold everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PolicyKey {
    /// The namespace; `None` for a ClusterRole or ClusterRoleBinding.
    pub(crate) namespace: Option<Arc<str>>,
    /// The name.
    pub(crate) name: Arc<str>,
}

impl PolicyKey {
    /// The key of a namespace and name.
    pub(crate) fn of(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.map(Arc::from), name: Arc::from(name) }
    }

    /// The public form.
    pub(crate) fn to_name(&self) -> PolicyName {
        PolicyName {
            namespace: self.namespace.as_ref().map(ToString::to_string),
            name: self.name.to_string(),
        }
    }
}

/// A role, compiled.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) key: PolicyKey,
    /// The rules as they were written.
    pub(crate) source: Vec<PolicyRule>,
    rules: Vec<Rule>,
    /// The combined permissions of all rules; `None` for a role of few rules.
    cells: Option<Cells>,
    /// The rules that have no cells.
    wide: Vec<usize>,
    /// For each rule, one about the kinds that it concerns.
    kinds: Vec<Rule>,
    has_paths: bool,
}

impl Role {
    /// Compiles a role.
    pub(crate) fn of(key: PolicyKey, source: Vec<PolicyRule>) -> Self {
        let rules: Vec<Rule> = source.iter().map(Rule::of).collect();
        let is_wide = |rule: &Rule| rule.combinations() > MAX_CELLS;
        let wide: Vec<usize> = (0..rules.len()).filter(|&index| is_wide(&rules[index])).collect();
        let mut cells = Cells::default();
        if rules.len() > FEW_RULES {
            for rule in &rules {
                cells.add(rule);
            }
        }
        let mut kinds: Vec<Rule> = rules.iter().map(Rule::of_kinds).collect();
        for kind in kinds.iter_mut().filter(|kind| is_wide(kind)) {
            kind.groups.all = true;
            kind.groups.texts = crate::text_set::TextSet::default();
            kind.resources = super::rule::Resources { all: true, ..Default::default() };
        }
        Self {
            has_paths: rules.iter().any(|rule| !rule.paths.is_empty()),
            cells: (rules.len() > FEW_RULES).then_some(cells),
            key,
            source,
            rules,
            wide,
            kinds,
        }
    }

    /// Its rules.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// For each rule, one about the kinds that it concerns.
    pub(crate) fn kinds(&self) -> &[Rule] {
        &self.kinds
    }

    /// Does it have rules that cells do not tell: paths, or rules with too many combinations?
    pub(crate) fn is_wide(&self) -> bool {
        self.has_paths || !self.wide.is_empty()
    }

    /// Does a rule allow this?
    pub(crate) fn allows(&self, query: &ResourceQuery<'_>) -> bool {
        match &self.cells {
            Some(cells) => cells.allow(query) || self.wide_allows(query),
            None => self.rules.iter().any(|rule| rule.allows(query)),
        }
    }

    /// Does a rule that has no cells allow this?
    pub(crate) fn wide_allows(&self, query: &ResourceQuery<'_>) -> bool {
        self.wide.iter().any(|&index| self.rules[index].allows(query))
    }

    /// Does a rule allow this method on a path?
    pub(crate) fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.has_paths && self.rules.iter().any(|rule| rule.allows_path(verb, path))
    }
}
