//! The combined permissions of many rules, found by a few look-ups. Each combination of verb,
//! group, resource and name that a rule has is a cell, and is counted.
//!
//! Cells with wildcards are of other classes than those without. A question looks only into the
//! classes that have cells, so it mostly takes one or two look-ups.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::rule::{ResourceQuery, Rule};
use crate::shared_map::SharedMap;

/// A rule with more combinations than this has no cells: it is asked itself.
pub(crate) const MAX_CELLS: usize = 512;

const ANY_VERB: u8 = 1;
const ANY_GROUP: u8 = 2;
const ANY_RESOURCE_WITH: u8 = 4;
const ANY_RESOURCE: u8 = 8;
const NAMED: u8 = 16;
const CLASSES: usize = 32;

/// The combined permissions of several rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    counts: SharedMap<Cell, u32>,
    /// How many cells each class has.
    classes: [u32; CLASSES],
    /// The classes that have any, as bits.
    present: u32,
}

#[derive(Clone, Debug)]
struct Cell {
    class: u8,
    verb: Arc<str>,
    group: Arc<str>,
    resource: Arc<str>,
    subresource: Arc<str>,
    name: Arc<str>,
}

/// A cell as it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CellRef<'a> {
    class: u8,
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    name: &'a str,
}

/// A cell, or one that is looked up. So a look-up allocates nothing.
trait AsCell {
    fn as_cell(&self) -> CellRef<'_>;
}

impl AsCell for Cell {
    fn as_cell(&self) -> CellRef<'_> {
        CellRef {
            class: self.class,
            verb: &self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            name: &self.name,
        }
    }
}

impl AsCell for CellRef<'_> {
    fn as_cell(&self) -> CellRef<'_> {
        *self
    }
}

impl PartialEq for dyn AsCell + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.as_cell() == other.as_cell()
    }
}

impl Eq for dyn AsCell + '_ {}

impl Hash for dyn AsCell + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_cell().hash(state);
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.as_cell() == other.as_cell()
    }
}

impl Eq for Cell {}

impl Hash for Cell {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_cell().hash(state);
    }
}

impl<'a> Borrow<dyn AsCell + 'a> for Cell {
    fn borrow(&self) -> &(dyn AsCell + 'a) {
        self
    }
}

impl Cells {
    /// Adds what a rule allows. One with more than [`MAX_CELLS`] combinations adds nothing.
    pub(crate) fn add(&mut self, rule: &Rule) {
        each_cell(rule, |cell| {
            let class = usize::from(cell.class);
            let count = self.counts.get(&cell as &dyn AsCell).copied().unwrap_or(0);
            if count == 0 {
                self.classes[class] += 1;
                self.present |= 1 << class;
            }
            self.counts.insert_mut(cell, count + 1);
        });
    }

    /// Takes away what a rule has added.
    pub(crate) fn remove(&mut self, rule: &Rule) {
        each_cell(rule, |cell| {
            let class = usize::from(cell.class);
            match self.counts.get(&cell as &dyn AsCell).copied() {
                None => {}
                Some(count) if count > 1 => self.counts.insert_mut(cell, count - 1),
                Some(_) => {
                    self.counts.remove_mut(&cell as &dyn AsCell);
                    self.classes[class] -= 1;
                    if self.classes[class] == 0 {
                        self.present &= !(1 << class);
                    }
                }
            }
        });
    }

    /// Do the rules allow this?
    pub(crate) fn allow(&self, query: &ResourceQuery<'_>) -> bool {
        let mut present = self.present;
        while present != 0 {
            let class = present.trailing_zeros();
            present &= present - 1;
            if let Some(cell) = cell_of(class, query)
                && self.counts.contains_key(&cell as &dyn AsCell)
            {
                return true;
            }
        }
        false
    }
}

/// The only cell of a class that would allow this; `None` when there is none.
fn cell_of<'a>(class: u32, query: &ResourceQuery<'a>) -> Option<CellRef<'a>> {
    let class = u8::try_from(class).ok()?;
    let unless = |bit: u8, text: &'a str| if class & bit == 0 { text } else { "" };
    let has_resource = class & (ANY_RESOURCE | ANY_RESOURCE_WITH) == 0;
    if class & ANY_RESOURCE_WITH != 0 && query.subresource.is_empty() {
        return None;
    }
    Some(CellRef {
        class,
        verb: unless(ANY_VERB, query.verb),
        group: unless(ANY_GROUP, query.group),
        resource: if has_resource { query.resource } else { "" },
        subresource: unless(ANY_RESOURCE, query.subresource),
        name: if class & NAMED == 0 { "" } else { query.name? },
    })
}

fn empty() -> Arc<str> {
    static EMPTY: OnceLock<Arc<str>> = OnceLock::new();
    EMPTY.get_or_init(|| Arc::from("")).clone()
}

/// Calls a function with each cell of a rule.
fn each_cell(rule: &Rule, mut found: impl FnMut(Cell)) {
    if rule.combinations() > MAX_CELLS {
        return;
    }
    let any = |all: bool, class: u8| all.then(|| (class, empty()));
    let one = |text: &Arc<str>| (0, text.clone());
    let verbs =
        || any(rule.verbs.all, ANY_VERB).into_iter().chain(rule.verbs.texts.iter().map(one));
    let groups =
        || any(rule.groups.all, ANY_GROUP).into_iter().chain(rule.groups.texts.iter().map(one));
    let resources: Vec<(u8, Arc<str>, Arc<str>)> = rule
        .resources
        .all
        .then(|| (ANY_RESOURCE, empty(), empty()))
        .into_iter()
        .chain(rule.resources.any_with.iter().map(|sub| (ANY_RESOURCE_WITH, empty(), sub.clone())))
        .chain(rule.resources.exact.iter().map(|(one, sub)| (0, one.clone(), sub.clone())))
        .collect();
    let names: Vec<(u8, Arc<str>)> = match &rule.names {
        None => vec![(0, empty())],
        Some(names) => names.iter().map(|name| (NAMED, name.clone())).collect(),
    };
    for (verb_class, verb) in verbs() {
        for (group_class, group) in groups() {
            for (resource_class, resource, subresource) in &resources {
                for (name_class, name) in &names {
                    found(Cell {
                        class: verb_class | group_class | resource_class | name_class,
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        subresource: subresource.clone(),
                        name: name.clone(),
                    });
                }
            }
        }
    }
}
