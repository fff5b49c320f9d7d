//! From `Parsed` to `Authenticated`: who is asking?

use std::sync::Arc;

use http::header::AUTHORIZATION;
use postern_auth::bearer::{self, Refusal};
use postern_auth::digest::{Digest, Digester};
use postern_auth::directory::Directory;
use postern_auth::identity::Identity;
use postern_meta::status::{ApiError, Reason, StatusCause};
use postern_meta::time::Timestamp;

use crate::request::Parsed;

/// A request whose sender is known. Only [`authenticate`] makes one.
pub(crate) struct Authenticated {
    parsed: Parsed,
    credential: Credential,
}

/// Who somebody is, and what he showed to prove it.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    /// Who he is.
    pub(crate) identity: Arc<Identity>,
    /// The digest of the key that he showed; `None` for the server itself.
    pub(crate) digest: Option<Digest>,
}

impl Credential {
    /// Does it still stand for whom it stood for?
    ///
    /// # Errors
    /// 401 that says why not; 409 when its bearer has become somebody who may do other things.
    pub(crate) fn check(&self, directory: &Directory, now: Timestamp) -> Result<(), ApiError> {
        let Some(digest) = self.digest else { return Ok(()) };
        let standing = directory.identify(&digest, now.unix_seconds()).map_err(refused)?;
        if standing.identity == self.identity {
            return Ok(());
        }
        let message = "what the bearer of this access key may do has changed while the request \
                       came in: send it again";
        Err(ApiError::new(409, Reason::Conflict, message))
    }
}

impl Authenticated {
    /// The name of whoever the access key belongs to.
    pub(crate) fn owner(&self) -> &str {
        &self.credential.identity.name
    }

    /// Both, for the next stage.
    pub(crate) fn into_parts(self) -> (Parsed, Credential) {
        (self.parsed, self.credential)
    }
}

/// Looks up the credential by its digest, and notes that it was used.
///
/// # Errors
/// 401 which says why. The credential is in no message. 403 for impersonation.
pub(crate) fn authenticate(
    parsed: Parsed,
    digester: &Digester,
    directory: &Directory,
    now: Timestamp,
) -> Result<Authenticated, ApiError> {
    let headers = parsed.headers().get_all(AUTHORIZATION);
    let token = bearer::parse(headers.iter().map(http::HeaderValue::as_bytes)).map_err(refused)?;
    let digest = digester.digest(&token);
    let standing = directory.identify(&digest, now.unix_seconds()).map_err(refused)?;
    standing.activity.note(now.unix_seconds());
    refuse_impersonation(&parsed)?;
    let identity = standing.identity.clone();
    Ok(Authenticated { parsed, credential: Credential { identity, digest: Some(digest) } })
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

/// 401 that says why.
pub(crate) fn refused(refusal: Refusal) -> ApiError {
    let advice = StatusCause { message: refusal.advice().to_owned(), ..StatusCause::default() };
    ApiError::unauthorized(refusal.message()).with_cause(advice)
}
