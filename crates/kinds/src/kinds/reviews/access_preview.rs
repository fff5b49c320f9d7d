//! `AccessPreview`: may the caller do each of these, and what could a key with this scope do? Kubernetes has no such
//! review. See `docs/reference/access-rules.md#previews`.

use super::{REVIEW, resource_access_review, validate_metadata};
use crate::prelude::*;
use crate::rbac::PolicyRule;
use crate::scope::{self, Scope};

/// The kind.
pub struct AccessPreview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The most requests of one preview.
pub const MAX_REQUESTS: usize = 200;

/// The requests that are asked about, and the scope of a key that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessPreviewSpec")]
pub struct Spec {
    /// The requests, at most 200. Each is for a resource, or for a path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub requests: Vec<resource_access_review::Spec>,
    /// The scope of a key that is not created yet. If set, the requests are decided as for a key of the caller with
    /// this scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// The decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AccessPreviewStatus")]
pub struct Status {
    /// The decision about each request, in the order of the requests.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub results: Vec<PreviewedRequest>,
    /// The meaning of the scope of the preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<PreviewedScope>,
}

/// The decision about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.PreviewedRequest")]
pub struct PreviewedRequest {
    /// Whether it would be allowed.
    pub allowed: bool,
    /// The source of the permission, or the missing permission, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The smallest rule of a role that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<MissingRule>,
    /// The smallest addition to the scope of the key that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_scope: Option<Scope>,
}

/// A rule that no role of the caller has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.MissingRule")]
pub struct MissingRule {
    /// The namespace of the role; empty for a role in the whole server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The rule.
    pub rule: PolicyRule,
}

/// The requests that a key with a scope could send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.PreviewedScope")]
pub struct PreviewedScope {
    /// Whether the scope of the caller's key contains it. Otherwise the caller cannot create a key with it.
    pub contained: bool,
    /// The first entry that is not contained, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_contained: String,
    /// The kinds of this server with objects on which the key could do something.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub kinds: Vec<ReachedKind>,
    /// Whether the key reaches every connected cluster, also later ones.
    pub every_cluster: bool,
    /// The names of the connected clusters that it reaches, if not every one; at most 1,000.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<String>,
}

/// A kind with objects on which a key could do something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ReachedKind")]
pub struct ReachedKind {
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// The verbs that it would have on every object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub all: Vec<String>,
    /// The verbs that it would have on some objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub some: Vec<String>,
}

impl Kind for AccessPreview {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "AccessPreview",
        plural: "accesspreviews",
        singular: "accesspreview",
        actions: &[Action::on_own_path(
            Verb::Create,
            Handler::Registry(RegistryAction::AccessPreview),
            "Whether the caller, or a key of the caller with a scope, may send each of several requests.",
        )],
        description: "AccessPreview asks whether the caller may do each of several things, and what a key with a \
                      scope could do.",
        strict_fields: Some(StrictFields {
            not_null: &["spec", "spec.scope"],
            no_null_below: &["spec.scope"],
            ..StrictFields::OF_CREDENTIALS
        }),
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let Spec { requests, scope } = write.spec();
        errors.check_count("spec.requests", requests.len(), MAX_REQUESTS);
        for (index, request) in requests.iter().enumerate().take(MAX_REQUESTS) {
            request.validate(&format!("spec.requests[{index}]"), errors);
        }
        if let Some(scope) = scope {
            scope::validate(scope, "spec.scope", errors);
        }
        validate_metadata(&write.new.metadata, false, errors);
        Ok(())
    }
}
