//! The permissions of the owner of an object, one sentence a function
//! (`docs/reference/access-rules.md#owner`).

use crate::reference_model::world::{Caller, Owned, Request, World};

/// The owner holds every verb on the object, and on each subresource that its kind has.
pub(crate) fn allows(world: &World, caller: &Caller, request: &Request) -> bool {
    world.owned.iter().any(|owned| {
        is_the_owner(owned, caller) && is_about(owned, request) && is_of_its_kind(request)
    })
}

/// A user or team is known by its uid alone, and so are a team's members, by the team's uid. No owner has
/// the empty uid.
fn is_the_owner(owned: &Owned, caller: &Caller) -> bool {
    !owned.uid.is_empty() && caller.uids.contains(&owned.uid)
}

/// Exactly that object: its group, resource, namespace and name.
fn is_about(owned: &Owned, request: &Request) -> bool {
    !request.is_path()
        && owned.group == request.group
        && owned.resource == request.resource
        && owned.namespace == request.namespace
        && owned.name == request.name
        && !request.name.is_empty()
}

/// The object itself, or a subresource that the kind has.
fn is_of_its_kind(request: &Request) -> bool {
    request.subresource.is_empty() || has_subresource(request)
}

pub(crate) fn has_subresource(request: &Request) -> bool {
    let kinds = postern_kinds::all().iter().map(|kind| kind.info());
    let mut its =
        kinds.filter(|info| info.version.group == request.group && info.plural == request.resource);
    its.any(|info| info.subresources().any(|name| name == request.subresource))
}
