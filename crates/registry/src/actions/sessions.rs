//! Sessions of the console, and codes of login links: access keys that act as the key of the login,
//! and end with it (`docs/reference/sessions.md`). The server creates them regardless of the
//! caller's permissions: a session has the permissions of its key. This module does not handle
//! cookies.

use std::sync::Arc;

use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::console_login_code::{self, ConsoleLoginCode};
use postern_kinds::console_session::{self, ConsoleSession, NoSpec};
use postern_kinds::owned_access_key::{
    CommandLine, Fields, OwnedAccessKey, SESSION_LABEL, Session, Spec, Status,
};
use postern_kinds::principal::Maker;
use postern_kinds::{AnyKind, SecretText, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::DeleteOptions;
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admit::{Limit, Writing};
use crate::operations;
use crate::permit::Permit;
use crate::registry::side_records::new_access_key;
use crate::registry::{EncodedObject, Registry, decoded};

/// The lifetime of the code of a login link.
const CODE_SECONDS: i64 = 60;

/// The values of the label of sessions, of logins of the command line, and of codes.
pub(super) const CONSOLE: &str = "console";
const COMMAND_LINE: &str = "cli";
pub(super) const LOGIN_CODE: &str = "login-code";

/// The field manager of sessions.
const MANAGER: &str = "postern-console";

/// The client of a login.
#[derive(Clone, Debug)]
pub struct Login {
    /// The address.
    pub address: String,
    /// The `User-Agent`.
    pub user_agent: String,
}

impl Login {
    /// The session that begins. `command_line` is set for a login of the command line, which no idleness ends.
    fn into_session(self, registry: &Registry, command_line: Option<CommandLine>) -> Session {
        let idle_seconds = registry.user_policy().session_idle_seconds;
        Session {
            address: self.address,
            user_agent: self.user_agent,
            idle_seconds: if command_line.is_some() { 0 } else { idle_seconds },
            begun: None,
            login_code: false,
            owner_disabled_count: None,
            command_line,
        }
    }
}

/// A new session.
pub struct NewSession {
    /// The response.
    pub object: EncodedObject,
    /// The value of the session's key, for the cookie.
    pub value: SecretText,
}

/// Begins a session with the access key of the request, or the session of the code of a login link.
///
/// # Errors
/// - 403 for a key that is a session itself or has a scope, under impersonation, and when the key has too many sessions
/// - 401 if the key is no longer valid, and if the code was used
pub async fn begin(
    registry: &Registry,
    permit: &Permit,
    login: Login,
) -> Result<NewSession, ApiError> {
    registry.cache().wait_until_current().await?;
    let key = current(registry, permit)?;
    let value = if key.used_as.is_code() {
        if permit.credential().is_acting() {
            return Err(refused("a session cannot begin under impersonation"));
        }
        redeemed(registry, &key, login).await?
    } else {
        check_may_begin(registry, permit, &key)?;
        created(registry, &key, login.into_session(registry, None), None).await?
    };
    let session = resolved(registry, &value).await?;
    Ok(NewSession { object: described(permit, &session)?, value })
}

/// Makes a code for a login link with the access key of the request.
///
/// # Errors
/// Those of [`begin`].
pub async fn make_code(registry: &Registry, permit: &Permit) -> Result<EncodedObject, ApiError> {
    registry.cache().wait_until_current().await?;
    let key = current(registry, permit)?;
    check_may_begin(registry, permit, &key)?;
    let session = Session { login_code: true, ..Session::default() };
    let code = created(registry, &key, session, None).await?;
    let session = resolved(registry, &code).await?;
    let status = console_login_code::Status {
        access_key: session.identity.access_key.clone(),
        user_name: session.identity.name.clone(),
        code,
        expires_at: session.ends_at().map(Timestamp::from_unix_seconds),
    };
    let fields = console_login_code::Fields { status, ..console_login_code::Fields::default() };
    answered(permit, &ConsoleLoginCode, &session, fields)
}

/// Creates the key of a session, and returns its value. Without a value, it gets a random one.
pub(super) async fn created(
    registry: &Registry,
    key: &ResolvedKey,
    session: Session,
    value: Option<SecretText>,
) -> Result<SecretText, ApiError> {
    let name = &key.identity.access_key;
    let stored = registry.read_to_decide(&OwnedAccessKey, None, name)?;
    let stored: Option<Object> = stored.map(|stored| stored.part()).transpose()?;
    let stored = stored.filter(|stored| stored.metadata.uid == key.uid);
    let stored = stored.ok_or_else(|| refused("the access key of the request is gone"))?;
    let given = Fields::deserialize(&stored.fields)
        .map_err(|error| ApiError::internal("an access key cannot be read", error))?;
    let maker = Maker { name: name.clone(), uid: key.uid.clone(), impersonated: None };
    let mut new = session_of(registry, given.spec, maker, session)?;
    if let Some(value) = &value {
        set_value(&mut new, value);
    }
    create_key(registry, new).await
}

/// Creates the key of a session or of a code, and returns its value.
pub(super) async fn create_key(registry: &Registry, new: Object) -> Result<SecretText, ApiError> {
    let creating = Permit::for_server(&OwnedAccessKey, Verb::Create, None, "");
    let created = operations::create(registry, &creating, new, &Writing::by(MANAGER)).await?;
    let mut created = decoded(&created)?;
    match created.fields.get_mut("spec").and_then(|spec| spec.get_mut("key")) {
        Some(Value::String(value)) => Ok(SecretText::from(std::mem::take(value))),
        _ => Err(ApiError::internal("the session has no key", MANAGER)),
    }
}

/// Sets the value of a key. It is never serialized with the other fields.
fn set_value(object: &mut Object, value: &SecretText) {
    if let Some(Value::Object(spec)) = object.fields.get_mut("spec") {
        spec.insert("key".to_owned(), Value::from(value.expose()));
    }
}

/// Makes a session of a code: its key gets another value, and the lifetime of a session. The write is for the code as it
/// was read, so of two requests with one code, also to two servers, one succeeds.
pub(super) async fn redeemed(
    registry: &Registry,
    code: &ResolvedKey,
    login: Login,
) -> Result<SecretText, ApiError> {
    registry.servers().check_clock()?;
    let value = new_access_key(registry.source());
    let updating =
        Permit::for_server(&OwnedAccessKey, Verb::Update, None, &code.identity.access_key);
    let writing = Writing::by(MANAGER);
    let updated = operations::update(registry, &updating, &writing, |stored| {
        let mut fields = Fields::deserialize(&stored.fields)
            .map_err(|error| ApiError::internal("an access key cannot be read", error))?;
        let known = fields.status.session.take().filter(|session| session.login_code);
        let Some(known) = known.filter(|_| stored.metadata.uid == code.uid) else {
            return Err(used());
        };
        let session = login.clone().into_session(registry, known.command_line);
        fields.spec.ttl = session_ttl_seconds(registry, session.command_line.as_ref());
        let label = if session.command_line.is_some() { COMMAND_LINE } else { CONSOLE };
        // An invited user may have had the code for days.
        let begun = Some(registry.source().now());
        fields.status.session = Some(Session { begun, ..session });
        let mut object = stored.clone();
        object.metadata.labels.insert(SESSION_LABEL.to_owned(), label.to_owned());
        object.fields = encoded(fields)?;
        set_value(&mut object, &value);
        Ok(object)
    });
    match updated.await {
        Ok(_) => Ok(value),
        Err(error) if error.code() == 404 => Err(used()),
        Err(error) => Err(error),
    }
}

/// The 401 for a code that has already begun a session.
pub(super) fn used() -> ApiError {
    crate::credential::refused(Refusal::Unknown)
}

/// The key with a value that was just stored.
pub(super) async fn resolved(
    registry: &Registry,
    value: &SecretText,
) -> Result<Arc<ResolvedKey>, ApiError> {
    let digest = registry.digester().digest(&BearerToken::of_key(value));
    registry.cache().wait_until_current().await?;
    let (now, cache) = (registry.source().now().unix_seconds(), registry.cache());
    let session = cache.principals().identify_or_code(&digest, now, &cache.policy());
    session.map_err(|refusal| refused(refusal.message()))
}

/// The session of the request.
///
/// # Errors
/// 404 if the access key of the request is not a session; 401 if it is no longer valid.
pub fn read(registry: &Registry, permit: &Permit) -> Result<EncodedObject, ApiError> {
    let session = own(registry, permit)?;
    described(permit, &session)
}

/// Ends the session of the request, and returns the uid of its key.
///
/// # Errors
/// 404 if the access key of the request is not a session; 401 if it is no longer valid.
pub async fn end(registry: &Registry, permit: &Permit) -> Result<(String, String), ApiError> {
    let session = own(registry, permit)?;
    let name = session.identity.access_key.clone();
    let deleting = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, &name);
    let options =
        DeleteOptions { precondition_uid: Some(session.uid.clone()), ..DeleteOptions::default() };
    operations::log_out(registry, &deleting, &options).await?;
    Ok((name, session.uid.clone()))
}

