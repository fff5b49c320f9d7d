//! Records that the agents of connected clusters report. They are written to a separate file, next to the server's
//! audit log. Each record names its source, which distinguishes it from the server's records.

use crate::report_limits::Reporting;
use std::hash::BuildHasher as _;

use postern_kinds::audit_event_list::AuditEvent;
use postern_meta::field::{BadValue, FieldError};
use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;
use serde_json::{Value, json};

use super::audit::Audit;
use super::event::{SERVER, clean_value};
use super::log::Unwritten;

/// The annotations with the cluster of a record, and the user that reported it. The server's own records do not have
/// them.
const CLUSTER: &str = "platform.sh/cluster";
const REPORTED_BY: &str = "platform.sh/reported-by";

/// The annotation with the time at which this server received a record. Other times are those of the agent's clock.
const RECEIVED_AT: &str = "platform.sh/received-at";

/// The most bytes of one record.
const MAX_EVENT_BYTES: usize = 48 * 1024;

/// The most bytes of an id, and of a verb.
const MAX_WORD_BYTES: usize = 128;

/// The stages of Kubernetes.
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

/// The line of a record, and the hash of the record.
pub struct ReportedLine {
    hash: u64,
    line: Vec<u8>,
}

impl Audit {
    /// Begins the report of a cluster. It ends when the result is dropped.
    ///
    /// # Errors
    /// 429 while another report is in progress.
    pub fn begin_report<'a>(&'a self, cluster: &'a str) -> Result<Reporting<'a>, ApiError> {
        self.reported.begin(cluster, self.source.now_micro())
    }

    /// The lines of an agent's records.
    ///
    /// # Errors
    /// When a record is invalid; the error names its field.
    pub fn reported_lines(
        &self,
        cluster: &str,
        agent: &str,
        events: Vec<AuditEvent>,
    ) -> Result<Vec<ReportedLine>, FieldError> {
        let received = self.source.now_micro();
        let lines = events.into_iter().enumerate().map(|(index, event)| {
            // The hash is that of the whole record: a client can give two requests the same audit id.
            let text = serde_json::to_vec(&event).unwrap_or_default();
            let hash = self.reported.state.hash_one((cluster, text));
            line_of(cluster, agent, received, event)
                .map(|line| ReportedLine { hash, line })
                .map_err(|(field, detail)| {
                    FieldError::invalid(format!("items[{index}]{field}"), BadValue::Omitted, detail)
                })
        });
        lines.collect()
    }

    /// Writes the new lines. Returns when they are in the file.
    ///
    /// # Errors
    /// 503 when the log cannot be written; 429 when the cluster exceeds its rate limit.
    pub async fn report(
        &self,
        reporting: &Reporting<'_>,
        lines: Vec<ReportedLine>,
    ) -> Result<(), ApiError> {
        if !self.agents_log.works() {
            return Err(self.reject());
        }
        let bytes = lines.iter().map(|one| one.line.len() as u64).sum();
        reporting.count(bytes, self.source.now_micro())?;
        let last = self.append_reported(lines).await.map_err(|Unwritten| self.reject())?;
        match last {
            Some(line) => self.agents_log.written(line).await.map_err(|Unwritten| self.reject()),
            // Lines that were appended before may not be in the file yet.
            None => self.agents_log.flushed().await.map_err(|Unwritten| self.reject()),
        }
    }
}

impl Audit {
    /// Appends the new lines, as soon as there is room. Returns the number of the last one.
    async fn append_reported(&self, lines: Vec<ReportedLine>) -> Result<Option<u64>, Unwritten> {
        let _appending = self.reported.appending.lock().await;
        if self.agents_log.is_filling() {
            self.agents_log.flushed().await?;
        }
        let new = lines.into_iter().filter(|one| self.reported.note(one.hash));
        Ok(new.map(|one| self.agents_log.append(&one.line)).last())
    }
}

