//! The limits of a project: the number of objects in its namespace, and its allowed clusters
//! (`docs/reference/projects.md#quotas`).
//!
//! The transaction of the write checks both. A write that adds a counted object also writes the record of the count.
//! Its condition is that no other write has changed the count since the objects were counted. So if two writes add at
//! once, even on two servers, one of them counts again.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::namespace::Namespace;
use postern_kinds::project::{Fields, Project};
use postern_kinds::{AnyKind, Owner, Principal, all};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Position};
use serde::Deserialize;

use super::Registry;
use super::commit::StagedChange;
use crate::cache::{CachedObject, ObjectList};
use crate::errors::from_store;
use crate::storage_key;

/// The part of a transaction that enforces the limits of its project.
#[derive(Default)]
pub(super) struct ProjectLimits {
    pub(super) conditions: Vec<Condition>,
    pub(super) changes: Vec<Change>,
}

impl Registry {
    /// Checks the limits of the project for the changes of a transaction. An exceeded quota is noted for an event,
    /// except in a dry run.
    ///
    /// # Errors
    /// 403 if a quota is exceeded, in the words of Kubernetes, or if the project does not allow the cluster.
    pub(super) async fn project_limits(
        &self,
        staged: &[StagedChange],
        dry_run: bool,
    ) -> Result<ProjectLimits, ApiError> {
        let mut limits = ProjectLimits::default();
        for one in staged {
            if is_removed_namespace(one) {
                Box::pin(self.remove_counts(one, &mut limits)).await?;
            }
            if let Some(namespace) = one.namespace.as_deref().filter(|_| is_limited(one)) {
                // The future is boxed, so that other writes need no memory for it.
                Box::pin(self.check_limits(one, namespace, dry_run, &mut limits)).await?;
            }
        }
        Ok(limits)
    }

    async fn check_limits(
        &self,
        staged: &StagedChange,
        namespace: &str,
        dry_run: bool,
        limits: &mut ProjectLimits,
    ) -> Result<(), ApiError> {
        let is_counted = staged.is_counted();
        let cluster = staged.new_cluster.as_deref();
        let policy = self.cache().policy();
        let Some(project) = policy.projects().of(namespace) else { return Ok(()) };
        let key = storage_key::object(Project.info(), None, project);
        let Some(found) = self.cache().of(Project.info()).get(&key)? else { return Ok(()) };
        let spec = Fields::deserialize(&found.decode()?.fields).unwrap_or_default().spec;
        limits.conditions.push(Condition::At(key, found.position()));
        let refused = |text: String| {
            Err(ApiError::forbidden(staged.kind.info().group_resource(), &staged.name, text))
        };
        if let Some(cluster) = cluster.filter(|cluster| !spec.allows_cluster(cluster)) {
            return refused(format!(
                "the project \"{project}\" does not allow the cluster \"{cluster}\": add it to \
                 spec.allowedClusters of the project, or choose another cluster"
            ));
        }
        let plural = staged.kind.info().plural;
        let (of_project, of_user) = (spec.project_quota(plural), spec.user_quota(plural));
        if !is_counted || (of_project.is_none() && of_user.is_none()) {
            return Ok(());
        }
        let key = storage_key::count(staged.kind.info(), namespace);
        self.add_count(key, limits).await?;
        let ObjectList { objects, left_out, .. } = self.objects_in(staged.kind, namespace);
        // The owner of a corrupt object is unknown: it counts for every owner.
        let corrupt = left_out.len();
        let owner = staged.owned_by.as_ref();
        let counts = [
            (of_project, objects.len() + corrupt, "project".to_owned()),
            (
                of_user.filter(|_| owner.is_some()),
                objects
                    .iter()
                    .filter(|object| owner_of(staged.kind, object).as_ref() == owner)
                    .count()
                    + corrupt,
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
        limits: &mut ProjectLimits,
    ) -> Result<(), ApiError> {
        let found = self.store().get(&key).await.map_err(from_store)?.value;
        let mut count: u64 = 0;
        if let Some(entry) = &found {
            // Then the cache has every object that this count includes.
            self.cache().wait_for_revision(Position::end_of(entry.position.revision())).await?;
            limits.conditions.push(Condition::At(key.clone(), entry.position));
            count = String::from_utf8_lossy(&entry.value).parse().unwrap_or(0);
        } else {
            limits.conditions.push(Condition::Absent(key.clone()));
        }
        let value = Bytes::from((count + 1).to_string());
        limits.changes.push(Change::Put { key, value });
        Ok(())
    }

    /// Removes the counts of a namespace that is removed.
    async fn remove_counts(
        &self,
        staged: &StagedChange,
        limits: &mut ProjectLimits,
    ) -> Result<(), ApiError> {
        for kind in all().iter().filter(|kind| kind.is_counted_in_quotas()) {
            let key = storage_key::count(kind.info(), &staged.name);
            let found = self.store().get(&key).await.map_err(from_store)?.value;
            let Some(entry) = found else { continue };
            limits.conditions.push(Condition::At(key.clone(), entry.position));
            limits.changes.push(Change::Delete { key });
        }
        Ok(())
    }

    fn objects_in(&self, kind: &'static dyn AnyKind, namespace: &str) -> ObjectList {
        let resource = self.cache().of(kind.info());
        let prefix = storage_key::in_namespace(resource.prefix(), Some(namespace));
        resource.list_intact(&prefix, None, 0)
    }
}

/// Whether the limits of a project concern this change.
fn is_limited(staged: &StagedChange) -> bool {
    staged.is_counted() || staged.new_cluster.is_some()
}

fn is_removed_namespace(staged: &StagedChange) -> bool {
    staged.is_removal() && staged.kind.info().group_resource() == Namespace.info().group_resource()
}

fn owner_of(kind: &'static dyn AnyKind, object: &CachedObject) -> Option<Owner> {
    owner(kind, &object.decode().ok()?)
}

/// The user or team that owns an object by its access rules.
pub(super) fn owner(kind: &'static dyn AnyKind, object: &Object) -> Option<Owner> {
    let ownership = kind.ownership(object)?;
    Some(match ownership.owner?.principal()? {
        Principal::User(name) => Owner::User(name.to_owned()),
        Principal::Team(name) => Owner::Team(name.to_owned()),
    })
}
