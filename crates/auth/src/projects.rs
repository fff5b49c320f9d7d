//! The project of each namespace. It comes from the namespace objects themselves, never from their
//! names.

use std::sync::Arc;

use crate::shared_map::{SharedMap, SharedSet};

/// Which project each namespace belongs to.
#[derive(Clone, Debug, Default)]
pub struct Projects {
    of_namespace: SharedMap<Arc<str>, Arc<str>>,
    namespaces: SharedMap<Arc<str>, SharedSet<Arc<str>>>,
}

impl Projects {
    /// Sets the project of a namespace; `None` for a namespace of none, or one that was removed.
    pub(crate) fn set(&mut self, namespace: &str, project: Option<&str>) {
        if let Some(old) = self.of_namespace.get(namespace).cloned() {
            let mut namespaces = self.namespaces.get(&old).cloned().unwrap_or_default();
            namespaces.remove_mut(namespace);
            if namespaces.is_empty() {
                self.namespaces.remove_mut(&old);
            } else {
                self.namespaces.insert_mut(old, namespaces);
            }
            self.of_namespace.remove_mut(namespace);
        }
        if let Some(project) = project.filter(|project| !project.is_empty()) {
            let (namespace, project): (Arc<str>, Arc<str>) = (namespace.into(), project.into());
            let mut namespaces = self.namespaces.get(&project).cloned().unwrap_or_default();
            namespaces.insert_mut(namespace.clone(), ());
            self.namespaces.insert_mut(project.clone(), namespaces);
            self.of_namespace.insert_mut(namespace, project);
        }
    }

    /// The project that a namespace belongs to.
    pub fn of(&self, namespace: &str) -> Option<&str> {
        self.of_namespace.get(namespace).map(|project| &**project)
    }

    /// The namespaces of a project.
    pub(crate) fn namespaces_of(&self, project: &str) -> impl Iterator<Item = &str> {
        self.namespaces.get(project).into_iter().flat_map(|set| set.keys().map(|name| &**name))
    }

    /// The namespaces of all projects.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.of_namespace.keys().map(|name| &**name)
    }

    /// Whether both share the same memory. Nothing has changed in that case.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.of_namespace.ptr_eq(&other.of_namespace)
    }
}
