//! Later changes of the key of a login: the provider is asked again, the session ends at the
//! provider, or groups get old. This module does not handle HTTP or the protocol of the provider.

use std::collections::HashMap;

use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::principal::ConnectorRef;
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind, Condition, Owner, SecretText, Verb};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::options::DeleteOptions;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_telemetry::log_limited;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::logins::{ConnectorData, Person, data_of, writing};
use super::sessions::current;
use crate::admit::{Part, Writing};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::registry::side_records::RecordsOf;

/// The path of the connector's data in a key.
const CONNECTOR_DATA: &str = "spec.identity.connectorData";

/// The condition of a Connector: its provider can be reached.
const REACHABLE: &str = "Reachable";

/// The keys of a connector for which the provider must be asked again.
pub struct DueKeys {
    /// The names of those that are due now.
    pub now: Vec<String>,
    /// When the next one is due, in seconds since 1970.
    pub next: Option<i64>,
}

/// A key that this server refreshes. No other server does it in this interval.
pub struct Claimed {
    /// The key.
    pub key: LoginKey,
    /// The user that owns it.
    pub user: String,
    /// The subject at the provider.
    pub subject: String,
    /// The refresh token.
    pub refresh_token: SecretText,
    /// The last ID token.
    id_token: SecretText,
}

/// The key of a login, by name and uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginKey {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The session at a provider that began with a login.
pub struct ProviderSession {
    /// The Connector.
    pub connector: ConnectorRef,
    /// The last ID token, by which the provider knows the session.
    pub id_token: SecretText,
}

/// The session at a provider in which the key of the request was made; `None` if it was made by no login of a browser.
///
/// # Errors
/// 401 if the key is no longer valid; the errors of the store.
pub async fn provider_session(
    registry: &Registry,
    permit: &Permit,
) -> Result<Option<ProviderSession>, ApiError> {
    let key = current(registry, permit)?;
    let name = &key.identity.access_key;
    let stored = registry.read_to_decide(&OwnedAccessKey, None, name)?;
    let stored: Option<Object> = stored.map(|stored| stored.part()).transpose()?;
    let Some(stored) = stored.filter(|stored| stored.metadata.uid == key.uid) else {
        return Ok(None);
    };
    let login = owned_access_key::Fields::deserialize(&stored.fields);
    let login = login.ok().and_then(|fields| fields.status.login);
    let Some(login) = login.filter(|_| key.used_as.is_session()) else { return Ok(None) };
    let data = connector_data(registry, name, &key.uid).await?;
    let connector = ConnectorRef { name: login.connector, uid: login.connector_uid };
    Ok(data.map(|data| ProviderSession { connector, id_token: data.id_token }))
}

/// The data of the connector in a key.
async fn connector_data(
    registry: &Registry,
    name: &str,
    uid: &str,
) -> Result<Option<ConnectorData>, ApiError> {
    let of = RecordsOf { kind: &OwnedAccessKey, namespace: None, name };
    let record = registry.secret_record(of).await?;
    let data = record.value(CONNECTOR_DATA).filter(|_| record.uid == uid);
    Ok(data.and_then(|data| decode_typed(data.expose().as_bytes()).ok()))
}

/// The fields of a key, if it exists and was created by this connector.
fn login_key(
    registry: &Registry,
    connector: &ConnectorRef,
    name: &str,
) -> Option<(Object, owned_access_key::Fields)> {
    let stored = registry.read_to_decide(&OwnedAccessKey, None, name).ok()??;
    let object = stored.into_cached().decode().ok()?;
    let fields = owned_access_key::Fields::deserialize(&object.fields).ok()?;
    let login = fields.status.login.as_ref()?;
    (login.connector_uid == connector.uid).then_some((object, fields))
}

fn keys_of(registry: &Registry, connector: &str) -> Vec<String> {
    let principals = registry.cache().principals();
    principals.keys_of_connector(connector).map(str::to_owned).collect()
}

