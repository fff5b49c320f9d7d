//! Records that stand beside an object and are written with it, in one transaction.
//!
//! - what an object has that is never shown (decision 3): a digest of an access key's value, and
//!   values that only the server itself uses;
//! - the way back from a digest to its key, which is how a bearer is recognised;
//! - claims: what no two objects of a kind may have.
//!
//! The note of when an access key was used last, which `activity` writes, is removed with its key.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postern_auth::bearer::BearerToken;
use postern_auth::digest::{Digest, Digester};
use postern_auth::principal_index::DigestRecord;
use postern_kinds::owned_access_key::{KEY_PATH, OwnedAccessKey, Owner};
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::write_only::{AtRest, WriteOnlyValues};
use postern_kinds::{AnyKind, Principal, Principals, SecretText, access_key, owned_access_key};
use postern_meta::decode;
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Entry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Registry;
use crate::cache::to_stored;
use crate::clock::Source;
use crate::errors::from_store;
use crate::storage_key;

/// Teams that a user can leave in the one transaction that removes him.
const MAX_TEAMS_LEFT: usize = 100;

/// What is kept of an object's fields that are never shown.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretRecord {
    /// The uid of the object: a re-created namesake has none of it.
    uid: String,
    /// The digest of the access key's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The uid of the access key's owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    owner_uid: String,
    /// Values by their dotted paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, SecretText>,
}

impl SecretRecord {
    /// Of an access key with nothing else to keep.
    pub(crate) fn of_key(uid: String, owner_uid: String, digest: Digest) -> Self {
        Self { uid, owner_uid, digest: Some(digest.to_hex()), values: BTreeMap::new() }
    }

    fn digest(&self) -> Option<Digest> {
        self.digest.as_deref().and_then(Digest::from_hex)
    }

    /// Would what was written change what is kept?
    pub(crate) fn differs(
        &self,
        kind: &'static dyn AnyKind,
        write_only: &WriteOnlyValues,
        digester: &Digester,
    ) -> bool {
        kind.write_only().iter().any(|field| {
            let Some(value) = write_only.get(field.path) else { return false };
            match field.at_rest {
                AtRest::Digest => self.digest() != Some(digest_of(digester, value)),
                AtRest::Value => self.values.get(&field.path.join(".")) != Some(value),
            }
        })
    }
}

/// What a write adds to its transaction.
#[derive(Default)]
pub(crate) struct SideRecords {
    /// What must hold.
    pub(crate) conditions: Vec<Condition>,
    /// What is written.
    pub(crate) changes: Vec<Change>,
    /// The value of a new access key, for the one answer that shows it.
    pub(crate) issued: Option<SecretText>,
}

impl SideRecords {
    fn put(&mut self, key: Arc<str>, record: &impl Serialize) -> Result<(), ApiError> {
        let value = serde_json::to_vec(record)
            .map_err(|error| ApiError::internal("a record could not be encoded", error))?;
        self.changes.push(Change::Put { key, value: Bytes::from(value) });
        Ok(())
    }

    /// Claims that are made anew, and those that are given up.
    fn unique_keys(
        &mut self,
        kind: &'static dyn AnyKind,
        new: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let of = |object: Option<&Object>| object.map_or(Ok(Vec::new()), |o| kind.unique_keys(o));
        let (new_keys, old_keys) = (of(new)?, of(old)?);
        for unique_key in new_keys.iter().filter(|unique_key| !old_keys.contains(unique_key)) {
            let key = storage_key::unique_key(kind.info(), unique_key);
            self.conditions.push(Condition::Absent(key.clone()));
            self.put(key, &new.map(|object| object.metadata.name.as_str()))?;
        }
        for unique_key in old_keys.iter().filter(|unique_key| !new_keys.contains(unique_key)) {
            self.changes
                .push(Change::Delete { key: storage_key::unique_key(kind.info(), unique_key) });
        }
        Ok(())
    }
}

