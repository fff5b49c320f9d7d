//! Logins of the command line: a person with a session of the console consents, and the command
//! line redeems the code. The key acts as that session, and ends with it. This module does not
//! handle HTTP or the form of the requests.

use std::sync::Arc;

use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::command_line_consent::{CommandLineConsent, Fields, Spec, Status};
use postern_kinds::owned_access_key::{CommandLine, Session};
use postern_kinds::principal::KeyUse;
use postern_kinds::{AnyKind as _, SecretText};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_oidc::command_line::Asked;

use super::sessions::{self, Login};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// The login of a command line, as a person sees it before the decision.
#[derive(Debug)]
pub struct Described {
    /// The name that access decisions will see.
    pub user: String,
    /// When the key ends at the latest.
    pub expires_at: Option<Timestamp>,
    /// Whether the session has a scope.
    pub is_scoped: bool,
}

/// The session that consents.
///
/// # Errors
/// 403 if the key of the request is no session of the console, and under impersonation.
fn session_of(registry: &Registry, permit: &Permit) -> Result<Arc<ResolvedKey>, ApiError> {
    let key = sessions::current(registry, permit)?;
    if permit.credential().is_acting() || key.used_as != KeyUse::Session {
        let why = "only a session of the console can allow a login of the command line";
        return Err(sessions::refused(why));
    }
    Ok(key)
}

/// Describes the key from a login of the command line.
///
/// # Errors
/// 403 if the key of the request is no session of the console, and under impersonation.
pub fn describe(
    registry: &Registry,
    permit: &Permit,
    asked: &Asked,
) -> Result<Described, ApiError> {
    let session = session_of(registry, permit)?;
    let now = registry.source().now().unix_seconds();
    let wanted = (asked.ttl_seconds > 0).then(|| now.saturating_add(asked.ttl_seconds));
    let ends = session.latest_end().into_iter().chain(wanted).min();
    Ok(Described {
        user: session.identity.name.clone(),
        expires_at: ends.map(Timestamp::from_unix_seconds),
        is_scoped: session.identity.is_scoped(),
    })
}

/// Allows a login of the command line. `stored` is the text with the code and the redeemer's proof.
/// The digest of this text is stored.
///
/// # Errors
/// Those of [`describe`]; 403 if the session has consented to too many logins; 409 if the login was allowed already.
pub async fn allow(
    registry: &Registry,
    permit: &Permit,
    asked: &Asked,
    stored: SecretText,
) -> Result<(), ApiError> {
    registry.cache().wait_until_current().await?;
    let session = session_of(registry, permit)?;
    let command_line = CommandLine { host: asked.host.clone(), ttl_seconds: asked.ttl_seconds };
    let code = Session { login_code: true, command_line: Some(command_line), ..Session::default() };
    sessions::created(registry, &session, code, Some(stored)).await.map(drop)
}

/// The response about a consent.
///
/// # Errors
/// 500 if it cannot be encoded, which is a bug.
pub fn answered(permit: &Permit, status: Status) -> Result<EncodedObject, ApiError> {
    let fields = sessions::encoded(Fields { spec: Spec::default(), status })?;
    let info = CommandLineConsent.info();
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    let object = Object { api_version, kind, metadata: ObjectMeta::default(), fields };
    EncodedObject::for_action(permit, &CommandLineConsent, &object)
}

/// The code with this stored text.
///
/// # Errors
/// [`Refusal::Unknown`] if there is none, or it was used; [`Refusal::Expired`]. The outer error is that of the store.
pub async fn code_of(
    registry: &Registry,
    stored: &SecretText,
) -> Result<Result<Arc<ResolvedKey>, Refusal>, ApiError> {
    registry.cache().wait_until_current().await?;
    let digest = registry.digester().digest(&BearerToken::of_key(stored));
    let (now, cache) = (registry.source().now().unix_seconds(), registry.cache());
    Ok(cache.principals().identify_command_line_code(&digest, now, &cache.policy()))
}

/// Makes the key of the command line of its code. Returns its value, and the seconds until it ends at the latest. Of many
/// requests with one code, one succeeds.
///
/// # Errors
/// 401 if the code was used.
pub async fn redeem(
    registry: &Registry,
    code: &ResolvedKey,
    login: Login,
) -> Result<(SecretText, Option<i64>), ApiError> {
    let value = sessions::redeemed(registry, code, login).await?;
    let key = sessions::resolved(registry, &value).await?;
    let now = registry.source().now().unix_seconds();
    let left = key.latest_end().map(|end| end.saturating_sub(now));
    Ok((value, left))
}
