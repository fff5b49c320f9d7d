//! What a kind is called, and what can be done with it.

use postern_meta::gvk::{GroupKind, GroupResource, GroupVersion};

/// The group of our own kinds.
pub const MANAGEMENT_V1: GroupVersion =
    GroupVersion { group: "management.platform.sh", version: "v1" };

/// Kubernetes' core group.
pub const CORE_V1: GroupVersion = GroupVersion { group: "", version: "v1" };

/// Whether names are unique in a namespace or in the whole server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// What a request wants to do, in the words that access rules use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Make a new one.
    Create,
    /// Replace one.
    Update,
    /// Change parts of one.
    Patch,
    /// Remove one.
    Delete,
    /// Remove many.
    DeleteCollection,
}

impl Verb {
    /// Every verb, in the order in which discovery lists them.
    pub const ALL: &'static [Self] = &[
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// Something that is reached behind an object's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subresource {
    /// The step behind the object's name.
    pub name: &'static str,
    /// The kind that is answered.
    pub kind: &'static str,
    /// What is served.
    pub verbs: &'static [Verb],
    /// One sentence about it.
    pub description: &'static str,
}

/// The access keys of a user or a team.
pub const ACCESS_KEYS_OF: Subresource = Subresource {
    name: "accesskeys",
    kind: "OwnedAccessKey",
    verbs: &[Verb::Get],
    description: "The access keys of one owner, as a list.",
};

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
    /// What is served.
    pub verbs: &'static [Verb],
    /// What is reached behind an object's name.
    pub subresources: &'static [Subresource],
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

    /// Is the verb served?
    pub fn serves(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}

/// Bytes of the longest name of an identity: of a subject, or of a group.
const MAX_IDENTITY_BYTES: usize = 512;

/// Is this a name that an identity may have: a subject's, or a group's?
///
/// # Errors
/// What is wrong with it, for a field error.
pub fn identity_name(name: &str) -> Result<(), String> {
    // Written so that nobody is shown one name and granted another.
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
    };
    if name.is_empty() || name.len() > MAX_IDENTITY_BYTES || name.chars().any(odd) {
        return Err(format!(
            "must be 1 to {MAX_IDENTITY_BYTES} bytes, without control and invisible characters"
        ));
    }
    Ok(())
}
