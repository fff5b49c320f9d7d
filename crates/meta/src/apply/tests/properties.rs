//! Properties of any sets, objects, and order of writes.

use std::collections::BTreeSet;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Map;

use super::*;

pub(super) type Paths = BTreeSet<Vec<PathElement>>;

fn scalar() -> impl Strategy<Value = Scalar> {
    let json = prop_oneof![
        (-3_i64..4).prop_map(Value::from),
        // Of longer fractions, the library's parser may miss the last digit.
        any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(Value::Null),
    ];
    json.prop_map(|value| Scalar::from_value(&value).unwrap())
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        4 => "[ab]".prop_map(PathElement::Field),
        1 => any::<String>().prop_map(PathElement::Field),
        1 => scalar().prop_map(PathElement::Value),
        1 => btree_map("[ab]?", scalar(), 1..3)
            .prop_map(|key| PathElement::Key(key.into_iter().collect())),
        1 => any::<i64>().prop_map(PathElement::Index),
    ]
}

pub(super) fn paths() -> impl Strategy<Value = Paths> {
    btree_set(vec(element(), 1..4), 0..12)
}

pub(super) fn set_of_paths(paths: &Paths) -> FieldSet {
    let mut set = FieldSet::new();
    for path in paths {
        set.insert(path);
    }
    set
}

fn paths_of_set(set: &FieldSet) -> Paths {
    let mut paths = Paths::new();
    set.for_each(&mut |path| {
        paths.insert(path.iter().map(|step| (*step).clone()).collect());
    });
    paths
}

fn word() -> impl Strategy<Value = Value> {
    "[xyz]".prop_map(Value::from)
}

fn words() -> impl Strategy<Value = Value> {
    btree_map("[abc]", word(), 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn struct_of(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| option::of(value).prop_map(move |value| Some((name, value?))))
        .collect();
    fields
        .prop_map(|fields| {
            let fields = fields.into_iter().flatten();
            Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect())
        })
        .boxed()
}

fn named(items: std::collections::BTreeMap<String, Value>) -> Value {
    let item = |(name, mut item): (String, Value)| {
        item["name"] = Value::from(name);
        item
    };
    items.into_iter().map(item).collect()
}

/// An object with a label that stays, so that there is always an owner.
pub(super) fn any_object() -> impl Strategy<Value = Value> {
    let owner = struct_of(vec![("user", word().boxed()), ("team", word().boxed())]);
    let port = (1..4_i64, any::<bool>()).prop_map(|(port, named)| {
        if named {
            json!({"containerPort": port, "name": "n"})
        } else {
            json!({ "containerPort": port })
        }
    });
    let container = struct_of(vec![
        ("image", word().boxed()),
        ("args", vec(word(), 0..2).prop_map(Value::from).boxed()),
        ("ports", vec(port, 0..2).prop_map(Value::from).boxed()),
    ]);
    let spec = struct_of(vec![
        ("displayName", word().boxed()),
        ("replicas", (0..2_i64).prop_map(Value::from).boxed()),
        ("owner", owner.clone()),
        ("data", words().boxed()),
        ("selector", words().boxed()),
        ("access", vec(owner, 0..2).prop_map(Value::from).boxed()),
        ("tags", btree_set("[abc]", 0..3).prop_map(|set| json!(set)).boxed()),
        ("containers", btree_map("[abc]", container, 0..3).prop_map(named).boxed()),
        ("quotas", btree_map("[ab]", words(), 0..2).prop_map(|map| json!(map)).boxed()),
        ("free", words().boxed()),
        ("deduced", prop_oneof![word(), words()].boxed()),
    ]);
    let metadata = struct_of(vec![
        ("annotations", words().boxed()),
        ("finalizers", btree_set("[abc]", 0..3).prop_map(|set| json!(set)).boxed()),
    ]);
    let object = struct_of(vec![
        ("spec", spec),
        ("data", words().boxed()),
        ("status", struct_of(vec![("phase", word().boxed())])),
    ]);
    (object, metadata).prop_map(|(mut object, mut metadata)| {
        metadata["labels"] = json!({"stays": "here"});
        object["metadata"] = metadata;
        object
    })
}

