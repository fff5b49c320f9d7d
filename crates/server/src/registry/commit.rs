//! The one place where an admitted write becomes a transaction.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::KEY_PATH;
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, SecretText};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, Position, Txn};
use serde_json::Value;

use super::activity::shown;
use super::side_records::{self, SideRecords};
use super::{Answer, Registry, not_found};
use crate::cache::{CachedObject, to_stored, with_version};
use crate::errors::from_store;
use crate::stages::admit::{Admitted, Previous, Write};
use crate::stages::authorize::Permit;
use crate::storage_key;

/// How often a create is tried again because its namespace changed meanwhile.
const NAMESPACE_ATTEMPTS: usize = 8;

/// Why a write was not done.
pub(crate) enum Refused {
    /// The object is no longer as it was read: its last change stands here, if it is still there.
    Changed(Position),
    /// For good.
    Error(ApiError),
}

impl Registry {
    /// Stores what is admitted; for a dry run, only says what would be.
    ///
    /// # Errors
    /// 409 when the object has changed since it was read; callers that can start again use
    /// [`Registry::try_commit`].
    pub(crate) async fn commit(
        &self,
        admitted: Admitted,
        dry_run: bool,
    ) -> Result<Answer, ApiError> {
        let (permit, write) = admitted.into_parts();
        let info = permit.kind().info();
        let name = match &write {
            Write::Create { object, .. }
            | Write::Replace { object, .. }
            | Write::Remove { object, .. } => object.metadata.name.clone(),
            Write::RemoveDamaged { .. } | Write::Nothing(_) => String::new(),
        };
        match self.write(&permit, write, dry_run).await {
            Ok(answer) => Ok(answer),
            Err(Refused::Error(error)) => Err(error),
            Err(Refused::Changed(_)) => {
                Err(ApiError::conflict_modified(info.group_resource(), &name))
            }
        }
    }

    /// As [`Registry::commit`], but tells a caller that may start again when he should.
    pub(crate) async fn try_commit(
        &self,
        admitted: Admitted,
        dry_run: bool,
    ) -> Result<Answer, Refused> {
        let (permit, write) = admitted.into_parts();
        self.write(&permit, write, dry_run).await
    }

    async fn write(&self, permit: &Permit, write: Write, dry_run: bool) -> Result<Answer, Refused> {
        let kind = permit.kind();
        match write {
            Write::Nothing(previous) => Ok(answer(shown(self.cache(), kind, previous).json())),
            Write::RemoveDamaged { key, position } => {
                let name = permit.target().name.as_deref().unwrap_or_default();
                let side =
                    self.side_records_of_removed(kind, name, None).await.map_err(Refused::Error)?;
                self.change(permit, position, Change::Delete { key }, side, dry_run).await?;
                Ok(answer(Bytes::new()))
            }
            Write::Create { object, write_only } => {
                self.insert(permit, object, &write_only, dry_run).await.map_err(Refused::Error)
            }
            Write::Replace { object, previous, write_only, kept } => {
                let Previous { cached, object: old } = previous;
                let side = self.side_records_of_changed(kind, &object, &old, &kept, &write_only);
                let side = side.map_err(Refused::Error)?;
                let stored = to_stored(object);
                let change = Change::Put { key: cached.key().clone(), value: stored.clone() };
                let at = cached.position();
                let position = self.change(permit, at, change, side, dry_run).await?;
                let json = self.versioned(kind, &stored, position);
                Ok(answer(self.shown_json(kind, json)))
            }
            Write::Remove { object, previous } => {
                let Previous { cached, object: old } = previous;
                let side = self.side_records_of_removed(kind, &old.metadata.name, Some(&old)).await;
                let side = side.map_err(Refused::Error)?;
                let change = Change::Delete { key: cached.key().clone() };
                let at = cached.position();
                let position = self.change(permit, at, change, side, dry_run).await?;
                Ok(answer(self.versioned(kind, &to_stored(object), position)))
            }
        }
    }

    /// One change of an object that must still be as it was read, with what goes beside it.
    /// Answers its new place; a dry run's is the old one.
    async fn change(
        &self,
        permit: &Permit,
        previous: Position,
        change: Change,
        side: SideRecords,
        dry_run: bool,
    ) -> Result<Position, Refused> {
        if dry_run {
            self.check_absent(permit, &side).await.map_err(Refused::Error)?;
            return Ok(previous);
        }
        let key = change.key().clone();
        let mut txn = Txn { conditions: side.conditions, changes: vec![change] };
        txn.conditions.insert(0, Condition::At(key.clone(), previous));
        txn.changes.extend(side.changes);
        match self.store().commit(txn).await {
            Ok(revision) => Ok(Position::new(revision, 0)),
            Err(Error::Conflict { key: about, found }) => {
                let name = permit.target().name.as_deref().unwrap_or_default();
                Err(match side_records::conflict_of(permit.kind(), name, &about) {
                    Some(error) => Refused::Error(error),
                    None if about == key => Refused::Changed(found.unwrap_or(Position::ZERO)),
                    // Something beside it came or went; the object itself is as it was.
                    None => Refused::Changed(Position::ZERO),
                })
            }
            Err(error) => Err(Refused::Error(from_store(error))),
        }
    }

