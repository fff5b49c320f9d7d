//! `SecretSubscription`: the native Secrets of a connected cluster that take their data from project secrets. The agent
//! of the cluster posts all of them to `clusters/NAME/secretsubscriptions`. The response is a watch whose events are
//! [`SecretDelivery`](crate::secret_delivery::SecretDelivery). The server forgets the subscription when the request ends.
//! See `docs/reference/clusters.md#secret-subscriptions`.

use std::collections::HashSet;

use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_meta::object::Object;

use crate::prelude::*;

/// The subresource of a cluster that the agent posts to.
pub const SUBRESOURCE: &str = "secretsubscriptions";

/// The most Secrets of one instance in a subscription.
pub const MAX_OF_INSTANCE: usize = 1000;

/// The most Secrets of a subscription.
pub const MAX_SECRETS: usize = 10_000;

/// The longest version, in bytes. The server's own versions are shorter.
const MAX_VERSION_BYTES: usize = 128;

/// The longest uid of a namespace, in bytes.
const MAX_UID_BYTES: usize = 128;

/// The longest value of a label, in bytes.
const MAX_LABEL_BYTES: usize = 63;

/// The kind.
pub struct SecretSubscription;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// All Secrets of the cluster that take their data from project secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.SecretSubscriptionSpec")]
pub struct Spec {
    /// The Secrets. At most 10,000, and at most 1,000 of one instance.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub secrets: Vec<SubscribedSecret>,
}

/// A native Secret, and the project secret that its labels name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SubscribedSecret")]
pub struct SubscribedSecret {
    /// The namespace of the Secret: that of the space, or a namespace in the virtual cluster.
    pub namespace: String,
    /// The uid of the namespace of the connected cluster that the instance is in. For a Secret in a virtual cluster, this
    /// is the namespace in which the virtual cluster runs.
    pub namespace_uid: String,
    /// The name of the Secret.
    pub name: String,
    /// The virtual cluster that has the Secret. Absent for a Secret of a space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_cluster: Option<InstanceRef>,
    /// The label `platform.sh/project` of the Secret.
    pub project: String,
    /// The label `platform.sh/project-secret-name` of the Secret.
    pub project_secret: String,
    /// The version of the data that the Secret has, as the last delivery named it. Empty for a Secret without data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// A virtual cluster instance.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.SubscribedInstance")]
pub struct InstanceRef {
    /// The namespace of the instance on the central server: that of its project.
    pub namespace: String,
    /// The name of the instance.
    pub name: String,
}

impl Kind for SecretSubscription {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SecretSubscription",
        plural: "secretsubscriptions",
        singular: "secretsubscription",
        verbs: &[],
        on_command_line: false,
        description: "SecretSubscription lists the Secrets of a connected cluster that take their data from project \
                      secrets.",
        strict_fields: Some(StrictFields::OURS),
        ..Info::DEFAULT
    };
}

/// The Secrets of a request.
///
/// # Errors
/// 400 for a body that cannot be decoded; 422 for an invalid name, a Secret that is listed twice, and too many Secrets.
pub fn secrets_of(body: &Object) -> Result<Vec<SubscribedSecret>, ApiError> {
    let fields = Fields::deserialize(&body.fields)
        .map_err(|error| ApiError::bad_request(format!("spec: {error}")))?;
    let secrets = fields.spec.secrets;
    let mut errors = FieldErrors::new();
    if errors.check_count("spec.secrets", secrets.len(), MAX_SECRETS) {
        validate(&secrets, &mut errors);
    }
    if errors.is_empty() {
        return Ok(secrets);
    }
    Err(ApiError::invalid(SecretSubscription::INFO.group_kind(), &body.metadata.name, errors))
}

fn validate(secrets: &[SubscribedSecret], errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    let mut of_instance = std::collections::HashMap::<_, usize>::new();
    for (index, secret) in secrets.iter().enumerate() {
        let path = format!("spec.secrets[{index}]");
        secret.validate(&path, errors);
        if !seen.insert((&secret.virtual_cluster, &secret.namespace, &secret.name)) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &secret.name));
        }
        let count = of_instance.entry(secret.instance()).or_default();
        *count += 1;
        if *count == MAX_OF_INSTANCE + 1 {
            let detail = format!("must have at most {MAX_OF_INSTANCE} Secrets of one instance");
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

impl SubscribedSecret {
    /// The instance that has the Secret: a virtual cluster, or the space in a namespace.
    fn instance(&self) -> (Option<&InstanceRef>, Option<&str>) {
        match &self.virtual_cluster {
            Some(instance) => (Some(instance), None),
            None => (None, Some(&self.namespace)),
        }
    }

    fn validate(&self, path: &str, errors: &mut FieldErrors) {
        let mut check = |field: &str, value: &str, rule: fn(&str) -> Result<(), String>| {
            let path = format!("{path}.{field}");
            if value.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else {
                errors.check_value(&path, value, rule(value));
            }
        };
        check("namespace", &self.namespace, dns1123_label);
        check("namespaceUid", &self.namespace_uid, |uid| short_text(uid, MAX_UID_BYTES));
        check("name", &self.name, dns1123_subdomain);
        if let Some(instance) = &self.virtual_cluster {
            check("virtualCluster.namespace", &instance.namespace, dns1123_label);
            check("virtualCluster.name", &instance.name, dns1123_subdomain);
        }
        // Tenants of the cluster write the labels. An invalid name must not end the subscription of the others, and is
        // answered like the name of a project secret that does not exist.
        for (field, text, max_bytes) in [
            ("project", &self.project, MAX_LABEL_BYTES),
            ("projectSecret", &self.project_secret, MAX_LABEL_BYTES),
            ("version", &self.version, MAX_VERSION_BYTES),
        ] {
            errors.check_value(&format!("{path}.{field}"), text, short_text(text, max_bytes));
        }
    }
}

/// Checks a text that only its writer interprets.
fn short_text(text: &str, max_bytes: usize) -> Result<(), String> {
    let is_short = text.len() <= max_bytes && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_short {
        Ok(())
    } else {
        Err(format!("must have at most {max_bytes} visible ASCII characters"))
    }
}
