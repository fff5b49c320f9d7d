//! The access keys that the caller can read, and those that end with another object. `commands/` uses them.

use std::collections::BTreeSet;

use postern_client::{Collection, Representation, decode_fields};
use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::Lifetime;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Fields, Info, Kind, Owner, Principal};
use postern_meta::object::Object;
use postern_meta::time::Timestamp;

use crate::error::CliError;
use crate::process::Process;
use crate::session::Session;

/// An access key, or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedKey {
    /// The name.
    pub(crate) name: String,
    /// The owner.
    pub(crate) owner: Option<Owner>,
    /// Whether it is a session of the console or of the command line.
    pub(crate) is_session: bool,
    /// Whether the key itself gives access now: it is enabled and not expired.
    pub(crate) is_alive: bool,
    /// When it ends, in seconds since 1970; `None` for never.
    pub(crate) end_unix_seconds: Option<i64>,
    /// Whether a scope limits it.
    pub(crate) is_scoped: bool,
    /// The groups of its bearer, in addition to those of the owner.
    pub(crate) groups: Vec<String>,
    /// The user or team that has had the value of the key, if it is not the owner.
    pub(crate) issued_to: Option<IssuedTo>,
    uid: String,
    /// The names of the WorkloadIdentity and of the Connector that made it, with which it ends.
    workload_identity: Option<String>,
    connector: Option<String>,
    /// The uids of the keys that it ends with.
    tied_to: Vec<String>,
}

/// A user or team that has had the value of a key, by uid: a later one of the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuedTo {
    pub(crate) uid: String,
    /// Whether the value is the code of a login link.
    pub(crate) is_code: bool,
}

/// When a key ends, in seconds since 1970; `None` for never.
pub(crate) fn end_of(
    object: &Object,
    fields: &Fields<<OwnedAccessKey as Kind>::Spec, <OwnedAccessKey as Kind>::Status>,
) -> Option<i64> {
    let lifetime = Lifetime {
        created_unix_seconds: object.metadata.creation_timestamp.map_or(0, Timestamp::unix_seconds),
        ttl_seconds: fields.spec.ttl,
        after_last_activity: fields.spec.ttl_after_last_activity,
        idle_seconds: fields.status.session.as_ref().map_or(0, |session| session.idle_seconds),
    };
    lifetime.ends_at(fields.status.last_activity.map(Timestamp::unix_seconds))
}

impl ListedKey {
    /// The key of an object; `None` if it cannot be decoded.
    pub(crate) fn new(object: &Object, now_unix_seconds: i64) -> Option<Self> {
        let fields = decode_fields::<OwnedAccessKey>(object).ok()?;
        let end = end_of(object, &fields);
        let is_alive = !fields.spec.disabled && end.is_none_or(|end| end > now_unix_seconds);
        let maker = fields.status.maker.map(|maker| maker.uid);
        let is_code = fields.status.session.as_ref().is_some_and(|session| session.login_code);
        let issued_to = fields.status.issued_to.map(|to| IssuedTo { uid: to.uid, is_code });
        let parent = Some(fields.status.parent_uid).filter(|uid| !uid.is_empty());
        Some(Self {
            name: object.metadata.name.clone(),
            owner: fields.spec.owner(),
            is_session: fields.status.session.is_some(),
            is_alive,
            end_unix_seconds: end,
            is_scoped: fields.spec.scope.is_some(),
            groups: fields.spec.groups,
            issued_to,
            uid: object.metadata.uid.clone(),
            workload_identity: fields.status.workload.map(|workload| workload.identity),
            connector: fields.status.login.map(|login| login.connector),
            tied_to: maker.into_iter().chain(parent).collect(),
        })
    }

    /// Whether the key belongs to this user or team.
    pub(crate) fn is_of(&self, principal: Principal<'_>) -> bool {
        self.owner.as_ref().and_then(Owner::principal) == Some(principal)
    }

    /// Whether this WorkloadIdentity or Connector made the key, which ends with it.
    pub(crate) fn is_made_by(&self, info: &Info, name: &str) -> bool {
        let maker = match info.kind {
            kind if kind == WorkloadIdentity::INFO.kind => &self.workload_identity,
            kind if kind == Connector::INFO.kind => &self.connector,
            _ => &None,
        };
        maker.as_deref() == Some(name)
    }
}

