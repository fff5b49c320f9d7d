//! The fields of a kind, read from its schema and from what the kind declares: one row of a table for each.

use postern_kinds::{AnyKind, Verb};
use postern_meta::schema::Schema;
use serde_json::Value;

/// The heading of a table of fields.
const HEADING: &str = "| field | type | rules | description |\n|---|---|---|---|\n";

/// Structures deeper than this refer to themselves.
const MAX_DEPTH: usize = 16;

/// The table of all fields of a kind except `apiVersion`, `kind` and those of `metadata`.
pub(crate) fn table(kind: &'static dyn AnyKind) -> String {
    let mut table = Table { kind, schema: kind.schema(), text: HEADING.to_owned() };
    table.fields_of("", kind.schema().root(), 0);
    table.text
}

struct Table<'a> {
    kind: &'static dyn AnyKind,
    schema: &'a Schema,
    text: String,
}

impl Table<'_> {
    /// Adds a row for each property of an object, and the rows of what is below it.
    fn fields_of(&mut self, path: &str, object: &Value, depth: usize) {
        assert!(depth < MAX_DEPTH, "{:?}: {path} has too many levels", self.kind);
        let schema = self.schema;
        let Some(properties) = object["properties"].as_object() else { return };
        let required = |name: &String| {
            object["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
        };
        for (name, field) in properties {
            let is_of_every_kind = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            if path.is_empty() && is_of_every_kind {
                continue;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.row(&path, field, required(name));
            let (suffix, inner) = innermost(schema, field);
            self.fields_of(&format!("{path}{suffix}"), inner, depth + 1);
        }
    }

    fn row(&mut self, path: &str, field: &Value, is_required: bool) {
        let resolved = self.schema.resolve(field);
        let described = [field, resolved].map(|one| one["description"].as_str());
        let text = described.into_iter().flatten().next();
        let text = text.unwrap_or_else(|| panic!("{:?}: {path} has no description", self.kind));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let type_name = type_name(self.schema, field);
        let rules = self.rules(path, field, is_required).join("; ");
        let row = [format!("`{path}`"), type_name, rules, text];
        self.text += &crate::row(&row);
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
        let write_only = self.kind.write_only().iter();
        let is_write_only = write_only.map(|one| one.path.join(".")).any(|one| one == path);
        let is_protected = self.kind.read_protected().iter().any(|one| one.join(".") == path);
        let kept = self.kind.kept_fields();
        add(is_required, "required");
        add(is_immutable(field), "immutable");
        add(is_write_only || says("writeOnly"), "write-only");
        add(self.is_read_only(path) || says("readOnly"), "read-only");
        add(is_protected, "needs `get`");
        add(!below_list && kept.iter().any(|name| path == format!("spec.{name}")), "kept");
        add(is_in(self.kind.strict_fields().no_unknown_below), "strict");
        if let Some(default) = get("default").filter(|default| !default.is_object()) {
            rules.push(format!("default {}", code(default)));
        }
        let items = get("items").map(|items| self.schema.resolve(items));
        if let Some(Value::Array(values)) = get("enum").or_else(|| items?.get("enum")) {
            let values: Vec<_> = values.iter().map(code).collect();
            rules.push(format!("one of {}", values.join(", ")));
        }
        rules.extend(merge_rule(&get));
        rules
    }

    /// Is it a field of a status that only the server writes? A kind without a status subresource has no others.
    fn is_read_only(&self, path: &str) -> bool {
        let in_status = path == "status" || path.starts_with("status.");
        let info = self.kind.info();
        in_status && info.action("status", Verb::Update).is_none()
    }
}

/// The schema of the objects in lists and maps, with the suffix for its path; any other schema as it is.
fn innermost<'a>(schema: &'a Schema, field: &'a Value) -> (String, &'a Value) {
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

/// Does the schema have the rule that the value never changes, as Kubernetes writes it?
fn is_immutable(field: &Value) -> bool {
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
