//! `SecretDelivery`: the data of one Secret of a [`SecretSubscription`](crate::secret_subscription), or the answer that it
//! gets none. It is the object of an event, and is never stored.
//!
//! The server sends one for each subscribed Secret whose version differs from that of its source, and one after each
//! change. The first bookmark comes after the deliveries for all Secrets: a Secret without a delivery has current data.

use std::collections::BTreeMap;

use crate::prelude::*;
pub use crate::secret_offer::{DELETE, KEEP, ON_END};
use crate::secret_subscription::{InstanceRef, SubscribedSecret};

/// The reason of a delivery for a Secret that gets no data. The answer is the same whether the project, the project
/// secret, the offer or the instance is missing.
pub const NOT_OFFERED: &str = "NotOffered";

/// The reason of a delivery for a Secret that got data in this subscription, and gets no more.
pub const ENDED: &str = "Ended";

/// The message of a delivery without data.
pub const NOT_OFFERED_MESSAGE: &str = "not offered here";

/// The kind.
pub struct SecretDelivery;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// A Secret of the subscription, with its data or the reason why it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretDeliverySpec")]
pub struct Spec {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
    /// The virtual cluster that has the Secret. Absent for a Secret of a space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_cluster: Option<InstanceRef>,
    /// The project.
    pub project: String,
    /// The project secret.
    pub project_secret: String,
    /// The version of the data. Two versions can only be compared for equality. Empty without data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// All data of the project secret, in standard base64. Absent if `reason` is set, and for a project secret without
    /// data.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub data: BTreeMap<String, SecretText>,
    /// What the agent does with the data when the offer ends: `Keep` or `Delete`. Empty is `Keep`. The agent remembers it:
    /// a delivery with the reason `NotOffered` does not have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on_end: String,
    /// Why the Secret gets no data: `NotOffered` or `Ended`. Empty for a delivery of data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Spec {
    /// A delivery for a Secret, without data.
    pub fn of(secret: &SubscribedSecret) -> Self {
        Self {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
            virtual_cluster: secret.virtual_cluster.clone(),
            project: secret.project.clone(),
            project_secret: secret.project_secret.clone(),
            ..Self::default()
        }
    }

    /// Whether it has data for the Secret, perhaps none at all.
    pub fn is_offered(&self) -> bool {
        self.reason.is_empty()
    }
}

impl Kind for SecretDelivery {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SecretDelivery",
        plural: "secretdeliveries",
        singular: "secretdelivery",
        verbs: &[],
        on_command_line: false,
        values: ValuesAt::DATA,
        description: "SecretDelivery is the data of a Secret in a connected cluster, or the answer that it gets none.",
        ..Info::DEFAULT
    };
}
