//! Finds unknown fields and nulls in a part of a value, without a change to it. It is for fields
//! that narrow a right: removing one silently would widen the right.

use serde_json::Value;

use super::node::{Field, Node};
use crate::decode::MAX_STRICT_ERRORS;
use crate::path::Path;

/// The kind of field that a search looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchTarget {
    Unknown,
    Null,
}

/// See [`Schema::unknown_below`](super::Schema::unknown_below) and [`Schema::nulls_below`](super::Schema::nulls_below).
pub(super) fn find(value: &Value, root: Node<'_>, path: &str, target: SearchTarget) -> Vec<String> {
    // Most objects have no such field, and the schema need not be asked then.
    let Some(value) = path.split('.').try_fold(value, |value, name| value.get(name)) else {
        return Vec::new();
    };
    let Some(below) = node_at(root, path) else { return Vec::new() };
    let mut finder = Finder { target, found: Vec::new() };
    finder.walk(value, below, &Path::Start(path));
    finder.found
}

/// The schema of the field at a path of names.
fn node_at<'a>(root: Node<'a>, path: &str) -> Option<Node<'a>> {
    path.split('.').try_fold(root, |at, name| match at.field(name) {
        Field::Known(field) => Some(field),
        Field::Free | Field::Unknown => None,
    })
}

/// See [`Schema::misplaced`](super::Schema::misplaced).
pub(super) fn misplaced(value: &Value, root: Node<'_>, path: &str) -> Vec<String> {
    let Some(below) = node_at(root, path) else { return Vec::new() };
    let is_meant_to_be_there = |name: &str| {
        matches!(below.field(name), Field::Known(_)) || name.eq_ignore_ascii_case(path)
    };
    let is_misplaced =
        |name: &&String| matches!(root.field(name), Field::Unknown) && is_meant_to_be_there(name);
    let names = value.as_object().into_iter().flat_map(|fields| fields.keys());
    names.filter(is_misplaced).take(MAX_STRICT_ERRORS).cloned().collect()
}

struct Finder {
    target: SearchTarget,
    found: Vec<String>,
}

impl Finder {
    /// Looks at a value with the schema `at`. A free-form value has no unknown fields, and its
    /// nulls are values.
    fn walk(&mut self, value: &Value, at: Node<'_>, path: &Path<'_>) {
        match value {
            Value::Null if self.target == SearchTarget::Null => self.record(path),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = &path.field(name);
                    match at.field(name) {
                        Field::Known(field) => self.walk(value, field, path),
                        Field::Unknown if self.target == SearchTarget::Unknown => self.record(path),
                        Field::Unknown | Field::Free => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(of) = at.items() else { return };
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
