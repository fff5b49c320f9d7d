//! A watch on the database. It reads the tail in memory while it keeps up, and the file when it has
//! fallen behind.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::shared::Shared;
use super::tail::Recorded;
use crate::cursor::Cursor;
use crate::published::{Published, wait_for_revision_after};
use crate::{Batch, Event, Position, Result, Watch};

/// A running watch.
pub(super) struct RedbWatch {
    shared: Arc<Shared>,
    published: watch::Receiver<Published>,
    /// Where the next read starts; everything before it is delivered or in `ready`.
    cursor: Cursor,
    /// Read, and not yet delivered. Bounded by what one read of the tail or the file returns.
    ready: VecDeque<Batch>,
    /// The read of the file that is under way, or done. It begins where `cursor` is, and nothing
    /// else is read until it is taken: a caller that stops waiting for it finds it later.
    reading: Option<JoinHandle<Result<Vec<Batch>>>>,
}

impl RedbWatch {
    /// A watch that starts right after a position.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the position is compacted.
    pub(super) fn new(shared: &Arc<Shared>, prefix: &str, after: Position) -> Result<Self> {
        let cursor = Cursor::new(prefix, after);
        shared.read(|view| cursor.check_not_compacted(view.state.compacted))?;
        let published = shared.subscribe();
        let shared = Arc::clone(shared);
        Ok(Self { shared, published, cursor, ready: VecDeque::new(), reading: None })
    }

    async fn fetch(&mut self) -> Result<()> {
        let delivered = self.cursor.delivered_revision();
        let tail = match self.reading {
            None => self.shared.tail_after(delivered),
            Some(_) => None,
        };
        let is_behind = tail.is_none();
        let mut batches = match tail {
            Some(txns) => read_tail(&self.cursor, &txns),
            None => self.read_file().await?,
        };
        // A read that began before there was more to read has found nothing.
        batches.retain(|batch| batch.revision > delivered);
        if let Some(last) = batches.last() {
            self.cursor.advance_to(last.revision);
        }
        let is_read_on = is_behind && !batches.is_empty();
        self.ready.extend(batches);
        // While the caller works on these, the next ones are read.
        if is_read_on && self.shared.tail_after(self.cursor.delivered_revision()).is_none() {
            self.reading = Some(begin_to_read(&self.shared, &self.cursor));
        }
        Ok(())
    }

    async fn read_file(&mut self) -> Result<Vec<Batch>> {
        if self.reading.is_none() {
            self.shared.catch_up().await?;
        }
        let begin = || begin_to_read(&self.shared, &self.cursor);
        let read = self.reading.get_or_insert_with(begin).await;
        self.reading = None;
        read?
    }
}

fn begin_to_read(shared: &Arc<Shared>, cursor: &Cursor) -> JoinHandle<Result<Vec<Batch>>> {
    let (shared, cursor) = (Arc::clone(shared), cursor.clone());
    spawn_blocking(move || shared.read(|view| view.history(&cursor)))
}

fn read_tail(cursor: &Cursor, txns: &[Arc<Recorded>]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for txn in txns {
        let wanted = |event: &&Event| cursor.should_deliver(event);
        let events: Vec<Event> = txn.events.iter().filter(wanted).cloned().collect();
        if !events.is_empty() {
            batches.push(Batch { events, revision: txn.revision });
        }
    }
    let through = txns.last().map_or(0, |txn| txn.revision);
    if batches.last().map_or(0, |batch| batch.revision) < through {
        batches.push(Batch { events: Vec::new(), revision: through });
    }
    batches
}

#[async_trait]
impl Watch for RedbWatch {
    async fn next(&mut self) -> Result<Batch> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            wait_for_revision_after(self.cursor.delivered_revision(), &mut self.published).await?;
            self.fetch().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redb::Redb;
    use crate::{Change, Options, Store as _, Txn, WithOld};

    /// Some revisions that only the file has, as after a start.
    const REVISIONS: u64 = 600;

    #[tokio::test]
    async fn what_was_asked_for_and_not_waited_for_is_delivered_later_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let store = Redb::open(&path, Options::default()).unwrap();
        let put = async |store: &Redb, number: u64| {
            let changes =
                vec![Change::Put { key: format!("/k{number}").into(), value: "v".into() }];
            store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap()
        };
        for number in 1..=REVISIONS {
            put(&store, number).await;
        }
        store.close().await;
        let store = Redb::open(&path, Options::default()).unwrap();
        let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
        for revision in 1..=REVISIONS {
            // Nothing that is dropped on the way may be lost.
            let batch = match ready(&mut watch).await {
                Some(batch) => batch.unwrap(),
                None => watch.next().await.unwrap(),
            };
            assert_eq!((batch.revision, batch.events.len()), (revision, 1));
        }
        assert!(ready(&mut watch).await.is_none());
        put(&store, 0).await;
        assert_eq!(watch.next().await.unwrap().revision, REVISIONS + 1);
    }

    /// The next batch if it is there at once.
    async fn ready(watch: &mut Box<dyn Watch>) -> Option<Result<Batch>> {
        tokio::select! {
            biased;
            batch = watch.next() => Some(batch),
            () = std::future::ready(()) => None,
        }
    }
}
