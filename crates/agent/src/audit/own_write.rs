//! The records of writes that the agent does by itself: Secrets that it fills. They have names and versions, and no value.

use std::sync::Arc;

use postern_kinds::audit_event_list::{
    AuditEvent, AuditObjectReference, AuditResponseStatus, AuditUser,
};
use postern_kinds::cluster::agent_subject;
use postern_meta::status::ApiError;

use super::Audit;
use super::record::{DECISION, clean};
use crate::state::Clock;

/// The verb of the writes.
const VERB: &str = "patch";

/// The annotations with the source of the data, and with its version. Without a version, the data was removed.
const PROJECT: &str = "platform.sh/project";
const PROJECT_SECRET: &str = "platform.sh/project-secret-name";
const VERSION: &str = "platform.sh/synced-version";

/// The most bytes of a version.
const MAX_VERSION_BYTES: usize = 128;

/// A write of a Secret.
#[derive(Clone, Debug)]
pub(crate) struct OwnWrite {
    /// The agent's cluster.
    pub(crate) cluster: String,
    /// The path of the cluster or virtual cluster at the gateway.
    pub(crate) prefix: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The project secret whose data it gets.
    pub(crate) project: String,
    pub(crate) project_secret: String,
    /// The version of the data; `None` if the data is removed.
    pub(crate) version: Option<String>,
}

/// A write that is recorded, and that has no result yet.
pub(crate) struct OwnRecord {
    audit: Arc<Audit>,
    clock: Clock,
    event: AuditEvent,
}

impl Audit {
    /// Records that the agent is about to write a Secret.
    ///
    /// # Errors
    /// 503 when that is not possible: then it must not be written.
    pub(crate) async fn begin_write(
        self: &Arc<Self>,
        clock: &Clock,
        write: OwnWrite,
    ) -> Result<OwnRecord, ApiError> {
        let now = Some(clock());
        let OwnWrite { cluster, prefix, namespace, name, project, project_secret, version } = write;
        let note = |name: &str, value: String| (name.to_owned(), value);
        let version = version.map(|version| note(VERSION, clean(&version, MAX_VERSION_BYTES)));
        let annotations = [
            note(DECISION, "allow".to_owned()),
            note(PROJECT, project),
            note(PROJECT_SECRET, project_secret),
        ];
        let event = AuditEvent {
            level: "Metadata".to_owned(),
            audit_id: self.next_id(),
            stage: "RequestReceived".to_owned(),
            request_uri: format!("{prefix}/api/v1/namespaces/{namespace}/secrets/{name}"),
            verb: VERB.to_owned(),
            user: AuditUser { username: agent_subject(&cluster), ..AuditUser::default() },
            object_ref: Some(AuditObjectReference {
                resource: "secrets".to_owned(),
                namespace,
                name,
                api_version: "v1".to_owned(),
                ..AuditObjectReference::default()
            }),
            request_received_timestamp: now,
            stage_timestamp: now,
            annotations: annotations.into_iter().chain(version).collect(),
            ..AuditEvent::default()
        };
        self.append_first(event.clone()).await?;
        Ok(OwnRecord { audit: self.clone(), clock: clock.clone(), event })
    }
}

impl OwnRecord {
    /// Records the code of the result.
    pub(crate) fn end(self, code: u16) {
        let status = if code < 400 { String::new() } else { "Failure".to_owned() };
        self.audit.append(AuditEvent {
            stage: "ResponseComplete".to_owned(),
            stage_timestamp: Some((self.clock)()),
            response_status: Some(AuditResponseStatus {
                status,
                code,
                ..AuditResponseStatus::default()
            }),
            ..self.event
        });
    }
}
