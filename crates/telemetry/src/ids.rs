//! The ids of the request that a task works on.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

use crate::trace_context::TraceContext;

/// The headers with the ids of a request and of its trace.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest request id of a client.
const MAX_REQUEST_ID: usize = 128;

/// The ids of one request.
#[derive(Clone, Debug)]
pub struct RequestIds {
    /// The id in the audit log, in the response's header `Audit-Id`, and in the upstream's audit log.
    pub audit_id: Uuid,
    /// The id that the client or a load balancer has given the request in `X-Request-Id`.
    request_id: Option<Arc<str>>,
    /// The trace: of the client's `traceparent`, or of the request's own span.
    trace: Option<TraceContext>,
}

tokio::task_local! {
    static CURRENT: RequestIds;
}

/// The ids of the request that this task works on; `None` outside of a request.
pub fn current() -> Option<RequestIds> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The audit id that a client has sent in `Audit-ID`, if it is a UUID. The nil UUID names no request.
pub fn sent_audit_id(headers: &HeaderMap) -> Option<Uuid> {
    let sent = headers.get(AUDIT_ID)?.to_str().ok()?;
    Uuid::try_parse(sent).ok().filter(|id| !id.is_nil())
}

/// The value of a header that is sent once; `None` if it is missing, is sent several times, or is
/// not text.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

impl RequestIds {
    /// The ids of a request, from its headers `X-Request-Id` and `traceparent`. Without a valid `traceparent`, the trace
    /// begins here: `tracestate` is removed, because it belongs to another one.
    pub fn of_headers(audit_id: Uuid, headers: &mut HeaderMap) -> Self {
        // Most requests have none of these headers. One look at all names is faster than three searches.
        let is_id = |name: &HeaderName| [REQUEST_ID, TRACEPARENT, TRACESTATE].contains(name);
        if !headers.keys().any(is_id) {
            return Self::new(audit_id, None, None);
        }
        let (request_id, parent) = (single(headers, REQUEST_ID), single(headers, TRACEPARENT));
        let ids = Self::new(audit_id, request_id, parent);
        if ids.trace.is_none() {
            headers.remove(TRACESTATE);
        }
        ids
    }

    /// The ids of a request with these values of the headers `X-Request-Id` and `traceparent`. Values that are
    /// invalid are ignored: a request id has at most 128 letters, digits, and `-._:/+=@`.
    pub fn new(audit_id: Uuid, request_id: Option<&str>, traceparent: Option<&str>) -> Self {
        Self {
            audit_id,
            request_id: request_id.filter(|id| is_request_id(id)).map(Arc::from),
            trace: traceparent.and_then(TraceContext::parse),
        }
    }

    /// The client's request id, or the audit id.
    pub fn request_id(&self) -> impl fmt::Display + '_ {
        match &self.request_id {
            Some(id) => id.to_string(),
            None => self.audit_id.to_string(),
        }
    }

    /// The trace's id, as in `traceparent`: that of the client's trace or of the exported one, or the audit id's
    /// bytes.
    pub fn trace_id(&self) -> u128 {
        self.trace.map_or(self.audit_id.as_u128(), |trace| trace.trace_id)
    }

    /// The trace that the client's header named, or that the request's span began.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace
    }

    #[cfg(feature = "otel")]
    pub(crate) fn set_trace(&mut self, trace: TraceContext) {
        self.trace = Some(trace);
    }

    /// The header `traceparent` for a request that is sent on behalf of this one. Its parent is the
    /// span of this request if spans are exported, and otherwise the parent that the client has
    /// sent. Without either, the ids come from the audit id, and the header says that no span was
    /// recorded.
    pub fn traceparent(&self) -> String {
        let of_audit_id = || {
            let (_, low) = self.audit_id.as_u64_pair();
            TraceContext { trace_id: self.audit_id.as_u128(), parent_id: low | 1, flags: 0 }
        };
        self.trace.unwrap_or_else(of_audit_id).to_string()
    }

    /// Does work as part of this request.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}

/// Work that belongs to the current request wherever it is done, also in another task or thread.
pub fn in_current_request<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let ids = current();
    async move {
        match ids {
            Some(ids) => ids.scope(work).await,
            None => work.await,
        }
    }
}

fn is_request_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/+=@".contains(&byte);
    !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_AUDIT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);

    #[test]
    fn ids_of_a_request_without_headers_come_from_the_audit_id() {
        let ids = RequestIds::new(OF_AUDIT, None, None);
        assert_eq!(ids.request_id().to_string(), "11112222-3333-4444-5555-666677778888");
        assert_eq!(ids.trace_id(), OF_AUDIT.as_u128());
        assert_eq!(ids.traceparent(), "00-11112222333344445555666677778888-5555666677778889-00");
    }

    #[test]
    fn ids_of_the_client_are_taken_if_they_are_valid() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let ids = RequestIds::new(OF_AUDIT, Some("lb/1.2-3"), Some(parent));
        assert_eq!(ids.request_id().to_string(), "lb/1.2-3");
        assert_eq!((ids.trace().unwrap().is_sampled(), ids.traceparent().as_str()), (true, parent));
        let long = "x".repeat(MAX_REQUEST_ID + 1);
        for invalid in ["", "a b", "a\nb", "é", "\"", long.as_str()] {
            let ids = RequestIds::new(OF_AUDIT, Some(invalid), Some("00-1-1-1"));
            assert_eq!(ids.request_id().to_string(), OF_AUDIT.to_string(), "{invalid:?}");
            assert_eq!(ids.trace(), None);
        }
    }

    #[test]
    fn a_trace_that_is_not_continued_keeps_no_state() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (parents, is_continued) in [
            (&[parent][..], true),
            (&[], false),
            (&["garbage"], false),
            (&[parent, parent], false),
            (&[parent, "garbage"], false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("tracestate", "a=b".parse().unwrap());
            for one in parents {
                headers.append("traceparent", one.parse().unwrap());
            }
            let ids = RequestIds::of_headers(OF_AUDIT, &mut headers);
            assert_eq!(ids.trace().is_some(), is_continued, "{parents:?}");
            assert_eq!(headers.contains_key("tracestate"), is_continued, "{parents:?}");
        }
    }

    #[test]
    fn an_audit_id_of_a_client_is_a_uuid_that_is_not_nil() {
        for (sent, is_taken) in [
            ("11112222-3333-4444-5555-666677778888", true),
            ("00000000-0000-0000-0000-000000000000", false),
            ("of-a-proxy", false),
        ] {
            let headers =
                HeaderMap::from_iter([("audit-id".parse().unwrap(), sent.parse().unwrap())]);
            assert_eq!(sent_audit_id(&headers), is_taken.then_some(OF_AUDIT), "{sent}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn ids_are_known_within_their_scope_only() {
        assert!(current().is_none());
        let ids = RequestIds::new(OF_AUDIT, None, None);
        let seen = ids.scope(async {
            let elsewhere = in_current_request(async { current().map(|ids| ids.audit_id) });
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(elsewhere);
            (current().map(|ids| ids.audit_id), tasks.join_next().await.unwrap().unwrap())
        });
        assert_eq!(seen.await, (Some(OF_AUDIT), Some(OF_AUDIT)));
        assert!(current().is_none());
    }
}
