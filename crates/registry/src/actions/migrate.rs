//! Moves a virtual cluster instance into another project: the requirements and the attempts
//! (`docs/reference/projects.md#migration`). `admit::migrate` admits the writes, and one transaction stores them.

use memchr::memmem;
use postern_kinds::access::MANAGED_BY_ACCESS_RULES;
use postern_kinds::project::{Project, namespace_of};
use postern_kinds::project_migrate_virtual_cluster_instance::{
    ProjectMigrateVirtualClusterInstance, Source, Spec,
};
use postern_kinds::project_prefix;
use postern_kinds::rbac::MANAGED_BY;
use postern_kinds::secret::Secret;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Verb, all, of_reference};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_meta::object::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectMeta, OwnerReference,
};
use postern_meta::status::ApiError;
use serde::Deserialize;

use crate::admit::{self, MigratedSecret, Migration, Previous, Writing};
use crate::permit::Permit;
use crate::permit::ResourceTarget;
use crate::registry::commit::CommitError;
use crate::registry::deciding::ForDecision;
use crate::registry::{EncodedObject, Registry, not_found};
use crate::storage_key;

/// Attempts at one migration, if other writers are faster.
const ATTEMPTS: usize = 64;

/// The maximum number of dependents in an error.
const MAX_NAMED: usize = 10;

/// The objects that are searched before other tasks get the thread.
const OBJECTS_PER_STEP: usize = 512;

/// Moves the instance in the body into the project of the permit.
///
/// # Errors
/// The errors of the table in `docs/reference/projects.md#migration`.
pub(super) async fn migrate(
    registry: &Registry,
    permit: &Permit,
    body: Option<Object>,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let body = body.ok_or_else(|| ApiError::bad_request("the request body is missing"))?;
    let source = Spec::deserialize(&body.fields).unwrap_or_default();
    let source = source.source_virtual_cluster_instance;
    check_names(&body, &source)?;
    for _ in 0..ATTEMPTS {
        registry.cache().wait_until_current().await?;
        let renewed = permit.renewed(registry.cache(), registry.source())?;
        let permit = renewed.as_ref().unwrap_or(permit);
        check_in_project(registry, &body, &source)?;
        let deleting = check_rights(registry, permit, &source)?;
        let related = collect_related(registry, &source).await?;
        // From here to the commit the task does not wait, so other writers have little time to be faster.
        let Some(migration) = read(registry, permit, &source, &related)? else { continue };
        let admitted =
            admit::migrate(&registry.admission(), &deleting, migration, &writing.manager)?;
        match Box::pin(registry.try_commit(admitted, writing.dry_run)).await {
            Ok(_) => return response(permit, &body),
            Err(CommitError::Api(error)) => return Err(error),
            Err(CommitError::Changed(position)) => {
                registry.cache().wait_for_revision(position).await?;
            }
        }
    }
    Err(ApiError::conflict_modified(VirtualClusterInstance.info().group_resource(), &source.name))
}

/// The request body, without fields that do not belong to it.
fn response(permit: &Permit, body: &Object) -> Result<EncodedObject, ApiError> {
    let metadata = ObjectMeta { name: body.metadata.name.clone(), ..ObjectMeta::default() };
    let object = Object { metadata, ..body.clone() };
    EncodedObject::for_action(permit, &ProjectMigrateVirtualClusterInstance, &object)
}

fn invalid(body: &Object, errors: FieldErrors) -> ApiError {
    let kind = ProjectMigrateVirtualClusterInstance.info().group_kind();
    ApiError::invalid(kind, &body.metadata.name, errors)
}

fn field(name: &str) -> String {
    format!("sourceVirtualClusterInstance.{name}")
}

fn check_names(body: &Object, source: &Source) -> Result<(), ApiError> {
    let mut errors = FieldErrors::new();
    let mut check = |name: &str, value: &str, rule: fn(&str) -> Result<(), String>| {
        if value.is_empty() {
            errors.push(FieldError::required(field(name), ""));
        } else {
            errors.check(rule(value), |detail| FieldError::invalid(field(name), value, detail));
        }
    };
    check("name", &source.name, dns1123_subdomain);
    check("namespace", &source.namespace, dns1123_label);
    if errors.is_empty() { Ok(()) } else { Err(invalid(body, errors)) }
}

