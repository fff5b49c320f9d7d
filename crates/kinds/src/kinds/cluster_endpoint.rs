//! `ClusterEndpoint`: where clients reach the agent of a connected cluster directly. It is posted to
//! `clusters/NAME/endpoint`, and is never stored: it becomes the annotations of the Cluster about its direct endpoint. See
//! `docs/reference/clusters.md#agents`.

use std::collections::BTreeMap;

use crate::action::{ActionRequest, ActionResult};
use crate::base64_text;
use crate::prelude::*;

/// The annotation with the host under which the cluster is reached directly.
pub const DIRECT_ENDPOINT: &str = "platform.sh/direct-cluster-endpoint";

/// The ends of the names of all annotations about it: itself, whether its certificate is not verified, and by which
/// authorities it is.
const DIRECT_ENDPOINT_ENDS: [&str; 3] = ["", "-insecure", "-ca-data"];

/// The name of one of these annotations, by its end.
pub fn endpoint_annotation(end: &str) -> String {
    format!("{DIRECT_ENDPOINT}{end}")
}

/// The annotations of a cluster that say how it is reached directly.
pub fn endpoint_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let names = DIRECT_ENDPOINT_ENDS.map(endpoint_annotation);
    let found = names.iter().filter_map(|name| metadata.annotations.get_key_value(name));
    found.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Writes the certificates in one form, for all readers.
pub(crate) fn prepare(metadata: &mut ObjectMeta) {
    if let Some(ca_data) = metadata.annotations.get_mut(&endpoint_annotation("-ca-data")) {
        *ca_data = base64_text::without_line_breaks(ca_data).into_owned();
    }
}

/// Checks the annotations about the direct endpoint that a write changes. An accepted annotation
/// works at the gateway.
pub(crate) fn validate(new: &ObjectMeta, old: Option<&ObjectMeta>, errors: &mut FieldErrors) {
    let all = endpoint_annotations(new);
    if old.is_some_and(|old| endpoint_annotations(old) == all) {
        return;
    }
    let of = |end: &str| {
        let name = endpoint_annotation(end);
        let value = all.get(&name).map(String::as_str).unwrap_or_default();
        (format!("metadata.annotations[{name}]"), value)
    };
    let ((host_path, host), (insecure_path, insecure), (ca_path, ca_data)) =
        (of(""), of("-insecure"), of("-ca-data"));
    if !host.is_empty() && !is_authority(host) {
        errors.push(FieldError::invalid(host_path, host, "must be HOST or HOST:PORT"));
    }
    if !ca_data.is_empty() && !base64_text::has_certificate(ca_data) {
        let detail = "must be certificates in PEM, and then in base64";
        errors.push(FieldError::invalid(ca_path, BadValue::Omitted, detail));
    }
    if !insecure.is_empty() && !["true", "false"].contains(&insecure) {
        let detail = "must be true or false";
        errors.push(FieldError::invalid(insecure_path, insecure, detail));
    } else if insecure == "true" && !ca_data.is_empty() {
        let detail =
            format!("must not be true if {DIRECT_ENDPOINT}-ca-data is set: give one of them");
        errors.push(FieldError::invalid(insecure_path, insecure, detail));
    }
}

/// Whether a text is `HOST` or `HOST:PORT`, where the host is a name, an IPv4 address or an IPv6 address in brackets.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => {
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (None, if rest.is_empty() { None } else { rest.strip_prefix(':').or(Some("")) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
    };
    host.is_none_or(|host| !host.is_empty() && host.len() <= 253 && host.bytes().all(is_of_host))
        && port.is_none_or(is_port)
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
        strict_fields: Some(StrictFields::OURS),
        ..Info::DEFAULT
    };
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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn errors_of(annotations: &[(&str, &str)]) -> Vec<String> {
        let named = |(end, value): &(&str, &str)| (endpoint_annotation(end), (*value).to_owned());
        let annotations = annotations.iter().map(named).collect();
        let mut metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        prepare(&mut metadata);
        let mut errors = FieldErrors::new();
        validate(&metadata, None, &mut errors);
        let mut same = FieldErrors::new();
        validate(&metadata, Some(&metadata), &mut same);
        assert!(same.is_empty(), "what is stored already is not checked again");
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_gateway_could_not_use_is_refused() {
        let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        let ca = STANDARD.encode(pem);
        let (first, rest) = ca.split_at(40);
        let wrapped = format!("{first}\n{rest}\r\n");
        for good in [
            &[][..],
            &[("", "agent.example")],
            &[("", "agent.example:6443"), ("-ca-data", &ca)],
            &[("", "[2001:db8::1]:6443"), ("-ca-data", &wrapped)],
            &[("", "192.0.2.1"), ("-insecure", "true")],
            &[("", "h"), ("-insecure", "false"), ("-ca-data", &ca)],
        ] {
            assert_eq!(errors_of(good), [""; 0], "{good:?}");
        }
        for bad in [
            &[("", "https://agent.example")][..],
            &[("", "agent.example/path")],
            &[("", "agent.example:0")],
            &[("", "agent.example:x")],
            &[("", "[::1")],
            &[("", "[h]:1")],
            &[("", "::1")],
            &[("", "user@h")],
            &[("", "h"), ("-ca-data", "?")],
            &[("", "h"), ("-ca-data", "aGVsbG8=")],
            &[("", "h"), ("-ca-data", pem)],
            &[("", "h"), ("-insecure", "yes")],
            &[("", "h"), ("-insecure", "true"), ("-ca-data", &ca)],
        ] {
            assert_eq!(errors_of(bad).len(), 1, "{bad:?}");
        }
    }
}
