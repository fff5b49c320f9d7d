//! Login links for other users: the code of a link is valid for hours, and begins one session of its user
//! (`docs/reference/sessions.md#invitations`).
//!
//! The caller could create an access key of the user without an end, and send that. So the permissions are those for such a
//! key: `createkey` on the user by a role, and a key of the caller without a scope and without an end.

use postern_kinds::console_login_code::{
    ConsoleLoginCode, Fields as CodeFields, Spec as CodeSpec, Status as CodeStatus,
};
use postern_kinds::owned_access_key::{Fields, Issuer, LOGIN, Session, Spec, Status};
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind as _, Caller, Principal, RequiredRight};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use serde::Deserialize as _;

use super::sessions;
use crate::admit::Writing;
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// The lifetime of a code if the caller gives none, and the longest one.
const DEFAULT_SECONDS: i64 = 24 * 3600;
const MAX_SECONDS: i64 = 72 * 3600;

/// Makes a code for a login link of the user that the permit is for.
///
/// # Errors
/// - 403 without `createkey` on the user by a role, for a key with a scope or an end, and under impersonation
/// - 404 if there is no such user; 409 if the user is disabled
/// - 422 for a lifetime that is too long
pub(super) async fn make_code(
    registry: &Registry,
    permit: &Permit,
    body: Option<Object>,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    registry.cache().wait_until_current().await?;
    check_may_invite(registry, permit)?;
    let sent = body.map(|body| CodeFields::deserialize(&body.fields).unwrap_or_default().spec);
    let ttl = checked_ttl(registry, &sent.unwrap_or_default())?;
    let name = permit.name();
    let stored =
        user::Fields::deserialize(&registry.stored(permit).await?.fields).unwrap_or_default();
    if stored.spec.disabled {
        let why = "the user is disabled: enable the user first";
        return Err(ApiError::conflict(User.info().group_resource(), name, why));
    }
    if writing.dry_run {
        let status = CodeStatus { user_name: name.to_owned(), ..CodeStatus::default() };
        return EncodedObject::with_fields(permit, &ConsoleLoginCode, &code_fields(ttl, status));
    }
    let spec = Spec {
        display_name: "Console session".to_owned(),
        user: name.to_owned(),
        // The key of a person: it may create keys that end later.
        r#type: LOGIN.to_owned(),
        ttl,
        ..Spec::default()
    };
    let owner_disabled_count = Some(stored.status.disabled_count);
    let session = Session { login_code: true, owner_disabled_count, ..Session::default() };
    let inviter = permit.identity();
    let issued_to = Issuer::of(&Caller {
        user: inviter.user.clone(),
        team: inviter.team.clone(),
        uid: inviter.uid.clone(),
    });
    let status = Status { session: Some(session), issued_to, ..Status::default() };
    let fields = Fields { spec, status };
    let key = sessions::key_object(fields, "session-", sessions::LOGIN_CODE)?;
    let code = sessions::create_key(registry, key).await?;
    let session = sessions::resolved(registry, &code).await?;
    let status = CodeStatus {
        access_key: session.identity.access_key.clone(),
        user_name: session.identity.name.clone(),
        code,
        expires_at: session.ends_at().map(Timestamp::from_unix_seconds),
    };
    sessions::answered(permit, &ConsoleLoginCode, &session, code_fields(ttl, status))
}

fn code_fields(ttl: i64, status: CodeStatus) -> CodeFields {
    CodeFields { spec: CodeSpec { ttl }, status }
}

/// The lifetime of the code, in seconds.
fn checked_ttl(registry: &Registry, spec: &CodeSpec) -> Result<i64, ApiError> {
    let of_keys = registry.user_policy().max_ttl_seconds.unwrap_or(i64::MAX);
    let longest = MAX_SECONDS.min(of_keys);
    match spec.ttl {
        0 => Ok(DEFAULT_SECONDS.min(longest)),
        ttl if (1..=longest).contains(&ttl) => Ok(ttl),
        ttl => {
            let mut errors = FieldErrors::new();
            let detail = format!("must be between 1 and {longest} seconds");
            errors.push(FieldError::invalid("spec.ttl", ttl, detail));
            Err(ApiError::invalid(ConsoleLoginCode.info().group_kind(), "", errors))
        }
    }
}

/// Checks that the caller may create an access key of the user without an end.
fn check_may_invite(registry: &Registry, permit: &Permit) -> Result<(), ApiError> {
    if permit.credential().is_acting() {
        return Err(sessions::refused("a user cannot be invited under impersonation"));
    }
    let key = sessions::current(registry, permit)?.as_caller_key(None);
    if key.is_scoped {
        let why = "the access key has a scope, and cannot invite a user: use a key without one";
        return Err(sessions::refused(why));
    }
    // A key that ends with another one makes keys that end with it, too. The session would not.
    if key.has_maker || (!key.is_login && key.ends_at().is_some()) {
        let why =
            "the access key ends, and cannot invite a user: use a key without an end, or log in";
        return Err(sessions::refused(why));
    }
    let right = Principal::User(permit.name()).right("createkey");
    permit.check_right(&RequiredRight::from(right).by_role())
}
