//! Objects: how they are read, watched and written, and the records that are stored with them.
//!
//! - Reads: [`read`], [`watch`] with `visibility`, [`observe`], and [`deciding`] for decisions without a permit.
//! - Writes, in the order of a write: `rewrite`, `commit`, `stage`, `rules`, and `effects`, which both add to.
//! - Records that a write stores with its object: `side_records`, `sync_writers`, and `revocations`, which depend on the
//!   notes of [`issued_tokens`].
//! - `write_only_callers`: the responses for callers that may write an object and may not get it.

pub(crate) mod commit;
pub mod deciding;
pub(in crate::registry) mod effects;
pub mod issued_tokens;
pub mod observe;
pub mod read;
mod revocations;
mod rewrite;
mod rules;
pub(crate) mod side_records;
pub(in crate::registry) mod stage;
pub(crate) mod sync_writers;
pub(crate) mod visibility;
pub mod watch;
mod write_only_callers;
