//! One rule of a scope, compiled: all fields that are set must match, any entry of a field does.

use postern_kinds::rbac::ALL;
use postern_kinds::scope::{ScopeResources, ScopeRule};

use crate::attributes::{Attributes, Request, RequestTarget};
use crate::kind_scope::has_namespaces;
use crate::text_set::TextSet;

/// The names of the targets of requests, in the order of their bits.
const TARGETS: [&str; 5] =
    ["Management", "Cluster", "VirtualCluster", "ProjectSpace", "ProjectVirtualCluster"];
const ALL_TARGETS: u8 = 0b1_1111;
const CLUSTER: u8 = 1 << 1;
const VIRTUAL_CLUSTER: u8 = 1 << 2;

/// Where a request acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location<'a> {
    /// In one namespace.
    Namespace(&'a str),
    /// On a kind that has no namespaces.
    Cluster,
    /// In all namespaces.
    Everywhere,
}

impl<'a> Location<'a> {
    /// The place of a request. A request without a namespace counts as one for all namespaces, unless
    /// that can be excluded.
    pub(crate) fn of(attributes: &Attributes<'a>) -> Self {
        let Attributes::Resource { verb, group, resource, namespace, .. } = *attributes else {
            return Self::Everywhere;
        };
        if !namespace.is_empty() {
            return Self::Namespace(namespace);
        }
        let of_many = matches!(verb, "list" | "watch" | "deletecollection");
        if has_namespaces(group, resource).unwrap_or(of_many) {
            Self::Everywhere
        } else {
            Self::Cluster
        }
    }
}

/// The bit of a target.
fn bit(target: RequestTarget<'_>) -> u8 {
    match target {
        RequestTarget::Management => 1,
        RequestTarget::Cluster { .. } => CLUSTER,
        RequestTarget::VirtualCluster { .. } => VIRTUAL_CLUSTER,
        RequestTarget::ProjectSpace { .. } => 1 << 3,
        RequestTarget::ProjectVirtualCluster { .. } => 1 << 4,
    }
}

/// A pattern of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All resources and their subresources.
    All,
    /// This one, without its subresources; or one subresource of it.
    One(Box<str>, Box<str>),
    /// All subresources of this one.
    SubresourcesOf(Box<str>),
    /// This subresource of every resource.
    Everywhere(Box<str>),
}

impl Pattern {
    /// The pattern; `None` when it cannot be understood.
    pub(super) fn of(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None if text.is_empty() => None,
            None if text == ALL => Some(Self::All),
            None => Some(Self::One(text.into(), "".into())),
            Some(("", _) | (_, "") | (ALL, ALL)) => None,
            Some((ALL, subresource)) => Some(Self::Everywhere(subresource.into())),
            Some((resource, ALL)) => Some(Self::SubresourcesOf(resource.into())),
            Some((resource, subresource)) => Some(Self::One(resource.into(), subresource.into())),
        }
    }

    pub(super) fn matches(&self, resource: &str, subresource: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(one, sub) => **one == *resource && **sub == *subresource,
            Self::SubresourcesOf(one) => **one == *resource && !subresource.is_empty(),
            Self::Everywhere(sub) => **sub == *subresource,
        }
    }

    /// Whether it matches everything that another one matches.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::SubresourcesOf(one), Self::One(resource, sub)) => {
                one == resource && !sub.is_empty()
            }
            (Self::Everywhere(sub), Self::One(_, other)) => sub == other,
            _ => self == other,
        }
    }
}

/// Resources of one group, and names of objects.
#[derive(Clone, Debug)]
pub(super) struct Element {
    group: Box<str>,
    /// `None` for all of the group.
    pub(super) patterns: Option<Vec<Pattern>>,
    /// `None` for every object.
    pub(super) names: Option<TextSet>,
}

impl Element {
    fn of(element: &ScopeResources, names_of_rule: &[String]) -> Self {
        let own = &element.resource_names;
        let both = |name: &&str| {
            let listed = |names: &[String]| names.is_empty() || names.iter().any(|one| one == name);
            !name.is_empty() && listed(own) && listed(names_of_rule)
        };
        let names = own.iter().chain(names_of_rule).map(String::as_str).filter(both);
        let has_names = !own.is_empty() || !names_of_rule.is_empty();
        let patterns = element.resources.iter().filter_map(|text| Pattern::of(text));
        Self {
            group: element.group.as_str().into(),
            patterns: (!element.resources.is_empty()).then(|| patterns.collect()),
            names: has_names.then(|| TextSet::of(names)),
        }
    }

