//! The input of admission: the cache, the time of the write, and the operator's settings.

use std::sync::Arc;

use postern_auth::digest::Digester;
use postern_auth::identity::MASTERS_GROUP;
use postern_kinds::action::{ActionRequest, ActionResult};
use postern_kinds::{
    AnyKind, BoundGrant, Context, Dependent, Prepared, Reading, Verb, grants_of_stored,
};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;

use super::named::Named;
use super::write::Previous;
use crate::cache::Cache;
use crate::clock::Source;
use crate::permit::Permit;
use crate::storage_key;

/// The storage key of the record of whom an object names.
pub(super) fn key_of_names(kind: &dyn AnyKind, metadata: &ObjectMeta) -> Arc<str> {
    let namespace = Some(metadata.namespace.as_str()).filter(|name| !name.is_empty());
    storage_key::bound_names(kind.info(), namespace, &metadata.name)
}

/// A kind's own action: a pure function.
pub(crate) type ActionHandler = fn(&ActionRequest<'_>) -> Result<ActionResult, ApiError>;

/// The operator's settings for access keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyPolicy {
    /// The longest life of a key, which then also is the default; `None` for no limit.
    pub max_ttl_seconds: Option<i64>,
    /// How long a key that has expired is kept before it is removed.
    pub expired_retention_seconds: i64,
    /// How many keys an owner may have.
    pub max_per_owner: usize,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self {
            max_ttl_seconds: None,
            expired_retention_seconds: 30 * 24 * 3600,
            max_per_owner: 1000,
        }
    }
}

/// All that admission reads: what is cached, and the time of the write, which is read once.
pub(crate) struct AdmissionView<'a> {
    pub(super) cache: &'a Cache,
    pub(super) source: &'a dyn Source,
    pub(super) digester: &'a Digester,
    pub(super) key_policy: KeyPolicy,
    pub(super) now: Timestamp,
}

impl<'a> AdmissionView<'a> {
    /// A view of the present state.
    pub(crate) fn new(
        cache: &'a Cache,
        source: &'a dyn Source,
        digester: &'a Digester,
        key_policy: KeyPolicy,
    ) -> Self {
        Self { cache, source, digester, key_policy, now: source.now() }
    }

    /// Has the kind prepare an object. Returns what the write requires, and what is wrong with it.
    pub(super) fn prepare(
        &self,
        permit: &Permit,
        new: &mut Object,
        old: Option<&Object>,
        has_new_credential: bool,
    ) -> Result<Prepared, ApiError> {
        let kind = permit.kind();
        let may_read =
            old.is_none() || kind.read_protected().is_empty() || permit.may(Verb::Get, None);
        let reading = if may_read { Reading::Allowed } else { Reading::Refused };
        self.with_context(permit, |context| {
            kind.prepare(new, old, &Context { has_new_credential, reading, ..context })
        })
    }

    /// Checks that an object with this metadata may be deleted at all.
    pub(super) fn check_delete(
        &self,
        permit: &Permit,
        metadata: &ObjectMeta,
    ) -> Result<(), ApiError> {
        self.with_plain_context(permit, |context| permit.kind().check_delete(metadata, &context))
    }

    /// Checks that the garbage collector may delete an object, by the kind's own rules: it acts for the writer
    /// of the owner references.
    ///
    /// # Errors
    /// 403 if it may not.
    pub(crate) fn check_collect(
        &self,
        permit: &Permit,
        metadata: &ObjectMeta,
    ) -> Result<(), ApiError> {
        self.with_plain_context(permit, |context| {
            permit.kind().check_delete(metadata, &Context { is_collector: true, ..context })
        })
    }

    /// The dependents that an object has to have, given those that are there now, and whom it
    /// names.
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

    /// The grants to the users and teams that the access rules and members of an object name, as recorded. For
    /// an object from before there were such records, they come from its present dependents.
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

    /// Runs a kind's own action on an object.
    ///
    /// # Errors
    /// Those of the action.
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

    /// Runs a hook of a kind with what it may know of the caller and of the principals.
    fn with_context<T>(
        &self,
        permit: &Permit,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (principals, policy) = (self.cache.principals(), self.cache.policy());
        let caller_key = permit.credential().caller_key(&principals, &policy, self.now)?;
        drop(principals);
        self.with_plain_context(permit, |context| {
            run(Context {
                access_key_max_ttl_seconds: self.key_policy.max_ttl_seconds,
                caller_key: caller_key.as_ref(),
                ..context
            })
        })
    }

    /// The same for hooks that need not know with which key a request was sent.
    fn with_plain_context<T>(
        &self,
        permit: &Permit,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (caller, policy) = (permit.caller(), self.cache.policy());
        let principals = self.cache.principals();
        let named = Named { cache: self.cache, policy: &policy, principals: &principals };
        let namespace = permit.target().namespace.as_deref();
        let project = namespace.and_then(|namespace| policy.projects().of(namespace));
        run(Context {
            is_server: permit.credential().is_server(),
            is_master: permit.identity().is_in(MASTERS_GROUP),
            project_of_namespace: project,
            named: &named,
            ..Context::of(&caller, self.now, &*principals)
        })
    }

    /// Reads another object that a write changes as well; `None` when it is gone.
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
