//! Workload identities, and the access keys that tokens were exchanged for by them. A key ends with its workload identity,
//! and never may do more or live longer than this says now.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postern_kinds::principal::{KeyFacts, Lifetime, WorkloadFacts};

use super::{Concerned, PrincipalIndex, remove_from};
use crate::bearer::Refusal;
use crate::scope::ScopeRules;

/// The part of the index that is about workload identities.
#[derive(Debug, Default)]
pub(super) struct WorkloadIndex {
    /// By the uid.
    workloads: HashMap<String, Workload>,
    uid_of: HashMap<String, String>,
    /// The keys of each, by its uid. A workload identity may be known later than its keys.
    keys: HashMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Workload {
    facts: WorkloadFacts,
    scope: Option<Arc<ScopeRules>>,
}

impl WorkloadIndex {
    pub(super) fn add_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(workload) = &key.workload_uid {
            self.keys.entry(workload.clone()).or_default().insert(name.to_owned());
        }
    }

    pub(super) fn remove_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(workload) = &key.workload_uid {
            remove_from(&mut self.keys, workload, name);
        }
    }

    /// The workload identity of a key; `None` for a key of none.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if it is gone.
    fn of(&self, key: &KeyFacts) -> Result<Option<&Workload>, Refusal> {
        let Some(uid) = &key.workload_uid else { return Ok(None) };
        self.workloads.get(uid).map(Some).ok_or(Refusal::Unknown)
    }

    /// Checks that the workload identity of a key exists and is enabled. A key of none passes.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] or [`Refusal::Disabled`].
    pub(super) fn check(&self, key: &KeyFacts) -> Result<(), Refusal> {
        let is_disabled = self.of(key)?.is_some_and(|workload| workload.facts.disabled);
        if is_disabled { Err(Refusal::Disabled) } else { Ok(()) }
    }

    /// The scope of the workload identity of a key, if it is another one than the key has.
    pub(super) fn other_scope(&self, key: &KeyFacts) -> Option<Arc<ScopeRules>> {
        let workload = self.of(key).ok()??;
        workload.scope.clone().filter(|_| workload.facts.scope != key.scope)
    }

    /// The lifetime of a key, which is at most that of keys of its workload identity now.
    pub(super) fn lifetime_of(&self, key: &KeyFacts) -> Lifetime {
        let mut lifetime = key.lifetime;
        if let Ok(Some(workload)) = self.of(key) {
            let longest = workload.facts.ttl_seconds;
            let is_longer = lifetime.ttl_seconds == 0 || lifetime.ttl_seconds > longest;
            lifetime.ttl_seconds = if is_longer { longest } else { lifetime.ttl_seconds };
        }
        lifetime
    }

    /// The keys of the workload identity with this uid.
    pub(super) fn keys_of(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.keys.get(uid).into_iter().flatten()
    }

    /// The keys of the workload identity of a name.
    pub(super) fn keys_of_name(&self, name: &str) -> impl Iterator<Item = &String> {
        let uid = self.uid_of.get(name).map(String::as_str);
        self.keys_of(uid.unwrap_or_default())
    }
}

impl PrincipalIndex {
    /// How many keys of a workload identity, by its uid, have not ended at a time, in seconds since 1970.
    pub fn workload_key_count(&self, uid: &str, now_unix_seconds: i64) -> usize {
        let names = self.workloads.keys_of(uid);
        names.filter(|name| !self.has_ended_before(name, now_unix_seconds)).count()
    }

    /// Whether a workload identity made a key.
    pub fn is_of_workload(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.workload_uid.is_some())
    }

    /// Sets a workload identity, with all that follows; `None` removes it.
    pub fn set_workload(&mut self, name: &str, workload: Option<WorkloadFacts>) {
        self.change_workload(name, workload);
        while self.resolve_next() {}
    }

    pub(super) fn change_workload(&mut self, name: &str, facts: Option<WorkloadFacts>) {
        self.noted.clear();
        let old_uid = self.workloads.uid_of.remove(name);
        let old = old_uid.as_ref().and_then(|uid| self.workloads.workloads.remove(uid));
        let is_same = old.as_ref().map(|old| &old.facts) == facts.as_ref();
        let new_uid = facts.as_ref().map(|facts| facts.uid.clone());
        if let Some(facts) = facts {
            self.workloads.uid_of.insert(name.to_owned(), facts.uid.clone());
            let scope = facts.scope.as_deref().map(|scope| Arc::new(ScopeRules::new(scope)));
            self.workloads.workloads.insert(facts.uid.clone(), Workload { facts, scope });
        }
        if is_same {
            return;
        }
        let uids: BTreeSet<String> = old_uid.into_iter().chain(new_uid).collect();
        let keys = uids.iter().flat_map(|uid| self.workloads.keys_of(uid).cloned());
        self.concerned.extend(keys.map(Concerned::Key).collect::<Vec<_>>());
    }
}
