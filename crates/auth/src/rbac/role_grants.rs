//! The roles that are granted to one subject: in all namespaces, and in each namespace.

use std::sync::Arc;

use parking_lot::Mutex;

use super::role::{PolicyKey, Role};
use super::rule::ResourceQuery;
use super::rule_index::RuleIndex;
use crate::shared_map::{SharedMap, SharedSet};

/// The longest list of roles that is searched role by role. Longer ones get a [`RuleIndex`].
const FEW_ROLES: usize = 8;

/// A role that a subject holds in one namespace or in all, and the names of the bindings that grant it.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) role: Arc<Role>,
    pub(crate) bindings: SharedSet<Arc<str>>,
}

/// The roles that one subject holds in one namespace, or in all.
#[derive(Clone, Debug)]
pub(crate) enum RoleGrants {
    /// At most [`FEW_ROLES`] roles, searched one by one.
    List(Vec<Grant>),
    /// More roles, with an index of their rules.
    Indexed(Arc<RoleSet>),
}

/// Roles with an index of all their rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoleSet {
    roles: SharedMap<PolicyKey, Grant>,
    rule_index: RuleIndex,
    /// The roles with rules that are not in the index.
    wide: SharedMap<PolicyKey, Arc<Role>>,
    answers: Answers,
}

/// A verb on the objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnKind<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
}

/// The objects of a kind on which roles grant a verb.
#[derive(Debug, Default)]
pub(crate) struct GrantedObjects {
    /// Whether they grant it on every object of the namespace, or of all namespaces.
    pub(crate) every: bool,
    /// Objects of these names, in order.
    pub(crate) names: Vec<Arc<str>>,
}

/// The number of answers that one [`RoleSet`] caches.
const MAX_ANSWERS: usize = 4;

/// A cache of the objects that the roles grant. A caller that lists a kind again asks the same
/// question. Any change empties the cache.
#[derive(Debug, Default)]
struct Answers(Mutex<Vec<([String; 3], Arc<GrantedObjects>)>>);

impl Clone for Answers {
    /// An empty cache, because a role set is cloned to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Answers {
    /// The cached answer, or the one found now, which is then cached.
    fn get(
        &self,
        question: OnKind<'_>,
        find: impl FnOnce() -> GrantedObjects,
    ) -> Arc<GrantedObjects> {
        let OnKind { verb, group, resource } = question;
        let known = |answers: &[([String; 3], Arc<GrantedObjects>)]| {
            let is_it = |asked: &[String; 3]| *asked == [verb, group, resource];
            answers.iter().find(|(asked, _)| is_it(asked)).map(|(_, granted)| granted.clone())
        };
        if let Some(granted) = known(&self.0.lock()) {
            return granted;
        }
        let granted = Arc::new(find());
        let mut answers = self.0.lock();
        if known(&answers).is_none() {
            let is_full = answers.len() == MAX_ANSWERS;
            answers.drain(..usize::from(is_full));
            answers.push(([verb, group, resource].map(str::to_owned), granted.clone()));
        }
        granted
    }
}

impl GrantedObjects {
    /// The objects on which these roles grant the verb.
    fn by<'a>(roles: impl Iterator<Item = &'a Grant>, question: OnKind<'_>) -> Self {
        let OnKind { verb, group, resource } = question;
        let mut granted = Self::default();
        for rule in roles.flat_map(|grant| grant.role.rules()) {
            if !(rule.verbs.has(verb) && rule.groups.has(group) && rule.resources.has(resource, ""))
            {
                continue;
            }
            match &rule.names {
                None => granted.every = true,
                Some(names) => granted.names.extend(names.iter().cloned()),
            }
        }
        granted.names.sort_unstable();
        granted.names.dedup();
        granted
    }
}

impl Default for RoleGrants {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl RoleSet {
    fn add(&mut self, grant: Grant) {
        self.answers = Answers::default();
        let key = grant.role.key.clone();
        grant.role.rules().iter().for_each(|rule| self.rule_index.add(rule));
        if grant.role.is_wide() {
            self.wide.insert_mut(key.clone(), grant.role.clone());
        }
        self.roles.insert_mut(key, grant);
    }

