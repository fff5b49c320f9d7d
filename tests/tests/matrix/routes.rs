//! From the `OpenAPI` documents to requests: the rows of the tables.

use std::collections::BTreeMap;

use postern_tests::http::Client;
use postern_tests::objects::based;
use serde_json::{Value, json};

use crate::matrix::answer::Ask;
use crate::matrix::fixture::{Fixture, Target};

/// An operation of the `OpenAPI` documents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    /// The path below the base path, with `{namespace}` and `{name}`.
    pub(crate) path: String,
    /// In capitals.
    pub(crate) method: String,
    /// The types of bodies, of a PATCH.
    patches: Vec<String>,
}

/// One row: the same request by everyone.
pub(crate) struct Row {
    pub(crate) operation: Operation,
    /// How the request differs from the plain one; empty if it does not.
    pub(crate) how: String,
    pub(crate) target: Option<Target>,
    pub(crate) ask: Ask,
    pub(crate) effect: Effect,
}

/// The effect of a request that succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// A new object.
    Creates,
    /// A change that does not affect the requests of the next caller.
    Changes,
    /// The target is gone.
    Deletes,
}

/// The media type of an apply.
const APPLY: &str = "application/apply-patch+yaml";

const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "head"];

/// The name of the created object.
pub(crate) const NEW: &str = "fresh";

/// Begins a watch with the existing objects, and then a bookmark.
const STREAMED: &str =
    "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

impl Operation {
    /// An operation that no document describes.
    pub(crate) fn undescribed(method: &str, path: &str) -> Self {
        Self { path: path.to_owned(), method: method.to_owned(), patches: Vec::new() }
    }

    /// Whether the operation is about a kind.
    pub(crate) fn is_about(&self, fixture: &Fixture) -> bool {
        // Older versions of a kind are in its table, too.
        let of_version = |version: &str| {
            let prefix = fixture.prefix().replace("/v1", version);
            self.path.strip_prefix(&format!("{prefix}/"))
        };
        let Some(rest) = of_version("/v1").or_else(|| of_version("/v1beta1")) else { return false };
        let rest = rest.strip_prefix("namespaces/{namespace}/").unwrap_or(rest);
        rest.split('/').next() == Some(fixture.plural)
    }

    fn is_of_object(&self) -> bool {
        self.path.contains("/{name}")
    }

    /// Fills in the names, in the path with the base path.
    fn at(&self, fixture: &Fixture, target: Target) -> String {
        based(&self.path)
            .replace("{namespace}", fixture.namespace(target))
            .replace("{name}", fixture.name(target))
    }
}

/// Reads all operations that the server describes.
pub(crate) async fn operations(client: &Client) -> Vec<Operation> {
    let index = client.get(&based("/openapi/v3")).send().await.expect(200);
    let mut operations = Vec::new();
    for document in index["paths"].as_object().unwrap().keys() {
        let path = based(&format!("/openapi/v3/{document}"));
        let document = client.get(&path).send().await.expect(200);
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in METHODS.into_iter().filter(|method| item.get(method).is_some()) {
                let bodies = item[method]["requestBody"]["content"].as_object();
                let patches = bodies.filter(|_| method == "patch").cloned().unwrap_or_default();
                operations.push(Operation {
                    path: path.clone(),
                    method: method.to_uppercase(),
                    patches: patches.keys().cloned().collect(),
                });
            }
        }
    }
    operations.sort();
    operations
}

/// The rows of one operation. `current` are the targets as they are, for PUT and PATCH.
pub(crate) fn rows(
    operation: &Operation,
    fixture: &Fixture,
    current: &BTreeMap<Target, Value>,
) -> Vec<Row> {
    let rows = Rows { operation, fixture, current };
    let mut all = match (operation.method.as_str(), operation.is_of_object()) {
        ("GET", false) => rows.lists(),
        ("POST", false) => rows.creates(),
        ("DELETE", false) => rows.delete_collection(),
        (_, false) => panic!("{operation:?} is no operation on a collection"),
        (_, true) => rows.on_objects(),
    };
    all.push(rows.without_base_path());
    all
}

struct Rows<'a> {
    operation: &'a Operation,
    fixture: &'a Fixture,
    current: &'a BTreeMap<Target, Value>,
}

