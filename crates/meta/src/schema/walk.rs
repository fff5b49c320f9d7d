//! Walks a value along its schema: prunes unknown fields, and checks types.
//!
//! The value has been through the decoder, so its depth is bounded, and with
//! it the recursion here.

use std::fmt;

use serde_json::{Map, Number, Value};

use super::node::{Branch, Field, JsonType, Node};
use crate::decode::MAX_STRICT_ERRORS;
use crate::number::integer_of_float;
use crate::path::Path;
use crate::time::MicroTimestamp;

/// A value of another JSON type than the schema requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMismatch {
    /// The path, such as `spec.displayName`; empty for the whole value.
    pub path: String,
    /// The type that the schema requires.
    pub expected: &'static str,
    /// The type that was found, never a value.
    pub found: &'static str,
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "expected {}, got {}", self.expected, self.found)
    }
}

impl std::error::Error for TypeMismatch {}

/// See [`Schema::prune_unknown`](super::Schema::prune_unknown).
pub(super) fn prune(value: &mut Value, root: Node<'_>) -> Vec<String> {
    let mut pruner = Pruner { unknown: Vec::new() };
    pruner.prune(value, root, &Path::ROOT);
    pruner.unknown
}

struct Pruner {
    unknown: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, value: &mut Value, at: Node<'_>, path: &Path<'_>) {
        match value {
            Value::Object(fields) => self.prune_fields(fields, at, path),
            Value::Array(items) => {
                let Some(of) = at.items() else { return };
                for (i, item) in items.iter_mut().enumerate() {
                    self.prune(item, of, &path.index(i));
                }
            }
            Value::Number(number) if at.requires_integer() => {
                if let Some(integer) = integer_of_float(number) {
                    *number = integer.into();
                }
            }
            _ => {}
        }
    }

    fn prune_fields(&mut self, fields: &mut Map<String, Value>, at: Node<'_>, path: &Path<'_>) {
        fields.retain(|name, value| {
            let path = &path.field(name);
            let field = match at.field(name) {
                Field::Known(field) => field,
                Field::Free => return true,
                Field::Unknown => {
                    self.record_unknown(path);
                    return false;
                }
            };
            if value.is_null() && !field.takes_any_value() {
                return false;
            }
            self.prune(value, field, path);
            true
        });
    }

    fn record_unknown(&mut self, path: &Path<'_>) {
        if self.unknown.len() < MAX_STRICT_ERRORS {
            self.unknown.push(path.to_string());
        }
    }
}

/// See [`Schema::check_types`](super::Schema::check_types).
pub(super) fn check(value: &Value, root: Node<'_>) -> Result<(), TypeMismatch> {
    check_at(value, root, &Path::ROOT)
}

fn check_at(value: &Value, at: Node<'_>, path: &Path<'_>) -> Result<(), TypeMismatch> {
    let mut first = None;
    for branch in at.branches() {
        match type_mismatch(value, branch) {
            None => return check_inside(value, at, path),
            mismatch => first = first.or(mismatch),
        }
    }
    match first {
        Some((expected, found)) => Err(TypeMismatch { path: path.to_string(), expected, found }),
        None => Ok(()),
    }
}

/// The type that the schema requires and the one that was found; `None` if the value has the type. The parts of the
/// value are not looked at.
fn type_mismatch(value: &Value, branch: Branch<'_>) -> Option<(&'static str, &'static str)> {
    let expected = branch.json_type()?;
    match (expected, value) {
        (JsonType::String { is_time: true }, Value::String(text))
            if text.parse::<MicroTimestamp>().is_err() =>
        {
            Some(("a time as in RFC 3339", "other text"))
        }
        (JsonType::String { .. }, Value::String(_))
        | (JsonType::Boolean, Value::Bool(_))
        | (JsonType::Object, Value::Object(_))
        | (JsonType::Array, Value::Array(_))
        | (JsonType::Number, Value::Number(_)) => None,
        (JsonType::Integer { min, max }, Value::Number(number)) => {
            Some((expected.name(), integer_mismatch(number, min, max)?))
        }
        _ => Some((expected.name(), found_type(value))),
    }
}

fn check_inside(value: &Value, at: Node<'_>, path: &Path<'_>) -> Result<(), TypeMismatch> {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                if let Field::Known(field) = at.field(name) {
                    check_at(value, field, &path.field(name))?;
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = at.items() else { return Ok(()) };
            for (i, item) in items.iter().enumerate() {
                check_at(item, of, &path.index(i))?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn found_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The mismatch of a number with an integer within bounds; `None` if it fits.
fn integer_mismatch(number: &Number, min: i64, max: u64) -> Option<&'static str> {
    const OUT_OF_RANGE: &str = "number out of range";
    // Pruning makes an integer of it, before or after this check.
    if integer_of_float(number).is_some() {
        return None;
    }
    let Some(value) = number.as_i128() else {
        let integral = number.as_f64().is_some_and(|float| float.fract() == 0.0);
        return Some(if integral { OUT_OF_RANGE } else { "number with a fraction" });
    };
    (!(i128::from(min)..=i128::from(max)).contains(&value)).then_some(OUT_OF_RANGE)
}
