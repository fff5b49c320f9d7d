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
use postern_auth::directory::DigestRecord;
use postern_kinds::owned_access_key::{KEY_PATH, OwnedAccessKey, Owner};
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::withheld::{Kept, Withheld};
use postern_kinds::{AnyKind, Principal, Principals, SecretText, access_key, owned_access_key};
use postern_meta::decode;
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Entry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Registry, keys};
use crate::cache::to_stored;
use crate::clock::Source;
use crate::errors::from_store;

/// Teams that a user can leave in the one transaction that removes him.
const MAX_TEAMS_LEFT: usize = 100;

/// What is kept of an object's fields that are never shown.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeptRecord {
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

impl KeptRecord {
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
        withheld: &Withheld,
        digester: &Digester,
    ) -> bool {
        kind.withheld().iter().any(|field| {
            let Some(value) = withheld.get(field.path) else { return false };
            match field.kept {
                Kept::Digest => self.digest() != Some(digest_of(digester, value)),
                Kept::Value => self.values.get(&field.path.join(".")) != Some(value),
            }
        })
    }
}

/// What a write adds to its transaction.
#[derive(Default)]
pub(crate) struct Beside {
    /// What must hold.
    pub(crate) conditions: Vec<Condition>,
    /// What is written.
    pub(crate) changes: Vec<Change>,
    /// The value of a new access key, for the one answer that shows it.
    pub(crate) issued: Option<SecretText>,
}

impl Beside {
    fn put(&mut self, key: Arc<str>, record: &impl Serialize) -> Result<(), ApiError> {
        let value = serde_json::to_vec(record)
            .map_err(|error| ApiError::internal("a record could not be encoded", error))?;
        self.changes.push(Change::Put { key, value: Bytes::from(value) });
        Ok(())
    }

