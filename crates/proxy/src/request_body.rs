//! The body of a request on its way to the upstream. It is taken as fast as the upstream takes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::error::BoxError;
use crate::headers;

/// The body of a request.
pub(crate) struct RequestBody {
    inner: Option<UnsyncBoxBody<Bytes, BoxError>>,
    progress: Arc<Progress>,
    gate: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Names of the added headers, which a trailer must not have.
    own: Vec<HeaderName>,
}

/// How far sending has come.
pub(crate) struct Progress {
    last: Mutex<Instant>,
    client_gone: AtomicBool,
}

/// Whether the body may be sent, for a client that asked first (`Expect: 100-continue`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Shut,
    Open,
    /// The answer came first: the body is not wanted.
    Answered,
}

impl RequestBody {
    pub(crate) fn empty() -> Self {
        Self { inner: None, progress: Progress::new(), gate: None, own: Vec::new() }
    }

    pub(crate) fn new<B>(body: B, own: Vec<HeaderName>) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        let inner = body.map_err(Into::into).boxed_unsync();
        Self { inner: Some(inner), progress: Progress::new(), gate: None, own }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_none()
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Keeps the body back until the gate is open, or the time is up.
    pub(crate) fn wait_for(&mut self, mut gate: watch::Receiver<Gate>, at_most: Duration) {
        self.gate = Some(Box::pin(async move {
            let opened = gate.wait_for(|gate| *gate != Gate::Shut);
            let gate = tokio::select! {
                gate = opened => gate.map_or(Gate::Open, |gate| *gate),
                () = sleep(at_most) => Gate::Open,
            };
            if gate == Gate::Answered {
                std::future::pending::<()>().await;
            }
        }));
    }
}

impl Progress {
    fn new() -> Arc<Self> {
        Arc::new(Self { last: Mutex::new(Instant::now()), client_gone: AtomicBool::new(false) })
    }

    /// The time at which something was sent last.
    pub(crate) fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Starts the time again, for a request that is sent only now.
    pub(crate) fn restart(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Whether the client's body broke off.
    pub(crate) fn is_client_gone(&self) -> bool {
        self.client_gone.load(Ordering::Acquire)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.as_mut().poll(cx));
            self.gate = None;
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        self.progress.restart();
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_trailers() {
                Err(data) => Some(Ok(data)),
                Ok(mut trailers) => {
                    headers::clean_trailers(&mut trailers, &self.own);
                    (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
                }
            },
            Some(Err(error)) => {
                self.progress.client_gone.store(true, Ordering::Release);
                Some(Err(error))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http_body_util::Full;

    use super::*;

    async fn trailers_of(names: &[&'static str]) -> Option<HeaderMap> {
        let trailers: HeaderMap = names
            .iter()
            .map(|name| (HeaderName::from_static(name), "caller".parse().unwrap()))
            .collect();
        let body = Full::new(Bytes::from("body")).with_trailers(async { Some(Ok(trailers)) });
        let own = vec![HeaderName::from_static("x-own")];
        let collected = RequestBody::new(body, own).collect().await.unwrap();
        collected.trailers().cloned()
    }

    /// The check depends neither on the announced trailers nor on the author of the body.
    #[tokio::test]
    async fn a_trailer_cannot_say_who_the_caller_is() {
        let forbidden = [
            "impersonate-user",
            "impersonate_group",
            "authorization",
            "x-remote-user",
            "x-forwarded-for",
            "cookie",
            "content-length",
            "transfer-encoding",
            "host",
            "connection",
            "sec-websocket-protocol",
            "x-own",
            "x_own",
        ];
        assert_eq!(trailers_of(&forbidden).await, None);
        let all: Vec<_> = forbidden.into_iter().chain(["x-sum"]).collect();
        let passed = trailers_of(&all).await.unwrap();
        assert_eq!(passed.keys().collect::<Vec<_>>(), ["x-sum"]);
    }
}
