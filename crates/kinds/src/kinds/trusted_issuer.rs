//! TrustedIssuer: a platform that issues tokens (JWTs) to workloads, which exchange them for access
//! keys. See `docs/reference/workload-identity.md`.

use postern_meta::names::dns1123_subdomain;
use postern_meta::object::{ObjectMeta, OwnerReference};

use crate::cluster::Cluster;
use crate::connector::{check_issuer, validate_ca};
use crate::context::NamedObject;
use crate::identities::{only_disables, rights_to_impersonate_all};
use crate::instance::right_to_use;
use crate::prelude::*;

/// The platforms.
pub const TYPES: &[&str] = &["GitHubActions", "GitLab", "Kubernetes", "Generic"];

/// The issuer of GitHub Actions, which is the default of its type.
const GITHUB: &str = "https://token.actions.githubusercontent.com";

const THUMBPRINTS: &str = "spec.keyThumbprints";

/// The most thumbprints: clusters have one key, and two while it is replaced.
const MAX_THUMBPRINTS: usize = 20;

/// The characters of a SHA-256 digest in base64url.
const THUMBPRINT_CHARS: usize = 43;

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
    /// The issuer, exactly as its tokens name it. Required. For `GitHubActions`, the default is the issuer of github.com.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The Cluster that issues the tokens. Its keys are fetched through its kubeconfig or its agent, so they need no address
    /// that this server can reach otherwise, and only those in `keyThumbprints` count. The caller needs `use` on the Cluster.
    /// The issuer ends with this Cluster: a later one of the same name is not trusted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The SHA-256 thumbprints (RFC 7638, base64url) of the keys that sign the tokens of `cluster`,
    /// at most 20. Required with `cluster`: the statements of the cluster or its agent about its
    /// keys are not enough to trust them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub key_thumbprints: Vec<String>,
    /// The certificate authorities of the issuer, in PEM and then in base64. By default, those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
    /// Whether the issuer is disabled. Then none of its tokens is exchanged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// The uid of the Cluster that issues the tokens, from when it was named: the server's owner reference tells it. `None` for
/// an issuer without a Cluster, and for one that has lost its reference.
pub fn cluster_uid<'a>(metadata: &'a ObjectMeta, spec: &Spec) -> Option<&'a str> {
    metadata.only_owner_uid(|one| names(one, &spec.cluster))
}

/// Adds errors for thumbprints that are missing, too many or of another form.
fn check_thumbprints(thumbprints: &[String], errors: &mut FieldErrors) {
    if thumbprints.is_empty() {
        let detail = "must have the thumbprints of the keys that sign the tokens of spec.cluster";
        errors.push(FieldError::required(THUMBPRINTS, detail));
    }
    errors.check_count(THUMBPRINTS, thumbprints.len(), MAX_THUMBPRINTS);
    for (index, thumbprint) in thumbprints.iter().enumerate().take(MAX_THUMBPRINTS) {
        let is_base64url =
            thumbprint.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if thumbprint.len() != THUMBPRINT_CHARS || !is_base64url {
            let detail = "must be a SHA-256 thumbprint: 43 characters of base64url without padding";
            let path = format!("{THUMBPRINTS}[{index}]");
            errors.push(FieldError::invalid(path, thumbprint.as_str(), detail));
        }
    }
}