/// The digest of an access key's value.
pub(crate) fn digest_of(digester: &Digester, key: &SecretText) -> Digest {
    digester.digest(&BearerToken::of_key(key))
}

/// A new value for an access key.
pub(crate) fn new_access_key(source: &dyn Source) -> SecretText {
    access_key::generate(&mut || {
        let mut byte = [0];
        source.fill(&mut byte);
        byte[0]
    })
}

impl Registry {
    /// What is kept of an object that is never shown.
    ///
    /// # Errors
    /// The store's; 500 when the record cannot be read.
    pub(crate) async fn secret_record(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
    ) -> Result<SecretRecord, ApiError> {
        if kind.write_only().is_empty() {
            return Ok(SecretRecord::default());
        }
        let found = self.read_record(&storage_key::secret_record(kind.info(), name)).await?;
        let Some(entry) = found else { return Ok(SecretRecord::default()) };
        decode::decode_typed(&entry.value)
            .map_err(|error| ApiError::internal("a stored record cannot be read", error))
    }

    async fn read_record(&self, key: &str) -> Result<Option<Entry>, ApiError> {
        Ok(self.store().get(key).await.map_err(from_store)?.value)
    }

    /// What goes with a new object.
    ///
    /// # Errors
    /// 409 when the value of a key is in use already.
    pub(super) fn side_records_of_new(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        write_only: &WriteOnlyValues,
        dry_run: bool,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        side.unique_keys(kind, Some(object), None)?;
        if kind.write_only().is_empty() {
            return Ok(side);
        }
        let mut kept =
            SecretRecord { uid: object.metadata.uid.clone(), ..self.owner_of(kind, object) };
        if kind.write_only().iter().any(|field| field.at_rest == AtRest::Digest) {
            let given = write_only.get(KEY_PATH).cloned();
            let key = given.unwrap_or_else(|| new_access_key(self.source()));
            self.take_key(kind, object, &mut kept, &key, &mut side)?;
            // A dry run issues nothing: a key that is shown must be one that works.
            side.issued = Some(key).filter(|_| !dry_run);
        }
        take_values(kind, &mut kept, write_only);
        side.put(storage_key::secret_record(kind.info(), &object.metadata.name), &kept)?;
        Ok(side)
    }

    /// What goes with a change of an object.
    ///
    /// # Errors
    /// As [`Registry::side_records_of_new`].
    pub(super) fn side_records_of_changed(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        previous: &Object,
        kept: &SecretRecord,
        write_only: &WriteOnlyValues,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        side.unique_keys(kind, Some(object), Some(previous))?;
        if !kept.differs(kind, write_only, self.digester()) {
            return Ok(side);
        }
        let mut kept = kept.clone();
        let old = kept.digest();
        if let Some(key) = write_only.get(KEY_PATH)
            && old != Some(digest_of(self.digester(), key))
        {
            self.take_key(kind, object, &mut kept, key, &mut side)?;
            side.changes.extend(old.map(|old| Change::Delete { key: storage_key::digest(old) }));
        }
        take_values(kind, &mut kept, write_only);
        side.put(storage_key::secret_record(kind.info(), &object.metadata.name), &kept)?;
        Ok(side)
    }

