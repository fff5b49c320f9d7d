//! The fields of a kind, read from its schema and from the kind's declarations: one row of a table
//! for each.

use postern_kinds::{AnyKind, NoEffect, Verb};
use postern_meta::schema::Schema;
use serde_json::Value;

/// The heading of a table of fields.
const HEADING: &str = "| field | type | rules | description |\n|---|---|---|---|\n";

/// Structures deeper than this refer to themselves.
const MAX_DEPTH: usize = 16;

/// One field of a kind.
pub(crate) struct Field {
    /// Its path, with `[]` for the items of a list and `KEY` for the keys of a map.
    pub(crate) path: String,
    /// Its own schema, which may be a reference.
    pub(crate) schema: &'static Value,
    /// Whether the object around it requires it.
    pub(crate) is_required: bool,
}

/// All fields of a kind except `apiVersion`, `kind` and those of `metadata`.
pub(crate) fn fields_of(kind: &'static dyn AnyKind) -> Vec<Field> {
    let mut found = Vec::new();
    collect(kind.schema(), "", kind.schema().root(), 0, &mut found);
    found
}

/// Adds each property of an object, followed by those below it.
fn collect(
    schema: &'static Schema,
    parent: &str,
    object: &'static Value,
    depth: usize,
    found: &mut Vec<Field>,
) {
    assert!(depth < MAX_DEPTH, "{parent} has too many levels");
    let Some(properties) = object["properties"].as_object() else { return };
    for (name, field) in properties {
        let is_of_every_kind = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        if parent.is_empty() && is_of_every_kind {
            continue;
        }
        let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
        let (suffix, inner) = innermost(schema, field);
        let below = format!("{path}{suffix}");
        let required = object["required"].as_array();
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
        found.push(Field { path, schema: field, is_required });
        collect(schema, &below, inner, depth + 1, found);
    }
}

/// The table of the fields of a kind.
pub(crate) fn table(kind: &'static dyn AnyKind) -> String {
    let table = Table { kind, schema: kind.schema() };
    let rows = fields_of(kind).into_iter().map(|field| table.row(&field));
    std::iter::once(HEADING.to_owned()).chain(rows).collect()
}

struct Table {
    kind: &'static dyn AnyKind,
    schema: &'static Schema,
}

impl Table {
    fn row(&self, field: &Field) -> String {
        let Field { path, schema, is_required } = field;
        let described =
            [schema, self.schema.resolve(schema)].map(|one| one["description"].as_str());
        let text = described.into_iter().flatten().next();
        let text = text.unwrap_or_else(|| panic!("{:?}: {path} has no description", self.kind));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let rules = self.rules(path, schema, *is_required).join("; ");
        crate::reference::row(&[format!("`{path}`"), type_name(self.schema, schema), rules, text])
    }

    /// The rules about a field, each in a few words. The index of the reference explains them.
    fn rules(&self, path: &str, field: &Value, is_required: bool) -> Vec<String> {
        let resolved = self.schema.resolve(field);
        let get = |key: &str| field.get(key).or_else(|| resolved.get(key));
        let says = |key: &str| get(key) == Some(&Value::Bool(true));
        let is_in = |paths: &[&str]| paths.contains(&path);
        let mut rules = Vec::new();
        let mut add = |applies: bool, rule: &str| {
            if applies {
                rules.push(rule.to_owned());
            }
        };
        let below_list = path.contains('[');
        let write_only = self.kind.info().write_only.iter();
        let is_write_only = write_only.map(|one| one.path.join(".")).any(|one| one == path);
        let is_protected = self.kind.info().read_protected.iter().any(|one| one.join(".") == path);
        let kept = self.kind.info().kept_fields;
        add(is_required, "required");
        add(is_immutable(field), "immutable");
        add(is_write_only || says("writeOnly"), "write-only");
        add(self.is_read_only(path) || says("readOnly"), "read-only");
        add(is_protected, "needs `get`");
        add(!below_list && kept.iter().any(|name| path == format!("spec.{name}")), "kept");
        add(is_in(self.kind.info().strict_fields().no_unknown_below), "strict");
        if let Some(default) = get("default") {
            rules.push(format!("default {}", code(default)));
        }
        if let Some(values) = allowed_values(self.schema, field) {
            let values: Vec<_> = values.iter().map(code).collect();
            rules.push(format!("one of {}", values.join(", ")));
        }
        rules.extend(merge_rule(&get));
        let without_effect = self.kind.no_effect();
        if let Some(NoEffect { values, .. }) = without_effect.iter().find(|one| one.path == path) {
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            let of =
                if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
            rules.push(format!("no effect{of}"));
        }
        rules
    }

