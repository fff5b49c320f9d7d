//! Authentication and authorization. Pure functions over data: no network, no storage, no clock.
//!
//! A bearer credential ([`bearer`]) is looked up by its digest ([`digest`]) in the
//! [`principal_index`]. The result is the [`resolved_key`] with the [`identity`] of its owner, or
//! the [`impersonated`] identity. A [`policy`] decides whether that identity has permission for the
//! [`attributes`] of its request; [`forbidden`] has the message of a refusal. Every decision about
//! access in Postern is taken here.
//!
//! A request to a cluster is read by [`gateway_path`] and [`kube_request`]. [`policy::target`]
//! decides about it, at the central server and at an agent alike, and so does [`target_review`] for
//! access reviews. [`exec_command`] reads the part of the query that audit records contain, and [`plain_path`] the
//! characters of a path that need no decoding.
//!
//! A policy consists of roles and bindings (`rbac`), the permissions that need no role
//! (`implicit_rights`), the owners of objects (`owners`), and the projects of namespaces
//! ([`projects`]). A key with a [`scope`] has no permission beyond that scope. An [`explanation`]
//! has the reasons for a decision. An [`endpoint_token`] carries an identity to connected clusters,
//! which verify it offline. A [`writer`] is the stored identity of a caller, for later decisions.

pub mod attributes;
pub mod bearer;
pub mod credential_text;
pub mod digest;
pub mod endpoint_token;
pub mod exec_command;
pub mod explanation;
pub mod forbidden;
pub mod gateway_path;
pub mod identity;
pub mod impersonated;
mod implicit_rights;
mod kind_scope;
pub mod kube_request;
pub mod object_set;
mod owners;
pub mod plain_path;
pub mod policy;
pub mod principal_index;
pub mod projects;
mod rbac;
pub mod resolved_key;
pub mod scope;
mod shared_map;
pub mod target_review;
mod text_set;
pub mod writer;
