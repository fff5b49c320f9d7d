//! The names of namespaces that the operator chooses at the first start. They are stored, so that every server and
//! every later start has the same names.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_kinds::{NamespaceNames, set_namespace_names};
use postern_meta::decode::decode_typed;
use postern_store::{Change, Condition, Error, Store, Txn};

use super::first_start;
use crate::storage_key;

/// The names that the operator passes.
#[derive(Clone, Debug, Default)]
pub struct GivenNames {
    /// The prefix of the namespaces of projects.
    pub project_prefix: Option<String>,
    /// The default namespace of shared secrets.
    pub default_namespace: Option<String>,
}

/// Sets the namespace names of this process: the names of the store. An unused store gets the given names.
///
/// # Errors
/// The errors of the store; an error for invalid names, and for names that differ from those of the store.
pub async fn prepare(store: &Arc<dyn Store>, given: &GivenNames) -> anyhow::Result<()> {
    let names = loop {
        let recorded = store.get(storage_key::NAMESPACE_NAMES).await?.value;
        let is_used = first_start::is_used(store).await?;
        let known: Option<NamespaceNames> =
            match &recorded {
                Some(entry) => Some(decode_typed(&entry.value).context(
                    "the stored names of namespaces cannot be decoded: restore a backup",
                )?),
                // The store is older than this choice.
                None if is_used => Some(NamespaceNames::default()),
                None => None,
            };
        if let (Some(known), true) = (known, is_used) {
            check_same(&known, given)?;
            break known;
        }
        let defaults = NamespaceNames::default();
        let names = NamespaceNames {
            project_prefix: given.project_prefix.clone().unwrap_or(defaults.project_prefix),
            default_namespace: given
                .default_namespace
                .clone()
                .unwrap_or(defaults.default_namespace),
        };
        names.validate().map_err(anyhow::Error::msg)?;
        let key: Arc<str> = storage_key::NAMESPACE_NAMES.into();
        let condition = match recorded {
            Some(entry) => Condition::At(key.clone(), entry.position),
            None => Condition::Absent(key.clone()),
        };
        let value = Bytes::from(serde_json::to_vec(&names)?);
        let txn = Txn { conditions: vec![condition], changes: vec![Change::Put { key, value }] };
        match store.commit(txn).await {
            Ok(_) => break names,
            // Another starting server was faster.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    };
    set_namespace_names(&names).map_err(|now| {
        anyhow::anyhow!(
            "this process already serves another store, with the namespace names {now:?}"
        )
    })
}

/// Checks that the given names are the names of the store.
fn check_same(known: &NamespaceNames, given: &GivenNames) -> anyhow::Result<()> {
    for (flag, given, known) in [
        ("--project-namespace-prefix", &given.project_prefix, &known.project_prefix),
        ("--default-namespace", &given.default_namespace, &known.default_namespace),
    ] {
        if let Some(given) = given.as_ref().filter(|given| *given != known) {
            anyhow::bail!(
                "{flag} is {given:?}, but the database was created with {known:?}, which cannot change: remove the \
                 flag, or use another data directory"
            );
        }
    }
    Ok(())
}
