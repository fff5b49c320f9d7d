//! VirtualClusterInstance: a virtual cluster of a project. The gateway connects to it; moving it to another project is
//! an action of Project. See `docs/reference/projects.md#instances`.

use crate::instance::{self, right_to_read_config, right_to_use};
use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;
use crate::project_migrate_virtual_cluster_instance::MIGRATED_FROM;

/// The kind.
pub struct VirtualClusterInstance;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

pub use crate::instance::Status;

/// Where the virtual cluster is, its owner, and its access rules.
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
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// Where the virtual cluster is. No two instances are at the same place. A caller that sets it
    /// needs `use` on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The kubeconfig of the virtual cluster. Without it, the agent of its cluster connects to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<KubeconfigRef>,
    /// Access rules: the other users and teams that get verbs on this object. At most 30; the owner
    /// needs none.
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
        deletion_warning: "this deletes only the record on this server: the virtual cluster itself stays in its cluster",
        description: "VirtualClusterInstance is a virtual cluster of a project.",
        kept_fields: &["config"],
        unserved_fields: &[
            UnservedField::new("template", NOT_CREATED),
            UnservedField::new("templateRef", NOT_CREATED),
            UnservedField::new("parameters", NOT_CREATED),
            UnservedField::new("workloadClusterRef", NOT_CONNECTED_SO),
            UnservedField::new("networkPeer", NOT_CONNECTED_SO),
            UnservedField::new("external", NOT_CONNECTED_SO),
            UnservedField::new("standalone", NOT_CONNECTED_SO),
        ],
        ..instance::INFO
    };

    const PARTS: Parts<Spec, Status> = Parts {
        ownership: Some(crate::access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &spec.extra_access_rules),
            |spec| &mut spec.owner,
        )),
        on_cluster: Some(|spec| spec.cluster_ref.as_ref().map(|place| place.cluster.as_str())),
        kubeconfig: Some(|spec| spec.config.as_ref()),
        unique_keys: Some(|_, spec| {
            let place = |at: &ClusterRef| {
                instance::place(&[&at.cluster, &at.namespace, &at.virtual_cluster])
            };
            spec.cluster_ref.as_ref().map(place).into_iter().collect()
        }),
        ..Parts::DEFAULT
    };

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

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let (spec, old) = (write.spec(), write.old_spec());
        instance::validate_metadata(write, "virtual clusters", errors);
        if old.is_none_or(|old| old.extra_access_rules != spec.extra_access_rules) {
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
        instance::validate_config(&write.new.metadata, spec.config.as_ref(), errors);
        Ok(())
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let (spec, old) = (write.spec(), write.old_spec());
        let is_new_place = old.is_none_or(|old| old.cluster_ref != spec.cluster_ref);
        let place = spec.cluster_ref.as_ref().filter(|_| is_new_place);
        let place = place.and_then(|at| right_to_use(&at.cluster));
        let secret = right_to_read_config(write, |spec| spec.config.as_ref());
        place.into_iter().chain(secret).collect()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let at = spec.cluster_ref.clone().unwrap_or_default();
        let owner = spec.owner.clone().unwrap_or_default().display_name();
        let phase = object.fields.status.phase.clone();
        let cells = [phase, at.cluster, at.namespace, owner, spec.display_name.clone()];
        cells.map(Cell::Text).into()
    }
}
