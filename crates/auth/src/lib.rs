//! Who is asking, and may they? Pure functions over data: no network, no storage, no clock.
//!
//! A bearer credential ([`bearer`]) is looked up by its digest ([`digest`]) in the
//! [`principal_index`], which returns the [`resolved_key`] with the [`identity`] of its owner, or
//! the [`impersonated`] identity. A [`policy`] decides whether that identity may do what the
//! [`attributes`] of its request say; [`forbidden`] has the message of a refusal. Every decision
//! about access in Postern is taken here.

pub mod attributes;
pub mod bearer;
pub mod digest;
pub mod forbidden;
pub mod identity;
pub mod impersonated;
pub mod policy;
pub mod principal_index;
pub mod resolved_key;
