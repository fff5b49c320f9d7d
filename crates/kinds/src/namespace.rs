//! Namespace (core/v1): where namespaced objects live.
//!
//! A controller of the server empties a namespace that is being deleted. Here are only the fields.

use postern_meta::names::dns1123_label;

use crate::names::PERMANENT_NAMESPACES;
use crate::prelude::*;

/// The finalizer in `spec.finalizers` of a namespace that is not empty yet, as in Kubernetes.
pub const CONTENT_FINALIZER: &str = "kubernetes";

/// The label with the namespace's own name, as in Kubernetes: clients select by it.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The prefix of the namespaces of projects. Clients may not create one (decision 1).
pub const PROJECT_PREFIX: &str = "p-";

/// The kind.
pub struct Namespace;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// What blocks the deletion of the namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.core.v1.NamespaceSpec")]
pub struct Spec {
    /// Must be empty before the namespace is removed. Only the server sets it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub finalizers: Vec<String>,
}

/// Whether the namespace is in use or being deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.core.v1.NamespaceStatus")]
pub struct Status {
    /// `Active` or `Terminating`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
}

impl Kind for Namespace {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        version: CORE_V1,
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short: &["ns"],
        verbs: &[
            Verb::Create,
            Verb::Delete,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Update,
            Verb::Watch,
        ],
        confidential: false,
        description: "Namespace is where namespaced objects live and their names are unique.",
        ..Info::DEFAULT
    };

    const COLUMNS: &'static [ColumnInfo] =
        &[ColumnInfo::text("Status", "Whether the namespace is in use or being deleted.")];

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        if let Some(old) = old {
            // Both belong to the server: a client's write leaves them as they are.
            new.fields.clone_from(&old.fields);
        } else {
            new.fields.spec.finalizers = vec![CONTENT_FINALIZER.to_owned()];
            "Active".clone_into(&mut new.fields.status.phase);
        }
        let name = new.metadata.name.clone();
        new.metadata.labels.insert(NAME_LABEL.to_owned(), name);
    }

    fn validate(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let name = new.metadata.name.as_str();
        if old.is_none() && name.starts_with(PROJECT_PREFIX) {
            return Err(ApiError::forbidden(
                Self::INFO.group_resource(),
                name,
                format!("names that begin with {PROJECT_PREFIX} are reserved for projects"),
            ));
        }
        if let Err(detail) = dns1123_label(name) {
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        vec![Cell::Text(object.fields.status.phase.clone())]
    }

    fn check_delete(metadata: &ObjectMeta) -> Result<(), ApiError> {
        if PERMANENT_NAMESPACES.contains(&metadata.name.as_str()) {
            return Err(ApiError::forbidden(
                Self::INFO.group_resource(),
                &metadata.name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    fn begin_delete(fields: &mut Fields) {
        "Terminating".clone_into(&mut fields.status.phase);
    }

    fn blocks_deletion(spec: &Spec) -> bool {
        !spec.finalizers.is_empty()
    }
}
