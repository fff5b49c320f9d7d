//! Who is asking, and may they? Pure functions over data: no network, no storage, no clock.
//!
//! A bearer credential ([`bearer`]) is looked up by its digest ([`digest`]) in a [`directory`],
//! which answers how the key stands ([`standing`]) and whom it shows ([`identity`]), or who that one
//! is while he acts as somebody else ([`impersonation`]); [`decide`] says whether that identity may
//! do what it asks. Every decision about access in Postern is taken here.

pub mod bearer;
pub mod decide;
pub mod digest;
pub mod directory;
pub mod identity;
pub mod impersonation;
pub mod standing;
