//! Patches on JSON values. No error of a patch has a value in it: patched objects hold secrets.

mod budget;
mod json_patch;
mod merge_patch;
mod strategic;
mod unread;

pub use json_patch::{apply_json_patch, json_patch_reads};
pub use merge_patch::apply_merge_patch;
pub use strategic::apply_strategic_merge_patch;
pub use unread::apply_json_patch_unread;

/// Maximum number of operations in one JSON Patch, as upstream.
pub const MAX_OPERATIONS: usize = 10_000;

/// Maximum bytes of a patched object, estimated: as many as a body may have.
pub const MAX_RESULT_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of list items that one JSON Patch may shift to another index: adding or removing
/// at index `i` shifts all items behind it. 10,000 operations at the front of a list of 1,000 stay
/// within it. Upstream has no such limit.
pub const MAX_SHIFTED_ITEMS: usize = 10_000_000;

/// Maximum number of values that one JSON Patch may move or copy, counting lists, objects and their
/// contents, once for each operation. Upstream limits the bytes of copies only.
pub const MAX_MOVED_VALUES: usize = 1_000_000;