/// The access key of the request as it is now.
pub(super) fn current(registry: &Registry, permit: &Permit) -> Result<Arc<ResolvedKey>, ApiError> {
    let cache = registry.cache();
    let now = registry.source().now();
    let current = permit.credential().current(cache, &cache.policy(), now)?;
    current.map(|current| current.key).ok_or_else(|| refused("the request has no access key"))
}

/// The session of the request.
fn own(registry: &Registry, permit: &Permit) -> Result<Arc<ResolvedKey>, ApiError> {
    let key = current(registry, permit)?;
    if key.used_as.is_session() {
        return Ok(key);
    }
    let message = "the access key of the request is not a session";
    Err(ApiError::new(404, Reason::NotFound, message))
}

pub(super) fn refused(why: &str) -> ApiError {
    ApiError::forbidden(ConsoleSession.info().group_resource(), "", why)
}

/// Checks that the caller may begin a session with the key of the request.
///
/// # Errors
/// 403 under impersonation, for a key that is a session, for a key with a scope, and when the key has too many sessions.
pub(super) fn check_may_begin(
    registry: &Registry,
    permit: &Permit,
    key: &ResolvedKey,
) -> Result<(), ApiError> {
    if permit.credential().is_acting() {
        return Err(refused("a session cannot begin under impersonation"));
    }
    if key.used_as.is_session() {
        return Err(refused("a session cannot begin another one: log in with an access key"));
    }
    if key.identity.is_scoped() {
        return Err(refused(
            "the access key has a scope, and cannot begin a session: log in with a key without one",
        ));
    }
    let now = registry.source().now().unix_seconds();
    let name = &key.identity.access_key;
    Limit::of_sessions(&key.uid).check(name, registry.cache(), now)
}

