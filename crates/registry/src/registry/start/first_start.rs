//! The first start: the namespaces that always exist, the user `admin`, and its key.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_auth::bearer::BearerToken;
use postern_auth::digest::{DIGEST_BYTES, Digester};
use postern_auth::identity::MASTERS_GROUP;
use postern_auth::principal_index::DigestRecord;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::user::User;
use postern_kinds::{
    AnyKind, Caller, Context, NoPrincipals, Principal, Principals, permanent_namespaces,
};
use postern_meta::object::{Object, ObjectMeta};
use postern_store::{Change, Condition, Error, Store, Txn};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::format;
use crate::admit::{self, Part, Writing};
use crate::cache::to_stored;
use crate::clock::{Source, new_uid};
use crate::registry::side_records::new_access_key;
use crate::secret_record::SecretRecord;
use crate::storage_key;

/// The name of the first user, and of its key.
pub const ADMIN: &str = "admin";

/// The result of [`prepare`].
pub struct Prepared {
    /// Makes digests of access keys.
    pub digester: Digester,
    /// Whether this was the first start of all servers on the store.
    pub first: bool,
}

/// Prepares an unused store. For a used store, it checks the format and reads the digest key.
///
/// `announce` gets the new key *before* the commit. If the key were lost between the commit and the announcement, no
/// user could log in. If the commit fails, the announced key is not valid. If several servers start at once on one
/// store, one server creates the administrator, and the other servers find it.
///
/// # Errors
/// The errors of the store or of `announce`.
pub async fn prepare(
    store: &Arc<dyn Store>,
    source: &dyn Source,
    announce: impl FnOnce(&BearerToken) -> anyhow::Result<()>,
) -> anyhow::Result<Prepared> {
    if let Some(digester) = stored_digester(store).await? {
        format::check(&**store).await?;
        return Ok(Prepared { digester, first: false });
    }
    let mut digest_key = Zeroizing::new([0; DIGEST_BYTES]);
    source.fill(digest_key.as_mut_slice());
    let digester = Digester::new(&digest_key);
    let admin_key = BearerToken::of_key(&new_access_key(source));
    announce(&admin_key)?;
    let txn = first_txn(source, &digest_key, &digester, &admin_key)?;
    match store.commit(txn).await {
        Ok(_) => Ok(Prepared { digester, first: true }),
        Err(Error::Conflict { key, .. }) => {
            tracing::info!(%key, "another server was the first on this store");
            let digester = stored_digester(store).await?;
            let digester =
                digester.context("the store is only partly prepared: start the server again")?;
            format::check(&**store).await?;
            Ok(Prepared { digester, first: false })
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether an earlier start has prepared the store.
///
/// # Errors
/// The errors of the store.
pub async fn is_used(store: &Arc<dyn Store>) -> postern_store::Result<bool> {
    Ok(store.get(storage_key::DIGEST_KEY).await?.value.is_some())
}

async fn stored_digester(store: &Arc<dyn Store>) -> anyhow::Result<Option<Digester>> {
    let found = store.get(storage_key::DIGEST_KEY).await?.value;
    found.map(|entry| digester(&entry.value)).transpose()
}

fn digester(stored: &[u8]) -> anyhow::Result<Digester> {
    let mut key = Zeroizing::new([0; DIGEST_BYTES]);
    anyhow::ensure!(stored.len() == DIGEST_BYTES, "the stored digest key has the wrong length");
    key.copy_from_slice(stored);
    Ok(Digester::new(&key))
}

fn first_txn(
    source: &dyn Source,
    digest_key: &Zeroizing<[u8; DIGEST_BYTES]>,
    digester: &Digester,
    admin_key: &BearerToken,
) -> anyhow::Result<Txn> {
    let mut changes = Vec::new();
    for name in permanent_namespaces() {
        changes.push(put(&Namespace, name, Map::new(), source, &NoPrincipals)?.0);
    }
    let user = spec(json!({ "displayName": "Administrator", "groups": [MASTERS_GROUP] }));
    let (change, owner_uid) = put(&User, ADMIN, user, source, &NoPrincipals)?;
    changes.push(change);
    let value = Bytes::from(serde_json::to_vec(ADMIN)?);
    changes.push(Change::Put { key: storage_key::unique_key(User.info(), ADMIN), value });
    let key = spec(json!({
        "displayName": "Made at the first start",
        "user": ADMIN,
        "type": "User",
    }));
    let (change, uid) = put(&OwnedAccessKey, ADMIN, key, source, &FirstUser(&owner_uid))?;
    changes.push(change);
    let digest = digester.digest(admin_key);
    let mut secrets = SecretRecord::new(uid.clone(), owner_uid.clone());
    secrets.set_digest(digest);
    let value = Bytes::from(serde_json::to_vec(&secrets)?);
    changes.push(Change::Put {
        key: storage_key::secret_record(OwnedAccessKey.info(), None, ADMIN),
        value,
    });
    let record = DigestRecord { name: ADMIN.to_owned(), uid, owner_uid };
    let value = Bytes::from(serde_json::to_vec(&record)?);
    changes.push(Change::Put { key: storage_key::digest(digest), value });
    changes.push(Change::Put {
        key: storage_key::DIGEST_KEY.into(),
        value: Bytes::copy_from_slice(digest_key.as_slice()),
    });
    changes.push(format::record());
    let conditions = vec![Condition::Absent(storage_key::DIGEST_KEY.into())];
    Ok(Txn { conditions, changes })
}

/// The only user that exists when its key is created.
struct FirstUser<'a>(&'a str);

impl Principals for FirstUser<'_> {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        (principal == Principal::User(ADMIN)).then(|| self.0.to_owned())
    }

    fn teams_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// The fields of an object that has only a spec.
pub fn spec(spec: Value) -> Map<String, Value> {
    Map::from_iter([("spec".to_owned(), spec)])
}

/// An object of the server itself, prepared like an object of a client.
pub(crate) fn put(
    kind: &'static dyn AnyKind,
    name: &str,
    fields: Map<String, Value>,
    source: &dyn Source,
    principals: &dyn Principals,
) -> anyhow::Result<(Change, String)> {
    let info = kind.info();
    let now = source.now();
    let uid = new_uid(source);
    let mut object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta {
            name: name.to_owned(),
            uid: uid.clone(),
            generation: 1,
            creation_timestamp: Some(now),
            ..ObjectMeta::default()
        },
        fields,
    };
    let caller = Caller::default();
    let ctx = Context::of(&caller, now, principals);
    kind.prepare(&mut object, None, &ctx)
        .map_err(|error| anyhow::anyhow!("{}", error.status().message))?;
    let manager = Writing::by_server().manager;
    admit::track(kind, &mut object, None, &manager, Part::Main, now);
    let change =
        Change::Put { key: storage_key::object(info, None, name), value: to_stored(object) };
    Ok((change, uid))
}
