//! The dashboard, the alerts and the runbooks name metrics that a server or an agent exports, and each alert has its
//! runbook.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use postern_tests::Home;
use postern_tests::kubectl::repository;
use serde_json::Value;

use crate::agent::scene::{Central, member, start_agent_with};
use crate::observe::scrape::Metrics;

/// The beginnings of the names of metrics.
const PREFIXES: [&str; 4] = ["postern_", "apiserver_", "process_", "kubernetes_healthcheck"];

/// The series of a histogram.
const HISTOGRAM_ENDS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Names that look like metrics and are none: the unit tests of the rules.
const NO_METRICS: [&str; 1] = ["postern_test"];

/// The beginnings of commands.
const COMMANDS: [&str; 3] = ["postern ", "kubectl ", "chmod "];

/// The rows of the dashboard.
const ROWS: [&str; 9] = [
    "Overview",
    "Requests",
    "Owners",
    "Store",
    "etcd",
    "Watches",
    "Gateway and agents",
    "Audit",
    "Process",
];

/// The schema of the dashboards of Grafana 12.
const LEAST_SCHEMA: u64 = 41;

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The runbooks, and the page that lists them.
fn pages() -> Vec<PathBuf> {
    let files = std::fs::read_dir(repository().join("docs/how-to")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("alert-") || name == "monitor.md"
    };
    files.filter(is_ours).collect()
}

/// The names of metrics in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_word(c));
    let named = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    named.filter(|word| !NO_METRICS.contains(word)).map(str::to_owned).collect()
}

fn alerts() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read("deploy/alerts/postern.yaml")).unwrap();
    let groups = file["groups"].as_array().unwrap().clone();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let text = value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert!(!text.trim().is_empty(), "{pointer} is missing in {value}");
    text
}

/// `PosternDiskFull` is explained in `docs/how-to/alert-disk-full.md`.
fn page_of(alert: &str) -> String {
    let name = alert.strip_prefix("Postern").expect("it begins with Postern");
    let mut page = "docs/how-to/alert".to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            page.push('-');
        }
        page.push(letter.to_ascii_lowercase());
    }
    page + ".md"
}

#[tokio::test]
async fn every_metric_that_is_named_is_exported() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent_with(&central, &member, &home, &["--metrics-listen=127.0.0.1:0"]).await;
    agent.ready().await;
    let mut exported = Metrics::of(&central.admin()).await.types();
    exported.extend(Metrics::of_owners(&central.admin()).await.types());
    exported.extend(Metrics::of_agent(&agent).await.types());
    let mut named = BTreeMap::from([
        ("deploy/alerts/postern.yaml".to_owned(), names_in(&read("deploy/alerts/postern.yaml"))),
        ("deploy/dashboards".to_owned(), names_in(&read("deploy/dashboards/postern.json"))),
    ]);
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        named.insert(page.display().to_string(), names_in(&text));
    }
    let is_exported = |name: &str| {
        let of_histogram = HISTOGRAM_ENDS.iter().filter_map(|end| name.strip_suffix(end));
        exported.contains_key(name)
            || of_histogram
                .into_iter()
                .any(|name| exported.get(name).is_some_and(|is| is == "histogram"))
    };
    for (file, names) in &named {
        let unknown: Vec<_> = names.iter().filter(|name| !is_exported(name)).collect();
        assert!(unknown.is_empty(), "{file} names metrics that are not exported: {unknown:?}");
    }
    let found = named.values().flatten().count();
    assert!(found > 100, "only {found} names were found: the search for them is wrong");
    agent.stop().await;
}

