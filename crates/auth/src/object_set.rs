//! A set of objects of one kind, given by namespaces and names.

use std::collections::BTreeSet;

use crate::projects::Projects;

/// A set of objects of one kind: the union of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    /// Every object.
    pub all: bool,
    /// Every object in these namespaces.
    pub namespaces: BTreeSet<String>,
    /// Single objects, by namespace and name.
    pub objects: BTreeSet<(String, String)>,
    /// Objects of these names, in any namespace or in none.
    pub names: BTreeSet<String>,
    /// Every object in a namespace of a project, whichever.
    pub(crate) in_projects: bool,
}

/// The most pairs of a namespace and a name that an intersection is written out as.
const MAX_PAIRS: usize = 4096;

impl ObjectSet {
    /// The set of every object.
    pub(crate) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Whether this object is in the set. The namespace is empty for an object without one.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.all
            || self.namespaces.contains(namespace)
            || self.names.contains(name)
            || (!self.objects.is_empty()
                && self.objects.contains(&(namespace.to_owned(), name.to_owned())))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        !self.all
            && !self.in_projects
            && self.namespaces.is_empty()
            && self.objects.is_empty()
            && self.names.is_empty()
    }

    /// Leaves out what another part has already, so that equal sets are equal.
    pub(crate) fn normalize(&mut self) {
        if self.all {
            *self = Self::all();
            return;
        }
        let Self { namespaces, objects, names, .. } = self;
        if namespaces.is_empty() && names.is_empty() {
            return;
        }
        objects
            .retain(|(namespace, name)| !namespaces.contains(namespace) && !names.contains(name));
    }

    /// Keeps the possible objects only, given whether objects of the kind have a namespace.
    pub(crate) fn keep_possible(&mut self, has_namespaces: Option<bool>) {
        match has_namespaces {
            Some(true) => {
                self.namespaces.remove("");
                // Objects without a namespace come first.
                while self.objects.first().is_some_and(|(namespace, _)| namespace.is_empty()) {
                    self.objects.pop_first();
                }
            }
            Some(false) => {
                self.all |= self.namespaces.contains("");
                self.namespaces.clear();
                self.in_projects = false;
                let objects = std::mem::take(&mut self.objects).into_iter();
                let without = objects.filter(|(namespace, _)| namespace.is_empty());
                self.names.extend(without.map(|(_, name)| name));
            }
            None => {}
        }
        self.normalize();
    }

    /// Writes out the namespaces of all projects, as far as they matter next to another set.
    pub(crate) fn name_projects(&mut self, next_to: &Self, projects: &Projects) {
        if !std::mem::take(&mut self.in_projects) {
            return;
        }
        if next_to.all || next_to.in_projects || !next_to.names.is_empty() {
            self.namespaces.extend(projects.namespaces().map(str::to_owned));
        } else {
            let named = next_to.objects.iter().map(|(namespace, _)| namespace);
            let named = next_to.namespaces.iter().chain(named);
            let named = named.filter(|namespace| projects.of(namespace).is_some());
            self.namespaces.extend(named.cloned());
        }
        self.normalize();
    }

    /// The objects that are in both; `None` when the set would be too long to write out.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        if self.all {
            return Some(other.clone());
        }
        if other.all {
            return Some(self.clone());
        }
        let pairs = |one: &Self, two: &Self| one.namespaces.len().saturating_mul(two.names.len());
        if pairs(self, other).saturating_add(pairs(other, self)) > MAX_PAIRS {
            return None;
        }
        let mut both = Self {
            namespaces: self.namespaces.intersection(&other.namespaces).cloned().collect(),
            names: self.names.intersection(&other.names).cloned().collect(),
            ..Self::default()
        };
        for (one, two) in [(self, other), (other, self)] {
            let objects = one.objects.iter();
            both.objects.extend(objects.filter(|(ns, name)| two.contains(ns, name)).cloned());
            for namespace in &one.namespaces {
                both.objects.extend(two.names.iter().map(|name| (namespace.clone(), name.clone())));
            }
        }
        both.normalize();
        Some(both)
    }
}