/// Checks that the namespace can be the namespace of a project. If the name has the prefix of projects, the error
/// does not tell whether it exists: the instance is then not found.
fn check_in_project(registry: &Registry, body: &Object, source: &Source) -> Result<(), ApiError> {
    let namespace = source.namespace.as_str();
    let policy = registry.cache().policy();
    if namespace.starts_with(project_prefix()) || policy.projects().of(namespace).is_some() {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let detail = "must be the namespace of a project";
    errors.push(FieldError::invalid(field("namespace"), namespace, detail));
    Err(invalid(body, errors))
}

/// Checks that the project exists, and the caller's permissions and scope. Returns the permit to delete the instance.
fn check_rights(registry: &Registry, permit: &Permit, source: &Source) -> Result<Permit, ApiError> {
    let project = permit.name();
    if registry.read_to_decide(&Project, None, project)?.is_none() {
        return Err(not_found(&Project, project));
    }
    let (kind, namespace) = (&VirtualClusterInstance, namespace_of(project));
    let from = Some(source.namespace.as_str());
    let deleting = ResourceTarget::object(kind, Verb::Delete, from, &source.name);
    let deleting = permit.decide_uniformly(deleting)?;
    let creating = ResourceTarget::object(kind, Verb::Create, Some(&namespace), "");
    permit.decide_uniformly(ResourceTarget { name: None, ..creating })?;
    Ok(deleting)
}

/// The objects that depend on an instance or that it uses, as of a short time ago.
struct RelatedObjects {
    /// The uid of the instance.
    uid: String,
    /// The name of the Secret with its kubeconfig; empty for none.
    secret: String,
    /// Whether another object refers to this Secret.
    is_shared: bool,
    /// The objects that the garbage collector would delete with the instance.
    dependents: Vec<String>,
}

fn instance(registry: &Registry, source: &Source) -> Result<Previous, ApiError> {
    let kind = &VirtualClusterInstance;
    let found = registry.read_to_decide(kind, Some(&source.namespace), &source.name)?;
    found.ok_or_else(|| not_found(kind, &source.name))?.into_previous()
}

fn secret(registry: &Registry, namespace: &str, name: &str) -> Result<Option<Previous>, ApiError> {
    let found = registry.read_to_decide(&Secret, Some(namespace), name)?;
    found.map(ForDecision::into_previous).transpose()
}

fn secret_name(instance: &Previous) -> String {
    let config = VirtualClusterInstance.kubeconfig(&instance.object);
    config.map(|config| config.secret_name).unwrap_or_default()
}

/// Collects the objects that concern the instance. The time grows with the objects in the project.
async fn collect_related(registry: &Registry, source: &Source) -> Result<RelatedObjects, ApiError> {
    let instance = instance(registry, source)?;
    let (metadata, name) = (&instance.object.metadata, secret_name(&instance));
    let found = secret(registry, &source.namespace, &name)?;
    let is_shared =
        found.is_some() && is_shared(registry, &instance, &source.namespace, &name).await?;
    let moves = found.map(|found| found.object.metadata.uid);
    let dependents = dependents_of(registry, metadata, moves.as_deref()).await?;
    Ok(RelatedObjects { uid: metadata.uid.clone(), secret: name, is_shared, dependents })
}

/// Reads the objects to move; `None` if they have changed since they were collected.
fn read(
    registry: &Registry,
    permit: &Permit,
    source: &Source,
    related: &RelatedObjects,
) -> Result<Option<Migration>, ApiError> {
    let info = VirtualClusterInstance.info();
    let instance = instance(registry, source)?;
    let (project, namespace) = (permit.name(), namespace_of(permit.name()));
    if namespace == source.namespace {
        let text = format!("it is already in the project \"{project}\"");
        return Err(ApiError::conflict(info.group_resource(), &source.name, text));
    }
    // This check comes before other problems of the instance: an existing name does not become free.
    let kind = &VirtualClusterInstance;
    if registry.read_to_decide(kind, Some(&namespace), &source.name)?.is_some() {
        return Err(ApiError::already_exists(info.group_resource(), &source.name));
    }
    if instance.object.metadata.uid != related.uid || secret_name(&instance) != related.secret {
        return Ok(None);
    }
    let secret = secret(registry, &source.namespace, &related.secret)?;
    if secret.is_some() {
        check_secret_rights(permit, source, related, &namespace)?;
    }
    let is_shared = related.is_shared;
    let secret = secret.map(|previous| MigratedSecret { previous, is_shared });
    check_blockers(&instance, secret.as_ref(), &related.dependents)?;
    Ok(Some(Migration { source: instance, secret, namespace }))
}

/// Checks the permissions on the Secret with the kubeconfig, which also moves. After the move,
/// users with permission to read Secrets of the target project can read it. So the caller must be
/// able to read it.
///
/// # Errors
/// 403 with the missing permission.
fn check_secret_rights(
    permit: &Permit,
    source: &Source,
    related: &RelatedObjects,
    namespace: &str,
) -> Result<(), ApiError> {
    let from = |verb| {
        ResourceTarget::object(&Secret, verb, Some(source.namespace.as_str()), &related.secret)
    };
    permit.decide_uniformly(from(Verb::Get))?;
    if !related.is_shared {
        permit.decide_uniformly(from(Verb::Delete))?;
    }
    let create = ResourceTarget::object(&Secret, Verb::Create, Some(namespace), "");
    permit.decide_uniformly(ResourceTarget { name: None, ..create }).map(drop)
}

/// Whether another object refers to a Secret as its kubeconfig. A corrupt object may do so. The Secret then stays,
/// and no object loses it.
async fn is_shared(
    registry: &Registry,
    instance: &Previous,
    namespace: &str,
    name: &str,
) -> Result<bool, ApiError> {
    for kind in all().iter().filter(|kind| kind.may_have_kubeconfig()) {
        let within = Some(namespace).filter(|_| kind.info().is_namespaced());
        let (objects, corrupt) = registry.all_to_decide(*kind, within);
        if !corrupt.is_empty() {
            return Ok(true);
        }
        let with_name = containing(&objects, name).await;
        for object in with_name.into_iter().filter(|one| !one.is(instance)) {
            let object = object.part()?;
            let config = kind.kubeconfig(&object);
            let is_it = config.is_some_and(|config| {
                config.secret_name == name
                    && config.namespace_in(&object.metadata.namespace) == namespace
            });
            if is_it {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The objects with a text in their bytes. It pauses between pieces of work.
async fn containing<'a>(objects: &'a [ForDecision], text: &str) -> Vec<&'a ForDecision> {
    let finder = memmem::Finder::new(text.as_bytes());
    let mut found = Vec::new();
    for some in objects.chunks(OBJECTS_PER_STEP) {
        found.extend(some.iter().filter(|object| object.has_text(&finder)));
        tokio::task::yield_now().await;
    }
    found
}

/// Checks that nothing prevents the migration.
fn check_blockers(
    instance: &Previous,
    secret: Option<&MigratedSecret>,
    dependents: &[String],
) -> Result<(), ApiError> {
    let metadata = &instance.object.metadata;
    let mut blockers = blockers_of("it", metadata, "");
    let secret = secret.map(|secret| (&secret.previous.object.metadata, secret.is_shared));
    if let Some((secret, is_shared)) = secret {
        let what = format!("its Secret \"{}\"", secret.name);
        let of_secret = blockers_of(&what, secret, &metadata.uid);
        // If the Secret stays, finalizers do not matter, and its owners stay with it.
        let counts = |text: &String| !is_shared || text.contains("owned");
        blockers.extend(of_secret.into_iter().filter(counts));
    }
    if !dependents.is_empty() {
        let named = &dependents[..dependents.len().min(MAX_NAMED)];
        let more = dependents.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        blockers.push(format!("it is the owner of {}{more}", named.join(", ")));
    }
    if blockers.is_empty() {
        return Ok(());
    }
    let resource = VirtualClusterInstance.info().group_resource();
    let text = format!("cannot be moved: {}", blockers.join("; "));
    Err(ApiError::conflict(resource, &metadata.name, text))
}

/// The reasons why an object cannot be moved. An owner that also moves is no reason.
fn blockers_of(what: &str, metadata: &ObjectMeta, moves: &str) -> Vec<String> {
    let mut blockers = Vec::new();
    if metadata.is_terminating() {
        blockers.push(format!("{what} is being deleted"));
    }
    let gc_finalizers = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];
    let others = metadata.finalizers.iter().filter(|one| !gc_finalizers.contains(&one.as_str()));
    let others: Vec<&str> = others.map(String::as_str).collect();
    if !others.is_empty() {
        blockers.push(format!("{what} has the finalizers {}", others.join(", ")));
    }
    // An owner in the old namespace would be missing in the new one, and the garbage collector would delete its
    // dependents there.
    let is_left = |one: &&OwnerReference| {
        let kind = of_reference(&one.api_version, &one.kind);
        one.uid != moves && kind.is_some_and(|kind| kind.info().is_namespaced())
    };
    for owner in metadata.owner_references.iter().filter(is_left) {
        let OwnerReference { kind, name, .. } = owner;
        blockers.push(format!("{what} is owned by {kind} \"{name}\", which does not move"));
    }
    blockers
}

/// The objects that the garbage collector would delete with the instance: those with it as owner, except the roles
/// and the Secret, which also move.
async fn dependents_of(
    registry: &Registry,
    owner: &ObjectMeta,
    except_uid: Option<&str>,
) -> Result<Vec<String>, ApiError> {
    let mut dependents = Vec::new();
    for kind in all() {
        if !kind.info().is_namespaced() || !kind.info().is_stored() {
            continue;
        }
        let (objects, corrupt) = registry.all_to_decide(*kind, Some(&owner.namespace));
        // If the keyring is missing for a while, corrupt objects can be read again later.
        let corrupt = corrupt.iter().map(|key| storage_key::display_name(key));
        dependents.extend(corrupt.map(|name| format!("possibly {name}, which is corrupt")));
        for object in containing(&objects, &owner.uid).await {
            let metadata = object.part::<Object>()?.metadata;
            let names_it = metadata.owner_references.iter().any(|one| one.uid == owner.uid);
            let managed = metadata.labels.get(MANAGED_BY).map(String::as_str);
            let moves = managed == Some(MANAGED_BY_ACCESS_RULES)
                || except_uid == Some(metadata.uid.as_str());
            if names_it && !moves {
                dependents.push(format!("{} \"{}\"", kind.info().kind, metadata.name));
            }
        }
    }
    Ok(dependents)
}