/// The keys of a connector that are due for a refresh. The provider was asked at least `interval`
/// seconds ago, and the user was active since.
pub fn due(registry: &Registry, connector: &ConnectorRef, interval: i64) -> DueKeys {
    let now = registry.source().now().unix_seconds();
    let mut due = DueKeys { now: Vec::new(), next: None };
    // The last use of any key of a user, since a key without a login has the groups as well.
    let mut used_by = HashMap::new();
    for name in keys_of(registry, &connector.name) {
        let Some((_, fields)) = login_key(registry, connector, &name) else { continue };
        let Some(at) = due_at(&fields, interval) else { continue };
        if registry.cache().principals().has_ended_before(&name, now + 1) {
            continue;
        }
        let Some(Owner::User(user)) = fields.spec.owner() else { continue };
        let active_at = *used_by.entry(user).or_insert_with_key(|user| last_use(registry, user));
        if at > now {
            // It may be used until then.
            due.next = Some(due.next.map_or(at, |next| next.min(at)));
        } else if active_at > at - interval {
            due.now.push(name);
        }
    }
    due
}

/// The last use of an access key by a user, in seconds since 1970. Agents do not report uses of
/// endpoint tokens, so a key with endpoint tokens counts as always in use.
fn last_use(registry: &Registry, user: &str) -> i64 {
    let principals = registry.cache().principals();
    let times = principals.keys_of_user(user).map(|(name, uid)| {
        let has_tokens = registry.has_endpoint_tokens(uid);
        if has_tokens { i64::MAX } else { principals.last_activity(name, uid).unwrap_or_default() }
    });
    times.max().unwrap_or_default()
}

/// When a key is due; `None` if its provider cannot be asked. A disabled login confirms no groups.
fn due_at(fields: &owned_access_key::Fields, interval: i64) -> Option<i64> {
    if fields.spec.disabled {
        return None;
    }
    fields.status.login.as_ref().filter(|login| login.refreshes)?;
    let asked = fields.spec.identity_refresh.map_or(0, Timestamp::unix_seconds);
    Some(asked.saturating_add(interval))
}

/// Claims a key that is due. The claim is stored before the provider is asked: a refresh token often counts once, and a
/// second use would end the login at the provider.
///
/// # Errors
/// The errors of the store. `None` if another server has claimed it, or it is gone.
pub async fn claim(
    registry: &Registry,
    connector: &ConnectorRef,
    interval: i64,
    name: &str,
) -> Result<Option<Claimed>, ApiError> {
    let Some((object, fields)) = login_key(registry, connector, name) else { return Ok(None) };
    let (now, resource) = (registry.source().now(), OwnedAccessKey.info().group_resource());
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Update, None, name);
    let writing = writing();
    let claimed = operations::update(registry, &permit, &writing, |current| {
        let fields = owned_access_key::Fields::deserialize(&current.fields).ok();
        let at = fields.as_ref().and_then(|fields| due_at(fields, interval));
        let is_same = current.metadata.uid == object.metadata.uid;
        if !is_same || at.is_none_or(|at| at > now.unix_seconds()) {
            return Err(ApiError::conflict(resource, name, "another server refreshes it"));
        }
        let mut new = current.clone();
        set_spec(&mut new, |spec| {
            spec.insert("identityRefresh".to_owned(), json!(now));
        });
        Ok(new)
    });
    match claimed.await {
        Ok(_) => {}
        Err(error) if [404, 409].contains(&error.code()) => return Ok(None),
        Err(error) => return Err(error),
    }
    let data = connector_data(registry, name, &object.metadata.uid).await?;
    let key = LoginKey { name: name.to_owned(), uid: object.metadata.uid };
    let Some(ConnectorData { id_token, refresh_token: Some(refresh_token) }) = data else {
        // The owner has replaced the data. Without a refresh token, the provider could never end the key.
        log_limited!(info, key = name, "a login has ended: its data have no refresh token");
        end(registry, &key).await?;
        return Ok(None);
    };
    let Some(Owner::User(user)) = fields.spec.owner() else { return Ok(None) };
    let subject = fields.spec.identity.map(|identity| identity.user_id).unwrap_or_default();
    Ok(Some(Claimed { key, user, subject, refresh_token, id_token }))
}

