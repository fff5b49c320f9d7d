//! The identities that a write of a user or a team gives to somebody: names that it adds.

use std::collections::HashSet;

use postern_meta::gvk::GroupResource;
use postern_meta::status::ApiError;

use crate::context::Context;
use crate::names::{MAX_IDENTITIES, RESERVED_PREFIXES, is_reserved_identity};

/// Checks that a caller gives nobody a name of an identity that is reserved. `given` are the names that the
/// object does not have yet.
///
/// # Errors
/// 403 for callers who are neither the server nor members of `system:masters`.
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
        "only members of system:masters may give a subject, a username or a group that begins with \
         {first} or {second}"
    );
    Err(ApiError::forbidden(resource, object, reason))
}

/// Returns the names of a list that are not in the list from before.
pub(crate) fn added<'a>(
    new: &'a [String],
    old: Option<&'a [String]>,
) -> impl Iterator<Item = &'a String> {
    let had: HashSet<&String> = old.unwrap_or_default().iter().collect();
    new.iter().take(MAX_IDENTITIES).filter(move |name| !had.contains(name))
}
