//! A Connector, as a login needs it.

use postern_kinds::connector::{self};
use postern_kinds::principal::ConnectorRef;
use serde::Deserialize;

/// A Connector, as a login needs it.
#[derive(Deserialize)]
pub(crate) struct StoredConnector {
    pub(crate) metadata: StoredMetadata,
    pub(crate) spec: connector::Spec,
}

#[derive(Deserialize)]
pub(crate) struct StoredMetadata {
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(default, rename = "deletionTimestamp")]
    pub(crate) deletion: Option<String>,
}

impl StoredConnector {
    /// Whether users can log in: the connector is neither disabled nor being deleted.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.spec.disabled && self.metadata.deletion.is_none()
    }

    pub(crate) fn reference(&self) -> ConnectorRef {
        let StoredMetadata { name, uid, .. } = &self.metadata;
        ConnectorRef { name: name.clone(), uid: uid.clone() }
    }
}
