//! The warnings about the objects that a deletion leaves behind. Without them, clients print
//! "deleted" and nothing else.

use postern_auth::attributes::Attributes;
use postern_auth::policy::{Decision, Policy};
use postern_kinds::AnyKind;
use postern_kinds::project::{self, Project};

use crate::permit::Permit;
use crate::registry::Registry;

/// The objects of a kind that are looked at, until one is found that the caller may see.
const MAX_OBJECTS: usize = 100;

/// The warnings about the deletion of an object, or of a collection. The deletion of a project has those about the
/// instances in it, if the caller may see one. No other namespace has any.
pub fn deletion_warnings(registry: &Registry, permit: &Permit) -> Vec<String> {
    let own = permit.kind().info().deletion_warning;
    let own = Some(own.to_owned()).filter(|warning| !warning.is_empty());
    let inside = namespace_deleted_by(permit).map(|namespace| {
        let policy = registry.cache().policy();
        let kinds = postern_kinds::all().iter().copied().filter(|kind| has_records(*kind));
        let found = kinds.filter(|kind| sees_one(registry, &policy, permit, *kind, &namespace));
        let warning = |kind: &dyn AnyKind| {
            let info = kind.info();
            format!("{} in it: {}", info.plural, info.deletion_warning)
        };
        found.map(warning).collect::<Vec<_>>()
    });
    own.into_iter().chain(inside.unwrap_or_default()).collect()
}

/// The namespace that is deleted with a project.
fn namespace_deleted_by(permit: &Permit) -> Option<String> {
    let is_project = permit.kind().info().group_kind() == Project.info().group_kind();
    (is_project && !permit.name().is_empty()).then(|| project::namespace_of(permit.name()))
}

/// Whether the objects of a kind are in namespaces, and records of something that stays.
fn has_records(kind: &dyn AnyKind) -> bool {
    let info = kind.info();
    info.is_namespaced() && !info.deletion_warning.is_empty()
}

fn sees_one(
    registry: &Registry,
    policy: &Policy,
    permit: &Permit,
    kind: &dyn AnyKind,
    namespace: &str,
) -> bool {
    let info = kind.info();
    let objects = registry.page_of_namespace_to_decide(kind, namespace, None, MAX_OBJECTS);
    objects.iter().any(|object| {
        let attributes = Attributes::Resource {
            verb: "get",
            group: info.version.group,
            resource: info.plural,
            subresource: "",
            namespace,
            name: object.name(),
        };
        let identity = permit.credential().identity();
        policy.decide(identity, &attributes) == Decision::Allow
    })
}
