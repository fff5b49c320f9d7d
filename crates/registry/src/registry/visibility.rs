//! The objects that the caller of a watch may see, revision by revision.
//!
//! An object comes and goes together with the permissions that its owner and its access rules give, in one
//! transaction. So each event is judged by the permissions before it and after it. A watch goes on as long as
//! permissions come with new objects and go with removed ones. If the permissions on an object that stays have
//! changed, the caller's list is wrong, and the watch ends with 410 (`docs/reference/api.md#watches`).

use std::collections::VecDeque;
use std::sync::Arc;

use postern_auth::identity::MASTERS_GROUP;
use postern_auth::policy::Readable;
use postern_meta::status::ApiError;

use crate::cache::{Cache, Moment, PolicyAt, ResourceCache};
use crate::credential::Credential;
use crate::credential::check_rights;
use crate::permit::{Coverage, Permit};

/// Names of objects that come or go at once. More of them are not looked at one by one.
const MAX_NAMES: usize = 256;

/// The permits of a watch.
pub(super) struct Visibility {
    /// From which revision on each decides, the oldest first. There is at least one.
    steps: VecDeque<(u64, Permit)>,
    /// The prefix of the storage keys that the watch is for.
    prefix: String,
    /// Does the caller see everything, whatever the policy is?
    is_master: bool,
}

impl Visibility {
    /// The visibility that a permit gives its caller, from the beginning.
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

    /// Forgets what decided before a revision.
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

    /// Follows a change of the caller's own identity.
    ///
    /// # Errors
    /// 410 when they may see other objects now.
    pub(super) fn identify(&mut self, credential: Credential) -> Result<(), ApiError> {
        let newest = self.newest();
        let next = newest.as_identified(credential).map_err(|_| rights_changed())?;
        if next.coverage() != newest.coverage() {
            return Err(rights_changed());
        }
        self.is_master = sees_all(&next);
        self.replace_newest(next);
        Ok(())
    }

    /// Follows the changes of the policy.
    ///
    /// # Errors
    /// 410 when the caller may see other objects now than those that come or go with these changes, or may not
    /// act as whom they act as any more.
    pub(super) fn follow(&mut self, cache: &Cache) -> Result<(), ApiError> {
        let (newest, policy) = (self.newest(), cache.policy());
        check_rights(newest.credential(), &policy).map_err(|_| rights_changed())?;
        if self.is_master || Arc::ptr_eq(newest.policy(), &policy) {
            return Ok(());
        }
        let Some(policies) = cache.policies_after(newest.policy()) else {
            let next = newest.under(cache.policy()).map_err(|_| rights_changed())?;
            if next.coverage() != newest.coverage() {
                return Err(rights_changed());
            }
            self.replace_newest(next);
            return Ok(());
        };
        let resource = cache.of(newest.kind().info());
        for policy in policies {
            if policy.revision > resource.revision() {
                // The objects of that revision come in a moment.
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
        let next = newest.under(policy).map_err(|_| rights_changed())?;
        if next.coverage() == newest.coverage() {
            self.replace_newest(next);
            return Ok(());
        }
        if !self.goes_with_objects(resource, revision, next.coverage()) {
            return Err(rights_changed());
        }
        self.steps.push_back((revision, next));
        Ok(())
    }

    /// Do the differences only concern objects that are made or removed at this revision, or are not
    /// there at all?
    fn goes_with_objects(&self, resource: &ResourceCache, revision: u64, next: &Coverage) -> bool {
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
                match resource.moment(&key, revision) {
                    Moment::Absent => true,
                    Moment::Created => is_added,
                    Moment::Removed => !is_added,
                    Moment::There | Moment::Unknown => false,
                }
            })
    }
}

/// Does the caller see everything by who they are, and not by a role?
pub(super) fn sees_all(permit: &Permit) -> bool {
    let identity = permit.identity();
    permit.credential().is_server() || (identity.is_in(MASTERS_GROUP) && !identity.is_scoped())
}

/// The 410 of a watch whose caller may see other objects now.
pub(super) fn rights_changed() -> ApiError {
    ApiError::expired("what the caller may see has changed: list again")
}
