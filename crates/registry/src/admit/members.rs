//! The users that a write adds to a team. Teams name their members, and a later user can have the same name. So the
//! members are the users with these names at admission, and the transaction has them as conditions.

use std::collections::HashSet;
use std::sync::Arc;

use postern_kinds::AnyKind;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::Position;

use super::view::AdmissionView;
use crate::storage_key;

/// A user at admission: the storage key, and the position of the last change.
pub(crate) type Member = (Arc<str>, Position);

/// The users that a write adds to a team; none for an object of another kind.
///
/// # Errors
/// 409 if a user no longer exists.
pub(super) fn added(
    view: &AdmissionView<'_>,
    kind: &dyn AnyKind,
    old: Option<&Object>,
    new: &Object,
) -> Result<Vec<Member>, ApiError> {
    let (team, info) = (Team.info(), kind.info());
    if (info.kind, info.version) != (team.kind, team.version) {
        return Ok(Vec::new());
    }
    let before: HashSet<&str> = old.into_iter().flat_map(users).collect();
    let as_it_is = |user: &str| {
        let key = storage_key::object(User.info(), None, user);
        let found = view.cache.of(User.info()).get(&key)?;
        let (resource, name) = (info.group_resource(), &new.metadata.name);
        let gone =
            || ApiError::conflict(resource, name, format!("the user {user} no longer exists"));
        Ok((key, found.ok_or_else(gone)?.position()))
    };
    users(new).filter(|user| !before.contains(user)).map(as_it_is).collect()
}

fn users(team: &Object) -> impl Iterator<Item = &str> {
    let users = team.fields.get("spec").and_then(|spec| spec.get("users")?.as_array());
    users.into_iter().flatten().filter_map(serde_json::Value::as_str)
}
