//! Side records: the records that are stored next to an object and written with it, in one transaction.
//!
//! - the secret record: the stored part of write-only fields (`docs/reference/access-keys.md#write-only-fields`);
//! - the digest record: it maps the digest of a credential to the access key;
//! - the unique keys: values that only one object of a kind may have;
//! - the bound names: the users and teams that access rules and members name (`commit` writes them);
//! - the sync writer: the identity that requested a secret sync (`sync_writers`).
//!
//! `activity` writes the record of an access key's last use, and `readers` that of the readers of a secret; they are removed
//! with the key and with the secret.

use std::sync::Arc;

use postern_auth::principal_index::DigestRecord;
use postern_kinds::principal::AccessChange;
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, SecretText, UniqueKey, access_key};
use postern_meta::decode;
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, ListRequest};

use super::effects::{Conflict, Effects, Revoked, Taken, encoded};
use crate::admit::Previous;
use crate::clock::Source;
use crate::errors::from_store;
use crate::registry::Registry;
use crate::secret_record::{SecretRecord, credential_field, digest_of};
use crate::storage_key;

/// The page size of a search in the unique keys of a kind.
const UNIQUE_KEYS_PAGE: usize = 1024;

/// The object that side records belong to.
#[derive(Clone, Copy)]
pub(crate) struct RecordsOf<'a> {
    pub(crate) kind: &'static dyn AnyKind,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
}

impl RecordsOf<'_> {
    fn secret_key(&self) -> Arc<str> {
        storage_key::secret_record(self.kind.info(), self.namespace, self.name)
    }

    /// The value of the records of its unique keys: the object that has them.
    fn holder(&self) -> String {
        storage_key::holder(self.namespace, self.name)
    }
}

/// Adds the new unique keys, and removes the keys that the object no longer has.
fn change_unique_keys(
    of: RecordsOf<'_>,
    new: Option<&Object>,
    old: Option<&Object>,
    effects: &mut Effects,
) -> Result<(), ApiError> {
    let kind = of.kind;
    let keys = |object: Option<&Object>| object.map_or(Ok(Vec::new()), |o| kind.unique_keys(o));
    let (new_keys, old_keys) = (keys(new)?, keys(old)?);
    let is_in = |keys: &[UniqueKey], one: &UniqueKey| keys.iter().any(|key| key.value == one.value);
    for added in new_keys.iter().filter(|one| !is_in(&old_keys, one)) {
        let key = storage_key::unique_key(kind.info(), &added.value);
        let taken = Conflict::Taken(Taken::UniqueKey(Arc::new(added.clone())));
        effects.require(Condition::Absent(key.clone()), taken);
        effects.put(key, &of.holder())?;
    }
    for released in old_keys.iter().filter(|one| !is_in(&new_keys, one)) {
        effects.delete(storage_key::unique_key(kind.info(), &released.value));
    }
    Ok(())
}

/// A new value for an access key.
pub(crate) fn new_access_key(source: &dyn Source) -> SecretText {
    access_key::generate(&mut || {
        let mut byte = [0];
        source.fill(&mut byte);
        byte[0]
    })
}

/// The error for a write that needs the content of a corrupt record, such as the replaced credential.
fn corrupt_record(of: RecordsOf<'_>) -> ApiError {
    let info = of.kind.info();
    ApiError::internal(
        &format!(
            "the write-only fields of {} {:?} are corrupt and cannot be changed: delete the object and create it \
             again, or restore it from a backup",
            info.singular, of.name
        ),
        of.secret_key(),
    )
}

