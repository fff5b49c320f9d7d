//! Cluster: a connected cluster. Its agent and its connections come with the gateway. See `docs/reference/clusters.md`.

use std::collections::BTreeMap;

use crate::agent_config::AgentConfig;
use crate::audit_event_list::AuditEventList;
use crate::instance;
use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;

/// The annotation with the host under which the cluster is reached directly.
pub const DIRECT_ENDPOINT: &str = "platform.sh/direct-cluster-endpoint";

/// The ends of the names of all annotations about it: itself, whether its certificate is not verified, and by which
/// authorities it is.
const DIRECT_ENDPOINT_ENDS: [&str; 3] = ["", "-insecure", "-ca-data"];

/// The annotations of a cluster that say how it is reached directly.
pub fn endpoint_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let names = DIRECT_ENDPOINT_ENDS.map(|end| format!("{DIRECT_ENDPOINT}{end}"));
    let found = names.iter().filter_map(|name| metadata.annotations.get_key_value(name));
    found.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The subject that the access key of a cluster's agent acts as.
pub fn agent_subject(cluster: &str) -> String {
    format!("agent:{cluster}")
}

/// The actions of a cluster: its status, the configuration of its agent, and the audit events of its agent.
const ACTIONS: &[Action] = &[
    Action::GET_STATUS,
    Action::UPDATE_STATUS,
    Action::PATCH_STATUS,
    Action {
        subresource: "agentconfig",
        verb: Verb::Get,
        right: ActionRight::OnSubresource,
        handler: Handler::Server(ServerAction::AgentConfig),
        request: None,
        response: Response::Object(&AgentConfig),
        description: "The configuration of the cluster's agent; with watch=true, its changes.",
    },
    Action {
        subresource: "agentconfig",
        verb: Verb::Watch,
        right: ActionRight::OnSubresource,
        handler: Handler::Server(ServerAction::AgentConfig),
        request: None,
        response: Response::Object(&AgentConfig),
        description: "Watches the configuration of the cluster's agent.",
    },
    Action {
        subresource: "auditevents",
        verb: Verb::Create,
        right: ActionRight::OnSubresource,
        handler: Handler::Server(ServerAction::ReportAuditEvents),
        request: Some(&AuditEventList),
        response: Response::Object(&AuditEventList),
        description: "Writes records of requests to the cluster's agent into the audit log.",
    },
];

/// The kind.
pub struct Cluster;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The observed state of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ClusterStatus")]
pub struct Status {
    /// `Ready`, `Pending` or `Failed`. The server keeps it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The conditions of the cluster. The agent writes `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
}

/// How the cluster is reached, its owner, and who has access to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ClusterSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. The caller, when absent on create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The kubeconfig by which it is reached; by its agent, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<KubeconfigRef>,
    /// Access rules: who else gets which verbs on this object. At most 30; the owner needs none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
}

/// Why a field is refused that says what is to be installed in a cluster.
const NOT_MANAGED: &str = "this server installs nothing in clusters; leave this field out";

impl Kind for Cluster {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "Cluster",
        plural: "clusters",
        singular: "cluster",
        actions: ACTIONS,
        confidential: false,
        description: "Cluster is a connected cluster.",
        ..Info::DEFAULT
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::text("Status", "Whether it can be reached: Ready, Pending or Failed."),
        ColumnInfo::text("Owner", "The user or team that owns it."),
        ColumnInfo::text("Display Name", "Name shown to people."),
        ColumnInfo::text("Direct Endpoint", "The host under which it is reached directly.").wide(),
    ];

    const OWNERSHIP: Option<OwnershipPart<Spec>> = Some(crate::access::part(
        |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &[]),
        |spec| &mut spec.owner,
    ));

    const KEPT_FIELDS: &'static [&'static str] = &["config"];

    const UNSERVED_FIELDS: &'static [UnservedField] = &[
        UnservedField::new("local", NOT_MANAGED),
        UnservedField::new(
            "networkPeer",
            "a cluster is reached by spec.config or by its agent; leave this field out",
        ),
        UnservedField::new("managementNamespace", NOT_MANAGED),
        UnservedField::new(
            "unusable",
            "this server does not lock clusters: remove the access rules",
        ),
        UnservedField::new("metrics", NOT_MANAGED),
        UnservedField::new("opencost", NOT_MANAGED),
        UnservedField::new("argoCD", NOT_MANAGED),
    ];

    const KUBECONFIG: Option<KubeconfigOf<Spec>> = Some(|spec| spec.config.as_ref());

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        instance::drop_empty(&mut new.fields.spec.config);
    }

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        instance::validate_config(&new.metadata, new.fields.spec.config.as_ref(), errors);
        Ok(())
    }

    fn required_rights(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
    ) -> Vec<RequiredRight> {
        let config = new.fields.spec.config.as_ref();
        let old_config = old.and_then(|old| old.fields.spec.config.as_ref());
        instance::required_rights(&new.metadata, false, "", config, old_config)
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = spec.owner.clone().unwrap_or_default();
        let endpoint = object.metadata.annotations.get(DIRECT_ENDPOINT).cloned();
        vec![
            Cell::Text(object.fields.status.phase.clone()),
            Cell::Text(owner.display_name()),
            Cell::Text(spec.display_name.clone()),
            Cell::Text(endpoint.unwrap_or_default()),
        ]
    }
}
