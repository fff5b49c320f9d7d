//! Logins through identity providers: the User of a person, the groups from the provider, and an
//! access key. This module does not depend on HTTP or on the provider's protocol.
//!
//! A person is found by issuer and subject alone. The writes pass the same admission as the writes
//! of clients.

use std::collections::BTreeSet;

use postern_kinds::connector::{self, Connector};
use postern_kinds::owned_access_key::{
    Fields, Identity, Login, OwnedAccessKey, SESSION_LABEL, Session, Spec, Status,
};
use postern_kinds::user::{self, SsoIdentity, SsoStatus, User};
use postern_kinds::{AnyKind, Owner, SecretText, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_oidc::mapping::{group_name, with_suffix};
use postern_telemetry::log_limited;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sessions;
use crate::admit::{Limit, Writing};
use crate::events::{self, NewEvent};
use crate::operations;
use crate::permit::Permit;
use crate::registry::{Registry, decoded};

/// The field manager of logins.
const MANAGER: &str = "postern-login";

/// The longest lifetime of a key if the provider cannot be asked for its groups again, in seconds.
const UNREFRESHED_SECONDS: i64 = 3600;

/// The most characters of a group of a provider that an event shows.
const EVENT_GROUP_CHARS: usize = 64;

/// The most bytes of groups in the key: its object has a limit. The User has all of them.
const MAX_GROUP_BYTES: usize = 16 * 1024;

/// The attempts to find or create a User. Another server may create it, or take its name.
const ATTEMPTS: usize = 4;

/// A person that a provider has identified. It cannot be printed, because of the tokens.
pub struct Person {
    /// The issuer.
    pub issuer: String,
    /// The subject at the provider.
    pub subject: String,
    /// The name that a new User gets, if it is free.
    pub name: String,
    /// The username at the provider.
    pub username: String,
    /// The name for people.
    pub display_name: String,
    /// The e-mail address.
    pub email: String,
    /// Whether the provider has verified it.
    pub email_verified: bool,
    /// The groups, as the provider names them.
    pub groups: Vec<String>,
    /// The groups of the provider that cannot be names of groups here.
    pub rejected_groups: Vec<String>,
    /// The hash of the id of the session at the provider; empty if it has none.
    pub session: String,
    /// The ID token, which a logout at the provider needs.
    pub id_token: SecretText,
    /// The token by which the provider is asked again.
    pub refresh_token: Option<SecretText>,
}

/// How a person logs in.
pub struct LoginFor<'a> {
    /// The name of the Connector.
    pub connector: &'a str,
    /// Its uid.
    pub connector_uid: &'a str,
    /// Its settings.
    pub spec: &'a connector::Spec,
    /// The browser that gets a session of the console; `None` for a key of the command line.
    pub browser: Option<sessions::Login>,
}

/// The data of a key that the connector needs later. It is write-only and encrypted at rest.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConnectorData {
    /// The ID token of the login.
    pub(crate) id_token: SecretText,
    /// The refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<SecretText>,
}

/// The User of a person.
pub struct LoginUser {
    /// Its name.
    pub name: String,
    /// Whether the login creates it.
    pub is_new: bool,
}

/// A login that is done.
pub struct LoggedIn {
    /// The name of the User.
    pub user: String,
    /// The name of the access key.
    pub access_key: String,
    /// The value of the access key.
    pub value: SecretText,
}

/// Logs a person in. Creates the User at the first login, if the connector does that.
///
/// # Errors
/// 403 if the connector creates no users, if the user is disabled, or has too many sessions.
pub async fn log_in(
    registry: &Registry,
    by: &LoginFor<'_>,
    person: Person,
) -> Result<LoggedIn, ApiError> {
    let user = user_of(registry, by, &person, &writing()).await?.name;
    set_groups(registry, by, (&person.subject, Groups::Are(&person.groups)), &user).await?;
    warn_of_rejected_groups(registry, by.connector, &person.rejected_groups).await;
    let key = key_of(registry, by, person, &user)?;
    let creating = Permit::for_server(&OwnedAccessKey, Verb::Create, None, "");
    let created = operations::create(registry, &creating, key, &writing()).await?;
    let mut created = decoded(&created)?;
    let access_key = created.metadata.name.clone();
    match created.fields.get_mut("spec").and_then(|spec| spec.get_mut("key")) {
        Some(Value::String(value)) => {
            let value = SecretText::from(std::mem::take(value));
            Ok(LoggedIn { user, access_key, value })
        }
        _ => Err(ApiError::internal("the new key has no value", MANAGER)),
    }
}

