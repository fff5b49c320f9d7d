//! Makes a failing case small: drops every element of every list that the failure does not need.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The smallest value that can be reached by dropping elements of lists while it still fails.
pub(crate) fn smallest<T: Serialize + DeserializeOwned>(case: &T, fails: impl Fn(&T) -> bool) -> T {
    let mut value = serde_json::to_value(case).unwrap();
    let still_fails =
        |value: &Value| serde_json::from_value(value.clone()).is_ok_and(|case| fails(&case));
    loop {
        let smaller = candidates(&value).into_iter().find(|candidate| still_fails(candidate));
        match smaller {
            Some(smaller) => value = smaller,
            None => return serde_json::from_value(value).unwrap(),
        }
    }
}

/// The value with one element of one list left out, for each.
fn candidates(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    match value {
        Value::Array(items) => {
            for index in 0..items.len() {
                let mut without = items.clone();
                without.remove(index);
                found.push(Value::Array(without));
            }
            for (index, item) in items.iter().enumerate() {
                for smaller in candidates(item) {
                    let mut changed = items.clone();
                    changed[index] = smaller;
                    found.push(Value::Array(changed));
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                for smaller in candidates(field) {
                    let mut changed = fields.clone();
                    changed.insert(name.clone(), smaller);
                    found.push(Value::Object(changed));
                }
            }
        }
        _ => {}
    }
    found
}
