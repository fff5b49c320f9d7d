//! Turns admitted writes into transactions. No other module does.
//!
//! A write has one or more changes, each with its own event. In the transaction, the objects come first, in the order
//! of the write. So an object has the same index in the list and in the transaction. The side records follow.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::namespace::Namespace;
use postern_kinds::principal::{AccessChange, Principal};
use postern_kinds::{AnyKind, OwnedBy, Owner, SecretText, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, Position, Txn, limits};
use postern_telemetry::{SpanKind, span};
use serde_json::Value;

use super::issued_tokens::encoded;
use super::project_limits;
use super::revocations::{Revoked, revoked};
use super::side_records::{RecordsOf, SideRecords};
use super::{EncodedObject, ObjectIdentity, Registry, not_found};
use crate::admit::{Admitted, AdmittedChange, Limit, Member, ObjectNames, Previous, Write};
use crate::cache::{CachedObject, to_stored, to_stored_of, with_version};
use crate::errors::from_store;
use crate::secret_record::credential_field;
use crate::storage_key;

/// Attempts at one commit while the namespace of a new object changes.
const NAMESPACE_ATTEMPTS: usize = 8;

/// Why a write was not stored.
pub(crate) enum CommitError {
    /// An object has changed since it was read. This is the position of its last change, if it still exists. The
    /// caller may read again and start again.
    Changed(Position),
    /// An error that another attempt would repeat.
    Api(ApiError),
}

impl From<ApiError> for CommitError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// One change of an object, prepared for a transaction.
pub(super) struct StagedChange {
    pub(super) kind: &'static dyn AnyKind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// The storage key.
    key: Arc<str>,
    /// The state that must be current; `None` for a new object.
    pub(super) previous: Option<Position>,
    /// The cluster of the object after the change, if it was on none or on another one.
    pub(super) new_cluster: Option<String>,
    /// The user or team that owns a new object by its access rules.
    pub(super) owned_by: Option<Owner>,
    /// The bytes to store; `None` if the object is removed.
    stored: Option<Bytes>,
    /// The state for the response: the new state, or the last state of a removed object.
    result: Bytes,
    side: SideRecords,
    /// The subjects whose permissions change: their endpoint tokens are revoked.
    revoked: Vec<Revoked>,
    /// The user or team that owns a new object, which must still exist under its uid.
    owner: Option<OwnerCondition>,
    /// The users that the change adds to a team. They must stay unchanged: a later user of the name is another user.
    members: Vec<Member>,
    /// The limits on numbers of access keys that a new key has.
    pub(super) limits: Vec<Limit>,
}

impl StagedChange {
    /// Whether the object is removed.
    pub(super) fn is_removal(&self) -> bool {
        self.stored.is_none()
    }

    /// Whether the change adds to the counts of a project's quotas.
    pub(super) fn is_counted(&self) -> bool {
        self.previous.is_none() && self.kind.is_counted_in_quotas()
    }
}

/// The principal that owns a new object. A later principal of the same name is another one.
struct OwnerCondition {
    kind: &'static dyn AnyKind,
    name: String,
    uid: String,
}

impl Registry {
    /// Stores admitted changes. A dry run only returns the result.
    ///
    /// # Errors
    /// 409 if an object has changed since it was read. Callers that can start again use [`Registry::try_commit`].
    pub(crate) async fn commit(
        &self,
        admitted: Admitted,
        dry_run: bool,
    ) -> Result<EncodedObject, ApiError> {
        let (info, name) = (admitted.first().kind.info(), admitted.first().name.clone());
        match Box::pin(self.try_commit(admitted, dry_run)).await {
            Ok(object) => Ok(object),
            Err(CommitError::Api(error)) => Err(error),
            Err(CommitError::Changed(_)) => {
                Err(ApiError::conflict_modified(info.group_resource(), &name))
            }
        }
    }

