//! The kinds of this product: one file each, and the one list of them.
//!
//! Discovery, OpenAPI, tables, routing and the tests iterate over [`all`]. A new kind is one new
//! file in `kinds`, and two lines in `kinds/mod.rs`: its module, and its entry in the list. The other
//! files are the parts of kinds. This crate does *not* decide how objects are stored or which callers
//! have access to them, and has no side effects.

use std::sync::OnceLock;

use postern_meta::gvk::GroupVersion;

mod bindings;
mod bound;
mod claim_match;
mod column;
mod condition;
mod context;
mod fields;
mod grants;
mod identities;
mod impersonation;
mod instance;
mod instance_location;
pub mod key_attenuation;
mod key_life;
mod key_origin;
mod key_parent;
mod kind;
mod kinds;
mod kubeconfig_ref;
mod named_identities;
mod names;
mod namespace_names;
mod policy_rules;
mod rbac_kinds;
mod right;
mod schema_rule;
mod secret_data;
mod secret_parts;
mod secret_text;
mod ties;
mod verb;

pub mod access_key;
pub mod base64_text;
pub mod kubeconfig;
pub mod label_selector;
pub mod prelude;
pub mod principal;
pub mod probe;
pub mod rbac;
pub mod scope;
pub mod secret_offer;
pub mod secret_sync;
pub mod write_only;

pub use bound::BoundGrant;
pub use claim_match::ClaimMatch;
pub use column::{Cell, ColumnInfo};
pub use condition::{Condition, ConditionsStatus};
pub use context::{
    Caller, CallerKey, Context, KeyState, NamedObject, Observations, ObservedKey, Reading, Sharing,
    WriterKind,
};
pub use fields::{Draft, FieldType, Fields, Layout, NoStatus};
pub use grants::{grants_of, grants_of_stored};
pub use impersonation::Impersonation;
pub use kind::{
    AnyCredential, AnyKind, Carried, Companion, Credential, DataSource, Dependent, DraftOf,
    FieldsChange, Info, Kind, NoEffect, ObservedStatus, OnRemove, Parts, Prepared, ResourceScope,
    SelectableField, StoredAs, StrictFields, UniqueKey, UpdateRule, ValuesAt, Write, WriteOf,
    action, is_zero,
};
pub use kinds::*;
pub use kubeconfig_ref::KubeconfigRef;
pub use named_identities::{NamedIdentities, NobodyNamed};
pub use names::{
    BASE_PATH, CORE_V1, MANAGEMENT_V1, MAX_IDENTITIES, identity_name, is_reserved_identity,
};
pub use namespace_names::{
    COMMON_NAMESPACE, NamespaceNames, default_namespace, permanent_namespaces, project_prefix,
    set_namespace_names,
};
/// The name of a kind in decisions.
pub use postern_meta::gvk::GroupResource;
pub use principal::{NoPrincipals, OwnedBy, Owner, Principal, Principals};
pub use right::{RequiredRight, Right};
pub use secret_text::SecretText;
pub use ties::Ties;
pub use verb::Verb;

static SERVED: OnceLock<Vec<&'static dyn AnyKind>> = OnceLock::new();

/// Every kind that is served, in a fixed order.
pub fn all() -> &'static [&'static dyn AnyKind] {
    SERVED.get_or_init(|| kinds::OURS.to_vec())
}

/// The groups and versions that are served, each once, in the order of the kinds.
pub fn versions() -> Vec<GroupVersion> {
    let mut versions = Vec::new();
    for kind in all() {
        if !versions.contains(&kind.info().version) {
            versions.push(kind.info().version);
        }
    }
    versions
}

/// Adds one kind to those that this process serves, as the last one. For a build that has kinds of
/// its own. It is called once, before the first call of [`all`].
///
/// # Errors
/// The kind itself, if [`all`] was called already: tables made from its result would not have it.
/// Also if it has a part in authentication: those parts are taken, and their objects are known by
/// name alone.
pub fn add(kind: &'static dyn AnyKind) -> Result<(), &'static dyn AnyKind> {
    if kind.has_access_role() {
        return Err(kind);
    }
    let mut served = kinds::OURS.to_vec();
    served.push(kind);
    SERVED.set(served).map_err(|_| kind)
}

/// The kind that an owner reference names by its `apiVersion` and kind.
pub fn of_reference(api_version: &str, kind: &str) -> Option<&'static dyn AnyKind> {
    let found = all().iter().copied().find(|known| {
        let info = known.info();
        info.kind == kind && info.version.to_string() == api_version
    })?;
    Some(found.info().stored_as.map_or(found, |stored| stored.kind))
}

/// The kind of a group, version and plural name.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static dyn AnyKind> {
    all().iter().copied().find(|kind| {
        let info = kind.info();
        // The plural first: it differs most.
        info.plural == plural && info.version.group == group && info.version.version == version
    })
}
