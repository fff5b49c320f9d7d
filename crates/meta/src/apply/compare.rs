//! The differences between two objects, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Fields, Items, Shape, shape};
use super::set::FieldSet;
use crate::schema::{Node, Schema};

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

/// Compares two objects of one kind with the schema `schema`.
pub fn compare(old: &Value, new: &Value, schema: &Schema) -> Comparison {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    compare_fields(old, new, schema.node())
}

/// Compares the fields of two objects with the schema `at`.
pub(super) fn compare_fields(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    at: Node<'_>,
) -> Comparison {
    let mut changes = Comparison::default();
    if let Shape::Fields(of) = shape(Some(at)) {
        changes.add_fields(old, new, of);
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

    /// Adds the change of a value without parts.
    pub(super) fn record(&mut self, element: impl FnOnce() -> PathElement, own: Change) {
        match own {
            Change::None => {}
            Change::Added => self.added.add(element(), true, FieldSet::new()),
            Change::Modified => self.modified.add(element(), true, FieldSet::new()),
            Change::Removed => self.removed.add(element(), true, FieldSet::new()),
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

impl Change {
    /// The change of a value that existed before or not, and exists now or not.
    pub(super) fn of_presence(was_present: bool, is_present: bool) -> Self {
        match (was_present, is_present) {
            (false, true) => Self::Added,
            (true, false) => Self::Removed,
            _ => Self::None,
        }
    }
}

/// A value before and after. At least one of them is present.
#[derive(Clone, Copy)]
pub(super) struct Pair<'v> {
    pub(super) old: Option<&'v Value>,
    pub(super) new: Option<&'v Value>,
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
        Change::of_presence(self.old.is_some(), self.new.is_some())
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

/// Comparisons along the schema. Each adds the differences that it finds.
impl Comparison {
    /// Adds the changes of one value with the schema `at`.
    pub(super) fn add_value(&mut self, element: PathElement, pair: Pair<'_>, at: Option<Node<'_>>) {
        let mut inside = Self::default();
        match shape(at) {
            Shape::Fields(of) => {
                if let Some((old, new)) = pair.parts(Value::as_object, Map::is_empty) {
                    let empty = Map::new();
                    inside.add_fields(old.unwrap_or(&empty), new.unwrap_or(&empty), of);
                    return self.nest(element, pair.presence(), inside);
                }
                if pair.whole() == Change::Modified {
                    inside.add_type_change(pair, of);
                    return self.nest(element, Change::Modified, inside);
                }
            }
            Shape::Items(of) => {
                if let Some((old, new)) = pair.parts(Value::as_array, Vec::is_empty) {
                    let (old, new) = (old.map(Vec::as_slice), new.map(Vec::as_slice));
                    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
                    inside.add_items(old, new, of);
                    return self.nest(element, pair.presence(), inside);
                }
            }
            Shape::Leaf => {}
        }
        self.record(|| element, pair.whole());
    }

    /// Records the removed and the added fields of a value that changes its type, as only free-form
    /// values can.
    fn add_type_change(&mut self, pair: Pair<'_>, of: Fields<'_>) {
        let nothing = Map::new();
        if let Some(old) = pair.old.and_then(Value::as_object) {
            self.add_fields(old, &nothing, of);
        }
        if let Some(new) = pair.new.and_then(Value::as_object) {
            self.add_fields(&nothing, new, of);
        }
    }

    fn add_fields(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, of: Fields<'_>) {
        for (name, value) in new {
            let pair = Pair { old: old.get(name), new: Some(value) };
            if pair.whole() != Change::None {
                self.add_value(PathElement::field(name), pair, of.field(name).schema);
            }
        }
        // Apart, so that each set is made in order.
        let mut gone = Self::default();
        for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            let pair = Pair { old: Some(value), new: None };
            gone.add_value(PathElement::field(name), pair, of.field(name).schema);
        }
        self.unite(gone);
    }

    fn add_items(&mut self, old: &[Value], new: &[Value], of: Items<'_>) {
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
            self.add_same_items(element, &old, &new, of);
        }
    }

    /// Compares the items that have one element. Several items with the same
    /// element are owned together, as one.
    fn add_same_items(
        &mut self,
        element: PathElement,
        old: &[&Value],
        new: &[&Value],
        of: Items<'_>,
    ) {
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let pair = Pair { old: old.first().copied(), new: new.first().copied() };
                self.add_value(element, pair, of.schema);
            }
            ([_, _, ..], [_, _, ..]) => {
                let own = if old == new { Change::None } else { Change::Modified };
                self.record(|| element, own);
            }
            ([_, _, ..], _) => {
                if let Some(&new) = new.first() {
                    let pair = Pair { old: None, new: Some(new) };
                    self.add_value(element.clone(), pair, of.schema);
                }
                self.record(|| element, Change::Removed);
            }
            (_, [_, _, ..]) => {
                if let Some(&old) = old.first() {
                    let pair = Pair { old: Some(old), new: None };
                    self.add_value(element.clone(), pair, of.schema);
                }
                self.record(|| element, Change::Added);
            }
        }
    }
}