    /// What goes with the end of an object.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn side_records_of_removed(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        previous: Option<&Object>,
    ) -> Result<SideRecords, ApiError> {
        let mut side = SideRecords::default();
        if let Some(previous) = previous {
            side.unique_keys(kind, None, Some(previous))?;
        }
        if kind.info().kind == User.info().kind {
            self.leave_teams(name, &mut side)?;
        }
        if kind.write_only().is_empty() {
            return Ok(side);
        }
        let kept = self.secret_record(kind, name).await?;
        let digest = kept.digest().map(storage_key::digest);
        for key in [storage_key::secret_record(kind.info(), name), storage_key::activity(name)]
            .into_iter()
            .chain(digest)
        {
            match self.read_record(&key).await? {
                Some(_) => side.changes.push(Change::Delete { key }),
                None => side.conditions.push(Condition::Absent(key)),
            }
        }
        Ok(side)
    }

    /// A user who goes leaves his teams: whoever comes back under his name is somebody else.
    fn leave_teams(&self, user: &str, side: &mut SideRecords) -> Result<(), ApiError> {
        let teams: Vec<String> =
            self.cache().principals().teams_of(user).map(str::to_owned).collect();
        if teams.len() > MAX_TEAMS_LEFT {
            let text = format!(
                "the user is in {} teams, and can leave {MAX_TEAMS_LEFT} at once: take him out of \
                 some first",
                teams.len()
            );
            return Err(ApiError::conflict(User.info().group_resource(), user, &text));
        }
        for name in teams {
            let key = storage_key::object(Team.info(), None, &name);
            let Some(found) = self.cache().of(Team.info()).get(&key)? else { continue };
            let mut team = found.decode()?;
            let users = team.fields.get_mut("spec").and_then(|spec| spec.get_mut("users"));
            if let Some(Value::Array(users)) = users {
                users.retain(|one| one != user);
                team.metadata.generation += 1;
                side.conditions.push(Condition::At(key.clone(), found.position()));
                side.changes.push(Change::Put { key, value: to_stored(team) });
            }
        }
        Ok(())
    }

    /// A new value for an access key: its digest, and the way back from it.
    fn take_key(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        kept: &mut SecretRecord,
        key: &SecretText,
        side: &mut SideRecords,
    ) -> Result<(), ApiError> {
        let digest = digest_of(self.digester(), key);
        let name = &object.metadata.name;
        if self.cache().principals().knows(&digest) {
            return Err(key_in_use(kind, name));
        }
        kept.digest = Some(digest.to_hex());
        let record = DigestRecord {
            name: name.clone(),
            uid: object.metadata.uid.clone(),
            owner_uid: kept.owner_uid.clone(),
        };
        side.conditions.push(Condition::Absent(storage_key::digest(digest)));
        side.put(storage_key::digest(digest), &record)
    }

    fn owner_of(&self, kind: &'static dyn AnyKind, object: &Object) -> SecretRecord {
        if kind.info().kind != OwnedAccessKey.info().kind {
            return SecretRecord::default();
        }
        let fields = owned_access_key::Fields::deserialize(&object.fields).unwrap_or_default();
        let principals = self.cache().principals();
        let uid = match fields.spec.owner() {
            Some(Owner::User(name)) => principals.uid(Principal::User(&name)),
            Some(Owner::Team(name)) => principals.uid(Principal::Team(&name)),
            Some(Owner::Subject(_)) | None => None,
        };
        SecretRecord { owner_uid: uid.unwrap_or_default(), ..SecretRecord::default() }
    }
}

fn take_values(kind: &'static dyn AnyKind, kept: &mut SecretRecord, write_only: &WriteOnlyValues) {
    for field in kind.write_only().iter().filter(|field| field.at_rest == AtRest::Value) {
        if let Some(value) = write_only.get(field.path) {
            kept.values.insert(field.path.join("."), value.clone());
        }
    }
}

/// What a conflict on one of these records means; `None` when it is about something else.
pub(super) fn conflict_of(kind: &'static dyn AnyKind, name: &str, key: &str) -> Option<ApiError> {
    if key.starts_with(storage_key::DIGESTS) {
        return Some(key_in_use(kind, name));
    }
    let unique_key = key.strip_prefix(&*storage_key::unique_key(kind.info(), ""))?;
    let mut errors = FieldErrors::default();
    errors.push(FieldError::duplicate(kind.unique_field(), unique_key));
    Some(ApiError::invalid(kind.info().group_kind(), name, errors))
}

fn key_in_use(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    let text = "spec.key: another access key has this value already: choose another, or leave it \
                out, and the server makes one";
    ApiError::conflict(kind.info().group_resource(), name, text)
}
