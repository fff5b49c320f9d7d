//! A request, its answer, and the word for it in a cell.

use std::collections::BTreeSet;

use postern_tests::http::{Connection, Request, Response};
use serde_json::Value;

use crate::matrix::fixture::{Fixture, Target};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    /// From the root of the server, with the query.
    pub(crate) path: String,
    pub(crate) body: Option<(String, String)>,
    /// The answer may be a stream.
    pub(crate) is_watch: bool,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, body: None, is_watch: false }
    }

    pub(crate) fn with(mut self, content_type: &str, body: &Value) -> Self {
        self.body = Some((content_type.to_owned(), body.to_string()));
        self
    }

    pub(crate) fn watching(mut self) -> Self {
        self.is_watch = true;
        self
    }

    /// Whether a bookmark follows the first events.
    fn has_end(&self) -> bool {
        self.path.contains("sendInitialEvents=true")
    }
}

/// An object's namespace and name.
pub(crate) type Key = (String, String);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The whole body; of a watch, of an answer that is no stream.
    pub(crate) body: String,
    /// The objects of a list, or of the first events of a watch.
    pub(crate) objects: Option<BTreeSet<Key>>,
}

fn key_of(object: &Value) -> Key {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Answer {
    pub(crate) fn of_reply(reply: &Response) -> Self {
        let body = reply.text();
        let json: Value = serde_json::from_str(&body).unwrap_or_default();
        let is_list = json["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let items = json["items"].as_array().filter(|_| is_list);
        let objects = items.map(|items| items.iter().map(key_of).collect());
        Self { status: reply.status, body, objects }
    }

    /// Reads a watch to the end of its initial events, where it has one, and else only its beginning.
    pub(crate) async fn of_watch(
        request: Request<'_>,
        connection: Connection,
        ask: &Ask,
    ) -> Result<Self, String> {
        let mut lines = match request.try_stream_on(connection).await {
            Ok(lines) => lines,
            Err(error) => return refused(&error).ok_or(error),
        };
        let mut objects = None;
        if ask.has_end() {
            let seen = objects.insert(BTreeSet::new());
            while let Some(line) = lines.next().await? {
                let event: Value =
                    serde_json::from_str(&line).map_err(|error| error.to_string())?;
                if event["type"] == "BOOKMARK" {
                    break;
                }
                assert_eq!(event["type"], "ADDED", "{}: {line}", ask.path);
                seen.insert(key_of(&event["object"]));
            }
        }
        Ok(Self { status: 200, body: String::new(), objects })
    }

    /// `status.reason`, or the reason of a 401.
    fn reason(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The text of a cell. `all` is the response to the administrator.
    pub(crate) fn cell(&self, fixture: &Fixture, target: Option<Target>, all: &Self) -> String {
        let exists = target.is_some_and(|target| fixture.has(target));
        let word = match self.status {
            200..300 => match (&self.objects, &all.objects) {
                (Some(seen), Some(all)) => seen_word(fixture, seen, all),
                _ => String::new(),
            },
            404 if exists && all.status != 404 => "hidden".to_owned(),
            400 | 409 | 422 => self.reason(),
            _ => String::new(),
        };
        format!("{} {word}", self.status).trim_end().to_owned()
    }
}

/// Reads the error of a stream that was refused: the code, its name, and the body.
fn refused(error: &str) -> Option<Answer> {
    let status = error.get(..3)?.parse().ok()?;
    let body = error.split_once(": ")?.1.to_owned();
    Some(Answer { status, body, objects: None })
}

/// The objects in the response: all, none, or a list of them.
fn seen_word(fixture: &Fixture, seen: &BTreeSet<Key>, all: &BTreeSet<Key>) -> String {
    if seen.is_empty() {
        return "none".to_owned();
    }
    if seen == all {
        return "all".to_owned();
    }
    let is = |target: &Target, (namespace, name): &Key| {
        name == fixture.name(*target) && namespace == fixture.namespace(*target)
    };
    let targets = fixture.targets();
    let there = targets.iter().filter(|target| seen.iter().any(|key| is(target, key)));
    let mut words: Vec<String> = there.map(|target| target.word().to_owned()).collect();
    let rest = seen.iter().filter(|key| !targets.iter().any(|target| is(target, key))).count();
    if rest > 0 {
        words.push(format!("{rest} more"));
    }
    format!("some: {}", words.join(", "))
}