#[test]
fn every_alert_has_a_severity_texts_and_a_runbook() {
    let (index, list) = (read("docs/how-to/README.md"), read("docs/how-to/monitor.md"));
    let unit_tests = read("deploy/alerts/postern_test.yaml");
    let mut explained = BTreeSet::new();
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert!(["warning", "critical"].contains(&text(&alert, "/labels/severity")), "{name}");
        for annotation in ["summary", "description"] {
            text(&alert, &format!("/annotations/{annotation}"));
        }
        let page = page_of(name);
        assert_eq!(text(&alert, "/annotations/runbook_url"), page);
        let runbook = read(&page);
        assert!(runbook.starts_with(&format!("# {name}: ")), "{page} is about {name}");
        for heading in ["Meaning", "Impact", "Diagnose", "Resolve", "Verify"] {
            assert!(runbook.contains(&format!("\n## {heading}\n")), "{page} has no {heading}");
        }
        let link = page.strip_prefix("docs/how-to/").unwrap();
        assert!(index.contains(link) && list.contains(link), "{link} is in no list");
        assert!(unit_tests.contains(&format!("alertname=\"{name}\"")), "no unit test fires {name}");
        assert!(explained.insert(repository().join(&page)), "{name} is there twice");
    }
    assert!(explained.len() > 20, "{explained:?}");
    for page in pages().iter().filter(|page| !page.ends_with("monitor.md")) {
        assert!(explained.contains(page), "{} is about no alert", page.display());
    }
}

/// The files of sources below a directory.
fn sources(directory: PathBuf, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Whether a text in backticks is a message: several words, and no command.
fn is_message(quoted: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || "…'-,".contains(c);
    let is_word = |word: &str| !word.is_empty() && word.chars().all(is_letter);
    let is_command = COMMANDS.iter().any(|command| quoted.starts_with(command));
    quoted.split(' ').count() > 2 && quoted.split(' ').all(is_word) && !is_command
}

/// An operator searches the log for the messages that the runbooks quote.
#[test]
fn every_message_that_a_runbook_quotes_is_in_the_sources() {
    let mut files = Vec::new();
    sources(repository().join("crates"), &mut files);
    let code = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    // A long text goes on in the next line, behind a backslash.
    let code = code.collect::<String>().replace("\\\n", "\n");
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut messages = BTreeSet::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap().replace('\n', " ");
        let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| is_message(quoted));
        messages.extend(quoted.map(str::to_owned));
    }
    assert!(messages.len() > 5, "only {messages:?} were found: the search for them is wrong");
    let is_there = |message: &&String| message.split('…').all(|part| code.contains(part.trim()));
    let unknown: Vec<_> = messages.iter().filter(|message| !is_there(message)).collect();
    assert!(unknown.is_empty(), "the sources have no {unknown:?}");
}

/// The unit of a query of a panel: the panel's unit, unless the panel has another one for this
/// query.
fn unit_of<'a>(panel: &'a Value, query: &str) -> &'a str {
    let overrides = panel.pointer("/fieldConfig/overrides").unwrap().as_array().unwrap();
    let own = overrides.iter().find(|one| {
        text(one, "/matcher/id") == "byFrameRefID" && text(one, "/matcher/options") == query
    });
    match own {
        Some(own) => text(own, "/properties/0/value"),
        None => text(panel, "/fieldConfig/defaults/unit"),
    }
}

/// Whether a query results in bytes, and not in a ratio of them.
fn has_bytes(expression: &str) -> bool {
    names_in(expression).iter().any(|name| name.contains("_bytes")) && !expression.contains(" / ")
}

#[test]
fn every_panel_has_a_title_a_unit_and_a_description() {
    let board: Value = serde_json::from_str(&read("deploy/dashboards/postern.json")).unwrap();
    assert!(board["schemaVersion"].as_u64().unwrap() >= LEAST_SCHEMA);
    let variables = board.pointer("/templating/list").unwrap().as_array().unwrap();
    for (name, kind) in [("datasource", "datasource"), ("instance", "query"), ("agent", "query")] {
        assert!(variables.iter().any(|one| one["name"] == name && one["type"] == kind), "{name}");
    }
    let (mut rows, mut ids) = (Vec::new(), BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        let title = text(panel, "/title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another panel");
        if panel["type"] == "row" {
            rows.push(title);
            continue;
        }
        text(panel, "/description");
        text(panel, "/fieldConfig/defaults/unit");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} shows nothing");
        for target in targets {
            assert_eq!(text(target, "/datasource/uid"), "${datasource}", "{title}");
            let expression = text(target, "/expr");
            let is_of_prometheus = ["ALERTS{", "up{"].iter().any(|name| expression.contains(name));
            assert!(is_of_prometheus || !names_in(expression).is_empty(), "{title}");
            let is_bytes = unit_of(panel, text(target, "/refId")) == "bytes";
            assert_eq!(is_bytes, has_bytes(expression), "{title}: the unit of {expression}");
        }
    }
    assert_eq!(rows, ROWS);
}
