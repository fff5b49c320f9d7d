//! Side records: the records that are stored next to an object and written with it, in one transaction.
//!
//! - the secret record: the stored part of write-only fields (`docs/reference/access-keys.md#write-only-fields`);
//! - the digest record: it maps the digest of a credential to the access key;
//! - the unique keys: values that only one object of a kind may have;
//! - the bound names: the users and teams that access rules and members name (`commit` writes them);
//! - the sync writer: the identity that requested a secret sync (`sync_writers`).
//!
//! `activity` writes the record of an access key's last use; it is removed with its key.

use std::sync::Arc;

use bytes::Bytes;
use postern_auth::principal_index::DigestRecord;
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, SecretText, UniqueKey, access_key};
use postern_meta::decode;
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, ListRequest};
use serde::Serialize;

use super::Registry;
use crate::admit::Remover;
use crate::clock::Source;
use crate::errors::from_store;
use crate::secret_record::{SecretRecord, credential_field, digest_of};
use crate::storage_key;

/// The page size of a search in the unique keys of a kind.
const UNIQUE_KEYS_PAGE: usize = 1024;

/// The side records of a write, as a part of its transaction.
#[derive(Default)]
pub(super) struct SideRecords {
    /// The conditions of the transaction.
    pub(super) conditions: Vec<Condition>,
    /// The changes of the transaction.
    pub(super) changes: Vec<Change>,
    /// The new unique keys, by their storage keys.
    new_unique_keys: Vec<(Arc<str>, UniqueKey)>,
    /// Whether the value of an access key is replaced. The bearer of the old value must lose its access.
    pub(super) replaces_credential: bool,
    /// The value of a new access key. Only the response to the create has it.
    pub(super) issued: Option<SecretText>,
}

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

impl SideRecords {
    fn put(&mut self, key: Arc<str>, record: &impl Serialize) -> Result<(), ApiError> {
        let value = encoded(record)?;
        self.changes.push(Change::Put { key, value });
        Ok(())
    }

    /// Adds the new unique keys, and removes the keys that the object no longer has.
    fn unique_keys(
        &mut self,
        of: RecordsOf<'_>,
        new: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let kind = of.kind;
        let keys = |object: Option<&Object>| object.map_or(Ok(Vec::new()), |o| kind.unique_keys(o));
        let (new_keys, old_keys) = (keys(new)?, keys(old)?);
        let is_in =
            |keys: &[UniqueKey], one: &UniqueKey| keys.iter().any(|key| key.value == one.value);
        for added in new_keys.iter().filter(|one| !is_in(&old_keys, one)) {
            let key = storage_key::unique_key(kind.info(), &added.value);
            self.conditions.push(Condition::Absent(key.clone()));
            self.new_unique_keys.push((key.clone(), added.clone()));
            self.put(key, &of.holder())?;
        }
        for released in old_keys.iter().filter(|one| !is_in(&new_keys, one)) {
            let key = storage_key::unique_key(kind.info(), &released.value);
            self.changes.push(Change::Delete { key });
        }
        Ok(())
    }
}