    fn remove(&mut self, role: &Role) {
        self.answers = Answers::default();
        role.rules().iter().for_each(|rule| self.rule_index.remove(rule));
        self.wide.remove_mut(&role.key);
        self.roles.remove_mut(&role.key);
    }
}

impl RoleGrants {
    /// Adds a role of a binding. Returns whether the role is new here.
    fn add(&mut self, role: &Arc<Role>, binding: &Arc<str>) -> bool {
        if let Some(mut grant) = self.grant(&role.key).cloned() {
            grant.bindings.insert_mut(binding.clone(), ());
            self.put(grant);
            return false;
        }
        let mut grant = Grant { role: role.clone(), bindings: SharedSet::default() };
        grant.bindings.insert_mut(binding.clone(), ());
        match self {
            Self::List(list) if list.len() < FEW_ROLES => list.push(grant),
            Self::List(list) => {
                let mut set = RoleSet::default();
                list.drain(..).chain([grant]).for_each(|grant| set.add(grant));
                *self = Self::Indexed(Arc::new(set));
            }
            Self::Indexed(set) => Arc::make_mut(set).add(grant),
        }
        true
    }

    /// Removes a role of a binding. Returns whether no other binding grants the role here.
    fn remove(&mut self, role: &Role, binding: &str) -> bool {
        let Some(mut grant) = self.grant(&role.key).cloned() else { return false };
        grant.bindings.remove_mut(binding);
        if !grant.bindings.is_empty() {
            self.put(grant);
            return false;
        }
        match self {
            Self::List(list) => list.retain(|grant| grant.role.key != role.key),
            Self::Indexed(set) => {
                let set = Arc::make_mut(set);
                set.remove(role);
                if set.roles.size() <= FEW_ROLES {
                    *self = Self::List(set.roles.values().cloned().collect());
                }
            }
        }
        true
    }

    fn grant(&self, key: &PolicyKey) -> Option<&Grant> {
        match self {
            Self::List(list) => list.iter().find(|grant| grant.role.key == *key),
            Self::Indexed(set) => set.roles.get(key),
        }
    }

    fn put(&mut self, new: Grant) {
        match self {
            Self::List(list) => {
                if let Some(grant) = list.iter_mut().find(|grant| grant.role.key == new.role.key) {
                    *grant = new;
                }
            }
            Self::Indexed(set) => {
                Arc::make_mut(set).roles.insert_mut(new.role.key.clone(), new);
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::List(list) if list.is_empty())
    }

    /// The roles, in no order.
    pub(crate) fn roles(&self) -> Box<dyn Iterator<Item = &Grant> + '_> {
        match self {
            Self::List(list) => Box::new(list.iter()),
            Self::Indexed(set) => Box::new(set.roles.values()),
        }
    }

    /// The objects of a kind on which the roles grant a verb.
    fn granted(&self, question: OnKind<'_>) -> Arc<GrantedObjects> {
        match self {
            Self::List(list) => Arc::new(GrantedObjects::by(list.iter(), question)),
            Self::Indexed(set) => {
                set.answers.get(question, || GrantedObjects::by(set.roles.values(), question))
            }
        }
    }

    fn allows(&self, query: &ResourceQuery<'_>) -> bool {
        match self {
            Self::List(list) => list.iter().any(|grant| grant.role.allows(query)),
            Self::Indexed(set) => {
                set.rule_index.allow(query) || set.wide.values().any(|role| role.wide_allows(query))
            }
        }
    }

    fn allows_path(&self, verb: &str, path: &str) -> bool {
        match self {
            Self::List(list) => list.iter().any(|grant| grant.role.allows_path(verb, path)),
            Self::Indexed(set) => set.wide.values().any(|role| role.allows_path(verb, path)),
        }
    }
}

/// All roles of one subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubjectGrants {
    everywhere: RoleGrants,
    namespaces: SharedMap<Arc<str>, RoleGrants>,
    /// The kinds in the rules of the roles: of those for all namespaces, and of those for one.
    kinds_everywhere: RuleIndex,
    kinds_in_namespaces: RuleIndex,
}

