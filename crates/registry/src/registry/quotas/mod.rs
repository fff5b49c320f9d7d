//! Quotas: the limits on what one owner or one project has, as conditions of a write.
//!
//! - `key_limits`: the limits of an owner of access keys.
//! - `project_limits`: the limits of a project.
//! - `refused_quotas`: recently exceeded quotas, until an event reports them.

pub(in crate::registry) mod key_limits;
pub(in crate::registry) mod project_limits;
pub(in crate::registry) mod refused_quotas;
