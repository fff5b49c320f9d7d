//! Roles and bindings, as Kubernetes' RBAC has them: what their rules allow ([`rule`], [`role`]),
//! and who holds which of them where ([`place`], [`index`]).
//!
//! Everything here is part of a snapshot. A change makes the next snapshot, which shares all but the
//! changed paths with the one before. What identities have without a role is in
//! [`crate::own`], scopes are in [`crate::scope`].

pub(crate) mod cells;
pub(crate) mod index;
pub(crate) mod place;
pub(crate) mod role;
pub(crate) mod rule;
