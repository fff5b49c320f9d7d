//! The roles that one subject holds: everywhere, and in each namespace.

use std::sync::Arc;

use parking_lot::Mutex;

use super::cells::Cells;
use super::role::{PolicyKey, Role};
use super::rule::ResourceQuery;
use crate::shared_map::{SharedMap, SharedSet};

/// So many roles in one place are asked one by one. More have their rules in one table.
const FEW_ROLES: usize = 8;

/// A role that a subject holds in one place, and the names of the bindings that give it there.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) role: Arc<Role>,
    pub(crate) bindings: SharedSet<Arc<str>>,
}

/// The roles that one subject holds in one place.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// So few that each is asked.
    Few(Vec<Held>),
    /// Many, with a table of all their rules.
    Many(Arc<Many>),
}

/// Many roles, with a table of all their rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Many {
    roles: SharedMap<PolicyKey, Held>,
    cells: Cells,
    /// The roles that have rules without cells.
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

/// The objects of a kind on which roles give a verb.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Every object, where the roles are held.
    pub(crate) every: bool,
    /// Objects of these names, in order.
    pub(crate) names: Vec<Arc<str>>,
}

/// So many answers are kept for a place.
const MAX_ANSWERS: usize = 4;

/// The permissions that many roles were found to give. A caller that lists a kind again asks the same
/// question. The first change removes them.
#[derive(Debug, Default)]
struct Answers(Mutex<Vec<([String; 3], Arc<Given>)>>);

impl Clone for Answers {
    /// Empty, since a clone is made in order to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Answers {
    /// The answer to a question, which is found only once.
    fn get(&self, question: OnKind<'_>, find: impl FnOnce() -> Given) -> Arc<Given> {
        let OnKind { verb, group, resource } = question;
        let known = |answers: &[([String; 3], Arc<Given>)]| {
            let is_it = |asked: &[String; 3]| *asked == [verb, group, resource];
            answers.iter().find(|(asked, _)| is_it(asked)).map(|(_, given)| given.clone())
        };
        if let Some(given) = known(&self.0.lock()) {
            return given;
        }
        let given = Arc::new(find());
        let mut answers = self.0.lock();
        if known(&answers).is_none() {
            let is_full = answers.len() == MAX_ANSWERS;
            answers.drain(..usize::from(is_full));
            answers.push(([verb, group, resource].map(str::to_owned), given.clone()));
        }
        given
    }
}

impl Given {
    /// The objects that these roles give.
    fn by<'a>(roles: impl Iterator<Item = &'a Held>, question: OnKind<'_>) -> Self {
        let OnKind { verb, group, resource } = question;
        let mut given = Self::default();
        for rule in roles.flat_map(|held| held.role.rules()) {
            if !(rule.verbs.has(verb) && rule.groups.has(group) && rule.resources.has(resource, ""))
            {
                continue;
            }
            match &rule.names {
                None => given.every = true,
                Some(names) => given.names.extend(names.iter().cloned()),
            }
        }
        given.names.sort_unstable();
        given.names.dedup();
        given
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Many {
    fn add(&mut self, held: Held) {
        self.answers = Answers::default();
        let key = held.role.key.clone();
        held.role.rules().iter().for_each(|rule| self.cells.add(rule));
        if held.role.is_wide() {
            self.wide.insert_mut(key.clone(), held.role.clone());
        }
        self.roles.insert_mut(key, held);
    }

    fn remove(&mut self, role: &Role) {
        self.answers = Answers::default();
        role.rules().iter().for_each(|rule| self.cells.remove(rule));
        self.wide.remove_mut(&role.key);
        self.roles.remove_mut(&role.key);
    }
}

impl Place {
    /// Adds a role that a binding gives. Returns whether the subject did not have it here.
    fn add(&mut self, role: &Arc<Role>, binding: &Arc<str>) -> bool {
        if let Some(mut held) = self.held(&role.key).cloned() {
            held.bindings.insert_mut(binding.clone(), ());
            self.put(held);
            return false;
        }
        let mut held = Held { role: role.clone(), bindings: SharedSet::default() };
        held.bindings.insert_mut(binding.clone(), ());
        match self {
            Self::Few(few) if few.len() < FEW_ROLES => few.push(held),
            Self::Few(few) => {
                let mut many = Many::default();
                few.drain(..).chain([held]).for_each(|held| many.add(held));
                *self = Self::Many(Arc::new(many));
            }
            Self::Many(many) => Arc::make_mut(many).add(held),
        }
        true
    }

    /// Takes away a role that a binding gave. Returns whether the subject has it here no more.
    fn remove(&mut self, role: &Role, binding: &str) -> bool {
        let Some(mut held) = self.held(&role.key).cloned() else { return false };
        held.bindings.remove_mut(binding);
        if !held.bindings.is_empty() {
            self.put(held);
            return false;
        }
        match self {
            Self::Few(few) => few.retain(|held| held.role.key != role.key),
            Self::Many(many) => {
                let many = Arc::make_mut(many);
                many.remove(role);
                if many.roles.size() <= FEW_ROLES {
                    *self = Self::Few(many.roles.values().cloned().collect());
                }
            }
        }
        true
    }

    fn held(&self, key: &PolicyKey) -> Option<&Held> {
        match self {
            Self::Few(few) => few.iter().find(|held| held.role.key == *key),
            Self::Many(many) => many.roles.get(key),
        }
    }

