//! Whether the lists of a configuration say which item is which: an apply owns items by their keys.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ownership::{Items, Shape, shape};
use crate::decode::MAX_STRICT_ERRORS;
use crate::field::{BadValue, FieldError, FieldErrors};
use crate::path::Path;
use crate::schema::{ItemKey, Node, Schema};

/// The errors in the lists of a configuration: items without a key, and items with the key of another one. At most
/// [`MAX_STRICT_ERRORS`], none of which has a value.
pub fn check_lists(configuration: &Value, schema: &Schema) -> FieldErrors {
    let mut checker = Checker { errors: FieldErrors::new() };
    checker.value(configuration, Some(schema.node()), &Path::ROOT);
    checker.errors
}

struct Checker {
    errors: FieldErrors,
}

impl Checker {
    fn value(&mut self, value: &Value, at: Option<Node<'_>>, path: &Path<'_>) {
        match (shape(at), value) {
            (Shape::Fields(of), Value::Object(fields)) => {
                for (name, value) in fields {
                    self.value(value, of.field(name).schema, &path.field(name));
                }
            }
            (Shape::Items(of), Value::Array(items)) => self.items(items, of, path),
            _ => {}
        }
    }

    fn items(&mut self, items: &[Value], of: Items<'_>, path: &Path<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = &path.index(index);
            match of.element(item) {
                None => self.record(path, |path| no_key(path, of.keys())),
                Some(element) => {
                    if !seen.insert(element) {
                        self.record(path, |path| FieldError::duplicate(path, BadValue::Omitted));
                    }
                }
            }
            self.value(item, of.schema, path);
        }
    }

    fn record(&mut self, path: &Path<'_>, error: impl FnOnce(String) -> FieldError) {
        if self.errors.len() < MAX_STRICT_ERRORS {
            self.errors.push(error(path.to_string()));
        }
    }
}

fn no_key(path: String, keys: &[ItemKey]) -> FieldError {
    if keys.is_empty() {
        return FieldError::type_invalid(path, "an item of a set is a text, a number or a boolean");
    }
    let names: Vec<&str> = keys.iter().map(|key| &*key.name).collect();
    FieldError::required(path, format!("its key: {}", names.join(", ")))
}
