//! VirtualClusterInstance: a virtual cluster of a project. The gateway connects to it; moving it to another project is
//! an action of Project. See `docs/reference/projects.md#instances`.

use crate::instance;
use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;
use crate::project_migrate_virtual_cluster_instance::MIGRATED_FROM;

/// The kind.
pub struct VirtualClusterInstance;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

pub use crate::instance::Status;

/// Where the virtual cluster is, its owner, and who has access to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.VirtualClusterInstanceSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the virtual cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. Default: the caller who creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// Where the virtual cluster is. No two instances are at the same place. A caller who sets it needs `use` on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The kubeconfig of the virtual cluster. Without it, the agent of its cluster connects to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<KubeconfigRef>,
    /// Access rules: who else gets which verbs on this object. At most 30; the owner needs none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
    /// Access rules as other clients of the platform write them: each gives `get` and `use`. Together with `access` at
    /// most 30.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_access_rules: Vec<ExtraAccess>,
}

/// Why a field is refused that describes a virtual cluster to be made.
const NOT_CREATED: &str =
    "this server does not create virtual clusters; name an existing one in spec.clusterRef";

/// Why a field is refused that says how a virtual cluster is connected.
const NOT_CONNECTED_SO: &str = "a virtual cluster is reached by spec.config, or by the agent of the cluster in \
                                spec.clusterRef; leave this field out";

/// Where a virtual cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.VirtualClusterRef")]
pub struct ClusterRef {
    /// Name of the Cluster, which the project must allow. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Name of the namespace in that cluster. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the virtual cluster there. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub virtual_cluster: String,
}

impl Kind for VirtualClusterInstance {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "VirtualClusterInstance",
        plural: "virtualclusterinstances",
        singular: "virtualclusterinstance",
        short: &["vci"],
        aliases: &["virtualcluster", "virtualclusters"],
        scope: ResourceScope::Namespaced,
        actions: instance::STATUS_ACTIONS,
        confidential: false,
        deletion_warning: "this deletes only the record on this server: the virtual cluster itself stays in its cluster",
        description: "VirtualClusterInstance is a virtual cluster of a project.",
        ..Info::DEFAULT
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::text(
            "Status",
            "Whether the server can connect to it: Ready, Pending or Failed.",
        ),
        ColumnInfo::text("Cluster", "The cluster that it is on."),
        ColumnInfo::text("Namespace", "Its namespace in the cluster."),
        ColumnInfo::text("Owner", "The user or team that owns it."),
        ColumnInfo::text("Display Name", "Name shown to people.").wide(),
    ];

    const OWNERSHIP: Option<OwnershipPart<Spec>> = Some(crate::access::part(
        |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &spec.extra_access_rules),
        |spec| &mut spec.owner,
    ));

    const COUNTED_IN_QUOTAS: bool = true;

    const ON_CLUSTER: Option<OnCluster<Spec>> =
        Some(|spec| spec.cluster_ref.as_ref().map(|place| place.cluster.as_str()));

    const KUBECONFIG: Option<KubeconfigOf<Spec>> = Some(|spec| spec.config.as_ref());

    const UNIQUE_KEYS: Option<UniqueKeys<Spec>> = Some(|_, spec| {
        let place =
            |at: &ClusterRef| instance::place(&[&at.cluster, &at.namespace, &at.virtual_cluster]);
        spec.cluster_ref.as_ref().map(place).into_iter().collect()
    });

    const KEPT_FIELDS: &'static [&'static str] = &["config"];

    const UNSERVED_FIELDS: &'static [UnservedField] = &[
        UnservedField::new("template", NOT_CREATED),
        UnservedField::new("templateRef", NOT_CREATED),
        UnservedField::new("parameters", NOT_CREATED),
        UnservedField::new("workloadClusterRef", NOT_CONNECTED_SO),
        UnservedField::new("networkPeer", NOT_CONNECTED_SO),
        UnservedField::new("external", NOT_CONNECTED_SO),
        UnservedField::new("standalone", NOT_CONNECTED_SO),
    ];

    const OBSERVED_STATUS: Option<ObservedStatus> = Some(instance::OBSERVED);

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        instance::clear_observed(&mut new.fields.status);
        let spec = &mut new.fields.spec;
        instance::drop_empty(&mut spec.config);
        // Of a new object, an empty one without a kubeconfig is an error.
        if old.is_some() || spec.config.is_some() {
            instance::drop_empty(&mut spec.cluster_ref);
        }
        // Only a migration says where it came from.
        let annotations = &mut new.metadata.annotations;
        annotations.remove(MIGRATED_FROM);
        let from = old.and_then(|old| old.metadata.annotations.get_key_value(MIGRATED_FROM));
        annotations.extend(from.map(|(name, from)| (name.clone(), from.clone())));
    }

    fn validate(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        instance::check_in_project(&new.metadata, old.is_none(), ctx, errors);
        let spec = &new.fields.spec;
        instance::validate_sleep(
            &new.metadata,
            old.map(|old| &old.metadata),
            "virtual clusters",
            errors,
        );
        if old.is_none_or(|old| old.fields.spec.extra_access_rules != spec.extra_access_rules) {
            ExtraAccess::validate_roles(&spec.extra_access_rules, errors);
        }
        if let Some(at) = &spec.cluster_ref {
            if *at == ClusterRef::default() {
                errors.push(FieldError::required("spec.clusterRef", NOT_CREATED));
                return Ok(());
            }
            let name = Some(at.virtual_cluster.as_str());
            instance::validate_cluster_ref(&at.cluster, &at.namespace, name, errors);
        }
        instance::validate_config(&new.metadata, spec.config.as_ref(), errors);
        Ok(())
    }

    fn required_rights(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
    ) -> Vec<RequiredRight> {
        let spec = &new.fields.spec;
        let old = old.map(|old| &old.fields.spec);
        let is_new_place = old.is_none_or(|old| old.cluster_ref != spec.cluster_ref);
        let cluster = spec.cluster_ref.as_ref().map_or("", |at| &at.cluster);
        let old_config = old.and_then(|old| old.config.as_ref());
        let config = spec.config.as_ref();
        instance::required_rights(&new.metadata, is_new_place, cluster, config, old_config)
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let at = spec.cluster_ref.clone().unwrap_or_default();
        let owner = spec.owner.clone().unwrap_or_default();
        vec![
            Cell::Text(object.fields.status.phase.clone()),
            Cell::Text(at.cluster),
            Cell::Text(at.namespace),
            Cell::Text(owner.display_name()),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}
