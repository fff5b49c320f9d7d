//! The newest revision of the store. All requests that wait for it at one time share one query.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, poll_fn};
use parking_lot::Mutex;
use postern_store::{Result, Store};

type Query = BoxFuture<'static, Result<u64>>;

/// One query to the store, shared by all callers that wait for its result.
#[derive(Clone)]
struct Round {
    /// Whether the query has started. A later caller may have seen a commit that the result does not have.
    started: Arc<AtomicBool>,
    result: Shared<Query>,
}

/// Queries the store for its newest revision.
///
/// The result must contain every change that was acknowledged before the call. So a caller never gets the result of a
/// query that started before it called. Callers that come during a query share the next one.
pub(super) struct NewestRevision {
    query: Box<dyn Fn() -> Query + Send + Sync>,
    last: Mutex<Option<Round>>,
}

impl NewestRevision {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self::with_query(Box::new(move || {
            let store = store.clone();
            Box::pin(async move { store.revision().await })
        }))
    }

    fn with_query(query: Box<dyn Fn() -> Query + Send + Sync>) -> Self {
        Self { query, last: Mutex::new(None) }
    }

    /// A revision that is at least the newest at the time of the call.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn get(&self) -> Result<u64> {
        let is_running = self.last.lock().as_ref().is_some_and(Round::is_running);
        let mut started = None;
        if !is_running {
            let mut query = (self.query)();
            // An engine in this process answers at once, so there is nothing to share.
            if let Poll::Ready(revision) = poll_once(&mut query).await {
                return revision;
            }
            started = Some(query);
        }
        let round = self.round(started);
        round.result.await
    }

    /// The round to wait for. `started` is a query that this caller has already started.
    fn round(&self, started: Option<Query>) -> Round {
        let mut last = self.last.lock();
        let round = match (last.take().filter(Round::is_running), started) {
            (Some(round), _) if !round.started.load(Ordering::Acquire) => round,
            (Some(round), _) => Round::after(round, (self.query)()),
            (None, Some(started)) => Round::started(started),
            (None, None) => Round::started((self.query)()),
        };
        last.insert(round).clone()
    }
}

impl Round {
    fn is_running(&self) -> bool {
        self.result.peek().is_none()
    }

    /// A query that has started, or starts before another caller can come.
    fn started(query: Query) -> Self {
        Self { started: Arc::new(AtomicBool::new(true)), result: query.shared() }
    }

    /// The query that starts when the previous one has ended.
    fn after(before: Self, query: Query) -> Self {
        let started = Arc::new(AtomicBool::new(false));
        let now = started.clone();
        let result = async move {
            // The result is for the callers that waited for it. Only the end counts here.
            let _ = before.result.await;
            now.store(true, Ordering::Release);
            query.await
        };
        Self { started, result: result.boxed().shared() }
    }
}

async fn poll_once(future: &mut Query) -> Poll<Result<u64>> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// A store behind a network; the test decides when it answers.
    #[derive(Default)]
    struct Remote {
        newest: AtomicU64,
        questions: AtomicUsize,
        answers: Option<Semaphore>,
    }

    fn asking(remote: Arc<Remote>) -> NewestRevision {
        NewestRevision::with_query(Box::new(move || {
            let remote = remote.clone();
            Box::pin(async move {
                remote.questions.fetch_add(1, Ordering::SeqCst);
                // The result need not contain a commit after the start of the query.
                let newest = remote.newest.load(Ordering::SeqCst);
                if let Some(answers) = &remote.answers {
                    answers.acquire().await.unwrap().forget();
                }
                Ok(newest)
            })
        }))
    }

    #[tokio::test]
    async fn all_who_wait_share_one_question_and_none_gets_an_older_answer() {
        let remote = Arc::new(Remote { answers: Some(Semaphore::new(0)), ..Remote::default() });
        let newest = asking(remote.clone());
        let first = newest.get();
        tokio::pin!(first);
        assert!((&mut first).now_or_never().is_none());
        remote.newest.store(7, Ordering::SeqCst);
        let later = join_all((0..50).map(|_| newest.get()));
        tokio::pin!(later);
        assert!((&mut later).now_or_never().is_none());
        if let Some(answers) = &remote.answers {
            answers.add_permits(2);
        }
        assert_eq!(first.await.unwrap(), 0);
        assert!(
            later.await.into_iter().all(|answer| answer.unwrap() == 7),
            "started after the commit"
        );
        assert_eq!(
            remote.questions.load(Ordering::SeqCst),
            2,
            "one for the first, one for all others"
        );
    }

    #[tokio::test]
    async fn who_goes_away_does_not_keep_the_others_waiting() {
        let remote = Arc::new(Remote { answers: Some(Semaphore::new(0)), ..Remote::default() });
        let newest = asking(remote.clone());
        let mut first = Box::pin(newest.get());
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(newest.get());
        assert!((&mut second).now_or_never().is_none());
        let third = newest.get();
        drop((first, second));
        if let Some(answers) = &remote.answers {
            answers.add_permits(3);
        }
        assert_eq!(third.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_engine_that_answers_at_once_is_asked_each_time() {
        let remote = Arc::new(Remote::default());
        let newest = asking(remote.clone());
        for revision in 1..4 {
            remote.newest.store(revision, Ordering::SeqCst);
            assert_eq!(newest.get().await.unwrap(), revision);
        }
        assert_eq!(remote.questions.load(Ordering::SeqCst), 3);
    }
}
