//! A configuration merged into an object: its values replace or join the present ones; nothing is
//! removed.
//!
//! Both have been through a decoder, so their depth is bounded, and with it the recursion here. The
//! result is as deep as the deeper of the two, and at most as large as both together.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Fields, Items, Shape, shape};
use crate::schema::{Node, Schema};

/// Merges `configuration` into `live`, along the schema of both.
pub(super) fn merge(live: &mut Value, configuration: &Value, schema: &Schema) {
    merge_value(live, configuration, Some(schema.node()));
}

fn merge_value(live: &mut Value, applied: &Value, at: Option<Node<'_>>) {
    match (shape(at), &mut *live, applied) {
        (Shape::Fields(of), Value::Object(live), Value::Object(applied)) => {
            merge_fields(live, applied, of);
        }
        (Shape::Items(of), Value::Array(live), Value::Array(applied)) => {
            let before = std::mem::take(live);
            *live = merge_items(before, applied, of);
        }
        _ => live.clone_from(applied),
    }
}

fn merge_fields(live: &mut Map<String, Value>, applied: &Map<String, Value>, of: Fields<'_>) {
    for (name, value) in applied {
        match live.get_mut(name) {
            Some(live) => merge_value(live, value, of.field(name).schema),
            None => {
                live.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The items of both lists, each once. Applied items are in the order of the
/// configuration. Items that only the live list has stay where they are between those that both
/// have; an item of both that is out of turn moves to its place in the configuration.
fn merge_items(live: Vec<Value>, applied: &[Value], of: Items<'_>) -> Vec<Value> {
    let elements: Vec<_> = applied.iter().map(|item| of.element(item)).collect();
    let index_of: BTreeMap<&PathElement, usize> =
        elements.iter().enumerate().filter_map(|(at, one)| Some((one.as_ref()?, at))).collect();
    // The live item of each applied item. Of several with one key, the first counts.
    let mut shared: Vec<Option<Value>> = vec![None; applied.len()];
    let steps: Vec<Step> = live
        .into_iter()
        .map(|item| {
            let element = of.element(&item);
            match element.and_then(|element| index_of.get(&element).copied()) {
                Some(at) => {
                    if let Some(slot) = shared.get_mut(at) {
                        slot.get_or_insert(item);
                    }
                    Step::Shared(at)
                }
                None => Step::OnlyLive(item),
            }
        })
        .collect();
    let turns: Vec<usize> =
        shared.iter().enumerate().filter(|(_, live)| live.is_some()).map(|(at, _)| at).collect();
    let (mut turns, mut merged) = (turns.into_iter().peekable(), Vec::new());
    let mut waiting = shared.into_iter().zip(applied).enumerate().peekable();
    for step in steps {
        match step {
            Step::OnlyLive(item) => merged.push(item),
            Step::Shared(at) if turns.next_if_eq(&at).is_some() => {
                // Applied items before it that the live list does not have come with it.
                while let Some((_, (live, item))) = waiting.next_if(|(next, _)| *next <= at) {
                    merged.push(merge_item(live, item, of));
                }
            }
            Step::Shared(_) => {}
        }
    }
    merged.extend(waiting.map(|(_, (live, item))| merge_item(live, item, of)));
    merged
}

fn merge_item(live: Option<Value>, applied: &Value, of: Items<'_>) -> Value {
    let Some(mut live) = live else { return applied.clone() };
    merge_value(&mut live, applied, of.schema);
    live
}

/// One item of a live list.
enum Step {
    /// The configuration has none with its key.
    OnlyLive(Value),
    /// The configuration has one, at this index.
    Shared(usize),
}
