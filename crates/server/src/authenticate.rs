//! From `Parsed` to `Authenticated`: who is asking?

use std::sync::Arc;

use http::header::AUTHORIZATION;
use postern_auth::bearer::{self, Refusal};
use postern_auth::digest::Digester;
use postern_auth::directory::Directory;
use postern_auth::identity::Identity;
use postern_meta::status::{ApiError, Reason, StatusCause};

use crate::request::Parsed;

/// A request whose sender is known. Only [`authenticate`] makes one.
pub(crate) struct Authenticated {
    parsed: Parsed,
    identity: Arc<Identity>,
}

impl Authenticated {
    /// Both, for the next stage.
    pub(crate) fn into_parts(self) -> (Parsed, Arc<Identity>) {
        (self.parsed, self.identity)
    }
}

/// Looks up the credential by its digest.
///
/// # Errors
/// 401 which says why. The credential is in no message. 403 for impersonation.
pub(crate) fn authenticate(
    parsed: Parsed,
    digester: &Digester,
    directory: &Directory,
) -> Result<Authenticated, ApiError> {
    let headers = parsed.headers().get_all(AUTHORIZATION);
    let token = bearer::parse(headers.iter().map(http::HeaderValue::as_bytes)).map_err(refused)?;
    let identity = directory.identify(&digester.digest(&token)).map_err(refused)?;
    refuse_impersonation(&parsed)?;
    Ok(Authenticated { parsed, identity })
}

/// Impersonation is not served yet. Ignoring its headers would carry a request out with more
/// rights than its sender asked for.
fn refuse_impersonation(parsed: &Parsed) -> Result<(), ApiError> {
    let asked = parsed.headers().keys().any(|name| name.as_str().starts_with("impersonate-"));
    if !asked {
        return Ok(());
    }
    let message = "impersonation is not served: send the request without Impersonate- headers";
    Err(ApiError::new(403, Reason::Forbidden, message))
}

fn refused(refusal: Refusal) -> ApiError {
    let advice = StatusCause { message: refusal.advice().to_owned(), ..StatusCause::default() };
    ApiError::unauthorized(refusal.message()).with_cause(advice)
}
