//! Patches on JSON values. A patch never fails with a value in its error: what is patched holds
//! secrets.

mod json_patch;
mod merge_patch;

pub use json_patch::apply_json_patch;
pub use merge_patch::apply_merge_patch;

/// Operations in one JSON Patch, as upstream.
pub const MAX_OPERATIONS: usize = 10_000;

/// Bytes of a patched object, about: what a body may have, too.
pub const MAX_RESULT_BYTES: usize = 3 * 1024 * 1024;
