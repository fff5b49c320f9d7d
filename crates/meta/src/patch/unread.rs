//! JSON Patch for a caller that may write an object and not read it. The answer does not depend on
//! the contents of the protected fields, not even on their keys.
//!
//! The protected values are taken out of the object before the operations run, so that nothing can
//! ask about them, and are put back at the end.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

use super::budget::Budget;
use super::json_patch::{
    add_empty_maps, apply_one, does_not_apply, drop_empty_maps, operations_of, read,
};
use crate::status::ApiError;

/// A field that is protected in every object: its paths name the keys of protected fields.
const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

/// Applies a patch as [`apply_json_patch`](super::apply_json_patch), but its success and its error
/// do not depend on the protected data. The protected data is in and below the `protected` fields,
/// which are maps, and in `metadata.managedFields`.
///
/// There, `replace` is an `add`, and `remove` of an absent field succeeds. An operation that reaches into an entry of a
/// map, or into `managedFields`, does not apply. `test`, `copy` and `move` are refused anywhere in the object: see
/// [`json_patch_reads`](super::json_patch_reads).
///
/// # Errors
/// As [`apply_json_patch`](super::apply_json_patch). The values of the protected fields do not count for the limit of
/// the result.
pub fn apply_json_patch_unread(
    mut target: Value,
    patch: &Value,
    protected: &[&[&str]],
) -> Result<Value, ApiError> {
    let operations = operations_of(patch)?;
    let mut fields: Vec<Protected<'_>> =
        protected.iter().map(|path| Protected::new(path, true)).collect();
    fields.push(Protected::new(MANAGED_FIELDS, false));
    add_empty_maps(&mut target);
    for field in &mut fields {
        field.value = take(&mut target, field.path);
    }
    let mut budget = Budget::new(&target);
    for (index, operation) in operations.iter().enumerate() {
        let operation = read(index, operation)?;
        if !is_write(&operation) {
            return Err(does_not_apply(index, &operation));
        }
        let steps = path_of(&operation);
        if let Some(field) = fields.iter_mut().find(|field| is_prefix(field.path, &steps)) {
            budget.charge(&operation, &target)?;
            let below = steps.get(field.path.len()..).unwrap_or_default();
            if !field.apply(below, operation.clone()) {
                return Err(does_not_apply(index, &operation));
            }
            continue;
        }
        apply_one(&mut target, index, &operation, &mut budget)?;
        for field in fields.iter_mut().filter(|field| is_above(&steps, field.path)) {
            field.value = take(&mut target, field.path);
        }
    }
    for field in fields {
        if let Some(value) = field.value {
            put(&mut target, field.path, value);
        }
    }
    drop_empty_maps(&mut target);
    Ok(target)
}

/// A protected field, taken out of the object.
struct Protected<'p> {
    path: &'p [&'p str],
    /// Whether its entries can be written one by one.
    is_map: bool,
    value: Option<Value>,
}

impl<'p> Protected<'p> {
    fn new(path: &'p [&'p str], is_map: bool) -> Self {
        Self { path, is_map, value: None }
    }

    /// Does an operation at `below` in the field. Returns whether it applies, which depends on the
    /// operation alone.
    fn apply(&mut self, below: &[String], operation: PatchOperation) -> bool {
        let written = match operation {
            PatchOperation::Add(add) => Some(add.value),
            PatchOperation::Replace(replace) => Some(replace.value),
            _ => None,
        };
        match below {
            [] => self.value = written,
            [key] if self.is_map => self.set(key, written),
            _ => return false,
        }
        true
    }

    fn set(&mut self, key: &str, written: Option<Value>) {
        if !self.value.as_ref().is_some_and(Value::is_object) && written.is_some() {
            self.value = Some(Value::Object(Map::new()));
        }
        let Some(Value::Object(entries)) = &mut self.value else { return };
        match written {
            Some(value) => entries.insert(key.to_owned(), value),
            None => entries.remove(key),
        };
    }
}

fn is_write(operation: &PatchOperation) -> bool {
    match operation {
        PatchOperation::Add(_) | PatchOperation::Remove(_) | PatchOperation::Replace(_) => true,
        PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => false,
    }
}

/// The path of an operation, unescaped.
fn path_of(operation: &PatchOperation) -> Vec<String> {
    operation.path().tokens().map(|token| token.decoded().into_owned()).collect()
}

/// Whether `path` is `field` or below it.
fn is_prefix(field: &[&str], path: &[String]) -> bool {
    path.len() >= field.len() && field.iter().zip(path).all(|(name, step)| name == step)
}

/// Whether `path` is above `field`: a value that is written there may have that field.
fn is_above(path: &[String], field: &[&str]) -> bool {
    path.len() < field.len() && field.iter().zip(path).all(|(name, step)| name == step)
}

/// Takes the value at `path` out of an object.
fn take(target: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(target, |value, name| value.get_mut(*name))?;
    parent.as_object_mut()?.remove(*last)
}

/// Puts a value at `path`. A value in between that is no object becomes one.
fn put(target: &mut Value, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = target;
    for name in parents {
        at = map_of(at).entry(*name).or_insert(Value::Null);
    }
    map_of(at).insert((*last).to_owned(), value);
}

fn map_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("it was made an object"),
    }
}

#[cfg(test)]
mod tests;
