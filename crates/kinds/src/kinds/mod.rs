//! The kinds, one file each, and the list of those that are served. The others are responses of actions, or bodies of
//! their requests. [`access`] has the fields that kinds with access rules share. It is here since it makes Roles and
//! bindings, which are kinds, too.

use crate::AnyKind;

pub mod access;
pub mod agent_config;
pub mod audit_event_list;
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
pub mod lease;
pub mod namespace;
pub mod owned_access_key;
pub mod project;
pub mod project_clusters;
pub mod project_members;
pub mod project_migrate_virtual_cluster_instance;
pub mod project_secret;
pub mod project_secret_usage;
pub mod project_templates;
pub mod reviews;
pub mod role;
pub mod role_binding;
pub mod secret;
pub mod secret_delivery;
pub mod secret_entries;
pub mod secret_entry;
pub mod secret_subscription;
pub mod selves;
pub mod shared_secret;
pub mod shared_secret_readers;
pub mod space_instance;
pub mod team;
pub mod team_members;
pub mod trusted_issuer;
pub mod user;
pub mod virtual_cluster_instance;
pub mod workload_identity;

/// The kinds of this product that are served, in a fixed order.
pub(crate) const OURS: &[&dyn AnyKind] = &[
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
