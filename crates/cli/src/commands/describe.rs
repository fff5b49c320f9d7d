//! `postern describe`: everything about objects for people, with their events. Of secret values, only the sizes.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use postern_client::{Collection, Representation, Selection};
use postern_kinds::event::Event;
use postern_kinds::{Info, Verb};
use postern_meta::{Timestamp, human_duration};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::batch::{self, Failure};
use crate::error::CliError;
use crate::flags::{CollectionFlags, LabelFlag};
use crate::kinds;
use crate::output::{self, LAST_APPLIED, escape};
use crate::process::Process;
use crate::resources::{self, ObjectWords};
use crate::session::Session;

/// The most events of an object that are printed: the last ones.
const EVENTS_MAX: usize = 20;
/// Objects without a namespace have their events in this one.
const EVENTS_NAMESPACE: &str = "default";

/// Describe objects.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern describe user ada\n  \
    postern describe cluster/east\n  \
    postern describe secrets -l team=red")]
pub struct Describe {
    #[command(flatten)]
    objects: ObjectWords,

    #[command(flatten)]
    labels: LabelFlag,

    #[command(flatten)]
    collection: CollectionFlags,
}

impl Describe {
    /// Reads, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let wanted = resources::wanted(&self.objects.words, Verb::Get)?;
        if self.labels.selector.is_some() && wanted.iter().any(|one| one.name.is_some()) {
            return Err(CliError::usage("names and selectors cannot be used together"));
        }
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        let mut separator = "";
        batch::each(
            &wanted,
            |_| None,
            process,
            async |one| {
                let of = Collection::new(one.info, Some(&namespace));
                let objects = match &one.name {
                    Some(name) => {
                        match session.client.get_as(of, name, Representation::Whole).await {
                            Ok(object) => vec![object],
                            Err(error) => {
                                let explained = session.explain_named(of, name, &error).await;
                                return Err(Failure::of(&error, explained));
                            }
                        }
                    }
                    None => self.list(&mut session, of).await.map_err(Failure::All)?,
                };
                if objects.is_empty() {
                    process.print_status(&format!("no {}", one.info.plural));
                }
                for object in objects {
                    let events = events(&mut session, one.info, &object).await;
                    let text = describe(one.info, object, &events, process.now_unix_seconds());
                    process.print_text(separator).map_err(Failure::All)?;
                    process.print_text(text.as_str()).map_err(Failure::All)?;
                    separator = "\n\n";
                }
                Ok(())
            },
        )
        .await
    }

    async fn list(
        &self,
        session: &mut Session,
        of: Collection<'_>,
    ) -> Result<Vec<Value>, CliError> {
        let selection = self.labels.selection();
        let list = session.client.list_selected(of, Representation::Whole, &selection).await;
        match list.map_err(|error| session.explain(&error))?.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }
}

/// The last events of an object, the oldest first. The error says why they cannot be read.
async fn events(session: &mut Session, info: &Info, object: &Value) -> Result<Vec<Value>, String> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let namespace = match text("namespace") {
        "" => EVENTS_NAMESPACE,
        namespace => namespace,
    };
    let fields = format!(
        "involvedObject.kind={},involvedObject.name={},involvedObject.uid={}",
        info.kind,
        text("name"),
        text("uid")
    );
    let of = Collection::of::<Event>(Some(namespace));
    let selection = Selection { fields, ..Selection::default() };
    let list = session.client.list_selected(of, Representation::Whole, &selection).await;
    let mut list = list.map_err(|error| escape(&error.to_string()))?;
    let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
        return Ok(Vec::new());
    };
    items.sort_by_cached_key(|event| last_seen(event).to_owned());
    Ok(items.split_off(items.len().saturating_sub(EVENTS_MAX)))
}

/// When an event happened last.
fn last_seen(event: &Value) -> &str {
    let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
    times.iter().find_map(|field| event[*field].as_str()).unwrap_or_default()
}

