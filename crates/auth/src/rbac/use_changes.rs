//! The objects for which a policy change can affect the holders of `use`.

use std::sync::Arc;

use postern_kinds::MANAGEMENT_V1;

use super::role::Role;
use super::rule::Rule;

/// The verb that permits requests to a cluster or an instance.
pub(crate) const USE: &str = "use";

/// The resources of our own group that can be used.
pub(crate) const USABLE: [&str; 3] = ["clusters", "virtualclusterinstances", "spaceinstances"];

/// The number of parts of a change that are kept apart. A change with more parts affects every
/// object.
const MAX_PARTS: usize = 256;

/// The objects for which a policy change affects the holders of `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UseChange {
    /// Every object.
    Everything,
    /// The objects in a namespace.
    Namespace(Arc<str>),
    /// The objects of a name: in a namespace, or wherever they are.
    Named(Option<Arc<str>>, Arc<str>),
}

/// The objects that the last change of a policy affects.
#[derive(Clone, Debug, Default)]
pub(crate) struct UseChanges(Vec<UseChange>);

impl UseChanges {
    /// All that are noted.
    pub(crate) fn all(&self) -> &[UseChange] {
        &self.0
    }

    /// Forgets all: a new change begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes that a role is given or taken in a namespace; `None` for everywhere.
    pub(crate) fn note_role(&mut self, namespace: Option<&Arc<str>>, role: &Role) {
        for rule in role.rules().iter().filter(|rule| gives_use(rule)) {
            match (&rule.names, namespace) {
                (Some(names), _) => {
                    for name in names.iter() {
                        self.note(UseChange::Named(namespace.cloned(), name.clone()));
                    }
                }
                (None, Some(namespace)) => self.note_namespace(namespace),
                (None, None) => self.note(UseChange::Everything),
            }
        }
    }

    /// Notes that something in a namespace, or its project, is another.
    pub(crate) fn note_namespace(&mut self, namespace: &str) {
        self.note(UseChange::Namespace(namespace.into()));
    }

    /// Notes that an object of a kind has another owner.
    pub(crate) fn note_owner(&mut self, group: &str, resource: &str, namespace: &str, name: &str) {
        if group == MANAGEMENT_V1.group && USABLE.contains(&resource) {
            let namespace = (!namespace.is_empty()).then(|| Arc::from(namespace));
            self.note(UseChange::Named(namespace, name.into()));
        }
    }

    fn note(&mut self, change: UseChange) {
        if self.0.first() == Some(&UseChange::Everything) || self.0.last() == Some(&change) {
            return;
        }
        if change == UseChange::Everything || self.0.len() >= MAX_PARTS {
            self.0 = vec![UseChange::Everything];
        } else {
            self.0.push(change);
        }
    }
}

/// Whether a rule can grant `use` on any kind that has it.
fn gives_use(rule: &Rule) -> bool {
    rule.verbs.has(USE)
        && rule.groups.has(MANAGEMENT_V1.group)
        && USABLE.iter().any(|resource| rule.resources.has(resource, ""))
}
