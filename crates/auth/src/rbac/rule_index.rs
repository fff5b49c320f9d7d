//! An index of the combined permissions of many rules. It counts each combination of verb, group, resource and
//! name that a rule has.
//!
//! Combinations with wildcards are in other classes than those without. A query looks only into the classes that
//! have combinations, so it mostly takes one or two look-ups.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::rule::{ResourceQuery, Rule};
use crate::shared_map::SharedMap;

/// A rule with more combinations than this is not indexed, but evaluated separately.
pub(crate) const MAX_COMBINATIONS: usize = 512;

const ANY_VERB: u8 = 1;
const ANY_GROUP: u8 = 2;
const ANY_RESOURCE_WITH: u8 = 4;
const ANY_RESOURCE: u8 = 8;
const NAMED: u8 = 16;
const CLASSES: usize = 32;

/// The combined permissions of several rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleIndex {
    counts: SharedMap<Combination, u32>,
    /// The number of combinations in each class.
    classes: [u32; CLASSES],
    /// The classes that are not empty, as bits.
    present: u32,
}

#[derive(Clone, Debug)]
struct Combination {
    class: u8,
    verb: Arc<str>,
    group: Arc<str>,
    resource: Arc<str>,
    subresource: Arc<str>,
    name: Arc<str>,
}

/// A combination as it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CombinationRef<'a> {
    class: u8,
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    name: &'a str,
}

/// A combination, or one that is looked up. So a look-up allocates nothing.
trait AsCombination {
    fn as_combination(&self) -> CombinationRef<'_>;
}

impl AsCombination for Combination {
    fn as_combination(&self) -> CombinationRef<'_> {
        CombinationRef {
            class: self.class,
            verb: &self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            name: &self.name,
        }
    }
}

impl AsCombination for CombinationRef<'_> {
    fn as_combination(&self) -> CombinationRef<'_> {
        *self
    }
}

impl PartialEq for dyn AsCombination + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.as_combination() == other.as_combination()
    }
}

impl Eq for dyn AsCombination + '_ {}

impl Hash for dyn AsCombination + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_combination().hash(state);
    }
}

impl PartialEq for Combination {
    fn eq(&self, other: &Self) -> bool {
        self.as_combination() == other.as_combination()
    }
}

impl Eq for Combination {}

impl Hash for Combination {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_combination().hash(state);
    }
}

impl<'a> Borrow<dyn AsCombination + 'a> for Combination {
    fn borrow(&self) -> &(dyn AsCombination + 'a) {
        self
    }
}

impl RuleIndex {
    /// Adds the combinations of a rule. A rule with more than [`MAX_COMBINATIONS`] adds nothing.
    pub(crate) fn add(&mut self, rule: &Rule) {
        each_combination(rule, |combination| {
            let class = usize::from(combination.class);
            let count = self.counts.get(&combination as &dyn AsCombination).copied().unwrap_or(0);
            if count == 0 {
                self.classes[class] += 1;
                self.present |= 1 << class;
            }
            self.counts.insert_mut(combination, count + 1);
        });
    }

    /// Removes the combinations of a rule.
    pub(crate) fn remove(&mut self, rule: &Rule) {
        each_combination(rule, |combination| {
            let class = usize::from(combination.class);
            match self.counts.get(&combination as &dyn AsCombination).copied() {
                None => {}
                Some(count) if count > 1 => self.counts.insert_mut(combination, count - 1),
                Some(_) => {
                    self.counts.remove_mut(&combination as &dyn AsCombination);
                    self.classes[class] -= 1;
                    if self.classes[class] == 0 {
                        self.present &= !(1 << class);
                    }
                }
            }
        });
    }

    /// Whether the rules allow the request.
    pub(crate) fn allow(&self, query: &ResourceQuery<'_>) -> bool {
        let mut present = self.present;
        while present != 0 {
            let class = present.trailing_zeros();
            present &= present - 1;
            if let Some(combination) = combination_of(class, query)
                && self.counts.contains_key(&combination as &dyn AsCombination)
            {
                return true;
            }
        }
        false
    }
}

/// The only combination of a class that would allow this; `None` when there is none.
fn combination_of<'a>(class: u32, query: &ResourceQuery<'a>) -> Option<CombinationRef<'a>> {
    let class = u8::try_from(class).ok()?;
    let unless = |bit: u8, text: &'a str| if class & bit == 0 { text } else { "" };
    let has_resource = class & (ANY_RESOURCE | ANY_RESOURCE_WITH) == 0;
    if class & ANY_RESOURCE_WITH != 0 && query.subresource.is_empty() {
        return None;
    }
    Some(CombinationRef {
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

/// Calls a function with each combination of a rule.
fn each_combination(rule: &Rule, mut found: impl FnMut(Combination)) {
    if rule.combinations() > MAX_COMBINATIONS {
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
                    found(Combination {
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
