//! The kinds of this product: one file each, and the one list of them.
//!
//! Discovery, OpenAPI, tables, routing and the tests iterate over [`all`]. A new kind is one new file and two lines
//! here: its module, and its entry in the list. This crate does *not* say how objects are stored or who may access
//! them, and has no side effects.

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
pub mod key_attenuation;
mod key_life;
mod key_origin;
mod key_parent;
mod kind;
mod kubeconfig_ref;
mod named_identities;
mod names;
mod namespace_names;
mod policy_rules;
mod right;
mod schema_rule;
mod secret_data;
mod secret_parts;
mod secret_text;
mod ties;
mod verb;

pub mod access;
pub mod access_key;
pub mod agent_config;
pub mod audit_event_list;
pub mod base64_text;
pub mod cluster;
pub mod cluster_endpoint;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod command_line_consent;
pub mod config_map;
pub mod connector;
pub mod connector_test;
pub mod console_login_code;
pub mod console_session;
pub mod custom_resource_definition;
pub mod direct_cluster_endpoint_token;
pub mod event;
pub mod event_v1;
pub mod kubeconfig;
pub mod label_selector;
pub mod lease;
pub mod namespace;
pub mod owned_access_key;
pub mod prelude;
pub mod principal;
pub mod probe;
pub mod project;
pub mod project_clusters;
pub mod project_members;
pub mod project_migrate_virtual_cluster_instance;
pub mod project_secret;
pub mod project_templates;
pub mod rbac;
pub mod reviews;
pub mod role;
pub mod role_binding;
pub mod scope;
pub mod secret;
pub mod secret_entries;
pub mod secret_entry;
pub mod secret_sync;
pub mod selves;
pub mod shared_secret;
pub mod space_instance;
pub mod team;
pub mod trusted_issuer;
pub mod user;
pub mod virtual_cluster_instance;
pub mod workload_identity;
pub mod write_only;

pub use bound::BoundGrant;
pub use claim_match::ClaimMatch;
pub use column::{Cell, ColumnInfo};
pub use condition::{Condition, ConditionsStatus};
pub use context::{Caller, CallerKey, Context, NamedObject, Observations, Reading};
pub use fields::{Draft, FieldType, Fields, Layout, NoStatus};
pub use grants::{grants_of, grants_of_stored};
pub use impersonation::Impersonation;
pub use kind::{
    AnyKind, Carried, Companion, DataSource, Dependent, DraftOf, FieldsChange, Info, Kind,
    NoEffect, ObservedStatus, OnRemove, Prepared, ResourceScope, SelectableField, StoredAs,
    StrictFields, UniqueKey, UniqueKeys, action, is_zero,
};
pub use kubeconfig_ref::KubeconfigRef;
pub use named_identities::{NamedIdentities, NobodyNamed};
pub use names::{
    BASE_PATH, CORE_V1, MANAGEMENT_V1, MAX_IDENTITIES, identity_name, is_reserved_identity,
};
pub use namespace_names::{
    NamespaceNames, default_namespace, permanent_namespaces, project_prefix, set_namespace_names,
};
/// The name of a kind in decisions.
pub use postern_meta::gvk::GroupResource;
pub use principal::{NoPrincipals, OwnedBy, Owner, Principal, Principals};
pub use right::{RequiredRight, Right};
pub use secret_text::SecretText;
pub use ties::Ties;
pub use verb::Verb;

/// The kinds of this product.
const OURS: &[&dyn AnyKind] = &[
    &namespace::Namespace,
    &shared_secret::SharedSecret,
    &owned_access_key::OwnedAccessKey,
    &user::User,
    &team::Team,
    &selves::SelfKind,
    &project::Project,
    &virtual_cluster_instance::VirtualClusterInstance,
    &space_instance::SpaceInstance,
    &project_secret::ProjectSecret,
    &cluster::Cluster,
    &connector::Connector,
    &trusted_issuer::TrustedIssuer,
    &workload_identity::WorkloadIdentity,
    &direct_cluster_endpoint_token::DirectClusterEndpointToken,
    &role::Role,
    &role_binding::RoleBinding,
    &cluster_role::ClusterRole,
    &cluster_role_binding::ClusterRoleBinding,
    &secret::Secret,
    &config_map::ConfigMap,
    &event::Event,
    &event_v1::EventV1,
    &lease::Lease,
    &custom_resource_definition::CustomResourceDefinition,
    &reviews::self_subject_access_review::SelfSubjectAccessReview,
    &reviews::subject_access_review::SubjectAccessReview,
    &reviews::platform_self_subject_access_review::PlatformSelfSubjectAccessReview,
    &reviews::platform_subject_access_review::PlatformSubjectAccessReview,
    &reviews::local_subject_access_review::LocalSubjectAccessReview,
    &reviews::self_subject_rules_review::SelfSubjectRulesReview,
    &reviews::self_subject_review::SelfSubjectReview,
    &reviews::self_subject_review_v1beta1::SelfSubjectReviewV1Beta1,
    &reviews::token_review::TokenReview,
    &reviews::resource_access_review::ResourceAccessReview,
    &reviews::access_preview::AccessPreview,
];

static SERVED: OnceLock<Vec<&'static dyn AnyKind>> = OnceLock::new();

/// Every kind that is served, in a fixed order.
pub fn all() -> &'static [&'static dyn AnyKind] {
    SERVED.get_or_init(|| OURS.to_vec())
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
    let mut served = OURS.to_vec();
    served.push(kind);
    SERVED.set(served).map_err(|_| kind)
}

/// The kind that an owner reference names by its `apiVersion` and kind.
pub fn of_reference(api_version: &str, kind: &str) -> Option<&'static dyn AnyKind> {
    let found = all().iter().copied().find(|known| {
        let info = known.info();
        info.kind == kind && info.version.to_string() == api_version
    })?;
    Some(found.stored_as().map_or(found, |stored| stored.kind))
}

/// The kind of a group, version and plural name.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static dyn AnyKind> {
    all().iter().copied().find(|kind| {
        let info = kind.info();
        info.version.group == group && info.version.version == version && info.plural == plural
    })
}