    /// What a dry run must find out about records that stand beside the object.
    async fn check_absent(&self, permit: &Permit, side: &SideRecords) -> Result<(), ApiError> {
        let name = permit.target().name.as_deref().unwrap_or_default();
        for condition in &side.conditions {
            let Condition::Absent(key) = condition else { continue };
            let found = self.store().get(key).await.map_err(from_store)?.value;
            if let Some(error) =
                found.and_then(|_| side_records::conflict_of(permit.kind(), name, key))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn insert(
        &self,
        permit: &Permit,
        object: Object,
        write_only: &WriteOnlyValues,
        dry_run: bool,
    ) -> Result<Answer, ApiError> {
        let kind = permit.kind();
        let namespace = permit.target().namespace.as_deref();
        let name = object.metadata.name.clone();
        let key = storage_key::object(kind.info(), namespace, &name);
        let side = self.side_records_of_new(kind, &object, write_only, dry_run)?;
        let stored = to_stored(object);
        for _ in 0..NAMESPACE_ATTEMPTS {
            self.cache().wait_until_current().await?;
            if let Some(found) = self.cache().of(kind.info()).get(&key)? {
                return Err(exists(kind, &name, &found));
            }
            let mut conditions = vec![Condition::Absent(key.clone())];
            conditions.extend(side.conditions.iter().cloned());
            if let Some(namespace) = namespace {
                conditions.push(self.namespace_is_open(kind, &name, namespace)?);
            }
            if dry_run {
                self.check_absent(permit, &side).await?;
                return Ok(answer(with_version(self.head(kind), &stored, None)));
            }
            let mut changes = vec![Change::Put { key: key.clone(), value: stored.clone() }];
            changes.extend(side.changes.iter().cloned());
            match self.store().commit(Txn { conditions, changes }).await {
                Ok(revision) => {
                    let json = self.versioned(kind, &stored, Position::new(revision, 0));
                    return match &side.issued {
                        Some(issued) => with_key(&json, issued),
                        None => Ok(answer(json)),
                    };
                }
                Err(Error::Conflict { key: about, .. }) => {
                    if let Some(error) = side_records::conflict_of(kind, &name, &about) {
                        // The name itself comes first: who has it has what goes with it.
                        self.cache().wait_until_current().await?;
                        if self.cache().of(kind.info()).get(&key)?.is_none() {
                            return Err(error);
                        }
                    }
                    // Whether the name or the namespace got in the way, the next look tells.
                }
                Err(error) => return Err(from_store(error)),
            }
        }
        Err(ApiError::conflict_modified(Namespace.info().group_resource(), namespace.unwrap_or("")))
    }

    /// Objects are made only in a namespace that exists and is not going away; that it stays so
    /// until the commit is a condition of the transaction.
    fn namespace_is_open(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        namespace: &str,
    ) -> Result<Condition, ApiError> {
        let key = storage_key::object(Namespace.info(), None, namespace);
        let found = self.cache().of(Namespace.info()).get(&key)?;
        let found = found.ok_or_else(|| not_found(&Namespace, namespace))?;
        // The look at the bytes spares nearly every create the decoding.
        if found.may_be_deleting() && found.decode()?.metadata.is_terminating() {
            let resource = kind.info().group_resource();
            return Err(ApiError::namespace_terminating(resource, name, namespace));
        }
        Ok(Condition::At(key, found.position()))
    }

    fn head(&self, kind: &'static dyn AnyKind) -> &str {
        self.cache().of(kind.info()).head()
    }

    fn versioned(&self, kind: &'static dyn AnyKind, stored: &[u8], position: Position) -> Bytes {
        with_version(self.head(kind), stored, Some(position))
    }
}

/// The one answer that shows the value of an access key.
fn with_key(json: &[u8], key: &SecretText) -> Result<Answer, ApiError> {
    let broken = |reason: String| ApiError::internal("the answer could not be read back", reason);
    let mut value: Value = decode_typed(json).map_err(|error| broken(error.to_string()))?;
    let mut step = &mut value;
    for name in KEY_PATH {
        step = &mut step[*name];
    }
    *step = Value::String(key.expose().to_owned());
    let object = Object::from_value(value).map_err(broken)?;
    Ok(answer(Bytes::from(object.to_json_bytes())))
}

fn answer(json: Bytes) -> Answer {
    Answer { json }
}

fn exists(kind: &'static dyn AnyKind, name: &str, found: &Arc<CachedObject>) -> ApiError {
    let resource = kind.info().group_resource();
    let deleting = found.decode().is_ok_and(|object| object.metadata.deletion_timestamp.is_some());
    if deleting {
        ApiError::already_exists_deleting(resource, name)
    } else {
        ApiError::already_exists(resource, name)
    }
}