    pub(super) fn matches_kind(&self, group: &str, resource: &str, subresource: &str) -> bool {
        // `*` is no group: an element of all groups is a rule without resources.
        let patterns = || {
            let mut patterns = self.patterns.iter().flatten();
            self.patterns.is_none() || patterns.any(|one| one.matches(resource, subresource))
        };
        *self.group == *group && group != ALL && patterns()
    }

    /// Whether it matches a kind, or a subresource of it.
    pub(super) fn concerns(&self, group: &str, resource: &str) -> bool {
        let of_kind = |pattern: &Pattern| match pattern {
            Pattern::All | Pattern::Everywhere(_) => true,
            Pattern::One(one, _) | Pattern::SubresourcesOf(one) => **one == *resource,
        };
        let patterns = self.patterns.as_ref();
        *self.group == *group && patterns.is_none_or(|all| all.iter().any(of_kind))
    }

    /// Whether it matches everything that another one matches.
    fn covers(&self, other: &Self) -> bool {
        let patterns = match (&self.patterns, &other.patterns) {
            (None, _) => true,
            (Some(mine), None) => mine.contains(&Pattern::All),
            (Some(mine), Some(other)) => {
                other.iter().all(|pattern| mine.iter().any(|one| one.covers(pattern)))
            }
        };
        self.group == other.group
            && patterns
            && names_cover(self.names.as_ref(), other.names.as_ref())
    }

    /// One element for each pattern, so that several elements can cover one together.
    fn split(&self) -> Vec<Self> {
        let Some(patterns) = &self.patterns else { return vec![self.clone()] };
        let one =
            |pattern: &Pattern| Self { patterns: Some(vec![pattern.clone()]), ..self.clone() };
        patterns.iter().map(one).collect()
    }
}

/// Whether the names of one field are all in those of another. `None` is every name.
fn names_cover(mine: Option<&TextSet>, other: Option<&TextSet>) -> bool {
    match (mine, other) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(mine), Some(other)) => mine.has_all(other),
    }
}

/// A path that is no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    text: Box<str>,
    /// Whether the path ends in `*`, which the text omits.
    is_prefix: bool,
}

impl Path {
    /// The path; `None` when it has a `*` that is not the whole last step.
    fn of(text: &str) -> Option<Self> {
        let (text, is_prefix) = match text.strip_suffix("/*") {
            Some(_) => (&text[..text.len() - 1], true),
            None => (text, false),
        };
        (text.starts_with('/') && !text.contains('*'))
            .then(|| Self { text: text.into(), is_prefix })
    }

    fn matches(&self, path: &str) -> bool {
        if self.is_prefix { path.starts_with(&*self.text) } else { *self.text == *path }
    }

    fn covers(&self, other: &Self) -> bool {
        if self.is_prefix { other.text.starts_with(&*self.text) } else { self == other }
    }
}

/// A virtual cluster: name and namespace, empty for any.
type VirtualCluster = (Box<str>, Box<str>);

/// One rule of a scope, compiled.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// `None` for every verb.
    pub(super) verbs: Option<TextSet>,
    /// `None` for all resources.
    pub(super) elements: Option<Vec<Element>>,
    /// `None` for every namespace. The empty text is for resources that have none.
    pub(super) namespaces: Option<TextSet>,
    /// `None` for every path.
    paths: Option<Vec<Path>>,
    /// The targets that it can match, as bits.
    targets: u8,
    cluster: Box<str>,
    virtual_clusters: Vec<VirtualCluster>,
}

impl Rule {
    /// Compiles a rule; `None` when it can match nothing.
    pub(super) fn of(rule: &ScopeRule) -> Option<Self> {
        if rule.resources.is_empty() && !rule.resource_names.is_empty() {
            return None;
        }
        let is_listed = |name: &&str| rule.request_targets.iter().any(|one| one == name);
        let mut targets = ALL_TARGETS;
        if !rule.request_targets.is_empty() {
            let listed = TARGETS.iter().enumerate().filter(|(_, name)| is_listed(name));
            targets = listed.fold(0, |bits, (index, _)| bits | 1 << index);
        }
        if !rule.cluster.is_empty() {
            targets &= CLUSTER;
        }
        if !rule.virtual_clusters.is_empty() {
            targets &= VIRTUAL_CLUSTER;
        }
        let set = |texts: &[String]| {
            (!texts.is_empty()).then(|| TextSet::of(texts.iter().map(String::as_str)))
        };
        let element = |element| Element::of(element, &rule.resource_names);
        let paths = rule.non_resource_urls.iter().filter_map(|text| Path::of(text));
        let clusters = rule.virtual_clusters.iter();
        let is_for_both = !rule.resources.is_empty() && !rule.non_resource_urls.is_empty();
        (targets != 0 && !is_for_both).then(|| Self {
            verbs: set(&rule.verbs).filter(|verbs| !verbs.has(ALL)),
            elements: (!rule.resources.is_empty())
                .then(|| rule.resources.iter().map(element).collect()),
            namespaces: set(&rule.namespaces),
            paths: (!rule.non_resource_urls.is_empty()).then(|| paths.collect()),
            targets,
            cluster: rule.cluster.as_str().into(),
            virtual_clusters: clusters
                .map(|one| (one.name.as_str().into(), one.namespace.as_str().into()))
                .collect(),
        })
    }

