//! How long a request may go on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// When a request and its answer, or the upgraded connection that follows, must end.
#[derive(Default)]
pub struct Session {
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Why a session has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionEnd {
    /// The future of [`Session::until`] has ended.
    Revoked,
    /// The deadline has passed.
    Deadline,
    /// The proxy is shutting down.
    Drain,
    /// A side of an upgraded connection took no byte for [`Limits::stream_stall`](crate::Limits::stream_stall).
    Stalled,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "the session was ended: it is no longer allowed",
            Self::Deadline => "the session has reached its longest time",
            Self::Drain => "the session was ended: the server is shutting down",
            Self::Stalled => "the session was ended: one side took nothing for too long",
        })
    }
}

impl Session {
    /// A session that only the proxy's shutdown ends.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// A session that ends when the future is ready: a key was revoked, say. The future is
    /// dropped with the session.
    pub fn until(ended: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { ended: Some(Box::pin(ended)), deadline: None }
    }

    /// The session with a deadline, in place of an earlier deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(Box::pin(sleep_until(deadline))), ..self }
    }

    /// Is ready when the session has ended. It must not be polled again then.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(SessionEnd::Revoked);
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(SessionEnd::Deadline);
        }
        Poll::Pending
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("can_be_ended", &self.ended.is_some())
            .field("deadline", &self.deadline.as_ref().map(|sleep| sleep.deadline()))
            .finish()
    }
}
