//! The identities that a write of a user or a team gives: the names that it adds, and its own name, which stored
//! objects may name already.

use std::collections::HashSet;

use postern_meta::gvk::GroupResource;
use postern_meta::status::ApiError;

use crate::context::Context;
use crate::names::{MAX_IDENTITIES, RESERVED_PREFIXES, is_reserved_identity};
use crate::principal::Principal;
use crate::right::{RequiredRight, Right};

/// Why fields are refused that give a user or team something in clusters.
pub(crate) const NO_CLUSTER_ROLES: &str = "write a ClusterRoleBinding instead";

/// The right to be a user of this name, if a stored object names one. The write gives the new user that identity.
pub(crate) fn right_to_be_user(name: &str, ctx: &Context<'_>) -> Option<RequiredRight> {
    ctx.named.names_user(name).then(|| impersonate("users", name))
}

/// The rights to be a new user or team, where something that is stored names its group, or names it as an owner.
pub(crate) fn rights_to_be(principal: Principal<'_>, ctx: &Context<'_>) -> Vec<RequiredRight> {
    let group = principal.group();
    let as_group = ctx.named.names_group(&group).then(|| impersonate("groups", &group));
    let as_owner = ctx.named.names_owner(principal).then(|| match principal {
        Principal::User(name) => impersonate("users", name),
        Principal::Team(_) => impersonate("groups", &group),
    });
    let as_owner = as_owner.filter(|right| Some(right) != as_group.as_ref());
    as_group.into_iter().chain(as_owner).collect()
}

/// The rights to impersonate all users and all groups.
pub(crate) fn rights_to_impersonate_all() -> [RequiredRight; 2] {
    let hint =
        "a caller who names an identity provider, or links users with one, can act as any user";
    ["users", "groups"].map(|resource| impersonate(resource, "").because(hint.to_owned()))
}

/// Whether a change of an identity provider at most disables it. Such a change names no provider. `disabled` is the field.
pub(crate) fn only_disables<S: Clone + PartialEq>(
    new: &S,
    old: &S,
    disabled: fn(&mut S) -> &mut bool,
) -> bool {
    let (mut new, mut old) = (new.clone(), old.clone());
    let is_disabled = std::mem::replace(disabled(&mut new), true);
    let was_disabled = std::mem::replace(disabled(&mut old), true);
    new == old && (is_disabled || !was_disabled)
}

/// The right to impersonate a user or a group.
pub(crate) fn impersonate(resource: &'static str, name: &str) -> RequiredRight {
    Right::cluster("impersonate", "", resource, name).into()
}

/// Checks that a caller gives no reserved name of an identity. `given` are the names that the object does not have yet.
///
/// # Errors
/// 403 for callers that are neither the server nor members of `system:masters`.
pub(crate) fn check_not_reserved<'a>(
    resource: GroupResource,
    object: &str,
    mut given: impl Iterator<Item = &'a String>,
    ctx: &Context<'_>,
) -> Result<(), ApiError> {
    if ctx.may_change_servers_own() || !given.any(|name| is_reserved_identity(name)) {
        return Ok(());
    }
    let [first, second] = RESERVED_PREFIXES;
    let reason = format!(
        "only members of system:masters can set a subject, a username or a group that begins with \
         {first} or {second}"
    );
    Err(ApiError::forbidden(resource, object, reason))
}

/// The names of a list that are not in the list from before.
pub(crate) fn added<'a>(
    new: &'a [String],
    old: Option<&'a [String]>,
) -> impl Iterator<Item = &'a String> {
    let had: HashSet<&String> = old.unwrap_or_default().iter().collect();
    new.iter().take(MAX_IDENTITIES).filter(move |name| !had.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_disable_a_provider_is_not_to_name_one() {
        let of = |url: &'static str, disabled: bool| (url, disabled);
        for (old, new, only) in [
            (of("a", false), of("a", false), true),
            (of("a", false), of("a", true), true),
            (of("a", true), of("a", true), true),
            (of("a", true), of("a", false), false),
            (of("a", false), of("b", false), false),
            (of("a", false), of("b", true), false),
        ] {
            assert_eq!(only_disables(&new, &old, |spec| &mut spec.1), only, "{old:?}, {new:?}");
        }
    }
}
