//! Path elements: one step of a field's path, its order, and its text in FieldsV1.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use crate::decode::{Format, decode};
use crate::number::integer_of_float;

/// One step from a value to a part of it. The order is that of the
/// elements in a serialised set: fields, keys, values, indices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// The field of an object, or the entry of a map: `f:name`.
    Field(String),
    /// The item of a list that has these values in its key fields, which are
    /// sorted by name: `k:{"uid":"x"}`.
    Key(Vec<(String, Scalar)>),
    /// The item of a set that is this value: `v:"x"`.
    Value(Scalar),
    /// The item at this index: `i:0`. Only decoded, for completeness: here, lists
    /// without keys are owned as a whole.
    Index(i64),
}

/// A value that can identify a list's item. Numbers come before texts, as upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scalar {
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// A number with a total order, in which `1` and `1.0` are the same.
#[derive(Debug, Clone)]
pub struct Number(serde_json::Number);

impl PathElement {
    /// The element for the field `name`.
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Parses the text of one element. `None` is an element of an unknown kind: a
    /// later version of the format may have it, and it is skipped.
    pub fn parse(text: &str) -> Result<Option<Self>, InvalidFields> {
        if text.len() > MAX_ELEMENT_BYTES {
            return Err(InvalidFields::new("a path element is too long"));
        }
        match text.split_at_checked(2) {
            Some(("f:", name)) => Ok(Some(Self::field(name))),
            Some(("k:", key)) => parse_key(key).map(Some),
            Some(("v:", json)) => {
                parse_json(json).and_then(|value| scalar(&value)).map(Self::Value).map(Some)
            }
            Some(("i:", index)) => match index.parse() {
                Ok(index) => Ok(Some(Self::Index(index))),
                Err(_) => Err(InvalidFields::new("an index is not a number")),
            },
            Some((kind, _)) if kind.ends_with(':') && kind != "::" => Ok(None),
            _ => Err(InvalidFields::new("a path element does not begin with a letter and \":\"")),
        }
    }

    /// The element as it is written in FieldsV1.
    pub fn to_text(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}:{}", quoted(name), value.to_json()))
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", value.to_json()),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Whether this is the element as it is written in FieldsV1.
    pub(super) fn has_text(&self, text: &str) -> bool {
        match self {
            Self::Field(name) => text.strip_prefix("f:") == Some(name),
            _ => self.to_text() == text,
        }
    }
}

/// As conflicts name it: `.spec`, `[uid="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                for (i, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if i == 0 { "[" } else { "," })?;
                    write!(f, "{name}={}", value.to_json())?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", value.to_json()),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Scalar {
    /// The scalar that `value` is; `None` for lists and objects.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(flag) => Some(Self::Bool(*flag)),
            Value::Number(number) => Some(Self::Number(Number::new(number))),
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.0.to_string(),
            Self::Text(text) => quoted(text),
            Self::Bool(flag) => flag.to_string(),
            Self::Null => "null".to_owned(),
        }
    }
}

impl Number {
    /// Takes `1.0` as `1`, wherever the float is exactly that integer.
    fn new(number: &serde_json::Number) -> Self {
        Self(integer_of_float(number).map_or_else(|| number.clone(), Into::into))
    }

    fn to_float(&self) -> f64 {
        self.0.as_f64().unwrap_or_default()
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0.as_i128(), other.0.as_i128()) {
            (Some(left), Some(right)) => left.cmp(&right),
            (None, None) => self.to_float().total_cmp(&other.to_float()),
            // A float comes after all integers that round to it.
            (Some(_), None) => self.to_float().total_cmp(&other.to_float()).then(Ordering::Less),
            (None, Some(_)) => self.to_float().total_cmp(&other.to_float()).then(Ordering::Greater),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

fn parse_key(text: &str) -> Result<PathElement, InvalidFields> {
    let Value::Object(fields) = parse_json(text)? else {
        return Err(InvalidFields::new("a key is not an object"));
    };
    if fields.is_empty() {
        return Err(InvalidFields::new("a key has no fields"));
    }
    let mut key = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        key.push((name, scalar(&value)?));
    }
    key.sort();
    Ok(PathElement::Key(key))
}

fn parse_json(text: &str) -> Result<Value, InvalidFields> {
    let decoded = decode(text.as_bytes(), Format::Json)
        .map_err(|_| InvalidFields::new("a path element holds text that is not JSON"))?;
    if decoded.duplicates.is_empty() {
        Ok(decoded.value)
    } else {
        Err(InvalidFields::new("a key has a field twice"))
    }
}

fn scalar(value: &Value) -> Result<Scalar, InvalidFields> {
    Scalar::from_value(value)
        .ok_or_else(|| InvalidFields::new("a path element holds a list or an object"))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Maximum bytes of one path element: the names of fields are at most 317 long.
pub const MAX_ELEMENT_BYTES: usize = 4096;

/// Why a value is not a field set, or not an entry of `managedFields`. It never
/// repeats the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidFields {
    message: &'static str,
}

impl InvalidFields {
    pub(super) const fn new(message: &'static str) -> Self {
        Self { message }
    }
}

impl fmt::Display for InvalidFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl std::error::Error for InvalidFields {}
