//! The input of admission: the cache, the time of the write, and the operator's settings.

use std::cell::OnceCell;
use std::sync::Arc;

use postern_auth::digest::Digester;
use postern_auth::identity::MASTERS_GROUP;
use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::action::{ActionRequest, ActionResult};
use postern_kinds::cluster::Cluster;
use postern_kinds::connector::Connector;
use postern_kinds::{
    AnyKind, BoundGrant, CallerKey, Context, Dependent, NamedIdentities as _, NamedObject,
    Prepared, Principal, Principals as _, Reading, Sharing, Verb, WriterKind, grants_of_stored,
};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;

use super::named::NameLookup;
use crate::cache::{Cache, CachedObject, PolicyAt};
use crate::clock::Source;
use crate::permit::Permit;
use crate::storage_key;

/// The storage key of the bound names of an object.
pub(super) fn key_of_names(kind: &dyn AnyKind, metadata: &ObjectMeta) -> Arc<str> {
    let namespace = Some(metadata.namespace.as_str()).filter(|name| !name.is_empty());
    storage_key::bound_names(kind.info(), namespace, &metadata.name)
}

/// A kind's own action: a pure function.
pub(crate) type ActionHandler = fn(&ActionRequest<'_>) -> Result<ActionResult, ApiError>;

/// The changes of a write in write-only fields.
#[derive(Default)]
pub(super) struct NewSecrets {
    /// Whether an update changes the credential.
    pub(super) has_new_credential: bool,
    /// The paths of the other fields that get new values.
    pub(super) others: Vec<&'static [&'static str]>,
}

/// The operator's settings for users: their access keys, and whom they may name.
#[derive(Clone, Copy, Debug)]
pub struct UserPolicy {
    /// The maximum lifetime of a key, which is also the default; `None` for no limit.
    pub max_ttl_seconds: Option<i64>,
    /// The time that an expired key is kept before it is removed.
    pub expired_retention_seconds: i64,
    /// The maximum number of keys for one owner.
    pub max_per_owner: usize,
    /// The lifetime of a session of the console.
    pub session_seconds: i64,
    /// The time without a use after which a session ends.
    pub session_idle_seconds: i64,
    /// The time after which groups that the provider has not confirmed no longer count.
    pub sso_groups_max_age_seconds: i64,
    /// Whom callers may name in access rules.
    pub sharing: Sharing,
}

impl Default for UserPolicy {
    fn default() -> Self {
        Self {
            max_ttl_seconds: None,
            expired_retention_seconds: 30 * 24 * 3600,
            max_per_owner: 1000,
            session_seconds: 12 * 3600,
            session_idle_seconds: 30 * 60,
            sso_groups_max_age_seconds: 24 * 3600,
            sharing: Sharing::default(),
        }
    }
}

/// The data that admission reads: the cache, and the values that are read once for each attempt at a write. These are
/// the time, the policy and the caller's key.
///
/// The lock of the principal index is held only while a hook runs. A change of the index waits for the lock, and
/// blocks all new readers while it waits. The field tracking of a large object takes long.
pub(crate) struct AdmissionView<'a> {
    pub(super) cache: &'a Cache,
    pub(super) source: &'a dyn Source,
    pub(super) digester: &'a Digester,
    pub(super) user_policy: UserPolicy,
    pub(super) now: Timestamp,
    pub(super) policy: Arc<PolicyAt>,
    caller_key: OnceCell<Option<CallerKey>>,
}

impl<'a> AdmissionView<'a> {
    /// A view of the present state.
    pub(crate) fn new(
        cache: &'a Cache,
        source: &'a dyn Source,
        digester: &'a Digester,
        user_policy: UserPolicy,
    ) -> Self {
        let (now, policy) = (source.now(), cache.policy());
        Self { cache, source, digester, user_policy, now, policy, caller_key: OnceCell::new() }
    }

