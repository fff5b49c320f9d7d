//! Offers of project secrets, and where the instances are that they name.

use std::sync::Arc;

use postern_kinds::cluster::Cluster;
use postern_kinds::secret_offer::{InstanceKind, InstanceLocation, Offer, Status};
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Info};
use postern_meta::decode::decode_typed;
use postern_meta::status::ApiError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Cache, CachedObject};
use crate::storage_key;

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredInstance {
    metadata: StoredUid,
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredUid {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredSpec {
    cluster_ref: StoredRef,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredRef {
    cluster: String,
    namespace: String,
    virtual_cluster: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredCluster {
    metadata: StoredUid,
}

/// The part of a project secret that its offer consists of. It has no values.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoredOffer {
    metadata: StoredUid,
    spec: StoredOfferSpec,
    pub(crate) status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredOfferSpec {
    offer: Option<Offer>,
}

impl StoredOffer {
    /// The part of a project secret. It is kept with the object.
    ///
    /// # Errors
    /// 500 if it cannot be decoded.
    pub(crate) fn of(secret: &CachedObject) -> Result<Arc<Self>, ApiError> {
        // The decoder's own error may quote a value.
        let unreadable =
            || ApiError::internal("an object cannot be read", secret.key().to_string());
        secret.kept_part().map_err(|_| unreadable())
    }

    /// The uid of the project secret.
    pub(crate) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// The offer.
    pub(crate) fn offer(&self) -> Option<&Offer> {
        self.spec.offer.as_ref()
    }
}

/// The names of a kind of instances.
pub(crate) fn info_of(kind: InstanceKind) -> &'static Info {
    match kind {
        InstanceKind::Space => SpaceInstance.info(),
        InstanceKind::VirtualCluster => VirtualClusterInstance.info(),
    }
}

impl Cache {
    /// The location of an instance; `None` if it does not exist or is being deleted. An instance without `clusterRef`, and
    /// one on a Cluster that does not exist, has no uid of a Cluster.
    ///
    /// # Errors
    /// 500 if the instance or its Cluster is corrupt.
    pub(crate) fn location_of_instance(
        &self,
        kind: InstanceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<InstanceLocation>, ApiError> {
        let key = storage_key::object(info_of(kind), Some(namespace), name);
        let Some(StoredInstance { metadata, spec }) = self.present(info_of(kind), &key)? else {
            return Ok(None);
        };
        let StoredRef { cluster, namespace, virtual_cluster } = spec.cluster_ref;
        let key = storage_key::object(Cluster.info(), None, &cluster);
        let found: Option<StoredCluster> =
            if cluster.is_empty() { None } else { self.present(Cluster.info(), &key)? };
        let cluster_uid = found.unwrap_or_default().metadata.uid;
        let uid = metadata.uid;
        Ok(Some(InstanceLocation { uid, cluster, cluster_uid, namespace, virtual_cluster }))
    }

    /// A part of an object that exists and is not being deleted.
    fn present<T: DeserializeOwned>(&self, info: &Info, key: &str) -> Result<Option<T>, ApiError> {
        let found = self.of(info).get(key)?.filter(|object| !object.is_deleting());
        let part = found.map(|object| {
            let unreadable = || ApiError::internal("an object cannot be read", key.to_owned());
            decode_typed(&object.json()).map_err(|_| unreadable())
        });
        part.transpose()
    }
}