    /// Whether it is a field of a status that only the server writes. A kind without a status
    /// subresource has no others.
    fn is_read_only(&self, path: &str) -> bool {
        let in_status = path == "status" || path.starts_with("status.");
        let info = self.kind.info();
        in_status && info.action("status", Verb::Update).is_none()
    }
}

/// The schema of the objects in lists and maps, with the suffix for its path; any other schema as it is.
fn innermost(schema: &'static Schema, field: &'static Value) -> (String, &'static Value) {
    let resolved = schema.resolve(field);
    let (suffix, inner) = match (resolved.get("items"), resolved.get("additionalProperties")) {
        (Some(items), _) => ("[]", items),
        (None, Some(values)) if values.is_object() => (".KEY", values),
        _ => return (String::new(), resolved),
    };
    let (rest, innermost) = innermost(schema, inner);
    (format!("{suffix}{rest}"), innermost)
}

fn type_name(schema: &Schema, field: &Value) -> String {
    let resolved = schema.resolve(field);
    let plain = resolved["type"].as_str().unwrap_or("any");
    let format = resolved["format"].as_str();
    match (plain, format) {
        ("array", _) => format!("list of {}", type_name(schema, &resolved["items"])),
        ("object", _) if resolved["additionalProperties"].is_object() => {
            format!("map of string to {}", type_name(schema, &resolved["additionalProperties"]))
        }
        ("string", Some("byte")) => "string (base64)".to_owned(),
        (plain, Some(format)) => format!("{plain} ({format})"),
        (plain, None) => plain.to_owned(),
    }
}

/// The values that a field, or each item of a list, may have.
pub(crate) fn allowed_values<'a>(schema: &'a Schema, field: &'a Value) -> Option<&'a Vec<Value>> {
    let resolved = schema.resolve(field);
    let items = resolved.get("items").map(|items| schema.resolve(items));
    let places = [Some(field), Some(resolved), items];
    places.into_iter().flatten().find_map(|at| at.get("enum")?.as_array())
}

/// How server-side apply merges a list, a map or an object.
fn merge_rule<'a>(get: &impl Fn(&str) -> Option<&'a Value>) -> Option<String> {
    let text = |key: &str| get(key).and_then(Value::as_str);
    if get("items").is_some() {
        let list = text("x-kubernetes-list-type").unwrap_or("atomic");
        let keys = get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let keys = keys.into_iter().flatten().map(code).collect::<Vec<_>>().join(", ");
        return Some(match list {
            "map" => format!("list: by {keys}"),
            other => format!("list: {other}"),
        });
    }
    let is_map = get("additionalProperties").is_some();
    let map = text("x-kubernetes-map-type").or(is_map.then_some("granular"))?;
    let what = if is_map { "map" } else { "object" };
    (is_map || map == "atomic").then(|| format!("{what}: {map}"))
}

/// Whether the schema has the rule that the value never changes, as Kubernetes writes it.
pub(crate) fn is_immutable(field: &Value) -> bool {
    let rules = field["x-kubernetes-validations"].as_array();
    rules.is_some_and(|rules| rules.iter().any(|rule| rule["rule"] == "self == oldSelf"))
}

fn code(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "`\"\"`".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}
