//! Actions that a kind handles itself: pure functions of the object and the request body.

use postern_kinds::AnyKind;
use postern_kinds::action::{Action, ActionResult, Response};
use postern_meta::object::Object;
use postern_meta::status::ApiError;

use super::ActionOutput;
use crate::admit::{self, ActionHandler, Part, Writing};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// Runs the kind's handler, and stores the new state if there is one.
///
/// # Errors
/// 404; the errors of the kind and of an update.
pub(super) async fn act(
    registry: &Registry,
    permit: &Permit,
    action: &'static Action,
    handle: ActionHandler,
    body: Option<Object>,
    writing: &Writing,
) -> Result<ActionOutput, ApiError> {
    let body = body.unwrap_or_else(|| empty(permit.kind()));
    let current = registry.stored(permit).await?;
    let result = registry.admission().act(permit, handle, &current, &body)?;
    match result {
        ActionResult::Respond(object) => {
            let kind = response_kind(permit, action);
            Ok(ActionOutput::Object(kind, EncodedObject::for_action(permit, kind, &object)?))
        }
        ActionResult::Update(_) => {
            let changed = update(registry, permit, action, handle, &body, writing).await?;
            Ok(ActionOutput::Object(permit.kind(), changed))
        }
    }
}

/// The kind of an action's response.
pub(super) fn response_kind(permit: &Permit, action: &Action) -> &'static dyn AnyKind {
    match action.response {
        Response::Object(kind) => kind,
        Response::Same | Response::ListOf(_) => permit.kind(),
    }
}

async fn update(
    registry: &Registry,
    permit: &Permit,
    action: &'static Action,
    handle: ActionHandler,
    body: &Object,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let writing = Writing { part: Part::Action(action.subresource), ..writing.clone() };
    // The permission for the action covers the changes of the action.
    registry
        .rewrite(permit, writing.dry_run, |previous, secrets| {
            // The action runs again in each attempt, because its result depends on the object at that time.
            let view = registry.admission();
            match view.act(permit, handle, &previous.object, body)? {
                ActionResult::Update(wanted) => {
                    admit::update(&view, permit, wanted, previous, secrets, &writing)
                }
                ActionResult::Respond(_) => {
                    let resource = permit.kind().info().group_resource();
                    Err(ApiError::conflict_modified(resource, permit.name()))
                }
            }
        })
        .await
}

fn empty(kind: &dyn AnyKind) -> Object {
    Object {
        api_version: kind.info().version.to_string(),
        kind: kind.info().kind.to_owned(),
        metadata: postern_meta::object::ObjectMeta::default(),
        fields: serde_json::Map::new(),
    }
}
