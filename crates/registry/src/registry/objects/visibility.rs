//! The objects that the caller of a watch may see, at each revision.
//!
//! An object and the permissions from its owner and its access rules come and go in one transaction. So each event is
//! checked with the permissions before it and after it. A watch continues while permissions only come with new
//! objects and go with removed objects. If the permissions on an existing object change, the client's list is wrong.
//! The watch then ends with 410 (`docs/reference/api.md#watches`).

use std::collections::VecDeque;
use std::sync::Arc;

use postern_auth::identity::MASTERS_GROUP;
use postern_auth::policy::Readable;
use postern_meta::status::ApiError;

use crate::cache::{Cache, ChangeAt, PolicyAt, ResourceCache};
use crate::credential::Credential;
use crate::credential::check_impersonation;
use crate::permit::{Coverage, Permit};

/// The largest number of differing names that are checked one by one.
const MAX_NAMES: usize = 256;

/// The permits of a watch.
pub(super) struct Visibility {
    /// The permits, each with the revision from which it decides, the oldest first. There is at least one.
    steps: VecDeque<(u64, Permit)>,
    /// The prefix of the storage keys of the watch.
    prefix: String,
    /// Whether the caller sees everything under every policy.
    is_master: bool,
}

impl Visibility {
    /// A visibility with one permit, which decides for all revisions.
    pub(super) fn new(permit: Permit, prefix: String) -> Self {
        let is_master = sees_all(&permit);
        Self { steps: VecDeque::from([(0, permit)]), prefix, is_master }
    }

    /// The permit that decides at a revision.
    pub(super) fn at(&self, revision: u64) -> &Permit {
        let of = self.steps.iter().rev().find(|(from, _)| *from <= revision);
        match of.or(self.steps.front()) {
            Some((_, permit)) => permit,
            None => unreachable!("there is always a permit"),
        }
    }

    /// The permit that decides now.
    pub(super) fn newest(&self) -> &Permit {
        self.at(u64::MAX)
    }

    /// Removes permits that decided only before a revision.
    pub(super) fn forget_before(&mut self, revision: u64) {
        while self.steps.get(1).is_some_and(|(from, _)| *from <= revision) {
            self.steps.pop_front();
        }
    }

    fn replace_newest(&mut self, permit: Permit) {
        if let Some(newest) = self.steps.back_mut() {
            newest.1 = permit;
        }
    }

    /// Applies a change of the caller's identity.
    ///
    /// # Errors
    /// 410 if the caller may see other objects now.
    pub(super) fn change_identity(&mut self, credential: Credential) -> Result<(), ApiError> {
        let newest = self.newest();
        let next = newest.as_identified(credential).map_err(|_| permissions_changed())?;
        if next.coverage() != newest.coverage() {
            return Err(permissions_changed());
        }
        self.is_master = sees_all(&next);
        self.replace_newest(next);
        Ok(())
    }

    /// Applies the changes of the policy.
    ///
    /// # Errors
    /// 410 if the permissions on existing objects have changed, or if the caller may no longer impersonate.
    pub(super) fn apply_policy_changes(&mut self, cache: &Cache) -> Result<(), ApiError> {
        let (newest, policy) = (self.newest(), cache.policy());
        check_impersonation(newest.credential(), &policy).map_err(|_| permissions_changed())?;
        if self.is_master || Arc::ptr_eq(newest.policy(), &policy) {
            return Ok(());
        }
        let Some(policies) = cache.policies_after(newest.policy()) else {
            let next = newest.under(cache.policy()).map_err(|_| permissions_changed())?;
            if next.coverage() != newest.coverage() {
                return Err(permissions_changed());
            }
            self.replace_newest(next);
            return Ok(());
        };
        let resource = cache.of(newest.kind().info());
        for policy in policies {
            if policy.revision > resource.revision() {
                // The cache applies the objects of that revision next.
                return Ok(());
            }
            self.step(resource, policy)?;
        }
        Ok(())
    }

    fn step(&mut self, resource: &ResourceCache, policy: Arc<PolicyAt>) -> Result<(), ApiError> {
        let newest = self.newest();
        if let Some(next) = newest.under_same_grants(&policy) {
            self.replace_newest(next);
            return Ok(());
        }
        let revision = policy.revision;
        let next = newest.under(policy).map_err(|_| permissions_changed())?;
        if next.coverage() == newest.coverage() {
            self.replace_newest(next);
            return Ok(());
        }
        if !self.changes_with_objects(resource, revision, next.coverage()) {
            return Err(permissions_changed());
        }
        self.steps.push_back((revision, next));
        Ok(())
    }

    /// Whether all differences concern objects that are created or removed at this revision, or that do not exist.
    fn changes_with_objects(
        &self,
        resource: &ResourceCache,
        revision: u64,
        next: &Coverage,
    ) -> bool {
        let (Coverage::Some(before), Coverage::Some(now)) = (self.newest().coverage(), next) else {
            return false;
        };
        if before.owners != now.owners {
            return false;
        }
        let (old, new) = match (&before.named, &now.named) {
            (
                Readable::Some { namespaces, objects: old, names, within },
                Readable::Some { namespaces: n, objects: new, names: m, within: w },
            ) if (namespaces, names, within) == (n, m, w) => (old, new),
            _ => return false,
        };
        let is_in = |(namespace, name): &&(String, String)| {
            resource.key_of(namespace, name).starts_with(&self.prefix)
        };
        let mut differing = old.symmetric_difference(new).filter(is_in);
        let first: Vec<_> = differing.by_ref().take(MAX_NAMES).collect();
        differing.next().is_none()
            && first.into_iter().all(|(namespace, name)| {
                let key = resource.key_of(namespace, name);
                let is_added = new.contains(&(namespace.clone(), name.clone()));
                match resource.change_at(&key, revision) {
                    ChangeAt::Absent => true,
                    ChangeAt::Created => is_added,
                    ChangeAt::Removed => !is_added,
                    ChangeAt::Present | ChangeAt::Unknown => false,
                }
            })
    }
}

/// Whether the caller sees everything because of its identity, not because of a role.
pub(super) fn sees_all(permit: &Permit) -> bool {
    let identity = permit.identity();
    permit.credential().is_server() || (identity.is_in(MASTERS_GROUP) && !identity.is_scoped())
}

/// The 410 of a watch after a change of the objects that its caller may see.
pub(crate) fn permissions_changed() -> ApiError {
    ApiError::expired("the permissions of the caller have changed: list again")
}
