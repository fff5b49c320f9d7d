//! The idle connections of one upstream. The one that was used last is used next; the others are
//! closed when they were unused for a while.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::link::Link;
use crate::shared::{Counted, Shared};

/// After its answer, a connection has this long to finish sending the request. An upstream that
/// answers early does not want the rest.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is at the end.
    links: VecDeque<IdleLink>,
    /// Whether a task looks after those that have been idle for too long.
    is_swept: bool,
}

/// A link that waits. Dropped, the connection is closed.
struct IdleLink {
    link: Link,
    until: Instant,
    _counted: Counted,
}

impl Pool {
    /// Takes a connection that can be used now, if there is one.
    pub(crate) fn take(&self) -> Option<Link> {
        let mut idle = self.idle.lock();
        while let Some(IdleLink { link, until, .. }) = idle.links.pop_back() {
            if link.sender.is_ready() && until > Instant::now() {
                link.state.set_idle(false);
                return Some(link);
            }
        }
        None
    }

    /// Takes a connection back whose answer is complete, as soon as its request is, too.
    pub(crate) fn give_back(self: &Arc<Self>, mut link: Link) {
        if link.sender.is_ready() {
            return self.put(link);
        }
        let pool = Arc::downgrade(self);
        let shared = link.state.shared.clone();
        shared.tasks.spawn(async move {
            let finished = timeout(FINISH_TIMEOUT, link.sender.ready()).await;
            match (finished, pool.upgrade()) {
                (Ok(Ok(())), Some(pool)) => pool.put(link),
                _ => link.state.close(),
            }
        });
    }

    fn put(self: &Arc<Self>, link: Link) {
        let shared = link.state.shared.clone();
        let limits = &shared.limits;
        let counted = Counted::new(&shared, |shared| &shared.counters.idle);
        let is_room =
            shared.counters.idle.load(std::sync::atomic::Ordering::Relaxed) <= limits.max_idle;
        link.state.set_idle(true);
        // The driver looks whether it is idle when the shutdown begins; this is for afterwards.
        if !is_room || shared.draining.is_cancelled() {
            return link.state.close();
        }
        let until = Instant::now() + limits.idle_timeout;
        let mut idle = self.idle.lock();
        idle.links.push_back(IdleLink { link, until, _counted: counted });
        if idle.links.len() > limits.max_idle_per_upstream {
            idle.links.pop_front();
        }
        if !idle.is_swept {
            idle.is_swept = true;
            shared.tasks.spawn(sweep(Arc::downgrade(self), shared.clone(), until));
        }
    }

    /// Closes what has been idle for too long. Returns when to look again.
    fn close_expired(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        while idle
            .links
            .front()
            .is_some_and(|first| first.until <= now || first.link.sender.is_closed())
        {
            idle.links.pop_front();
        }
        let next = idle.links.front().map(|first| first.until);
        idle.is_swept = next.is_some();
        next
    }
}

/// Ends when there is no idle connection any more.
async fn sweep(pool: Weak<Pool>, shared: Arc<Shared>, first: Instant) {
    let mut next = Some(first);
    while let Some(at) = next {
        tokio::select! {
            () = sleep_until(at) => {}
            () = shared.draining.cancelled() => return,
        }
        next = pool.upgrade().and_then(|pool| pool.close_expired());
    }
}
