//! The secret record of an object: the stored part of its write-only fields
//! (`docs/reference/access-keys.md#write-only-fields`). It is stored with the object in one transaction. It has the
//! digest of an access key's value, and values that only the server uses.

use std::collections::BTreeMap;

use postern_auth::bearer::BearerToken;
use postern_auth::digest::{Digest, Digester};
use postern_kinds::write_only::{AtRest, WriteOnlyField, WriteOnlyValues};
use postern_kinds::{AnyKind, SecretText};
use serde::{Deserialize, Serialize};

/// The stored part of an object's write-only fields.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretRecord {
    /// The uid of the object. The record does not belong to a later object of the same name.
    pub(crate) uid: String,
    /// The digest of the access key's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The uid of the access key's owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) owner_uid: String,
    /// Values by their dotted paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, SecretText>,
    #[serde(skip)]
    is_corrupt: bool,
}

impl SecretRecord {
    /// The record of a new object; `owner_uid` is empty without an owner.
    pub(crate) fn new(uid: String, owner_uid: String) -> Self {
        Self { uid, owner_uid, ..Self::default() }
    }

    /// The replacement of a corrupt record. It is empty, and every written value differs from it.
    pub(crate) fn corrupt() -> Self {
        Self { is_corrupt: true, ..Self::default() }
    }

    /// Whether this replaces a corrupt record.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    /// The digest of the access key's value, if there is one.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest.as_deref().and_then(Digest::from_hex)
    }

    /// The stored value of a field, by its dotted path.
    pub(crate) fn value(&self, path: &str) -> Option<&SecretText> {
        self.values.get(path)
    }

    /// Sets the digest of an access key's value.
    pub(crate) fn set_digest(&mut self, digest: Digest) {
        self.digest = Some(digest.to_hex());
    }

    /// Sets the written values of the fields that are stored as values.
    pub(crate) fn set_values(&mut self, kind: &dyn AnyKind, written: &WriteOnlyValues) {
        for field in kind.info().write_only.iter().filter(|field| field.at_rest == AtRest::Value) {
            if let Some(value) = written.get(field.path) {
                self.values.insert(field.path.join("."), value.clone());
            }
        }
    }

    /// Whether the written value of the credential differs from the stored one.
    pub(crate) fn has_new_credential(
        &self,
        kind: &dyn AnyKind,
        written: &WriteOnlyValues,
        digester: &Digester,
    ) -> bool {
        let value = credential_field(kind).and_then(|field| written.get(field.path));
        value.is_some_and(|value| self.digest() != Some(digest_of(digester, value)))
    }

    /// The paths of the fields, other than the credential, with written values that differ from the
    /// stored ones.
    pub(crate) fn new_secrets(
        &self,
        kind: &dyn AnyKind,
        written: &WriteOnlyValues,
    ) -> Vec<&'static [&'static str]> {
        let others = kind.info().write_only.iter().filter(|field| field.at_rest == AtRest::Value);
        let is_new = |field: &&WriteOnlyField| {
            let stored = self.values.get(&field.path.join("."));
            written.get(field.path).is_some_and(|value| stored != Some(value))
        };
        others.filter(is_new).map(|field| field.path).collect()
    }

    /// Whether the written values would change the record.
    pub(crate) fn differs(
        &self,
        kind: &dyn AnyKind,
        written: &WriteOnlyValues,
        digester: &Digester,
    ) -> bool {
        kind.info().write_only.iter().any(|field| {
            let Some(value) = written.get(field.path) else { return false };
            match field.at_rest {
                AtRest::Digest => self.digest() != Some(digest_of(digester, value)),
                AtRest::Value => self.values.get(&field.path.join(".")) != Some(value),
            }
        })
    }
}

/// The field that is a credential, if the objects of the kind are credentials.
pub(crate) fn credential_field(kind: &dyn AnyKind) -> Option<&'static WriteOnlyField> {
    kind.info().write_only.iter().find(|field| field.at_rest == AtRest::Digest)
}

/// The digest of an access key's value.
pub(crate) fn digest_of(digester: &Digester, key: &SecretText) -> Digest {
    digester.digest(&BearerToken::of_key(key))
}
