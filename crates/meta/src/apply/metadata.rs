//! The changes of metadata, found without its JSON form: all writes have them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::{Change, Comparison, Pair};
use super::element::PathElement;
use super::ownership::{Fields, Shape, list_value, shape};
use super::set::FieldSet;
use crate::object::ObjectMeta;
use crate::schema::Node;

/// Compares the metadata that can be owned, with the schema `at`. The server sets the rest, and upstream removes it from
/// every set. Deletion is no update there, so its fields have no owner either. Annotations in `ignored` have no owner: if
/// annotations have nothing else, they count as absent.
pub(super) fn compare_metadata(
    old: &ObjectMeta,
    new: &ObjectMeta,
    at: Node<'_>,
    ignored: &FieldSet,
) -> Comparison {
    let mut changes = Comparison::default();
    let Shape::Fields(of) = shape(Some(at)) else { return changes };
    let ignored =
        ignored.below_field("metadata").and_then(|below| below.below_field("annotations"));
    let is_owned = |name: &str| ignored.is_none_or(|ignored| !ignored.contains_field(name));
    // In the order of names, so that each set is made in order.
    changes.add_texts("annotations", &old.annotations, &new.annotations, is_owned);
    changes.add_list("finalizers", &old.finalizers, &new.finalizers, of);
    changes.add_text("generateName", &old.generate_name, &new.generate_name);
    changes.add_texts("labels", &old.labels, &new.labels, |_| true);
    changes.add_list("ownerReferences", &old.owner_references, &new.owner_references, of);
    changes
}

type Texts = BTreeMap<String, String>;

impl Comparison {
    /// Adds the changes of a map, which is owned by its entries.
    fn add_texts(&mut self, name: &str, old: &Texts, new: &Texts, is_owned: impl Fn(&str) -> bool) {
        if old == new {
            return;
        }
        let mut inside = Self::default();
        let (mut was_present, mut is_present) = (false, false);
        for (name, text) in new.iter().filter(|(name, _)| is_owned(name)) {
            is_present = true;
            let own = match old.get(name) {
                None => Change::Added,
                Some(before) if before == text => Change::None,
                Some(_) => Change::Modified,
            };
            inside.record(|| PathElement::field(name), own);
        }
        for name in old.keys().filter(|name| is_owned(name)) {
            was_present = true;
            if !new.contains_key(name) {
                inside.record(|| PathElement::field(name), Change::Removed);
            }
        }
        self.nest(PathElement::field(name), Change::of_presence(was_present, is_present), inside);
    }

    fn add_text(&mut self, name: &str, old: &str, new: &str) {
        if old != new {
            let own = match Change::of_presence(!old.is_empty(), !new.is_empty()) {
                Change::None => Change::Modified,
                presence => presence,
            };
            self.record(|| PathElement::field(name), own);
        }
    }

    /// Adds the changes of a list. Few writes change one, so its JSON is compared.
    fn add_list<T: Serialize + PartialEq>(
        &mut self,
        name: &str,
        old: &[T],
        new: &[T],
        of: Fields<'_>,
    ) {
        if old == new {
            return;
        }
        let (old, new) = (list_value(old), list_value(new));
        let pair = Pair { old: old.as_ref(), new: new.as_ref() };
        self.add_value(PathElement::field(name), pair, of.field(name).schema);
    }
}
