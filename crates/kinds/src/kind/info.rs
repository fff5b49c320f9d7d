//! The names of a kind, and its endpoints: everything that is known without an object.

use postern_meta::gvk::{GroupKind, GroupResource, GroupVersion};
use serde_json::Value;

use super::action::Action;
use crate::names::MANAGEMENT_V1;
use crate::verb::Verb;

/// Whether names are unique in a namespace or in the whole server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResourceScope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// Everything about a kind that is known without an object. A kind gives its names and description,
/// and everything in which it differs from [`Info::DEFAULT`].
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a kind")]
pub struct Info {
    /// Group and version.
    pub version: GroupVersion,
    /// The kind in CamelCase.
    pub kind: &'static str,
    /// The resource name in paths.
    pub plural: &'static str,
    /// The singular name in kubectl.
    pub singular: &'static str,
    /// Abbreviations, as discovery lists them: `kubectl get ns`.
    pub short: &'static [&'static str],
    /// Further names in our own command line: `postern get secret`. Its help uses the first, or the
    /// singular where there is none.
    pub aliases: &'static [&'static str],
    /// Where its names are unique.
    pub scope: ResourceScope,
    /// Verbs that are served on objects and their collection. Those that an action has on the
    /// kind's own path (subresource `""`) are in [`Info::actions`] as well, with their handler.
    pub verbs: &'static [Verb],
    /// Further endpoints: subresources, and the actions of a kind that is not stored.
    pub actions: &'static [Action],
    /// Whether the command line has commands for it.
    pub on_command_line: bool,
    /// Do its objects have secrets? Then no audit record has a body with one, whatever the policy
    /// says.
    pub confidential: bool,
    /// May an update come without a resourceVersion, and replace whatever is there? So Kubernetes has it for
    /// some of its kinds, and clients of these rely on it.
    pub unconditional_update: bool,
    /// The fields that field selectors support besides name and namespace.
    pub selectable_fields: &'static [SelectableField],
    /// Whether the default namespace of clients is the default for its objects.
    pub in_default_namespace: bool,
    /// What a deletion leaves, as a warning to the client, where an object is the record of something that the server does
    /// not delete. Empty for all others.
    pub deletion_warning: &'static str,
    /// One sentence for `kubectl explain`.
    pub description: &'static str,
}

/// A text that field selectors support.
#[derive(Debug, Clone, Copy)]
pub struct SelectableField {
    /// Its name in a selector.
    pub label: &'static str,
    /// Where it is, with dots.
    pub path: &'static str,
    /// Where it is when nothing is there.
    pub or_else: Option<&'static str>,
}

impl SelectableField {
    /// The field that is called what its path is.
    pub const fn at(path: &'static str) -> Self {
        Self { label: path, path, or_else: None }
    }

    /// A field with another name in selectors.
    pub const fn renamed(label: &'static str, path: &'static str) -> Self {
        Self { label, path, or_else: None }
    }

    /// Its text in an object.
    pub fn text<'a>(&self, object: &'a Value) -> Option<&'a str> {
        let at =
            |path: &str| path.split('.').try_fold(object, |value, name| value.get(name))?.as_str();
        at(self.path).filter(|text| !text.is_empty()).or_else(|| at(self.or_else?))
    }
}

impl Info {
    /// A kind of our own group without a namespace, with all verbs and without actions. It is
    /// confidential unless it says otherwise. Its names and description must be given.
    pub const DEFAULT: Self = Self {
        version: MANAGEMENT_V1,
        kind: "",
        plural: "",
        singular: "",
        short: &[],
        aliases: &[],
        scope: ResourceScope::Cluster,
        verbs: Verb::ALL,
        actions: &[],
        on_command_line: true,
        confidential: true,
        unconditional_update: false,
        selectable_fields: &[],
        in_default_namespace: false,
        deletion_warning: "",
        description: "",
    };

    /// Whether it has the names and the description that every kind needs.
    pub(super) const fn is_complete(&self) -> bool {
        !(self.kind.is_empty()
            || self.plural.is_empty()
            || self.singular.is_empty()
            || self.description.is_empty())
    }

    /// Group and resource, as errors name them.
    pub const fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.version.group, resource: self.plural }
    }

    /// Group and kind, as validation errors name them.
    pub const fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.version.group, kind: self.kind }
    }

    /// Whether its objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == ResourceScope::Namespaced
    }

    /// Whether the verb is served on objects of this kind.
    pub fn serves(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The row of the table of actions for a subresource (`""` for the kind's own path)
    /// and a verb.
    pub fn action(&self, subresource: &str, verb: Verb) -> Option<&'static Action> {
        self.actions.iter().find(|one| one.subresource == subresource && one.verb == verb)
    }

    /// The subresources, each once, in the order of the table.
    pub fn subresources(&self) -> impl Iterator<Item = &'static str> {
        let names = self.actions.iter().map(|action| action.subresource);
        let first = names.clone().enumerate().filter(move |(index, name)| {
            !name.is_empty() && names.clone().position(|other| other == *name) == Some(*index)
        });
        first.map(|(_, name)| name)
    }

    /// Are objects of this kind stored? A kind that is not stored has actions on its own path.
    pub fn is_stored(&self) -> bool {
        !self.actions.iter().any(|action| action.subresource.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::{ActionRight, Handler, Response, ServerAction};
    use super::*;

    const fn action(subresource: &'static str, verb: Verb) -> Action {
        Action {
            subresource,
            verb,
            right: ActionRight::OnSubresource,
            handler: Handler::Server(ServerAction::WhoAmI),
            request: None,
            response: Response::Same,
            description: "",
        }
    }

    #[test]
    fn subresources_are_each_once_in_the_order_of_the_table() {
        const NONE: &[Action] = &[];
        const OWN_PATH: &[Action] = &[action("", Verb::Create), action("", Verb::Get)];
        const MIXED: &[Action] = &[
            action("status", Verb::Get),
            action("", Verb::Create),
            action("rotate", Verb::Create),
            action("status", Verb::Update),
            action("approve", Verb::Update),
            action("rotate", Verb::Get),
        ];
        for (actions, subresources, is_stored) in [
            (NONE, &[][..], true),
            (OWN_PATH, &[], false),
            (MIXED, &["status", "rotate", "approve"], false),
            (&MIXED[2..], &["rotate", "status", "approve"], true),
        ] {
            let info = Info { actions, ..Info::DEFAULT };
            assert_eq!(info.subresources().collect::<Vec<_>>(), subresources);
            assert_eq!(info.is_stored(), is_stored, "{subresources:?}");
            for action in actions {
                let found = info.action(action.subresource, action.verb).unwrap();
                assert_eq!((found.subresource, found.verb), (action.subresource, action.verb));
            }
            assert!(info.action("status", Verb::Delete).is_none());
        }
    }
}
