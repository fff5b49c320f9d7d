//! Walks a value along its schema: prunes unknown fields, and checks types.
//!
//! The value has been through the decoder, so its depth is bounded, and with
//! it the recursion here.

use std::fmt;
use std::ops::Deref;

use serde_json::{Map, Number, Value};

use super::Schema;
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

/// The fields of an object, by its schema.
enum Fields<'a> {
    /// Free-form: any field is allowed, and kept.
    Free,
    /// These fields, and perhaps a schema for all others.
    Known { properties: Option<&'a Map<String, Value>>, others: Option<&'a Value> },
}

/// The schemas that one value may fit. Nearly always it is one, and then no list is allocated:
/// this is made for every value of every object that is written.
pub(crate) enum Branches<'a> {
    One(&'a Value),
    Union(Vec<&'a Value>),
}

impl<'a> Deref for Branches<'a> {
    type Target = [&'a Value];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Union(all) => all,
        }
    }
}

/// The schemas that one value may fit: one, or the branches of a union.
pub(crate) fn branches<'a>(schema: &'a Schema, at: &'a Value) -> Branches<'a> {
    let at = schema.resolve(at);
    let union = at.get("oneOf").or_else(|| at.get("anyOf")).and_then(Value::as_array);
    match union {
        Some(union) => Branches::Union(union.iter().map(|branch| schema.resolve(branch)).collect()),
        None => Branches::One(at),
    }
}

fn fields_of(at: &Value) -> Fields<'_> {
    if at.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        return Fields::Free;
    }
    let properties = at.get("properties").and_then(Value::as_object);
    match at.get("additionalProperties") {
        Some(Value::Bool(true)) => Fields::Free,
        Some(Value::Object(others)) if others.is_empty() => Fields::Free,
        Some(others @ Value::Object(_)) => Fields::Known { properties, others: Some(others) },
        _ if properties.is_none() && at.get("type").is_none() => Fields::Free,
        _ => Fields::Known { properties, others: None },
    }
}

/// One field, by the schema.
pub(crate) enum Field<'a> {
    /// It may have any value.
    Free,
    /// It has a schema.
    Known(&'a Value),
    /// It is not in the schema.
    Unknown,
}

/// The field in the schema, from the first branch that has it.
pub(crate) fn field_of<'a>(branches: &[&'a Value], name: &str) -> Field<'a> {
    let known = branches.iter().find_map(|branch| match fields_of(branch) {
        Fields::Free => {
            let property = branch.get("properties").and_then(|known| known.get(name));
            Some(property.map_or(Field::Free, Field::Known))
        }
        Fields::Known { properties, others } => {
            properties.and_then(|known| known.get(name)).or(others).map(Field::Known)
        }
    });
    known.unwrap_or(Field::Unknown)
}

/// See [`Schema::prune_unknown`].
pub(super) fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { schema, unknown: Vec::new() };
    pruner.prune(value, &schema.root, &Path::ROOT);
    pruner.unknown
}

struct Pruner<'a> {
    schema: &'a Schema,
    unknown: Vec<String>,
}

impl Pruner<'_> {
    fn prune(&mut self, value: &mut Value, at: &Value, path: &Path<'_>) {
        let schema = self.schema;
        let branches = branches(schema, at);
        match value {
            Value::Object(fields) => self.prune_fields(fields, &branches, path),
            Value::Array(items) => {
                let Some(of) = branches.iter().find_map(|branch| branch.get("items")) else {
                    return;
                };
                for (i, item) in items.iter_mut().enumerate() {
                    self.prune(item, of, &path.index(i));
                }
            }
            Value::Number(number)
                if branches.iter().all(|branch| type_of(branch) == Some("integer")) =>
            {
                if let Some(integer) = integer_of_float(number) {
                    *number = integer.into();
                }
            }
            _ => {}
        }
    }

    fn prune_fields(
        &mut self,
        fields: &mut Map<String, Value>,
        branches: &[&Value],
        path: &Path<'_>,
    ) {
        fields.retain(|name, value| {
            let path = &path.field(name);
            let at = match field_of(branches, name) {
                Field::Known(at) => at,
                Field::Free => return true,
                Field::Unknown => {
                    self.record_unknown(path);
                    return false;
                }
            };
            if value.is_null() && !is_free(self.schema, at) {
                return false;
            }
            self.prune(value, at, path);
            true
        });
    }

    fn record_unknown(&mut self, path: &Path<'_>) {
        if self.unknown.len() < MAX_STRICT_ERRORS {
            self.unknown.push(path.to_string());
        }
    }
}

