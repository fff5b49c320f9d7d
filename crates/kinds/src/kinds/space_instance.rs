//! SpaceInstance: a space of a project, which is one namespace of a cluster. The gateway connects to it. See
//! `docs/reference/projects.md#instances`.

use crate::instance::{self, right_to_use};
use crate::prelude::*;

/// The kind.
pub struct SpaceInstance;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

pub use crate::instance::Status;

/// Where the space is, its owner, and its access rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SpaceInstanceSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the space.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// Where the space is. No two instances are at the same place. A caller that sets it needs
    /// `use` on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
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

/// Why a field is refused that describes a space to be made.
const NOT_CREATED: &str =
    "this server does not create spaces; name an existing namespace in spec.clusterRef";

/// Where a space is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SpaceRef")]
pub struct ClusterRef {
    /// Name of the Cluster, which the project must allow. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Name of the namespace in that cluster. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl Kind for SpaceInstance {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "SpaceInstance",
        plural: "spaceinstances",
        singular: "spaceinstance",
        short: &["si"],
        aliases: &["space", "spaces"],
        deletion_warning: "this deletes only the record on this server: the namespace of the space stays in its cluster, with all that is in it",
        description: "SpaceInstance is a space of a project: one namespace of a cluster.",
        unserved_fields: &[
            UnservedField::new("template", NOT_CREATED),
            UnservedField::new("templateRef", NOT_CREATED),
            UnservedField::new("parameters", NOT_CREATED),
        ],
        ..instance::INFO
    };

    const PARTS: Parts<Spec, Status> = Parts {
        ownership: Some(crate::access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &spec.extra_access_rules),
            |spec| &mut spec.owner,
        )),
        on_cluster: Some(|spec| spec.cluster_ref.as_ref().map(|place| place.cluster.as_str())),
        unique_keys: Some(|_, spec| {
            let place = |at: &ClusterRef| instance::place(&[&at.cluster, &at.namespace]);
            spec.cluster_ref.as_ref().map(place).into_iter().collect()
        }),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        instance::clear_observed(&mut new.fields.status);
        // Of a new object, an empty one is an error.
        if old.is_some() {
            instance::drop_empty(&mut new.fields.spec.cluster_ref);
        }
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let (spec, old) = (write.spec(), write.old_spec());
        instance::validate_metadata(write, "spaces", errors);
        if old.is_none_or(|old| old.extra_access_rules != spec.extra_access_rules) {
            ExtraAccess::validate_roles(&spec.extra_access_rules, errors);
        }
        if let Some(at) = &spec.cluster_ref {
            if *at == ClusterRef::default() {
                errors.push(FieldError::required("spec.clusterRef", NOT_CREATED));
                return Ok(());
            }
            instance::validate_cluster_ref(&at.cluster, &at.namespace, None, errors);
        }
        Ok(())
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let (spec, old) = (write.spec(), write.old_spec());
        let is_new_place = old.is_none_or(|old| old.cluster_ref != spec.cluster_ref);
        let place = spec.cluster_ref.as_ref().filter(|_| is_new_place);
        place.and_then(|at| right_to_use(&at.cluster)).into_iter().collect()
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
