//! The one place where an admitted write becomes a transaction.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::AnyKind;
use postern_kinds::namespace::Namespace;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, Position, Txn};

use super::{Answer, Registry, keys, not_found};
use crate::admit::{Admitted, Write};
use crate::authorize::Permit;
use crate::cache::{CachedObject, to_stored, with_version};
use crate::errors::from_store;

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
            Write::Create(object)
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
            Write::Nothing(previous) => Ok(answer(previous.json())),
            Write::RemoveDamaged { key, position } => {
                self.change(position, Change::Delete { key }, dry_run).await?;
                Ok(answer(Bytes::new()))
            }
            Write::Create(object) => {
                self.insert(permit, object, dry_run).await.map_err(Refused::Error)
            }
            Write::Replace { object, previous } => {
                let stored = to_stored(object);
                let key = previous.key().clone();
                let change = Change::Put { key, value: stored.clone() };
                let at = previous.position();
                let position = self.change(at, change, dry_run).await?;
                Ok(answer(self.versioned(kind, &stored, position)))
            }
            Write::Remove { object, previous } => {
                let change = Change::Delete { key: previous.key().clone() };
                let at = previous.position();
                let position = self.change(at, change, dry_run).await?;
                Ok(answer(self.versioned(kind, &to_stored(object), position)))
            }
        }
    }

    /// One change of an object that must still be as it was read. Answers its new place; a dry
    /// run's is the old one.
    async fn change(
        &self,
        previous: Position,
        change: Change,
        dry_run: bool,
    ) -> Result<Position, Refused> {
        if dry_run {
            return Ok(previous);
        }
        let condition = Condition::At(change.key().clone(), previous);
        let txn = Txn { conditions: vec![condition], changes: vec![change] };
        match self.store().commit(txn).await {
            Ok(revision) => Ok(Position::new(revision, 0)),
            Err(Error::Conflict { found, .. }) => {
                Err(Refused::Changed(found.unwrap_or(Position::ZERO)))
            }
            Err(error) => Err(Refused::Error(from_store(error))),
        }
    }

    async fn insert(
        &self,
        permit: &Permit,
        object: Object,
        dry_run: bool,
    ) -> Result<Answer, ApiError> {
        let kind = permit.kind();
        let namespace = permit.target().namespace.as_deref();
        let name = object.metadata.name.clone();
        let key = keys::object(kind.info(), namespace, &name);
        let stored = to_stored(object);
        for _ in 0..NAMESPACE_ATTEMPTS {
            self.cache().fresh().await?;
            if let Some(found) = self.cache().of(kind.info()).get(&key)? {
                return Err(exists(kind, &name, &found));
            }
            let mut conditions = vec![Condition::Absent(key.clone())];
            if let Some(namespace) = namespace {
                conditions.push(self.namespace_is_open(kind, &name, namespace)?);
            }
            if dry_run {
                return Ok(answer(with_version(self.head(kind), &stored, None)));
            }
            let change = Change::Put { key: key.clone(), value: stored.clone() };
            match self.store().commit(Txn { conditions, changes: vec![change] }).await {
                Ok(revision) => {
                    let position = Position::new(revision, 0);
                    return Ok(answer(self.versioned(kind, &stored, position)));
                }
                // Whether the name or the namespace got in the way, the next look tells.
                Err(Error::Conflict { .. }) => {}
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
        let key = keys::object(Namespace.info(), None, namespace);
        let found = self.cache().of(Namespace.info()).get(&key)?;
        let found = found.ok_or_else(|| not_found(&Namespace, namespace))?;
        if found.decode()?.metadata.deletion_timestamp.is_some() {
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
