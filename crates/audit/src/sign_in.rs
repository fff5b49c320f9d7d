//! The records of logins: they are written independently of the policy, because a login creates a key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;

use super::audit::Audit;
use super::event::{
    ACCESS_KEY, Annotations, Event, MAX_UNAUTHENTICATED_RECORD_BYTES, ResponseStatus, UserInfo,
    clean, recorded_uri, user_agent, user_json,
};
use super::failures::FAILURES_LEFT_OUT;
use super::line::line_of;
use super::policy::{Level, Stage};

/// The verb of the records.
const LOG_IN: &str = "login";

/// The annotation with the connector or the workload identity.
const BY: &str = "platform.sh/login-by";

/// A login that is under way.
pub struct SignIn {
    audit: Arc<Audit>,
    received: MicroTimestamp,
    id: HeaderValue,
    /// Without the query, which has the code.
    uri: Uri,
    peer: IpAddr,
    agent: String,
    by: String,
    /// Whether the person or the workload that logs in has been authenticated.
    is_known: bool,
    user: String,
    access_key: String,
}

impl SignIn {
    /// A login by a request. Nothing is recorded yet.
    pub fn begin(
        audit: &Arc<Audit>,
        uri: &Uri,
        headers: &HeaderMap,
        peer: IpAddr,
        id: &HeaderValue,
    ) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        Self {
            received: audit.source.now_micro(),
            audit: audit.clone(),
            id: id.clone(),
            uri: uri.path().parse().unwrap_or_default(),
            peer,
            agent: agent.unwrap_or_default().to_owned(),
            by: String::new(),
            is_known: false,
            user: String::new(),
            access_key: String::new(),
        }
    }

    /// Sets the connector or the workload identity.
    pub fn set_connector(&mut self, name: &str) {
        name.clone_into(&mut self.by);
    }

    /// Records that the person or workload is known, before anything is written for them. `user` is the user whom they
    /// act as; `None` if there is none yet. A name that they only claim is not recorded.
    ///
    /// # Errors
    /// 503 when the log cannot be written.
    pub fn admit(&mut self, user: Option<&str>) -> Result<(), ApiError> {
        self.audit.check()?;
        self.is_known = true;
        user.unwrap_or_default().clone_into(&mut self.user);
        self.audit.log.append(&self.line(Stage::RequestReceived, None, 0));
        Ok(())
    }

    /// Sets the user and the new key.
    pub fn set_user(&mut self, user: &str, access_key: &str) {
        self.is_known = true;
        user.clone_into(&mut self.user);
        access_key.clone_into(&mut self.access_key);
    }

    /// Records the result. `refused` says why a login failed.
    pub fn end(self, code: StatusCode, refused: Option<&str>) {
        let now = self.audit.source.now_micro().unix_microseconds().div_euclid(1_000_000);
        // An unauthenticated client can fail to log in any number of times.
        let left_out = if self.is_known {
            Some(0)
        } else {
            self.audit.unknown_key_failures.note(self.peer, now, self.audit.works())
        };
        let Some(left_out) = left_out else { return };
        let status = match refused {
            None => ResponseStatus::of_code(code.as_u16()),
            Some(why) => ResponseStatus::of_failure(code.as_u16(), why),
        };
        self.audit.log.append(&self.line(Stage::ResponseComplete, Some(status), left_out));
    }

    /// The record. `left_out` is the number of failures since the last record of one.
    fn line(
        &self,
        stage: Stage,
        response_status: Option<ResponseStatus<'_>>,
        left_out: u64,
    ) -> Vec<u8> {
        let is_known = self.is_known;
        let mut extra = BTreeMap::new();
        if !self.access_key.is_empty() {
            extra.insert(Cow::Borrowed(ACCESS_KEY), vec![Cow::Borrowed(&*self.access_key)]);
        }
        let user =
            user_json(&UserInfo { username: clean(&self.user), extra, ..UserInfo::default() });
        let mut annotations: Annotations<'_> = self.audit.server_annotation().into_iter().collect();
        if !self.by.is_empty() {
            annotations.note(BY, Cow::Borrowed(&*self.by));
        }
        if left_out > 0 {
            annotations.note(FAILURES_LEFT_OUT, Cow::Owned(left_out.to_string()));
        }
        let mut event = Event {
            level: Level::Metadata,
            audit_id: self.id.to_str().unwrap_or_default(),
            stage,
            request_uri: recorded_uri(&self.uri, is_known),
            verb: LOG_IN,
            user: &user,
            impersonated_user: None,
            source_ips: Cow::Borrowed(slice::from_ref(&self.peer)),
            user_agent: user_agent(&self.agent, is_known),
            object_ref: None,
            response_status,
            request_object: None,
            response_object: None,
            request_received_timestamp: self.received,
            stage_timestamp: self.audit.source.now_micro(),
            annotations,
        };
        let line = line_of(&event);
        if is_known || line.len() <= MAX_UNAUTHENTICATED_RECORD_BYTES {
            return line;
        }
        event.shorten();
        line_of(&event)
    }
}
