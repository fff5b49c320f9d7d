//! The holders of roles: updated change by change, and shared between snapshots. The cost of a
//! change of one binding depends only on its own subjects and role.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyRule};

use super::role::{PolicyKey, Role};
use super::role_finder::RoleFinder;
use super::role_grants::SubjectGrants;
use super::rule::ResourceQuery;
use super::use_changes::UseChanges;
use crate::identity::Identity;
use crate::shared_map::SharedMap;

/// The maximum number of roles and subjects that are checked before a decision is made subject by
/// subject instead.
const MAX_LOOKED_AT: usize = 32;

/// For an identity with at most this many groups and uids, its own roles are checked before the
/// holders of a role.
const FEW_SUBJECTS: usize = 16;

/// The bindings that name a role, by their namespace, which is empty for those that hold everywhere, and
/// their name.
type Naming = SharedMap<Arc<str>, SharedMap<Arc<str>, Arc<BindingFacts>>>;

/// The holders of roles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    roles: SharedMap<PolicyKey, Arc<Role>>,
    finder: RoleFinder,
    bindings: SharedMap<PolicyKey, Arc<BindingFacts>>,
    /// The bindings that name a role, even if the role does not exist.
    bindings_of: SharedMap<PolicyKey, Naming>,
    users: SharedMap<Arc<str>, Arc<SubjectGrants>>,
    groups: SharedMap<Arc<str>, Arc<SubjectGrants>>,
    /// By the uid of a user or team.
    principals: SharedMap<Arc<str>, Arc<SubjectGrants>>,
    /// The objects that the last change affects.
    pub(crate) use_changes: UseChanges,
}

impl Index {
    /// Sets the rules of a role; `None` removes it.
    pub(crate) fn set_role(&mut self, key: &PolicyKey, rules: Option<Vec<PolicyRule>>) {
        let old = self.roles.get(key).cloned();
        if old.as_ref().map(|role| &role.source) == rules.as_ref() {
            return;
        }
        let naming = self.naming(key);
        if let Some(old) = old {
            for (binding, facts) in &naming {
                self.detach(binding, facts, &old);
            }
            self.finder.remove(&old);
            self.roles.remove_mut(key);
        }
        if let Some(rules) = rules {
            let role = Arc::new(Role::of(key.clone(), rules));
            for (binding, facts) in &naming {
                self.attach(binding, facts, &role);
            }
            self.finder.add(&role);
            self.roles.insert_mut(key.clone(), role);
        }
    }

    /// The bindings that name a role.
    fn naming(&self, role: &PolicyKey) -> Vec<(PolicyKey, Arc<BindingFacts>)> {
        let places = self.bindings_of.get(role).into_iter().flat_map(|places| places.iter());
        let bindings = places.flat_map(|(namespace, bindings)| {
            let namespace = (!namespace.is_empty()).then(|| namespace.clone());
            bindings.iter().map(move |(name, facts)| {
                let (namespace, name) = (namespace.clone(), name.clone());
                (PolicyKey { namespace, name }, facts.clone())
            })
        });
        bindings.collect()
    }

    /// Sets a binding; `None` removes it.
    pub(crate) fn set_binding(&mut self, key: &PolicyKey, facts: Option<BindingFacts>) {
        if self.bindings.get(key).map(|old| &**old) == facts.as_ref() {
            return;
        }
        if let Some(old) = self.bindings.get(key).cloned() {
            if let Some(role_key) = role_of(key, &old) {
                if let Some(role) = self.roles.get(&role_key).cloned() {
                    self.detach(key, &old, &role);
                }
                self.set_naming(role_key, key, None);
            }
            self.bindings.remove_mut(key);
        }
        let Some(facts) = facts.map(Arc::new) else { return };
        let role_key = role_of(key, &facts);
        self.bindings.insert_mut(key.clone(), facts.clone());
        if let Some(role_key) = role_key {
            if let Some(role) = self.roles.get(&role_key).cloned() {
                self.attach(key, &facts, &role);
            }
            self.set_naming(role_key, key, Some(facts));
        }
    }

    /// Sets or removes the entry that a binding names a role.
    fn set_naming(
        &mut self,
        role: PolicyKey,
        binding: &PolicyKey,
        facts: Option<Arc<BindingFacts>>,
    ) {
        let mut naming = self.bindings_of.get(&role).cloned().unwrap_or_default();
        let namespace = binding.namespace.clone().unwrap_or_else(|| Arc::from(""));
        let mut there = naming.get(&namespace).cloned().unwrap_or_default();
        match facts {
            Some(facts) => there.insert_mut(binding.name.clone(), facts),
            None => {
                there.remove_mut(&binding.name);
            }
        }
        if there.is_empty() {
            naming.remove_mut(&namespace);
        } else {
            naming.insert_mut(namespace, there);
        }
        if naming.is_empty() {
            self.bindings_of.remove_mut(&role);
        } else {
            self.bindings_of.insert_mut(role, naming);
        }
    }

    fn attach(&mut self, binding: &PolicyKey, facts: &BindingFacts, role: &Arc<Role>) {
        self.use_changes.note_role(binding.namespace.as_ref(), role);
        self.change_grants_of_subjects(facts, |grants| grants.add(role, binding));
    }

    fn detach(&mut self, binding: &PolicyKey, facts: &BindingFacts, role: &Role) {
        self.use_changes.note_role(binding.namespace.as_ref(), role);
        self.change_grants_of_subjects(facts, |grants| grants.remove(role, binding));
    }

