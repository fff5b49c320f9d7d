//! A watch on the database. It reads the tail in memory while it keeps up, and the file when it has
//! fallen behind.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::shared::Shared;
use super::tail::Recorded;
use crate::cursor::Cursor;
use crate::published::{Published, wait_for_revision_after};
use crate::{Batch, Error, Event, Position, Result, Watch};

/// A running watch.
pub(super) struct RedbWatch {
    shared: Arc<Shared>,
    published: watch::Receiver<Published>,
    /// Where the next read starts; everything before it is delivered or in `ready`.
    cursor: Cursor,
    /// Read, and not yet delivered. Bounded by what one read of the tail or the file returns.
    ready: VecDeque<Batch>,
}

impl RedbWatch {
    /// Returns a watch that starts right after a position.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the position is compacted.
    pub(super) fn new(shared: &Arc<Shared>, prefix: &str, after: Position) -> Result<Self> {
        let cursor = Cursor::new(prefix, after);
        shared.read(|view| cursor.check_not_compacted(view.state.compacted))?;
        let published = shared.subscribe();
        Ok(Self { shared: Arc::clone(shared), published, cursor, ready: VecDeque::new() })
    }

    async fn fetch(&mut self) -> Result<()> {
        let batches = match self.shared.tail_after(self.cursor.delivered_revision()) {
            Some(txns) => read_tail(&self.cursor, &txns),
            None => self.read_file().await?,
        };
        if let Some(last) = batches.last() {
            self.cursor.advance_to(last.revision);
        }
        self.ready.extend(batches);
        Ok(())
    }

    async fn read_file(&self) -> Result<Vec<Batch>> {
        self.shared.catch_up().await?;
        let (shared, cursor) = (Arc::clone(&self.shared), self.cursor.clone());
        spawn_blocking(move || shared.read(|view| view.history(&cursor)))
            .await
            .map_err(|error| Error::Unavailable(error.to_string()))?
    }
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
