//! `ResourceTarget`: a verb on an object or collection, independent of the form of the request.

use postern_kinds::action::Action;
use postern_kinds::{AnyKind, Verb};

/// A request for a resource.
#[derive(Clone)]
pub struct ResourceTarget {
    /// The kind.
    pub kind: &'static dyn AnyKind,
    /// The verb.
    pub verb: Verb,
    /// The namespace; `None` for cluster-scoped kinds and for all namespaces at once.
    pub namespace: Option<String>,
    /// The name of the object, if it is in the path or in a field selector.
    pub name: Option<String>,
    /// The row in the kind's table of actions, if the request is not for the object or collection itself.
    pub action: Option<&'static Action>,
    /// The version of the kind in another group, if the request is for that version.
    pub version: Option<&'static dyn AnyKind>,
}

impl ResourceTarget {
    /// A target that is one object.
    pub fn object(
        kind: &'static dyn AnyKind,
        verb: Verb,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let (namespace, name) = (namespace.map(str::to_owned), Some(name.to_owned()));
        Self { kind, verb, namespace, name, action: None, version: None }
    }

    /// The kind in the version of the request. Its group decides about permissions.
    pub fn requested(&self) -> &'static dyn AnyKind {
        self.version.unwrap_or(self.kind)
    }

    /// The subresource; empty for the object or collection itself.
    pub fn subresource(&self) -> &'static str {
        self.action.map_or("", |action| action.subresource)
    }
}

/// The stored kind of a requested one, and the requested one if it is another version of it.
pub fn stored_kind(
    requested: &'static dyn AnyKind,
) -> (&'static dyn AnyKind, Option<&'static dyn AnyKind>) {
    match requested.info().stored_as {
        Some(stored) => (stored.kind, Some(requested)),
        None => (requested, None),
    }
}

/// The fields that field selectors support for every kind.
pub const SELECTABLE_FIELDS: &[&str] = &["metadata.name", "metadata.namespace"];

/// The fields that field selectors support for a kind.
pub fn selectable_fields(kind: &dyn AnyKind) -> Vec<&'static str> {
    let of_kind = kind.info().selectable_fields.iter().map(|field| field.label);
    SELECTABLE_FIELDS.iter().copied().chain(of_kind).collect()
}
