//! Turns admitted writes into transactions. No other module does.
//!
//! A write has one or more changes, each with its own event. `stage` prepares each change, and `rules` add the effects
//! that depend on the present state. This module joins them, and runs the rules again after a conflict.

use bytes::Bytes;
use postern_kinds::namespace::Namespace;
use postern_kinds::{AnyKind, SecretText};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Error, Position, Txn, limits};
use postern_telemetry::{SpanKind, span};
use serde_json::Value;

use super::effects::{Conflict, Effects, Guard};
use super::stage::StagedChange;
use crate::admit::{Admitted, ObjectNames, Write};
use crate::cache::with_version;
use crate::errors::from_store;
use crate::registry::{EncodedObject, ObjectIdentity, Registry};
use crate::secret_record::credential_field;

/// The maximum number of attempts at one commit while the records that the rules have read keep
/// changing.
const ATTEMPTS: usize = 8;

/// Why a write was not stored.
pub(crate) enum CommitError {
    /// An object has changed since it was read. This is the position of the change that was found, if there is one. The
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
        let created = match &first.write {
            Write::Create { object, .. } => {
                let uid = object.metadata.uid.clone();
                Some(ObjectIdentity { name: first.name.clone(), uid })
            }
            _ => None,
        };
        let effects = self.effects_of_removal(&first).await?;
        let mut first = self.stage(*first, effects, dry_run)?;
        self.add_bound_names(bound, &mut first.effects)?;
        let is_unchanged = first.change.is_none();
        let owner_uid = first.owner_uid.take();
        if is_unchanged && others.is_empty() && first.effects.changes.is_empty() {
            return Ok(EncodedObject { json: first.json, created, owner_uid, cached: None });
        }
        let mut staged = Vec::with_capacity(1 + others.len());
        staged.push(first);
        for change in others {
            let effects = self.effects_of_removal(&change).await?;
            staged.push(self.stage(change, effects, dry_run)?);
        }
        let commit_span = span("commit", SpanKind::Internal);
        let position = self.commit_staged(&staged, dry_run).await?;
        drop(commit_span);
        let first = staged.swap_remove(0);
        if is_unchanged {
            return Ok(EncodedObject { json: first.json, created, owner_uid, cached: None });
        }
        // A dry run of a create has no version; a dry run of a change has the old version.
        let version = if dry_run { first.previous } else { position };
        let json = with_version(self.cache().of(first.kind.info()).head(), &first.json, version);
        let json = match &first.issued {
            Some(issued) => with_credential(first.kind, &json, issued)?,
            None => json,
        };
        Ok(EncodedObject { json, created, owner_uid, cached: None })
    }

    /// Adds the changes of the bound names: the records of the users and teams that objects name.
    fn add_bound_names(
        &self,
        bound: Vec<ObjectNames>,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        for ObjectNames { key, names } in bound {
            let known = self.cache().bound_names(&key);
            if names.grants.is_empty() {
                effects.changes.extend(known.map(|_| Change::Delete { key }));
            } else if known.as_deref() != Some(&names) {
                effects.put(key, &names)?;
            }
        }
        Ok(())
    }

    /// Commits all changes. Returns the position of the first change. A dry run only checks whether the commit is
    /// possible, and returns no position.
    async fn commit_staged(
        &self,
        staged: &[StagedChange],
        dry_run: bool,
    ) -> Result<Option<Position>, CommitError> {
        let has_new = staged.iter().any(StagedChange::is_new);
        let (mut exhausted, mut count_locks) = (None, Vec::new());
        for _ in 0..ATTEMPTS {
            let mut effects = self.effects(staged, dry_run).await?;
            if dry_run {
                self.check_values_are_free(staged, &effects).await?;
                return Ok(None);
            }
            if count_locks.is_empty() {
                let mut has_waited = false;
                for lock in self.count_locks(effects.counts()) {
                    let free = lock.try_lock().ok();
                    has_waited |= free.is_none();
                    count_locks.push(match free {
                        Some(held) => held,
                        None => lock.lock().await,
                    });
                }
                if has_waited {
                    // Another write has counted meanwhile.
                    continue;
                }
            }
            let txn = effects.txn();
            check_counts(staged, &txn)?;
            let (key, found) = match self.store().commit(txn).await {
                Ok(revision) => return Ok(Some(Position::new(revision, 0))),
                Err(Error::Conflict { key, found }) => (key, found.unwrap_or(Position::ZERO)),
                Err(error) => return Err(from_store(error).into()),
            };
            let conflict = effects.conflict(&key);
            exhausted = match conflict {
                Conflict::Changed => return Err(CommitError::Changed(found)),
                Conflict::Outdated if !has_new => return Err(CommitError::Changed(found)),
                Conflict::Outdated | Conflict::Taken(_) => None,
                Conflict::Again(error) => Some(*error),
            };
            // The rules run again on a state that has the other write.
            self.cache().wait_until_current().await?;
            if let Some((one, error)) = taking(staged, &key) {
                // The next attempt reports a name that is taken, too: the other object has both.
                if !one.is_new() || self.cache().of(one.kind.info()).get(&one.key)?.is_none() {
                    return Err(error.into());
                }
            }
        }
        if let Some(error) = exhausted {
            return Err(error().into());
        }
        let namespace = staged.iter().find_map(|one| one.namespace.as_deref()).unwrap_or_default();
        Err(ApiError::conflict_modified(Namespace.info().group_resource(), namespace).into())
    }

    /// Checks for a dry run that no other object has a value that only one object may have.
    async fn check_values_are_free(
        &self,
        staged: &[StagedChange],
        effects: &Effects,
    ) -> Result<(), ApiError> {
        for key in effects.guards.iter().map(Guard::key) {
            let Some((_, error)) = taking(staged, key) else { continue };
            if self.store().get(key).await.map_err(from_store)?.value.is_some() {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The change that takes the value of this key, which only one object may have, and the error if another object has it.
fn taking<'a>(staged: &'a [StagedChange], key: &str) -> Option<(&'a StagedChange, ApiError)> {
    staged.iter().find_map(|one| {
        let Conflict::Taken(taken) = one.effects.conflict(key) else { return None };
        Some((one, taken.error(one.kind, &one.name)))
    })
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