    /// Changes what each subject of a binding holds.
    fn change_grants_of_subjects(
        &mut self,
        facts: &BindingFacts,
        change: impl Fn(&mut SubjectGrants),
    ) {
        let subjects: BTreeSet<&BoundSubject> = facts.subjects.iter().collect();
        for subject in subjects {
            let (map, text) = match subject {
                BoundSubject::User(name) => (&mut self.users, name),
                BoundSubject::Group(name) => (&mut self.groups, name),
                BoundSubject::Principal { uid, .. } if uid.is_empty() => continue,
                BoundSubject::Principal { uid, .. } => (&mut self.principals, uid),
            };
            let mut grants = map.get(text.as_str()).cloned().unwrap_or_default();
            change(Arc::make_mut(&mut grants));
            if grants.is_empty() {
                map.remove_mut(text.as_str());
            } else {
                map.insert_mut(Arc::from(text.as_str()), grants);
            }
        }
    }

    /// The holdings of an identity, subject by subject.
    pub(crate) fn of<'a>(
        &'a self,
        identity: &'a Identity,
    ) -> impl Iterator<Item = &'a Arc<SubjectGrants>> + 'a {
        let user = self.users.get(identity.name.as_str());
        let groups = identity.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let uids = identity.principal_uids.iter();
        let principals = uids.filter_map(|uid| self.principals.get(uid.as_str()));
        user.into_iter().chain(groups).chain(principals)
    }

    /// Whether a role of an identity allows the request.
    pub(crate) fn allows(
        &self,
        identity: &Identity,
        query: &ResourceQuery<'_>,
        namespace: &str,
    ) -> bool {
        let by_subject = || self.of(identity).any(|grants| grants.allow(query, namespace));
        let by_role = || self.by_role(identity, query, namespace);
        debug_assert!(by_role().is_none_or(|allows| allows == by_subject()), "{query:?}");
        if identity.groups.len() + identity.principal_uids.len() <= FEW_SUBJECTS {
            return by_subject();
        }
        by_role().unwrap_or_else(by_subject)
    }

    /// Whether an identity holds one of the roles that allow this. `None` if checking subject by
    /// subject is faster.
    fn by_role(
        &self,
        identity: &Identity,
        query: &ResourceQuery<'_>,
        namespace: &str,
    ) -> Option<bool> {
        let mut looked_at = 0;
        for role in self.finder.find(query, namespace) {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return None;
            }
            if !role.allows(query) {
                continue;
            }
            let Some(naming) = self.bindings_of.get(&role.key) else { continue };
            let there = Some(namespace).filter(|namespace| !namespace.is_empty());
            let bindings = [Some(""), there].into_iter().flatten().filter_map(|of| naming.get(of));
            for subject in
                bindings.flat_map(|there| there.values()).flat_map(|facts| &facts.subjects)
            {
                looked_at += 1;
                if looked_at > MAX_LOOKED_AT {
                    return None;
                }
                if identity.is_subject(subject) {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    /// The subjects of every binding by which a role allows this.
    pub(crate) fn subjects_who_may(
        &self,
        query: &ResourceQuery<'_>,
        namespace: &str,
    ) -> Vec<&BoundSubject> {
        let mut subjects = Vec::new();
        let there = Some(namespace).filter(|namespace| !namespace.is_empty());
        for role in self.finder.find(query, namespace).filter(|role| role.allows(query)) {
            let Some(naming) = self.bindings_of.get(&role.key) else { continue };
            let bindings = [Some(""), there].into_iter().flatten().filter_map(|of| naming.get(of));
            let facts = bindings.flat_map(|there| there.values());
            subjects.extend(facts.flat_map(|facts| &facts.subjects));
        }
        subjects
    }

    /// The subjects of a binding.
    pub(crate) fn subjects_of(&self, namespace: Option<&str>, name: &str) -> Vec<BoundSubject> {
        let facts = self.bindings.get(&PolicyKey::of(namespace, name));
        facts.map(|facts| facts.subjects.clone()).unwrap_or_default()
    }

    /// Whether any subject of any binding satisfies a condition.
    pub(crate) fn has_subject(&self, is_it: impl Fn(&BoundSubject) -> bool) -> bool {
        self.bindings.values().any(|facts| facts.subjects.iter().any(&is_it))
    }

    /// Every binding with its role, if the role exists.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (&PolicyKey, &BindingFacts, &Arc<Role>)> {
        self.bindings.iter().filter_map(|(key, facts)| {
            let role = self.roles.get(&role_of(key, facts)?)?;
            Some((key, &**facts, role))
        })
    }
}

/// The role that a binding names; `None` for a Role that would hold everywhere.
fn role_of(binding: &PolicyKey, facts: &BindingFacts) -> Option<PolicyKey> {
    let name = Arc::from(facts.role.as_str());
    if facts.is_cluster_role {
        return Some(PolicyKey { namespace: None, name });
    }
    Some(PolicyKey { namespace: Some(binding.namespace.clone()?), name })
}

impl Index {
    /// Whether an identity has the same roles for a kind in another snapshot.
    pub(crate) fn is_same_for(
        &self,
        other: &Self,
        identity: &Identity,
        group: &str,
        resource: &str,
    ) -> bool {
        let same = |one: Option<&Arc<SubjectGrants>>, two: Option<&Arc<SubjectGrants>>| {
            let concerns = |grants: &Arc<SubjectGrants>| grants.concern(group, resource, true);
            match (one, two) {
                (Some(one), Some(two)) if Arc::ptr_eq(one, two) => true,
                (one, two) => !one.into_iter().chain(two).any(concerns),
            }
        };
        let name = identity.name.as_str();
        same(self.users.get(name), other.users.get(name))
            && identity.groups.iter().all(|group| {
                same(self.groups.get(group.as_str()), other.groups.get(group.as_str()))
            })
            && identity.principal_uids.iter().all(|uid| {
                same(self.principals.get(uid.as_str()), other.principals.get(uid.as_str()))
            })
    }
}
