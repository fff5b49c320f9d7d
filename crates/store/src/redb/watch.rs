//! A watch on the database: from the tail while it keeps up, from the file when it is behind.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::shared::{Mark, Shared, closed};
use super::tail::Recorded;
use crate::place::Place;
use crate::{Batch, Error, Event, Position, Result, Watch};

/// A running watch.
pub(super) struct RedbWatch {
    shared: Arc<Shared>,
    mark: watch::Receiver<Mark>,
    /// Where the next read goes on; everything before it is delivered or in `ready`.
    place: Place,
    /// Read, and not yet delivered. Bounded by what one read of the tail or the file takes.
    ready: VecDeque<Batch>,
}

impl RedbWatch {
    /// A watch from just behind a position; fails when that is compacted.
    pub(super) fn new(shared: &Arc<Shared>, prefix: &str, after: Position) -> Result<Self> {
        let place = Place::new(prefix, after);
        shared.read(|view| place.check_kept(view.compacted))?;
        let mark = shared.subscribe();
        Ok(Self { shared: Arc::clone(shared), mark, place, ready: VecDeque::new() })
    }

    /// Waits until there is a revision that is not done.
    async fn news(&mut self) -> Result<()> {
        loop {
            let mark = *self.mark.borrow_and_update();
            if mark.closed {
                return Err(closed());
            }
            if mark.revision > self.place.done() {
                return Ok(());
            }
            self.mark.changed().await.map_err(|_| closed())?;
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        let batches = match self.shared.tail_behind(self.place.done()) {
            Some(txns) => read_tail(&self.place, &txns),
            None => self.read_file().await?,
        };
        if let Some(last) = batches.last() {
            self.place.reached(last.revision);
        }
        self.ready.extend(batches);
        Ok(())
    }

    async fn read_file(&self) -> Result<Vec<Batch>> {
        let (shared, place) = (Arc::clone(&self.shared), self.place.clone());
        spawn_blocking(move || shared.read(|view| view.history(&place)))
            .await
            .map_err(|error| Error::Unavailable(error.to_string()))?
    }
}

fn read_tail(place: &Place, txns: &[Arc<Recorded>]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for txn in txns {
        let wanted = |event: &&Event| place.wants(event);
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
            self.news().await?;
            self.fetch().await?;
        }
    }
}
