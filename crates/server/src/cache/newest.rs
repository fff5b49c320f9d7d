//! The store's newest revision, asked for once for all requests that wait for it at that moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, poll_fn};
use parking_lot::Mutex;
use postern_store::{Result, Store};

type Question = BoxFuture<'static, Result<u64>>;

/// One question to the store, and all who wait for its answer.
#[derive(Clone)]
struct Round {
    /// Has the store been asked? Whoever comes later may have seen a commit that the answer misses.
    asked: Arc<AtomicBool>,
    answer: Shared<Question>,
}

/// Asks the store for its newest revision.
///
/// A caller is never given the answer to a question that was asked before it came: what was
/// acknowledged to anybody before that must be in it. So those who come while a question is under
/// way share the next one.
pub(super) struct NewestRevision {
    store: Arc<dyn Store>,
    last: Mutex<Option<Round>>,
}

impl NewestRevision {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::new(None) }
    }

    /// Returns a revision that is at least the newest at the time of the call.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn get(&self) -> Result<u64> {
        let under_way = self.last.lock().as_ref().is_some_and(Round::is_under_way);
        let mut asked = None;
        if !under_way {
            let mut question = self.question();
            // An engine in this process answers at once, and there is nothing to share.
            if let Poll::Ready(revision) = poll_once(&mut question).await {
                return revision;
            }
            asked = Some(question);
        }
        let round = self.round(asked);
        round.answer.await
    }

    fn question(&self) -> Question {
        let store = self.store.clone();
        Box::pin(async move { store.revision().await })
    }

    /// Returns the round to wait for. `asked` is a question that the caller has asked already.
    fn round(&self, asked: Option<Question>) -> Round {
        let mut last = self.last.lock();
        let round = match (last.take().filter(Round::is_under_way), asked) {
            (Some(round), _) if !round.asked.load(Ordering::Acquire) => round,
            (Some(round), _) => Round::after(round, self.question()),
            (None, Some(asked)) => Round::asked(asked),
            (None, None) => Round::asked(self.question()),
        };
        last.insert(round).clone()
    }
}

impl Round {
    fn is_under_way(&self) -> bool {
        self.answer.peek().is_none()
    }

    /// A question that the store has been asked, or is asked before anybody else can come.
    fn asked(question: Question) -> Self {
        Self { asked: Arc::new(AtomicBool::new(true)), answer: question.shared() }
    }

    /// The question that is asked when the one before has been answered.
    fn after(before: Self, question: Question) -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let now = asked.clone();
        let answer = async move {
            // Its answer is for those who waited for it; here only its end counts.
            let _ = before.answer.await;
            now.store(true, Ordering::Release);
            question.await
        };
        Self { asked, answer: answer.boxed().shared() }
    }
}

async fn poll_once(future: &mut Question) -> Poll<Result<u64>> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use postern_store::memory::Memory;
    use postern_store::{Change, Txn};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::testing::SlowStore;

    #[tokio::test]
    async fn all_who_wait_share_one_question_and_none_gets_an_older_answer() {
        let memory = Arc::new(Memory::new());
        let slow = Arc::new(SlowStore::new(memory.clone()));
        let newest = Arc::new(NewestRevision::new(slow.clone()));
        let first = tokio::spawn({ let newest = newest.clone(); async move { newest.get().await } });
        slow.wait_for_questions(1).await;
        let change = Change::Put { key: "/k".into(), value: "v".into() };
        let revision = memory.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await.unwrap();
        let later: Vec<_> = (0..50)
            .map(|_| { let newest = newest.clone(); tokio::spawn(async move { newest.get().await }) })
            .collect();
        while newest.waiting() < 51 {
            tokio::task::yield_now().await;
        }
        slow.answer_all();
        assert!(first.await.unwrap().unwrap() <= revision);
        for one in later {
            assert_eq!(one.await.unwrap().unwrap(), revision, "it was asked after the commit");
        }
        assert_eq!(slow.questions(), 2, "one for the first, one for all others");
    }
}