impl Rows<'_> {
    fn row(&self, how: &str, target: Option<Target>, ask: Ask, effect: Effect) -> Row {
        Row { operation: self.operation.clone(), how: how.to_owned(), target, ask, effect }
    }

    fn without_base_path(&self) -> Row {
        let path = self.operation.at(self.fixture, Target::Theirs);
        let path = path.strip_prefix(&based("")).expect("it was added");
        let mut ask = Ask::new(&self.operation.method, path);
        if let Some(kind) = self.operation.patches.first() {
            ask = ask.with(kind, &json!({}));
        }
        self.row("without the base path", None, ask, Effect::Nothing)
    }

    fn read(&self, how: &str, method: &str, target: Target, query: &str) -> Row {
        let mut path = self.operation.at(self.fixture, target) + query;
        if self.operation.path.ends_with("/entry") {
            // The entry of the secrets of the fixture.
            path += if query.is_empty() { "?name=value" } else { "&name=value" };
        }
        let mut ask = Ask::new(method, &path);
        if how.contains("watch") {
            ask = ask.watching();
        }
        let about = (self.operation.is_of_object()
            || query.contains("fieldSelector")
            || target.is_elsewhere())
        .then_some(target);
        self.row(how, about, ask, Effect::Nothing)
    }

    fn lists(&self) -> Vec<Row> {
        let here = Target::Theirs;
        let mut rows = vec![
            self.read("", "GET", here, ""),
            self.read("HEAD", "HEAD", here, ""),
            self.read("?watch=1", "GET", here, "?watch=1"),
            self.read("?watch=1, with initial events", "GET", here, &format!("?{STREAMED}")),
        ];
        let is_in_namespace = self.operation.path.contains("{namespace}");
        if is_in_namespace {
            rows.push(self.read("", "GET", Target::Elsewhere, ""));
        }
        for target in self.fixture.targets() {
            if target.is_elsewhere() && !is_in_namespace {
                continue;
            }
            let selector = format!("fieldSelector=metadata.name%3D{}", self.fixture.name(target));
            rows.push(self.read("?fieldSelector", "GET", target, &format!("?{selector}")));
            let watch = format!("?{STREAMED}&{selector}");
            rows.push(self.read("?watch=1&fieldSelector", "GET", target, &watch));
        }
        rows
    }

    fn creates(&self) -> Vec<Row> {
        let stored = self.fixture.has(Target::Theirs);
        let post = |target, name: &str, query: &str| {
            let path = self.operation.at(self.fixture, target) + query;
            let object = self.fixture.without_owner(name);
            Ask::new("POST", &path).with("application/json", &object)
        };
        let here = Target::Theirs;
        if !stored {
            let dry = post(here, NEW, "?dryRun=All");
            return vec![
                self.row("", None, post(here, NEW, ""), Effect::Nothing),
                self.row("dry run", None, dry, Effect::Nothing),
            ];
        }
        let dry = post(here, NEW, "?dryRun=All");
        let mut rows = vec![self.row("dry run", None, dry, Effect::Nothing)];
        if self.fixture.ends_at_once() {
            rows.push(self.row("", None, post(here, NEW, ""), Effect::Creates));
        }
        if self.fixture.namespaces.is_some() {
            let ask = post(Target::Elsewhere, NEW, "?dryRun=All");
            rows.push(self.row("dry run", Some(Target::Elsewhere), ask, Effect::Nothing));
        }
        if self.fixture.has_owner() {
            let object = self.fixture.object(here, NEW);
            let path = self.operation.at(self.fixture, here) + "?dryRun=All";
            let ask = Ask::new("POST", &path).with("application/json", &object);
            rows.push(self.row("with the owner `host`, dry run", None, ask, Effect::Nothing));
        }
        let taken = post(here, self.fixture.theirs(), "");
        rows.push(self.row("of a name that exists", Some(here), taken, Effect::Nothing));
        let taken = post(here, self.fixture.theirs(), "?dryRun=All");
        rows.push(self.row("of a name that exists, dry run", Some(here), taken, Effect::Nothing));
        rows
    }

    fn delete_collection(&self) -> Vec<Row> {
        let delete = |target| {
            let path = self.operation.at(self.fixture, target) + "?dryRun=All";
            Ask::new("DELETE", &path)
        };
        let mut rows = vec![self.row("dry run", None, delete(Target::Theirs), Effect::Nothing)];
        if self.fixture.namespaces.is_some() {
            let elsewhere = Target::Elsewhere;
            rows.push(self.row("dry run", Some(elsewhere), delete(elsewhere), Effect::Nothing));
        }
        rows
    }

    fn on_objects(&self) -> Vec<Row> {
        let targets = self.fixture.targets();
        let mut rows = Vec::new();
        match self.operation.method.as_str() {
            "GET" => {
                for (how, method, query) in
                    [("", "GET", ""), ("HEAD", "HEAD", ""), ("?watch=1", "GET", "?watch=1")]
                {
                    let one = |&target| self.read(how, method, target, query);
                    rows.extend(targets.iter().map(one));
                }
            }
            "PUT" => self.writes(&mut rows, &targets, "", "application/json"),
            "PATCH" => {
                for kind in &self.operation.patches {
                    let short = kind.trim_start_matches("application/");
                    self.writes(&mut rows, &targets, short, kind);
                }
            }
            "DELETE" => self.deletes(&mut rows, &targets),
            "POST" => {
                for &target in &targets {
                    let path = self.operation.at(self.fixture, target) + "?dryRun=All";
                    let ask = Ask::new("POST", &path).with("application/json", &json!({}));
                    rows.push(self.row("dry run", Some(target), ask, Effect::Nothing));
                }
            }
            _ => panic!("no rows for {:?}", self.operation),
        }
        rows
    }

    fn writes(&self, rows: &mut Vec<Row>, targets: &[Target], short: &str, kind: &str) {
        for (words, query, effect) in
            [("", "", Effect::Changes), ("dry run", "?dryRun=All", Effect::Nothing)]
        {
            let parts: Vec<&str> =
                [short, words].into_iter().filter(|text| !text.is_empty()).collect();
            for &target in targets {
                let mut path = self.operation.at(self.fixture, target) + query;
                if kind == APPLY {
                    path += if query.is_empty() { "?" } else { "&" };
                    path += "fieldManager=matrix";
                }
                let ask =
                    Ask::new(&self.operation.method, &path).with(kind, &self.change(kind, target));
                rows.push(self.row(&parts.join(", "), Some(target), ask, effect));
            }
        }
    }

    /// A body that sets a label. For a missing name it has a version as well, so that the two
    /// requests differ only in the name.
    fn change(&self, kind: &str, target: Target) -> Value {
        let label = json!({ "touched": "yes" });
        let like = match target {
            Target::Absent => Target::Theirs,
            Target::AbsentElsewhere => Target::Elsewhere,
            target => target,
        };
        let current = || self.current.get(&like).cloned().unwrap_or_default();
        match kind {
            "application/json-patch+json" => {
                json!([{ "op": "add", "path": "/metadata/labels/touched", "value": "yes" }])
            }
            "application/json" => {
                let mut object = current();
                let version = object["metadata"]["resourceVersion"].take();
                let name = self.fixture.name(target);
                object["metadata"] =
                    json!({ "name": name, "resourceVersion": version, "labels": label });
                object
            }
            // Without a name nothing is created, but the request of a caller that may create gets
            // as far as that check.
            APPLY => {
                let Value::Object(mut object) = current() else { return Value::Null };
                object.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind"));
                object.insert("metadata".to_owned(), json!({ "labels": label }));
                Value::Object(object)
            }
            _ => json!({ "metadata": { "labels": label } }),
        }
    }

    fn deletes(&self, rows: &mut Vec<Row>, targets: &[Target]) {
        let forms = [("dry run", "?dryRun=All", Effect::Nothing), ("", "", Effect::Deletes)];
        let forms = &forms[..if self.fixture.can_be_remade { 2 } else { 1 }];
        for &(how, query, effect) in forms {
            for &target in targets {
                let path = self.operation.at(self.fixture, target) + query;
                rows.push(self.row(how, Some(target), Ask::new("DELETE", &path), effect));
            }
        }
    }
}
