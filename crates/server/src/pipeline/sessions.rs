//! Serves the session of a browser: login, logout, login links, and the description of the session.
//! This module writes the cookie, and `stages` reads it.

use http::header::{AUTHORIZATION, HeaderName, SET_COOKIE, USER_AGENT};
use http::{HeaderValue, StatusCode};
use postern_kinds::command_line_consent::{self, CommandLineConsent};
use postern_kinds::console_login_code::ConsoleLoginCode;
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::{AnyKind as _, Verb};
use postern_meta::accept::Offered;
use postern_meta::options::FieldValidation;
use postern_meta::status::{ApiError, Status};
use postern_registry::actions::sessions::{self, Login, NewSession};
use postern_registry::actions::{command_line, refreshes};
use postern_registry::registry::values::Recipient;
use serde::Deserialize as _;

use super::verbs::{self, VerbRequest};
use super::{Outcome, Server};
use postern_http::stages::parse::{AUTHORIZE_PATH, CODE_PATH, Parsed};
use postern_http::stages::session_cookie;
use postern_http::wire::encode::Negotiated;
use postern_http::wire::input::ReceivedBody;
use postern_http::wire::respond;

/// The maximum length of a recorded `User-Agent`, in characters.
const MAX_AGENT_CHARS: usize = 256;

/// The data that a browser removes at a logout, with the stored data of the console's pages.
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");
const CLEARED: &str = r#""cache", "cookies", "storage""#;

/// Where the browser ends its session at the identity provider, after a logout here.
const PROVIDER_LOGOUT: HeaderName = HeaderName::from_static("x-postern-provider-logout");

/// Serves a request for the session of the browser.
///
/// # Errors
/// 400 for a query; the errors of [`sessions`].
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
    body: &ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, address, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    if parsed.uri().query().is_some_and(|query| !query.is_empty()) {
        // Such as a dry run, which would begin or end a session.
        return Err(ApiError::bad_request("sessions have no query parameters"));
    }
    match permit.target().verb {
        Verb::Create if parsed.path() == AUTHORIZE_PATH => {
            let status = consent(server, request, body).await?;
            let object = command_line::answered(permit, status)?;
            respond::object(
                &Recipient::new(&server.registry, permit),
                &CommandLineConsent,
                StatusCode::OK,
                object,
                negotiated,
            )
            .map(Outcome::from)
        }
        Verb::Create if parsed.path() == CODE_PATH => {
            let object = sessions::make_code(&server.registry, permit).await?;
            let created = object.created().cloned();
            let code = StatusCode::CREATED;
            let response = respond::object(
                &Recipient::new(&server.registry, permit),
                &ConsoleLoginCode,
                code,
                object,
                negotiated,
            )?;
            Ok(Outcome { created, ..response.into() })
        }
        Verb::Create => {
            let login = Login { address: address.to_string(), user_agent: agent_of(parsed) };
            let NewSession { object, value } =
                sessions::begin(&server.registry, permit, login).await?;
            let created = object.created().cloned();
            let code = StatusCode::CREATED;
            let response = respond::object(
                &Recipient::new(&server.registry, permit),
                &ConsoleSession,
                code,
                object,
                negotiated,
            )?;
            let mut outcome = Outcome { created, ..response.into() };
            let cookie = session_cookie::set(&value).ok_or_else(|| {
                ApiError::internal("the cookie could not be made", session_cookie::NAME)
            })?;
            outcome.response.headers_mut().insert(SET_COOKIE, cookie);
            Ok(outcome)
        }
        Verb::Delete => {
            // Unreadable data does not block the logout.
            let at_provider = refreshes::provider_session(&server.registry, permit).await;
            let (name, uid) = sessions::end(&server.registry, permit).await?;
            let resource = ConsoleSession.info().group_resource();
            let status = Status::success_deleted(resource, &name, &uid);
            let mut response = respond::success(&status, negotiated);
            let headers = response.headers_mut();
            headers.insert(CLEAR_SITE_DATA, HeaderValue::from_static(CLEARED));
            let gone =
                format!("{}=; {}; Max-Age=0", session_cookie::NAME, session_cookie::ATTRIBUTES);
            headers.extend(HeaderValue::from_str(&gone).map(|gone| (SET_COOKIE, gone)));
            if let Ok(Some(session)) = at_provider {
                let address = server.sso.logout_address(&session).await;
                headers.extend(address.and_then(sensitive).map(|at| (PROVIDER_LOGOUT, at)));
            }
            Ok(response.into())
        }
        _ => {
            let object = sessions::read(&server.registry, permit)?;
            respond::object(
                &Recipient::new(&server.registry, permit),
                &ConsoleSession,
                StatusCode::OK,
                object,
                negotiated,
            )
            .map(Outcome::from)
        }
    }
}

/// A header value that is not compressed with those of other responses. It has a token.
fn sensitive(address: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(address).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Describes, allows or denies a login of the command line.
async fn consent(
    server: &Server,
    request: &VerbRequest,
    body: &ReceivedBody,
) -> Result<command_line_consent::Status, ApiError> {
    let VerbRequest { parsed, permit, address, .. } = request;
    if parsed.header(AUTHORIZATION).is_some() {
        // The value of a session is in the cookie of a browser alone.
        let why = "only the console can allow a login of the command line";
        return Err(ApiError::forbidden(CommandLineConsent.info().group_resource(), "", why));
    }
    let (object, _) =
        verbs::sent_object(parsed, &CommandLineConsent, body, FieldValidation::Strict)?;
    let fields = command_line_consent::Fields::deserialize(&object.fields)
        .map_err(|_| ApiError::bad_request("the body is no CommandLineConsent"))?;
    server.sso.consent(permit, fields.spec, *address).await
}

/// The browser of a request, without control characters.
fn agent_of(parsed: &Parsed) -> String {
    let agent = parsed.header(USER_AGENT).unwrap_or_default();
    agent.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MAX_AGENT_CHARS).collect()
}