/// Records on the connector that groups of its provider were left out.
async fn warn_of_rejected_groups(registry: &Registry, connector: &str, rejected: &[String]) {
    let Some(first) = rejected.first() else { return };
    let name: String = first.chars().take(EVENT_GROUP_CHARS).collect();
    let message = format!(
        "a login left out {} groups, the first is {name:?}: a group must be NFC, without commas, control characters, and blanks \
         at an end",
        rejected.len()
    );
    let Some(object) = events::subject(registry, &Connector, None, connector) else { return };
    let what = NewEvent { object: &object, reason: "GroupsLeftOut", message: &message };
    events::warn(registry, &what).await;
}

/// The User that a login of a person would be of. Nothing is written.
///
/// # Errors
/// Those of [`log_in`].
pub async fn try_log_in(
    registry: &Registry,
    by: &LoginFor<'_>,
    person: &Person,
) -> Result<LoginUser, ApiError> {
    let dry = Writing { dry_run: true, ..writing() };
    let user = user_of(registry, by, person, &dry).await?;
    if !user.is_new {
        let said = (person.subject.as_str(), Groups::Are(&person.groups));
        write_groups(registry, by, said, &user.name, &dry).await?;
        let limit = Limit::of_logins(Owner::User(user.name.clone()), by.connector_uid);
        let now = registry.source().now().unix_seconds();
        limit.check("", registry.cache(), now)?;
    }
    Ok(user)
}

/// A write of a login.
pub(super) fn writing() -> Writing {
    Writing::by(MANAGER)
}

fn refused(user: &str, why: &str) -> ApiError {
    ApiError::forbidden(User.info().group_resource(), user, why)
}

