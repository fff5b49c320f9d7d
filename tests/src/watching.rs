//! Opening a watch, and reading it event by event.

use serde_json::Value;

use crate::http::{Client, Lines};
use crate::objects;

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    lines: Lines,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: String,
    /// The object of the event.
    pub object: Value,
}

impl Event {
    /// `TYPE name`, to compare sequences of events.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.object["metadata"]["name"].as_str() {
            Some(name) => format!("{} {name}", self.kind),
            None => self.kind.clone(),
        }
    }

    /// The object's resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        objects::version_of(&self.object)
    }

    /// Whether it is the bookmark after the initial events of a streaming list.
    #[must_use]
    pub fn ends_initial_events(&self) -> bool {
        self.kind == "BOOKMARK"
            && self.object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    }
}

impl Client {
    /// Opens a watch of a collection. `query` is added to `watch=true`, and begins with `&`.
    pub async fn watch(&self, collection: &str, query: &str) -> Watch {
        Watch::new(self.get(&format!("{collection}?watch=true{query}")).stream().await)
    }
}

impl Watch {
    /// Reads events from lines.
    #[must_use]
    pub fn new(lines: Lines) -> Self {
        Self { lines }
    }

    /// The next event; `None` at the clean end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        self.try_next().await.expect("the watch continues")
    }

    /// Like [`Watch::next`], for streams that may break.
    ///
    /// # Errors
    /// The connection's error, as text.
    pub async fn try_next(&mut self) -> Result<Option<Event>, String> {
        let Some(line) = self.lines.next().await? else { return Ok(None) };
        let mut event: Value = serde_json::from_str(&line)
            .map_err(|error| format!("an event is no JSON document: {error}: {line}"))?;
        let kind = event["type"].as_str().ok_or("an event has no type")?.to_owned();
        Ok(Some(Event { kind, object: event["object"].take() }))
    }

    /// The next `count` events.
    pub async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            events.push(self.next().await.expect("more events before the watch ends"));
        }
        events
    }

    /// The summaries of the next `count` events.
    pub async fn summaries(&mut self, count: usize) -> Vec<String> {
        self.take(count).await.iter().map(Event::summary).collect()
    }

    /// All events up to the bookmark that ends a streaming list, bookmark included.
    pub async fn initial(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.expect("a watch that ends its initial events");
            let last = event.ends_initial_events();
            events.push(event);
            if last {
                return events;
            }
        }
    }

    /// All events until the stream ends cleanly.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
