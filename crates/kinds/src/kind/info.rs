//! What a kind is called, and what can be done with it.

use postern_meta::gvk::{GroupKind, GroupResource, GroupVersion};

use super::action::Action;
use crate::verb::Verb;

/// Whether names are unique in a namespace or in the whole server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// Everything about a kind that is known without an object.
#[derive(Debug)]
pub struct Info {
    /// Group and version.
    pub version: GroupVersion,
    /// The kind in CamelCase.
    pub kind: &'static str,
    /// The resource name in paths.
    pub plural: &'static str,
    /// What kubectl calls one.
    pub singular: &'static str,
    /// Abbreviations, as discovery lists them: `kubectl get ns`.
    pub short: &'static [&'static str],
    /// What our own command line calls one, beside all the names above: `postern get secret`. The
    /// first is the one that its help shows; where there is none, that is the singular.
    pub aliases: &'static [&'static str],
    /// Where its names are unique.
    pub scope: Scope,
    /// Verbs that are served on objects and their collection. Those that an action has on the
    /// kind's own path (subresource `""`) are in [`Info::actions`] as well, with their handler.
    pub verbs: &'static [Verb],
    /// What is served besides: subresources, and kinds that are asked and answered.
    pub actions: &'static [Action],
    /// Do its objects hold secrets? Then no body with one stands in an audit record, whatever the
    /// policy says.
    pub confidential: bool,
    /// One sentence for `kubectl explain`.
    pub description: &'static str,
}

impl Info {
    /// Group and resource, as errors name it.
    pub const fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.version.group, resource: self.plural }
    }

    /// Group and kind, as validation errors name it.
    pub const fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.version.group, kind: self.kind }
    }

    /// Do its objects live in namespaces?
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Is the verb served on objects of this kind?
    pub fn serves(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// Returns the row of the table of actions for a subresource (`""` for the kind's own path)
    /// and a verb.
    pub fn action(&self, subresource: &str, verb: Verb) -> Option<&'static Action> {
        self.actions.iter().find(|one| one.subresource == subresource && one.verb == verb)
    }

    /// Returns the subresources, each once, in the order of the table.
    pub fn subresources(&self) -> impl Iterator<Item = &'static str> {
        let names = self.actions.iter().map(|action| action.subresource);
        let seen = |at: usize, name: &str| {
            self.actions[..at].iter().any(|action| action.subresource == name)
        };
        names
            .enumerate()
            .filter(move |(at, name)| !name.is_empty() && !seen(*at, name))
            .map(|(_, name)| name)
    }

    /// Are objects of this kind stored? A kind that is not is asked and answered by its actions.
    pub fn is_stored(&self) -> bool {
        !self.actions.iter().any(|action| action.subresource.is_empty())
    }
}
