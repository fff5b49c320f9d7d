//! A role, compiled once, and shared by all its holders.

use std::sync::Arc;

use postern_kinds::rbac::PolicyRule;

use super::rule::{ResourceQuery, Rule};
use super::rule_index::{MAX_COMBINATIONS, RuleIndex};
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
    rule_index: Option<RuleIndex>,
    /// The rules that are not in the index.
    wide: Vec<usize>,
    /// For each rule, one about the kinds that it concerns.
    kinds: Vec<Rule>,
    has_paths: bool,
}

impl Role {
    /// Compiles a role.
    pub(crate) fn of(key: PolicyKey, source: Vec<PolicyRule>) -> Self {
        let rules: Vec<Rule> = source.iter().map(Rule::of).collect();
        let is_wide = |rule: &Rule| rule.combinations() > MAX_COMBINATIONS;
        let wide: Vec<usize> = (0..rules.len()).filter(|&index| is_wide(&rules[index])).collect();
        let mut rule_index = RuleIndex::default();
        if rules.len() > FEW_RULES {
            for rule in &rules {
                rule_index.add(rule);
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
            rule_index: (rules.len() > FEW_RULES).then_some(rule_index),
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

    /// Whether it has rules that are not in an index: those with paths, or with too many combinations.
    pub(crate) fn is_wide(&self) -> bool {
        self.has_paths || !self.wide.is_empty()
    }

    /// Whether a rule allows the request.
    pub(crate) fn allows(&self, query: &ResourceQuery<'_>) -> bool {
        match &self.rule_index {
            Some(rule_index) => rule_index.allow(query) || self.wide_allows(query),
            None => self.rules.iter().any(|rule| rule.allows(query)),
        }
    }

    /// Whether a rule that is not in the index allows the request.
    pub(crate) fn wide_allows(&self, query: &ResourceQuery<'_>) -> bool {
        self.wide.iter().any(|&index| self.rules[index].allows(query))
    }

    /// Whether a rule allows this verb on a non-resource path.
    pub(crate) fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.has_paths && self.rules.iter().any(|rule| rule.allows_path(verb, path))
    }
}
