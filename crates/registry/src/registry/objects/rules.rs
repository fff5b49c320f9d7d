//! The rules of a write, each of which adds its effects to the transaction. They read the present state, so they run
//! again after a conflict.

use std::sync::Arc;

use postern_kinds::AnyKind;
use postern_kinds::namespace::Namespace;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Position};

use super::commit::CommitError;
use super::effects::{Conflict, Effects};
use super::stage::StagedChange;
use crate::cache::CachedObject;
use crate::registry::{Registry, not_found};
use crate::storage_key;

impl Registry {
    /// The effects of all rules. The changes of objects come first, in the order of the write. So an object has the
    /// same index in the write and in the transaction. Nothing is revoked in a dry run.
    ///
    /// # Errors
    /// The error of the first rule that refuses the write.
    pub(super) async fn effects(
        &self,
        staged: &[StagedChange],
        dry_run: bool,
    ) -> Result<Effects, CommitError> {
        let mut effects = Effects::default();
        self.require_objects(staged, &mut effects).await?;
        for one in staged {
            self.require_owner(one, &mut effects)?;
            effects.extend(&one.effects);
            self.require_namespace(one, staged, &mut effects)?;
        }
        if staged.len() > 1 {
            effects.hand_over_unique_keys();
        }
        // These futures are boxed, so that other writes need no memory for them.
        for one in staged {
            if one.is_namespace() && matches!(one.change, Some(Change::Delete { .. })) {
                Box::pin(self.remove_counts(&one.name, &mut effects)).await?;
            }
            if let (Some(limits), Some(namespace)) = (&one.project_limits, &one.namespace) {
                let limited = self.limit_project(limits, namespace, dry_run, &mut effects);
                Box::pin(limited).await?;
            }
            if !one.limits.is_empty() {
                Box::pin(self.limit_owner(one, &mut effects)).await?;
            }
        }
        if !dry_run {
            let revoked = staged.iter().flat_map(|one| one.effects.revoked.iter().cloned());
            self.revoke(revoked.collect(), &mut effects)?;
        }
        Ok(effects)
    }

    /// Each changed object is as it was read, and each new object does not exist yet.
    async fn require_objects(
        &self,
        staged: &[StagedChange],
        effects: &mut Effects,
    ) -> Result<(), CommitError> {
        for one in staged {
            if let Some(previous) = one.previous {
                effects.require(Condition::At(one.key.clone(), previous), Conflict::Changed);
            } else {
                self.cache().wait_until_current().await?;
                if let Some(found) = self.cache().of(one.kind.info()).get(&one.key)? {
                    self.check_as_read(staged)?;
                    return Err(already_exists(one, &found).into());
                }
                effects.require(Condition::Absent(one.key.clone()), Conflict::Outdated);
            }
            effects.changes.extend(one.change.clone());
        }
        Ok(())
    }

    /// Fails if an object has changed since it was read. The other writer may also have created objects that belong
    /// to this change, such as the roles of its access rules. In that case their existence is no error of this
    /// change.
    fn check_as_read(&self, staged: &[StagedChange]) -> Result<(), CommitError> {
        for one in staged {
            let Some(previous) = one.previous else { continue };
            let found = self.cache().of(one.kind.info()).get(&one.key)?;
            let now = found.map_or(Position::ZERO, |found| found.position());
            if now != previous {
                return Err(CommitError::Changed(now));
            }
        }
        Ok(())
    }

    /// The owner of a new object is the owner at admission. A later principal of the same name is another one.
    fn require_owner(&self, one: &StagedChange, effects: &mut Effects) -> Result<(), ApiError> {
        let Some(owner) = &one.owner else { return Ok(()) };
        let key = storage_key::object(owner.kind.info(), None, &owner.name);
        match self.cache().of(owner.kind.info()).get(&key)? {
            Some(found) if found.decode()?.metadata.uid == owner.uid => {
                effects.require(Condition::At(key, found.position()), Conflict::Outdated);
                Ok(())
            }
            _ => {
                let text = format!(
                    "its owner, {} \"{}\", was deleted during the request",
                    owner.kind.info().singular,
                    owner.name
                );
                Err(ApiError::conflict(one.kind.info().group_resource(), &one.name, text))
            }
        }
    }

    /// The namespace of a new object exists and is not terminating, or the write creates it, as that of a new project
    /// does.
    fn require_namespace(
        &self,
        one: &StagedChange,
        staged: &[StagedChange],
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let Some(namespace) = one.namespace.as_deref().filter(|_| one.is_new()) else {
            return Ok(());
        };
        let is_it = |other: &StagedChange| {
            other.is_new() && other.name == namespace && other.is_namespace()
        };
        if staged.iter().any(is_it) {
            return Ok(());
        }
        let key = storage_key::object(Namespace.info(), None, namespace);
        let found = self.cache().of(Namespace.info()).get(&key)?;
        let found = found.ok_or_else(|| not_found(&Namespace, namespace))?;
        if found.is_deleting() {
            let resource = one.kind.info().group_resource();
            return Err(ApiError::namespace_terminating(resource, &one.name, namespace));
        }
        effects.require(Condition::At(key, found.position()), Conflict::Outdated);
        Ok(())
    }
}

fn already_exists(one: &StagedChange, found: &Arc<CachedObject>) -> ApiError {
    let resource = one.kind.info().group_resource();
    let deleting = found.decode().is_ok_and(|object| object.metadata.deletion_timestamp.is_some());
    // An access key belongs to an owner. A caller of the same name learns only that the name is taken.
    if deleting && found.owner().is_none() {
        ApiError::already_exists_deleting(resource, &one.name)
    } else {
        ApiError::already_exists(resource, &one.name)
    }
}