/// The User of a person. It is created if there is none.
async fn user_of(
    registry: &Registry,
    by: &LoginFor<'_>,
    person: &Person,
    writing: &Writing,
) -> Result<LoginUser, ApiError> {
    let Person { issuer, subject, name, .. } = person;
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        registry.cache().wait_until_current().await?;
        let known =
            registry.cache().principals().user_of_identity(issuer, subject).map(str::to_owned);
        if let Some(name) = known {
            return Ok(LoginUser { name, is_new: false });
        }
        if !by.spec.creates_users() {
            let why = "no User is linked with this identity (spec.identities), and the connector creates none";
            return Err(refused("", why));
        }
        let suffixed = with_suffix(name, issuer, subject);
        let name =
            if attempt == 0 && registry.admission().is_free(name) { name } else { &suffixed };
        if !registry.admission().is_free(name) {
            let why = "the name that the new User would get is taken: link the identity with a User (spec.identities)";
            return Err(last.unwrap_or_else(|| refused("", why)));
        }
        match create_user(registry, by, person, name, writing).await {
            Ok(()) => return Ok(LoginUser { name: name.clone(), is_new: true }),
            // The name or the identity is taken since then, or the username of another user is the same.
            Err(error) if [409, 422].contains(&error.code()) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    log_limited!(
        warn,
        inner = last.as_ref().map(ToString::to_string),
        "a User could not be created"
    );
    Err(refused("", "the User could not be created: the log of the server says why"))
}

async fn create_user(
    registry: &Registry,
    by: &LoginFor<'_>,
    person: &Person,
    name: &str,
    writing: &Writing,
) -> Result<(), ApiError> {
    let spec = user::Spec {
        // A name of the provider's choice alone could be one that a binding or a key names by chance, now or later.
        subject: format!("{}:{name}", by.connector),
        display_name: person.display_name.clone(),
        email: person.email.clone(),
        identities: vec![SsoIdentity {
            connector: by.connector.to_owned(),
            issuer: person.issuer.clone(),
            subject: person.subject.clone(),
        }],
        ..user::Spec::default()
    };
    let fields = user::Fields { spec, status: user::Status::default() };
    let object = object(&User, name, "", &fields)?;
    let creating = Permit::for_server(&User, Verb::Create, None, name);
    operations::create(registry, &creating, object, writing).await.map(|_| ())
}

/// The groups of a user, as a provider names them.
#[derive(Clone, Copy)]
pub enum Groups<'a> {
    /// The user logs in with these groups.
    Are(&'a [String]),
    /// The user may not log in. The groups that are not among these are taken away, and none is added.
    AtMost(&'a [String]),
}

/// Writes the groups of a subject, as its provider reports them, into the status of its User.
///
/// # Errors
/// 403 if the User is disabled, or no longer linked with this identity.
pub async fn set_groups(
    registry: &Registry,
    by: &LoginFor<'_>,
    said: (&str, Groups<'_>),
    user: &str,
) -> Result<(), ApiError> {
    write_groups(registry, by, said, user, &writing()).await
}

async fn write_groups(
    registry: &Registry,
    by: &LoginFor<'_>,
    (subject, groups): (&str, Groups<'_>),
    user: &str,
    writing: &Writing,
) -> Result<(), ApiError> {
    let now = registry.source().now();
    let permit = Permit::for_server(&User, Verb::Update, None, user);
    let updated = operations::update(registry, &permit, writing, |current| {
        let mut fields = user::Fields::deserialize(&current.fields)
            .map_err(|error| ApiError::internal("the User cannot be read", error))?;
        let identity =
            |one: &SsoIdentity| (&*one.issuer, &*one.subject) == (&*by.spec.issuer, subject);
        if !fields.spec.identities.iter().any(identity) {
            return Err(refused(user, "the User is no longer linked with this identity"));
        }
        if fields.spec.disabled {
            return Err(refused(user, "the user is disabled"));
        }
        change_groups(&mut fields.status.sso, by, groups, now);
        let status = serde_json::to_value(&fields.status)
            .map_err(|error| ApiError::internal("the status could not be encoded", error))?;
        let mut new = current.clone();
        new.fields.insert("status".to_owned(), status);
        Ok(new)
    });
    updated.await.map(|_| ())
}

/// Changes the groups of one connector, and leaves the others where they are.
fn change_groups(all: &mut Vec<SsoStatus>, by: &LoginFor<'_>, groups: Groups<'_>, now: Timestamp) {
    let known = all.iter_mut().find(|one| one.connector == by.connector);
    let named = |groups: &[String]| -> BTreeSet<String> {
        groups.iter().map(|group| group_name(by.connector, group)).collect()
    };
    match (groups, known) {
        (Groups::Are(groups), known) => {
            let new = SsoStatus {
                connector: by.connector.to_owned(),
                connector_uid: by.connector_uid.to_owned(),
                groups: named(groups).into_iter().collect(),
                refreshed: Some(now),
            };
            match known {
                Some(known) => *known = new,
                None => all.push(new),
            }
        }
        (Groups::AtMost(groups), Some(known)) => {
            let groups = named(groups);
            known.groups.retain(|group| groups.contains(group));
        }
        (Groups::AtMost(_), None) => {}
    }
}

/// The data of the connector, as the key stores it.
///
/// # Errors
/// 500 if it cannot be encoded, which is a bug.
pub(super) fn data_of(
    id_token: SecretText,
    refresh_token: Option<SecretText>,
) -> Result<String, ApiError> {
    serde_json::to_string(&ConnectorData { id_token, refresh_token }).map_err(|error| {
        ApiError::internal("the data of the connector could not be encoded", error)
    })
}

/// The access key of a login.
fn key_of(
    registry: &Registry,
    by: &LoginFor<'_>,
    person: Person,
    user: &str,
) -> Result<Object, ApiError> {
    let now: Timestamp = registry.source().now();
    let policy = registry.user_policy();
    let is_refreshed = person.refresh_token.is_some();
    let data = data_of(person.id_token, person.refresh_token)?;
    let mut left = MAX_GROUP_BYTES;
    let groups = person.groups.into_iter().take_while(|group| {
        let fits = left.checked_sub(group.len());
        left = fits.unwrap_or_default();
        fits.is_some()
    });
    let limits = [
        policy.max_ttl_seconds,
        (!is_refreshed).then_some(UNREFRESHED_SECONDS),
        by.browser.is_some().then_some(policy.session_seconds),
    ];
    let ttl = limits.into_iter().flatten().fold(by.spec.key_ttl, i64::min).max(1);
    let spec = Spec {
        display_name: format!("Login by {}", by.connector),
        user: user.to_owned(),
        r#type: postern_kinds::owned_access_key::LOGIN.to_owned(),
        ttl,
        identity: Some(Identity {
            user_id: person.subject.clone(),
            username: person.username.clone(),
            preferred_username: person.display_name,
            email: person.email,
            email_verified: person.email_verified,
            groups: groups.collect(),
            connector: by.connector.to_owned(),
            connector_data: SecretText::from(data.clone()),
            identity_refresh: None,
        }),
        identity_refresh: Some(now),
        ..Spec::default()
    };
    let session = by.browser.as_ref().map(|browser| Session {
        address: browser.address.clone(),
        user_agent: browser.user_agent.clone(),
        idle_seconds: policy.session_idle_seconds,
        begun: None,
        login_code: false,
        owner_disabled_count: None,
        command_line: None,
    });
    let is_session = session.is_some();
    let login = Login {
        connector: by.connector.to_owned(),
        connector_uid: by.connector_uid.to_owned(),
        issuer: person.issuer,
        subject: person.subject,
        session: person.session,
        refreshes: is_refreshed,
    };
    let status = Status { session, login: Some(login), ..Status::default() };
    let prefix = if is_session { "session-" } else { "login-" };
    let mut object = object(&OwnedAccessKey, "", prefix, &Fields { spec, status })?;
    if is_session {
        object.metadata.labels.insert(SESSION_LABEL.to_owned(), sessions::CONSOLE.to_owned());
    }
    // Write-only fields are not serialized.
    let identity = object.fields.get_mut("spec").and_then(|spec| spec.get_mut("identity"));
    if let Some(Value::Object(identity)) = identity {
        identity.insert("connectorData".to_owned(), Value::String(data));
    }
    Ok(object)
}

fn object(
    kind: &dyn AnyKind,
    name: &str,
    prefix: &str,
    fields: &impl Serialize,
) -> Result<Object, ApiError> {
    let Ok(Value::Object(fields)) = serde_json::to_value(fields) else {
        return Err(ApiError::internal("an object could not be encoded", MANAGER));
    };
    let info = kind.info();
    let metadata = ObjectMeta {
        name: name.to_owned(),
        generate_name: prefix.to_owned(),
        ..ObjectMeta::default()
    };
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    Ok(Object { api_version, kind, metadata, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_one_connector_change_in_their_place() {
        let spec = connector::Spec::default();
        let by = |connector| LoginFor { connector, connector_uid: "u", spec: &spec, browser: None };
        let texts = |groups: &[&str]| -> Vec<String> {
            groups.iter().map(|group| (*group).to_owned()).collect()
        };
        let [early, late] = [100, 200].map(Timestamp::from_unix_seconds);
        let mut all = Vec::new();
        let listed = |all: &[SsoStatus]| -> Vec<(String, Option<Timestamp>)> {
            all.iter().map(|one| (one.groups.join(" "), one.refreshed)).collect()
        };
        change_groups(&mut all, &by("a"), Groups::AtMost(&texts(&["x"])), early);
        assert_eq!(all, []);
        change_groups(&mut all, &by("a"), Groups::Are(&texts(&["y", "x", "y"])), early);
        change_groups(&mut all, &by("b"), Groups::Are(&texts(&["x"])), early);
        change_groups(&mut all, &by("a"), Groups::Are(&texts(&["x", "y"])), late);
        let b = ("b:x".to_owned(), Some(early));
        assert_eq!(listed(&all), [("a:x a:y".to_owned(), Some(late)), b.clone()]);
        // Nothing is added, and nothing is confirmed.
        let now = Timestamp::from_unix_seconds(300);
        change_groups(&mut all, &by("a"), Groups::AtMost(&texts(&["y", "z"])), now);
        assert_eq!(listed(&all), [("a:y".to_owned(), Some(late)), b]);
    }
}
