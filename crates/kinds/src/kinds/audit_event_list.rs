//! `EventList` of `audit.k8s.io/v1`: records of requests that the agent of a connected cluster has decided about.
//! It is posted to `clusters/NAME/auditevents`, written into the audit log, and never stored.

use std::collections::BTreeMap;

use postern_meta::gvk::GroupVersion;
use postern_meta::time::MicroTimestamp;

use crate::prelude::*;

/// Group and version of audit records.
pub const AUDIT_V1: GroupVersion = GroupVersion { group: "audit.k8s.io", version: "v1" };

/// The most records of one list.
pub const MAX_EVENTS: usize = 1000;

/// The kind.
pub struct AuditEventList;

/// The records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.apiserver.pkg.apis.audit.v1.EventListFields")]
pub struct Spec {
    /// The records, in the order in which they were made.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub items: Vec<AuditEvent>,
}

/// A record: the facts about one request at one stage. The fields are Kubernetes', without the
/// bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apiserver.pkg.apis.audit.v1.Event")]
pub struct AuditEvent {
    /// How much is recorded: `Metadata`.
    pub level: String,
    /// The request's id, which all of its records have.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `RequestReceived`, `ResponseStarted`, `ResponseComplete` or `Panic`.
    pub stage: String,
    /// The path of the request.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The verb.
    pub verb: String,
    /// The caller.
    pub user: AuditUser,
    /// As whom they acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<AuditUser>,
    /// Where it came from.
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub source_ips: Vec<String>,
    /// The name of the client's program, as it says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// The object of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<AuditObjectReference>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<AuditResponseStatus>,
    /// When it arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_received_timestamp: Option<MicroTimestamp>,
    /// When it reached the stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_timestamp: Option<MicroTimestamp>,
    /// Further facts about the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.apiserver.pkg.apis.audit.v1.User")]
pub struct AuditUser {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Further facts about the user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apiserver.pkg.apis.audit.v1.ObjectReference")]
pub struct AuditObjectReference {
    /// The resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// The result of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.apiserver.pkg.apis.audit.v1.ResponseStatus")]
pub struct AuditResponseStatus {
    /// `Failure`, where it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Why, in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The code.
    pub code: u16,
}

impl Kind for AuditEventList {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: AUDIT_V1,
        kind: "EventList",
        plural: "auditevents",
        singular: "auditevent",
        verbs: &[],
        on_command_line: false,
        description: "EventList has audit records of the agent of a connected cluster.",
        layout: Layout::TopLevel,
        ..Info::DEFAULT
    };
}
