//! Who is asking, and may they? Pure functions over data: no network, no storage, no clock.
//!
//! A bearer credential ([`bearer`]) is looked up by its digest ([`digest`]) in a [`principal_index`],
//! which answers how the key stands ([`resolved_key`]) and whom it shows ([`identity`]), or who that one
//! is while he acts as somebody else ([`impersonation`]); [`decide`] says whether that identity may
//! do what it asks. Every decision about access in Postern is taken here.

pub mod bearer;
pub mod decide;
pub mod digest;
pub mod identity;
pub mod impersonated;
pub mod principal_index;
pub mod resolved_key;