impl SubjectGrants {
    /// Adds a role of a binding.
    pub(crate) fn add(&mut self, role: &Arc<Role>, binding: &PolicyKey) {
        let mut grants = self.take(binding.namespace.as_ref());
        if grants.add(role, &binding.name) {
            let kinds = self.kinds_mut(binding);
            role.kinds().iter().for_each(|kind| kinds.add(kind));
        }
        self.put(binding.namespace.as_ref(), grants);
    }

    /// Removes a role of a binding.
    pub(crate) fn remove(&mut self, role: &Role, binding: &PolicyKey) {
        let mut grants = self.take(binding.namespace.as_ref());
        if grants.remove(role, &binding.name) {
            let kinds = self.kinds_mut(binding);
            role.kinds().iter().for_each(|kind| kinds.remove(kind));
        }
        self.put(binding.namespace.as_ref(), grants);
    }

    fn kinds_mut(&mut self, binding: &PolicyKey) -> &mut RuleIndex {
        match binding.namespace {
            None => &mut self.kinds_everywhere,
            Some(_) => &mut self.kinds_in_namespaces,
        }
    }

    fn take(&mut self, namespace: Option<&Arc<str>>) -> RoleGrants {
        match namespace {
            None => std::mem::take(&mut self.everywhere),
            Some(namespace) => self.namespaces.get(namespace).cloned().unwrap_or_default(),
        }
    }

    fn put(&mut self, namespace: Option<&Arc<str>>, grants: RoleGrants) {
        match namespace {
            None => self.everywhere = grants,
            Some(namespace) if grants.is_empty() => {
                self.namespaces.remove_mut(namespace);
            }
            Some(namespace) => self.namespaces.insert_mut(namespace.clone(), grants),
        }
    }

    /// Whether the subject holds no role.
    pub(crate) fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.namespaces.is_empty()
    }

    /// Whether a role allows the request. `namespace` is empty for a request without a namespace.
    pub(crate) fn allow(&self, query: &ResourceQuery<'_>, namespace: &str) -> bool {
        self.everywhere.allows(query)
            || (!namespace.is_empty()
                && self.namespaces.get(namespace).is_some_and(|grants| grants.allows(query)))
    }

    /// Whether a role allows this verb on a non-resource path.
    pub(crate) fn allow_path(&self, verb: &str, path: &str) -> bool {
        self.everywhere.allows_path(verb, path)
    }

    /// Whether a role has a rule for a kind. `in_namespaces` includes the roles of single namespaces.
    pub(crate) fn concern(&self, group: &str, resource: &str, in_namespaces: bool) -> bool {
        let query = ResourceQuery { verb: "", group, resource, subresource: "", name: None };
        self.kinds_everywhere.allow(&query)
            || (in_namespaces && self.kinds_in_namespaces.allow(&query))
    }

    /// The roles that apply in a namespace: those for all namespaces, then those of this one.
    pub(crate) fn grants_in(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (Option<&str>, &Grant)> {
        let there = self.namespaces.get_key_value(namespace).filter(|_| !namespace.is_empty());
        let there = there
            .into_iter()
            .flat_map(|(name, grants)| grants.roles().map(move |grant| (Some(&**name), grant)));
        self.everywhere.roles().map(|grant| (None, grant)).chain(there)
    }

    /// The objects of a kind on which the roles grant a verb: for all namespaces, and for each one.
    pub(crate) fn granted(
        &self,
        question: OnKind<'_>,
    ) -> impl Iterator<Item = (Option<&str>, Arc<GrantedObjects>)> {
        let there = self.namespaces.iter();
        let there = there.map(move |(name, grants)| (Some(&**name), grants.granted(question)));
        std::iter::once((None, self.everywhere.granted(question))).chain(there)
    }
}
