//! Cluster: a connected cluster. Its agent and its connections come with the gateway. See `docs/reference/clusters.md`.

use crate::agent_config::AgentConfig;
use crate::audit_event_list::AuditEventList;
use crate::cluster_endpoint::{self, ClusterEndpoint};
pub use crate::cluster_endpoint::{DIRECT_ENDPOINT, endpoint_annotation, endpoint_annotations};
use crate::instance;
use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;
use crate::probe::Probe;
use crate::secret_delivery::SecretDelivery;
use crate::secret_subscription::{self, SecretSubscription};

/// The subject that the access key of a cluster's agent acts as.
pub fn agent_subject(cluster: &str) -> String {
    format!("agent:{cluster}")
}

/// The verb that opens a tunnel of a cluster's agent, on the subresource `tunnel`.
pub const CONNECT: &str = "connect";

/// The condition of a cluster that says by which route it is reached. Its reason is the route.
pub const CONNECTED: &str = "Connected";

/// The route of a cluster that is reached by a kubeconfig.
pub const KUBECONFIG: &str = "Kubeconfig";

/// The route of a cluster with an agent that has opened tunnels.
pub const TUNNEL: &str = "Tunnel";

/// The route of a cluster with an agent that is reached at its endpoint.
pub const ENDPOINT: &str = "Endpoint";

/// The values of `spec.connection`.
pub const CONNECTIONS: &[&str] = &["Auto", TUNNEL, ENDPOINT, KUBECONFIG];

/// The actions of a cluster: its status, and the configuration, the audit events, the endpoint, the subscriptions to
/// secrets and the tunnels of its agent.
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
    Action {
        subresource: "endpoint",
        verb: Verb::Create,
        right: ActionRight::OnSubresource,
        handler: Handler::Registry(RegistryAction::Object(cluster_endpoint::of_cluster)),
        request: Some(&ClusterEndpoint),
        response: Response::Same,
        description: "Writes where the cluster's agent is reached directly, and nothing else of the Cluster.",
    },
    Action {
        subresource: secret_subscription::SUBRESOURCE,
        verb: Verb::Create,
        right: ActionRight::OnSubresource,
        handler: Handler::Server(ServerAction::SubscribeSecrets),
        request: Some(&SecretSubscription),
        response: Response::Object(&SecretDelivery),
        description: "Subscribes the cluster's agent to project secrets. The response is a watch.",
    },
    Action {
        subresource: "tunnel",
        verb: Verb::Get,
        right: ActionRight::OnSubresourceAs(CONNECT),
        handler: Handler::Server(ServerAction::Tunnel),
        request: None,
        response: Response::Same,
        description: "Opens a tunnel, as a WebSocket: the cluster's agent answers requests in it.",
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
    /// The conditions of the cluster. The agent writes `Ready` and `Tunnel`, and the server keeps `Connected`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// The agents of the cluster that have tunnels to a server. The server keeps it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub agents: Vec<ConnectedAgent>,
    /// The last attempt of the server to reach it. The server keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// An agent with tunnels to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ConnectedAgent")]
pub struct ConnectedAgent {
    /// The name of the agent: that of its pod or its machine.
    pub name: String,
    /// The name of the server.
    pub server: String,
    /// When its first tunnel was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The route by which a cluster is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// Whether its kubeconfig is used, if it has one.
    pub kubeconfig: bool,
    /// Whether the tunnels of its agent are used.
    pub tunnel: bool,
    /// Whether the endpoint of its agent is used.
    pub endpoint: bool,
}

impl RouteRule {
    /// The routes that `spec.connection` allows, in the order of the fields. An unknown value allows what `Auto` allows.
    pub fn of(connection: &str) -> Self {
        let all = Self { kubeconfig: true, tunnel: true, endpoint: true };
        let none = Self { kubeconfig: false, tunnel: false, endpoint: false };
        match connection {
            KUBECONFIG => Self { kubeconfig: true, ..none },
            TUNNEL => Self { tunnel: true, ..none },
            ENDPOINT => Self { endpoint: true, ..none },
            _ => all,
        }
    }

    /// The routes to its agent. Virtual clusters are reached through it even if the cluster has a kubeconfig.
    #[must_use]
    pub fn to_agent(self) -> Self {
        if self.tunnel || self.endpoint { self } else { Self::of("") }
    }
}

/// How the cluster is reached, its owner, and its access rules.
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
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The kubeconfig of the cluster. Without it, the agent of the cluster connects to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<KubeconfigRef>,
    /// The route to the cluster: `Auto`, `Tunnel`, `Endpoint` or `Kubeconfig`. `Auto` is the default. It uses the
    /// kubeconfig if there is one, else the tunnels of the agent, else the endpoint of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connection: String,
    /// Access rules: the other users and teams that get verbs on this object. At most 30; the owner
    /// needs none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
}

