//! The values that paths lead to, and the text of templates.

use std::cmp::Ordering;

use serde_json::Value;
use zeroize::Zeroizing;

use super::{Filter, Operand, Operator, Part, Path, Step, text_of};

/// How many values one template visits.
const VISITED_MAX: usize = 5_000_000;
/// The longest output of one template.
const OUTPUT_MAX_BYTES: usize = 256 * 1024 * 1024;

/// The text of a template for a value.
pub(super) fn render(parts: &[Part], value: &Value) -> Result<Zeroizing<String>, String> {
    let mut work = Work { visited: 0 };
    let mut out = Zeroizing::new(String::new());
    work.render(parts, value, &mut out)?;
    Ok(out)
}

/// The values that a path leads to.
pub(super) fn values<'a>(path: &Path, value: &'a Value) -> Result<Vec<&'a Value>, String> {
    Work { visited: 0 }.walk(path, value)
}

/// The work that was done so far.
struct Work {
    visited: usize,
}

impl Work {
    fn count(&mut self, values: usize) -> Result<(), String> {
        self.visited = self.visited.saturating_add(values);
        if self.visited <= VISITED_MAX {
            return Ok(());
        }
        Err("the template visits too much of the object".to_owned())
    }

    fn render(&mut self, parts: &[Part], value: &Value, out: &mut String) -> Result<(), String> {
        for part in parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Path(path) => {
                    for (at, found) in self.walk(path, value)?.into_iter().enumerate() {
                        if at > 0 {
                            out.push(' ');
                        }
                        out.push_str(&text_of(found));
                        if out.len() > OUTPUT_MAX_BYTES {
                            return Err("the output is too large".to_owned());
                        }
                    }
                }
                Part::Range(path, body) => {
                    for item in self.walk(path, value)? {
                        self.render(body, item, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn walk<'a>(&mut self, path: &Path, value: &'a Value) -> Result<Vec<&'a Value>, String> {
        let mut current = vec![value];
        for step in &path.steps {
            self.count(1 + current.len())?;
            let mut next = Vec::new();
            match step {
                // kubectl prints all values of the first path before those of the second.
                Step::Union(paths) => {
                    for path in paths {
                        for value in &current {
                            next.extend(self.walk(path, value)?);
                        }
                    }
                }
                step => {
                    for value in current {
                        self.step(step, value, &mut next)?;
                    }
                }
            }
            current = next;
        }
        self.count(current.len())?;
        Ok(current)
    }

    fn step<'a>(
        &mut self,
        step: &Step,
        value: &'a Value,
        next: &mut Vec<&'a Value>,
    ) -> Result<(), String> {
        match step {
            Step::Field(name) => next.extend(value.as_object().and_then(|map| map.get(name))),
            Step::All => {
                let children = children(value);
                self.count(children.len())?;
                next.extend(children);
            }
            Step::Descend => self.descend(value, next)?,
            Step::Index(index) => {
                let items = list(value)?;
                let wrong =
                    || format!("the index {index} is out of range: the list has {}", items.len());
                let found = place(*index, items.len()).and_then(|at| items.get(at));
                next.push(found.ok_or_else(wrong)?);
            }
            Step::Slice { start, end, step } => {
                let items = list(value)?;
                let bound = |at: Option<i64>, default: usize| match at {
                    None => default,
                    Some(at) => place(at, items.len()).unwrap_or(0).min(items.len()),
                };
                let (start, end) = (bound(*start, 0), bound(*end, items.len()));
                let step = usize::try_from(*step).unwrap_or(usize::MAX);
                next.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
            }
            Step::Filter(filter) => {
                for item in list(value)? {
                    if self.matches(filter, item)? {
                        next.push(item);
                    }
                }
            }
            Step::Union(_) => {}
        }
        self.count(next.len())
    }

    /// Adds the value and all values inside it, where it has fields or items. Without recursion: a
    /// decoded object is as deep as its decoder allows.
    fn descend<'a>(&mut self, value: &'a Value, next: &mut Vec<&'a Value>) -> Result<(), String> {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            let children = children(value);
            self.count(1 + children.len())?;
            if !children.is_empty() {
                next.push(value);
                left.extend(children.into_iter().rev());
            }
        }
        Ok(())
    }

    fn matches(&mut self, filter: &Filter, item: &Value) -> Result<bool, String> {
        let left = self.walk(&filter.left, item)?;
        let Some((operator, right)) = &filter.comparison else { return Ok(!left.is_empty()) };
        let right = match right {
            Operand::Literal(value) => vec![value],
            Operand::Path(path) => self.walk(path, item)?,
        };
        match (&left[..], &right[..]) {
            ([left], [right]) => Ok(compare(left, right, *operator)),
            ([], _) | (_, []) => Ok(false),
            _ => Err("a filter compares one value with one other".to_owned()),
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn list(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        _ => Err("the value before [] is not a list".to_owned()),
    }
}

/// The place of an index; a negative one counts from the end.
fn place(index: i64, length: usize) -> Option<usize> {
    let at = if index < 0 { i64::try_from(length).ok()?.checked_add(index)? } else { index };
    usize::try_from(at).ok()
}

/// Values of different types are different, and neither is less than the other.
fn compare(left: &Value, right: &Value, operator: Operator) -> bool {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64().zip(right.as_f64()).and_then(|(l, r)| l.partial_cmp(&r)),
        },
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    };
    match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}
