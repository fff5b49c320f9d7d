//! The table of values in the README of each chart, made from `values.yaml` and `values.schema.json`.

use std::collections::BTreeSet;

use postern_tests::kubectl::repository;
use serde_json::Value;

use super::charts::{compare, smallest};
use super::helm::{CHARTS, chart, objects, run};

/// The lines around the table.
const BEGIN: &str = "<!-- The table is made from values.yaml and values.schema.json. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// Settings that a chart derives from other values.
const SET_BY_SERVER_CHART: &[&str] = &[
    "listen",
    "host",
    "external-url",
    "tls-cert-file",
    "tls-key-file",
    "data-dir",
    "key-dir",
    "keyring",
    "audit-policy-file",
    "store",
    "etcd-ca-file",
    "etcd-cert-file",
    "etcd-key-file",
    "etcd-user",
    "etcd-password-file",
    "member-host",
];
const SET_BY_AGENT_CHART: &[&str] = &[
    "server",
    "ca-file",
    "ca-digest",
    "cluster",
    "key-file",
    "upstream",
    "upstream-server",
    "listen",
    "metrics-listen",
    "state-dir",
    "advertise",
    "advertise-ca-file",
    "advertise-system-ca",
    "secrets",
];

fn read(chart_name: &str, file: &str) -> String {
    std::fs::read_to_string(chart(chart_name).join(file)).unwrap()
}

fn schema(chart_name: &str) -> Value {
    serde_json::from_str(&read(chart_name, "values.schema.json")).unwrap()
}

fn values(chart_name: &str) -> Value {
    serde_saphyr::from_str(&read(chart_name, "values.yaml")).unwrap()
}

/// A value that can be set.
struct Row {
    path: String,
    schema: Value,
    default: Value,
}

/// The values below a path. An object with no description of any field is one value.
fn rows(path: &str, schema: &Value, default: &Value) -> Vec<Row> {
    let properties = schema["properties"].as_object().filter(|properties| {
        properties.values().any(|one| !one["description"].is_null() || !one["properties"].is_null())
    });
    let Some(properties) = properties else {
        let (path, schema) = (path.to_owned(), schema.clone());
        return vec![Row { path, schema, default: default.clone() }];
    };
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    // helm passes `global` to every chart.
    let known = properties.iter().filter(|(name, _)| *name != "global");
    known.flat_map(|(name, schema)| rows(&below(name), schema, &default[name])).collect()
}

