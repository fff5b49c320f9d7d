//! The lists of a project in addition to its objects: its members, and the clusters that it may use
//! (`docs/reference/projects.md#subresources`).

use std::collections::{BTreeMap, BTreeSet};

use postern_auth::attributes::Attributes;
use postern_kinds::cluster::{self, Cluster, endpoint_annotations};
use postern_kinds::project::{Fields, member_uids, members_binding, namespace_of};
use postern_kinds::project_clusters::{
    self, ClusterMetadata, ClusterSummary, ProjectCluster, ProjectClusters,
};
use postern_kinds::project_members::{self, MemberInfo, ProjectMember, ProjectMembers};
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::team::{self, Team};
use postern_kinds::user::{self, User};
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Info, Principal};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use serde::Deserialize;

use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// The objects that are read before other tasks get the thread.
const OBJECTS_PER_READ: usize = 64;

/// The members of the project that the permit is for.
///
/// # Errors
/// 404.
pub(super) async fn members(
    registry: &Registry,
    permit: &Permit,
) -> Result<EncodedObject, ApiError> {
    let project = Fields::deserialize(&registry.stored(permit).await?.fields).unwrap_or_default();
    let mut bindings: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut listed = project_members::Spec::default();
    for (index, member) in project.spec.members.iter().enumerate() {
        if index % OBJECTS_PER_READ == OBJECTS_PER_READ - 1 {
            tokio::task::yield_now().await;
        }
        let Some(principal) = member.principal() else {
            if member.is_all_users() {
                let info = MemberInfo { name: member.name.clone(), ..MemberInfo::default() };
                listed.users.push(ProjectMember { info, cluster_role: member.role().to_owned() });
            }
            continue;
        };
        let role = member.role();
        if !bindings.contains_key(role) {
            bindings.insert(role, uids_of(registry, permit.name(), role)?);
        }
        let uid = bindings.get(role).and_then(|uids| uids.get(&principal.group()));
        let info = info_of(registry, principal, uid.map_or("", String::as_str))?;
        let member = ProjectMember { info, cluster_role: role.to_owned() };
        match principal {
            Principal::User(_) => listed.users.push(member),
            Principal::Team(_) => listed.teams.push(member),
        }
    }
    EncodedObject::with_fields(permit, &ProjectMembers, &listed)
}

/// The uids of the members with a role.
fn uids_of(
    registry: &Registry,
    project: &str,
    role: &str,
) -> Result<BTreeMap<String, String>, ApiError> {
    let namespace = namespace_of(project);
    let found = registry.read_to_decide(&RoleBinding, Some(&namespace), &members_binding(role))?;
    let binding: Option<Object> = found.map(|found| found.part()).transpose()?;
    Ok(binding.map(|binding| member_uids(&binding.metadata)).unwrap_or_default())
}

/// The names of a user or team, if it has this uid; otherwise only the given name.
fn info_of(
    registry: &Registry,
    principal: Principal<'_>,
    uid: &str,
) -> Result<MemberInfo, ApiError> {
    let (kind, name): (&dyn AnyKind, _) = match principal {
        Principal::User(name) => (&User, name),
        Principal::Team(name) => (&Team, name),
    };
    let found = registry.read_to_decide(kind, None, name)?;
    let found: Option<Object> = found.map(|found| found.part()).transpose()?;
    let alone = MemberInfo { name: name.to_owned(), ..MemberInfo::default() };
    let Some(object) = found.filter(|object| object.metadata.uid == uid) else { return Ok(alone) };
    let (display_name, username) = match principal {
        Principal::User(_) => {
            let spec = user::Fields::deserialize(&object.fields).unwrap_or_default().spec;
            (spec.display_name, spec.username)
        }
        Principal::Team(_) => {
            let spec = team::Fields::deserialize(&object.fields).unwrap_or_default().spec;
            (spec.display_name, spec.username)
        }
    };
    Ok(MemberInfo { display_name, username, ..alone })
}

