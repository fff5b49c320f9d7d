//! Kinds that do something instead of being kept.

pub(crate) mod selves;
