//! Whether the lists of a configuration say which item is which: an apply owns items by their keys.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ownership::{Items, Shape, shape};
use crate::decode::MAX_STRICT_ERRORS;
use crate::field::{BadValue, FieldError, FieldErrors};
use crate::path::Path;
use crate::schema::Schema;

/// The errors in the lists of a configuration: items without a key, and items with the key of another one. At most
/// [`MAX_STRICT_ERRORS`], none of which has a value.
pub fn check_lists(configuration: &Value, schema: &Schema) -> FieldErrors {
    let (path, errors) = (Path::default(), FieldErrors::new());
    let mut checker = Checker { schema, path, errors };
    checker.value(configuration, Some(schema.root()));
    checker.errors
}

struct Checker<'a> {
    schema: &'a Schema,
    path: Path,
    errors: FieldErrors,
}

impl<'a> Checker<'a> {
    fn value(&mut self, value: &Value, at: Option<&'a Value>) {
        match (at.map_or(Shape::Leaf, |at| shape(self.schema, at)), value) {
            (Shape::Fields(of), Value::Object(fields)) => {
                for (name, value) in fields {
                    self.path.push_field(name);
                    self.value(value, of.field(name).schema);
                    self.path.pop();
                }
            }
            (Shape::Items(of), Value::Array(items)) => self.items(items, &of),
            _ => {}
        }
    }

    fn items(&mut self, items: &[Value], of: &Items<'a>) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            self.path.push_index(index);
            match of.element(item) {
                None => self.record(|path| no_key(path, of.keys())),
                Some(element) => {
                    if !seen.insert(element) {
                        self.record(|path| FieldError::duplicate(path, BadValue::Omitted));
                    }
                }
            }
            self.value(item, of.schema);
            self.path.pop();
        }
    }

    fn record(&mut self, error: impl FnOnce(String) -> FieldError) {
        if self.errors.len() < MAX_STRICT_ERRORS {
            self.errors.push(error(self.path.to_string()));
        }
    }
}

fn no_key(path: String, keys: &[&str]) -> FieldError {
    if keys.is_empty() {
        return FieldError::type_invalid(path, "an item of a set is a text, a number or a boolean");
    }
    FieldError::required(path, format!("its key: {}", keys.join(", ")))
}
