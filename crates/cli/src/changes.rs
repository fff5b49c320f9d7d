//! Objects of a collection as they change: a list, and then watches, one after the other. A watch that breaks is
//! replaced, and nothing is missed.

use std::time::Duration;

use postern_client::{Change, ChangeType, Collection, Error, Representation, Selection, Watch};
use postern_meta::status::Reason;
use serde_json::Value;

use crate::error::CliError;
use crate::session::Session;

/// The longest silence of a watch. The server sends a bookmark each minute.
const SILENCE_MAX: Duration = Duration::from_mins(3);
/// The wait before the first attempt after a failure; it doubles with each.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The number of failures in a row that end a watch, unless it has no such limit.
const FAILURES_MAX: u32 = 8;

/// The changes of the objects of a collection.
pub(crate) struct Changes<'a> {
    of: Collection<'a>,
    representation: Representation,
    selection: Selection,
    version: String,
    watch: Option<Watch>,
    /// How many attempts have failed since the last event.
    failures: u32,
    failures_max: u32,
}

/// A change of one object, or a new state of all.
pub(crate) enum Event {
    /// An object has changed.
    Change(Change),
    /// All objects as they are now. The changes since the last event are not known in detail.
    List(Value),
}

impl<'a> Changes<'a> {
    /// Lists the objects. The changes after that list come from [`Changes::next`].
    pub(crate) async fn begin(
        session: &mut Session,
        of: Collection<'a>,
        representation: Representation,
        selection: Selection,
    ) -> Result<(Self, Value), Error> {
        let list = session.client.list_selected(of, representation, &selection).await?;
        let version = version_of(&list).to_owned();
        let changes = Self {
            of,
            representation,
            selection,
            version,
            watch: None,
            failures: 0,
            failures_max: FAILURES_MAX,
        };
        Ok((changes, list))
    }

    /// Removes the limit of failures in a row: the watch goes on until the caller has no
    /// permission.
    pub(crate) fn for_ever(mut self) -> Self {
        self.failures_max = u32::MAX;
        self
    }

    /// The next change.
    ///
    /// # Errors
    /// The reason why the changes end: the caller has no permission, or too many attempts have
    /// failed.
    pub(crate) async fn next(&mut self, session: &mut Session) -> Result<Event, CliError> {
        loop {
            match self.attempt(session).await {
                Ok(Some(event)) => {
                    self.failures = 0;
                    return Ok(event);
                }
                // The server ends each watch after a time.
                Ok(None) => self.watch = None,
                Err(error) if is_expired(&error) => match self.list(session).await {
                    Ok(list) => return Ok(Event::List(list)),
                    Err(error) => self.wait_after(session, &error).await?,
                },
                Err(error) => self.wait_after(session, &error).await?,
            }
        }
    }

    async fn attempt(&mut self, session: &mut Session) -> Result<Option<Event>, Error> {
        let watch = if let Some(watch) = &mut self.watch {
            watch
        } else {
            let (of, representation) = (self.of, self.representation);
            let begun = session.client.watch(of, representation, &self.selection, &self.version);
            self.watch.insert(begun.await?)
        };
        loop {
            let Some(change) = watch.next_change(SILENCE_MAX).await? else { return Ok(None) };
            let version = version_of(&change.object);
            if !version.is_empty() {
                version.clone_into(&mut self.version);
            }
            if change.change_type != ChangeType::Bookmark {
                return Ok(Some(Event::Change(change)));
            }
            self.failures = 0;
        }
    }

    async fn list(&mut self, session: &mut Session) -> Result<Value, Error> {
        self.watch = None;
        let (of, representation) = (self.of, self.representation);
        let list = session.client.list_selected(of, representation, &self.selection).await?;
        version_of(&list).clone_into(&mut self.version);
        Ok(list)
    }

    /// Waits before the next attempt, unless the error is final.
    async fn wait_after(&mut self, session: &Session, error: &Error) -> Result<(), CliError> {
        self.watch = None;
        self.failures = self.failures.saturating_add(1);
        if is_final(error) || self.failures > self.failures_max {
            return Err(session.explain(error));
        }
        if self.failures == 1 {
            session.note(&format!("the watch broke, and is started again: {error}"));
        }
        let doubled = WAIT_MIN.saturating_mul(2_u32.saturating_pow(self.failures.min(16) - 1));
        tokio::time::sleep(doubled.min(WAIT_MAX)).await;
        Ok(())
    }
}

/// The version of a list, of an object, or of the object in the row of a table.
fn version_of(value: &Value) -> &str {
    let own = value["metadata"]["resourceVersion"].as_str().filter(|text| !text.is_empty());
    let row = || value["rows"][0]["object"]["metadata"]["resourceVersion"].as_str();
    own.or_else(row).unwrap_or_default()
}

fn is_expired(error: &Error) -> bool {
    matches!(error.reason(), Some(Reason::Expired | Reason::Gone))
}

/// Whether the next attempt would fail for the same reason: the server has understood the request, and refuses it.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Status(status) => (400..500).contains(&status.code) && status.code != 429,
        Error::Certificate { .. }
        | Error::Trust(_)
        | Error::Key
        | Error::Impersonation(_)
        | Error::Name(_)
        | Error::NoWatch
        | Error::TooLarge { .. } => true,
        Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::Proxy { .. }
        | Error::Handshake { .. }
        | Error::Timeout { .. }
        | Error::Lost { .. }
        | Error::Unexpected { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::status::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_of_objects_and_tables() {
        assert_eq!(version_of(&json!({ "metadata": { "resourceVersion": "7" } })), "7");
        let row = json!({ "object": { "metadata": { "resourceVersion": "8" } } });
        assert_eq!(version_of(&json!({ "metadata": {}, "rows": [row] })), "8");
        assert_eq!(version_of(&json!({ "rows": [] })), "");
    }

    #[test]
    fn a_refusal_is_final_and_a_broken_connection_is_not() {
        let status = |code, reason| Error::Status(Box::new(Status::failure(code, reason, "no")));
        for (error, wanted) in [
            (status(403, Reason::Forbidden), true),
            (status(401, Reason::Unauthorized), true),
            (status(429, Reason::TooManyRequests), false),
            (status(503, Reason::ServiceUnavailable), false),
            (Error::NoWatch, true),
            (Error::Lost { address: "h".to_owned(), reason: "x".to_owned() }, false),
        ] {
            assert_eq!(is_final(&error), wanted, "{error:?}");
        }
        assert!(is_expired(&status(410, Reason::Expired)));
    }
}
