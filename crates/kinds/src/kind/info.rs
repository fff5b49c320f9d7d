//! The names of a kind, and its endpoints: everything that is known without an object.

use postern_meta::field::FieldErrors;
use postern_meta::gvk::{GroupKind, GroupResource, GroupVersion};
use postern_meta::names::NameRule;
use postern_meta::object::ObjectMeta;
use serde_json::Value;

use super::action::Action;
use super::{
    DataSource, NoEffect, ObservedStatus, OnRemove, StoredAs, StrictFields, UnservedField, unserved,
};
use crate::column::ColumnInfo;
use crate::fields::Layout;
use crate::names::MANAGEMENT_V1;
use crate::right::Right;
use crate::verb::Verb;
use crate::write_only::WriteOnlyField;

/// Whether names are unique in a namespace or in the whole server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResourceScope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects live in namespaces. The default namespace of clients is the default.
    InDefaultNamespace,
    /// Objects have no namespace.
    Cluster,
}

/// Whether an update needs a resourceVersion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateRule {
    /// It needs one.
    WithVersion,
    /// It replaces the stored object without one, too. So Kubernetes has it for some of its kinds, and clients of these
    /// rely on it.
    Unconditional,
}

/// Everything about a kind that is known without typed fields. A kind gives its names and description,
/// and everything in which it differs from [`Info::DEFAULT`].
#[derive(Debug)]
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
    /// Whether its objects have secrets. Then no audit record has a body with one, under any
    /// policy.
    pub confidential: bool,
    /// Whether an update needs a resourceVersion.
    pub update: UpdateRule,
    /// The fields that field selectors support besides name and namespace.
    pub selectable_fields: &'static [SelectableField],
    /// The warning to the client about the remains of a deletion. It is for objects that record
    /// something that the server does not delete. Empty for all others.
    pub deletion_warning: &'static str,
    /// One sentence for `kubectl explain`.
    pub description: &'static str,
    /// Where its fields are. A kind with [`Layout::TopLevel`] has no status.
    pub layout: Layout,
    /// The stored kind of which it is another version; `None` for a kind with separate objects.
    pub stored_as: Option<StoredAs>,
    /// The rule for the names of its objects.
    pub name_rule: NameRule,
    /// The prefix of the name that the server generates when the client gives neither `name` nor
    /// `generateName`; `None` where that is an error.
    pub name_prefix: Option<&'static str>,
    /// The most bytes that an object of this kind has as JSON, if the kind has its own limit.
    pub max_bytes: Option<usize>,
    /// The columns of a table between name and age.
    pub columns: &'static [ColumnInfo],
    /// Fields that clients write and no client reads back.
    pub write_only: &'static [WriteOnlyField],
    /// The fields that only callers with `get` on the object receive, also in the response to their
    /// own write. See `docs/reference/api.md#write-without-read`.
    pub read_protected: &'static [&'static [&'static str]],
    /// Where its objects have the values of secrets. Each response with one is noted.
    pub values: ValuesAt,
    /// Fields that grant or narrow access, in which nothing is ignored, independently of the field
    /// validation that the client asks for. `None` for those of every kind of the group.
    pub strict_fields: Option<StrictFields>,
    /// Fields of the platform's clients that this server does not have.
    pub unserved_fields: &'static [UnservedField],
    /// Fields of the platform's clients that this server keeps, and that have no effect. Those of access rules are not
    /// among them.
    pub no_effect: &'static [NoEffect],
    /// Fields of the spec that the platform's clients do not know, by their names: a PUT that does not name one keeps
    /// it, and null removes it.
    pub kept_fields: &'static [&'static str],
    /// The right that allows a caller with `get` on an object this verb on a part of it, given the
    /// name of the object. `None` for a verb without one. The kind's required rights include the
    /// whole right if a write changes more.
    pub partial_right: Option<fn(Verb, &str) -> Option<Right>>,
    /// Whether the quotas of a project limit the number of its objects in the project's namespace.
    pub is_counted_in_quotas: bool,
    /// The object that an object with this metadata takes its data from; `None` for one that has
    /// its own data. Of a core Secret it counts in the namespaces of projects alone.
    pub data_source: Option<fn(&ObjectMeta) -> Option<DataSource>>,
    /// Changes of other objects that go with the removal of one.
    pub on_remove: Option<OnRemove>,
    /// Fields of the status that are observed, not stored.
    pub observed_status: Option<ObservedStatus>,
}

/// Where the objects of a kind have the values of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuesAt {
    /// No object has one.
    Nowhere,
    /// In a map, if it is not empty: the text with which the map begins in JSON without spaces.
    Map(&'static str),
    /// Every object has one.
    Everywhere,
}

impl ValuesAt {
    /// The values in the field `data`. No other field of these kinds has the name and is an object.
    pub const DATA: Self = Self::Map("\"data\":{\"");
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
        update: UpdateRule::WithVersion,
        selectable_fields: &[],
        deletion_warning: "",
        description: "",
        layout: Layout::SpecAndStatus,
        stored_as: None,
        name_rule: NameRule::Subdomain,
        name_prefix: None,
        max_bytes: None,
        columns: &[],
        write_only: &[],
        read_protected: &[],
        values: ValuesAt::Nowhere,
        strict_fields: None,
        unserved_fields: &[],
        no_effect: &[],
        kept_fields: &[],
        partial_right: None,
        is_counted_in_quotas: false,
        data_source: None,
        on_remove: None,
        observed_status: None,
    };

    /// The body of a response, which is never stored: all of its fields are next to `metadata`.
    pub(crate) const RESPONSE: Self = Self {
        verbs: &[Verb::Get],
        on_command_line: false,
        layout: Layout::TopLevel,
        ..Self::DEFAULT
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
        self.scope != ResourceScope::Cluster
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

    /// Whether the identities that were sent values of its objects are noted.
    pub fn notes_readers(&self) -> bool {
        self.actions.iter().any(Action::returns_readers)
    }

    /// The fields in which nothing is ignored.
    pub fn strict_fields(&self) -> StrictFields {
        self.strict_fields.unwrap_or_else(|| StrictFields::of_group(self.version.group))
    }

    /// Removes the fields of other servers that ask for nothing from an object. Returns an error for each that asks for
    /// something.
    pub fn take_unserved(&self, object: &mut Value) -> FieldErrors {
        unserved::take(self.unserved_fields, object)
    }

    /// The right by which a caller may do this to a part of an object; `None` where there is none.
    pub fn partial_right(&self, verb: Verb, name: &str) -> Option<Right> {
        self.partial_right?(verb, name)
    }

    /// The object that an object with this metadata takes its data from.
    pub fn data_source(&self, metadata: &ObjectMeta) -> Option<DataSource> {
        self.data_source?(metadata)
    }

    /// Whether objects of this kind are stored. A kind that is not stored has actions on its own
    /// path.
    pub fn is_stored(&self) -> bool {
        !self.actions.iter().any(|action| action.subresource.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::{ActionRight, Handler, RegistryAction, Response};
    use super::*;

    const fn action(subresource: &'static str, verb: Verb) -> Action {
        Action {
            subresource,
            verb,
            right: ActionRight::OnSubresource,
            handler: Handler::Registry(RegistryAction::WhoAmI),
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
