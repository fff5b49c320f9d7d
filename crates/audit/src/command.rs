//! The records of commands from the administrator's socket. They are written independently of the policy, because one
//! of the commands creates a key for the administrator.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;
use postern_registry::clock::new_uid;

use super::audit::Audit;
use super::event::{Event, ResponseStatus, UserInfo, user_json};
use super::line::line_of;
use super::log::Unwritten;
use super::policy::{Level, Stage};

/// The user name in the records.
const USER: &str = "system:admin-socket";

/// The key of the extra field with the uid of the caller's process.
const UNIX_UID: &str = "platform.sh/unix-uid";

/// A command that is running.
pub struct Command {
    audit: Arc<Audit>,
    received: MicroTimestamp,
    id: String,
    name: &'static str,
    unix_uid: String,
}

impl Command {
    /// Records that a command was received, before it runs.
    ///
    /// # Errors
    /// 503 when the log cannot be written.
    pub async fn begin(
        audit: &Arc<Audit>,
        name: &'static str,
        unix_uid: u32,
    ) -> Result<Self, ApiError> {
        let command = Self {
            received: audit.source.now_micro(),
            id: new_uid(&*audit.source),
            audit: audit.clone(),
            name,
            unix_uid: unix_uid.to_string(),
        };
        audit.check()?;
        audit.log.append(&command.line(Stage::RequestReceived, None));
        audit.log.flushed().await.map_err(|Unwritten| audit.reject())?;
        Ok(command)
    }

    /// Records the result. `error` is the message of a failed command.
    pub fn end(self, error: Option<&str>) {
        let status = match error {
            None => ResponseStatus::of_code(200),
            Some(why) => ResponseStatus::of_failure(500, why),
        };
        self.audit.log.append(&self.line(Stage::ResponseComplete, Some(status)));
    }

    fn line(&self, stage: Stage, response_status: Option<ResponseStatus<'_>>) -> Vec<u8> {
        let user = user_json(&UserInfo {
            username: Cow::Borrowed(USER),
            extra: BTreeMap::from([(
                Cow::Borrowed(UNIX_UID),
                vec![Cow::Borrowed(self.unix_uid.as_str())],
            )]),
            ..UserInfo::default()
        });
        line_of(&Event {
            level: Level::Metadata,
            audit_id: &self.id,
            stage,
            request_uri: Cow::Borrowed("unix:admin.sock"),
            verb: self.name,
            user: &user,
            impersonated_user: None,
            source_ips: Cow::Borrowed(&[]),
            user_agent: Cow::Borrowed(""),
            object_ref: None,
            response_status,
            request_object: None,
            response_object: None,
            request_received_timestamp: self.received,
            stage_timestamp: self.audit.source.now_micro(),
            annotations: self.audit.server_annotation().into_iter().collect(),
        })
    }
}