/// The line of a record.
///
/// # Errors
/// The invalid field, and the reason.
fn line_of(
    cluster: &str,
    agent: &str,
    received: MicroTimestamp,
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
    if let Some(annotations) = value["annotations"].as_object_mut() {
        // Only servers write it. The agent's own records have none.
        annotations.remove(SERVER);
    }
    value["annotations"][CLUSTER] = Value::from(cluster);
    value["annotations"][REPORTED_BY] = Value::from(agent);
    value["annotations"][RECEIVED_AT] = Value::from(received.to_string());
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
        return Err((".level", "must be Metadata, because agents do not report bodies".to_owned()));
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
        return Err((".requestReceivedTimestamp", "must be set".to_owned()));
    }
    if event.stage_timestamp.is_none() {
        return Err((".stageTimestamp", "must be set".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_registry::clock::System;

    use super::*;
    use crate::settings::{AuditLog, AuditSettings};

    /// The time this many milliseconds after 1970.
    fn at(milliseconds: i64) -> MicroTimestamp {
        MicroTimestamp::from_unix_microseconds(milliseconds * 1000)
    }

    #[tokio::test]
    async fn reports_of_agents_do_not_rotate_the_servers_log() {
        let dir = tempfile::TempDir::new().unwrap();
        let settings = AuditSettings {
            log: AuditLog::File(dir.path().join("audit.log")),
            policy_file: None,
            max_file_bytes: 1000,
            max_rotated_files: 1,
            before_answer: false,
            exec_commands: true,
        };
        let audit = Audit::open(settings, Arc::new(System::default())).unwrap();
        let own = audit.log.append(b"own\n");
        audit.log.written(own).await.unwrap();
        for round in 0..10 {
            let reporting = audit.begin_report("east").unwrap();
            let one = AuditEvent { audit_id: format!("a-{round}"), ..event() };
            let lines = audit.reported_lines("east", "agent:east", vec![one]).unwrap();
            audit.report(&reporting, lines).await.unwrap();
        }
        audit.close().await;
        assert_eq!(audit.counts().events, 11);
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (of_agents, others): (Vec<_>, Vec<_>) =
            names.partition(|name| name.starts_with("audit-agents"));
        assert_eq!((of_agents.len(), others), (2, vec!["audit.log".to_owned()]));
        #[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
        let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
        assert_eq!(text, "own\n");
    }

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

    #[tokio::test]
    async fn a_repeated_record_is_written_once_and_another_request_of_the_same_id_is_not_left_out()
    {
        let dir = tempfile::TempDir::new().unwrap();
        let settings = AuditSettings {
            log: AuditLog::File(dir.path().join("audit.log")),
            policy_file: None,
            max_file_bytes: 1_000_000,
            max_rotated_files: 1,
            before_answer: false,
            exec_commands: true,
        };
        let audit = Audit::open(settings, Arc::new(System::default())).unwrap();
        let hidden = AuditEvent { verb: "delete".to_owned(), ..event() };
        for sent in [event(), hidden, event()] {
            let reporting = audit.begin_report("east").unwrap();
            let lines = audit.reported_lines("east", "agent:east", vec![sent]).unwrap();
            audit.report(&reporting, lines).await.unwrap();
        }
        audit.close().await;
        assert_eq!(audit.counts().events, 2);
    }

    #[test]
    fn a_reported_record_names_its_source_and_has_no_key() {
        let mut forged = event();
        let note = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        forged.annotations = [
            note(CLUSTER, "other"),
            note("x", "pst_secret"),
            note(RECEIVED_AT, "never"),
            note(SERVER, "me"),
        ]
        .into();
        let line = line_of("east", "agent:east", at(0), forged).unwrap();
        let text = String::from_utf8(line).unwrap();
        assert!(!text.contains(SERVER), "{text}");
        assert!(text.contains(r#""platform.sh/cluster":"east""#), "{text}");
        assert!(text.contains(r#""platform.sh/reported-by":"agent:east""#), "{text}");
        assert!(
            text.contains(r#""platform.sh/received-at":"1970-01-01T00:00:00.000000Z""#),
            "{text}"
        );
        assert!(!text.contains("other") && !text.contains("pst_secret"), "{text}");
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
    }

    #[test]
    fn a_record_that_is_not_an_agents_is_rejected() {
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
            let (found, detail) = line_of("east", "agent:east", at(0), one).unwrap_err();
            assert_eq!(found, field, "{detail}");
        }
    }
}
