//! The members of a team, for all who may read the team (`docs/reference/authentication.md#users-and-teams`).

use postern_kinds::team_members::{MAX_LISTED_MEMBERS, Spec, TeamMember, TeamMembers};
use postern_kinds::user::{self, User};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize as _;

use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// The objects that are read before other tasks get the thread.
const OBJECTS_PER_READ: usize = 64;

/// The members of the team that the permit is for.
///
/// # Errors
/// 404.
pub(super) async fn list(registry: &Registry, permit: &Permit) -> Result<EncodedObject, ApiError> {
    registry.stored(permit).await?;
    let mut names = registry.cache().principals().members_of(permit.name(), MAX_LISTED_MEMBERS + 1);
    let truncated = names.len() > MAX_LISTED_MEMBERS;
    names.truncate(MAX_LISTED_MEMBERS);
    let mut users = Vec::with_capacity(names.len());
    for (index, name) in names.into_iter().enumerate() {
        if index % OBJECTS_PER_READ == OBJECTS_PER_READ - 1 {
            tokio::task::yield_now().await;
        }
        // A user that was deleted since is no member.
        let Some(found) = registry.read_to_decide(&User, None, &name)? else { continue };
        let object: Object = found.part()?;
        let spec = user::Fields::deserialize(&object.fields).unwrap_or_default().spec;
        users.push(TeamMember { name, display_name: spec.display_name });
    }
    EncodedObject::with_fields(permit, &TeamMembers, &Spec { users, truncated })
}
