//! Namespace (core/v1): where namespaced objects live.
//!
//! A controller of the server empties a namespace that is being deleted. A namespace of a project is made
//! and deleted with its Project; which project that is, its label says, which only the server sets.

use postern_meta::names::dns1123_label;

use crate::namespace_names::{permanent_namespaces, project_prefix};
use crate::prelude::*;
use crate::rbac::{PROJECT_LABEL, PolicyPart};

/// The finalizer in `spec.finalizers` of a namespace that is not empty yet, as in Kubernetes.
pub const CONTENT_FINALIZER: &str = "kubernetes";

/// The label with the namespace's own name, as in Kubernetes: clients select by it.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The kind.
pub struct Namespace;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The finalizers that block the deletion of the namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.core.v1.NamespaceSpec")]
pub struct Spec {
    /// Must be empty before the namespace is removed. Only the server sets it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"), extend("readOnly" = true))]
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
    /// The conditions that keep the deletion of the namespace waiting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
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
        selectable_fields: &[SelectableField::at("status.phase")],
        description: "Namespace is where namespaced objects live and their names are unique.",
        columns: &[ColumnInfo::text("Status", "Whether the namespace is in use or being deleted.")],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> =
        Parts { policy: Some(PolicyPart::Namespace), ..Parts::DEFAULT };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        if let Some(old) = old {
            // Both belong to the server: a client's write leaves them as they are.
            new.fields.clone_from(&old.fields);
        } else {
            // As in an update, the fields from the client are not kept.
            let spec = Spec { finalizers: vec![CONTENT_FINALIZER.to_owned()] };
            let status = Status { phase: "Active".to_owned(), ..Status::default() };
            new.fields = Fields { spec, status };
        }
        let name = new.metadata.name.clone();
        let labels = &mut new.metadata.labels;
        labels.insert(NAME_LABEL.to_owned(), name);
        // A client that leaves the label out does not mean to change it.
        let project = old.and_then(|old| old.metadata.labels.get(PROJECT_LABEL));
        if let (Some(project), false) = (project, labels.contains_key(PROJECT_LABEL)) {
            labels.insert(PROJECT_LABEL.to_owned(), project.clone());
        }
        if let Some(old) = old.filter(|_| project.is_some() && !ctx.is_server()) {
            keep_project(&mut new.metadata, &old.metadata);
        }
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, old, ctx } = write;
        let name = new.metadata.name.as_str();
        if old.is_none() && name.starts_with(project_prefix()) && !ctx.is_server() {
            return Err(ApiError::forbidden(
                Self::INFO.group_resource(),
                name,
                format!("names that begin with {} are reserved for projects", project_prefix()),
            ));
        }
        if let Err(detail) = dns1123_label(name) {
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
        let project = |metadata: &ObjectMeta| metadata.labels.get(PROJECT_LABEL).cloned();
        let may_set = old.is_none() && ctx.is_server();
        if !may_set && project(&new.metadata) != old.and_then(|old| project(&old.metadata)) {
            let path = format!("metadata.labels[{PROJECT_LABEL}]");
            let detail = "only the server can set it, on the namespace of a project";
            errors.push(FieldError::forbidden(path, detail));
        }
        if !ctx.is_server() {
            validate_owners(&new.metadata, old.map(|old| &old.metadata), errors);
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        vec![Cell::Text(object.fields.status.phase.clone())]
    }

    fn check_delete(metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        let name = metadata.name.as_str();
        let forbidden =
            |why: &str| Err(ApiError::forbidden(Self::INFO.group_resource(), name, why));
        if permanent_namespaces().contains(&name) {
            return forbidden(
                "this namespace may not be deleted; if it is corrupt, the next start creates it \
                 again",
            );
        }
        // The collector deletes it when its project is gone, and for no other owner.
        let is_servers = match ctx.writer {
            WriterKind::Server => true,
            WriterKind::Collector => has_only_project(metadata),
            WriterKind::Client | WriterKind::Master => false,
        };
        match metadata.labels.get(PROJECT_LABEL) {
            Some(project) if !is_servers => forbidden(&format!(
                "it belongs to the project {project}, and is deleted with it: delete the project"
            )),
            _ => Ok(()),
        }
    }

    fn begin_delete(fields: &mut Fields) {
        "Terminating".clone_into(&mut fields.status.phase);
    }

    fn blocks_deletion(spec: &Spec) -> bool {
        !spec.finalizers.is_empty()
    }
}

