//! What is sent in place of what came.

use std::time::Duration;

use http::HeaderMap;
use http::uri::PathAndQuery;

use crate::session::Session;

/// What the head of an answer may take, unless a request says otherwise: kube-apiserver's own limit for
/// requests that are not long.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// What is sent to the upstream in place of the request's own target, and how long it may take.
#[derive(Debug)]
pub struct Forward {
    /// What the upstream is asked for, below the prefix of its URL. It must be what was decided upon: it
    /// is sent as it is.
    pub path_and_query: PathAndQuery,
    /// Headers that are added: `Impersonate-…`. They replace any of their names. `Authorization` among them
    /// replaces the upstream's own. Those that frame the message are ours alone, and left out.
    pub headers: HeaderMap,
    /// How long the head of the answer may take, from when the last of the request was sent. `None` for a
    /// request that takes as long as it takes: a watch, a log that is followed, an upgrade.
    pub answer_timeout: Option<Duration>,
    /// What stands before the upstream's paths at our own address: `/kubernetes/cluster/C`. It
    /// is put before the path of a `Location`. Empty, or begins with a slash and does not end
    /// with one.
    pub location_prefix: String,
    /// When the request, its answer or the upgraded connection must end.
    pub session: Session,
}

impl Forward {
    /// Returns what is sent: without headers of ours, with 60 s for the head of the answer, and no end
    /// of the session.
    pub fn new(path_and_query: PathAndQuery) -> Self {
        Self {
            path_and_query,
            headers: HeaderMap::new(),
            answer_timeout: Some(ANSWER_TIMEOUT),
            location_prefix: String::new(),
            session: Session::unlimited(),
        }
    }
}
