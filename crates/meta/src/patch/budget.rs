//! The maximum cost of one JSON Patch: bytes added, items shifted, values moved, and the depth of the result. The
//! library executes the operations.

use json_patch::PatchOperation;
use serde_json::Value;

use super::{MAX_MOVED_VALUES, MAX_RESULT_BYTES, MAX_SHIFTED_ITEMS};
use crate::decode::MAX_DEPTH;
use crate::status::ApiError;

/// The size of a value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    /// Estimated bytes as JSON.
    pub(super) bytes: usize,
    /// The number of values, with the value itself.
    values: usize,
    /// How many lists and objects are nested, with the value itself.
    depth: usize,
}

impl Size {
    /// The size of a value, in one walk. The depth of `value` must be bounded.
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self { bytes: 2, values: 1, depth: 0 };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => size.bytes = 8,
            Value::String(text) => size.bytes += text.len(),
            Value::Array(items) => {
                for item in items {
                    size.add(Self::of(item), 1);
                }
                size.depth += 1;
            }
            Value::Object(fields) => {
                for (name, item) in fields {
                    size.add(Self::of(item), name.len() + 4);
                }
                size.depth += 1;
            }
        }
        size
    }

    fn add(&mut self, inner: Self, extra_bytes: usize) {
        self.bytes += inner.bytes + extra_bytes;
        self.values += inner.values;
        self.depth = self.depth.max(inner.depth);
    }
}

/// The remaining budget for the operations of one patch.
pub(super) struct Budget {
    bytes: usize,
    shifted_items: usize,
    moved_values: usize,
}

impl Budget {
    /// The budget of a patch on `target`.
    pub(super) fn new(target: &Value) -> Self {
        Self {
            bytes: MAX_RESULT_BYTES.saturating_sub(Size::of(target).bytes),
            shifted_items: MAX_SHIFTED_ITEMS,
            moved_values: MAX_MOVED_VALUES,
        }
    }

    /// Takes the cost of an operation on `target`.
    ///
    /// # Errors
    /// 413 when the budget is spent, 422 when the result would be nested too deeply.
    pub(super) fn charge(
        &mut self,
        operation: &PatchOperation,
        target: &Value,
    ) -> Result<(), ApiError> {
        let path = operation.path().as_str();
        match operation {
            PatchOperation::Add(add) => self.insert(target, path, Size::of(&add.value)),
            PatchOperation::Replace(replace) => {
                let size = Size::of(&replace.value);
                check_depth(path, size)?;
                take(&mut self.bytes, size.bytes, too_large)
            }
            PatchOperation::Copy(copy) => {
                let size = self.moved(target, copy.from.as_str())?;
                self.insert(target, path, size)
            }
            PatchOperation::Move(moving) => {
                let size = self.moved(target, moving.from.as_str())?;
                check_depth(path, size)?;
                self.shift(target, moving.from.as_str())?;
                self.shift(target, path)
            }
            PatchOperation::Remove(_) => self.shift(target, path),
            // A comparison ends at the first difference, so it costs at most its value in the
            // patch.
            PatchOperation::Test(_) => Ok(()),
        }
    }

    fn insert(&mut self, target: &Value, path: &str, size: Size) -> Result<(), ApiError> {
        check_depth(path, size)?;
        take(&mut self.bytes, size.bytes, too_large)?;
        self.shift(target, path)
    }

    /// Takes the values at `from`. Without any, the operation fails.
    fn moved(&mut self, target: &Value, from: &str) -> Result<Size, ApiError> {
        let size = target.pointer(from).map(Size::of).unwrap_or_default();
        take(&mut self.moved_values, size.values, || {
            ApiError::request_entity_too_large(format_args!(
                "The allowed maximum of values that a JSON patch moves or copies is \
                 {MAX_MOVED_VALUES}"
            ))
        })?;
        Ok(size)
    }

    /// Takes the items behind the item at `path`, if that is one of a list.
    fn shift(&mut self, target: &Value, path: &str) -> Result<(), ApiError> {
        let Some((list, index)) = path.rsplit_once('/') else { return Ok(()) };
        let Some(items) = target.pointer(list).and_then(Value::as_array) else { return Ok(()) };
        let Ok(index) = index.parse::<usize>() else { return Ok(()) };
        take(&mut self.shifted_items, items.len().saturating_sub(index), || {
            ApiError::request_entity_too_large(format_args!(
                "The allowed maximum of list items that a JSON patch shifts is {MAX_SHIFTED_ITEMS}"
            ))
        })
    }
}

fn take(left: &mut usize, cost: usize, refuse: impl FnOnce() -> ApiError) -> Result<(), ApiError> {
    *left = left.checked_sub(cost).ok_or_else(refuse)?;
    Ok(())
}

pub(super) fn too_large() -> ApiError {
    ApiError::request_entity_too_large("the patched object would be too large")
}

/// Checks how deep a value would be at `path`. Everything that reads the result recurses.
fn check_depth(path: &str, size: Size) -> Result<(), ApiError> {
    let depth = path.matches('/').count() + size.depth;
    if depth > MAX_DEPTH {
        return Err(ApiError::unprocessable(format!(
            "the patched object would be nested more than {MAX_DEPTH} deep"
        )));
    }
    Ok(())
}
