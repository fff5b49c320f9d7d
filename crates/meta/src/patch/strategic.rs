//! Strategic merge patch: a merge patch that merges lists by their items where the schema says so,
//! and that has directives.
//!
//! Lists are replaced as a whole unless the schema has `x-kubernetes-patch-strategy: merge`. Then texts and numbers are
//! a set, and objects are told apart by `x-kubernetes-patch-merge-key`. The directives are upstream's: `$patch`,
//! `$retainKeys`, `$setElementOrder/LIST` and `$deleteFromPrimitiveList/LIST`. Any other is refused where the schema
//! does not have such a field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::MAX_RESULT_BYTES;
use super::budget::{Size, too_large};
use crate::apply::Scalar;
use crate::schema::{Field, ItemMerge, Node, Schema};
use crate::status::ApiError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies a strategic merge patch to an object of this schema. Returns the patched object.
///
/// # Errors
/// 400 for anything else than such a patch, and for an unknown directive; 413 when the result is
/// too large; 422 for an item without its key. None has a value in it.
pub fn apply_strategic_merge_patch(
    mut target: Value,
    patch: &Value,
    schema: &Schema,
) -> Result<Value, ApiError> {
    let (Value::Object(fields), Value::Object(patch)) = (&mut target, patch) else {
        return Err(bad("a strategic merge patch must be a JSON object"));
    };
    patch_object(fields, patch, Some(schema.node()))?;
    if Size::of(&target).bytes > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    Ok(target)
}

/// What `$patch` says about an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// The directives of a patch for one list.
#[derive(Clone, Copy, Default)]
struct ListDirectives<'p> {
    order: Option<&'p Vec<Value>>,
    delete: Option<&'p Vec<Value>>,
}

/// Patches one object. The decoder bounds the depth of a patch, so this may recurse.
fn patch_object(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    at: Option<Node<'_>>,
) -> Result<(), ApiError> {
    match directive_of(patch)? {
        Directive::Merge => {}
        Directive::Replace => target.clear(),
        Directive::Delete => {
            target.clear();
            return Ok(());
        }
    }
    retain_keys(target, patch)?;
    let mut lists = list_directives(patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        let of_list = lists.remove(name.as_str()).unwrap_or_default();
        patch_field(target, name, value, schema_of(at, name)?, of_list)?;
    }
    // Directives for lists without new items.
    for (name, of_list) in lists {
        let at = schema_of(at, name)?;
        let key = merge_key(at)?;
        let mut nothing = Vec::new();
        let live = match target.get_mut(name) {
            Some(Value::Array(live)) => live,
            _ => &mut nothing,
        };
        patch_list(live, &[], at, key, of_list)?;
    }
    Ok(())
}

