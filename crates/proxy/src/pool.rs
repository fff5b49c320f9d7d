//! The idle connections of one upstream. The last used connection is used next. The others are
//! closed after they were unused for a while.
//!
//! The pool of [`Tunnels`](crate::Tunnels) keeps some of its connections until they end. A request
//! that finds none waits until one comes, in the order of arrival.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use crate::link::Link;
use crate::shared::{Counted, Shared};

/// After its answer, a connection has this long to finish sending the request. An upstream that
/// answers early does not want the rest.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The most requests that wait for a connection of one pool.
const MAX_WAITING: usize = 1024;

/// The idle tunnels of one pool that are kept for good. Further ones are closed after this time without a request: an
/// agent opens them when many requests come at once.
const KEPT_TUNNELS: usize = 16;
const TUNNEL_IDLE: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    /// Whether the other side opens the connections. They are kept until they end.
    is_of_tunnels: bool,
}

#[derive(Default)]
struct Idle {
    /// The links in the order of their use, the last used at the end.
    links: VecDeque<IdleLink>,
    /// The requests that wait for a connection, in the order of arrival. Only a pool of tunnels has any.
    waiting: VecDeque<oneshot::Sender<Link>>,
    /// Whether a task closes the connections that have been idle for too long.
    is_swept: bool,
}

/// A link that waits. Dropped, the connection is closed.
struct IdleLink {
    link: Link,
    until: Instant,
    /// Among the idle connections to all upstreams; tunnels are not.
    _counted: Option<Counted>,
}

impl Pool {
    /// A pool of connections that the other side opens.
    pub(crate) fn of_tunnels() -> Arc<Self> {
        Arc::new(Self { is_of_tunnels: true, ..Self::default() })
    }

    /// Whether the other side opens the connections.
    pub(crate) fn is_of_tunnels(&self) -> bool {
        self.is_of_tunnels
    }

    /// How many connections are idle.
    pub(crate) fn idle(&self) -> usize {
        self.idle.lock().links.iter().filter(|idle| idle.link.sender.is_ready()).count()
    }

    /// How many requests wait for a connection.
    pub(crate) fn waiting(&self) -> usize {
        self.idle.lock().waiting.iter().filter(|waiting| !waiting.is_closed()).count()
    }

    /// The next connection, for a request that found none; `None` if too many wait. It comes through the channel as
    /// soon as there is one.
    pub(crate) fn wait(&self) -> Option<oneshot::Receiver<Link>> {
        let (sender, receiver) = oneshot::channel();
        let mut idle = self.idle.lock();
        if let Some(link) = idle.take(self.is_of_tunnels) {
            // The receiver is here.
            let _ = sender.send(link);
            return Some(receiver);
        }
        idle.waiting.retain(|waiting| !waiting.is_closed());
        if idle.waiting.len() >= MAX_WAITING {
            return None;
        }
        idle.waiting.push_back(sender);
        Some(receiver)
    }

    /// Takes a connection that can be used now, if there is one.
    pub(crate) fn take(&self) -> Option<Link> {
        self.idle.lock().take(self.is_of_tunnels)
    }

    /// Takes a connection back after a complete response, as soon as its request is complete, too.
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
        let counted =
            (!self.is_of_tunnels).then(|| Counted::new(&shared, |shared| &shared.counters.idle));
        let is_room = self.is_of_tunnels
            || shared.counters.idle.load(std::sync::atomic::Ordering::Relaxed) <= limits.max_idle;
        link.state.set_idle(true);
        // The driver looks whether it is idle when the shutdown begins; this is for afterwards.
        if !is_room || shared.draining.is_cancelled() {
            return link.state.close();
        }
        let idle_timeout = if self.is_of_tunnels { TUNNEL_IDLE } else { limits.idle_timeout };
        let until = Instant::now() + idle_timeout;
        let mut idle = self.idle.lock();
        if self.is_of_tunnels {
            idle.links.retain(|idle| !idle.link.sender.is_closed());
            let Some(link) = idle.hand_over(link) else { return };
            idle.links.push_back(IdleLink { link, until, _counted: counted });
            if !idle.is_swept && idle.links.len() > KEPT_TUNNELS {
                idle.is_swept = true;
                shared.tasks.spawn(sweep(Arc::downgrade(self), shared.clone(), until));
            }
            return;
        }
        idle.links.push_back(IdleLink { link, until, _counted: counted });
        if idle.links.len() > limits.max_idle_per_upstream {
            idle.links.pop_front();
        }
        if !idle.is_swept {
            idle.is_swept = true;
            shared.tasks.spawn(sweep(Arc::downgrade(self), shared.clone(), until));
        }
    }

    /// Closes the connections that have been idle for too long. The result is the time of the next
    /// check.
    fn close_expired(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        let kept = if self.is_of_tunnels { KEPT_TUNNELS } else { 0 };
        while idle.links.len() > kept
            && idle
                .links
                .front()
                .is_some_and(|first| first.until <= now || first.link.sender.is_closed())
        {
            idle.links.pop_front();
        }
        let next = idle.links.front().map(|first| first.until).filter(|_| idle.links.len() > kept);
        idle.is_swept = next.is_some();
        next
    }
}

impl Idle {
    fn take(&mut self, is_of_tunnels: bool) -> Option<Link> {
        while let Some(IdleLink { link, until, .. }) = self.links.pop_back() {
            // A tunnel is open until its sender says otherwise.
            if link.sender.is_ready() && (is_of_tunnels || until > Instant::now()) {
                link.state.set_idle(false);
                return Some(link);
            }
        }
        None
    }

    /// Hands a connection to the request that has waited longest. If none waits, the result is the
    /// connection.
    fn hand_over(&mut self, mut link: Link) -> Option<Link> {
        while let Some(waiting) = self.waiting.pop_front() {
            link.state.set_idle(false);
            match waiting.send(link) {
                Ok(()) => return None,
                Err(back) => link = back,
            }
        }
        link.state.set_idle(true);
        Some(link)
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
