//! The limits of a project: the number of objects in its namespace, and its allowed clusters
//! (`docs/reference/projects.md#quotas`).
//!
//! The transaction of the write checks both. A write that adds a counted object also writes the record of the count.
//! Its condition is that no other write has changed the count since the objects were counted. So if two writes add at
//! once, even on two servers, one of them counts again.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::project::{Fields, Project};
use postern_kinds::{AnyKind, Owner, Principal, all};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Position};
use serde::Deserialize;

use crate::cache::{CachedObject, ObjectList};
use crate::errors::from_store;
use crate::registry::Registry;
use crate::registry::effects::{Conflict, Effects};
use crate::storage_key;

/// The parts of a change that the limits of a project depend on.
pub(in crate::registry) struct ProjectLimits {
    kind: &'static dyn AnyKind,
    /// The name of the object.
    name: String,
    /// The cluster of the object after the change, if it was on none or on another one.
    new_cluster: Option<String>,
    /// Whether the change adds to the counts.
    is_counted: bool,
    /// The user or team that owns a counted object by its access rules.
    owner: Option<Owner>,
}

impl ProjectLimits {
    /// The limited parts of a change of an object; `None` if no limit applies.
    pub(in crate::registry) fn of(
        kind: &'static dyn AnyKind,
        new: &Object,
        old: Option<&Object>,
    ) -> Option<Self> {
        let is_counted = old.is_none() && kind.info().is_counted_in_quotas;
        let was_on = old.and_then(|old| kind.on_cluster(old));
        let new_cluster = kind.on_cluster(new).filter(|new| was_on.as_ref() != Some(new));
        let owner = if is_counted { owner(kind, new) } else { None };
        let name = new.metadata.name.clone();
        let is_limited = is_counted || new_cluster.is_some();
        is_limited.then_some(Self { kind, name, new_cluster, is_counted, owner })
    }
}

impl Registry {
    /// Checks the limits of the project for a change, and adds the conditions that keep them. An exceeded quota is noted
    /// for an event, except in a dry run.
    ///
    /// # Errors
    /// 403 if a quota is exceeded, in the words of Kubernetes, or if the project does not allow the cluster.
    pub(in crate::registry) async fn limit_project(
        &self,
        limits: &ProjectLimits,
        namespace: &str,
        dry_run: bool,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let ProjectLimits { kind, name, new_cluster, is_counted, owner } = limits;
        let policy = self.cache().policy();
        let Some(project) = policy.projects().of(namespace) else { return Ok(()) };
        let key = storage_key::object(Project.info(), None, project);
        let Some(found) = self.cache().of(Project.info()).get(&key)? else { return Ok(()) };
        let spec = Fields::deserialize(&found.decode()?.fields).unwrap_or_default().spec;
        effects.require(Condition::At(key, found.position()), Conflict::Outdated);
        let refused =
            |text: String| Err(ApiError::forbidden(kind.info().group_resource(), name, text));
        if let Some(cluster) = new_cluster.as_ref().filter(|cluster| !spec.allows_cluster(cluster))
        {
            return refused(format!(
                "the project \"{project}\" does not allow the cluster \"{cluster}\": add it to \
                 spec.allowedClusters of the project, or choose another cluster"
            ));
        }
        let plural = kind.info().plural;
        let (of_project, of_user) = (spec.project_quota(plural), spec.user_quota(plural));
        if !*is_counted || (of_project.is_none() && of_user.is_none()) {
            return Ok(());
        }
        let key = storage_key::count(kind.info(), namespace);
        self.add_count(key, effects).await?;
        let ObjectList { objects, left_out, .. } = self.objects_in(*kind, namespace);
        // The owner of a corrupt object is unknown: it counts for every owner.
        let corrupt = left_out.len();
        let counts = [
            (of_project, objects.len() + corrupt, "project".to_owned()),
            (
                of_user.filter(|_| owner.is_some()),
                objects.iter().filter(|object| owner_of(*kind, object) == *owner).count() + corrupt,
                "owner".to_owned(),
            ),
        ];
        for (limit, used, of) in counts {
            let used = used as u64;
            if let Some(limit) = limit.filter(|limit| used >= *limit) {
                let words = format!(
                    "exceeded quota: {of} of {project}, requested: {plural}=1, used: \
                     {plural}={used}, limited: {plural}={limit}"
                );
                if !dry_run {
                    self.refused_quotas().note(project, &words);
                }
                return refused(words);
            }
        }
        Ok(())
    }

    /// Writes the record of a count, on condition that it is as it was read.
    pub(super) async fn add_count(
        &self,
        key: Arc<str>,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let found = self.store().get(&key).await.map_err(from_store)?.value;
        let mut count: u64 = 0;
        if let Some(entry) = &found {
            // Then the cache has every object that this count includes.
            self.cache().wait_for_revision(Position::end_of(entry.position.revision())).await?;
            effects.require(Condition::At(key.clone(), entry.position), Conflict::Outdated);
            count = String::from_utf8_lossy(&entry.value).parse().unwrap_or(0);
        } else {
            effects.require(Condition::Absent(key.clone()), Conflict::Outdated);
        }
        let value = Bytes::from((count + 1).to_string());
        effects.changes.push(Change::Put { key, value });
        Ok(())
    }

    /// Removes the counts of a namespace that is removed.
    pub(in crate::registry) async fn remove_counts(
        &self,
        namespace: &str,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        for kind in all().iter().filter(|kind| kind.info().is_counted_in_quotas) {
            let key = storage_key::count(kind.info(), namespace);
            let found = self.store().get(&key).await.map_err(from_store)?.value;
            let Some(entry) = found else { continue };
            effects.require(Condition::At(key.clone(), entry.position), Conflict::Outdated);
            effects.delete(key);
        }
        Ok(())
    }

    fn objects_in(&self, kind: &'static dyn AnyKind, namespace: &str) -> ObjectList {
        let resource = self.cache().of(kind.info());
        let prefix = storage_key::in_namespace(resource.prefix(), Some(namespace));
        resource.list_intact(&prefix, None, 0)
    }
}

fn owner_of(kind: &'static dyn AnyKind, object: &CachedObject) -> Option<Owner> {
    owner(kind, &object.decode().ok()?)
}

/// The user or team that owns an object by its access rules.
fn owner(kind: &'static dyn AnyKind, object: &Object) -> Option<Owner> {
    let ownership = kind.ownership(object)?;
    Some(match ownership.owner?.principal()? {
        Principal::User(name) => Owner::User(name.to_owned()),
        Principal::Team(name) => Owner::Team(name.to_owned()),
    })
}
