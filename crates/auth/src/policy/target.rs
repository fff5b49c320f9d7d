//! The only decision about a request to a cluster, a virtual cluster or a space. The gateway of the
//! central server and every agent use it (`docs/reference/clusters.md#gateway`).
//!
//! The target's own RBAC decides about the permissions inside the target. This module decides
//! whether a request reaches the target at all: with which identity, and whether that identity may
//! use the target. Each scope of the key must allow the request, and a request to a space must stay
//! within the space.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use postern_kinds::rbac::PolicyRule;
use postern_kinds::{Impersonation, MANAGEMENT_V1};

use super::Policy;
use super::covers::{Atom, Collected, combinations, each_atom};
use super::rules_of::RulesOf;
use crate::attributes::{Attributes, Request, RequestTarget, required_verbs};
use crate::forbidden::forbidden_message;
use crate::identity::{AUTHENTICATED_GROUP, Identity};
use crate::kind_scope::has_namespaces;
use crate::kube_request::{KubeRequest, path_attributes};

/// The prefix of the names that a Kubernetes cluster has for itself.
const SYSTEM_PREFIX: &str = "system:";

/// The prefix of our own groups.
const PLATFORM_PREFIX: &str = "platform:";

/// The combinations of rules from a target that are checked. Further ones are left out.
const MAX_COMBINATIONS: usize = 1 << 16;

/// The reviews, by group and resource: they are answered for the caller, and change nothing.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// An instance of a virtual cluster or a space, by its object at the central server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceRef<'a> {
    /// `virtualclusterinstances` or `spaceinstances`.
    pub resource: &'a str,
    /// The namespace of its project.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// A target, with the known facts about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedTarget<'a> {
    /// The target.
    pub target: RequestTarget<'a>,
    /// The instance behind it. For a target of a project, it is the instance that the path names,
    /// even if it does not exist. For a virtual cluster by its location, it is the existing
    /// instance, if any.
    pub instance: Option<InstanceRef<'a>>,
    /// The namespace of a space in its cluster; `None` if it is unknown. No request then reaches
    /// the space.
    pub space_namespace: Option<&'a str>,
}

/// A request to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRequest<'a> {
    /// Where it goes.
    pub place: ResolvedTarget<'a>,
    /// The action that it asks for.
    pub attributes: Attributes<'a>,
    /// Whether it upgrades to another protocol.
    pub is_upgrade: bool,
}

impl<'a> TargetRequest<'a> {
    /// A request at a target.
    pub fn new(place: ResolvedTarget<'a>, request: &'a KubeRequest) -> Self {
        Self { place, attributes: request.attributes(), is_upgrade: request.is_upgrade() }
    }

    /// The request that an access review asks about.
    pub fn of_review(place: ResolvedTarget<'a>, attributes: Attributes<'a>) -> Self {
        Self { place, attributes, is_upgrade: false }
    }
}

/// Why a request does not get to its target: a 403. Its text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetRefusal {
    /// The identity is one of those that a cluster has for itself.
    SystemIdentity(String),
    /// A part of the impersonated identity that is not sent to targets: dropped, it would be another one.
    NotForwarded(String),
    /// The caller may not use the target.
    NotUsable(String),
    /// A scope of the key does not allow it.
    Scope(String),
    /// It is for something outside of the space.
    OutsideSpace,
}

impl fmt::Display for TargetRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemIdentity(name) => write!(
                f,
                "the identity {name:?} begins with system:, which the gateway does not forward"
            ),
            Self::NotForwarded(what) => write!(
                f,
                "the impersonated identity has {what}, which the gateway does not forward: omit it"
            ),
            Self::NotUsable(message) | Self::Scope(message) => f.write_str(message),
            Self::OutsideSpace => f.write_str(
                "a space allows only requests to its own namespace, reviews and discovery",
            ),
        }
    }
}

