//! Roles and bindings, as in Kubernetes' RBAC: the permissions of their rules ([`rule`], [`role`]),
//! the roles of each subject ([`role_grants`], [`index`]), and the roles that can allow a request
//! ([`role_finder`]).
//!
//! Everything here is part of a snapshot. A change makes the next snapshot, which shares all but the
//! changed paths with the one before. The permissions that need no role are in [`crate::implicit_rights`],
//! scopes are in [`crate::scope`].

pub(crate) mod index;
pub(crate) mod role;
pub(crate) mod role_finder;
pub(crate) mod role_grants;
pub(crate) mod rule;
pub(crate) mod rule_index;
pub(crate) mod use_changes;