/// Whether a reference names a project.
fn is_project(one: &OwnerReference) -> bool {
    one.kind == "Project" && one.api_version == MANAGEMENT_V1.to_string()
}

/// Whether all owners of a namespace are its project.
fn has_only_project(metadata: &ObjectMeta) -> bool {
    let project = metadata.labels.get(PROJECT_LABEL);
    metadata.owner_references.iter().all(|one| is_project(one) && Some(&one.name) == project)
}

/// Puts the references of a namespace to its project back, as the label. Without them, the project would not know it for
/// its own.
fn keep_project(new: &mut ObjectMeta, old: &ObjectMeta) {
    for reference in old.owner_references.iter().filter(|one| is_project(one)) {
        if !new.owner_references.contains(reference) {
            new.owner_references.push(reference.clone());
        }
    }
}

/// Adds an error for each owner that a client gives the namespace of a project, or changes: when such an owner is gone,
/// the garbage collector deletes the namespace with all that is in it. Others can be taken away.
fn validate_owners(new: &ObjectMeta, old: Option<&ObjectMeta>, errors: &mut FieldErrors) {
    let Some(project) = new.labels.get(PROJECT_LABEL) else { return };
    let known = old.map_or(&[][..], |old| &old.owner_references);
    let given = new.owner_references.iter().enumerate();
    for (index, _) in given.filter(|(_, owner)| !known.contains(owner)) {
        let detail = format!(
            "the namespace belongs to the project {project} and accepts no other owner: delete \
             the project"
        );
        errors.push(FieldError::forbidden(format!("metadata.ownerReferences[{index}]"), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Caller;
    use crate::principal::NoPrincipals;

    fn namespace(name: &str, project: Option<&str>) -> Draft<Fields> {
        let labels = project.map(|project| (PROJECT_LABEL.to_owned(), project.to_owned()));
        let labels = labels.into_iter().collect();
        let metadata = ObjectMeta { name: name.to_owned(), labels, ..ObjectMeta::default() };
        Draft { metadata, fields: Fields::default() }
    }

    fn is_accepted(
        new: Draft<Fields>,
        old: Option<&Draft<Fields>>,
        is_server: bool,
    ) -> Result<(), String> {
        let caller = Caller::default();
        let now = Timestamp::from_unix_seconds(0);
        let writer = if is_server { WriterKind::Server } else { WriterKind::Master };
        let ctx = Context { writer, ..Context::of(&caller, now, &NoPrincipals) };
        let (mut new, mut errors) = (new, FieldErrors::new());
        Namespace::prepare(&mut new, old, &ctx);
        Namespace::validate(&Write { new: &new, old, ctx: &ctx }, &mut errors)
            .map_err(|error| error.status().message.clone())?;
        errors.into_result().map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_project_of_a_namespace_is_set_by_the_server_at_the_start_and_never_after() {
        let (none, red) = (namespace("a", None), namespace("a", Some("red")));
        for (new, old, is_server, accepted) in [
            (&none, None, false, true),
            (&red, None, false, false),
            (&red, None, true, true),
            (&red, Some(&red), false, true),
            (&none, Some(&red), false, true),
            (&red, Some(&none), false, false),
            (&red, Some(&none), true, false),
            (&namespace("a", Some("blue")), Some(&red), false, false),
            (&namespace("a", Some("blue")), Some(&red), true, false),
        ] {
            let result = is_accepted(new.clone(), old, is_server);
            assert_eq!(result.is_ok(), accepted, "{:?} {result:?}", new.metadata.labels);
        }
        let mut kept = none;
        let caller = Caller::default();
        let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
        Namespace::prepare(&mut kept, Some(&red), &ctx);
        assert_eq!(kept.metadata.labels[PROJECT_LABEL], "red");
    }

    /// A caller that could change the namespace of a project, but not delete it, gave it an owner
    /// that was gone already. Then the garbage collector deleted it, with the secrets in it.
    #[test]
    fn a_project_s_namespace_takes_no_owner_from_clients_and_keeps_its_project() {
        let project = OwnerReference {
            api_version: "management.platform.sh/v1".to_owned(),
            kind: "Project".to_owned(),
            name: "red".to_owned(),
            uid: "u1".to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let gone = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            uid: "gone".to_owned(),
            controller: None,
            ..project.clone()
        };
        let blocking = OwnerReference { block_owner_deletion: Some(true), ..project.clone() };
        let other = OwnerReference { uid: "u2".to_owned(), ..project.clone() };
        let with = |project: Option<&str>, owners: &[&OwnerReference]| {
            let mut namespace = namespace("p-red", project);
            namespace.metadata.owner_references = owners.iter().copied().cloned().collect();
            namespace
        };
        let red = || Some("red");
        let (own, bad) = (with(red(), &[&project]), with(red(), &[&project, &gone]));
        for (new, old, is_server, accepted) in [
            (with(red(), &[&project, &gone]), &own, false, false),
            (with(None, &[&project, &gone]), &own, false, false),
            (with(red(), &[&gone]), &own, false, false),
            (with(red(), &[&blocking]), &own, false, false),
            (with(red(), &[&other]), &own, false, false),
            (with(red(), &[&project, &gone]), &own, true, true),
            (with(red(), &[&project]), &own, false, true),
            (with(red(), &[]), &own, false, true),
            // An owner that an older version has accepted can be removed.
            (with(red(), &[&project]), &bad, false, true),
            (with(red(), &[&project, &gone]), &bad, false, true),
            (with(None, &[&gone]), &with(None, &[]), false, true),
        ] {
            let owners = new.metadata.owner_references.clone();
            let result = is_accepted(new, Some(old), is_server);
            assert_eq!(result.is_ok(), accepted, "{owners:?} {result:?}");
            let text = result.err().unwrap_or_default();
            assert_eq!(text.contains("metadata.ownerReferences["), !accepted, "{text}");
        }
        let caller = Caller::default();
        let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
        let mut kept = with(red(), &[]);
        Namespace::prepare(&mut kept, Some(&own), &ctx);
        assert_eq!(kept.metadata.owner_references, [project]);
    }

    #[test]
    fn names_of_projects_namespaces_are_reserved_for_the_server() {
        assert!(is_accepted(namespace("p-a", None), None, true).is_ok());
        let error = is_accepted(namespace("p-a", None), None, false).unwrap_err();
        assert!(error.contains("are reserved for projects"), "{error}");
        assert!(is_accepted(namespace("a.b", None), None, true).unwrap_err().contains("RFC 1123"));
    }

    #[test]
    fn a_project_s_namespace_is_deleted_by_the_server_alone_and_permanent_ones_by_nobody() {
        for (name, project, by_clients, by_server) in [
            ("a", None, true, true),
            ("p-red", Some("red"), false, true),
            ("default", None, false, false),
            ("platform", None, false, false),
        ] {
            let metadata = namespace(name, project).metadata;
            let caller = Caller::default();
            let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
            for (writer, allowed) in
                [(WriterKind::Master, by_clients), (WriterKind::Server, by_server)]
            {
                let ctx = Context { writer, ..ctx };
                let result = Namespace::check_delete(&metadata, &ctx);
                assert_eq!(result.is_ok(), allowed, "{name}, by {writer:?}");
            }
        }
    }
}