    /// Whether it matches a request at a location.
    pub(super) fn allows(&self, request: &Request<'_>, location: Location<'_>) -> bool {
        let what = match request.attributes {
            Attributes::Resource { verb, group, resource, subresource, name, .. } => {
                self.has_verb(verb)
                    && self.paths.is_none()
                    && self.has_location(location)
                    && self.elements.as_ref().is_none_or(|elements| {
                        elements.iter().any(|element| {
                            element.matches_kind(group, resource, subresource)
                                && element.names.as_ref().is_none_or(|names| names.has(name))
                        })
                    })
            }
            Attributes::Path { verb, path } | Attributes::Description { verb, path } => {
                self.has_verb(verb)
                    && self.elements.is_none()
                    && self.namespaces.is_none()
                    && self.paths.as_ref().is_none_or(|all| all.iter().any(|one| one.matches(path)))
            }
        };
        what && self.reaches(request.target)
    }

    pub(super) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.as_ref().is_none_or(|verbs| verbs.has(verb))
    }

    fn has_location(&self, location: Location<'_>) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| match location {
            Location::Namespace(namespace) => namespaces.has(namespace),
            Location::Cluster => namespaces.has(""),
            Location::Everywhere => false,
        })
    }

    /// Whether it can match requests to a target.
    pub(super) fn reaches(&self, target: RequestTarget<'_>) -> bool {
        let any_or = |mine: &str, name: &str| mine.is_empty() || mine == name;
        let right_one = match target {
            RequestTarget::Cluster { cluster } => any_or(&self.cluster, cluster),
            RequestTarget::VirtualCluster { namespace, name, .. } => {
                let is_it = |(one, of): &VirtualCluster| any_or(one, name) && any_or(of, namespace);
                self.virtual_clusters.is_empty() || self.virtual_clusters.iter().any(is_it)
            }
            _ => true,
        };
        self.targets & bit(target) != 0 && right_one
    }

    /// Whether it can match requests for resources.
    pub(super) fn is_for_resources(&self) -> bool {
        self.paths.is_none()
    }

    /// Whether it matches everything.
    pub(super) fn is_open(&self) -> bool {
        self.verbs.is_none()
            && self.elements.is_none()
            && self.namespaces.is_none()
            && self.paths.is_none()
            && self.targets == ALL_TARGETS
    }

    /// Whether it is only for the management API.
    pub(super) fn is_for_management(&self) -> bool {
        self.targets == bit(RequestTarget::Management)
    }

    /// Whether it matches all that another one matches. `false` if this cannot be shown.
    pub(super) fn covers(&self, other: &Self) -> bool {
        names_cover(self.verbs.as_ref(), other.verbs.as_ref())
            && names_cover(self.namespaces.as_ref(), other.namespaces.as_ref())
            && self.covers_target(other)
            && self.covers_paths(other)
            && self.covers_elements(other)
    }

    fn covers_target(&self, other: &Self) -> bool {
        let any_or = |mine: &str, one: &str| mine.is_empty() || mine == one;
        let clusters = &self.virtual_clusters;
        let cluster_covered = |(name, namespace): &VirtualCluster| {
            clusters.iter().any(|(mine, of)| any_or(mine, name) && any_or(of, namespace))
        };
        let theirs = &other.virtual_clusters;
        other.targets & !self.targets == 0
            && any_or(&self.cluster, &other.cluster)
            && (clusters.is_empty() || (!theirs.is_empty() && theirs.iter().all(cluster_covered)))
    }

    fn covers_paths(&self, other: &Self) -> bool {
        match (&self.paths, &other.paths) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(other)) => {
                other.iter().all(|path| mine.iter().any(|one| one.covers(path)))
            }
        }
    }

    fn covers_elements(&self, other: &Self) -> bool {
        match (&self.elements, &other.elements) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(other)) => other
                .iter()
                .flat_map(Element::split)
                .all(|element| mine.iter().any(|one| one.covers(&element))),
        }
    }
}
