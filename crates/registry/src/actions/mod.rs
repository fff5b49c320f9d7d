//! The actions that kinds serve in addition to create, read, update, delete and watch: the handlers for the rows of
//! their tables of actions. The tables are with the kinds. The server's own actions are matched one by one, so an
//! action without a handler does not compile.

mod cluster_groups;
pub mod command_line;
mod endpoint_tokens;
pub mod exchanges;
mod key_limits;
pub mod logins;
mod migrate;
mod object;
mod previews;
mod project_lists;
pub mod refreshes;
mod reviews;
mod selves;
pub mod sessions;
mod who_can;

use postern_kinds::AnyKind;
use postern_kinds::action::{Action, Handler, ServerAction};
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

/// Runs an action.
///
/// # Errors
/// The errors of the action.
pub async fn run(
    registry: &Registry,
    permit: &Permit,
    action: &'static Action,
    input: ActionInput<'_>,
    writing: &Writing,
) -> Result<ActionOutput, ApiError> {
    let ActionInput { body, list, part } = input;
    let same = |object| ActionOutput::Object(permit.kind(), object);
    match action.handler {
        Handler::Server(ServerAction::WhoAmI) => {
            selves::who_am_i(registry, permit, body).await.map(same)
        }
        Handler::Server(ServerAction::IssueEndpointToken) => {
            endpoint_tokens::issue(registry, permit, body, writing).await.map(same)
        }
        Handler::Server(ServerAction::AccessKeysOfOwner) => {
            let keys = registry.access_keys_of(permit, list).await?;
            Ok(ActionOutput::List(&OwnedAccessKey, keys))
        }
        Handler::Server(
            action @ (ServerAction::SelfSubjectAccessReview
            | ServerAction::SubjectAccessReview
            | ServerAction::LocalSubjectAccessReview
            | ServerAction::SelfSubjectRulesReview
            | ServerAction::SelfSubjectReview
            | ServerAction::TokenReview
            | ServerAction::ResourceAccessReview),
        ) => Box::pin(reviews::review(registry, permit, action, body)).await.map(same),
        Handler::Server(ServerAction::AccessPreview) => {
            Box::pin(previews::preview(registry, permit, body)).await.map(same)
        }
        Handler::Server(ServerAction::ProjectMembers) => {
            let members = project_lists::members(registry, permit).await?;
            Ok(ActionOutput::Object(object::response_kind(permit, action), members))
        }
        Handler::Server(ServerAction::ProjectClusters) => {
            let clusters = project_lists::clusters(registry, permit).await?;
            Ok(ActionOutput::Object(object::response_kind(permit, action), clusters))
        }
        Handler::Server(ServerAction::MigrateVirtualClusterInstance) => {
            let moved = Box::pin(migrate::migrate(registry, permit, body, writing)).await?;
            Ok(ActionOutput::Object(object::response_kind(permit, action), moved))
        }
        Handler::Object(handle) => {
            object::act(registry, permit, action, handle, body, writing).await
        }
        Handler::Part(handler) => {
            let object = (handler.handle)(&registry.stored(permit).await?, part)?;
            let kind = object::response_kind(permit, action);
            Ok(ActionOutput::Object(kind, EncodedObject::for_action(permit, kind, &object)?))
        }
        // The pipeline serves these: the status subresource like the object itself, the audit log, the watch of an
        // agent's configuration, tunnels, and the cookies of sessions.
        Handler::Status
        | Handler::Server(
            ServerAction::ReportAuditEvents
            | ServerAction::AgentConfig
            | ServerAction::Tunnel
            | ServerAction::TestConnector
            | ServerAction::ConsoleSession
            | ServerAction::ConsoleLoginCode
            | ServerAction::CommandLineConsent,
        ) => Err(ApiError::resource_not_served()),
    }
}
