//! Records that come from the agents of connected clusters. They are written next to those of this server, and
//! say from where they are: nobody can take them for what this server has seen itself.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use postern_kinds::audit_event_list::AuditEvent;
use postern_meta::field::{BadValue, FieldError};
use postern_meta::status::ApiError;
use serde_json::{Value, json};

use super::Audit;
use super::event::clean_value;
use super::log::Unwritten;

/// The annotations that say of which cluster a record is, and who has reported it. No record of this server's
/// own has them.
const CLUSTER: &str = "platform.sh/cluster";
const REPORTED_BY: &str = "platform.sh/reported-by";

/// Records that are remembered, so that they are written once when an agent repeats them: more than any
/// agent sends in one list, for many agents.
const REMEMBERED: usize = 50_000;

/// The most bytes of one record.
const MAX_EVENT_BYTES: usize = 48 * 1024;

/// The most bytes of an id, and of a verb.
const MAX_WORD_BYTES: usize = 128;

/// The stages of Kubernetes.
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

/// The records that were written last, by hashes that nobody outside can foresee.
#[derive(Default)]
pub(super) struct Reported {
    state: RandomState,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Reported {
    /// Notes a record. Returns whether it is new.
    fn note(&self, hash: u64) -> bool {
        let mut seen = self.seen.lock();
        if !seen.hashes.insert(hash) {
            return false;
        }
        seen.order.push_back(hash);
        if seen.order.len() > REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.hashes.remove(&oldest);
        }
        true
    }
}

/// A record as its line in the log.
pub(crate) struct ReportedLine {
    hash: u64,
    line: Vec<u8>,
}

impl Audit {
    /// Returns the lines of an agent's records.
    ///
    /// # Errors
    /// Which record is none.
    pub(crate) fn reported_lines(
        &self,
        cluster: &str,
        agent: &str,
        events: Vec<AuditEvent>,
    ) -> Result<Vec<ReportedLine>, FieldError> {
        let lines = events.into_iter().enumerate().map(|(index, event)| {
            let id = (cluster, &event.audit_id, &event.stage);
            let hash = self.reported.state.hash_one(id);
            line_of(cluster, agent, event).map(|line| ReportedLine { hash, line }).map_err(
                |(field, detail)| {
                    FieldError::invalid(format!("items[{index}]{field}"), BadValue::Omitted, detail)
                },
            )
        });
        lines.collect()
    }

    /// Writes lines that are new, and returns when they are in the file.
    ///
    /// # Errors
    /// 503 when they cannot be written.
    pub(crate) async fn report(&self, lines: Vec<ReportedLine>) -> Result<(), ApiError> {
        self.check()?;
        let mut last = None;
        for one in lines.into_iter().filter(|one| self.reported.note(one.hash)) {
            last = Some(self.log.append(&one.line));
        }
        match last {
            Some(line) => self.log.written(line).await.map_err(|Unwritten| self.reject()),
            // Those that were written before may be repeated because they are not in the file yet.
            None => self.log.flushed().await.map_err(|Unwritten| self.reject()),
        }
    }
}

/// Returns the line of a record.
///
/// # Errors
/// The field that is wrong, and why.
fn line_of(
    cluster: &str,
    agent: &str,
    event: AuditEvent,
) -> Result<Vec<u8>, (&'static str, String)> {
    check(&event)?;
    let mut value = serde_json::to_value(event).unwrap_or_default();
    clean_value(&mut value);
    value["kind"] = json!("Event");
    value["apiVersion"] = json!("audit.k8s.io/v1");
    if !value["annotations"].is_object() {
        value["annotations"] = json!({});
    }
    value["annotations"][CLUSTER] = Value::from(cluster);
    value["annotations"][REPORTED_BY] = Value::from(agent);
    let mut line = value.to_string().into_bytes();
    if line.len() > MAX_EVENT_BYTES {
        return Err(("", format!("must have at most {MAX_EVENT_BYTES} bytes")));
    }
    line.push(b'\n');
    Ok(line)
}

fn check(event: &AuditEvent) -> Result<(), (&'static str, String)> {
    let is_word = |text: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && text.len() <= MAX_WORD_BYTES && text.bytes().all(is_part)
    };
    let word = || format!("must have 1 to {MAX_WORD_BYTES} letters, digits, '-', '_' or '.'");
    if event.level != "Metadata" {
        return Err((".level", "must be Metadata: bodies are not reported".to_owned()));
    }
    if !STAGES.contains(&event.stage.as_str()) {
        return Err((".stage", format!("must be one of {}", STAGES.join(", "))));
    }
    if !is_word(&event.audit_id) {
        return Err((".auditID", word()));
    }
    if !is_word(&event.verb) {
        return Err((".verb", word()));
    }
    if !event.request_uri.starts_with('/') {
        return Err((".requestURI", "must begin with /".to_owned()));
    }
    if event.request_received_timestamp.is_none() {
        return Err((".requestReceivedTimestamp", "must be given".to_owned()));
    }
    if event.stage_timestamp.is_none() {
        return Err((".stageTimestamp", "must be given".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use postern_meta::time::MicroTimestamp;

    use super::*;

    fn event() -> AuditEvent {
        let at = Some(MicroTimestamp::from_unix_microseconds(0));
        AuditEvent {
            level: "Metadata".to_owned(),
            audit_id: "a-1".to_owned(),
            stage: "ResponseComplete".to_owned(),
            verb: "get".to_owned(),
            request_uri: "/kubernetes/cluster/version".to_owned(),
            request_received_timestamp: at,
            stage_timestamp: at,
            ..AuditEvent::default()
        }
    }

    #[test]
    fn a_reported_record_says_who_has_reported_it_and_has_no_key() {
        let mut forged = event();
        let note = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        forged.annotations = [note(CLUSTER, "other"), note("x", "pst_secret")].into();
        let line = line_of("east", "agent:east", forged).unwrap();
        let text = String::from_utf8(line).unwrap();
        assert!(text.contains(r#""platform.sh/cluster":"east""#), "{text}");
        assert!(text.contains(r#""platform.sh/reported-by":"agent:east""#), "{text}");
        assert!(!text.contains("other") && !text.contains("pst_secret"), "{text}");
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
    }

    #[test]
    fn what_is_no_record_of_an_agent_is_refused() {
        type Change = fn(&mut AuditEvent);
        let changes: [(Change, &str); 8] = [
            (|event| event.level = "RequestResponse".to_owned(), ".level"),
            (|event| event.stage = "Done".to_owned(), ".stage"),
            (|event| event.audit_id.clear(), ".auditID"),
            (|event| event.audit_id = "a".repeat(129), ".auditID"),
            (|event| event.verb = "get\n".to_owned(), ".verb"),
            (|event| event.request_uri = "x".to_owned(), ".requestURI"),
            (|event| event.stage_timestamp = None, ".stageTimestamp"),
            (|event| event.user_agent = "x".repeat(MAX_EVENT_BYTES), ""),
        ];
        for (change, field) in changes {
            let mut one = event();
            change(&mut one);
            let (found, detail) = line_of("east", "agent:east", one).unwrap_err();
            assert_eq!(found, field, "{detail}");
        }
    }

    #[test]
    fn a_repeated_record_is_known_and_what_is_remembered_is_bounded() {
        let reported = Reported::default();
        assert!(reported.note(0) && !reported.note(0));
        for hash in 1..=REMEMBERED as u64 {
            assert!(reported.note(hash));
        }
        assert!(reported.note(0), "the oldest was forgotten");
        assert_eq!(reported.seen.lock().hashes.len(), REMEMBERED);
    }
}
