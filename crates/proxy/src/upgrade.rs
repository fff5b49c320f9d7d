//! An upgraded connection: bytes both ways, until both sides have ended or the session does.

use std::future::poll_fn;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::carry::carry;
use crate::error::ProxyError;
use crate::link::Link;
use crate::session::{Session, SessionEnd};
use crate::shared::Counted;

/// After the upstream has switched, the client has this long to take the answer that says so.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Pumps bytes both ways. When one side ends, the opposite side is told, and may go on. The end of
/// the session closes both sides at once.
pub(crate) async fn pump(
    client: OnUpgrade,
    upstream: OnUpgrade,
    link: Link,
    mut session: Session,
    _counted: Counted,
) {
    let state = link.state.clone();
    let shared = state.shared.clone();
    shared.counters.count_session();
    let pumped = async {
        let both = async { tokio::try_join!(client, upstream) };
        // The client went before it was told.
        let Ok(Ok((client, upstream))) = timeout(HANDOVER_TIMEOUT, both).await else { return None };
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        carry(&mut client, &mut upstream, shared.limits.stream_stall).await
    };
    let end = tokio::select! {
        biased;
        end = poll_fn(|cx| session.poll_ended(cx)) => Some(end),
        () = shared.ending.cancelled() => Some(SessionEnd::Drain),
        end = pumped => end,
    };
    if let Some(end) = end {
        shared.counters.count_failure(ProxyError::SessionEnded(end).failure());
    }
    // While it was handed over, its driver had it.
    state.close();
}