fn patch_field(
    target: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    at: Option<Node<'_>>,
    of_list: ListDirectives<'_>,
) -> Result<(), ApiError> {
    if of_list.order.is_some() || of_list.delete.is_some() {
        merge_key(at)?;
    }
    match value {
        Value::Null => {
            target.remove(name);
        }
        Value::Object(patch) => patch_inner_object(target, name, patch, at)?,
        Value::Array(items) => {
            let Some(merge) = at.and_then(Node::item_merge) else {
                refuse_directives(items, at)?;
                target.insert(name.to_owned(), value.clone());
                return Ok(());
            };
            let live = target.entry(name).or_insert(Value::Null);
            if !live.is_array() {
                *live = Value::Array(Vec::new());
            }
            if let Value::Array(live) = live {
                patch_list(live, items, at, merge.key.as_deref(), of_list)?;
            }
        }
        _ => {
            target.insert(name.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn patch_inner_object(
    target: &mut Map<String, Value>,
    name: &str,
    patch: &Map<String, Value>,
    at: Option<Node<'_>>,
) -> Result<(), ApiError> {
    if !target.get(name).is_some_and(Value::is_object) {
        if directive_of(patch)? == Directive::Delete {
            target.remove(name);
            return Ok(());
        }
        target.insert(name.to_owned(), Value::Object(Map::new()));
    }
    match target.get_mut(name) {
        Some(Value::Object(target)) => patch_object(target, patch, at),
        _ => Ok(()),
    }
}

/// Merges items into a list that is patched by its items.
fn patch_list(
    live: &mut Vec<Value>,
    items: &[Value],
    at: Option<Node<'_>>,
    key: Option<&str>,
    of_list: ListDirectives<'_>,
) -> Result<(), ApiError> {
    let item_schema = at.and_then(|at| at.target().items());
    if key.is_some() && items.iter().any(|item| directive_of_item(item) == Some("replace")) {
        live.clear();
    }
    let mut deleted: BTreeSet<Scalar> = BTreeSet::new();
    for value in of_list.delete.into_iter().flatten() {
        deleted.insert(identity(value, None)?);
    }
    let mut index_of: BTreeMap<Scalar, usize> = BTreeMap::new();
    for (index, item) in live.iter().enumerate() {
        if let Ok(identity) = identity(item, key) {
            index_of.entry(identity).or_insert(index);
        }
    }
    let mut merged = BTreeSet::new();
    for item in items {
        let (Some(_), Value::Object(patch)) = (key, item) else {
            let identity = identity(item, key)?;
            if merged.insert(identity.clone()) && !index_of.contains_key(&identity) {
                index_of.insert(identity, live.len());
                live.push(item.clone());
            }
            continue;
        };
        // A replacement of the list as a whole may stand alone.
        let directive = directive_of(patch)?;
        if directive == Directive::Replace && patch.len() == 1 {
            continue;
        }
        let identity = identity(item, key)?;
        if directive == Directive::Delete {
            deleted.insert(identity);
            continue;
        }
        merged.insert(identity.clone());
        let index = *index_of.entry(identity).or_insert_with(|| {
            live.push(Value::Object(Map::new()));
            live.len() - 1
        });
        if let Some(Value::Object(target)) = live.get_mut(index) {
            patch_object(target, &without_replace(patch), item_schema)?;
        }
    }
    live.retain(|item| identity(item, key).map_or(true, |identity| !deleted.contains(&identity)));
    match of_list.order {
        Some(order) => reorder(live, order, key, &merged),
        None => Ok(()),
    }
}

/// The schema of a field; `None` if the schema does not know it.
///
/// # Errors
/// 400 for an unknown field that has the form of a directive.
fn schema_of<'a>(at: Option<Node<'a>>, name: &str) -> Result<Option<Node<'a>>, ApiError> {
    let Some(at) = at else { return Ok(None) };
    match at.field(name) {
        Field::Known(field) => Ok(Some(field)),
        Field::Unknown if name.starts_with('$') => {
            Err(bad("a strategic merge patch has an unknown directive"))
        }
        Field::Unknown | Field::Free => Ok(None),
    }
}

/// The key of a list for which there is a directive.
///
/// # Errors
/// 400 when it is not merged by its items.
fn merge_key(at: Option<Node<'_>>) -> Result<Option<&str>, ApiError> {
    match at.and_then(Node::item_merge) {
        Some(ItemMerge { key }) => Ok(key.as_deref()),
        None => Err(bad(
            "a strategic merge patch has a directive for the items of a list that is replaced as \
             a whole",
        )),
    }
}

/// Checks that a list that is replaced as a whole has no directives for its items.
fn refuse_directives(items: &[Value], at: Option<Node<'_>>) -> Result<(), ApiError> {
    let of = at.and_then(|at| at.target().items());
    let is_struct = of.is_some_and(|of| of.target().has_properties());
    let has_directive = |item: &Value| {
        item.as_object().is_some_and(|fields| fields.keys().any(|name| is_directive(name)))
    };
    if is_struct && items.iter().any(has_directive) {
        return merge_key(None).map(drop);
    }
    Ok(())
}

/// Puts the items of a list in the order that the patch gives. Others stay between those that are in
/// their turn.
fn reorder(
    live: &mut Vec<Value>,
    order: &[Value],
    key: Option<&str>,
    merged: &BTreeSet<Scalar>,
) -> Result<(), ApiError> {
    let mut position_of: BTreeMap<Scalar, usize> = BTreeMap::new();
    for (position, value) in order.iter().enumerate() {
        position_of.entry(identity(value, key)?).or_insert(position);
    }
    if merged.iter().any(|identity| !position_of.contains_key(identity)) {
        return Err(bad("$setElementOrder of a strategic merge patch omits an item"));
    }
    let mut ordered: Vec<Option<Value>> = vec![None; order.len()];
    let mut turns = Vec::with_capacity(live.len());
    for item in std::mem::take(live) {
        let position = identity(&item, key).ok().and_then(|one| position_of.get(&one).copied());
        match position.and_then(|position| Some((position, ordered.get_mut(position)?))) {
            Some((position, slot)) => {
                slot.get_or_insert(item);
                turns.push((Some(position), None));
            }
            None => turns.push((None, Some(item))),
        }
    }
    let mut waiting = ordered.into_iter().enumerate().filter(|(_, item)| item.is_some()).peekable();
    for (position, other) in turns {
        match position {
            Some(position) => {
                let next = waiting.next_if(|(next, _)| *next == position);
                live.extend(next.and_then(|(_, item)| item));
            }
            None => live.extend(other),
        }
    }
    live.extend(waiting.filter_map(|(_, item)| item));
    Ok(())
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(ORDER) || name.starts_with(DELETE_FROM)
}

fn directive_of(patch: &Map<String, Value>) -> Result<Directive, ApiError> {
    let Some(value) = patch.get(PATCH) else { return Ok(Directive::Merge) };
    match value.as_str() {
        Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        _ => Err(bad("$patch in a strategic merge patch must be merge, replace or delete")),
    }
}

fn directive_of_item(item: &Value) -> Option<&str> {
    item.get(PATCH)?.as_str()
}

/// The patch of an item: that it replaces the list has been seen to.
fn without_replace(patch: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = patch.clone();
    patch.remove(PATCH);
    patch
}

/// Removes the fields that `$retainKeys` does not name.
fn retain_keys(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let mut retained = BTreeSet::new();
    for key in items_of(keys)? {
        retained.insert(key.as_str().ok_or_else(|| bad("$retainKeys must be a list of texts"))?);
    }
    let sets = |(name, value): (&String, &Value)| !is_directive(name) && !value.is_null();
    if patch.iter().any(|field| sets(field) && !retained.contains(field.0.as_str())) {
        return Err(bad("$retainKeys omits a field that the strategic merge patch sets"));
    }
    target.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// The directives of the patch for lists, by their names.
fn list_directives(
    patch: &Map<String, Value>,
) -> Result<BTreeMap<&str, ListDirectives<'_>>, ApiError> {
    let mut lists: BTreeMap<&str, ListDirectives<'_>> = BTreeMap::new();
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(ORDER) {
            lists.entry(list).or_default().order = Some(items_of(value)?);
        } else if let Some(list) = name.strip_prefix(DELETE_FROM) {
            lists.entry(list).or_default().delete = Some(items_of(value)?);
        }
    }
    Ok(lists)
}

fn items_of(value: &Value) -> Result<&Vec<Value>, ApiError> {
    value.as_array().ok_or_else(|| bad("a directive of a strategic merge patch must be a list"))
}

/// The identity of an item: the value of its key, or its own.
///
/// # Errors
/// 422 when it has none.
fn identity(item: &Value, key: Option<&str>) -> Result<Scalar, ApiError> {
    let value = key.map_or(Some(item), |key| item.get(key));
    match value.and_then(Scalar::from_value) {
        Some(scalar) if scalar != Scalar::Null => Ok(scalar),
        _ => {
            let what = key.unwrap_or("a text or a number");
            Err(ApiError::unprocessable(format!("an item of a merged list needs {what}")))
        }
    }
}

fn bad(message: &str) -> ApiError {
    ApiError::bad_request(message)
}

#[cfg(test)]
mod tests;