/// All keys that the caller can read.
pub(crate) async fn list(
    session: &mut Session,
    process: &Process,
) -> Result<Vec<ListedKey>, CliError> {
    let of = Collection::of::<OwnedAccessKey>(None);
    let list = session.client.list(of, Representation::Whole).await;
    let Some(list) = session.readable(list)? else { return Ok(Vec::new()) };
    let now = process.now_unix_seconds();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let objects = items.into_iter().filter_map(|item| Object::from_value(item).ok());
    Ok(objects.filter_map(|object| ListedKey::new(&object, now)).collect())
}

/// The keys of which a condition holds, and all that end with them.
pub(crate) fn with_dependents(
    keys: &[ListedKey],
    is_ended: impl Fn(&ListedKey) -> bool,
) -> Vec<&ListedKey> {
    let mut ended: BTreeSet<&str> =
        keys.iter().filter(|key| is_ended(key)).map(|key| key.uid.as_str()).collect();
    loop {
        let is_tied = |key: &&ListedKey| {
            key.tied_to.iter().any(|uid| ended.contains(uid.as_str()))
                && !ended.contains(key.uid.as_str())
        };
        let more: Vec<&str> = keys.iter().filter(is_tied).map(|key| key.uid.as_str()).collect();
        if more.is_empty() {
            return keys.iter().filter(|key| ended.contains(key.uid.as_str())).collect();
        }
        ended.extend(more);
    }
}

/// How many of the keys give access now, for a sentence: `2 access keys and 1 session`. Empty for none.
pub(crate) fn counted<'a>(keys: impl IntoIterator<Item = &'a ListedKey>) -> String {
    let (sessions, keys): (Vec<_>, Vec<_>) =
        keys.into_iter().filter(|key| key.is_alive).partition(|key| key.is_session);
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    };
    let counts = [count(keys.len(), "access key"), count(sessions.len(), "session")];
    counts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str, spec: &Value, status: &Value) -> ListedKey {
        let object = json!({
            "metadata": { "name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:10Z" },
            "spec": spec, "status": status,
        });
        ListedKey::new(&Object::from_value(object).unwrap(), 100).unwrap()
    }

    #[test]
    fn a_key_ends_with_its_maker_and_its_parent() {
        let of = |name: &str| json!({ "user": name });
        let made_by = |uid: &str| json!({ "maker": { "name": "x", "uid": uid } });
        let session =
            json!({ "maker": { "name": "x", "uid": "b" }, "session": { "idleSeconds": 0 } });
        let keys = [
            key("d", &of("bob"), &session),
            key("b", &of("bob"), &made_by("a")),
            key("a", &of("ada"), &json!({})),
            key("c", &of("ada"), &json!({ "parentUid": "d" })),
            key("other", &of("bob"), &json!({ "parentUid": "gone" })),
        ];
        let names = |ended: Vec<&ListedKey>| {
            ended.iter().map(|key| key.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(with_dependents(&keys, |key| key.name == "a")), "d b a c");
        assert_eq!(names(with_dependents(&keys, |key| key.name == "other")), "other");
        let of_bob = |key: &ListedKey| key.is_of(Principal::User("bob"));
        assert_eq!(counted(with_dependents(&keys, of_bob)), "3 access keys and 1 session");
        assert_eq!(counted(&[]), "");
    }

    #[test]
    fn a_key_ends_with_the_connector_or_the_workload_identity_that_made_it() {
        let of = json!({ "user": "ada" });
        let login = key("a", &of, &json!({ "login": { "connector": "sso" } }));
        let workload = key("b", &of, &json!({ "workload": { "identity": "ci", "uid": "u" } }));
        for (key, info, name, is_made) in [
            (&login, &Connector::INFO, "sso", true),
            (&login, &Connector::INFO, "other", false),
            (&login, &WorkloadIdentity::INFO, "sso", false),
            (&workload, &WorkloadIdentity::INFO, "ci", true),
            (&workload, &OwnedAccessKey::INFO, "ci", false),
        ] {
            assert_eq!(key.is_made_by(info, name), is_made, "{} {name}", info.kind);
        }
    }

    #[test]
    fn only_keys_that_give_access_count() {
        for (spec, is_alive) in [
            (json!({ "user": "ada" }), true),
            (json!({ "user": "ada", "disabled": true }), false),
            (json!({ "user": "ada", "ttl": 90 }), false),
            (json!({ "user": "ada", "ttl": 91 }), true),
        ] {
            let key = key("a", &spec, &json!({}));
            assert_eq!(key.is_alive, is_alive, "{spec}");
            assert_eq!(counted([&key]).is_empty(), !is_alive, "{spec}");
        }
    }
}
