//! ProjectSecret: secret data of a project. It has its own data, or labels name a SharedSecret as
//! its source; then a controller copies the data. It can be mirrored to a core Secret. See
//! `docs/reference/shared-secrets.md#project-secrets`.

use std::collections::BTreeMap;

use crate::namespace_names::default_namespace;
use crate::prelude::*;
use crate::project_secret_usage::GET_USAGE;
use crate::secret_data::{self, SecretString};
use crate::secret_entries::GET_ENTRIES;
use crate::secret_entry::GET_ENTRY;
use crate::secret_offer::{self, Offer};
use crate::secret_sync::{
    self, MIRROR, MIRRORED, SHARED_SECRET_NAME, SHARED_SECRET_NAMESPACE, SYNCED, State,
    is_mirrored, required_right,
};
use crate::shared_secret::SharedSecret;

/// The kind.
pub struct ProjectSecret;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

pub use crate::secret_offer::Status;

/// The secret data, its owner, and its access rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectSecretSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The secret data. Keys consist of alphanumeric characters, `-`, `_` or `.`; values are
    /// standard base64 with padding.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub data: BTreeMap<String, SecretText>,
    /// Secret data as text. Write-only: it is written into `data`, over the present values, and
    /// never returned.
    #[serde(skip_serializing)]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub string_data: BTreeMap<String, SecretString>,
    /// Access rules: the other users and teams that get verbs on this object. At most 30; the owner
    /// needs none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
    /// The instances of the project whose Secrets may take the data. By default, there are none. A change requires the verbs
    /// `get` and `update` on the project secret, and `get` on each instance that is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

impl Kind for ProjectSecret {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "ProjectSecret",
        plural: "projectsecrets",
        singular: "projectsecret",
        scope: ResourceScope::Namespaced,
        actions: &[
            Action::GET_STATUS,
            Action::UPDATE_STATUS,
            Action::PATCH_STATUS,
            GET_ENTRIES,
            GET_ENTRY,
            GET_USAGE,
        ],
        description: "ProjectSecret holds sensitive key/value data of a project.",
        strict_fields: Some(StrictFields::OF_SECRETS),
        read_protected: &[&["spec", "data"], &["spec", "stringData"]],
        values: ValuesAt::DATA,
        columns: &[
            ColumnInfo::integer("Keys", "How many keys the secret's data has."),
            ColumnInfo::text("Owner", "The user or team that owns the secret."),
            ColumnInfo::text("Synced", "Whether the data equals that of its source."),
            ColumnInfo::text("Mirrored", "Whether the mirror has the data."),
            ColumnInfo::text("Display Name", "Name shown to people.").wide(),
        ],
        is_counted_in_quotas: true,
        data_source: Some(|metadata| {
            let name = metadata.labels.get(SHARED_SECRET_NAME).filter(|name| !name.is_empty())?;
            let namespace = metadata.labels.get(SHARED_SECRET_NAMESPACE).map(String::as_str);
            let namespace = namespace.filter(|namespace| !namespace.is_empty());
            Some(DataSource {
                kind: &SharedSecret,
                namespace: namespace.unwrap_or(default_namespace()).to_owned(),
                name: name.clone(),
            })
        }),
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Self::Status> = Parts {
        ownership: Some(crate::access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &[]),
            |spec| &mut spec.owner,
        )),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let is_taken = !ctx.is_server() && state(new).source.is_some();
        let spec = &mut new.fields.spec;
        secret_data::prepare(&mut spec.data, &mut spec.string_data, is_taken);
        let data = secret_sync::prepared(&state(new), old.map(state).as_ref(), ctx);
        if let Some(data) = data {
            new.fields.spec.data = data;
        }
        new.fields.status = secret_offer::prepared(offered(new), old.map(offered), ctx);
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, old, .. } = write;
        let (source, before) = (state(new).source, old.and_then(|old| state(old).source));
        let reads = required_right(source.as_ref(), before.as_ref());
        let is_new_mirror =
            is_mirrored(&new.metadata) && old.is_none_or(|old| !is_mirrored(&old.metadata));
        reads
            .into_iter()
            .chain(mirror_rights(new, old.is_none()).filter(|_| is_new_mirror))
            .chain(secret_offer::required_rights(offered(new), old.map(offered)))
            .collect()
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, old, ctx } = write;
        secret_sync::validate("spec.data", &state(new), old.map(state).as_ref(), ctx, errors);
        secret_offer::validate(offered(new), old.map(offered), ctx, errors);
        secret_data::validate_text("spec.stringData", &new.fields.spec.string_data, errors);
        validate_labels(&new.metadata, old.map(|old| &old.metadata), ctx, errors);
        let labels = &new.metadata.labels;
        if labels.contains_key(SHARED_SECRET_NAMESPACE) && state(new).source.is_none() {
            let path = format!("metadata.labels[{SHARED_SECRET_NAME}]");
            errors.push(FieldError::required(
                path,
                "the label for the namespace requires the \
                                                    label for the name",
            ));
        }
        secret_data::validate(Self::INFO.kind, "spec.data", &new.fields.spec.data, errors)
    }

    fn warnings(metadata: &ObjectMeta) -> Vec<String> {
        secret_data::warnings(metadata, "spec.data")
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let (spec, status) = (&object.fields.spec, &object.fields.status);
        let owner = spec.owner.clone().unwrap_or_default();
        vec![
            Cell::count(spec.data.len()),
            Cell::Text(owner.display_name()),
            Cell::Text(status.status_of(SYNCED)),
            Cell::Text(status.status_of(MIRRORED)),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}

/// Adds an error for each label of syncing and mirroring outside of the namespaces of projects. One that is there already
/// may stay, so that others can be taken away.
fn validate_labels(
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    if ctx.project_of_namespace.is_some() {
        return;
    }
    for label in [SHARED_SECRET_NAME, SHARED_SECRET_NAMESPACE, MIRROR] {
        let value = new.labels.get(label);
        if value.is_some() && value != old.and_then(|old| old.labels.get(label)) {
            let detail = "sync and mirror labels are allowed only in the namespace of a project";
            errors.push(FieldError::forbidden(format!("metadata.labels[{label}]"), detail));
        }
    }
}

fn state(draft: &Draft<Fields>) -> State<'_> {
    let source = ProjectSecret::INFO.data_source(&draft.metadata);
    State { source, data: &draft.fields.spec.data }
}

/// The offer in a state of the object.
fn offered(draft: &Draft<Fields>) -> secret_offer::State<'_> {
    let (spec, status) = (&draft.fields.spec, &draft.fields.status);
    secret_offer::State { metadata: &draft.metadata, offer: spec.offer.as_ref(), status }
}

/// The rights that a mirror requires. Callers that may not read the object may be able to read its
/// mirror. So setting the label on an existing object requires the right to read it. The mirror is
/// a Secret, so its writer must be allowed to create one.
fn mirror_rights(draft: &Draft<Fields>, is_new: bool) -> impl Iterator<Item = RequiredRight> {
    let on = |verb, group, resource| Right {
        namespace: draft.metadata.namespace.clone(),
        ..Right::cluster(verb, group, resource, &draft.metadata.name)
    };
    let read = on("get", MANAGEMENT_V1.group, ProjectSecret::INFO.plural);
    let read = (!is_new).then_some(read);
    let create = on("create", CORE_V1.group, "secrets");
    read.into_iter().chain([create]).map(RequiredRight::from)
}
