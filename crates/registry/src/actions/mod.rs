//! The actions that kinds serve in addition to create, read, update, delete and watch: the handlers for the rows of
//! their tables of actions. The tables are with the kinds. [`run`] matches the actions of the registry one by one, so an
//! action without a handler does not compile. The server handles the others.

mod cluster_groups;
pub mod command_line;
mod decider;
mod endpoint_tokens;
pub mod exchanges;
mod invitations;
mod key_limits;
pub mod logins;
mod migrate;
mod object;
mod previews;
mod project_lists;
pub mod refreshes;
mod reviews;
pub(crate) mod secret_readers;
mod secret_usage;
mod selves;
pub mod sessions;
mod team_members;
mod who_can;

use postern_kinds::AnyKind;
use postern_kinds::action::{Action, RegistryAction};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::object::Object;
use postern_meta::options::ListOptions;
use postern_meta::status::ApiError;

use crate::admit::Writing;
use crate::permit::Permit;
use crate::registry::read::ObjectPage;
use crate::registry::{EncodedObject, Registry};

/// The result of an action.
pub enum ActionOutput {
    /// One object of a kind.
    Object(&'static dyn AnyKind, EncodedObject),
    /// A list of objects of a kind.
    List(&'static dyn AnyKind, ObjectPage),
}

/// The input of an action.
pub struct ActionInput<'a> {
    /// The request body.
    pub body: Option<Object>,
    /// The options of an action that lists.
    pub list: &'a ListOptions,
    /// The name of the part of the object, for an action that returns one.
    pub part: Option<&'a str>,
}

/// Runs an action of the registry.
///
/// # Errors
/// The errors of the action.
pub async fn run(
    registry: &Registry,
    permit: &Permit,
    action: &'static Action,
    handler: RegistryAction,
    input: ActionInput<'_>,
    writing: &Writing,
) -> Result<ActionOutput, ApiError> {
    let ActionInput { body, list, part } = input;
    let same = |object| ActionOutput::Object(permit.kind(), object);
    let other = |object| ActionOutput::Object(object::response_kind(permit, action), object);
    match handler {
        RegistryAction::WhoAmI => selves::who_am_i(registry, permit, body).await.map(same),
        RegistryAction::LoginCode => {
            Box::pin(invitations::make_code(registry, permit, body, writing)).await.map(other)
        }
        RegistryAction::IssueEndpointToken => {
            endpoint_tokens::issue(registry, permit, body, writing).await.map(same)
        }
        RegistryAction::AccessKeysOfOwner => {
            let keys = registry.access_keys_of(permit, list).await?;
            Ok(ActionOutput::List(&OwnedAccessKey, keys))
        }
        RegistryAction::Review(review) => {
            Box::pin(reviews::review(registry, permit, review, body)).await.map(same)
        }
        RegistryAction::AccessPreview => {
            Box::pin(previews::preview(registry, permit, body)).await.map(same)
        }
        RegistryAction::ProjectMembers => project_lists::members(registry, permit).await.map(other),
        RegistryAction::TeamMembers => team_members::list(registry, permit).await.map(other),
        RegistryAction::Readers => {
            Box::pin(secret_readers::list(registry, permit)).await.map(other)
        }
        RegistryAction::SecretUsage => secret_usage::list(registry, permit).await.map(other),
        RegistryAction::ProjectClusters => {
            project_lists::clusters(registry, permit).await.map(other)
        }
        RegistryAction::MigrateVirtualClusterInstance => {
            Box::pin(migrate::migrate(registry, permit, body, writing)).await.map(other)
        }
        RegistryAction::Object(handle) => {
            object::act(registry, permit, action, handle, body, writing).await
        }
        RegistryAction::Part(handler) => {
            let object = (handler.handle)(&registry.stored(permit).await?, part)?;
            let kind = object::response_kind(permit, action);
            Ok(ActionOutput::Object(kind, EncodedObject::for_action(permit, kind, &object)?))
        }
    }
}
