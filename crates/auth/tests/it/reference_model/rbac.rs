//! Kubernetes' rules for roles, one sentence a function. Slow on purpose: every loop looks at everything.

use crate::reference_model::world::{Binding, Caller, Request, Role, Rule, Subject, World};

/// A caller that holds a role with a matching rule may. Rules only add; nothing else allows.
pub(crate) fn allows(world: &World, caller: &Caller, request: &Request) -> bool {
    for binding in &world.bindings {
        if !is_for_the_caller(binding, caller) || !reaches(binding, request) {
            continue;
        }
        for role in &world.roles {
            if is_the_role_of(binding, role) && role.rules.iter().any(|rule| matches(rule, request))
            {
                return true;
            }
        }
    }
    false
}

/// A binding gives its role to each of its subjects.
fn is_for_the_caller(binding: &Binding, caller: &Caller) -> bool {
    binding.subjects.iter().any(|subject| is_the_caller(subject, caller))
}

/// A user is known by the name, and a group by being in it, both letter by letter. A user or team that a
/// binding of the server names is known by the uid alone. No subject has the empty uid.
fn is_the_caller(subject: &Subject, caller: &Caller) -> bool {
    match subject {
        Subject::User(name) => *name == caller.name,
        Subject::Group(group) => caller.groups.contains(group),
        Subject::Principal { uid, .. } => !uid.is_empty() && caller.uids.contains(uid),
    }
}

/// A ClusterRoleBinding gives everywhere; a RoleBinding only within its own namespace, so neither
/// where a request has no namespace nor on a path. A Namespace is within itself.
fn reaches(binding: &Binding, request: &Request) -> bool {
    if binding.namespace.is_empty() {
        return true;
    }
    let is_namespace = request.group.is_empty()
        && request.resource == "namespaces"
        && request.namespace.is_empty();
    let within = if is_namespace { &request.name } else { &request.namespace };
    !request.is_path() && binding.namespace == *within
}

/// A RoleBinding gives a Role of the same namespace or a ClusterRole; a ClusterRoleBinding gives a
/// ClusterRole.
fn is_the_role_of(binding: &Binding, role: &Role) -> bool {
    if role.name != binding.role {
        return false;
    }
    if binding.cluster_role {
        return role.namespace.is_empty();
    }
    !binding.namespace.is_empty() && role.namespace == binding.namespace
}

/// A rule is for resources by its verbs, groups, resources and names together; for paths by its verbs and
/// paths.
pub(crate) fn matches(rule: &Rule, request: &Request) -> bool {
    if !verb_matches(rule, &request.verb) {
        return false;
    }
    if request.is_path() {
        return rule.non_resource_urls.iter().any(|entry| path_matches(entry, &request.path));
    }
    group_matches(rule, &request.group)
        && resource_matches(rule, &request.resource, &request.subresource)
        && name_matches(rule, &request.name)
}

/// A verb is one of the rule's, or the rule has the star.
fn verb_matches(rule: &Rule, verb: &str) -> bool {
    rule.verbs.iter().any(|entry| entry == "*" || entry == verb)
}

/// A group is one of the rule's, or the rule has the star. No group at all is no group, not the core one.
fn group_matches(rule: &Rule, group: &str) -> bool {
    rule.api_groups.iter().any(|entry| entry == "*" || entry == group)
}

/// The star is every resource and subresource, `*/sub` that subresource of every resource; else the entry is
/// the whole text. A right to a resource is none to its subresources.
fn resource_matches(rule: &Rule, resource: &str, subresource: &str) -> bool {
    let whole = match subresource {
        "" => resource.to_owned(),
        subresource => format!("{resource}/{subresource}"),
    };
    for entry in &rule.resources {
        if entry == "*" || *entry == whole {
            return true;
        }
        if !subresource.is_empty() && *entry == format!("*/{subresource}") {
            return true;
        }
    }
    false
}

/// No names are all names. Otherwise the name of the request must be one of them, so a request
/// without a name (a create, a list) does not match.
fn name_matches(rule: &Rule, name: &str) -> bool {
    rule.resource_names.is_empty() || rule.resource_names.iter().any(|entry| entry == name)
}

/// A path equals the entry, or begins with the text before the star at the end of the entry.
fn path_matches(entry: &str, path: &str) -> bool {
    if entry == "*" || entry == path {
        return true;
    }
    entry.ends_with('*') && path.starts_with(entry.trim_end_matches('*'))
}