    /// Claims that are made anew, and those that are given up.
    fn claims(
        &mut self,
        kind: &'static dyn AnyKind,
        new: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let of = |object: Option<&Object>| object.map_or(Ok(Vec::new()), |o| kind.claims(o));
        let (new_claims, old_claims) = (of(new)?, of(old)?);
        for claim in new_claims.iter().filter(|claim| !old_claims.contains(claim)) {
            let key = keys::claim(kind.info(), claim);
            self.conditions.push(Condition::Absent(key.clone()));
            self.put(key, &new.map(|object| object.metadata.name.as_str()))?;
        }
        for claim in old_claims.iter().filter(|claim| !new_claims.contains(claim)) {
            self.changes.push(Change::Delete { key: keys::claim(kind.info(), claim) });
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
    pub(crate) async fn kept(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
    ) -> Result<KeptRecord, ApiError> {
        if kind.withheld().is_empty() {
            return Ok(KeptRecord::default());
        }
        let found = self.read_record(&keys::withheld(kind.info(), name)).await?;
        let Some(entry) = found else { return Ok(KeptRecord::default()) };
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
    pub(super) fn beside_new(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        withheld: &Withheld,
        dry_run: bool,
    ) -> Result<Beside, ApiError> {
        let mut beside = Beside::default();
        beside.claims(kind, Some(object), None)?;
        if kind.withheld().is_empty() {
            return Ok(beside);
        }
        let mut kept =
            KeptRecord { uid: object.metadata.uid.clone(), ..self.owner_of(kind, object) };
        if kind.withheld().iter().any(|field| field.kept == Kept::Digest) {
            let given = withheld.get(KEY_PATH).cloned();
            let key = given.unwrap_or_else(|| new_access_key(self.source()));
            self.take_key(kind, object, &mut kept, &key, &mut beside)?;
            // A dry run issues nothing: a key that is shown must be one that works.
            beside.issued = Some(key).filter(|_| !dry_run);
        }
        take_values(kind, &mut kept, withheld);
        beside.put(keys::withheld(kind.info(), &object.metadata.name), &kept)?;
        Ok(beside)
    }

    /// What goes with a change of an object.
    ///
    /// # Errors
    /// As [`Registry::beside_new`].
    pub(super) fn beside_changed(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        previous: &Object,
        kept: &KeptRecord,
        withheld: &Withheld,
    ) -> Result<Beside, ApiError> {
        let mut beside = Beside::default();
        beside.claims(kind, Some(object), Some(previous))?;
        if !kept.differs(kind, withheld, self.digester()) {
            return Ok(beside);
        }
        let mut kept = kept.clone();
        let old = kept.digest();
        if let Some(key) = withheld.get(KEY_PATH)
            && old != Some(digest_of(self.digester(), key))
        {
            self.take_key(kind, object, &mut kept, key, &mut beside)?;
            beside.changes.extend(old.map(|old| Change::Delete { key: keys::digest(old) }));
        }
        take_values(kind, &mut kept, withheld);
        beside.put(keys::withheld(kind.info(), &object.metadata.name), &kept)?;
        Ok(beside)
    }

    /// What goes with the end of an object.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn beside_gone(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        previous: Option<&Object>,
    ) -> Result<Beside, ApiError> {
        let mut beside = Beside::default();
        if let Some(previous) = previous {
            beside.claims(kind, None, Some(previous))?;
        }
        if kind.info().kind == User.info().kind {
            self.leave_teams(name, &mut beside)?;
        }
        if kind.withheld().is_empty() {
            return Ok(beside);
        }
        let kept = self.kept(kind, name).await?;
        let digest = kept.digest().map(keys::digest);
        for key in
            [keys::withheld(kind.info(), name), keys::activity(name)].into_iter().chain(digest)
        {
            match self.read_record(&key).await? {
                Some(_) => beside.changes.push(Change::Delete { key }),
                None => beside.conditions.push(Condition::Absent(key)),
            }
        }
        Ok(beside)
    }

    /// A user who goes leaves his teams: whoever comes back under his name is somebody else.
    fn leave_teams(&self, user: &str, beside: &mut Beside) -> Result<(), ApiError> {
        let teams: Vec<String> =
            self.cache().directory().teams_of(user).map(str::to_owned).collect();
        if teams.len() > MAX_TEAMS_LEFT {
            let text = format!(
                "the user is in {} teams, and can leave {MAX_TEAMS_LEFT} at once: take him out of \
                 some first",
                teams.len()
            );
            return Err(ApiError::conflict(User.info().group_resource(), user, &text));
        }
        for name in teams {
            let key = keys::object(Team.info(), None, &name);
            let Some(found) = self.cache().of(Team.info()).get(&key)? else { continue };
            let mut team = found.decode()?;
            let users = team.fields.get_mut("spec").and_then(|spec| spec.get_mut("users"));
            if let Some(Value::Array(users)) = users {
                users.retain(|one| one != user);
                team.metadata.generation += 1;
                beside.conditions.push(Condition::At(key.clone(), found.position()));
                beside.changes.push(Change::Put { key, value: to_stored(team) });
            }
        }
        Ok(())
    }

    /// A new value for an access key: its digest, and the way back from it.
    fn take_key(
        &self,
        kind: &'static dyn AnyKind,
        object: &Object,
        kept: &mut KeptRecord,
        key: &SecretText,
        beside: &mut Beside,
    ) -> Result<(), ApiError> {
        let digest = digest_of(self.digester(), key);
        let name = &object.metadata.name;
        if self.cache().directory().knows(&digest) {
            return Err(key_in_use(kind, name));
        }
        kept.digest = Some(digest.to_hex());
        let record = DigestRecord {
            name: name.clone(),
            uid: object.metadata.uid.clone(),
            owner_uid: kept.owner_uid.clone(),
        };
        beside.conditions.push(Condition::Absent(keys::digest(digest)));
        beside.put(keys::digest(digest), &record)
    }

    fn owner_of(&self, kind: &'static dyn AnyKind, object: &Object) -> KeptRecord {
        if kind.info().kind != OwnedAccessKey.info().kind {
            return KeptRecord::default();
        }
        let fields = owned_access_key::Fields::deserialize(&object.fields).unwrap_or_default();
        let directory = self.cache().directory();
        let uid = match fields.spec.owner() {
            Some(Owner::User(name)) => directory.uid(Principal::User(&name)),
            Some(Owner::Team(name)) => directory.uid(Principal::Team(&name)),
            Some(Owner::Subject(_)) | None => None,
        };
        KeptRecord { owner_uid: uid.unwrap_or_default(), ..KeptRecord::default() }
    }
}

fn take_values(kind: &'static dyn AnyKind, kept: &mut KeptRecord, withheld: &Withheld) {
    for field in kind.withheld().iter().filter(|field| field.kept == Kept::Value) {
        if let Some(value) = withheld.get(field.path) {
            kept.values.insert(field.path.join("."), value.clone());
        }
    }
}

/// What a conflict on one of these records means; `None` when it is about something else.
pub(super) fn conflict_of(kind: &'static dyn AnyKind, name: &str, key: &str) -> Option<ApiError> {
    if key.starts_with(keys::DIGESTS) {
        return Some(key_in_use(kind, name));
    }
    let claim = key.strip_prefix(&*keys::claim(kind.info(), ""))?;
    let mut errors = FieldErrors::default();
    errors.push(FieldError::duplicate(kind.claimed_field(), claim));
    Some(ApiError::invalid(kind.info().group_kind(), name, errors))
}

fn key_in_use(kind: &'static dyn AnyKind, name: &str) -> ApiError {
    let text = "spec.key: another access key has this value already: choose another, or leave it \
                out, and the server makes one";
    ApiError::conflict(kind.info().group_resource(), name, text)
}