    /// Lets the kind prepare an object. Returns the permissions that the write requires, and its validation errors.
    pub(super) fn prepare(
        &self,
        permit: &Permit,
        new: &mut Object,
        old: Option<Before<'_>>,
        secrets: &NewSecrets,
    ) -> Result<Prepared, ApiError> {
        let kind = permit.kind();
        let owner_uid = old.and_then(|old| old.owner_uid);
        let changes_managers = old.is_some_and(|old| old.changes_managers);
        let old = old.map(|old| old.object);
        let may_read =
            old.is_none() || kind.info().read_protected.is_empty() || permit.may(Verb::Get, None);
        let reading = if may_read { Reading::Allowed } else { Reading::Refused };
        self.with_context(permit, |context| {
            let NewSecrets { has_new_credential, others } = secrets;
            let (has_new_credential, new_secrets) = (*has_new_credential, others.as_slice());
            let context = Context {
                has_new_credential,
                new_secrets,
                reading,
                owner_uid,
                changes_managers,
                ..context
            };
            kind.prepare(new, old, &context)
        })
    }

    /// Checks that the kind permits the deletion of an object with this metadata.
    pub(super) fn check_delete(
        &self,
        permit: &Permit,
        metadata: &ObjectMeta,
    ) -> Result<(), ApiError> {
        self.with_plain_context(permit, |context| permit.kind().check_delete(metadata, &context))
    }

    /// Checks that the kind permits the garbage collector to delete an object. The collector acts for the writer of
    /// the owner references.
    ///
    /// # Errors
    /// 403 if the kind forbids it.
    pub(crate) fn check_collect(
        &self,
        permit: &Permit,
        metadata: &ObjectMeta,
    ) -> Result<(), ApiError> {
        self.with_plain_context(permit, |context| {
            permit
                .kind()
                .check_delete(metadata, &Context { writer: WriterKind::Collector, ..context })
        })
    }

    /// The dependents that an object must have. `previous` are its present dependents, `bound` its bound names.
    pub(super) fn dependents(
        &self,
        permit: &Permit,
        object: &Object,
        previous: &[Object],
        bound: &[BoundGrant],
    ) -> Result<Vec<Dependent>, ApiError> {
        self.with_plain_context(permit, |context| {
            permit.kind().dependents(object, previous, &Context { bound, ..context })
        })
    }

    /// The grants to the users and teams in the access rules and members of an object, from its bound names. An
    /// object without such a record gets them from its present dependents.
    pub(super) fn bound_grants(
        &self,
        kind: &dyn AnyKind,
        object: &Object,
        previous: &[Object],
    ) -> Vec<BoundGrant> {
        let recorded = self.cache.bound_names(&key_of_names(kind, &object.metadata));
        let recorded = recorded.filter(|names| names.uid == object.metadata.uid);
        recorded.map_or_else(
            || grants_of_stored(previous, &object.metadata),
            |names| names.grants.clone(),
        )
    }

