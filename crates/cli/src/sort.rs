//! Sorting objects by the value at a path, as `kubectl get --sort-by` does.

use std::cmp::Ordering;

use serde_json::Value;

use crate::jsonpath::Path;

/// Sorts items by the first value at the path; `object` is the part of an item that the path begins at. Items without
/// one come first.
///
/// # Errors
/// Where no item has a value there, or the path does not fit.
pub(crate) fn sort_by_path(
    items: &mut Vec<Value>,
    path: &Path,
    object: impl Fn(&Value) -> &Value,
) -> Result<(), String> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        let values = path.values(object(&item)).map_err(|what| format!("--sort-by: {what}"))?;
        keyed.push((values.first().map(|value| (*value).clone()), item));
    }
    if !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none()) {
        return Err("--sort-by: no object has a value at this path".to_owned());
    }
    keyed.sort_by(|(left, _), (right, _)| compare_keys(left.as_ref(), right.as_ref()));
    items.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(())
}

fn compare_keys(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => compare_values(left, right),
    }
}

fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(left), Value::String(right)) => natural(left, right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => natural(&left.to_string(), &right.to_string()),
    }
}

/// Compares texts in which numbers count as numbers: `a9` is before `a10`.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let (l, r) = match (left.chars().next(), right.chars().next()) {
            (Some(l), Some(r)) => (l, r),
            (l, r) => return l.is_some().cmp(&r.is_some()),
        };
        if l.is_ascii_digit() && r.is_ascii_digit() {
            let ((l, left_rest), (r, right_rest)) = (digits(left), digits(right));
            let (l, r) = (l.trim_start_matches('0'), r.trim_start_matches('0'));
            let order = l.len().cmp(&r.len()).then_with(|| l.cmp(r));
            if order.is_ne() {
                return order;
            }
            (left, right) = (left_rest, right_rest);
        } else if l == r {
            (left, right) = (&left[l.len_utf8()..], &right[r.len_utf8()..]);
        } else {
            return l.cmp(&r);
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted(values: &[Value], path: &str) -> Result<Vec<Value>, String> {
        let mut items = values.to_vec();
        sort_by_path(&mut items, &Path::parse(path).unwrap(), |item| item)?;
        Ok(items)
    }

    #[test]
    fn values_are_sorted_as_what_they_are() {
        let of = |values: &[Value]| -> Vec<Value> {
            values.iter().map(|value| json!({ "a": value })).collect()
        };
        for (values, wanted) in [
            (of(&[json!(10), json!(9.5), json!(-1)]), of(&[json!(-1), json!(9.5), json!(10)])),
            (
                of(&[json!("a10"), json!("a9"), json!("a09b"), json!("")]),
                of(&[json!(""), json!("a9"), json!("a09b"), json!("a10")]),
            ),
            (
                of(&[json!("2026-02-01T00:00:00Z"), json!("2025-12-01T00:00:00Z")]),
                of(&[json!("2025-12-01T00:00:00Z"), json!("2026-02-01T00:00:00Z")]),
            ),
            (of(&[json!(true), json!(false)]), of(&[json!(false), json!(true)])),
        ] {
            assert_eq!(sorted(&values, ".a").unwrap(), wanted);
        }
        let some = [json!({ "a": 1 }), json!({ "b": 2 })];
        assert_eq!(sorted(&some, ".a").unwrap(), [json!({ "b": 2 }), json!({ "a": 1 })]);
        assert!(sorted(&some, ".absent").unwrap_err().contains("no object"));
        assert!(sorted(&[], ".absent").unwrap().is_empty());
    }

    #[test]
    fn the_sort_is_stable() {
        let values = [json!({ "a": 1, "n": 1 }), json!({ "a": 1, "n": 2 }), json!({ "a": 0 })];
        let sorted = sorted(&values, "a").unwrap();
        assert_eq!(sorted[1..], values[..2]);
    }
}