impl Row {
    fn line(&self) -> String {
        let kind = &self.schema["type"];
        // A value that is null by default has two types.
        let kind = kind.as_str().or(kind[0].as_str()).unwrap_or("any");
        let allowed = self.schema["enum"].as_array().into_iter().flatten();
        let allowed: Vec<_> = allowed
            .filter(|one| *one != "")
            .map(|one| format!("`{}`", one.as_str().unwrap()))
            .collect();
        let kind = if allowed.is_empty() { kind.to_owned() } else { allowed.join(", ") };
        let default = match &self.default {
            Value::Null => String::new(),
            Value::String(text) if text.is_empty() => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let meaning = self.schema["description"].as_str().unwrap();
        format!("| `{}` | {kind} | {default} | {meaning} |\n", self.path)
    }
}

#[test]
fn the_readme_of_a_chart_has_the_table_of_its_values() {
    for name in CHARTS {
        let path = chart(name).join("README.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the README has a place for the table");
        let (_, after) = rest.split_once(END).expect("the table has an end");
        let lines: String = rows("", &schema(name), &values(name)).iter().map(Row::line).collect();
        let table = format!("\n| value | type | default | meaning |\n|---|---|---|---|\n{lines}\n");
        compare(&path, &format!("{before}{BEGIN}{table}{END}{after}"));
    }
}

#[test]
fn every_value_has_a_default_and_a_description() {
    for name in CHARTS {
        for Row { path, schema, default } in rows("", &schema(name), &values(name)) {
            let is_optional = schema["type"][1] == "null";
            assert!(is_optional || !default.is_null(), "{name}: {path} is not in values.yaml");
            let meaning = schema["description"].as_str().unwrap_or_default();
            assert!(meaning.len() > 5 && !meaning.ends_with('.'), "{name}: {path}: {meaning:?}");
        }
    }
}

/// A misspelled value is refused, so the schema must be closed at every level that names fields.
#[test]
fn the_schema_allows_no_unknown_value() {
    fn check(path: &str, schema: &Value) {
        let Some(properties) = schema["properties"].as_object() else { return };
        assert_eq!(schema["additionalProperties"], false, "{path} allows unknown values");
        for (name, schema) in properties {
            check(&format!("{path}.{name}"), schema);
        }
    }
    for name in CHARTS {
        check(name, &schema(name));
    }
}

/// Whether the schema refuses null for a value.
fn is_required(schema: &Value, path: &str) -> bool {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut fields = parent.split('.').filter(|field| !field.is_empty());
    let section = fields.try_fold(schema, |schema, field| schema["properties"].get(field));
    let required = section.unwrap()["required"].as_array();
    required.is_some_and(|names| names.iter().any(|one| one == name))
}

/// The output of a chart with null values at these paths.
fn with_null<'a>(
    chart_name: &str,
    paths: impl Iterator<Item = &'a String>,
) -> Result<String, String> {
    let (chart, values) = (chart(chart_name), smallest(chart_name));
    let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
    let nulls: Vec<_> = paths.map(|path| format!("{path}=null")).collect();
    run(&["template", "main", chart, "--values", values, "--set", &nulls.join(",")])
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

/// For helm, null removes a default.
#[test]
fn a_value_that_is_null_is_empty_or_the_message_names_it() {
    for name in CHARTS {
        let schema = schema(name);
        let mut paths = BTreeSet::new();
        for Row { path, .. } in rows("", &schema, &values(name)) {
            paths.extend(path.match_indices('.').map(|(end, _)| path[..end].to_owned()));
            paths.insert(path);
        }
        let (required, optional): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| is_required(&schema, path));
        // A value that is null hides those below it.
        for depth in 0..3 {
            let of_depth = || required.iter().filter(|path| path.matches('.').count() == depth);
            let refused = with_null(name, of_depth()).unwrap_err();
            for path in of_depth() {
                let word = format!("'{}'", path.rsplit('.').next().unwrap());
                assert!(refused.contains(&word), "{name}: {path}: {refused}");
            }
        }
        let given = std::fs::read_to_string(smallest(name)).unwrap();
        let given: Value = serde_saphyr::from_str(&given).unwrap();
        let is_given =
            |path: &str| given.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
        let text = with_null(name, optional.iter().filter(|path| !is_given(path))).unwrap();
        assert!(!text.contains("<nil>"), "{name}: {text}");
        for object in objects(&text) {
            assert!(!has_null(&object), "{name}: {object}");
        }
    }
}

/// The flags in the tables of one section of the reference of settings.
pub(crate) fn flags(section: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(repository().join("docs/reference/settings.md")).unwrap();
    let section = page.split("\n## ").find(|one| one.starts_with(section)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `--"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let words = cells.flat_map(|cell| cell.split('`')).filter_map(|word| word.strip_prefix("--"));
    words.map(|word| word.split('[').next().unwrap().to_owned()).collect()
}

#[test]
fn every_setting_is_a_value_of_the_chart() {
    for (name, section, own) in
        [("postern", "Server", SET_BY_SERVER_CHART), ("postern-agent", "Agent", SET_BY_AGENT_CHART)]
    {
        let schema = schema(name);
        let of_chart = schema["properties"]["settings"]["properties"].as_object().unwrap().keys();
        let of_chart: BTreeSet<String> = of_chart.cloned().collect();
        let own: BTreeSet<String> = own.iter().map(|one| (*one).to_owned()).collect();
        let flags = flags(section);
        assert!(own.is_subset(&flags), "{name}: {own:?} are flags");
        let expected: BTreeSet<String> = flags.difference(&own).cloned().collect();
        assert_eq!(
            of_chart, expected,
            "{name}: add the setting to `settings` in values.schema.json, or name it as set by the chart"
        );
    }
}
