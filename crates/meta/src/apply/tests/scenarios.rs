//! Scenarios of applies and updates, as tables: `scenarios/*.txt` has the steps of the managers, and the object and its
//! `managedFields` after each.
//!
//! A line `a: X` is an apply of X by `a`, `a!: X` a forced one, `a=: X` an update that makes the object X, and
//! `a/status: X` any of them through the subresource. `server: X` sets values that no manager owns. `forget: a` writes
//! `managedFields` without the entries of `a`, `reset: ` writes `[{}]`. X is YAML without the outer braces. A refused
//! step has the code, and after it the paths, in the next line.
//!
//! Then comes the object after `=`, and a line for each entry: the manager, with `=` for updates, the number of the
//! step in which its time is, and the paths that it owns.

use std::fmt::Write as _;

use super::*;
use crate::object::Operation;

const TABLES: [(&str, &str); 7] = [
    ("values.txt", include_str!("scenarios/values.txt")),
    ("lists.txt", include_str!("scenarios/lists.txt")),
    ("managers.txt", include_str!("scenarios/managers.txt")),
    ("removal.txt", include_str!("scenarios/removal.txt")),
    ("free_form.txt", include_str!("scenarios/free_form.txt")),
    ("metadata.txt", include_str!("scenarios/metadata.txt")),
    ("nulls.txt", include_str!("scenarios/nulls.txt")),
];

/// The action of one step.
#[derive(Clone, Copy, PartialEq)]
enum Action {
    Apply { force: bool },
    Update,
    Server,
    Forget,
    Reset,
}

struct Step {
    action: Action,
    who: Manager,
    value: Value,
}

impl Step {
    /// Reads a line such as `a/status!: spec: {}`.
    fn parse(line: &str) -> Self {
        let (who, value) = line.split_once(':').unwrap();
        let (who, action) = match (who, who.strip_suffix('!'), who.strip_suffix('=')) {
            ("server", ..) => (who, Action::Server),
            ("forget", ..) => (who, Action::Forget),
            ("reset", ..) => (who, Action::Reset),
            (_, Some(who), _) => (who, Action::Apply { force: true }),
            (_, _, Some(who)) => (who, Action::Update),
            _ => (who, Action::Apply { force: false }),
        };
        let (name, subresource) = who.split_once('/').unwrap_or((who, ""));
        let who = Manager { subresource: subresource.to_owned(), ..manager(name) };
        let text = if action == Action::Forget { "" } else { value };
        let value = match action {
            Action::Forget => Value::from(value.trim()),
            _ if text.trim_start().starts_with('{') => yaml(text),
            _ => yaml(&format!("{{{text}}}")),
        };
        Self { action, who, value }
    }

    /// Does the step. The error is the second line of a refusal.
    fn run(&self, live: Option<&Object>, seconds: i64) -> Result<Object, String> {
        let ignored = match self.who.subresource.as_str() {
            "" => FieldSet::of_fields(&[&["status"]]),
            _ => FieldSet::new(),
        };
        let kind = TrackedKind { schema: schema(), ignored: &ignored };
        match self.action {
            Action::Apply { force } => {
                let problems = check_lists(&self.value, schema());
                if !problems.is_empty() {
                    let paths: Vec<_> =
                        problems.iter().map(|problem| problem.path.as_str()).collect();
                    return Err(format!("422 {}", paths.join(" ")));
                }
                let mut configuration = self.value.clone();
                let nulls = &nulls_of(&configuration, schema());
                schema().prune_unknown(&mut configuration);
                let configuration = object(&configuration);
                let (configuration, manager, now) = (&configuration, &self.who, at(seconds));
                let asked = Apply { configuration, manager, force, now };
                let mut new = apply_with_nulls(live, &asked, nulls, &kind).map_err(refusal)?;
                track_apply(live, &mut new, &kind, &self.who);
                Ok(new)
            }
            Action::Update => {
                let mut new = object(&self.value);
                if let Some(live) = live {
                    new.metadata.managed_fields.clone_from(&live.metadata.managed_fields);
                }
                track_update(live, &mut new, &kind, &self.who, at(seconds));
                Ok(new)
            }
            Action::Server => {
                let mut value = live.unwrap().clone().into_value();
                super::super::merge::merge(&mut value, &self.value, schema());
                Ok(object(&value))
            }
            Action::Forget | Action::Reset => {
                let mut new = live.unwrap().clone();
                let entries = &mut new.metadata.managed_fields;
                match self.value.as_str() {
                    Some(name) => entries.retain(|entry| entry.manager != name),
                    None => *entries = vec![ManagedFieldsEntry::default()],
                }
                track_update(live, &mut new, &kind, &manager("unknown"), at(seconds));
                Ok(new)
            }
        }
    }
}