/// Every path that an object has, those of structs and lists too.
fn everything(object: &Value) -> FieldSet {
    compare(&Value::Object(Map::new()), object, schema()).added
}

fn with(mut set: FieldSet, other: &FieldSet) -> FieldSet {
    set.unite(other.clone());
    set
}

fn without(mut set: FieldSet, other: &FieldSet) -> FieldSet {
    set.subtract(other);
    set
}

/// The sets of all entries, in their order.
fn owned(object: &Object) -> Vec<(String, FieldSet)> {
    let entries = object.metadata.managed_fields.iter();
    entries.map(|entry| (entry.manager.clone(), set(entry.fields_v1.as_ref().unwrap()))).collect()
}

fn without_entries(object: &Object) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields.clear();
    object.into_value()
}

/// Checks that everything in the object has exactly one owner, and that nothing else has one.
fn each_has_one_owner(object: &Object) -> Result<(), TestCaseError> {
    let sets = owned(object);
    let all = sets.iter().fold(FieldSet::new(), |all, (_, set)| with(all, set));
    let lengths: usize = sets.iter().map(|(_, set)| set.len()).sum();
    prop_assert_eq!(lengths, all.len(), "nothing has two owners");
    let present = everything(&without_entries(object));
    let absent = without(all.clone(), &present);
    prop_assert!(absent.is_empty(), "owned, but not present: {:?}", absent);
    let unowned = without(present, &all);
    let structs = FieldSet::of_fields(&[&["metadata"], &["spec"], &["status"]]);
    let missing = without(unowned, &structs);
    prop_assert!(missing.is_empty(), "without an owner: {:?}", missing);
    Ok(())
}

/// One write of several managers: the operation and its options.
#[derive(Debug, Clone)]
enum Written {
    Apply { force: bool },
    Update,
}

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        4 => Just(Written::Apply { force: false }),
        1 => Just(Written::Apply { force: true }),
        1 => Just(Written::Update),
    ]
}

/// A configuration: any part of an object, also none.
fn configuration() -> impl Strategy<Value = Value> {
    any_object().prop_map(|mut object| {
        object["metadata"].as_object_mut().unwrap().remove("labels");
        object
    })
}

fn apply_of(
    live: Option<&Object>,
    configuration: &Value,
    who: &Manager,
    force: bool,
    seconds: i64,
) -> Result<Object, Conflicts> {
    let kind = TrackedKind { schema: schema(), ignored: &FieldSet::new() };
    let configuration = &object(configuration);
    let asked = Apply { configuration, manager: who, force, now: at(seconds) };
    let mut new = apply(live, &asked, &kind)?;
    track_apply(live, &mut new, &kind, who);
    Ok(new)
}

fn all_owned(object: &Object) -> FieldSet {
    FieldSet::union_of(owned(object).into_iter().map(|(_, set)| set))
}

/// The fields owned by all entries except the applies of one manager, without containers.
fn owned_by_others(object: &Object, who: &Manager) -> FieldSet {
    let entries = object.metadata.managed_fields.iter();
    let others = entries.filter(|entry| {
        entry.manager != who.name || entry.operation != crate::object::Operation::Apply
    });
    let owned = FieldSet::union_of(others.map(|entry| set(entry.fields_v1.as_ref().unwrap())));
    // Empty containers are not present: the manager that removes the last entry removes them.
    let containers = ["annotations", "labels", "finalizers"].map(|name| ["metadata", name]);
    let containers = FieldSet::of_fields(&containers.each_ref().map(|path| &path[..]));
    without(owned, &containers)
}