/// The identity with which a request is sent to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedIdentity {
    /// The user.
    pub user: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl ForwardedIdentity {
    /// The forwarded identity: the caller's, or the impersonated one. Its groups are those of
    /// Postern, `system:authenticated`, and those in `forward_groups`, and never another group of
    /// the cluster itself.
    ///
    /// # Errors
    /// If it is an identity of the cluster itself, or if the caller requested a part of an
    /// impersonated identity that is not forwarded.
    pub fn of(
        identity: &Identity,
        wanted: Option<&Impersonation>,
        forward_groups: &[String],
    ) -> Result<Self, TargetRefusal> {
        check_identity(identity)?;
        let is_forwarded = |group: &str| {
            group.starts_with(PLATFORM_PREFIX)
                || group == AUTHENTICATED_GROUP
                || (!group.starts_with(SYSTEM_PREFIX)
                    && forward_groups.iter().any(|one| one == group))
        };
        if let Some(wanted) = wanted {
            let group = wanted.groups.iter().find(|group| !is_forwarded(group));
            let group = group.map(|group| format!("the group {group:?}"));
            let uid = (!wanted.uid.is_empty()).then(|| "a uid".to_owned());
            let extra = (!wanted.extra.is_empty()).then(|| "extra fields".to_owned());
            if let Some(what) = group.or(uid).or(extra) {
                return Err(TargetRefusal::NotForwarded(what));
            }
        }
        let groups = identity.groups.iter().filter(|group| is_forwarded(group)).cloned().collect();
        Ok(Self { user: identity.name.clone(), groups })
    }

    /// The headers of an impersonation of it, and nothing else. `None` if a name cannot be a header
    /// value; every name in Postern can be one.
    pub fn headers(&self) -> Option<HeaderMap> {
        const USER: HeaderName = HeaderName::from_static("impersonate-user");
        const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
        let mut headers = HeaderMap::new();
        headers.insert(USER, value(&self.user)?);
        for group in &self.groups {
            headers.append(GROUP, value(group)?);
        }
        Some(headers)
    }
}

/// Checks that an identity is none that a cluster has for itself: it would be believed there.
fn check_identity(identity: &Identity) -> Result<(), TargetRefusal> {
    let is_somebody = !identity.name.is_empty() && identity.is_in(AUTHENTICATED_GROUP);
    if is_somebody && !identity.name.starts_with(SYSTEM_PREFIX) {
        return Ok(());
    }
    Err(TargetRefusal::SystemIdentity(identity.name.clone()))
}

impl Policy {
    /// Decides whether a request gets to its target.
    ///
    /// # Errors
    /// Why not: the first reason, in the order of [`TargetRefusal`]'s variants.
    pub fn decide_at_target(
        &self,
        identity: &Identity,
        request: &TargetRequest<'_>,
    ) -> Result<(), TargetRefusal> {
        check_identity(identity)?;
        let place = &request.place;
        if !self.may_use(identity, place) {
            return Err(not_usable(identity, place));
        }
        let attributes = in_its_place(request.attributes);
        let (verb, subresource) = verb_of(&attributes);
        for verb in required_verbs(verb, subresource, request.is_upgrade) {
            let attributes = with_verb(attributes, verb);
            let asked = Request { attributes, target: place.target };
            if !self.scopes_allow_request(identity, &asked) {
                return Err(scope_refusal(identity, &attributes));
            }
        }
        if is_within(place, &attributes, request.is_upgrade) {
            Ok(())
        } else {
            Err(TargetRefusal::OutsideSpace)
        }
    }

    /// Whether an identity holds `use` on the target, without regard to its scopes. For an
    /// instance, every path needs `use` on the instance itself. `use` on the cluster is for the
    /// cluster itself, and for locations without an instance.
    fn may_use(&self, identity: &Identity, place: &ResolvedTarget<'_>) -> bool {
        let holds = |resource, namespace, name| {
            let group = MANAGEMENT_V1.group;
            let (verb, subresource) = ("use", "");
            let attributes =
                Attributes::Resource { verb, group, resource, subresource, namespace, name };
            self.is_held(identity, &attributes)
        };
        if let Some(InstanceRef { resource, namespace, name }) = place.instance {
            return holds(resource, namespace, name);
        }
        match place.target {
            RequestTarget::Cluster { cluster } | RequestTarget::VirtualCluster { cluster, .. } => {
                holds("clusters", "", cluster)
            }
            RequestTarget::Management
            | RequestTarget::ProjectSpace { .. }
            | RequestTarget::ProjectVirtualCluster { .. } => false,
        }
    }

    /// The part of a target's rules for an identity in a namespace that gets to the target.
    pub fn rules_at_target(
        &self,
        identity: &Identity,
        place: &ResolvedTarget<'_>,
        namespace: &str,
        rules: RulesOf,
    ) -> RulesOf {
        let is_space = matches!(place.target, RequestTarget::ProjectSpace { .. });
        if is_space && place.space_namespace != Some(namespace) {
            return RulesOf { incomplete: true, ..RulesOf::default() };
        }
        if !is_space && !identity.is_scoped() {
            return rules;
        }
        let mut left = MAX_COMBINATIONS;
        let mut incomplete = rules.incomplete;
        let mut of = |rules: Vec<PolicyRule>| {
            let mut allowed = Vec::new();
            for rule in rules {
                let count = combinations(&rule);
                if count > left {
                    incomplete = true;
                    continue;
                }
                left -= count;
                let mut collected = Collected::default();
                let mut is_all = true;
                each_atom(&rule, |atom| {
                    if self.gets_there(identity, place, namespace, &atom) {
                        collected.add(atom);
                    } else {
                        is_all = false;
                    }
                });
                if is_all {
                    allowed.push(rule);
                } else {
                    allowed.extend(collected.into_rules());
                    incomplete = true;
                }
            }
            allowed
        };
        let (resource_rules, non_resource_rules) =
            (of(rules.resource_rules), of(rules.non_resource_rules));
        RulesOf { resource_rules, non_resource_rules, incomplete }
    }

