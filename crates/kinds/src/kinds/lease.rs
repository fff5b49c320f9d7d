//! Lease (coordination.k8s.io/v1), as in Kubernetes: the leader, and the end of its lease.

use postern_meta::gvk::GroupVersion;
use postern_meta::time::MicroTimestamp;

use crate::prelude::*;

/// The group of leases.
pub const COORDINATION_V1: GroupVersion =
    GroupVersion { group: "coordination.k8s.io", version: "v1" };

/// The kind.
pub struct Lease;

/// The fields next to `metadata`: a lease has a spec and no status.
pub type Fields = crate::Fields<TopLevel>;

/// The fields of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.coordination.v1.LeaseFields")]
pub struct TopLevel {
    /// The holder of the lease, and its duration.
    pub spec: Spec,
}

/// The holder of a lease, and its duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.coordination.v1.LeaseSpec")]
pub struct Spec {
    /// The holder of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long others wait after `renewTime` until they take it, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTimestamp>,
    /// When it was renewed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTimestamp>,
    /// How often it went from one holder to another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// How the next holder is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The preferred holder of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_holder: Option<String>,
}

impl Kind for Lease {
    type Spec = TopLevel;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: COORDINATION_V1,
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        scope: ResourceScope::Namespaced,
        on_command_line: false,
        confidential: false,
        description: "Lease names a leader and the time until which it leads.",
        layout: Layout::TopLevel,
        columns: &[ColumnInfo::text(
            "Holder",
            "The holder of the \
                                                                         lease.",
        )],
        ..Info::DEFAULT
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = &write.spec().spec;
        if let Some(seconds) = spec.lease_duration_seconds.filter(|seconds| *seconds <= 0) {
            let (path, detail) = ("spec.leaseDurationSeconds", "must be greater than 0");
            errors.push(FieldError::invalid(path, i64::from(seconds), detail));
        }
        if let Some(count) = spec.lease_transitions.filter(|count| *count < 0) {
            let (path, detail) = ("spec.leaseTransitions", "must be greater than or equal to 0");
            errors.push(FieldError::invalid(path, i64::from(count), detail));
        }
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if is_given(&spec.preferred_holder) && !is_given(&spec.strategy) {
            let detail = "may only be specified if `strategy` is defined";
            errors.push(FieldError::forbidden("spec.preferredHolder", detail));
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let holder = object.fields.spec.spec.holder_identity.clone();
        vec![Cell::Text(holder.unwrap_or_default())]
    }
}