/// The text about one object.
fn describe(
    info: &Info,
    mut object: Value,
    events: &Result<Vec<Value>, String>,
    now: i64,
) -> Zeroizing<String> {
    let secrets: Vec<String> = kinds::secret_fields(info).map(kinds::json_pointer).collect();
    for pointer in &secrets {
        if let Some(values) = object.pointer_mut(pointer) {
            hide(values);
        }
    }
    let mut metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    let mut rows = vec![line("Name", &metadata["name"])];
    if info.is_namespaced() {
        rows.push(line("Namespace", &metadata["namespace"]));
    }
    rows.extend(pairs("Labels", &metadata["labels"]));
    rows.extend(pairs("Annotations", &metadata["annotations"]));
    rows.push(line("API Version", &json!(info.version.to_string())));
    rows.push(line("Kind", &json!(info.kind)));
    rows.push(vec!["Created:".to_owned(), with_age(&metadata["creationTimestamp"], now)]);
    if !metadata["deletionTimestamp"].is_null() {
        let age = with_age(&metadata["deletionTimestamp"], now);
        rows.push(vec!["Deleted:".to_owned(), age]);
    }
    if !metadata["finalizers"].is_null() {
        rows.push(line("Finalizers", &metadata["finalizers"]));
    }
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owners =
        owners.map(|one| json!(format!("{}/{}", scalar(&one["kind"]), scalar(&one["name"]))));
    let owners: Vec<Value> = owners.collect();
    if !owners.is_empty() {
        rows.push(line("Owners", &json!(owners)));
    }
    for (heading, field) in [("UID", "uid"), ("Generation", "generation")] {
        if !metadata[field].is_null() {
            rows.push(line(heading, &metadata[field]));
        }
    }
    rows.push(line("Version", &metadata["resourceVersion"]));
    let mut out = Zeroizing::new(output::columns(&rows));
    for (name, value) in object.as_object().into_iter().flatten() {
        if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            let at = Place { depth: 0, pointer: format!("/{name}"), secrets: &secrets };
            nested(&title(name), value, &at, &mut out);
        }
    }
    out.push_str(&events_text(events, now));
    out
}

/// Replaces the values of secrets by their sizes.
fn hide(values: &mut Value) {
    let size = |value: &Value| match value.as_str().map(|text| STANDARD.decode(text)) {
        Some(Ok(bytes)) => json!(format!("{} bytes", Zeroizing::new(bytes).len())),
        _ => json!("(hidden)"),
    };
    match values {
        Value::Object(fields) => fields.values_mut().for_each(|value| *value = size(value)),
        other => *other = json!("(hidden)"),
    }
}

fn line(name: &str, value: &Value) -> Vec<String> {
    vec![format!("{name}:"), scalar(value)]
}

/// A line for each pair, of which the first has the name.
fn pairs(name: &str, value: &Value) -> Vec<Vec<String>> {
    let all: Vec<_> = value.as_object().into_iter().flatten().collect();
    if all.is_empty() {
        return vec![vec![format!("{name}:"), "<none>".to_owned()]];
    }
    let first = |at: usize| if at == 0 { format!("{name}:") } else { String::new() };
    let row = |(at, (key, value)): (usize, &(&String, &Value))| {
        vec![first(at), format!("{}={}", escape(key), scalar(value))]
    };
    all.iter().enumerate().map(row).collect()
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => escape(text),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn with_age(time: &Value, now: i64) -> String {
    let Some(text) = time.as_str() else { return "<unknown>".to_owned() };
    match age(text, now) {
        Some(age) => format!("{} ({age} ago)", escape(text)),
        None => escape(text),
    }
}

/// The time since a timestamp, in whole units.
fn age(text: &str, now: i64) -> Option<String> {
    let time: Timestamp = serde_json::from_value(json!(text)).ok()?;
    Some(human_duration(now.saturating_sub(time.unix_seconds())))
}

/// Where a field is printed, and where it is in the object.
struct Place<'a> {
    depth: usize,
    pointer: String,
    /// The maps with keys that users choose, as JSON pointers.
    secrets: &'a [String],
}

impl Place<'_> {
    /// The heading and the place of a field in this one.
    fn field(&self, name: &str, deeper: usize) -> (String, Self) {
        let is_key = self.secrets.contains(&self.pointer);
        let heading = if is_key { escape(name) } else { title(name) };
        let pointer = format!("{}/{name}", self.pointer);
        (heading, Self { depth: self.depth + deeper, pointer, secrets: self.secrets })
    }
}

/// A field and its content, indented.
fn nested(heading: &str, value: &Value, at: &Place<'_>, out: &mut String) {
    let indent = "  ".repeat(at.depth);
    // Writing to a String does not fail.
    let _ = match value {
        Value::Object(fields) if !fields.is_empty() => writeln!(out, "{indent}{heading}:"),
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            writeln!(out, "{indent}{heading}:")
        }
        Value::Object(_) => writeln!(out, "{indent}{heading}:  <none>"),
        other => writeln!(out, "{indent}{heading}:  {}", scalar(other)),
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let (heading, at) = at.field(name, 1);
                nested(&heading, value, &at, out);
            }
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| item.is_object() || item.is_array()) {
                let mut text = String::new();
                match item {
                    Value::Object(fields) => {
                        for (name, value) in fields {
                            let (heading, at) = at.field(name, 2);
                            nested(&heading, value, &at, &mut text);
                        }
                    }
                    other => nested("-", other, &at.field("-", 2).1, &mut text),
                }
                // A dash where the first line of the item begins.
                let start = 2 * (at.depth + 1);
                if text.len() > start + 2 {
                    text.replace_range(start..start + 2, "- ");
                }
                out.push_str(&text);
            }
        }
        _ => {}
    }
}

