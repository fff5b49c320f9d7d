//! The differences between two objects, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Fields, Items, Shape, shape};
use super::set::FieldSet;
use crate::schema::Schema;

/// The paths of everything that differs between two objects. Equal objects give
/// three empty sets.
///
/// A value that is added or removed is in the set with everything below it. A
/// path is in both `added` and `removed` only where several items of a list had,
/// or now have, the same key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The paths that only the new object has.
    pub added: FieldSet,
    /// The paths that both have, with another value.
    pub modified: FieldSet,
    /// The paths that only the old object has.
    pub removed: FieldSet,
}

/// Compares two objects of one kind, whose schema is `schema`.
pub fn compare(old: &Value, new: &Value, schema: &Schema) -> Comparison {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    compare_fields(old, new, schema.root(), schema)
}

/// Compares the fields of two objects whose schema is `at`, a part of `schema`.
pub(super) fn compare_fields<'a>(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    at: &'a Value,
    schema: &'a Schema,
) -> Comparison {
    let mut changes = Comparison::default();
    if let Shape::Fields(of) = shape(schema, at) {
        Comparer { schema }.fields(old, new, &of, &mut changes);
    }
    changes
}

impl Comparison {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Removes the changes at and below the paths of `ignored`.
    pub fn ignore(&mut self, ignored: &FieldSet) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_below(ignored);
        }
    }

    /// Adds what changed below one element, and how the element itself changed.
    pub(super) fn nest(&mut self, element: PathElement, own: Change, inside: Self) {
        let is = |change| own == change;
        if is(Change::Removed) || !inside.removed.is_empty() {
            self.removed.add(element.clone(), is(Change::Removed), inside.removed);
        }
        if is(Change::Modified) || !inside.modified.is_empty() {
            self.modified.add(element.clone(), is(Change::Modified), inside.modified);
        }
        self.added.add(element, is(Change::Added), inside.added);
    }

    fn unite(&mut self, other: Self) {
        self.added.unite(other.added);
        self.modified.unite(other.modified);
        self.removed.unite(other.removed);
    }

    fn record(&mut self, element: PathElement, own: Change) {
        if own != Change::None {
            self.nest(element, own, Self::default());
        }
    }
}

/// The change of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is the same, though parts of it may have changed.
    None,
    Added,
    Modified,
    Removed,
}

struct Comparer<'a> {
    schema: &'a Schema,
}

/// A value before and after. At least one of them is present.
#[derive(Clone, Copy)]
struct Pair<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

impl<'v> Pair<'v> {
    /// How it changed as a whole.
    fn whole(self) -> Change {
        match (self.old, self.new) {
            (Some(old), Some(new)) if old == new => Change::None,
            (Some(_), Some(_)) => Change::Modified,
            _ => self.presence(),
        }
    }

    /// Whether it was added or removed.
    fn presence(self) -> Change {
        match (self.old, self.new) {
            (None, Some(_)) => Change::Added,
            (Some(_), None) => Change::Removed,
            _ => Change::None,
        }
    }

    /// Both sides as `take` converts them, without `null`. `None` if one has
    /// another type, or both are empty: then they are compared as a whole.
    fn parts<T>(
        self,
        take: impl Fn(&'v Value) -> Option<&'v T>,
        is_empty: impl Fn(&T) -> bool,
    ) -> Option<(Option<&'v T>, Option<&'v T>)> {
        let side = |value: Option<&'v Value>| match value {
            None | Some(Value::Null) => Some(None),
            Some(value) => take(value).map(Some),
        };
        let (old, new) = (side(self.old)?, side(self.new)?);
        let both_empty = old.is_none_or(&is_empty) && new.is_none_or(&is_empty);
        (!both_empty).then_some((old, new))
    }
}

impl<'a> Comparer<'a> {
    fn value(
        &self,
        element: PathElement,
        pair: Pair<'_>,
        at: Option<&'a Value>,
        changes: &mut Comparison,
    ) {
        let mut inside = Comparison::default();
        match at.map_or(Shape::Leaf, |at| shape(self.schema, at)) {
            Shape::Fields(of) => {
                if let Some((old, new)) = pair.parts(Value::as_object, Map::is_empty) {
                    let empty = Map::new();
                    self.fields(old.unwrap_or(&empty), new.unwrap_or(&empty), &of, &mut inside);
                    return changes.nest(element, pair.presence(), inside);
                }
                if pair.whole() == Change::Modified {
                    self.replaced(pair, &of, &mut inside);
                    return changes.nest(element, Change::Modified, inside);
                }
            }
            Shape::Items(of) => {
                if let Some((old, new)) = pair.parts(Value::as_array, Vec::is_empty) {
                    let (old, new) = (old.map(Vec::as_slice), new.map(Vec::as_slice));
                    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
                    self.items(old, new, &of, &mut inside);
                    return changes.nest(element, pair.presence(), inside);
                }
            }
            Shape::Leaf => {}
        }
        changes.record(element, pair.whole());
    }

    /// Records what goes and comes with a value that changes its type, as only free-form ones can.
    fn replaced(&self, pair: Pair<'_>, of: &Fields<'a>, changes: &mut Comparison) {
        let nothing = Map::new();
        if let Some(old) = pair.old.and_then(Value::as_object) {
            self.fields(old, &nothing, of, changes);
        }
        if let Some(new) = pair.new.and_then(Value::as_object) {
            self.fields(&nothing, new, of, changes);
        }
    }

    fn fields(
        &self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        of: &Fields<'a>,
        changes: &mut Comparison,
    ) {
        for (name, value) in new {
            let pair = Pair { old: old.get(name), new: Some(value) };
            if pair.whole() != Change::None {
                self.value(PathElement::field(name), pair, of.field(name).schema, changes);
            }
        }
        // Apart, so that each set is made in order.
        let mut gone = Comparison::default();
        for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            let pair = Pair { old: Some(value), new: None };
            self.value(PathElement::field(name), pair, of.field(name).schema, &mut gone);
        }
        changes.unite(gone);
    }

    fn items(&self, old: &[Value], new: &[Value], of: &Items<'a>, changes: &mut Comparison) {
        let mut both: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Some(element) = of.element(item) {
                both.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Some(element) = of.element(item) {
                both.entry(element).or_default().1.push(item);
            }
        }
        for (element, (old, new)) in both {
            self.same_items(element, &old, &new, of, changes);
        }
    }

    /// Compares the items that have one element. Several items with the same
    /// element are owned together, as one.
    fn same_items(
        &self,
        element: PathElement,
        old: &[&Value],
        new: &[&Value],
        of: &Items<'a>,
        changes: &mut Comparison,
    ) {
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let pair = Pair { old: old.first().copied(), new: new.first().copied() };
                self.value(element, pair, of.schema, changes);
            }
            ([_, _, ..], [_, _, ..]) => {
                let own = if old == new { Change::None } else { Change::Modified };
                changes.record(element, own);
            }
            ([_, _, ..], _) => {
                if let Some(&new) = new.first() {
                    let pair = Pair { old: None, new: Some(new) };
                    self.value(element.clone(), pair, of.schema, changes);
                }
                changes.record(element, Change::Removed);
            }
            (_, [_, _, ..]) => {
                if let Some(&old) = old.first() {
                    let pair = Pair { old: Some(old), new: None };
                    self.value(element.clone(), pair, of.schema, changes);
                }
                changes.record(element, Change::Added);
            }
        }
    }
}
