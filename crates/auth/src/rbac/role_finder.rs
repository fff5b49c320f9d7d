//! The roles that can allow something, found by their location, the resource and the object's name.
//!
//! Most roles are for one object, or for a kind in one namespace. So few roles can allow a request,
//! regardless of the caller. It is faster to look up the holders of those few than the roles of
//! each group of the caller.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;

use super::role::{PolicyKey, Role};
use super::rule::{ResourceQuery, Rule};
use crate::shared_map::SharedMap;

/// A role with more pairs of a resource and a name than this is not found by them: it is always asked.
const MAX_PAIRS: usize = 512;

/// How many ways there are to leave out the resource, the name or both.
const CLASSES: usize = 4;

/// Roles, by the objects that they can give permissions on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoleFinder {
    roles: SharedMap<Key, Roles>,
    /// How many entries of each class there are: for ClusterRoles, and for Roles.
    present: [[u32; CLASSES]; 2],
    /// The roles that are for too much to be found.
    wide: SharedMap<PolicyKey, Arc<Role>>,
}

/// The roles of one entry. Mostly it is one.
#[derive(Clone, Debug)]
enum Roles {
    One(Arc<Role>),
    Several(SharedMap<PolicyKey, Arc<Role>>),
}

/// A hash of the objects that a role can give permissions on. Two different values may have the
/// same hash. This costs only time: the found roles are then evaluated.
type Key = u64;

/// A text as keys know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hashed(u64);

impl Hashed {
    /// Everything, where a text could be.
    const ALL: Self = Self(0);

    fn of(text: &str) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        Self(STATE.hash_one(text) | 1)
    }

    fn class(resource: Self, name: Self) -> usize {
        usize::from(resource != Self::ALL) | usize::from(name != Self::ALL) << 1
    }

    /// The key of a namespace, which is empty for ClusterRoles, a resource and a name.
    fn key(namespace: Self, resource: Self, name: Self) -> Key {
        namespace.0 ^ resource.0.rotate_left(21) ^ name.0.rotate_left(42)
    }
}

impl Roles {
    fn with(&self, role: &Arc<Role>) -> Self {
        let mut several = match self {
            Self::One(one) if one.key == role.key => return Self::One(role.clone()),
            Self::One(one) => {
                let mut several = SharedMap::default();
                several.insert_mut(one.key.clone(), one.clone());
                several
            }
            Self::Several(several) => several.clone(),
        };
        several.insert_mut(role.key.clone(), role.clone());
        Self::Several(several)
    }

    /// The rest without a role; `None` when nothing is left.
    fn without(&self, key: &PolicyKey) -> Option<Self> {
        match self {
            Self::One(one) => (one.key != *key).then(|| self.clone()),
            Self::Several(several) => {
                let mut several = several.clone();
                several.remove_mut(key);
                (!several.is_empty()).then_some(Self::Several(several))
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Role>> {
        let (one, several) = match self {
            Self::One(one) => (Some(one), None),
            Self::Several(several) => (None, Some(several.values())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl RoleFinder {
    /// Adds a role that is not in the index yet.
    pub(crate) fn add(&mut self, role: &Arc<Role>) {
        let Some(pairs) = pairs_of(role) else {
            return self.wide.insert_mut(role.key.clone(), role.clone());
        };
        let (level, namespace) = place_of(role);
        for (resource, name) in pairs {
            let key = Hashed::key(namespace, resource, name);
            self.present[level][Hashed::class(resource, name)] += 1;
            let roles = match self.roles.get(&key) {
                Some(roles) => roles.with(role),
                None => Roles::One(role.clone()),
            };
            self.roles.insert_mut(key, roles);
        }
    }

    /// Removes a role from the index.
    pub(crate) fn remove(&mut self, role: &Role) {
        self.wide.remove_mut(&role.key);
        let (level, namespace) = place_of(role);
        for (resource, name) in pairs_of(role).into_iter().flatten() {
            let key = Hashed::key(namespace, resource, name);
            self.present[level][Hashed::class(resource, name)] -= 1;
            match self.roles.get(&key).and_then(|roles| roles.without(&role.key)) {
                Some(roles) => self.roles.insert_mut(key, roles),
                None => {
                    self.roles.remove_mut(&key);
                }
            }
        }
    }

    /// The roles that can allow something in a namespace, or without one: every role that does,
    /// and some that do not.
    pub(crate) fn find<'a>(
        &'a self,
        query: &ResourceQuery<'a>,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Role>> {
        let resource = Hashed::of(query.resource);
        let name = query.name.map_or(Hashed::ALL, Hashed::of);
        let there = (!namespace.is_empty()).then(|| (1, Hashed::of(namespace)));
        let places = [Some((0, Hashed::ALL)), there].into_iter().flatten();
        let keys = places.flat_map(move |(level, namespace)| {
            let resources = [resource, Hashed::ALL].into_iter();
            resources.flat_map(move |resource| {
                let names = [name, Hashed::ALL].into_iter().skip(usize::from(name == Hashed::ALL));
                names
                    .filter(move |name| self.present[level][Hashed::class(resource, *name)] > 0)
                    .map(move |name| Hashed::key(namespace, resource, name))
            })
        });
        let found = keys.filter_map(|key| self.roles.get(&key)).flat_map(Roles::iter);
        let counts =
            move |role: &&Arc<Role>| role.key.namespace.as_deref().is_none_or(|of| of == namespace);
        found.chain(self.wide.values()).filter(counts)
    }
}

/// The place of a role in the counts, and its namespace.
fn place_of(role: &Role) -> (usize, Hashed) {
    match &role.key.namespace {
        None => (0, Hashed::ALL),
        Some(namespace) => (1, Hashed::of(namespace)),
    }
}

/// The objects on which a role can allow something, by resource and name; `None` when there are too
/// many.
fn pairs_of(role: &Role) -> Option<BTreeSet<(Hashed, Hashed)>> {
    let mut pairs = BTreeSet::new();
    for rule in role.rules() {
        let resources = resources_of(rule);
        let names: Vec<Hashed> = match &rule.names {
            None => vec![Hashed::ALL],
            Some(names) => names.iter().map(|name| Hashed::of(name)).collect(),
        };
        if resources.len().saturating_mul(names.len()) > MAX_PAIRS {
            return None;
        }
        for resource in resources {
            pairs.extend(names.iter().map(|name| (resource, *name)));
        }
        if pairs.len() > MAX_PAIRS {
            return None;
        }
    }
    Some(pairs)
}

/// The resources of a rule, without regard to subresources.
fn resources_of(rule: &Rule) -> BTreeSet<Hashed> {
    let all = rule.resources.all || rule.resources.any_with.len() > 0;
    let exact = rule.resources.exact.iter().map(|(resource, _)| Hashed::of(resource));
    exact.chain(all.then_some(Hashed::ALL)).collect()
}
