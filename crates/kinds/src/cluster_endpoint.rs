//! `ClusterEndpoint`: where clients reach the agent of a connected cluster directly. It is posted to
//! `clusters/NAME/endpoint`, and is never stored: it becomes the annotations of the Cluster about its direct endpoint. See
//! `docs/reference/clusters.md#agents`.

use std::collections::BTreeMap;

use crate::action::{ActionRequest, ActionResult};
use crate::prelude::*;

/// The annotation with the host under which the cluster is reached directly.
pub const DIRECT_ENDPOINT: &str = "platform.sh/direct-cluster-endpoint";

/// The ends of the names of all annotations about it: itself, whether its certificate is not verified, and by which
/// authorities it is.
const DIRECT_ENDPOINT_ENDS: [&str; 3] = ["", "-insecure", "-ca-data"];

/// The name of one of these annotations, by its end.
fn endpoint_annotation(end: &str) -> String {
    format!("{DIRECT_ENDPOINT}{end}")
}

/// The annotations of a cluster that say how it is reached directly.
pub fn endpoint_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let names = DIRECT_ENDPOINT_ENDS.map(endpoint_annotation);
    let found = names.iter().filter_map(|name| metadata.annotations.get_key_value(name));
    found.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The kind.
pub struct ClusterEndpoint;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ClusterEndpointSpec")]
pub struct Spec {
    /// The host, and the port if it is not 443. Empty removes the endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Whether clients do not verify the certificate of the endpoint.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// The certificate authorities of the endpoint, in PEM and then in base64. By default, those of the client's system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
}

impl Kind for ClusterEndpoint {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ClusterEndpoint",
        plural: "clusterendpoints",
        singular: "clusterendpoint",
        verbs: &[],
        on_command_line: false,
        description: "ClusterEndpoint says where the agent of a connected cluster is reached directly.",
        ..Info::DEFAULT
    };

    const STRICT_FIELDS: StrictFields = StrictFields::OURS;
}

/// Writes the endpoint of a request into the annotations of its Cluster.
pub(crate) fn of_cluster(request: &ActionRequest<'_>) -> Result<ActionResult, ApiError> {
    let fields = Fields::deserialize(&request.body.fields)
        .map_err(|error| ApiError::bad_request(format!("spec: {error}")))?;
    let Spec { host, insecure, ca_data } = fields.spec;
    let mut cluster = request.object.clone();
    let insecure = if insecure { "true".to_owned() } else { String::new() };
    let annotations = &mut cluster.metadata.annotations;
    for (end, value) in [("", &host), ("-insecure", &insecure), ("-ca-data", &ca_data)] {
        let name = endpoint_annotation(end);
        if value.is_empty() || host.is_empty() {
            annotations.remove(&name);
        } else {
            annotations.insert(name, value.clone());
        }
    }
    Ok(ActionResult::Update(cluster))
}
