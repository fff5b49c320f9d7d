//! One rule of a role, compiled: does it allow this?

use std::sync::Arc;

use postern_kinds::rbac::{ALL, PolicyRule};

use crate::text_set::{TextSet, shared};

/// A question about a resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceQuery<'a> {
    /// The verb. `*` asks for every verb.
    pub(crate) verb: &'a str,
    /// The API group. `*` asks for every group.
    pub(crate) group: &'a str,
    /// The plural name. `*` asks for every resource.
    pub(crate) resource: &'a str,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The object's name, empty for a collection; `None` asks for every object, so that a rule with
    /// names never matches.
    pub(crate) name: Option<&'a str>,
}

/// Texts, or all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) all: bool,
    pub(crate) texts: TextSet,
}

impl Texts {
    fn of(texts: &[String]) -> Self {
        let all = texts.iter().any(|text| text == ALL);
        let texts = texts.iter().map(String::as_str).filter(|text| *text != ALL);
        Self { all, texts: TextSet::of(texts) }
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.all || self.texts.has(text)
    }
}

/// A resource, and a subresource or the empty text.
pub(crate) type ResourcePair = (Arc<str>, Arc<str>);

/// The resources of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    /// All of them, with all their subresources.
    pub(crate) all: bool,
    /// These subresources of every resource.
    pub(crate) any_with: TextSet,
    /// Single ones, sorted.
    pub(crate) exact: Box<[ResourcePair]>,
}

impl Resources {
    fn of(resources: &[String]) -> Self {
        let mut any_with = Vec::new();
        let mut exact: Vec<ResourcePair> = Vec::new();
        for text in resources {
            match text.split_once('/') {
                Some((ALL, "")) => {}
                Some((ALL, subresource)) => any_with.push(subresource),
                // Names no subresource, so it is no resource that a request can be for.
                Some((_, "")) => {}
                Some((resource, subresource)) => {
                    exact.push((shared(resource), shared(subresource)));
                }
                None if text == ALL => {}
                None => exact.push((shared(text), shared(""))),
            }
        }
        exact.sort_unstable();
        exact.dedup();
        Self {
            all: resources.iter().any(|text| text == ALL),
            any_with: TextSet::of(any_with),
            exact: exact.into_boxed_slice(),
        }
    }

    pub(crate) fn has(&self, resource: &str, subresource: &str) -> bool {
        let pair = |(one, sub): &ResourcePair| (&**one, &**sub).cmp(&(resource, subresource));
        self.all
            || (!subresource.is_empty() && self.any_with.has(subresource))
            || self.exact.binary_search_by(pair).is_ok()
    }

    fn len(&self) -> usize {
        usize::from(self.all) + self.any_with.len() + self.exact.len()
    }
}

/// One rule of a role, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) verbs: Texts,
    pub(crate) groups: Texts,
    pub(crate) resources: Resources,
    /// Names of objects; `None` for every object.
    pub(crate) names: Option<TextSet>,
    /// Paths that are no resources.
    pub(crate) paths: Box<[Box<str>]>,
}

impl Rule {
    /// Compiles a rule.
    pub(crate) fn of(rule: &PolicyRule) -> Self {
        let names = rule.resource_names.iter().map(String::as_str);
        Self {
            verbs: Texts::of(&rule.verbs),
            groups: Texts::of(&rule.api_groups),
            resources: Resources::of(&rule.resources),
            names: (!rule.resource_names.is_empty()).then(|| TextSet::of(names)),
            paths: rule.non_resource_urls.iter().map(|path| path.as_str().into()).collect(),
        }
    }

    /// A rule that allows something on the same kinds: every verb, on every object.
    pub(crate) fn of_kinds(&self) -> Self {
        let exact = self.resources.exact.iter().map(|(resource, _)| (resource.clone(), shared("")));
        let mut exact: Vec<ResourcePair> = exact.collect();
        exact.sort_unstable();
        exact.dedup();
        let resources = Resources {
            all: self.resources.all || self.resources.any_with.len() > 0,
            any_with: TextSet::default(),
            exact: exact.into_boxed_slice(),
        };
        Self {
            verbs: Texts { all: true, texts: TextSet::default() },
            groups: self.groups.clone(),
            resources,
            names: None,
            paths: Box::default(),
        }
    }

    /// Whether it allows a request for a resource.
    pub(crate) fn allows(&self, query: &ResourceQuery<'_>) -> bool {
        let named = match (&self.names, query.name) {
            (None, _) => true,
            (Some(names), Some(name)) => names.has(name),
            (Some(_), None) => false,
        };
        named
            && self.verbs.has(query.verb)
            && self.groups.has(query.group)
            && self.resources.has(query.resource, query.subresource)
    }

    /// Whether it allows a verb on a non-resource path.
    pub(crate) fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.paths.iter().any(|one| path_matches(one, path))
    }

    /// How many combinations of a verb, group, resource and name it has.
    pub(crate) fn combinations(&self) -> usize {
        let texts = |texts: &Texts| usize::from(texts.all) + texts.texts.len();
        let names = self.names.as_ref().map_or(1, TextSet::len);
        [texts(&self.groups), self.resources.len(), names]
            .into_iter()
            .fold(texts(&self.verbs), usize::saturating_mul)
    }
}

/// Whether a pattern of a rule matches a path. `*` is everything, and `*` at the end matches any
/// rest.
fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == ALL
        || pattern == path
        || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}