/// Whether any value fits, so that `null` is a value like others.
pub(super) fn is_free(schema: &Schema, at: &Value) -> bool {
    branches(schema, at)
        .iter()
        .any(|branch| type_of(branch).is_none() && matches!(fields_of(branch), Fields::Free))
}

/// See [`Schema::check_types`].
pub(super) fn check(schema: &Schema, value: &Value) -> Result<(), TypeMismatch> {
    Checker { schema }.check(value, &schema.root, &Path::ROOT)
}

/// Whether the schema requires a time that the text is not.
fn is_invalid_time(text: &str, at: &Value) -> bool {
    let timed = at.get("format").and_then(Value::as_str) == Some("date-time");
    timed && text.parse::<MicroTimestamp>().is_err()
}

struct Checker<'a> {
    schema: &'a Schema,
}

impl Checker<'_> {
    fn check(&self, value: &Value, at: &Value, path: &Path<'_>) -> Result<(), TypeMismatch> {
        let schema = self.schema;
        let branches = branches(schema, at);
        let mut first = None;
        for branch in branches.iter() {
            match self.check_type(value, branch, path) {
                Ok(()) => return self.check_inside(value, &branches, path),
                Err(mismatch) => first = first.or(Some(mismatch)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn check_type(&self, value: &Value, at: &Value, path: &Path<'_>) -> Result<(), TypeMismatch> {
        let Some(expected) = type_of(at) else { return Ok(()) };
        let found = match (expected, value) {
            ("string", Value::String(text)) if is_invalid_time(text, at) => {
                let (path, expected) = (path.to_string(), "a time as in RFC 3339");
                return Err(TypeMismatch { path, expected, found: "other text" });
            }
            ("string", Value::String(_))
            | ("boolean", Value::Bool(_))
            | ("object", Value::Object(_))
            | ("array", Value::Array(_))
            | ("number", Value::Number(_)) => return Ok(()),
            ("integer", Value::Number(number)) => match integer_mismatch(number, at) {
                None => return Ok(()),
                Some(mismatch) => mismatch,
            },
            _ => found_type(value),
        };
        Err(TypeMismatch { path: path.to_string(), expected, found })
    }

    fn check_inside(
        &self,
        value: &Value,
        branches: &[&Value],
        path: &Path<'_>,
    ) -> Result<(), TypeMismatch> {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                    let Field::Known(at) = field_of(branches, name) else { continue };
                    self.check(value, at, &path.field(name))?;
                }
            }
            Value::Array(items) => {
                let of = branches.iter().find_map(|branch| branch.get("items"));
                let Some(of) = of else { return Ok(()) };
                for (i, item) in items.iter().enumerate() {
                    self.check(item, of, &path.index(i))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The type that a schema names, if it is only one.
fn type_of(at: &Value) -> Option<&'static str> {
    match at.get("type")?.as_str()? {
        "string" => Some("string"),
        "integer" => Some("integer"),
        "number" => Some("number"),
        "boolean" => Some("boolean"),
        "object" => Some("object"),
        "array" => Some("array"),
        _ => None,
    }
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

/// The mismatch of a number with the integer that the schema requires; `None` if it fits. Without a format, an
/// integer has 64 bits.
fn integer_mismatch(number: &Number, at: &Value) -> Option<&'static str> {
    const OUT_OF_RANGE: &str = "number out of range";
    // Pruning makes an integer of it, before or after this check.
    if integer_of_float(number).is_some() {
        return None;
    }
    let Some(value) = number.as_i128() else {
        let integral = number.as_f64().is_some_and(|float| float.fract() == 0.0);
        return Some(if integral { OUT_OF_RANGE } else { "number with a fraction" });
    };
    let (min, max) = match at.get("format").and_then(Value::as_str) {
        Some("int8") => (i8::MIN.into(), i8::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("int16") => (i16::MIN.into(), i16::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64" | "uint") => (0, i128::from(u64::MAX)),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    (!(min..=max).contains(&value)).then_some(OUT_OF_RANGE)
}
