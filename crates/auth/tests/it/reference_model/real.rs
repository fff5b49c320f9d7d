//! The real thing, asked about the evaluator's plain data: field by field into the types of
//! `postern_auth`, and nothing decided on the way.

use std::sync::Arc;

use postern_auth::attributes::{self, Attributes, RequestTarget};
use postern_auth::identity::Identity;
use postern_auth::policy::{Decision, NamedChange, Policy};
use postern_auth::scope::ScopeRules;
use postern_kinds::GroupResource;
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::scope as kinds;

use crate::reference_model::world::{
    Binding, Caller, Namespace, Owned, Request, Role, Rule, Scope, ScopeRule, Subject, Target,
    World,
};

/// A policy and an identity of the real thing.
pub(crate) struct Real {
    pub(crate) policy: Policy,
    pub(crate) identity: Identity,
}

impl Real {
    pub(crate) fn of(world: &World, caller: &Caller) -> Self {
        Self { policy: policy(world), identity: identity(caller) }
    }

    pub(crate) fn allows(&self, request: &Request) -> bool {
        allows(&self.policy, &self.identity, request)
    }
}

pub(crate) fn allows(policy: &Policy, identity: &Identity, request: &Request) -> bool {
    let asked =
        attributes::Request { attributes: attributes(request), target: target(&request.target) };
    let decision = policy.decide_request(identity, &asked) == Decision::Allow;
    if request.target == Target::Management {
        assert_eq!(policy.decide(identity, &asked.attributes) == Decision::Allow, decision);
    }
    decision
}

pub(crate) fn policy(world: &World) -> Policy {
    Policy::built_in().with(&changes(world))
}

/// Every object of the world as a change.
pub(crate) fn changes(world: &World) -> Vec<NamedChange<'_>> {
    let mut all: Vec<_> = world.namespaces.iter().map(namespace_change).collect();
    all.extend(world.roles.iter().map(role_change));
    all.extend(world.bindings.iter().map(binding_change));
    all.extend(world.owned.iter().map(|owned| owner_change(owned, Some(owned.uid.clone()))));
    all
}

pub(crate) fn owner_change(owned: &Owned, uid: Option<String>) -> NamedChange<'_> {
    // Kinds are known when the program is built; those of a test are few and small.
    let [group, resource] = [&owned.group, &owned.resource].map(|text| &*text.clone().leak());
    let change = PolicyChange::Owner(GroupResource::new(group, resource), uid);
    (place(&owned.namespace), &owned.name, change)
}

/// Whether these are the same object, regardless of the owner.
pub(crate) fn is_same(one: &Owned, other: &Owned) -> bool {
    *one == Owned { uid: one.uid.clone(), ..other.clone() }
}

pub(crate) fn namespace_change(namespace: &Namespace) -> NamedChange<'_> {
    let project = Some(&namespace.project).filter(|project| !project.is_empty());
    (None, &namespace.name, PolicyChange::Namespace(project.cloned()))
}

pub(crate) fn role_change(role: &Role) -> NamedChange<'_> {
    let rules = role.rules.iter().map(policy_rule).collect();
    (place(&role.namespace), &role.name, PolicyChange::Role(Some(rules)))
}

pub(crate) fn binding_change(binding: &Binding) -> NamedChange<'_> {
    let facts = BindingFacts {
        is_cluster_role: binding.cluster_role,
        role: binding.role.clone(),
        subjects: binding.subjects.iter().map(bound_subject).collect(),
    };
    (place(&binding.namespace), &binding.name, PolicyChange::Binding(Some(facts)))
}

pub(crate) fn place(namespace: &str) -> Option<&str> {
    (!namespace.is_empty()).then_some(namespace)
}

pub(crate) fn bound_subject(subject: &Subject) -> BoundSubject {
    match subject {
        Subject::User(name) => BoundSubject::User(name.clone()),
        Subject::Group(name) => BoundSubject::Group(name.clone()),
        Subject::Principal { group, uid } => {
            BoundSubject::Principal { group: group.clone(), uid: uid.clone() }
        }
    }
}

