//! The whole decision of the reference model.

use crate::reference_model::world::{Caller, Request, Target, World};
use crate::reference_model::{own, owner, rbac, scope};

/// A request is allowed if the owner may, and every scope of the key and of those that made it allows it.
/// At a cluster only the scopes decide here: that cluster decides about the owner.
pub(crate) fn allowed(world: &World, caller: &Caller, request: &Request) -> bool {
    (request.target != Target::Management || owner_may(world, caller, request))
        && caller.scopes.iter().all(|held| scope::allows(world, caller, held, request))
}

/// The owner of a key has the permissions without a role, the permissions on owned objects, and the
/// permissions from roles.
pub(crate) fn owner_may(world: &World, caller: &Caller, request: &Request) -> bool {
    own::allows(caller, request)
        || owner::allows(world, caller, request)
        || rbac::allows(world, caller, request)
}
