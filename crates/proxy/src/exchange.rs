//! One request on one connection, until the head of its response.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::ProxyError;
use crate::link::Link;
use crate::pool::Pool;
use crate::request_body::{Gate, Progress, RequestBody};
use crate::upstream::Inner;

/// A connection with a request on it. Dropped before the answer is complete, it closes the connection.
pub(crate) struct Exchange {
    link: Option<Link>,
    pool: Arc<Pool>,
    /// Whether another request may follow on the connection.
    pub(crate) may_be_reused: bool,
}

/// An attempt that failed.
pub(crate) struct Failed {
    pub(crate) error: ProxyError,
    /// The request, if it can be sent again: nothing of the answer came, and sending it twice does no
    /// harm.
    pub(crate) again: Option<Request<RequestBody>>,
}

impl Exchange {
    pub(crate) fn new(link: Link, pool: Arc<Pool>) -> Self {
        Self { link: Some(link), pool, may_be_reused: true }
    }

    /// The answer is complete.
    pub(crate) fn finish(mut self) {
        if self.may_be_reused
            && let Some(link) = self.link.take()
        {
            self.pool.give_back(link);
        }
    }

    /// The connection belongs to an upgraded session now, which closes it.
    pub(crate) fn release(mut self) -> Option<Link> {
        self.link.take()
    }

    /// Sends a request, and waits for the head of its answer. `is_reused` says that the connection may have died
    /// without notice.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
        upstream: &Inner,
        limits: &AnswerLimits,
        is_reused: bool,
    ) -> Result<Response<Incoming>, Failed> {
        let progress = request.body().progress();
        progress.restart();
        let gate = limits.continue_timeout.map(|at_most| hold_back(&mut request, at_most));
        let again = is_reused.then(|| repeatable(&request)).flatten();
        let Some(link) = &mut self.link else {
            let address = upstream.origin.address.to_string();
            let error = ProxyError::Lost { address, reason: "it is closed".to_owned() };
            return Err(Failed { error, again });
        };
        link.state.expect_answer();
        let sent = link.sender.try_send_request(request);
        let sent = tokio::select! {
            sent = sent => sent,
            after = too_late(&progress, limits.answer_timeout) => {
                let address = upstream.origin.address.to_string();
                return Err(Failed { error: ProxyError::AnswerTimeout { address, after }, again: None });
            }
        };
        let has_heard = link.state.has_heard();
        match sent {
            Ok(response) => {
                if let Some(gate) = gate {
                    // Without a word the body was not sent, and is not any more.
                    self.may_be_reused &= gate.send_replace(Gate::Answered) == Gate::Open;
                }
                Ok(response)
            }
            Err(mut failed) => {
                let untouched = failed.take_message();
                let again = untouched.or(again).filter(|_| is_reused && !has_heard);
                let error = error_of(failed.error(), upstream, &progress, has_heard);
                Err(Failed { error, again })
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.state.close();
        }
    }
}

/// How long an answer may take.
pub(crate) struct AnswerLimits {
    pub(crate) answer_timeout: Option<Duration>,
    /// Set for a client that waits for a word before it sends the body.
    pub(crate) continue_timeout: Option<Duration>,
}

/// Keeps the body back until the upstream says `100 Continue`.
fn hold_back(request: &mut Request<RequestBody>, at_most: Duration) -> watch::Sender<Gate> {
    let (sender, receiver) = watch::channel(Gate::Shut);
    request.body_mut().wait_for(receiver, at_most);
    let opener = sender.clone();
    hyper::ext::on_informational(request, move |answer| {
        if answer.status() == http::StatusCode::CONTINUE {
            opener.send_replace(Gate::Open);
        }
    });
    sender
}

/// A copy of a request that does the same when it is sent twice (RFC 9110 section 9.2.2), and has no
/// body.
fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let is_idempotent = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE]
        .contains(request.method());
    if !is_idempotent || !request.body().is_empty() {
        return None;
    }
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Is ready when the answer should have come.
async fn too_late(progress: &Progress, limit: Option<Duration>) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let deadline = progress.last() + limit;
        if deadline <= Instant::now() {
            return limit;
        }
        sleep_until(deadline).await;
    }
}

fn error_of(
    error: &hyper::Error,
    upstream: &Inner,
    progress: &Progress,
    has_heard: bool,
) -> ProxyError {
    let address = upstream.origin.address.to_string();
    if progress.is_client_gone() {
        ProxyError::ClientGone
    } else if error.is_parse() {
        ProxyError::Malformed { address, reason: reason_of(error) }
    } else if has_heard && error.is_incomplete_message() {
        let reason = "it ends in the middle of its head".to_owned();
        ProxyError::Malformed { address, reason }
    } else {
        ProxyError::Lost { address, reason: reason_of(error) }
    }
}

/// The error, with its causes: hyper's own text says only where it happened.
pub(crate) fn reason_of(error: &hyper::Error) -> String {
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause {
        reason = format!("{reason}: {below}");
        cause = below.source();
    }
    reason
}