fn encoded(record: &impl Serialize) -> Result<Bytes, ApiError> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| ApiError::internal("a record could not be encoded", error))
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
        if of.kind.write_only().is_empty() {
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

    /// The side records of a new object.
    ///
    /// # Errors
    /// 409 if another access key has the same value.
    pub(super) fn side_records_of_new(
        &self,
        of: RecordsOf<'_>,
        object: &Object,
        owner_uid: &str,
        written: &WriteOnlyValues,
        dry_run: bool,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        side.unique_keys(of, Some(object), None)?;
        if of.kind.write_only().is_empty() {
            return Ok(side);
        }
        let uid = object.metadata.uid.clone();
        let mut secrets = SecretRecord::new(uid, owner_uid.to_owned());
        if let Some(field) = credential_field(of.kind) {
            let given = written.get(field.path).cloned();
            let key = given.unwrap_or_else(|| new_access_key(self.source()));
            self.set_key(of.kind, object, &mut secrets, &key, &mut side)?;
            // A dry run issues no key: every key in a response must work.
            side.issued = Some(key).filter(|_| !dry_run);
        }
        secrets.set_values(of.kind, written);
        side.put(of.secret_key(), &secrets)?;
        Ok(side)
    }

    /// The changes of the side records for a change of an object.
    ///
    /// # Errors
    /// The errors of [`Registry::side_records_of_new`].
    pub(super) fn side_records_of_changed(
        &self,
        of: RecordsOf<'_>,
        object: &Object,
        previous: &Object,
        secrets: &SecretRecord,
        written: &WriteOnlyValues,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        side.unique_keys(of, Some(object), Some(previous))?;
        if !secrets.differs(of.kind, written, self.digester()) {
            return Ok(side);
        }
        if secrets.is_corrupt() {
            return Err(corrupt_record(of));
        }
        let mut secrets = secrets.clone();
        let old = secrets.digest();
        if let Some(key) = credential_field(of.kind).and_then(|field| written.get(field.path))
            && old != Some(digest_of(self.digester(), key))
        {
            self.set_key(of.kind, object, &mut secrets, key, &mut side)?;
            side.changes.extend(old.map(|old| Change::Delete { key: storage_key::digest(old) }));
            side.replaces_credential = true;
        }
        secrets.set_values(of.kind, written);
        side.put(of.secret_key(), &secrets)?;
        Ok(side)
    }

    /// The changes of the side records for the removal of an object. `removed` is its last state and the remover;
    /// `None` if the object is corrupt.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn side_records_of_removed(
        &self,
        of: RecordsOf<'_>,
        removed: Option<(&Object, &Remover)>,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        let previous = removed.map(|(previous, _)| previous);
        if let Some((previous, by)) = removed {
            side.changes.extend(self.logout(of.kind, previous, by)?);
        }
        match previous {
            Some(previous) => side.unique_keys(of, None, Some(previous))?,
            None => self.release_unique_keys(of, &mut side).await?,
        }
        let names = storage_key::bound_names(of.kind.info(), of.namespace, of.name);
        side.changes
            .extend(self.cache().bound_names(&names).map(|_| Change::Delete { key: names }));
        side.changes.extend(self.forget_sync_writer(previous));
        if of.kind.write_only().is_empty() {
            return Ok(side);
        }
        let secrets = self.secret_record(of).await?;
        let activity =
            credential_field(of.kind).map(|_| storage_key::activity(of.kind.info(), of.name));
        let digest = secrets.digest().map(storage_key::digest);
        for key in std::iter::once(of.secret_key()).chain(activity).chain(digest) {
            match self.store().get(&key).await.map(|found| found.value) {
                // A corrupt record is also removed with its object.
                Ok(Some(_)) | Err(Error::Corrupt { .. }) => {
                    side.changes.push(Change::Delete { key });
                }
                Ok(None) => side.conditions.push(Condition::Absent(key)),
                Err(error) => return Err(from_store(error)),
            }
        }
        Ok(side)
    }

    /// Removes the unique keys of a corrupt object. The records name the object that has them.
    async fn release_unique_keys(
        &self,
        of: RecordsOf<'_>,
        side: &mut SideRecords,
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
                side.conditions.push(Condition::At(entry.key.clone(), entry.position));
                side.changes.push(Change::Delete { key: entry.key });
            }
            if page.remaining == 0 || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Sets a new value of an access key: its digest, and the digest record.
    fn set_key(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        secrets: &mut SecretRecord,
        key: &SecretText,
        side: &mut SideRecords,
    ) -> Result<(), ApiError> {
        let digest = digest_of(self.digester(), key);
        let name = &object.metadata.name;
        if self.cache().principals().has_key(&digest) {
            return Err(key_in_use(kind, name));
        }
        secrets.set_digest(digest);
        let record = DigestRecord {
            name: name.clone(),
            uid: object.metadata.uid.clone(),
            owner_uid: secrets.owner_uid.clone(),
        };
        side.conditions.push(Condition::Absent(storage_key::digest(digest)));
        side.put(storage_key::digest(digest), &record)
    }
}

impl SideRecords {
    /// Hands over the unique keys that this object gives up and `to`, of the same name, takes in the same
    /// transaction. The records exist at all times, and get the new holder.
    pub(super) fn hand_over(&mut self, to: &mut Self) {
        let taken = |key: &Arc<str>| to.new_unique_keys.iter().any(|(known, _)| known == key);
        let is_handed = |one: &Change| matches!(one, Change::Delete { key } if taken(key));
        let handed: Vec<Arc<str>> = self
            .changes
            .extract_if(.., |one| is_handed(one))
            .map(|one| one.key().clone())
            .collect();
        to.conditions.retain(|one| !matches!(one, Condition::Absent(key) if handed.contains(key)));
    }

    /// The error for a conflict on one of these records; `None` if the key belongs to another record.
    pub(super) fn conflict(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        key: &str,
    ) -> Option<ApiError> {
        if key.starts_with(storage_key::DIGESTS) {
            return Some(key_in_use(kind, name));
        }
        let (_, taken) = self.new_unique_keys.iter().find(|(known, _)| **known == *key)?;
        let UniqueKey { field, value, is_place } = taken;
        if *is_place {
            let text = format!("{field}: another object is at {value}: choose another location");
            return Some(ApiError::conflict(kind.info().group_resource(), name, text));
        }
        let mut errors = FieldErrors::default();
        errors.push(FieldError::duplicate(*field, value.as_str()));
        Some(ApiError::invalid(kind.info().group_kind(), name, errors))
    }
}

fn key_in_use(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    let text = "spec.key: another access key already has this value: choose another value, or leave the field out \
                to let the server generate one";
    ApiError::conflict(kind.info().group_resource(), name, text)
}
