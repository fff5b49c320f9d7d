//! Finds unknown fields and nulls in a part of a value, without a change to it: for fields that
//! narrow a right, where what is pruned in silence would widen it.

use serde_json::Value;

use super::Schema;
use super::walk::{Field, branches, field_of};
use crate::decode::MAX_STRICT_ERRORS;
use crate::path::Path;

/// The kind of field that a search looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchTarget {
    Unknown,
    Null,
}

/// See [`Schema::unknown_below`] and [`Schema::nulls_below`].
pub(super) fn find(
    schema: &Schema,
    value: &Value,
    path: &str,
    target: SearchTarget,
) -> Vec<String> {
    // Most objects have no such field, and the schema need not be asked then.
    if path.split('.').try_fold(value, |value, name| value.get(name)).is_none() {
        return Vec::new();
    }
    let mut finder = Finder { schema, target, found: Vec::new() };
    let (mut value, mut at) = (value, schema.root());
    for name in path.split('.') {
        let Some(next) = value.get(name) else { return Vec::new() };
        let Field::Known(field) = field_of(&branches(schema, at), name) else {
            return Vec::new();
        };
        (value, at) = (next, field);
    }
    finder.walk(value, at, &Path::Start(path));
    finder.found
}

/// See [`Schema::misplaced`].
pub(super) fn misplaced(schema: &Schema, value: &Value, path: &str) -> Vec<String> {
    let root = branches(schema, schema.root());
    let mut below = schema.root();
    for name in path.split('.') {
        let Field::Known(field) = field_of(&branches(schema, below), name) else {
            return Vec::new();
        };
        below = field;
    }
    let below = branches(schema, below);
    let is_meant_to_be_there = |name: &str| {
        matches!(field_of(&below, name), Field::Known(_)) || name.eq_ignore_ascii_case(path)
    };
    let is_misplaced = |name: &&String| {
        matches!(field_of(&root, name), Field::Unknown) && is_meant_to_be_there(name)
    };
    let names = value.as_object().into_iter().flat_map(|fields| fields.keys());
    names.filter(is_misplaced).take(MAX_STRICT_ERRORS).cloned().collect()
}

struct Finder<'a> {
    schema: &'a Schema,
    target: SearchTarget,
    found: Vec<String>,
}

impl Finder<'_> {
    /// Looks at a value whose schema is `at`. A free-form value has no unknown fields, and its nulls are values.
    fn walk(&mut self, value: &Value, at: &Value, path: &Path<'_>) {
        let schema = self.schema;
        let branches = branches(schema, at);
        match value {
            Value::Null if self.target == SearchTarget::Null => self.record(path),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = &path.field(name);
                    match field_of(&branches, name) {
                        Field::Known(at) => self.walk(value, at, path),
                        Field::Unknown if self.target == SearchTarget::Unknown => self.record(path),
                        Field::Unknown | Field::Free => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(of) = branches.iter().find_map(|branch| branch.get("items")) else {
                    return;
                };
                for (i, item) in items.iter().enumerate() {
                    self.walk(item, of, &path.index(i));
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, path: &Path<'_>) {
        if self.found.len() < MAX_STRICT_ERRORS {
            self.found.push(path.to_string());
        }
    }
}
