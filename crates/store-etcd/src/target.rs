//! A store on etcd that is being filled with the entries of another one. It has a mark and no format, so no server
//! starts on it before it is complete.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postern_store::{
    Entry, Error, MigrationMark, MigrationTarget, Page, Result, TargetChange, check, limits,
};

use crate::layout::{FORMAT, encode};
use crate::list::PageSize;
use crate::proto::{RequestOp, TxnRequest, TxnResponse};
use crate::requests::{delete, is_at, put};
use crate::rpc;
use crate::shared::Shared;
use crate::state::{connect_checked, read_state};
use crate::url::{EtcdAccess, EtcdUrl};

/// Operations in one transaction, and the bytes of their keys and values. A larger value is put alone.
const TXN_OPERATIONS: usize = 100;
const TXN_BYTES: usize = 512 * 1024;

/// A store on etcd that is being filled. If it is dropped before [`EtcdTarget::finish`], it stays as it is, and
/// `begin` goes on with it.
pub(crate) struct EtcdTarget {
    shared: Arc<Shared>,
    /// The revision of etcd at which this process has set the mark. A process that sets it later takes over.
    marked_at: i64,
    page_size: PageSize,
    pending: Vec<RequestOp>,
    pending_bytes: usize,
}

impl EtcdTarget {
    /// Begins to fill an unused store, or goes on with a store that is being filled from the same
    /// source. A store that was moved to the source is filled again.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a store that is in use or has a mark of something else, and for data of something else;
    /// [`Error::Unavailable`] if etcd does not answer.
    pub(crate) async fn begin(
        url: &EtcdUrl,
        access: &EtcdAccess,
        mark: &MigrationMark,
    ) -> Result<Self> {
        let shared = connect_checked(url, access).await?;
        let (state, read_at) = read_state(&shared, url).await?;
        state.check_target(mark, &url.to_string())?;
        let request = TxnRequest {
            compare: vec![
                is_at(shared.keys.own("format"), 0),
                is_at(shared.keys.own("migration"), read_at),
            ],
            success: vec![put(shared.keys.own("migration"), mark.to_string().into())],
            failure: Vec::new(),
        };
        let response: TxnResponse = shared.noted(shared.client.call(rpc::TXN, request).await)?;
        if !response.succeeded {
            return Err(taken_over());
        }
        let marked_at = response.header.map_or(0, |header| header.revision);
        shared.load_timeline().await?;
        let page_size = PageSize::default();
        Ok(Self { shared, marked_at, page_size, pending: Vec::new(), pending_bytes: 0 })
    }

    /// Changes keys, as long as no other process has taken over. This may happen twice. Returns the revision of etcd.
    async fn write(&self, success: Vec<RequestOp>) -> Result<i64> {
        let request = TxnRequest {
            compare: vec![is_at(self.shared.keys.own("migration"), self.marked_at)],
            success,
            failure: Vec::new(),
        };
        let written: std::result::Result<TxnResponse, _> =
            self.shared.client.read(rpc::TXN, request).await;
        let response = self.shared.noted(written)?;
        if response.succeeded {
            Ok(response.header.map_or(0, |header| header.revision))
        } else {
            Err(taken_over())
        }
    }
}

#[async_trait]
impl MigrationTarget for EtcdTarget {
    async fn next_page(&self, after: Option<&str>) -> Result<Page> {
        let read = self.shared.read_page(&self.page_size, "", 0, after, i64::MAX).await?;
        let mut page = Page::default();
        self.shared.add(read, &mut page);
        Ok(page)
    }

    async fn change(&mut self, change: TargetChange) -> Result<()> {
        let (operation, bytes) = match change {
            TargetChange::Put(Entry { key, value, position }) => {
                let entry = Entry { key, value, position };
                check::restored_entry(limits::REVISION, &entry)?;
                let Entry { key, value, position } = entry;
                let bytes = key.len() + value.len();
                let value = encode(position.index(), Some(position), &value);
                (put(self.shared.keys.data(&key), value), bytes)
            }
            TargetChange::Remove(key) => {
                (delete(self.shared.keys.data(&key), Bytes::new()), key.len())
            }
        };
        let is_too_much =
            self.pending.len() >= TXN_OPERATIONS || self.pending_bytes + bytes > TXN_BYTES;
        if is_too_much && !self.pending.is_empty() {
            self.flush().await?;
        }
        self.pending.push(operation);
        self.pending_bytes += bytes;
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pending_bytes = 0;
        let changes = std::mem::take(&mut self.pending);
        self.write(changes).await.map(drop)
    }

    async fn finish(mut self: Box<Self>, begins: u64) -> Result<u64> {
        self.flush().await?;
        let at = self.write(vec![put(self.shared.keys.head(), Bytes::new())]).await?;
        let timeline = self.shared.timeline();
        let begins = begins.max(timeline.logical(at) + 1);
        check::restored_revision(begins)?;
        let epochs = timeline.with(begins, at).encode();
        let keys = &self.shared.keys;
        let opened = self
            .write(vec![
                put(keys.own("epochs"), epochs.clone()),
                put(keys.own("format"), Bytes::from_static(FORMAT)),
                delete(keys.own("migration"), Bytes::new()),
            ])
            .await;
        if let Err(error) = opened {
            // The first of several attempts may have done it, and its answer was lost.
            let (stored, _) = self.shared.key(self.shared.keys.own("epochs")).await?;
            let (format, _) = self.shared.key(self.shared.keys.own("format")).await?;
            if format.is_none() || stored.is_none_or(|stored| stored.value != epochs) {
                return Err(error);
            }
        }
        Ok(begins)
    }
}

/// Puts entries into an unused store: see [`crate::Etcd::restore`].
pub(crate) async fn restore(
    url: &EtcdUrl,
    access: &EtcdAccess,
    revision: u64,
    entries: &[Entry],
) -> Result<()> {
    check::restored_revision(revision)?;
    let mut positions = Vec::with_capacity(entries.len());
    for entry in entries {
        check::restored_entry(revision, entry)?;
        positions.push(entry.position.packed());
    }
    positions.sort_unstable();
    check::restored_positions(&positions)?;
    let mark = MigrationMark::Unfinished { from: "entries".to_owned() };
    let mut target = Box::new(EtcdTarget::begin(url, access, &mark).await?);
    for entry in entries {
        target.change(TargetChange::Put(entry.clone())).await?;
    }
    target.finish(revision).await.map(drop)
}

fn taken_over() -> Error {
    Error::Unavailable(
        "another process has begun to fill the store, or has completed it: run one at a time"
            .to_owned(),
    )
}
