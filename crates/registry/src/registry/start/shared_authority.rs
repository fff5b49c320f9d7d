//! The certificate authority of servers that share a store. It is in the store, encrypted as everything there, so that no
//! file has to be copied for it.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_kinds::SecretText;
use postern_meta::decode::decode_typed;
use postern_store::{Change, Condition, Error, Store, Txn};
use serde::{Deserialize, Serialize};

use crate::storage_key::AUTHORITY;

/// A certificate authority.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedAuthority {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key, in PEM.
    pub key: SecretText,
}

/// The authority in the store, if there is one.
///
/// # Errors
/// The errors of the store; an error if the stored value is corrupt.
pub async fn read(store: &Arc<dyn Store>) -> anyhow::Result<Option<SharedAuthority>> {
    let corrupt = "the certificate authority in the store is corrupt: restore a backup, or pass --tls-cert-file and \
                   --tls-key-file";
    match store.get(AUTHORITY).await {
        Ok(found) => {
            let entry = found.value;
            entry.map(|entry| decode_typed(&entry.value).context(corrupt)).transpose()
        }
        Err(error @ Error::Corrupt { .. }) => Err(error).context(corrupt),
        Err(error) => Err(error.into()),
    }
}

/// Stores an authority in a store without one. Returns the authority of the store: this one, or that of another server
/// that was faster.
///
/// # Errors
/// The errors of [`read`].
pub async fn store_first(
    store: &Arc<dyn Store>,
    authority: SharedAuthority,
) -> anyhow::Result<SharedAuthority> {
    let key: Arc<str> = AUTHORITY.into();
    let value = Bytes::from(serde_json::to_vec(&authority)?);
    let conditions = vec![Condition::Absent(key.clone())];
    let txn = Txn { conditions, changes: vec![Change::Put { key, value }] };
    match store.commit(txn).await {
        Ok(_) => Ok(authority),
        Err(Error::Conflict { .. }) => {
            let other = read(store).await?;
            other.context(
                "the certificate authority in the store was removed: start the server again",
            )
        }
        Err(error) => Err(error.into()),
    }
}
