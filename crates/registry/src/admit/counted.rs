//! The limits on what one owner has: access keys, sessions, workload identities, and the shared secrets that every user may
//! create. Admission says which limits a new object has. The transaction of the create checks them (`registry::key_limits`), so they hold when several servers
//! create objects at once.

use postern_auth::attributes::Attributes;
use postern_kinds::cluster_role::USER_DEFAULT_ROLE;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::AccessChange;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::workload_identity::{self, WorkloadIdentity};
use postern_kinds::{AnyKind, COMMON_NAMESPACE, Owner, Verb};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize as _;
use serde_json::Value;

use super::view::AdmissionView;
use crate::cache::Cache;
use crate::permit::Permit;

/// The most sessions that one login key has begun, or one owner by one connector.
const MAX_SESSIONS: usize = 50;

/// The objects that a limit counts. Keys that have expired do not count, except those of an owner.
#[derive(Clone)]
pub(crate) enum Counted {
    /// The objects of another kind that an owner has.
    Owned(&'static dyn AnyKind, Owner),
    /// The keys of an owner: those that clients created, and those that workloads have exchanged and that have not expired.
    Keys(Owner),
    /// The sessions that the key with this uid has begun.
    Sessions(String),
    /// The sessions of an owner that have not ended, and the logins of the command line, by whichever key they began. A login by
    /// a connector does not count: that has its own limit.
    AllSessions(Owner),
    /// The logins of an owner by the connector with this uid.
    Logins(Owner, String),
    /// The keys of the workload identity with this uid.
    WorkloadKeys(String),
    /// The shared secrets in the namespace `default` that the user with this uid owns.
    CommonSecrets(String),
}

/// A limit on the number of objects.
#[derive(Clone)]
pub(crate) struct Limit {
    /// The counted objects.
    pub(crate) counted: Counted,
    /// The maximum.
    pub(crate) max: usize,
}

impl Limit {
    /// The limit on the sessions that the key with this uid begins.
    pub(crate) fn of_sessions(key_uid: &str) -> Self {
        Self { counted: Counted::Sessions(key_uid.to_owned()), max: MAX_SESSIONS }
    }

    /// The limit on the logins of an owner by the connector with this uid.
    pub(crate) fn of_logins(owner: Owner, connector_uid: &str) -> Self {
        Self { counted: Counted::Logins(owner, connector_uid.to_owned()), max: MAX_SESSIONS }
    }

    /// Checks that there is room for one more object at a time, in seconds since 1970.
    ///
    /// # Errors
    /// 403 if there are as many as allowed.
    pub(crate) fn check(
        &self,
        name: &str,
        cache: &Cache,
        now_unix_seconds: i64,
    ) -> Result<(), ApiError> {
        let max = self.max;
        if self.used(cache, now_unix_seconds) < max {
            return Ok(());
        }
        let kind: &dyn AnyKind = match &self.counted {
            Counted::Owned(kind, _) => *kind,
            Counted::CommonSecrets(_) => &SharedSecret,
            _ => &OwnedAccessKey,
        };
        let why = match &self.counted {
            Counted::Keys(_) | Counted::Owned(..) => format!(
                "exceeded quota: the owner already has {max} {}, which is the maximum; delete some first",
                kind.info().plural
            ),
            Counted::Sessions(_) => format!(
                "exceeded quota: the access key already has {max} sessions: end one, or log in with another key"
            ),
            Counted::AllSessions(_) | Counted::Logins(..) => {
                format!("exceeded quota: the owner already has {max} sessions: end one")
            }
            Counted::WorkloadKeys(_) => format!(
                "exceeded quota: the workload identity already has {max} valid keys, as spec.maxLive allows"
            ),
            Counted::CommonSecrets(_) => format!(
                "exceeded quota: the owner already has {max} shared secrets in the namespace \"{COMMON_NAMESPACE}\", the \
                 maximum with the role {USER_DEFAULT_ROLE}; delete some first, or ask an administrator for another role \
                 with the verb create on sharedsecrets there"
            ),
        };
        Err(ApiError::forbidden(kind.info().group_resource(), name, why))
    }