/// Whether a change is about more than the annotations of the direct endpoint and the status.
fn changes_more_than_endpoint(new: &Draft<Fields>, old: &Draft<Fields>) -> bool {
    let others = |metadata: &ObjectMeta| {
        let endpoint = endpoint_annotations(metadata);
        let mut annotations = metadata.annotations.clone();
        annotations.retain(|name, _| !endpoint.contains_key(name));
        annotations
    };
    let (metadata, before) = (&new.metadata, &old.metadata);
    new.fields.spec != old.fields.spec
        || metadata.labels != before.labels
        || metadata.finalizers != before.finalizers
        || metadata.owner_references != before.owner_references
        || others(metadata) != others(before)
}

/// Why a field about installations in a cluster is rejected.
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
        deletion_warning: "this deletes only the record on this server: the cluster and its agent go on",
        description: "Cluster is a connected cluster.",
        columns: &[
            ColumnInfo::text(
                "Status",
                "Whether the server can connect to it: Ready, Pending or Failed.",
            ),
            ColumnInfo::text("Owner", "The user or team that owns it."),
            ColumnInfo::text("Display Name", "Name shown to people."),
            ColumnInfo::text("Direct Endpoint", "The host for direct access.").wide(),
            ColumnInfo::text("Connection", "The route to it: Kubeconfig, Tunnel or Endpoint.")
                .wide(),
            ColumnInfo::text("Since", "How long this route has been used.").wide(),
            ColumnInfo::integer("Agents", "The agents of the cluster that have tunnels.").wide(),
        ],
        kept_fields: &["config", "connection"],
        unserved_fields: &[
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
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> = Parts {
        ownership: Some(crate::access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &[]),
            |spec| &mut spec.owner,
        )),
        kubeconfig: Some(|spec| spec.config.as_ref()),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        if !ctx.is_server() {
            new.fields.status.agents =
                old.map(|old| old.fields.status.agents.clone()).unwrap_or_default();
        }
        instance::drop_empty(&mut new.fields.spec.config);
        cluster_endpoint::prepare(&mut new.metadata);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, old, .. } = write;
        let Spec { config, connection, .. } = write.spec();
        instance::validate_config(&new.metadata, config.as_ref(), errors);
        cluster_endpoint::validate(&new.metadata, old.map(|old| &old.metadata), errors);
        if !connection.is_empty() {
            errors.check_supported("spec.connection", connection, CONNECTIONS);
        }
        if connection == KUBECONFIG && config.is_none() {
            let detail = "must be set if spec.connection is Kubeconfig";
            errors.push(FieldError::required("spec.config", detail));
        }
        Ok(())
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, old, ctx } = write;
        let config = instance::right_to_read_config(write, |spec| spec.config.as_ref());
        let changes_more =
            |old: &&Draft<Fields>| ctx.changes_managers || changes_more_than_endpoint(new, old);
        let whole = old.filter(changes_more).map(|_| {
            let right = Right::cluster("update", MANAGEMENT_V1.group, "clusters", &new.metadata.name);
            RequiredRight::from(right).because(
                "with the verb patch alone, as agents have it, a caller can change only the annotations of the direct \
                 endpoint"
                    .to_owned(),
            )
        });
        config.into_iter().chain(whole).collect()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = spec.owner.clone().unwrap_or_default();
        let endpoint = object.metadata.annotations.get(DIRECT_ENDPOINT).cloned();
        let Status { conditions, agents, .. } = &object.fields.status;
        let connected = conditions.iter().find(|one| one.r#type == CONNECTED);
        let route = connected.filter(|one| one.status == "True").map(|one| one.reason.clone());
        let mut names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        vec![
            Cell::Text(object.fields.status.phase.clone()),
            Cell::Text(owner.display_name()),
            Cell::Text(spec.display_name.clone()),
            Cell::Text(endpoint.unwrap_or_default()),
            Cell::Text(route.unwrap_or_else(|| "None".to_owned())),
            Cell::Age(connected.and_then(|one| one.last_transition_time)),
            Cell::count(names.len()),
        ]
    }
}