/// The name of a field as a title: `displayName` is `Display Name`. Keys of maps, which have other characters, stay.
fn title(name: &str) -> String {
    if !name.chars().all(|c| c.is_ascii_alphanumeric())
        || !name.starts_with(|c: char| c.is_ascii_lowercase())
    {
        return escape(name);
    }
    let mut out = String::new();
    let mut previous = ' ';
    for (at, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && previous.is_ascii_lowercase() {
            out.push(' ');
        }
        out.push(if at == 0 { c.to_ascii_uppercase() } else { c });
        previous = c;
    }
    out
}

fn events_text(events: &Result<Vec<Value>, String>, now: i64) -> String {
    let events = match events {
        Ok(events) if events.is_empty() => return "Events:  <none>\n".to_owned(),
        Err(what) => return format!("Events:  <not readable: {what}>\n"),
        Ok(events) => events,
    };
    let mut rows = vec![["TYPE", "REASON", "AGE", "COUNT", "MESSAGE"].map(str::to_owned).to_vec()];
    for event in events {
        let count = event["count"].as_i64().unwrap_or(1).max(1);
        rows.push(vec![
            scalar(&event["type"]),
            scalar(&event["reason"]),
            age(last_seen(event), now).unwrap_or_else(|| "<unknown>".to_owned()),
            count.to_string(),
            scalar(&event["message"]),
        ]);
    }
    let table = output::columns(&rows);
    let mut text = "Events:\n".to_owned();
    text.extend(table.lines().flat_map(|line| ["  ", line, "\n"]));
    text
}

#[cfg(test)]
mod tests {
    use postern_kinds::Kind as _;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;

    use super::*;

    #[test]
    fn an_object_and_its_events() {
        let object = json!({
            "apiVersion": "management.platform.sh/v1", "kind": "User",
            "metadata": {
                "name": "ada", "labels": { "a": "1", "b": "2" }, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "displayName": "Ada\u{1b}[2J", "teams": ["red", "blue"], "access": [
                { "name": "x", "verbs": ["get"] }, { "name": "y", "verbs": [] } ], "empty": {} },
        });
        let event = json!({
            "type": "Warning", "reason": "Odd", "message": "it is\nodd", "count": 3,
            "lastTimestamp": "2026-01-01T01:00:00Z",
        });
        let text = describe(&User::INFO, object, &Ok(vec![event]), 1_767_232_800);
        let wanted = "\
Name:          ada
Labels:        a=1
               b=2
Annotations:   <none>
API Version:   management.platform.sh/v1
Kind:          User
Created:       2026-01-01T00:00:00Z (120m ago)
Version:       7
Spec:
  Access:
    - Name:  x
      Verbs:  get
    - Name:  y
      Verbs:  
  Display Name:  Ada\\u{1b}[2J
  Empty:  <none>
  Teams:  red, blue
Events:
  TYPE      REASON   AGE   COUNT   MESSAGE
  Warning   Odd      60m   3       it is\\nodd
";
        assert_eq!(*text, wanted);
    }

    #[test]
    fn values_of_secrets_are_sizes() {
        let object = json!({
            "metadata": {
                "name": "db", "namespace": "a",
                "annotations": { LAST_APPLIED: "{\"spec\":{\"data\":{\"a\":\"aHVzaA==\"}}}" },
            },
            "spec": { "data": { "tls.crt": "aHVzaA==", "odd": "!", "dbURL": "", "password": "" } },
        });
        let text = describe(&SharedSecret::INFO, object, &Err("no".to_owned()), 0);
        assert!(
            text.contains("tls.crt:  4 bytes\n") && text.contains(" odd:  (hidden)"),
            "{text:?}"
        );
        // Keys of secrets are as users have named them.
        assert!(text.contains(" dbURL:  ") && text.contains(" password:  "), "{text:?}");
        assert!(text.contains("Annotations:   <none>\n"), "{text:?}");
        assert!(!text.contains("aHVz") && text.contains("Namespace:     a\n"), "{text:?}");
        assert!(text.ends_with("Events:  <not readable: no>\n"), "{text:?}");
    }
}