/// Whether an issuer is GitHub's, or that of an enterprise there.
fn is_of_github(issuer: &str) -> bool {
    issuer.strip_prefix(GITHUB).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn names(reference: &OwnerReference, cluster: &str) -> bool {
    let Info { kind, version, .. } = Cluster::INFO;
    reference.kind == kind
        && reference.name == cluster
        && reference.api_version == version.to_string()
}

/// Makes the Cluster of a new name an owner of the issuer, and keeps the owner of an old name. So the garbage collector
/// deletes the issuer with the Cluster, and a client cannot change which Cluster it is.
fn bind_to_cluster(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
    let cluster = &new.fields.spec.cluster;
    let old_cluster = old.map(|old| &old.fields.spec.cluster);
    let references = &mut new.metadata.owner_references;
    references
        .retain(|one| !names(one, cluster) && !old_cluster.is_some_and(|old| names(one, old)));
    let uid = match old.filter(|_| old_cluster == Some(cluster)) {
        Some(old) => cluster_uid(&old.metadata, &old.fields.spec).map(str::to_owned),
        None => (ctx.uid_of_object)(NamedObject::Cluster(cluster)),
    };
    let Some(uid) = uid.filter(|_| !cluster.is_empty()) else { return };
    let Info { kind, version, .. } = Cluster::INFO;
    let (api_version, kind, name) = (version.to_string(), kind.to_owned(), cluster.clone());
    // A uid may be there only once.
    references.retain(|one| one.uid != uid);
    references.push(OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() });
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
        strict_fields: Some(StrictFields {
            no_unknown_below: &["spec"],
            not_null: &["spec", "spec.disabled"],
            is_closed: true,
            ..StrictFields::OURS
        }),
        columns: &[
            ColumnInfo::text("Type", "The platform."),
            ColumnInfo::text("Issuer", "The issuer, or the cluster that issues the tokens."),
            ColumnInfo::boolean("Enabled", "Whether its tokens are exchanged."),
        ],
        ..Info::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        if spec.r#type == TYPES[0] && spec.issuer.is_empty() && spec.cluster.is_empty() {
            GITHUB.clone_into(&mut spec.issuer);
        }
        bind_to_cluster(new, old, ctx);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, old, .. } = write;
        let Spec { r#type, issuer, cluster, key_thumbprints, ca_data, .. } = write.spec();
        if r#type.is_empty() {
            errors.push(FieldError::required("spec.type", "must name the platform"));
        } else {
            errors.check_supported("spec.type", r#type, TYPES);
        }
        if cluster.is_empty() {
            check_issuer("spec.issuer", issuer, errors);
            if !key_thumbprints.is_empty() {
                let detail =
                    "must not be set without spec.cluster: the keys are those of the issuer";
                errors.push(FieldError::forbidden(THUMBPRINTS, detail));
            }
            if is_of_github(issuer) && r#type != TYPES[0] && !r#type.is_empty() {
                let detail = "must be GitHubActions for this issuer: its tokens need the checks of this type";
                errors.push(FieldError::invalid("spec.type", r#type.as_str(), detail));
            }
        } else {
            errors.check_value("spec.cluster", cluster, dns1123_subdomain(cluster));
            let is_new = old.is_none_or(|old| old.fields.spec.cluster != *cluster);
            if errors.is_empty() && is_new && cluster_uid(&new.metadata, write.spec()).is_none() {
                errors.push(FieldError::not_found("spec.cluster", cluster.as_str()));
            }
            if !ca_data.is_empty() {
                let detail = "must not be set together with spec.cluster, whose keys are in spec.keyThumbprints";
                errors.push(FieldError::forbidden("spec.caData", detail));
            }
            // One from before they were required can be disabled.
            let is_as_old = old.is_some_and(|old| {
                let old = &old.fields.spec;
                (&old.issuer, &old.key_thumbprints, &old.cluster)
                    == (issuer, key_thumbprints, cluster)
            });
            if !is_as_old {
                check_issuer("spec.issuer", issuer, errors);
                check_thumbprints(key_thumbprints, errors);
            }
            if r#type != "Kubernetes" && !r#type.is_empty() {
                let detail = "must be Kubernetes if spec.cluster is set";
                errors.push(FieldError::invalid("spec.type", r#type.as_str(), detail));
            }
        }
        validate_ca(ca_data, errors);
        Ok(())
    }

    /// A caller that names an issuer can be every workload of it. Disabling an issuer is not naming
    /// one.
    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let (spec, old) = (write.spec(), write.old_spec());
        if old.is_some_and(|old| only_disables(spec, old, |spec| &mut spec.disabled)) {
            return Vec::new();
        }
        rights_to_impersonate_all().into_iter().chain(right_to_use(&spec.cluster)).collect()
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