/// The lifetime of a session in seconds. The command line may have asked for a shorter one.
fn session_ttl_seconds(registry: &Registry, command_line: Option<&CommandLine>) -> i64 {
    let policy = registry.user_policy();
    let asked = command_line.map(|asked| asked.ttl_seconds).filter(|seconds| *seconds > 0);
    let limits = [policy.max_ttl_seconds, asked];
    limits.into_iter().flatten().fold(policy.session_seconds, i64::min)
}

/// The access key of a session: that of the same owner with the same groups and scope.
fn session_of(
    registry: &Registry,
    given: Spec,
    maker: Maker,
    session: Session,
) -> Result<Object, ApiError> {
    let ttl = session_ttl_seconds(registry, session.command_line.as_ref());
    let (label, ttl) =
        if session.login_code { (LOGIN_CODE, ttl.min(CODE_SECONDS)) } else { (CONSOLE, ttl) };
    let (prefix, display_name) = match &session.command_line {
        Some(CommandLine { host, .. }) => ("cli-", format!("Command line on {host}")),
        None => ("session-", "Console session".to_owned()),
    };
    let spec = Spec {
        display_name,
        user: given.user,
        team: given.team,
        subject: given.subject,
        groups: given.groups,
        scope: given.scope,
        r#type: given.r#type,
        ttl,
        ..Spec::default()
    };
    let status = Status { maker: Some(maker), session: Some(session), ..Status::default() };
    key_object(Fields { spec, status }, prefix, label)
}

/// The access key of a session or of a code, with a generated name.
pub(super) fn key_object(
    fields: Fields,
    prefix: &str,
    label: &'static str,
) -> Result<Object, ApiError> {
    let (info, fields) = (OwnedAccessKey.info(), encoded(fields)?);
    let mut metadata = ObjectMeta { generate_name: prefix.to_owned(), ..ObjectMeta::default() };
    metadata.labels.insert(SESSION_LABEL.to_owned(), label.to_owned());
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    Ok(Object { api_version, kind, metadata, fields })
}

/// The response about a session.
fn described(permit: &Permit, session: &ResolvedKey) -> Result<EncodedObject, ApiError> {
    let status = console_session::Status {
        access_key: session.identity.access_key.clone(),
        user_name: session.identity.name.clone(),
        ends_at: session.ends_at().map(Timestamp::from_unix_seconds),
        expires_at: session.latest_end().map(Timestamp::from_unix_seconds),
        idle_seconds: session.lifetime.idle_seconds,
    };
    answered(permit, &ConsoleSession, session, console_session::Fields { spec: NoSpec {}, status })
}

/// A response of a kind, about the key of a session.
pub(super) fn answered(
    permit: &Permit,
    kind: &dyn AnyKind,
    session: &ResolvedKey,
    fields: impl Serialize,
) -> Result<EncodedObject, ApiError> {
    let metadata =
        ObjectMeta { name: session.identity.access_key.clone(), ..ObjectMeta::default() };
    let info = kind.info();
    let (api_version, fields) = (info.version.to_string(), encoded(fields)?);
    let object = Object { api_version, kind: info.kind.to_owned(), metadata, fields };
    EncodedObject::for_action(permit, kind, &object)
}

pub(super) fn encoded(fields: impl Serialize) -> Result<Map<String, Value>, ApiError> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(ApiError::internal("the session could not be encoded", MANAGER)),
    }
}