/// Checks the properties that must hold after an apply of `configuration`.
fn apply_holds(
    live: Option<&Object>,
    new: &Object,
    (configuration, who, force): (&Value, &Manager, bool),
    seconds: i64,
) -> Result<(), TestCaseError> {
    // Doing it again changes nothing, also if another manager came before.
    let again = apply_of(Some(new), configuration, who, false, seconds + 1);
    if new.metadata.managed_fields.is_empty() {
        // The rest has no owner. So the next apply finds an object that seems to have had none before, as upstream.
        let again = again.as_ref().map(without_entries);
        prop_assert!(again == Ok(without_entries(new)), "the second apply changed a value");
    } else {
        prop_assert!(again.as_ref() == Ok(new), "the second apply changed something");
    }
    let (wanted, present) = (ownable_value(configuration), everything(&without_entries(new)));
    let own = set_of(&wanted, schema());
    // All that was applied is there, with the values that were applied, and owned by the applier.
    prop_assert!(without(own.clone(), &present).is_empty());
    let missing = compare(&without_entries(new), &wanted, schema());
    prop_assert!(missing.added.is_empty(), "not applied: {:?}", missing.added);
    prop_assert!(missing.modified.is_empty(), "not as applied: {:?}", missing.modified);
    let entry = new.metadata.managed_fields.iter().find(|entry| {
        entry.manager == who.name && entry.operation == crate::object::Operation::Apply
    });
    let recorded = entry.map(|entry| set(entry.fields_v1.as_ref().unwrap())).unwrap_or_default();
    prop_assert_eq!(&recorded, &own);
    // No manager owns a field that does not exist.
    let dangling = without(all_owned(new), &present);
    prop_assert!(dangling.is_empty(), "owned, but not present: {:?}", dangling);
    let Some(live) = live else { return Ok(()) };
    // Fields that were there and are not applied stay, except those that only the applier owned before.
    let changes = compare(&without_entries(live), &without_entries(new), schema());
    let others = owned_by_others(live, who);
    if !force {
        let touched = with(changes.removed.clone(), &changes.modified);
        let taken = touched.intersection(&others);
        prop_assert!(taken.is_empty(), "another's value changed: {:?}", taken);
        // Without entries, one manager is made the owner of all that was there.
        if !live.metadata.managed_fields.is_empty() {
            prop_assert_eq!(owned_by_others(new, who), others.clone());
        }
    }
    let applied = everything(&wanted);
    let removed_of_others = without(changes.removed.intersection(&others), &applied);
    if !removed_of_others.is_empty() {
        // Only in place of a value of another type, by force.
        prop_assert!(force && !changes.modified.is_empty(), "removed: {:?}", removed_of_others);
    }
    Ok(())
}

/// The part of an object that can be owned.
fn ownable_value(value: &Value) -> Value {
    let mut value = without_entries(&object(value));
    if value["metadata"] == json!({}) {
        value.as_object_mut().unwrap().remove("metadata");
    }
    value
}

