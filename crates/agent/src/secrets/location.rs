//! Which Secret it is, and which instance it belongs to.

use std::fmt;

use postern_kinds::secret_subscription::InstanceRef;

/// The API server that has a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// That of the agent's cluster.
    Cluster,
    /// That of a virtual cluster in it.
    VirtualCluster(InstanceRef),
}

/// A Secret by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SecretId {
    pub(super) place: Place,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The instance that a Secret belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum InstanceKey {
    /// The space in this namespace.
    Space(String),
    /// A virtual cluster.
    VirtualCluster(InstanceRef),
}

impl SecretId {
    /// The instance of the Secret.
    pub(super) fn instance(&self) -> InstanceKey {
        match &self.place {
            Place::Cluster => InstanceKey::Space(self.namespace.clone()),
            Place::VirtualCluster(instance) => InstanceKey::VirtualCluster(instance.clone()),
        }
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Place::VirtualCluster(instance) = &self.place {
            write!(f, "{}/{}:", instance.namespace, instance.name)?;
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
