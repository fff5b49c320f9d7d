//! TrustedIssuer: a platform whose tokens (JWTs) workloads exchange for access keys. See
//! `docs/reference/workload-identity.md`.

use postern_meta::names::dns1123_subdomain;

use crate::connector::{check_issuer, validate_ca};
use crate::identities::{only_disables, rights_to_impersonate_all};
use crate::prelude::*;

/// The platforms.
pub const TYPES: &[&str] = &["GitHubActions", "GitLab", "Kubernetes", "Generic"];

/// The issuer of GitHub Actions, which is the default of its type.
const GITHUB: &str = "https://token.actions.githubusercontent.com";

/// The kind.
pub struct TrustedIssuer;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The platform, and where its keys are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.TrustedIssuerSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the issuer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The platform. It decides which claims a WorkloadIdentity must match. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = TYPES))]
    pub r#type: String,
    /// The issuer, exactly as its tokens name it. Required, unless `cluster` is set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The Cluster that issues the tokens. Its keys are fetched through its kubeconfig, so they need no address that this
    /// server can reach otherwise. The caller needs `use` on the Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The certificate authorities of the issuer, in PEM and then in base64. By default, those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
    /// Whether the issuer is disabled. Then none of its tokens is exchanged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

impl Kind for TrustedIssuer {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "TrustedIssuer",
        plural: "trustedissuers",
        singular: "trustedissuer",
        confidential: false,
        description: "TrustedIssuer is a platform whose tokens workloads exchange for access keys.",
        ..Info::DEFAULT
    };

    const STRICT_FIELDS: StrictFields = StrictFields {
        no_unknown_below: &["spec"],
        not_null: &["spec", "spec.disabled"],
        is_closed: true,
        ..StrictFields::OURS
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::text("Type", "The platform."),
        ColumnInfo::text("Issuer", "The issuer, or the cluster that issues the tokens."),
        ColumnInfo::boolean("Enabled", "Whether its tokens are exchanged."),
    ];

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        if spec.r#type == TYPES[0] && spec.issuer.is_empty() && spec.cluster.is_empty() {
            GITHUB.clone_into(&mut spec.issuer);
        }
    }

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let Spec { r#type, issuer, cluster, ca_data, .. } = &new.fields.spec;
        if r#type.is_empty() {
            errors.push(FieldError::required("spec.type", "must name the platform"));
        } else if !TYPES.contains(&r#type.as_str()) {
            errors.push(FieldError::not_supported("spec.type", r#type.as_str(), TYPES));
        }
        if cluster.is_empty() {
            check_issuer("spec.issuer", issuer, errors);
        } else {
            errors.check(dns1123_subdomain(cluster), |detail| {
                FieldError::invalid("spec.cluster", cluster.as_str(), detail)
            });
            for (path, other) in [("spec.issuer", issuer), ("spec.caData", ca_data)] {
                if !other.is_empty() {
                    let detail = "must not be set together with spec.cluster: the cluster says it";
                    errors.push(FieldError::forbidden(path, detail));
                }
            }
            if r#type != "Kubernetes" && !r#type.is_empty() {
                let detail = "must be Kubernetes if spec.cluster is set";
                errors.push(FieldError::invalid("spec.type", r#type.as_str(), detail));
            }
        }
        validate_ca(ca_data, errors);
        Ok(())
    }

    /// A caller who names an issuer can be every workload of it. To disable an issuer is not to name one.
    fn required_rights(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
    ) -> Vec<RequiredRight> {
        let spec = &new.fields.spec;
        let old = old.map(|old| &old.fields.spec);
        if old.is_some_and(|old| only_disables(spec, old, |spec| &mut spec.disabled)) {
            return Vec::new();
        }
        let cluster = Some(&spec.cluster).filter(|cluster| !cluster.is_empty());
        let cluster =
            cluster.map(|name| Right::cluster("use", MANAGEMENT_V1.group, "clusters", name));
        rights_to_impersonate_all().into_iter().chain(cluster.map(RequiredRight::from)).collect()
    }

    fn rights_to_create() -> Vec<RequiredRight> {
        rights_to_impersonate_all().into()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let Spec { r#type, issuer, cluster, disabled, .. } = &object.fields.spec;
        let issuer = if cluster.is_empty() { issuer.clone() } else { format!("cluster/{cluster}") };
        vec![Cell::Text(r#type.clone()), Cell::Text(issuer), Cell::Text((!disabled).to_string())]
    }
}