proptest! {
    #[test]
    fn what_is_written_is_read(paths in paths()) {
        let set = set_of_paths(&paths);
        prop_assert_eq!(&FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), &set);
        let text = serde_json::to_vec(&set).unwrap();
        let value = decode(&text, Format::Json).unwrap().value;
        prop_assert_eq!(&FieldSet::from_fields_v1(&value).unwrap(), &set);
        prop_assert_eq!(paths_of_set(&set), paths);
    }

    #[test]
    fn sets_are_sets(a in paths(), b in paths()) {
        let (left, right) = (set_of_paths(&a), set_of_paths(&b));
        prop_assert_eq!(left.len(), a.len());
        let union: Paths = a.union(&b).cloned().collect();
        prop_assert_eq!(with(left.clone(), &right), set_of_paths(&union));
        prop_assert_eq!(with(right.clone(), &left), set_of_paths(&union));
        let difference: Paths = a.difference(&b).cloned().collect();
        let mut rest = left.clone();
        prop_assert_eq!(rest.subtract(&right), difference.len() < a.len());
        prop_assert_eq!(&rest, &set_of_paths(&difference));
        let intersection: Paths = a.intersection(&b).cloned().collect();
        prop_assert_eq!(left.intersection(&right), set_of_paths(&intersection));
        let below = |path: &Vec<PathElement>| b.iter().any(|taken| path.starts_with(taken));
        let deep: Paths = a.iter().filter(|path| !below(path)).cloned().collect();
        let mut rest = left.clone();
        rest.subtract_below(&right);
        prop_assert_eq!(rest, set_of_paths(&deep));
        prop_assert!(union.iter().all(|path| left.contains(path) == a.contains(path)));
    }

    #[test]
    fn scalars_have_one_order(a in scalar(), b in scalar(), c in scalar()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn a_comparison_leads_from_one_to_the_other(a in any_object(), b in any_object()) {
        prop_assert!(compare(&a, &a, schema()).is_empty());
        let forward = compare(&a, &b, schema());
        let back = compare(&b, &a, schema());
        prop_assert_eq!(&forward.added, &back.removed);
        prop_assert_eq!(&forward.modified, &back.modified);
        let result = with(without(everything(&a), &forward.removed), &forward.added);
        prop_assert_eq!(result, everything(&b));
        // All fields that an apply would own are present.
        prop_assert!(without(set_of(&b, schema()), &everything(&b)).is_empty());
    }

    #[test]
    fn every_field_has_one_owner(
        writes in vec((any_object(), 0..14_usize), 1..24),
    ) {
        let mut live: Option<Object> = None;
        for (seconds, (value, who)) in (0..).zip(writes) {
            let who = manager(&format!("m{who}"));
            let new = match &live {
                Some(live) => rewrite(live, &value, &who, seconds),
                None => write(None, &value, &who, seconds),
            };
            each_has_one_owner(&new)?;
            prop_assert!(new.metadata.managed_fields.len() <= MAX_UPDATE_MANAGERS);
            if let Some(live) = &live {
                let changes = compare(&without_entries(live), &without_entries(&new), schema());
                let own = owned(&new).into_iter().find(|(name, _)| *name == who.name);
                let own = own.map(|(_, set)| set).unwrap_or_default();
                prop_assert!(without(with(changes.added, &changes.modified), &own).is_empty());
            }
            prop_assert_eq!(&rewrite(&new, &value, &manager("other"), seconds + 1), &new);
            live = Some(new);
        }
    }

    #[test]
    fn applies_keep_what_they_promise(
        writes in vec((configuration(), 0..4_usize, written()), 1..12),
    ) {
        let mut live: Option<Object> = None;
        for (seconds, (value, who, written)) in (0..).step_by(2).zip(writes) {
            let who = manager(&format!("m{who}"));
            let force = match written {
                Written::Apply { force } => force,
                Written::Update => {
                    live = Some(match &live {
                        Some(live) => rewrite(live, &value, &who, seconds),
                        None => write(None, &value, &who, seconds),
                    });
                    continue;
                }
            };
            match apply_of(live.as_ref(), &value, &who, force, seconds) {
                Ok(new) => {
                    apply_holds(live.as_ref(), &new, (&value, &who, force), seconds)?;
                    live = Some(new);
                }
                Err(conflicts) => {
                    // Another manager's value would change; by force, it does.
                    prop_assert!(!force && !conflicts.is_empty());
                    let before = live.as_ref().unwrap();
                    let wanted = ownable_value(&value);
                    let differs = compare(&without_entries(before), &wanted, schema());
                    let others = owned_by_others(before, &who);
                    let differing = with(differs.modified, &differs.removed);
                    let is_new = before.metadata.managed_fields.is_empty();
                    prop_assert!(is_new || !differing.intersection(&others).is_empty());
                    let forced = apply_of(live.as_ref(), &value, &who, true, seconds).unwrap();
                    apply_holds(live.as_ref(), &forced, (&value, &who, true), seconds)?;
                }
            }
        }
    }

    #[test]
    fn whoever_applies_alone_owns_all(values in vec(configuration(), 1..6)) {
        let mut live: Option<Object> = None;
        for (seconds, value) in (0..).zip(values) {
            let new = apply_of(live.as_ref(), &value, &manager("a"), false, seconds).unwrap();
            let roots = FieldSet::of_fields(&[&["metadata"], &["spec"], &["status"]]);
            let wanted = everything(&ownable_value(&value));
            let present = everything(&without_entries(&new));
            // Nothing is left of the fields that were applied before, but for empty structs at the
            // top.
            prop_assert!(without(without(present, &wanted), &roots).is_empty());
            live = Some(new);
        }
    }

    #[test]
    fn never_panics(text in "[fkvi.]?:?[{\\[\"a0:,\\]}]{0,8}", deep in 0..3_usize) {
        let mut value = json!({ text: {} });
        for _ in 0..deep {
            value = json!({"f:a": value, ".": {}});
        }
        if let Ok(set) = FieldSet::from_fields_v1(&value) {
            prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Ok(set));
        }
    }
}
