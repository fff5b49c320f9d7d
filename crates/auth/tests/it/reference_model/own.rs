//! The permissions that every caller has without a role, one sentence a function.

use crate::reference_model::world::{Caller, Request};

pub(crate) const OURS: &str = "management.platform.sh";
const KEY_VERBS: [&str; 4] = ["createkey", "getkey", "updatekey", "deletekey"];

pub(crate) fn allows(caller: &Caller, request: &Request) -> bool {
    is_master(caller)
        || whatever_the_scope(caller, request)
        || own_user(caller, request)
        || teams_that_the_user_is_in(caller, request)
        || own_team(caller, request)
}

/// Members of `system:masters` may do everything.
fn is_master(caller: &Caller) -> bool {
    caller.groups.iter().any(|group| group == "system:masters")
}

/// With any scope, a key may query its identity and its permissions, read discovery, OpenAPI and
/// version, and create endpoint tokens. This holds for every authenticated caller.
pub(crate) fn whatever_the_scope(caller: &Caller, request: &Request) -> bool {
    if !caller.groups.iter().any(|group| group == "system:authenticated") {
        return false;
    }
    if request.is_path() {
        return is_description(request);
    }
    asks_who_it_is(request) || asks_what_it_may(request) || makes_an_endpoint_token(request)
}

/// Discovery, OpenAPI and the version are read by GET and HEAD.
fn is_description(request: &Request) -> bool {
    request.description && ["get", "head"].contains(&request.verb.as_str())
}

/// `selves` are created or read, `selfsubjectreviews` created.
fn asks_who_it_is(request: &Request) -> bool {
    let selves = is(request, OURS, "selves") && ["create", "get"].contains(&request.verb.as_str());
    let reviews = is(request, "authentication.k8s.io", "selfsubjectreviews");
    selves || (reviews && request.verb == "create")
}

/// `selfsubjectaccessreviews` (of both groups), `resourceaccessreviews`, `accesspreviews` and `selfsubjectrulesreviews` are created.
fn asks_what_it_may(request: &Request) -> bool {
    let group = "authorization.k8s.io";
    let reviews = is(request, group, "selfsubjectaccessreviews")
        || is(request, OURS, "selfsubjectaccessreviews")
        || is(request, OURS, "resourceaccessreviews")
        || is(request, OURS, "accesspreviews")
        || is(request, OURS, "consolesessions")
        || is(request, OURS, "consolelogincodes")
        || is(request, OURS, "commandlineconsents")
        || is(request, group, "selfsubjectrulesreviews");
    reviews && request.verb == "create"
}

/// `directclusterendpointtokens` are created.
fn makes_an_endpoint_token(request: &Request) -> bool {
    is(request, OURS, "directclusterendpointtokens") && request.verb == "create"
}

/// A user may read their own User object, and hold the four key verbs and `bind` on themselves.
fn own_user(caller: &Caller, request: &Request) -> bool {
    let Some(user) = &caller.user else { return false };
    let verb = request.verb.as_str();
    is_own_user(user, request) && (["get", "bind"].contains(&verb) || KEY_VERBS.contains(&verb))
}

fn is_own_user(user: &str, request: &Request) -> bool {
    is(request, OURS, "users") && request.namespace.is_empty() && request.name == user
}

/// A user may read the teams that they are in, and `bind` them.
fn teams_that_the_user_is_in(caller: &Caller, request: &Request) -> bool {
    caller.user.is_some()
        && is(request, OURS, "teams")
        && request.namespace.is_empty()
        && caller.teams.contains(&request.name)
        && ["get", "bind"].contains(&request.verb.as_str())
}

/// A team's key may read its own team, and hold the four key verbs and `bind` on it.
fn own_team(caller: &Caller, request: &Request) -> bool {
    let Some(team) = &caller.team else { return false };
    let verb = request.verb.as_str();
    is(request, OURS, "teams")
        && request.namespace.is_empty()
        && request.name == *team
        && (["get", "bind"].contains(&verb) || KEY_VERBS.contains(&verb))
}

/// Whether this is to get the own user or an own team.
pub(crate) fn reads_own_user_or_team(caller: &Caller, request: &Request) -> bool {
    let name = &request.name;
    let user = is(request, OURS, "users") && caller.user.as_ref() == Some(name);
    let is_own_team = caller.team.as_ref() == Some(name) || caller.teams.contains(name);
    request.verb == "get" && (user || (is(request, OURS, "teams") && is_own_team))
}

/// The object itself. These kinds have no namespace, and every caller has them by a ClusterRole for
/// all namespaces. So a namespace in the question (`kubectl auth can-i -n`) changes nothing.
fn is(request: &Request, group: &str, resource: &str) -> bool {
    request.group == group && request.resource == resource && request.subresource.is_empty()
}