fn set_spec(object: &mut Object, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(Value::Object(spec)) = object.fields.get_mut("spec") {
        change(spec);
    }
}

/// Stores the tokens that the provider has given at a refresh.
///
/// # Errors
/// The errors of [`operations::update`].
pub async fn keep_tokens(
    registry: &Registry,
    claimed: &Claimed,
    person: Person,
) -> Result<(), ApiError> {
    set_data(registry, claimed, data_of(person.id_token, person.refresh_token)?).await
}

/// Stores the refresh token that replaces the one of the key.
///
/// # Errors
/// The errors of [`operations::update`].
pub async fn keep_refresh_token(
    registry: &Registry,
    claimed: &Claimed,
    refresh_token: &SecretText,
) -> Result<(), ApiError> {
    let data = data_of(claimed.id_token.clone(), Some(refresh_token.clone()))?;
    set_data(registry, claimed, data).await
}

/// Sets the connector's data of a key.
async fn set_data(registry: &Registry, claimed: &Claimed, data: String) -> Result<(), ApiError> {
    let LoginKey { name, uid } = &claimed.key;
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Update, None, name);
    let writing = writing();
    let resource = OwnedAccessKey.info().group_resource();
    let stored = operations::update(registry, &permit, &writing, |current| {
        if current.metadata.uid != *uid {
            return Err(ApiError::conflict(resource, name, "it is another key"));
        }
        let mut new = current.clone();
        set_spec(&mut new, |spec| {
            if let Some(Value::Object(identity)) = spec.get_mut("identity") {
                identity.insert("connectorData".to_owned(), Value::String(data.clone()));
            }
        });
        Ok(new)
    });
    stored.await.map(|_| ())
}

/// Ends the key of a login: deletes it. That it is gone is no error.
///
/// # Errors
/// The errors of the store.
pub async fn end(registry: &Registry, key: &LoginKey) -> Result<(), ApiError> {
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, &key.name);
    let options =
        DeleteOptions { precondition_uid: Some(key.uid.clone()), ..DeleteOptions::default() };
    match operations::delete(registry, &permit, &options).await {
        Err(error) if ![404, 409].contains(&error.code()) => Err(error),
        _ => Ok(()),
    }
}

/// Takes the groups of a connector from the user of an identity at once: the provider says that the user is gone, or has
/// logged out everywhere. That there is no such user is no error.
///
/// # Errors
/// The errors of [`operations::update`].
pub async fn take_groups(
    registry: &Registry,
    connector: &ConnectorRef,
    issuer: &str,
    subject: &str,
) -> Result<(), ApiError> {
    registry.cache().wait_until_current().await?;
    let user = registry.cache().principals().user_of_identity(issuer, subject).map(str::to_owned);
    let Some(user) = user else { return Ok(()) };
    let permit = Permit::for_server(&User, Verb::Update, None, &user);
    let writing = writing();
    let taken = operations::update(registry, &permit, &writing, |current| {
        let mut new = current.clone();
        user::take_groups(&mut new.fields, &connector.uid);
        Ok(new)
    });
    match taken.await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}

/// The keys of a connector that a logout at the provider ends: those of a subject, of a session, or of both. With both, a key
/// of the subject that has no recorded session ends as well: it may be of this session.
pub fn logged_out(
    registry: &Registry,
    connector: &ConnectorRef,
    issuer: &str,
    subject: Option<&str>,
    session: Option<&str>,
) -> Vec<LoginKey> {
    let is_ended = |login: &owned_access_key::Login| {
        let of_subject =
            subject.is_none_or(|subject| (&*login.issuer, &*login.subject) == (issuer, subject));
        let of_session = session.is_none_or(|session| {
            login.session == session || (login.session.is_empty() && subject.is_some())
        });
        of_subject && of_session
    };
    if subject.is_none() && session.is_none() {
        return Vec::new();
    }
    let names = keys_of(registry, &connector.name).into_iter();
    let keys = names.filter_map(|name| {
        let (object, fields) = login_key(registry, connector, &name)?;
        fields.status.login.as_ref().filter(|login| is_ended(login))?;
        Some(LoginKey { name, uid: object.metadata.uid })
    });
    keys.collect()
}