impl Registry {
    /// The secret record of an object: the stored part of its write-only fields. If the record is corrupt, the object
    /// can still be disabled or removed.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn secret_record(&self, of: RecordsOf<'_>) -> Result<SecretRecord, ApiError> {
        if of.kind.info().write_only.is_empty() {
            return Ok(SecretRecord::default());
        }
        match self.store().get(&of.secret_key()).await.map(|found| found.value) {
            Ok(None) => Ok(SecretRecord::default()),
            Ok(Some(entry)) => {
                let decoded = decode::decode_typed(&entry.value);
                Ok(decoded.unwrap_or_else(|_| SecretRecord::corrupt()))
            }
            Err(Error::Corrupt { .. }) => Ok(SecretRecord::corrupt()),
            Err(error) => Err(from_store(error)),
        }
    }

    /// Adds the side records of a new object. Returns the value of a new access key.
    ///
    /// # Errors
    /// 409 if another access key has the same value.
    pub(super) fn add_records(
        &self,
        of: RecordsOf<'_>,
        object: &Object,
        owner_uid: &str,
        written: &WriteOnlyValues,
        effects: &mut Effects,
    ) -> Result<Option<SecretText>, ApiError> {
        change_unique_keys(of, Some(object), None, effects)?;
        if of.kind.info().write_only.is_empty() {
            return Ok(None);
        }
        let mut secrets = SecretRecord::new(object.metadata.uid.clone(), owner_uid.to_owned());
        let mut issued = None;
        if let Some(field) = credential_field(of.kind) {
            let given = written.get(field.path).cloned();
            let key = given.unwrap_or_else(|| new_access_key(self.source()));
            self.set_key(object, &mut secrets, &key, effects)?;
            issued = Some(key);
        }
        secrets.set_values(of.kind, written);
        effects.put(of.secret_key(), &secrets)?;
        Ok(issued)
    }

    /// Changes the side records of an object that changes. If the value of an access key is replaced, the bearer of the
    /// old value loses its access.
    ///
    /// # Errors
    /// The errors of [`Registry::add_records`].
    pub(super) fn change_records(
        &self,
        of: RecordsOf<'_>,
        object: &Object,
        previous: &Previous,
        secrets: &SecretRecord,
        written: &WriteOnlyValues,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        change_unique_keys(of, Some(object), Some(&previous.object), effects)?;
        if !secrets.differs(of.kind, written, self.digester()) {
            return Ok(());
        }
        if secrets.is_corrupt() {
            return Err(corrupt_record(of));
        }
        let mut secrets = secrets.clone();
        let old = secrets.digest();
        if let Some(key) = credential_field(of.kind).and_then(|field| written.get(field.path))
            && old != Some(digest_of(self.digester(), key))
        {
            self.set_key(object, &mut secrets, key, effects)?;
            effects.changes.extend(old.map(|old| Change::Delete { key: storage_key::digest(old) }));
            let facts = of.kind.access_change(Some(&previous.cached.json()));
            if let Some(AccessChange::Key(Some(old))) = facts {
                effects.revoked.push(Revoked::key(old));
            }
        }
        secrets.set_values(of.kind, written);
        effects.put(of.secret_key(), &secrets)
    }

    /// Removes the side records of an object that is removed. `previous` is its last state; `None` if it is corrupt.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn remove_records(
        &self,
        of: RecordsOf<'_>,
        previous: Option<&Object>,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        match previous {
            Some(previous) => change_unique_keys(of, None, Some(previous), effects)?,
            None => self.release_unique_keys(of, effects).await?,
        }
        let names = storage_key::bound_names(of.kind.info(), of.namespace, of.name);
        if self.cache().bound_names(&names).is_some() {
            effects.delete(names);
        }
        self.forget_sync_writer(previous, effects);
        if of.kind.info().notes_readers() {
            let secret = storage_key::object(of.kind.info(), of.namespace, of.name);
            self.remove_record(storage_key::readers(&secret), effects).await?;
        }
        if of.kind.info().write_only.is_empty() {
            return Ok(());
        }
        let secrets = self.secret_record(of).await?;
        let activity =
            credential_field(of.kind).map(|_| storage_key::activity(of.kind.info(), of.name));
        let digest = secrets.digest().map(storage_key::digest);
        for key in std::iter::once(of.secret_key()).chain(activity).chain(digest) {
            self.remove_record(key, effects).await?;
        }
        Ok(())
    }

    /// Removes a record with its object, if there is one.
    async fn remove_record(&self, key: Arc<str>, effects: &mut Effects) -> Result<(), ApiError> {
        match self.store().get(&key).await.map(|found| found.value) {
            // A corrupt record is also removed with its object.
            Ok(Some(_)) | Err(Error::Corrupt { .. }) => effects.delete(key),
            Ok(None) => effects.require(Condition::Absent(key), Conflict::Outdated),
            Err(error) => return Err(from_store(error)),
        }
        Ok(())
    }

    /// Removes the unique keys of a corrupt object. The records name the object that has them.
    async fn release_unique_keys(
        &self,
        of: RecordsOf<'_>,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let prefix = storage_key::unique_key(of.kind.info(), "").to_string();
        let holder = encoded(&of.holder())?;
        let mut after = None;
        loop {
            let request = ListRequest {
                prefix: prefix.clone(),
                after: after.take(),
                limit: UNIQUE_KEYS_PAGE,
                at: None,
            };
            let page = self.store().list(request).await.map_err(from_store)?;
            after = page.last_key().cloned();
            for entry in page.entries.into_iter().filter(|entry| entry.value == holder) {
                let condition = Condition::At(entry.key.clone(), entry.position);
                effects.require(condition, Conflict::Outdated);
                effects.delete(entry.key);
            }
            if page.remaining == 0 || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Sets a new value of an access key: its digest, and the digest record.
    fn set_key(
        &self,
        object: &Object,
        secrets: &mut SecretRecord,
        key: &SecretText,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let digest = digest_of(self.digester(), key);
        secrets.set_digest(digest);
        let record = DigestRecord {
            name: object.metadata.name.clone(),
            uid: object.metadata.uid.clone(),
            owner_uid: secrets.owner_uid.clone(),
        };
        let condition = Condition::Absent(storage_key::digest(digest));
        effects.require(condition, Conflict::Taken(Taken::Credential));
        effects.put(storage_key::digest(digest), &record)
    }
}

impl Taken {
    /// The error for the object of this kind and name that cannot have the value.
    pub(super) fn error(&self, kind: &'static dyn AnyKind, name: &str) -> ApiError {
        let taken = match self {
            Self::Credential => return key_in_use(kind, name),
            Self::UniqueKey(taken) => taken,
        };
        let UniqueKey { field, value, is_place } = &**taken;
        if *is_place {
            let text = format!("{field}: another object is at {value}: choose another location");
            return ApiError::conflict(kind.info().group_resource(), name, text);
        }
        let mut errors = FieldErrors::default();
        errors.push(FieldError::duplicate(*field, value.as_str()));
        ApiError::invalid(kind.info().group_kind(), name, errors)
    }
}

fn key_in_use(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    let text = "spec.key: another access key already has this value: choose another value, or leave the field out \
                to let the server generate one";
    ApiError::conflict(kind.info().group_resource(), name, text)
}
