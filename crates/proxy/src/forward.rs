//! The request that is forwarded in place of the client's.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use crate::long_heads::Opening;
use crate::session::Session;

/// The time limit for the head of an answer, unless a request sets another: kube-apiserver's own limit
/// for requests that are not long.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// Makes another value of `Authorization`, for a request that is sent again. `None` when there is none: then it is not
/// sent again.
pub type Renewal =
    Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Option<HeaderValue>> + Send>> + Send>;

/// The target of a forwarded request, in place of the client's own, and its time limits.
pub struct Forward {
    /// The path and query, below the prefix of the upstream's URL. They must equal the authorized
    /// ones, because they are sent unchanged.
    pub path_and_query: PathAndQuery,
    /// Headers that are added: `Impersonate-…`. They replace any of their names. `Authorization`
    /// among them replaces the upstream's own. Headers that frame the message are left out, because
    /// only the proxy sets them.
    pub headers: HeaderMap,
    /// Makes the credential of a request that is sent again, because its first connection was dead: for a credential
    /// that counts for one request. `None` where the same one may be sent twice.
    pub renewal: Option<Renewal>,
    /// How long the head of the answer may take, from when the last of the request was sent. `None` for a
    /// request that takes as long as it takes: a watch, a log that is followed, an upgrade.
    pub answer_timeout: Option<Duration>,
    /// The prefix of the upstream's paths at our own address: `/kubernetes/cluster/C`. It is put
    /// before the path of a `Location`. It is empty, or begins with a slash and does not end with
    /// one.
    pub location_prefix: String,
    /// The opening of the connection, for a request with a long head: longer than the upstream
    /// accepts from unauthenticated clients. Tunnels do not need it.
    pub opening: Option<Opening>,
    /// When the request, its answer or the upgraded connection must end.
    pub session: Session,
}

impl Forward {
    /// A request without added headers, with 60 s for the head of the response, and no end of the
    /// session. Sent again, it has the same credential.
    pub fn new(path_and_query: PathAndQuery) -> Self {
        Self {
            path_and_query,
            headers: HeaderMap::new(),
            renewal: None,
            answer_timeout: Some(ANSWER_TIMEOUT),
            location_prefix: String::new(),
            opening: None,
            session: Session::unlimited(),
        }
    }
}

impl fmt::Debug for Forward {
    /// Shows the names of headers only: their values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("path_and_query", &self.path_and_query)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("renewal", &self.renewal.is_some())
            .field("answer_timeout", &self.answer_timeout)
            .field("location_prefix", &self.location_prefix)
            .field("opening", &self.opening)
            .field("session", &self.session)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_headers_do_not_show() {
        let mut forward = Forward::new(PathAndQuery::from_static("/api"));
        forward.headers.insert("authorization", "Bearer hunter2".parse().unwrap());
        let debug = format!("{forward:?}");
        assert!(debug.contains("authorization") && !debug.contains("hunter2"), "{debug}");
    }
}