    fn put(&mut self, new: Held) {
        match self {
            Self::Few(few) => {
                if let Some(held) = few.iter_mut().find(|held| held.role.key == new.role.key) {
                    *held = new;
                }
            }
            Self::Many(many) => {
                Arc::make_mut(many).roles.insert_mut(new.role.key.clone(), new);
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Few(few) if few.is_empty())
    }

    /// The roles, in no order.
    pub(crate) fn roles(&self) -> Box<dyn Iterator<Item = &Held> + '_> {
        match self {
            Self::Few(few) => Box::new(few.iter()),
            Self::Many(many) => Box::new(many.roles.values()),
        }
    }

    /// The objects of a kind on which the roles give a verb.
    fn given(&self, question: OnKind<'_>) -> Arc<Given> {
        match self {
            Self::Few(few) => Arc::new(Given::by(few.iter(), question)),
            Self::Many(many) => {
                many.answers.get(question, || Given::by(many.roles.values(), question))
            }
        }
    }

    fn allows(&self, query: &ResourceQuery<'_>) -> bool {
        match self {
            Self::Few(few) => few.iter().any(|held| held.role.allows(query)),
            Self::Many(many) => {
                many.cells.allow(query) || many.wide.values().any(|role| role.wide_allows(query))
            }
        }
    }

    fn allows_path(&self, verb: &str, path: &str) -> bool {
        match self {
            Self::Few(few) => few.iter().any(|held| held.role.allows_path(verb, path)),
            Self::Many(many) => many.wide.values().any(|role| role.allows_path(verb, path)),
        }
    }
}

/// All that one subject holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    everywhere: Place,
    namespaces: SharedMap<Arc<str>, Place>,
    /// The kinds that roles concern which are held everywhere, and in namespaces.
    kinds_everywhere: Cells,
    kinds_in_namespaces: Cells,
}

impl Holdings {
    /// Adds a role that a binding gives.
    pub(crate) fn add(&mut self, role: &Arc<Role>, binding: &PolicyKey) {
        let mut place = self.take(binding.namespace.as_ref());
        if place.add(role, &binding.name) {
            let kinds = self.kinds_mut(binding);
            role.kinds().iter().for_each(|kind| kinds.add(kind));
        }
        self.put(binding.namespace.as_ref(), place);
    }

    /// Takes away a role that a binding gave.
    pub(crate) fn remove(&mut self, role: &Role, binding: &PolicyKey) {
        let mut place = self.take(binding.namespace.as_ref());
        if place.remove(role, &binding.name) {
            let kinds = self.kinds_mut(binding);
            role.kinds().iter().for_each(|kind| kinds.remove(kind));
        }
        self.put(binding.namespace.as_ref(), place);
    }

    fn kinds_mut(&mut self, binding: &PolicyKey) -> &mut Cells {
        match binding.namespace {
            None => &mut self.kinds_everywhere,
            Some(_) => &mut self.kinds_in_namespaces,
        }
    }

    fn take(&mut self, namespace: Option<&Arc<str>>) -> Place {
        match namespace {
            None => std::mem::take(&mut self.everywhere),
            Some(namespace) => self.namespaces.get(namespace).cloned().unwrap_or_default(),
        }
    }

    fn put(&mut self, namespace: Option<&Arc<str>>, place: Place) {
        match namespace {
            None => self.everywhere = place,
            Some(namespace) if place.is_empty() => {
                self.namespaces.remove_mut(namespace);
            }
            Some(namespace) => self.namespaces.insert_mut(namespace.clone(), place),
        }
    }

    /// Is there nothing?
    pub(crate) fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.namespaces.is_empty()
    }

    /// Does a role allow this on a resource in a namespace? The namespace is empty where there is none.
    pub(crate) fn allow(&self, query: &ResourceQuery<'_>, namespace: &str) -> bool {
        self.everywhere.allows(query)
            || (!namespace.is_empty()
                && self.namespaces.get(namespace).is_some_and(|place| place.allows(query)))
    }

    /// Does a role allow this method on a path?
    pub(crate) fn allow_path(&self, verb: &str, path: &str) -> bool {
        self.everywhere.allows_path(verb, path)
    }

    /// Does a role concern a kind? `in_namespaces`: may it be one that is held in a namespace?
    pub(crate) fn concern(&self, group: &str, resource: &str, in_namespaces: bool) -> bool {
        let query = ResourceQuery { verb: "", group, resource, subresource: "", name: None };
        self.kinds_everywhere.allow(&query)
            || (in_namespaces && self.kinds_in_namespaces.allow(&query))
    }

    /// The roles that count in a namespace, or without one: those held everywhere, and there.
    pub(crate) fn in_place(&self, namespace: &str) -> impl Iterator<Item = (Option<&str>, &Held)> {
        let there = self.namespaces.get_key_value(namespace).filter(|_| !namespace.is_empty());
        let there = there
            .into_iter()
            .flat_map(|(name, place)| place.roles().map(move |held| (Some(&**name), held)));
        self.everywhere.roles().map(|held| (None, held)).chain(there)
    }

    /// The objects of a kind on which the roles give a verb: everywhere, and in each namespace.
    pub(crate) fn given(
        &self,
        question: OnKind<'_>,
    ) -> impl Iterator<Item = (Option<&str>, Arc<Given>)> {
        let there = self.namespaces.iter();
        let there = there.map(move |(name, place)| (Some(&**name), place.given(question)));
        std::iter::once((None, self.everywhere.given(question))).chain(there)
    }
}
