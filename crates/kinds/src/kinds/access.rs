//! Access rules: the owner of an object, and the users and teams that get verbs on it. All kinds with access rules have
//! the same fields. See `docs/reference/access-rules.md`.
//!
//! The fields are here. `change` has the rights that a change of them requires, and its validation.
//! `roles` has the Roles and bindings that the rules become. A kind that declares its [`part`] has
//! all of it.

use postern_meta::field::FieldErrors;

use crate::context::Context;
pub use crate::kind::ownership::{Access, ExtraAccess, Ownership, OwnershipPart, UserOrTeam};
use crate::kind::ownership::{AccessRules, Checked, Owned};

mod change;
mod roles;

use change::Change;
pub(crate) use change::is_of;
pub use roles::{
    ALL_USERS_GROUP, MANAGED_BY_ACCESS_RULES, MadeFor, made_for, member_role, owner_role, rule_role,
};
pub(crate) use roles::{Binding, binding, dependents, encode, managed_by};

/// Maximum number of entries in `spec.access`: each becomes a Role and a RoleBinding, and a transaction
/// has a limit.
pub const MAX_ACCESS_ENTRIES: usize = 30;

/// Maximum number of users, and of teams, of one access rule.
pub const MAX_GRANTEES: usize = 100;

/// All verbs, all subresources, or every user.
pub const ALL: &str = crate::rbac::ALL;

/// The verbs that an access rule can give.
pub use crate::rbac::VERBS;

/// The verb that lets requests through the gateway.
pub const USE: &str = crate::rbac::USE;

/// The place of the owner and the access rules in the fields of a kind.
pub const fn part<Spec>(
    get: fn(&Spec) -> Ownership,
    owner_mut: fn(&mut Spec) -> &mut Option<UserOrTeam>,
) -> OwnershipPart<Spec> {
    OwnershipPart { get, owner_mut, rules: AccessRules { check, dependents } }
}

fn check(of: Owned<'_>, new: &Ownership, old: Option<&Ownership>, ctx: &Context<'_>) -> Checked {
    let change = Change::between(of.info, new, old);
    let mut errors = FieldErrors::new();
    change.validate(ctx, &mut errors);
    (change.required_rights(of, ctx), errors)
}
