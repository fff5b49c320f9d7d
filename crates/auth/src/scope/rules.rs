//! The rules of a scope, found by their fields. Evaluating a hundred rules costs about as much as
//! one.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use postern_kinds::scope::ScopeRule;

use super::rule::{Location, Pattern, Rule};
use crate::attributes::{Attributes, Request, RequestTarget};

/// A part of a request by which rules are found. A rule is under the one that it shares with the fewest
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Name,
    Namespace,
    Resource,
    Verb,
}

const PARTS: [Part; 4] = [Part::Name, Part::Namespace, Part::Resource, Part::Verb];

type RulesByText = HashMap<Box<str>, Vec<usize>, RandomState>;

/// The rules of a scope.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    /// By each part, in the order of [`PARTS`].
    by_part: [RulesByText; 4],
    /// The rules that no part finds.
    others: Vec<usize>,
}

impl Rules {
    pub(super) fn new(rules: &[ScopeRule]) -> Self {
        let rules: Vec<Rule> = rules.iter().filter_map(Rule::of).collect();
        let mut uses: HashMap<(Part, &str), usize, RandomState> = HashMap::default();
        for rule in &rules {
            for part in PARTS {
                for text in texts(rule, part).unwrap_or_default() {
                    *uses.entry((part, text)).or_default() += 1;
                }
            }
        }
        let mut by_part: [RulesByText; 4] = Default::default();
        let mut others = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let most = |texts: &[&str], part| texts.iter().map(|text| uses[&(part, *text)]).max();
            let parts = PARTS.iter().enumerate().filter_map(|(at, part)| {
                let texts = texts(rule, *part)?;
                Some((most(&texts, *part).unwrap_or(0), at, texts))
            });
            match parts.min_by_key(|(most, at, _)| (*most, *at)) {
                None => others.push(index),
                Some((_, at, texts)) => {
                    for text in texts {
                        by_part[at].entry(text.into()).or_default().push(index);
                    }
                }
            }
        }
        Self { all: rules, by_part, others }
    }

    pub(super) fn all(&self) -> &[Rule] {
        &self.all
    }

    /// Whether a rule matches a request at a location.
    pub(super) fn allow(&self, request: &Request<'_>, location: Location<'_>) -> bool {
        let allows = |indexes: &[usize]| {
            indexes.iter().any(|&index| self.all[index].allows(request, location))
        };
        if self.all.is_empty() {
            return false;
        }
        let found = |part: Part, text: &str| {
            let rules = &self.by_part[part as usize];
            !rules.is_empty() && rules.get(text).is_some_and(|indexes| allows(indexes))
        };
        let by_part = match request.attributes {
            Attributes::Resource { verb, resource, name, .. } => {
                let namespace =
                    if let Location::Namespace(namespace) = location { namespace } else { "" };
                found(Part::Name, name)
                    || found(Part::Namespace, namespace)
                    || found(Part::Resource, resource)
                    || found(Part::Verb, verb)
            }
            Attributes::Path { verb, .. } | Attributes::Description { verb, .. } => {
                found(Part::Verb, verb)
            }
        };
        by_part || allows(&self.others)
    }

    /// Whether a rule can match requests to a target.
    pub(super) fn reach_target(&self, target: RequestTarget<'_>) -> bool {
        self.all.iter().any(|rule| rule.reaches(target))
    }
}

/// The texts of which a request must have one in this part, if the rule names any.
fn texts(rule: &Rule, part: Part) -> Option<Vec<&str>> {
    let mut texts: Vec<&str> = match part {
        Part::Verb => rule.verbs.as_ref()?.iter().map(|text| &**text).collect(),
        Part::Namespace => rule.namespaces.as_ref()?.iter().map(|text| &**text).collect(),
        Part::Name => {
            let mut texts = Vec::new();
            for element in rule.elements.as_ref()? {
                texts.extend(element.names.as_ref()?.iter().map(|text| &**text));
            }
            texts
        }
        Part::Resource => {
            let mut texts = Vec::new();
            for element in rule.elements.as_ref()? {
                for pattern in element.patterns.as_ref()? {
                    match pattern {
                        Pattern::One(resource, _) | Pattern::SubresourcesOf(resource) => {
                            texts.push(&**resource);
                        }
                        Pattern::All | Pattern::Everywhere(_) => return None,
                    }
                }
            }
            texts
        }
    };
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}
