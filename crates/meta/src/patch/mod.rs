//! Patches on JSON values. No error of a patch has a value in it: patched objects hold secrets.

mod json_patch;
mod merge_patch;

pub use json_patch::apply_json_patch;
pub use merge_patch::apply_merge_patch;

/// Maximum number of operations in one JSON Patch, as upstream.
pub const MAX_OPERATIONS: usize = 10_000;

/// Maximum bytes of a patched object, estimated: as many as a body may have.
pub const MAX_RESULT_BYTES: usize = 3 * 1024 * 1024;
