//! The reasons for a decision.

use postern_kinds::rbac::{BoundSubject, PolicyRule};
use postern_kinds::scope::{RuleVirtualCluster, Scope, ScopeResources, ScopeRule};
use postern_kinds::scope::{ScopeSpace, ScopeVirtualCluster};

use super::Policy;
use crate::attributes::{Attributes, Request, RequestTarget};
use crate::explanation::{Explanation, MissingRule, PolicyName, RefusingScope, Source};
use crate::identity::Identity;
use crate::implicit_rights::{self, ImplicitRight};
use crate::rbac::role_grants::{Grant, SubjectGrants};
use crate::rbac::rule::{ResourceQuery, Rule};
use crate::scope::Location;

impl Policy {
    /// Explains the decision about something in the management API.
    pub fn explain(&self, identity: &Identity, attributes: &Attributes<'_>) -> Explanation {
        let source = self.source(identity, attributes);
        let mut explanation = Explanation { source, ..Explanation::default() };
        if explanation.source.is_none() {
            explanation.missing_rule = Some(missing_rule(attributes));
        }
        if explanation.source != Some(Source::Everyone) {
            let request = Request::management(*attributes);
            explanation.refusing_scopes = self.refusing_scopes(identity, &request);
        }
        explanation
    }

    /// The scopes of an identity that do not allow a request, each with its missing part.
    pub fn refusing_scopes(
        &self,
        identity: &Identity,
        request: &Request<'_>,
    ) -> Vec<RefusingScope> {
        let scopes = identity.scopes.iter().enumerate();
        let refusing = scopes.filter(|(_, scope)| !self.scope_allows(scope, identity, request));
        refusing
            .map(|(index, _)| RefusingScope { index, missing: missing_scope(request) })
            .collect()
    }

    /// The source of a permission of an identity, its scopes aside. The permissions of every identity
    /// come first, since no scope takes those away.
    fn source(&self, identity: &Identity, attributes: &Attributes<'_>) -> Option<Source> {
        if implicit_rights::is_open(identity, attributes) {
            return Some(Source::Everyone);
        }
        match implicit_rights::right(identity, attributes) {
            Some(ImplicitRight::Master) => Some(Source::Masters),
            Some(ImplicitRight::Everyone) => Some(Source::Everyone),
            Some(ImplicitRight::Themselves) => Some(Source::Themselves),
            None if self.is_owners(identity, attributes) => Some(Source::Owner),
            None => self.role_source(identity, attributes),
        }
    }

    /// The first of the roles that allow it, in the order of their bindings.
    fn role_source(&self, identity: &Identity, attributes: &Attributes<'_>) -> Option<Source> {
        let grants = self.index.of(identity).map(AsRef::as_ref);
        let grant =
            grants.flat_map(|grants: &SubjectGrants| grants.grants_in(attributes.role_namespace()));
        let allowing = grant.filter_map(|(namespace, grant)| {
            if namespace.is_some() && attributes.is_path() {
                return None;
            }
            let rule = grant.role.rules().iter().position(|rule| allows(rule, attributes))?;
            self.source_of(identity, namespace, grant, rule)
        });
        allowing.min_by(|one, two| binding_of(one).cmp(&binding_of(two)))
    }

    fn source_of(
        &self,
        identity: &Identity,
        namespace: Option<&str>,
        grant: &Grant,
        rule: usize,
    ) -> Option<Source> {
        let is_theirs = |subject: &BoundSubject| identity.is_subject(subject);
        let mut bindings: Vec<&str> = grant.bindings.keys().map(|name| &**name).collect();
        bindings.sort_unstable();
        bindings.into_iter().find_map(|binding| {
            let subject = self.index.subjects_of(namespace, binding).into_iter().find(is_theirs)?;
            let binding =
                PolicyName { namespace: namespace.map(str::to_owned), name: binding.to_owned() };
            Some(Source::Role { binding, role: grant.role.key.to_name(), rule, subject })
        })
    }
}

fn binding_of(source: &Source) -> Option<&PolicyName> {
    match source {
        Source::Role { binding, .. } => Some(binding),
        Source::Masters | Source::Everyone | Source::Themselves | Source::Owner => None,
    }
}

/// Whether a rule allows the request, wherever its role applies.
pub(super) fn allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    match *attributes {
        Attributes::Resource { verb, group, resource, subresource, name, .. } => {
            let name = Some(name);
            rule.allows(&ResourceQuery { verb, group, resource, subresource, name })
        }
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            rule.allows_path(verb, path)
        }
    }
}

/// A resource with its subresource, as rules name it.
fn with_subresource(resource: &str, subresource: &str) -> String {
    if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") }
}

/// A list of a text, without one that is empty.
fn unless_empty(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { vec![text.to_owned()] }
}

/// The smallest rule that would allow this.
fn missing_rule(attributes: &Attributes<'_>) -> MissingRule {
    match *attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
            MissingRule {
                namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
                rule: PolicyRule {
                    verbs: vec![verb.to_owned()],
                    api_groups: vec![group.to_owned()],
                    resources: vec![with_subresource(resource, subresource)],
                    resource_names: unless_empty(name),
                    ..PolicyRule::default()
                },
            }
        }
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => MissingRule {
            namespace: None,
            rule: PolicyRule {
                verbs: vec![verb.to_owned()],
                non_resource_urls: vec![path.to_owned()],
                ..PolicyRule::default()
            },
        },
    }
}

/// The smallest scope that would allow this.
fn missing_scope(request: &Request<'_>) -> Scope {
    let mut rule = match request.attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
            let resources = ScopeResources {
                group: group.to_owned(),
                resources: vec![with_subresource(resource, subresource)],
                resource_names: unless_empty(name),
            };
            let namespaces = match Location::of(&request.attributes) {
                Location::Everywhere => Vec::new(),
                Location::Namespace(_) | Location::Cluster => vec![namespace.to_owned()],
            };
            let verbs = vec![verb.to_owned()];
            ScopeRule { verbs, resources: vec![resources], namespaces, ..ScopeRule::default() }
        }
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => ScopeRule {
            verbs: vec![verb.to_owned()],
            non_resource_urls: vec![path.to_owned()],
            ..ScopeRule::default()
        },
    };
    let target = match request.target {
        RequestTarget::Management => "Management",
        RequestTarget::Cluster { cluster } => {
            cluster.clone_into(&mut rule.cluster);
            "Cluster"
        }
        RequestTarget::VirtualCluster { namespace, name, .. } => {
            let (name, namespace) = (name.to_owned(), namespace.to_owned());
            rule.virtual_clusters.push(RuleVirtualCluster { name, namespace });
            "VirtualCluster"
        }
        RequestTarget::ProjectSpace { project, space } => {
            let (project, space) = (project.to_owned(), space.to_owned());
            return Scope { spaces: vec![ScopeSpace { project, space }], ..Scope::default() };
        }
        RequestTarget::ProjectVirtualCluster { project, virtual_cluster } => {
            let project = project.to_owned();
            let one = ScopeVirtualCluster { project, virtual_cluster: virtual_cluster.to_owned() };
            return Scope { virtual_clusters: vec![one], ..Scope::default() };
        }
    };
    rule.request_targets.push(target.to_owned());
    Scope { rules: vec![rule], ..Scope::default() }
}