    /// Whether a new User may have a name without the right to impersonate it: no user has it, and nothing that is stored
    /// names it. Otherwise the User would have the permissions of that name.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        let principals = self.cache.principals();
        let user = Principal::User(name);
        let named = NameLookup { cache: self.cache, policy: &self.policy, principals: &principals };
        principals.uid(user).is_none()
            && principals.user_known_as(name).is_none()
            && !named.names_user(name)
            && !named.names_group(&user.group())
            && !named.names_owner(user)
    }

    /// Runs an action of a kind on an object.
    ///
    /// # Errors
    /// The errors of the action.
    pub(crate) fn act(
        &self,
        permit: &Permit,
        handle: ActionHandler,
        object: &Object,
        body: &Object,
    ) -> Result<ActionResult, ApiError> {
        self.with_context(permit, |context| {
            handle(&ActionRequest { object, body, context: &context })
        })
    }

    /// Runs a hook of a kind with the data about the caller and the principals.
    fn with_context<T>(
        &self,
        permit: &Permit,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let principals = self.cache.principals();
        let caller_key = self.caller_key(permit, &principals)?;
        self.run(permit, &principals, |context| {
            run(Context {
                access_key_max_ttl_seconds: self.user_policy.max_ttl_seconds,
                sharing: self.user_policy.sharing,
                caller_key,
                ..context
            })
        })
    }

    /// The access key of the request: see [`Credential::caller_key`](crate::credential::Credential::caller_key). It is read once.
    ///
    /// # Errors
    /// 401 with the reason why the key is no longer valid.
    fn caller_key(
        &self,
        permit: &Permit,
        principals: &PrincipalIndex,
    ) -> Result<Option<&CallerKey>, ApiError> {
        let credential = permit.credential();
        // The server makes additional changes in the write of a caller.
        if credential.is_server() {
            return Ok(None);
        }
        if let Some(known) = self.caller_key.get() {
            return Ok(known.as_ref());
        }
        let key = credential.caller_key(principals, &self.policy, self.now)?;
        Ok(self.caller_key.get_or_init(|| key).as_ref())
    }

    /// The same for code outside of hooks. The hooks of most writes have already read it.
    ///
    /// # Errors
    /// The errors of [`AdmissionView::caller_key`].
    pub(super) fn known_caller_key(&self, permit: &Permit) -> Result<Option<&CallerKey>, ApiError> {
        match self.caller_key.get() {
            Some(known) if !permit.credential().is_server() => Ok(known.as_ref()),
            _ => self.caller_key(permit, &self.cache.principals()),
        }
    }

    /// The same for hooks that do not need the access key of the request.
    fn with_plain_context<T>(
        &self,
        permit: &Permit,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        self.run(permit, &self.cache.principals(), run)
    }

    fn run<T>(
        &self,
        permit: &Permit,
        principals: &PrincipalIndex,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (caller, policy) = (permit.caller(), &*self.policy);
        let named = NameLookup { cache: self.cache, policy, principals };
        let namespace = permit.target().namespace.as_deref();
        let project = namespace.and_then(|namespace| policy.projects().of(namespace));
        let uid_of_object = |named: NamedObject<'_>| {
            let found = match named {
                NamedObject::Cluster(name) => self.read(&Cluster, None, name),
                NamedObject::Connector(name) => self.read(&Connector, None, name),
            };
            let object = found.ok()??.object;
            // Unauthenticated clients see which connectors are enabled, and other callers need not see more.
            let disabled = object.fields.get("spec").and_then(|spec| spec.get("disabled"));
            let is_served = disabled != Some(&true.into()) && !object.metadata.is_terminating();
            (is_served || matches!(named, NamedObject::Cluster(_))).then_some(object.metadata.uid)
        };
        let instance = |kind, name: &str| {
            let namespace = namespace.filter(|_| project.is_some())?;
            self.cache.location_of_instance(kind, namespace, name).ok().flatten()
        };
        let writer = if permit.credential().is_server() {
            WriterKind::Server
        } else if permit.identity().is_in(MASTERS_GROUP) {
            WriterKind::Master
        } else {
            WriterKind::Client
        };
        run(Context {
            writer,
            project_of_namespace: project,
            named: &named,
            uid_of_object: &uid_of_object,
            instance: &instance,
            ..Context::of(&caller, self.now, principals)
        })
    }

    /// Reads another object that the write also changes; `None` if it does not exist.
    pub(super) fn read(
        &self,
        kind: &'static dyn AnyKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Previous>, ApiError> {
        let found =
            self.cache.of(kind.info()).get(&storage_key::object(kind.info(), namespace, name))?;
        found.map(Previous::of).transpose()
    }
}

/// An object as it was read, before a change. It is decoded once for all checks.
pub(crate) struct Previous {
    /// The object as it was read.
    pub(crate) cached: Arc<CachedObject>,
    /// The same object, decoded.
    pub(crate) object: Object,
}

impl Previous {
    /// An object that was read, with its decoded form.
    ///
    /// # Errors
    /// 500 if the stored object cannot be decoded.
    pub(crate) fn of(cached: Arc<CachedObject>) -> Result<Self, ApiError> {
        let object = cached.decode()?;
        Ok(Self { cached, object })
    }

    /// The object as its kind prepares a change.
    pub(super) fn before(&self) -> Before<'_> {
        let owner_uid = self.cached.owner_uid();
        Before { object: &self.object, owner_uid, changes_managers: false }
    }
}

/// An object before a write, as its kind prepares it.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    /// The object.
    pub(crate) object: &'a Object,
    /// The uid of its owner, if it has one.
    pub(crate) owner_uid: Option<&'a str>,
    /// Whether the client itself sends other `managedFields`. An apply only makes new ones.
    pub(crate) changes_managers: bool,
}
