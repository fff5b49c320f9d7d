//! A call that is shared by all callers that wait for it at one time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

/// One round of the call, shared by all callers that wait for its result.
struct Round<T> {
    /// Whether the call has started. It may not see the changes that a later caller has made
    /// before.
    started: Arc<AtomicBool>,
    result: Shared<BoxFuture<'static, T>>,
}

/// A call with a result for every caller that came before it started.
///
/// A caller never gets the result of a call that started before it came. Callers that come during a call share the next
/// one.
pub struct SharedCall<T: Clone> {
    call: Box<dyn Fn() -> BoxFuture<'static, T> + Send + Sync>,
    last: Mutex<Option<Round<T>>>,
}

impl<T: Clone + Send + Sync + 'static> SharedCall<T> {
    /// A shared form of a call.
    pub fn new(call: impl Fn() -> BoxFuture<'static, T> + Send + Sync + 'static) -> Self {
        Self { call: Box::new(call), last: Mutex::new(None) }
    }

    /// The result of a call that starts from now on.
    pub async fn get(&self) -> T {
        let round = self.round();
        round.result.await
    }

    /// The round to wait for.
    fn round(&self) -> Round<T> {
        let mut last = self.last.lock();
        let round = match last.take().filter(Round::is_running) {
            Some(round) if !round.started.load(Ordering::Acquire) => round,
            Some(round) => Round::after(round, (self.call)()),
            None => Round::started((self.call)()),
        };
        last.insert(round).clone()
    }
}

impl<T: Clone> std::fmt::Debug for SharedCall<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedCall").finish_non_exhaustive()
    }
}

impl<T: Clone> Clone for Round<T> {
    fn clone(&self) -> Self {
        Self { started: Arc::clone(&self.started), result: self.result.clone() }
    }
}

impl<T: Clone + Send + Sync + 'static> Round<T> {
    fn is_running(&self) -> bool {
        self.result.peek().is_none()
    }

    /// A call that has started, or starts before another caller can come.
    fn started(call: BoxFuture<'static, T>) -> Self {
        Self { started: Arc::new(AtomicBool::new(true)), result: call.shared() }
    }

    /// The call that starts when the previous one has ended.
    fn after(before: Self, call: BoxFuture<'static, T>) -> Self {
        let started = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&started);
        let result = async move {
            // The result is for the callers that waited for it. Only the end counts here.
            let _ = before.result.await;
            now.store(true, Ordering::Release);
            call.await
        };
        Self { started, result: result.boxed().shared() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// A counter behind a network; the test decides when it answers.
    struct Remote {
        newest: AtomicU64,
        calls: AtomicUsize,
        answers: Semaphore,
    }

    fn calling() -> (Arc<Remote>, SharedCall<u64>) {
        let remote = Arc::new(Remote {
            newest: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            answers: Semaphore::new(0),
        });
        let called = Arc::clone(&remote);
        let call = SharedCall::new(move || {
            let remote = Arc::clone(&called);
            Box::pin(async move {
                remote.calls.fetch_add(1, Ordering::SeqCst);
                // The result need not contain a change after the start of the call.
                let newest = remote.newest.load(Ordering::SeqCst);
                remote.answers.acquire().await.unwrap().forget();
                newest
            })
        });
        (remote, call)
    }

    #[tokio::test]
    async fn all_waiting_callers_share_one_call_and_none_gets_an_older_result() {
        let (remote, call) = calling();
        let first = call.get();
        tokio::pin!(first);
        assert!((&mut first).now_or_never().is_none());
        remote.newest.store(7, Ordering::SeqCst);
        let later = join_all((0..50).map(|_| call.get()));
        tokio::pin!(later);
        assert!((&mut later).now_or_never().is_none());
        remote.answers.add_permits(2);
        assert_eq!(first.await, 0);
        assert!(later.await.into_iter().all(|result| result == 7), "started after the change");
        let calls = remote.calls.load(Ordering::SeqCst);
        assert_eq!(calls, 2, "one for the first, one for all others");
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_does_not_keep_the_others_waiting() {
        let (remote, call) = calling();
        let mut first = Box::pin(call.get());
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(call.get());
        assert!((&mut second).now_or_never().is_none());
        let third = call.get();
        drop((first, second));
        remote.answers.add_permits(3);
        assert_eq!(third.await, 0);
    }
}