fn yaml(text: &str) -> Value {
    decode(text.as_bytes(), Format::Yaml).expect(text).value
}

/// The paths in conflict, each with its manager.
fn refusal(conflicts: Conflicts) -> String {
    let status = conflicts.into_error().into_status();
    let mut text = status.code.to_string();
    for cause in status.details.unwrap().causes {
        let who = cause.message.strip_prefix("conflict with ").unwrap().replace('"', "");
        let who = who.replace(" with subresource ", "/").replace(" using g/v1", "=");
        write!(text, " {who}{}", cause.field).unwrap();
    }
    text
}

/// The lines that describe an object and its entries.
fn outcome(object: &Object) -> String {
    let value = without_entries(object);
    let mut text = String::new();
    let flow = flow(&value);
    writeln!(text, "= {}", &flow[1..flow.len() - 1]).unwrap();
    for entry in &object.metadata.managed_fields {
        let kind = if entry.operation == Operation::Update { "=" } else { "" };
        let slash = if entry.subresource.is_empty() { "" } else { "/" };
        let seconds = entry.time.unwrap().unix_seconds();
        let paths = set(entry.fields_v1.as_ref().unwrap()).paths().join(" ");
        let ManagedFieldsEntry { manager, subresource, .. } = entry;
        writeln!(text, "- {manager}{slash}{subresource}{kind}@{seconds} {paths}").unwrap();
    }
    text
}

fn without_entries(object: &Object) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields.clear();
    let mut value = object.into_value();
    if value["metadata"] == json!({}) {
        value.as_object_mut().unwrap().remove("metadata");
    }
    value
}

/// A value as YAML in one line, with quotes only where they are needed.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text)
            if text.starts_with(|c: char| c.is_ascii_alphabetic()) && text != "null" =>
        {
            text.clone()
        }
        other => other.to_string(),
    }
}

/// Runs one scenario, and returns it with the real results.
fn run(scenario: &str) -> String {
    let mut actual = String::new();
    let (mut live, mut step_number): (Option<Object>, i64) = (None, 0);
    for line in scenario.lines() {
        if line.starts_with("# ") {
            writeln!(actual, "{line}").unwrap();
            continue;
        }
        if line.is_empty()
            || line.starts_with(['=', '-'])
            || line.starts_with(|c: char| c.is_ascii_digit())
        {
            continue;
        }
        step_number += 1;
        writeln!(actual, "{line}").unwrap();
        let step = Step::parse(line);
        match step.run(live.as_ref(), step_number) {
            Ok(new) => {
                again_changes_nothing(&step, &new, step_number + 1);
                live = Some(new);
            }
            Err(refusal) => writeln!(actual, "{refusal}").unwrap(),
        }
    }
    if let Some(live) = &live {
        actual.push_str(&outcome(live));
    }
    actual
}

/// Checks that an apply that is done again changes nothing, not even a time.
fn again_changes_nothing(step: &Step, object: &Object, seconds: i64) {
    if matches!(step.action, Action::Apply { .. }) {
        assert_eq!(
            step.run(Some(object), seconds).unwrap().into_value(),
            object.clone().into_value()
        );
    }
}

#[test]
fn every_scenario_ends_as_its_table_says() {
    let mut count = 0;
    for (file, table) in TABLES {
        for scenario in table.split("\n\n").filter(|text| text.starts_with("# ")) {
            count += 1;
            assert_eq!(run(scenario).trim_end(), scenario.trim_end(), "{file}");
        }
    }
    assert!(count >= 150, "{count}");
}