    fn used(&self, cache: &Cache, now: i64) -> usize {
        let principals = cache.principals();
        match &self.counted {
            Counted::Owned(kind, owner) => cache.of(kind.info()).count_owned(owner),
            Counted::Keys(owner) => principals.key_count(owner, now),
            Counted::Sessions(key_uid) => principals.session_count(key_uid, now),
            Counted::AllSessions(owner) => principals.all_session_count(owner, now),
            Counted::Logins(owner, connector) => principals.login_count(owner, connector, now),
            Counted::WorkloadKeys(uid) => principals.workload_key_count(uid, now),
            Counted::CommonSecrets(uid) => {
                let kind = SharedSecret.info().group_resource();
                cache.policy().owned_count(kind, COMMON_NAMESPACE, uid)
            }
        }
    }
}

/// The most shared secrets in the namespace `default` that one owner has by the role of every user.
const MAX_COMMON_SECRETS: usize = 100;

/// Whether a caller may create shared secrets in the namespace of an object only by the role of every user. Then the number
/// of them is limited for each owner.
fn is_by_role_of_every_user(permit: &Permit, object: &Object) -> bool {
    let info = SharedSecret.info();
    if permit.kind().info().kind != info.kind || object.metadata.namespace != COMMON_NAMESPACE {
        return false;
    }
    let create = Attributes::Resource {
        verb: Verb::Create.as_str(),
        group: info.version.group,
        resource: info.plural,
        subresource: "",
        namespace: COMMON_NAMESPACE,
        name: "",
    };
    !permit.credential().is_server()
        && !permit.policy().is_held_without(permit.identity(), &create, USER_DEFAULT_ROLE)
}

/// Checks that a shared secret that counts for its owner keeps an owner.
///
/// # Errors
/// 403 if a caller that is limited leaves it without one.
pub(super) fn check_stays_owned(
    permit: &Permit,
    object: &Object,
    owner_uid: Option<&str>,
    old_owner_uid: Option<&str>,
) -> Result<(), ApiError> {
    let is_left = owner_uid.is_none() && old_owner_uid.is_some();
    if !is_left || !is_by_role_of_every_user(permit, object) {
        return Ok(());
    }
    let why = format!(
        "a shared secret in the namespace \"{COMMON_NAMESPACE}\" needs an owner: set spec.owner to another user or team, or \
         delete it"
    );
    Err(ApiError::forbidden(permit.kind().info().group_resource(), permit.name(), why))
}

/// The limits of a new object. An access key that the server itself creates for no login, session
/// or workload has none. The administrator of the machine creates such a key for an owner that has
/// lost all keys.
pub(super) fn limits(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: &Object,
    owner_uid: Option<&str>,
) -> Result<Vec<Limit>, ApiError> {
    if is_by_role_of_every_user(permit, object) {
        let own = permit.identity().uid.as_str();
        let Some(uid) = owner_uid.filter(|uid| *uid == own) else {
            let why = format!(
                "with the role {USER_DEFAULT_ROLE}, a shared secret in the namespace \"{COMMON_NAMESPACE}\" belongs to its \
                 creator: leave spec.owner out, and share the secret by spec.access"
            );
            let resource = SharedSecret.info().group_resource();
            return Err(ApiError::forbidden(resource, &object.metadata.name, why));
        };
        let counted = Counted::CommonSecrets(uid.to_owned());
        return Ok(vec![Limit { counted, max: MAX_COMMON_SECRETS }]);
    }
    if !permit.kind().is_delegated() {
        return Ok(Vec::new());
    }
    let (kind, json) = (permit.kind(), object.to_json_bytes());
    let Some(owner) = kind.owner(&json) else { return Ok(Vec::new()) };
    let is_server = permit.credential().is_server();
    let of_owner = |counted| Limit { counted, max: view.user_policy.max_per_owner };
    let Some(AccessChange::Key(Some(facts))) = kind.access_change(Some(&json)) else {
        let objects = of_owner(Counted::Owned(kind, owner));
        return Ok(if is_server { Vec::new() } else { vec![objects] });
    };
    let of_owner = of_owner(Counted::Keys(owner.clone()));
    if let Some(uid) = facts.workload_uid.clone() {
        let max = max_live(view, object)?;
        return Ok(vec![Limit { counted: Counted::WorkloadKeys(uid), max }, of_owner]);
    }
    if let Some(connector) = &facts.connector {
        return Ok(vec![Limit::of_logins(owner, &connector.uid)]);
    }
    if facts.used_as.is_session() {
        let all =
            Limit { counted: Counted::AllSessions(owner), max: view.user_policy.max_per_owner };
        return Ok(facts.maker_uid().map(Limit::of_sessions).into_iter().chain([all]).collect());
    }
    Ok(if is_server { Vec::new() } else { vec![of_owner] })
}

/// The most valid keys of the workload identity that a key is of; none if it is gone.
fn max_live(view: &AdmissionView<'_>, key: &Object) -> Result<usize, ApiError> {
    let name = key.fields.get("status").and_then(|status| status["workload"]["identity"].as_str());
    let found = view.read(&WorkloadIdentity, None, name.unwrap_or_default())?;
    let spec = found.and_then(|found| found.object.fields.get("spec").map(Value::to_owned));
    let spec = spec.and_then(|spec| workload_identity::Spec::deserialize(spec).ok());
    Ok(spec.map_or(0, |spec| usize::try_from(spec.max_live()).unwrap_or_default()))
}
