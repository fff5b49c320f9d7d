//! Serves an authorized request: one of its verbs, or an action of its kind.

use super::verbs::{
    VerbRequest, create, delete, delete_collection, get, list, patch, replace, watch,
};
use super::{Outcome, Server, actions};
use postern_http::wire::input::ReceivedBody;
use postern_kinds::Verb;
use postern_kinds::action::Action;
use postern_meta::options::{Request, ignored_option_warnings, parameter_warnings};
use postern_meta::status::ApiError;
use postern_registry::admit::Part;
use postern_registry::operations::{self};

/// Serves an authorized request.
///
/// # Errors
/// The error that the client gets.
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let mut outcome = serve_verb(server, request, body).await?;
    let action = permit.target().action;
    match written_by(permit.target().verb) {
        Some(write) => outcome.warnings.extend(ignored_option_warnings(parsed.query(), write)),
        None if action.is_some_and(Action::has_own_parameters) => {}
        None => {
            let own = action.and_then(Action::part).map(|handler| handler.parameter);
            outcome.warnings.extend(parameter_warnings(parsed.query(), own));
        }
    }
    Ok(outcome)
}

/// The write that a verb is, for its options; `None` for a read.
fn written_by(verb: Verb) -> Option<Request> {
    match verb {
        Verb::Get | Verb::List | Verb::Watch => None,
        Verb::Create => Some(Request::Create),
        Verb::Update => Some(Request::Update),
        Verb::Patch => Some(Request::Patch),
        Verb::Delete => Some(Request::Delete),
        Verb::DeleteCollection => Some(Request::DeleteCollection),
    }
}

async fn serve_verb(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    if let Some(action) = permit.target().action {
        return actions::serve(server, request, action, body).await;
    }
    // The futures of writes are boxed. Otherwise the future of a read would contain room for them, and
    // each move of the future would copy that room.
    match permit.target().verb {
        Verb::Get => get(server, request).await.map(Outcome::from),
        Verb::List => list(server, request).await,
        Verb::Watch => watch(server, request).await.map(Outcome::from),
        Verb::Create => Box::pin(create(server, parsed, permit, body)).await,
        Verb::Update => Box::pin(replace(server, parsed, permit, Part::Main, body)).await,
        Verb::Patch => Box::pin(patch(server, parsed, permit, Part::Main, body)).await,
        Verb::Delete => {
            // Before the deletion, since it may take the instances along.
            let warnings = operations::deletion_warnings(&server.registry, permit);
            let outcome = Box::pin(delete(server, parsed, permit, body)).await?;
            Ok(Outcome { warnings, ..outcome })
        }
        Verb::DeleteCollection => {
            let response = Box::pin(delete_collection(server, request, body)).await?;
            let warnings = operations::deletion_warnings(&server.registry, permit);
            Ok(Outcome { warnings, ..response.into() })
        }
    }
}
