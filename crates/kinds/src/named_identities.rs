//! The questions of the kinds about the identities that stored objects name.

use crate::principal::Principal;

/// The identities to which something that is stored gives something by their names alone. A user or team that is made
/// under such a name gets it.
pub trait NamedIdentities {
    /// Whether this is the name of a user in a binding, or the subject of an access key.
    fn names_user(&self, name: &str) -> bool;

    /// Whether this is a group in a binding, by name and not by uid.
    fn names_group(&self, group: &str) -> bool;

    /// Whether an object names this user or team as its owner.
    fn names_owner(&self, owner: Principal<'_>) -> bool;

    /// Whether this user or team is a member of a project, directly or through a team.
    fn is_member(&self, project: &str, principal: Principal<'_>) -> bool;

    /// The same, without a membership of all users: it would tell which users exist.
    fn is_named_member(&self, project: &str, principal: Principal<'_>) -> bool;
}

/// No stored object names an identity.
#[derive(Debug)]
pub struct NobodyNamed;

impl NamedIdentities for NobodyNamed {
    fn names_user(&self, _: &str) -> bool {
        false
    }

    fn names_group(&self, _: &str) -> bool {
        false
    }

    fn names_owner(&self, _: Principal<'_>) -> bool {
        false
    }

    fn is_member(&self, _: &str, _: Principal<'_>) -> bool {
        false
    }

    fn is_named_member(&self, _: &str, _: Principal<'_>) -> bool {
        false
    }
}