/// Removes the groups that a provider has not confirmed for longer than the operator allows. They do not count in any case:
/// see [`Registry::forget_old_groups`].
///
/// # Errors
/// The error of the last write that failed.
pub async fn drop_stale_groups(registry: &Registry) -> Result<(), ApiError> {
    let oldest = registry.oldest_groups();
    let users: Vec<String> = {
        let principals = registry.cache().principals();
        principals.users_with_old_groups().map(str::to_owned).collect()
    };
    let is_stale = |one: &user::SsoStatus| {
        let refreshed = one.refreshed.map_or(0, Timestamp::unix_seconds);
        refreshed < oldest && !one.groups.is_empty()
    };
    let mut failed = Ok(());
    for name in users {
        let found = registry.read_to_decide(&User, None, &name).ok().flatten();
        let object = found.and_then(|found| found.into_cached().decode().ok());
        let fields = object.and_then(|object| user::Fields::deserialize(&object.fields).ok());
        if !fields.is_some_and(|fields| fields.status.sso.iter().any(is_stale)) {
            continue;
        }
        let permit = Permit::for_server(&User, Verb::Update, None, &name);
        let writing = writing();
        let written = operations::update(registry, &permit, &writing, |current| {
            let mut fields = user::Fields::deserialize(&current.fields)
                .map_err(|error| ApiError::internal("the User cannot be read", error))?;
            for one in fields.status.sso.iter_mut().filter(|one| is_stale(one)) {
                one.groups.clear();
            }
            let mut new = current.clone();
            new.fields.insert("status".to_owned(), json!(fields.status));
            Ok(new)
        });
        match written.await {
            Ok(_) => {
                log_limited!(info, user = name, "groups of single sign-on are too old to count");
            }
            Err(error) if [404, 409].contains(&error.code()) => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Notes on a Connector whether its provider can be asked; `why` says why it cannot. Writes only what changes.
///
/// # Errors
/// The errors of the store.
pub async fn note_reachable(
    registry: &Registry,
    connector: &ConnectorRef,
    why: Option<&str>,
) -> Result<(), ApiError> {
    let status = if why.is_none() { "True" } else { "False" };
    let condition = Condition {
        r#type: REACHABLE.to_owned(),
        status: status.to_owned(),
        observed_generation: None,
        last_transition_time: Some(registry.source().now()),
        reason: if why.is_none() { "Asked" } else { "Unreachable" }.to_owned(),
        message: why.unwrap_or_default().to_owned(),
    };
    let conditions = |object: &Object| -> Vec<Condition> {
        let listed = object.fields.get("status").and_then(|status| status.get("conditions"));
        listed.and_then(|listed| Vec::deserialize(listed).ok()).unwrap_or_default()
    };
    let is_noted = |object: &Object| {
        let known = conditions(object).into_iter().find(|one| one.r#type == REACHABLE);
        known.map_or(why.is_none(), |known| known.status == status)
    };
    let found = registry.read_to_decide(&Connector, None, &connector.name)?;
    let Some(Ok(object)) = found.map(|found| found.into_cached().decode()) else { return Ok(()) };
    if object.metadata.uid != connector.uid || is_noted(&object) {
        return Ok(());
    }
    let permit = Permit::for_server(&Connector, Verb::Update, None, &connector.name);
    let writing = Writing { part: Part::Status, ..Writing::by_server() };
    let noted = operations::update(registry, &permit, &writing, |current| {
        let mut all = conditions(current);
        all.retain(|one| one.r#type != REACHABLE);
        all.push(condition.clone());
        let mut new = current.clone();
        new.fields.insert("status".to_owned(), json!({ "conditions": all }));
        Ok(new)
    });
    match noted.await {
        Err(error) if error.code() >= 500 => Err(error),
        _ => Ok(()),
    }
}