    /// Commits as [`Registry::commit`], and reports when the caller may start again.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub(crate) async fn try_commit(
        &self,
        admitted: Admitted,
        dry_run: bool,
    ) -> Result<EncodedObject, CommitError> {
        let (first, others, bound) = admitted.into_parts();
        let bound = self.bound_changes(bound)?;
        let (mut unchanged, mut created) = (None, None);
        match &first.write {
            Write::Unchanged(previous) => unchanged = Some(previous.clone()),
            Write::Create { object, .. } => {
                let uid = object.metadata.uid.clone();
                created = Some(ObjectIdentity { name: first.name.clone(), uid });
            }
            _ => {}
        }
        if let Some(previous) = &unchanged
            && others.is_empty()
            && bound.is_empty()
        {
            return Ok(EncodedObject { json: previous.json(), created: None });
        }
        let mut staged = Vec::with_capacity(1 + others.len());
        for change in std::iter::once(first).chain(others) {
            staged.extend(self.stage(change, dry_run).await?);
        }
        hand_over_unique_keys(&mut staged);
        let commit_span = span("commit", SpanKind::Internal);
        let position = self.commit_staged(&staged, bound, unchanged.as_deref(), dry_run).await?;
        drop(commit_span);
        if let Some(previous) = unchanged {
            return Ok(EncodedObject { json: previous.json(), created: None });
        }
        let Some(first) = staged.first() else {
            return Err(ApiError::internal("nothing was written", "an empty write").into());
        };
        // A dry run of a create has no version; a dry run of a change has the old version.
        let version = if dry_run { first.previous } else { position };
        let json = with_version(self.cache().of(first.kind.info()).head(), &first.result, version);
        match &first.side.issued {
            Some(issued) => {
                Ok(EncodedObject { json: with_credential(first.kind, &json, issued)?, created })
            }
            None => Ok(EncodedObject { json, created }),
        }
    }

    /// The changes to the bound names: the records of the users and teams that objects name.
    fn bound_changes(&self, bound: Vec<ObjectNames>) -> Result<Vec<Change>, ApiError> {
        let mut changes = Vec::new();
        for ObjectNames { key, names } in bound {
            let known = self.cache().bound_names(&key);
            if names.grants.is_empty() {
                changes.extend(known.map(|_| Change::Delete { key }));
            } else if known.as_deref() != Some(&names) {
                changes.push(Change::Put { key, value: encoded(&names)? });
            }
        }
        Ok(changes)
    }

    /// Prepares one change for the transaction; `None` if it changes nothing.
    async fn stage(
        &self,
        change: AdmittedChange,
        dry_run: bool,
    ) -> Result<Option<StagedChange>, ApiError> {
        let AdmittedChange { kind, namespace, name, write, members, limits } = change;
        let of = RecordsOf { kind, namespace: namespace.as_deref(), name: &name };
        let (mut owner, mut owned_by, mut new_cluster, mut before) = (None, None, None, None);
        let (mut gone, max_bytes) = (Vec::new(), self.store().limits().value_bytes);
        let (key, previous, stored, result, side) = match write {
            Write::Unchanged(_) => return Ok(None),
            Write::Create { mut object, owner_uid: belongs_to, write_only } => {
                let key = storage_key::object(kind.info(), namespace.as_deref(), &name);
                owner = owner_condition(kind, &object);
                owned_by = project_limits::owner(kind, &object);
                new_cluster = kind.on_cluster(&object);
                let owner_uid = owner.as_ref().map_or("", |owner| owner.uid.as_str());
                let mut side =
                    self.side_records_of_new(of, &object, owner_uid, &write_only, dry_run)?;
                side.changes.extend(self.move_sync_writer(kind, &mut object, None));
                let (stored, json) = encode_within(max_bytes, object, belongs_to.as_deref());
                (key, None, Some(stored), json, side)
            }
            Write::Replace { mut object, owner_uid, previous, write_only, secrets } => {
                let Previous { cached, object: old } = previous;
                let (was_on, is_on) = (kind.on_cluster(&old), kind.on_cluster(&object));
                new_cluster = is_on.filter(|new| was_on.as_ref() != Some(new));
                let mut side =
                    self.side_records_of_changed(of, &object, &old, &secrets, &write_only)?;
                side.changes.extend(self.move_sync_writer(kind, &mut object, Some(&old)));
                let (stored, json) = encode_within(max_bytes, object, owner_uid.as_deref());
                before = Some(cached.json());
                (cached.key().clone(), Some(cached.position()), Some(stored), json, side)
            }
            Write::Remove { object, previous, by } => {
                let Previous { cached, object: old } = previous;
                let side = self.side_records_of_removed(of, Some((&old, &by))).await?;
                before = Some(cached.json());
                (cached.key().clone(), Some(cached.position()), None, to_stored(object), side)
            }
            Write::RemoveCorrupt { key, position } => {
                gone = self.revoked_with_corrupt(of).await?;
                let side = self.side_records_of_removed(of, None).await?;
                (key, Some(position), None, Bytes::new(), side)
            }
        };
        let new = stored.as_ref().map(|_| &*result);
        gone.extend(revoked(kind, &name, before.as_deref(), new, &*self.cache().principals()));
        if side.replaces_credential
            && let Some(AccessChange::Key(Some(old))) = kind.access_change(before.as_deref())
        {
            gone.push(Revoked::key(old));
        }
        Ok(Some(StagedChange {
            kind,
            namespace,
            name,
            key,
            previous,
            new_cluster,
            owned_by,
            stored,
            result,
            side,
            revoked: gone,
            owner,
            members,
            limits,
        }))
    }

    /// Commits all changes. Returns the position of the first change. A dry run only checks whether the commit is
    /// possible, and returns no position.
    async fn commit_staged(
        &self,
        staged: &[StagedChange],
        bound: Vec<Change>,
        unchanged: Option<&CachedObject>,
        dry_run: bool,
    ) -> Result<Option<Position>, CommitError> {
        let mut tokens_are_issued = false;
        for _ in 0..NAMESPACE_ATTEMPTS {
            tokens_are_issued = false;
            let mut conditions = self.conditions(staged).await?;
            let as_read = unchanged.map(|one| Condition::At(one.key().clone(), one.position()));
            conditions.extend(as_read);
            let mut limits = self.project_limits(staged, dry_run).await?;
            self.key_limits(staged, &mut limits).await?;
            conditions.extend(limits.conditions);
            if dry_run {
                self.check_absent(staged).await?;
                return Ok(None);
            }
            let revoked = staged.iter().flat_map(|one| one.revoked.iter().cloned()).collect();
            let revocation = self.revocation(revoked)?;
            conditions.extend(revocation.conditions);
            let records = limits.changes.into_iter().chain(revocation.changes);
            let records = records.chain(bound.iter().cloned()).collect();
            let txn = Txn { conditions, changes: changes(staged, records) };
            check_counts(staged, &txn)?;
            match self.store().commit(txn).await {
                Ok(revision) => return Ok(Some(Position::new(revision, 0))),
                Err(Error::Conflict { key, found })
                    if unchanged.is_some_and(|one| **one.key() == *key) =>
                {
                    return Err(CommitError::Changed(found.unwrap_or(Position::ZERO)));
                }
                Err(Error::Conflict { key, .. }) if key.starts_with(storage_key::ISSUED_TOKENS) => {
                    // A token was issued in the meantime: it must be revoked as well.
                    tokens_are_issued = true;
                    self.cache().wait_until_current().await?;
                }
                Err(Error::Conflict { key, found }) => {
                    self.explain_conflict(staged, &key, found).await?;
                }
                Err(error) => return Err(from_store(error).into()),
            }
        }
        if tokens_are_issued {
            let message = "the access key keeps getting new endpoint tokens: try again";
            return Err(ApiError::unavailable(message, Some(1)).into());
        }
        let namespace = staged.iter().find_map(|one| one.namespace.as_deref()).unwrap_or_default();
        Err(ApiError::conflict_modified(Namespace.info().group_resource(), namespace).into())
    }

    /// The conditions of the transaction. Each changed object is as it was read, and each new object does not exist
    /// yet. Each namespace of a new object exists and is not terminating.
    async fn conditions(&self, staged: &[StagedChange]) -> Result<Vec<Condition>, CommitError> {
        let mut conditions = Vec::new();
        for one in staged {
            if let Some(previous) = one.previous {
                conditions.push(Condition::At(one.key.clone(), previous));
            } else {
                self.cache().wait_until_current().await?;
                if let Some(found) = self.cache().of(one.kind.info()).get(&one.key)? {
                    self.check_as_read(staged)?;
                    return Err(already_exists(one.kind, &one.name, &found).into());
                }
                conditions.push(Condition::Absent(one.key.clone()));
            }
        }
        for one in staged {
            if let Some(owner) = &one.owner {
                conditions.push(self.check_owner(one, owner)?);
            }
            conditions.extend(one.side.conditions.iter().cloned());
            let members = one.members.iter().cloned();
            conditions.extend(members.map(|(key, position)| Condition::At(key, position)));
            if let (None, Some(namespace)) = (one.previous, &one.namespace)
                && !creates_namespace(staged, namespace)
            {
                conditions.push(self.check_namespace(one.kind, &one.name, namespace)?);
            }
        }
        Ok(conditions)
    }

    /// Fails if an object has changed since it was read. The other writer may also have created objects that belong
    /// to this change, such as the roles of its access rules. In that case their existence is no error of this
    /// change.
    fn check_as_read(&self, staged: &[StagedChange]) -> Result<(), CommitError> {
        for one in staged {
            let Some(previous) = one.previous else { continue };
            let found = self.cache().of(one.kind.info()).get(&one.key)?;
            let now = found.map_or(Position::ZERO, |found| found.position());
            if now != previous {
                return Err(CommitError::Changed(now));
            }
        }
        Ok(())
    }

    /// Succeeds if the transaction can be tried again unchanged, because only a namespace has changed.
    ///
    /// # Errors
    /// The error of the conflict for the caller.
    async fn explain_conflict(
        &self,
        staged: &[StagedChange],
        key: &str,
        found: Option<Position>,
    ) -> Result<(), CommitError> {
        for one in staged {
            if *one.key == *key {
                // The next attempt checks whether the name of a new object exists by now.
                return match one.previous {
                    Some(_) => Err(CommitError::Changed(found.unwrap_or(Position::ZERO))),
                    None => Ok(()),
                };
            }
            if one.members.iter().any(|(user, _)| **user == *key) {
                return Err(CommitError::Changed(Position::ZERO));
            }
            let Some(error) = one.side.conflict(one.kind, &one.name, key) else { continue };
            if one.previous.is_some() {
                return Err(error.into());
            }
            // A conflict on the name comes first: an object of that name also has its side records.
            self.cache().wait_until_current().await?;
            let is_taken = self.cache().of(one.kind.info()).get(&one.key)?.is_some();
            return if is_taken { Ok(()) } else { Err(error.into()) };
        }
        // Another side record was added or removed, and the objects did not change.
        let is_change = staged.iter().all(|one| one.previous.is_some());
        if is_change { Err(CommitError::Changed(Position::ZERO)) } else { Ok(()) }
    }

    /// Checks for a dry run that the side records would not conflict.
    async fn check_absent(&self, staged: &[StagedChange]) -> Result<(), ApiError> {
        for one in staged {
            for condition in &one.side.conditions {
                let Condition::Absent(key) = condition else { continue };
                let found = self.store().get(key).await.map_err(from_store)?.value;
                if let Some(error) = found.and_then(|_| one.side.conflict(one.kind, &one.name, key))
                {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Checks that the namespace of a new object exists and is not terminating. Returns the condition that this holds
    /// at the commit.
    fn check_namespace(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        namespace: &str,
    ) -> Result<Condition, ApiError> {
        let key = storage_key::object(Namespace.info(), None, namespace);
        let found = self.cache().of(Namespace.info()).get(&key)?;
        let found = found.ok_or_else(|| not_found(&Namespace, namespace))?;
        if found.is_deleting() {
            let resource = kind.info().group_resource();
            return Err(ApiError::namespace_terminating(resource, name, namespace));
        }
        Ok(Condition::At(key, found.position()))
    }

    /// Checks that the owner of a new object is the owner at admission. Returns the condition that this holds at the
    /// commit.
    fn check_owner(
        &self,
        one: &StagedChange,
        owner: &OwnerCondition,
    ) -> Result<Condition, ApiError> {
        let key = storage_key::object(owner.kind.info(), None, &owner.name);
        let found = self.cache().of(owner.kind.info()).get(&key)?;
        match found {
            Some(found) if found.decode()?.metadata.uid == owner.uid => {
                Ok(Condition::At(key, found.position()))
            }
            _ => {
                let resource = one.kind.info().group_resource();
                let text = format!(
                    "its owner, {} \"{}\", was deleted during the request",
                    owner.kind.info().singular,
                    owner.name
                );
                Err(ApiError::conflict(resource, &one.name, text))
            }
        }
    }
}

/// An object as it is stored, and its JSON. An object that is too long loses its `managedFields`, as upstream: they
/// are no reason to reject the write.
fn encode_within(max_bytes: usize, object: Object, owner_uid: Option<&str>) -> (Bytes, Bytes) {
    let whole = to_stored_of(object, owner_uid);
    if whole.0.len() <= max_bytes {
        return whole;
    }
    match decode_typed::<Value>(&whole.1).map(Object::from_value) {
        Ok(Ok(mut object)) => {
            object.metadata.managed_fields.clear();
            to_stored_of(object, owner_uid)
        }
        // The store rejects the object and reports the reason.
        _ => whole,
    }
}

/// Lets a moved object keep its unique keys: the object of the old namespace gives them to the object of the new one.
fn hand_over_unique_keys(staged: &mut [StagedChange]) {
    for index in 0..staged.len() {
        let (before, [one, after @ ..]) = staged.split_at_mut(index) else { return };
        if !one.is_removal() {
            continue;
        }
        let is_it = |other: &&mut StagedChange| {
            other.previous.is_none()
                && other.name == one.name
                && other.kind.info().group_resource() == one.kind.info().group_resource()
        };
        if let Some(new) = before.iter_mut().chain(after).find(is_it) {
            one.side.hand_over(&mut new.side);
        }
    }
}

/// Whether the transaction creates the namespace, as a new project does.
fn creates_namespace(staged: &[StagedChange], namespace: &str) -> bool {
    staged.iter().any(|one| {
        one.previous.is_none()
            && one.name == namespace
            && one.kind.info().group_resource() == Namespace.info().group_resource()
    })
}

/// The condition on the owner of a new object, under the uid that admission has recorded.
fn owner_condition(kind: &'static dyn AnyKind, object: &Object) -> Option<OwnerCondition> {
    if !kind.is_delegated() {
        return None;
    }
    let OwnedBy { owner, uid } = kind.owned_by(&object.to_json_bytes())?;
    let (role, name) = match owner.principal()? {
        Principal::User(name) => (AccessChange::User(None), name),
        Principal::Team(name) => (AccessChange::Team(None), name),
    };
    let kind =
        all().iter().copied().find(|kind| kind.access_change(None).as_ref() == Some(&role))?;
    (!uid.is_empty()).then(|| OwnerCondition { kind, name: name.to_owned(), uid })
}

/// The changes of a transaction: the objects first, each at its index, then their side records.
fn changes(staged: &[StagedChange], records: Vec<Change>) -> Vec<Change> {
    let objects = staged.iter().map(|one| match &one.stored {
        Some(stored) => Change::Put { key: one.key.clone(), value: stored.clone() },
        None => Change::Delete { key: one.key.clone() },
    });
    let side = staged.iter().flat_map(|one| one.side.changes.iter().cloned());
    objects.chain(side).chain(records).collect()
}

/// Checks that the store takes so many changes and conditions in one transaction.
fn check_counts(staged: &[StagedChange], txn: &Txn) -> Result<(), ApiError> {
    let counts = [
        ("changes", txn.changes.len(), limits::CHANGES_PER_TXN),
        ("conditions", txn.conditions.len(), limits::CONDITIONS_PER_TXN),
    ];
    let Some((what, needed, limit)) = counts.into_iter().find(|(_, needed, limit)| needed > limit)
    else {
        return Ok(());
    };
    let (name, resource) = staged.first().map_or(("", Namespace.info().group_resource()), |one| {
        (&one.name, one.kind.info().group_resource())
    });
    let text =
        format!("the write needs {needed} {what}, and one transaction can have at most {limit}");
    Err(ApiError::conflict(resource, name, text))
}

/// The response to a create that has the value of an access key. No other response has the value.
fn with_credential(
    kind: &'static dyn AnyKind,
    json: &[u8],
    key: &SecretText,
) -> Result<Bytes, ApiError> {
    let broken = |reason: String| ApiError::internal("the response could not be read back", reason);
    let mut value: Value = decode_typed(json).map_err(|error| broken(error.to_string()))?;
    let mut step = &mut value;
    for name in credential_field(kind).map(|field| field.path).unwrap_or_default() {
        step = &mut step[*name];
    }
    *step = Value::String(key.expose().to_owned());
    let object = Object::from_value(value).map_err(broken)?;
    Ok(Bytes::from(object.to_json_bytes()))
}

fn already_exists(kind: &'static dyn AnyKind, name: &str, found: &Arc<CachedObject>) -> ApiError {
    let resource = kind.info().group_resource();
    let deleting = found.decode().is_ok_and(|object| object.metadata.deletion_timestamp.is_some());
    // An access key belongs to an owner. A caller of the same name learns only that the name is taken.
    if deleting && found.owner().is_none() {
        ApiError::already_exists_deleting(resource, name)
    } else {
        ApiError::already_exists(resource, name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_too_long_goes_without_its_managed_fields() {
        let entry = json!({ "manager": "m", "operation": "Apply", "apiVersion": "v1" });
        let value = json!({
            "apiVersion": "v1", "kind": "Secret", "data": { "a": "djE=" },
            "metadata": { "name": "s", "managedFields": [entry] },
        });
        let object = Object::from_value(value).unwrap();
        let owner = Some("uid-ada");
        let whole = to_stored_of(object.clone(), owner);
        assert_eq!(encode_within(whole.0.len(), object.clone(), owner), whole);
        let mut without = object.clone();
        without.metadata.managed_fields.clear();
        assert_eq!(encode_within(whole.0.len() - 1, object, owner), to_stored_of(without, owner));
    }
}