/// The clusters that the project may use and that the caller may know. The caller may know clusters that it may get
/// or use, clusters that the project names, and clusters of instances that it may get. The scope of the key was
/// checked for the project.
///
/// # Errors
/// 404.
pub(super) async fn clusters(
    registry: &Registry,
    permit: &Permit,
) -> Result<EncodedObject, ApiError> {
    let project = Fields::deserialize(&registry.stored(permit).await?.fields).unwrap_or_default();
    let of_instances = clusters_of_instances(registry, permit).await?;
    let is_named = |name: &str| {
        let allowed = project.spec.allowed_clusters.iter().flatten();
        allowed.into_iter().any(|one| one.name == name)
    };
    let (mut clusters, mut after) = (Vec::new(), None);
    loop {
        let mut page = registry.page_to_decide(&Cluster, after.as_ref(), OBJECTS_PER_READ);
        for object in &page {
            let name = object.name();
            let may_know = || {
                may(permit, Cluster.info(), "", name)
                    || is_named(name)
                    || of_instances.contains(name)
            };
            if project.spec.allows_cluster(name) && may_know() {
                let is_whole = may_get(permit, name);
                clusters.push(summary_of(&object.part()?, is_whole));
            }
        }
        after = page.pop();
        if after.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    EncodedObject::with_fields(permit, &ProjectClusters, &project_clusters::Spec { clusters })
}

/// The names of the clusters with instances of the project that the caller may get or use.
async fn clusters_of_instances(
    registry: &Registry,
    permit: &Permit,
) -> Result<BTreeSet<String>, ApiError> {
    let namespace = namespace_of(permit.name());
    let kinds: [&dyn AnyKind; 2] = [&VirtualClusterInstance, &SpaceInstance];
    let mut clusters = BTreeSet::new();
    for kind in kinds {
        let mut after = None;
        loop {
            let mut page = registry.page_of_namespace_to_decide(
                kind,
                &namespace,
                after.as_ref(),
                OBJECTS_PER_READ,
            );
            for object in &page {
                if may(permit, kind.info(), &namespace, object.name()) {
                    clusters.extend(kind.on_cluster(&object.part()?));
                }
            }
            let is_last = page.len() < OBJECTS_PER_READ;
            after = page.pop();
            if is_last {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(clusters)
}

/// Whether the caller may get or use an object.
fn may(permit: &Permit, info: &'static Info, namespace: &str, name: &str) -> bool {
    ["get", "use"].into_iter().any(|verb| holds(permit, verb, info, namespace, name))
}

fn holds(permit: &Permit, verb: &str, info: &'static Info, namespace: &str, name: &str) -> bool {
    let attributes = Attributes::Resource {
        verb,
        group: info.version.group,
        resource: info.plural,
        subresource: "",
        namespace,
        name,
    };
    permit.policy().is_held(permit.identity(), &attributes)
}

/// Whether the caller may get a cluster.
fn may_get(permit: &Permit, cluster: &str) -> bool {
    holds(permit, "get", Cluster.info(), "", cluster)
}

/// A cluster in the list of a project. A caller that may not get it sees its name, display name,
/// phase and direct endpoint.
fn summary_of(object: &Object, is_whole: bool) -> ProjectCluster {
    let mut fields = cluster::Fields::deserialize(&object.fields).unwrap_or_default();
    let ObjectMeta { name, uid, .. } = &object.metadata;
    let annotations = endpoint_annotations(&object.metadata);
    let mut uid = uid.clone();
    if !is_whole {
        uid.clear();
        fields.spec.description.clear();
        fields.status =
            cluster::Status { phase: fields.status.phase, ..cluster::Status::default() };
    }
    ProjectCluster {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        metadata: ClusterMetadata { name: name.clone(), uid, annotations },
        spec: ClusterSummary {
            display_name: fields.spec.display_name,
            description: fields.spec.description,
        },
        status: fields.status,
    }
}