    /// Whether the target allows one combination of a rule.
    fn gets_there(
        &self,
        identity: &Identity,
        place: &ResolvedTarget<'_>,
        namespace: &str,
        atom: &Atom<'_>,
    ) -> bool {
        let attributes = match *atom {
            Atom::Resource { verb, group, resource, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let name = name.unwrap_or_default();
                in_its_place(Attributes::Resource {
                    verb,
                    group,
                    resource,
                    subresource,
                    namespace,
                    name,
                })
            }
            Atom::Path { verb, path } => path_attributes(verb, path),
        };
        let (verb, subresource) = verb_of(&attributes);
        let mut verbs = required_verbs(verb, subresource, false);
        let target = place.target;
        is_within(place, &attributes, false)
            && verbs.all(|verb| {
                let attributes = with_verb(attributes, verb);
                self.scopes_hold_at(identity, &Request { attributes, target })
            })
    }
}

/// The attributes, without a namespace where the kind has none: an access review may name one.
fn in_its_place(attributes: Attributes<'_>) -> Attributes<'_> {
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, name, .. }
            if has_namespaces(group, resource) == Some(false) =>
        {
            Attributes::Resource { verb, group, resource, subresource, namespace: "", name }
        }
        other => other,
    }
}

/// The verb, and the subresource.
fn verb_of<'a>(attributes: &Attributes<'a>) -> (&'a str, &'a str) {
    match *attributes {
        Attributes::Resource { verb, subresource, .. } => (verb, subresource),
        Attributes::Description { verb, .. } | Attributes::Path { verb, .. } => (verb, ""),
    }
}

fn with_verb<'a>(attributes: Attributes<'a>, verb: &'a str) -> Attributes<'a> {
    match attributes {
        Attributes::Resource { group, resource, subresource, namespace, name, .. } => {
            Attributes::Resource { verb, group, resource, subresource, namespace, name }
        }
        Attributes::Description { path, .. } => Attributes::Description { verb, path },
        Attributes::Path { path, .. } => Attributes::Path { verb, path },
    }
}

/// Whether a request stays within its target. Only a space has a border. Inside are its namespace,
/// a read of that Namespace, reviews, and the descriptions of the API.
fn is_within(place: &ResolvedTarget<'_>, attributes: &Attributes<'_>, is_upgrade: bool) -> bool {
    if !matches!(place.target, RequestTarget::ProjectSpace { .. }) {
        return true;
    }
    let Some(own) = place.space_namespace.filter(|own| !own.is_empty()) else { return false };
    match *attributes {
        Attributes::Resource { namespace, .. } if !namespace.is_empty() => namespace == own,
        Attributes::Resource { verb, group, resource, subresource: "", name, .. } => {
            let is_its_namespace = (verb, group, resource, name) == ("get", "", "namespaces", own);
            let is_review = verb == "create" && REVIEWS.contains(&(group, resource));
            !is_upgrade && (is_its_namespace || is_review)
        }
        Attributes::Resource { .. } | Attributes::Path { .. } => false,
        Attributes::Description { verb, .. } => !is_upgrade && matches!(verb, "get" | "head"),
    }
}

fn not_usable(identity: &Identity, place: &ResolvedTarget<'_>) -> TargetRefusal {
    let what = match place.target {
        RequestTarget::Management => "the management API through the gateway".to_owned(),
        RequestTarget::Cluster { cluster } => format!("the cluster {cluster:?}"),
        RequestTarget::VirtualCluster { cluster, namespace, name } => {
            format!("the virtual cluster {name:?} in {namespace:?} of the cluster {cluster:?}")
        }
        RequestTarget::ProjectSpace { project, space } => {
            format!("the space {space:?} of the project {project:?}")
        }
        RequestTarget::ProjectVirtualCluster { project, virtual_cluster } => {
            format!("the virtual cluster {virtual_cluster:?} of the project {project:?}")
        }
    };
    let user = &identity.name;
    TargetRefusal::NotUsable(format!(
        "User {user:?} cannot use {what}: the verb use on it is required"
    ))
}

fn scope_refusal(identity: &Identity, attributes: &Attributes<'_>) -> TargetRefusal {
    let mut message = forbidden_message(identity, attributes);
    if attributes.is_path() {
        message.push_str(": the scope of the access key does not allow it");
    }
    TargetRefusal::Scope(message)
}

#[cfg(test)]
mod tests;
