//! The actions of kinds: their requests besides create, read, update, delete and watch. This is the
//! one place that matches the server's actions. `postern_registry::actions` matches those of the
//! registry.

use http::StatusCode;
use postern_kinds::Verb;
use postern_kinds::action::{self, Action, Handler, RegistryAction, ServerAction};
use postern_kinds::audit_event_list::AuditEventList;
use postern_kinds::connector_test::ConnectorTest;
use postern_meta::accept::Offered;
use postern_meta::object::Object;
use postern_meta::options::{GetOptions, ListOptions, WriteKind, WriteOptions};
use postern_meta::status::ApiError;
use postern_registry::actions::{self, ActionInput, ActionOutput};
use postern_registry::admit::Part;
use postern_registry::permit::SELECTABLE_FIELDS;
use postern_registry::registry::EncodedObject;
use postern_registry::registry::values::Recipient;

use super::verbs::{self, VerbRequest};
use super::{Outcome, Server, agent_config, audit_events, secret_subscriptions, sessions, tunnel};
use postern_http::stages::parse::Parsed;
use postern_http::wire::encode::Negotiated;
use postern_http::wire::input::ReceivedBody;
use postern_http::wire::respond::{self, ObjectResponse};

/// Serves an action. Each future is boxed: requests without an action need no room for it.
///
/// # Errors
/// Those of the action.
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
    action: &'static Action,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let handler = match action.handler {
        Handler::Registry(handler) => {
            return Box::pin(run(server, request, action, handler, body)).await;
        }
        Handler::Server(handler) => handler,
    };
    match handler {
        ServerAction::Status => Box::pin(status(server, request, action, body)).await,
        ServerAction::ConsoleSession
        | ServerAction::ConsoleLoginCode
        | ServerAction::CommandLineConsent => {
            Box::pin(sessions::serve(server, request, &body)).await
        }
        ServerAction::AgentConfig => {
            Box::pin(agent_config::serve(server, request)).await.map(Outcome::from)
        }
        ServerAction::ReportAuditEvents => {
            Box::pin(report_audit_events(server, request, action, body)).await
        }
        ServerAction::SubscribeSecrets => {
            let Sent { object, warnings, options } = Sent::of(request, action, &body)?;
            drop(body);
            let begun = secret_subscriptions::serve(server, request, object, &options);
            Ok(Outcome { warnings, ..Box::pin(begun).await?.into() })
        }
        ServerAction::Tunnel => Box::pin(tunnel::serve(server, request)).await.map(Outcome::from),
        ServerAction::TestConnector => {
            Box::pin(test_connector(server, request)).await.map(Outcome::from)
        }
    }
}

/// Reads or changes the status of an object.
async fn status(
    server: &Server,
    request: &VerbRequest,
    action: &'static Action,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    match action.verb {
        Verb::Get => verbs::get(server, request).await.map(Outcome::from),
        Verb::Update => verbs::replace(server, parsed, permit, Part::Status, body).await,
        Verb::Patch => verbs::patch(server, parsed, permit, Part::Status, body).await,
        _ => Err(ApiError::resource_not_served()),
    }
}

/// Writes the records of a cluster's agent into the audit log.
async fn report_audit_events(
    server: &Server,
    request: &VerbRequest,
    action: &'static Action,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    let Sent { object, warnings, options } = Sent::of(request, action, &body)?;
    let writing = verbs::writing(parsed, &options, Part::Main);
    let object = audit_events::report(server, permit, object, &writing).await?;
    let response = respond::object(
        &Recipient::new(&server.registry, permit),
        &AuditEventList,
        StatusCode::CREATED,
        object,
        negotiated,
    )?;
    Ok(Outcome { warnings, ..response.into() })
}

/// Tests a connector, which takes requests to the identity provider.
async fn test_connector(
    server: &Server,
    request: &VerbRequest,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    // The options have no effect. Invalid ones are rejected all the same.
    GetOptions::parse(parsed.query())?;
    let tested = server.sso.test(permit.name()).await?;
    let object = EncodedObject::with_fields(permit, &ConnectorTest, &tested)?;
    respond::object(
        &Recipient::new(&server.registry, permit),
        &ConnectorTest,
        StatusCode::OK,
        object,
        negotiated,
    )
}

/// Runs an action of the registry.
async fn run(
    server: &Server,
    request: &VerbRequest,
    action: &'static Action,
    handler: RegistryAction,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let lists = matches!(action.response, action::Response::ListOf(_));
    let offered = if lists { Offered::List } else { Offered::Object };
    let negotiated = Negotiated::of(parsed, offered, server.source.now())?;
    let list = list_options(parsed, lists)?;
    let Sent { object, warnings, options } = if action.verb == Verb::Get {
        if !lists {
            // The options have no effect. Invalid ones are rejected all the same.
            GetOptions::parse(parsed.query())?;
        }
        Sent::default()
    } else {
        Sent::of(request, action, &body)?
    };
    let writing = verbs::writing(parsed, &options, Part::Main);
    let part = match action.part() {
        Some(handler) => parsed.query().single(handler.parameter)?,
        None => None,
    };
    let input = ActionInput { body: object, list: &list, part };
    match actions::run(&server.registry, permit, action, handler, input, &writing).await? {
        ActionOutput::List(kind, page) => {
            let large = request.large_work(server);
            respond::list(&Recipient::new(&server.registry, permit), kind, page, negotiated, large)
                .map(Outcome::from)
        }
        ActionOutput::Object(kind, object) => {
            let is_post = action.verb == Verb::Create;
            let code = if is_post { StatusCode::CREATED } else { StatusCode::OK };
            // The audit record gets the created object only if it has the kind that the request names.
            let same = matches!(action.response, action::Response::Same);
            let created = object.created().filter(|_| is_post && same).cloned();
            let response = respond::object(
                &Recipient::new(&server.registry, permit),
                kind,
                code,
                object,
                negotiated,
            )?;
            Ok(Outcome { warnings, created, ..response.into() })
        }
    }
}

/// The body of an action with its warnings, and its options.
#[derive(Default)]
struct Sent {
    /// The object in the body; `None` for an action that reads.
    object: Option<Object>,
    warnings: Vec<String>,
    options: WriteOptions,
}

impl Sent {
    /// The content of an action's request.
    fn of(
        request: &VerbRequest,
        action: &'static Action,
        body: &ReceivedBody,
    ) -> Result<Self, ApiError> {
        let VerbRequest { parsed, permit, .. } = request;
        let options = WriteOptions::parse(parsed.query(), WriteKind::Create)?;
        let kind = action.request.unwrap_or(permit.kind());
        let validation = options.field_validation;
        let (object, warnings) = verbs::sent_object(parsed, kind, body, validation)?;
        Ok(Self { object: Some(object), warnings, options })
    }
}

/// The list options of an action that lists; the defaults for other actions.
fn list_options(parsed: &Parsed, lists: bool) -> Result<ListOptions, ApiError> {
    if !lists {
        return Ok(ListOptions::default());
    }
    if parsed.query().flag("watch")?.unwrap_or(false) {
        let message = "the access keys of one owner cannot be watched: watch ownedaccesskeys";
        return Err(ApiError::bad_request(message));
    }
    ListOptions::parse(parsed.query(), SELECTABLE_FIELDS)
}
