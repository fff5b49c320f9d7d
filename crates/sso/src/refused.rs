//! Why a login is refused, and the page for the person.

use super::places::Busy;
use http::header::RETRY_AFTER;
use http::{Method, Response, StatusCode};
use postern_http::wire::body::Body;
use postern_http::wire::respond;
use postern_meta::status::ApiError;

/// The seconds after which a client may retry if too many logins are served.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// Why a login is refused if no place is free.
pub(crate) const TOO_MANY: &str = "too many logins at once: try again later";

/// Marks a response that is no success, and no fault of the client. This server or its store is
/// busy, or a person has not decided yet.
#[derive(Clone, Copy)]
pub(crate) struct Uncounted;

/// Why a login fails. The text is for the person, the log and the audit record: it has nothing that a provider sent.
#[derive(Debug)]
pub struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) text: String,
    pub(crate) about: About,
    pub(crate) retry_after_seconds: Option<u32>,
}

/// The cause of a refused login. It decides what a refresh of the login does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// This one login, or its answers.
    Login,
    /// The user: the provider or the connector no longer allows the login.
    User,
    /// The provider: others would fail as well.
    Provider,
    /// This server or its store.
    Server,
}

impl Refused {
    pub(crate) fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), about: About::Login, retry_after_seconds: None }
    }

    /// A login of a user that the provider or the connector does not allow.
    pub(crate) fn of_user(text: impl Into<String>) -> Self {
        Self { about: About::User, ..Self::new(StatusCode::FORBIDDEN, text) }
    }

    /// A login that is refused because of data from the provider or the browser.
    #[expect(clippy::needless_pass_by_value, reason = "most callers have an error to give away")]
    pub(crate) fn forbidden(text: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, text.to_string())
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self::from(&error)
    }
}

impl From<&ApiError> for Refused {
    fn from(error: &ApiError) -> Self {
        let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_of_server = code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS;
        let about = if is_of_server { About::Server } else { About::Login };
        let retry_after_seconds = error.retry_after_seconds();
        Self { about, retry_after_seconds, ..Self::new(code, error.status().message.clone()) }
    }
}

impl From<Busy> for Refused {
    fn from(Busy: Busy) -> Self {
        let refused = Self::new(StatusCode::TOO_MANY_REQUESTS, TOO_MANY);
        let retry_after_seconds = Some(RETRY_AFTER_SECONDS);
        Self { about: About::Server, retry_after_seconds, ..refused }
    }
}

/// A plain page that says why a login failed. Nothing of it is HTML.
pub(crate) fn refusal(refused: &Refused) -> Response<Body> {
    let wait = refused.retry_after_seconds;
    let then = wait.map_or_else(
        || "Go back, and begin it again.".to_owned(),
        |seconds| format!("Wait {seconds} s. Then go back, and begin it again."),
    );
    let text = format!("The login failed: {}.\n\n{then}\n", refused.text);
    let mut response = respond::text(refused.code, text);
    if let Some(seconds) = wait {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if refused.about == About::Server {
        response.extensions_mut().insert(Uncounted);
    }
    response
}

pub(crate) fn allowed(method: &Method, wanted: &Method) -> Result<(), Refused> {
    if method == wanted {
        return Ok(());
    }
    Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {wanted} on this path")))
}
