//! The newest revision of the store. All requests that wait for it at one time share one query.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
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
    /// The answer of an engine in this process.
    here: Box<dyn Fn() -> Option<Result<u64>> + Send + Sync>,
    query: Box<dyn Fn() -> Query + Send + Sync>,
    last: Mutex<Option<Round>>,
}

impl NewestRevision {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let (here, elsewhere) = (store.clone(), store);
        let here = Box::new(move || here.revision_here());
        let query = Box::new(move || {
            let store = elsewhere.clone();
            async move { store.revision().await }.boxed()
        });
        Self { here, query, last: Mutex::new(None) }
    }

    /// A revision that is at least the newest at the time of the call.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn get(&self) -> Result<u64> {
        if let Some(revision) = (self.here)() {
            return revision;
        }
        let round = self.round();
        round.result.await
    }

    /// The round to wait for.
    fn round(&self) -> Round {
        let mut last = self.last.lock();
        let round = match last.take().filter(Round::is_running) {
            Some(round) if !round.started.load(Ordering::Acquire) => round,
            Some(round) => Round::after(round, (self.query)()),
            None => Round::started((self.query)()),
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
        let query: Box<dyn Fn() -> Query + Send + Sync> = Box::new(move || {
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
        });
        NewestRevision { here: Box::new(|| None), query, last: Mutex::new(None) }
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
    async fn an_engine_in_this_process_is_asked_each_time() {
        let remote = Arc::new(Remote::default());
        let here = remote.clone();
        let here = Box::new(move || Some(Ok(here.newest.load(Ordering::SeqCst))));
        let newest = NewestRevision { here, ..asking(remote.clone()) };
        for revision in 1..4 {
            remote.newest.store(revision, Ordering::SeqCst);
            assert_eq!(newest.get().await.unwrap(), revision);
        }
        assert_eq!(remote.questions.load(Ordering::SeqCst), 0);
    }
}