pub(crate) fn policy_rule(rule: &Rule) -> PolicyRule {
    PolicyRule {
        verbs: rule.verbs.clone(),
        api_groups: rule.api_groups.clone(),
        resources: rule.resources.clone(),
        resource_names: rule.resource_names.clone(),
        non_resource_urls: rule.non_resource_urls.clone(),
    }
}

pub(crate) fn identity(caller: &Caller) -> Identity {
    Identity {
        name: caller.name.clone(),
        uid: caller.uids.first().cloned().unwrap_or_default(),
        groups: caller.groups.clone(),
        user: caller.user.clone(),
        team: caller.team.clone(),
        teams: caller.teams.clone(),
        principal_uids: caller.uids.clone(),
        scopes: caller.scopes.iter().map(compiled).collect(),
        is_impersonated: caller.impersonated,
        ..Identity::default()
    }
}

pub(crate) fn compiled(scope: &Scope) -> Arc<ScopeRules> {
    Arc::new(ScopeRules::new(&real_scope(scope)))
}

pub(crate) fn real_scope(scope: &Scope) -> kinds::Scope {
    let project = |project: &String| kinds::ScopeProject { project: project.clone() };
    let space = |(project, space): &(String, String)| kinds::ScopeSpace {
        project: project.clone(),
        space: space.clone(),
    };
    let cluster = |(project, name): &(String, String)| kinds::ScopeVirtualCluster {
        project: project.clone(),
        virtual_cluster: name.clone(),
    };
    kinds::Scope {
        allow_platform_cli: scope.allow_platform_cli,
        projects: scope.projects.iter().map(project).collect(),
        spaces: scope.spaces.iter().map(space).collect(),
        virtual_clusters: scope.virtual_clusters.iter().map(cluster).collect(),
        rules: scope.rules.iter().map(real_rule).collect(),
    }
}

fn real_rule(rule: &ScopeRule) -> kinds::ScopeRule {
    let resources = rule.resources.iter().map(|entry| kinds::ScopeResources {
        group: entry.group.clone(),
        resources: entry.resources.clone(),
        resource_names: entry.resource_names.clone(),
    });
    let clusters = rule.virtual_clusters.iter().map(|(name, namespace)| {
        kinds::RuleVirtualCluster { name: name.clone(), namespace: namespace.clone() }
    });
    kinds::ScopeRule {
        verbs: rule.verbs.clone(),
        resources: resources.collect(),
        resource_names: rule.resource_names.clone(),
        namespaces: rule.namespaces.clone(),
        non_resource_urls: rule.non_resource_urls.clone(),
        request_targets: rule.request_targets.clone(),
        cluster: rule.cluster.clone(),
        virtual_clusters: clusters.collect(),
    }
}

pub(crate) fn attributes(request: &Request) -> Attributes<'_> {
    let Request { verb, group, resource, subresource, namespace, name, path, description, .. } =
        request;
    match (request.is_path(), description) {
        (true, true) => Attributes::Description { verb, path },
        (true, false) => Attributes::Path { verb, path },
        _ => Attributes::Resource { verb, group, resource, subresource, namespace, name },
    }
}

pub(crate) fn target(target: &Target) -> RequestTarget<'_> {
    match target {
        Target::Management => RequestTarget::Management,
        Target::Cluster { cluster } => RequestTarget::Cluster { cluster },
        Target::VirtualCluster { cluster, namespace, name } => {
            RequestTarget::VirtualCluster { cluster, namespace, name }
        }
        Target::ProjectSpace { project, name } => {
            RequestTarget::ProjectSpace { project, space: name }
        }
        Target::ProjectVirtualCluster { project, name } => {
            RequestTarget::ProjectVirtualCluster { project, virtual_cluster: name }
        }
    }
}
