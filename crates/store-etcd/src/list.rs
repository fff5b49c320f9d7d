//! Lists: ranges of etcd at one revision, in pages. The size of the values decides the size of the
//! pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use postern_store::{CorruptEntry, Entry, Error, ListRequest, Page, Position, Result, Visitor};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::layout::decode;
use crate::proto::{RangeRequest, RangeResponse};
use crate::requests::one;
use crate::rpc;
use crate::shared::{Now, Shared};

/// The bytes of a page at which the next pages get fewer keys, at which they get more, and at which they get many more.
const LARGE_PAGE_BYTES: usize = 8 * 1024 * 1024;
const SMALL_PAGE_BYTES: usize = 4 * 1024 * 1024;
const TINY_PAGE_BYTES: usize = 1024 * 1024;

/// The keys on a page, at least and at most. The smallest page of the largest values has some 20 MB. For each page, etcd
/// counts all keys that follow (25 ms for 100,000), so pages of a large store must not be small. They must not be large,
/// either: if large values follow small ones, etcd builds a page of them in memory before this server says that it is too
/// large. Lists of kube-apiserver have up to 10,000 keys.
const MIN_PAGE_KEYS: i64 = 16;
const MAX_PAGE_KEYS: i64 = 8192;

/// The most keys on a page that a caller requests page by page: it works through one page at a
/// time.
const MAX_NEXT_PAGE_KEYS: i64 = 1024;

/// The keys that the next page has.
pub(crate) struct PageSize(AtomicI64);

impl Default for PageSize {
    fn default() -> Self {
        Self(AtomicI64::new(MIN_PAGE_KEYS))
    }
}

impl PageSize {
    fn keys(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Learns that a page with this many keys was too large to be received. Returns the keys of the next attempt; `None`
    /// if there is none.
    fn learn_too_large(&self, keys: i64) -> Option<i64> {
        let fewer = (keys / 2).max(MIN_PAGE_KEYS);
        self.0.fetch_min(fewer, Ordering::Relaxed);
        (fewer < keys).then_some(fewer)
    }

    /// Learns from a page that was read with this many keys.
    fn learn(&self, keys: i64, bytes: usize) {
        let next = if bytes < TINY_PAGE_BYTES {
            keys * 4
        } else if bytes < SMALL_PAGE_BYTES {
            keys * 2
        } else if bytes <= LARGE_PAGE_BYTES {
            keys
        } else {
            keys / 2
        };
        self.0.store(next.clamp(MIN_PAGE_KEYS, MAX_PAGE_KEYS), Ordering::Relaxed);
    }
}

impl Shared {
    /// A list: see [`postern_store::Store::list`].
    pub(crate) async fn list(&self, size: &PageSize, request: &ListRequest) -> Result<Page> {
        let now = self.now().await?;
        let (revision, at) = match request.at {
            None => (now.revision, now.at),
            Some(at) if now.compacted > 0 && at <= now.compacted => {
                return Err(Error::Compacted { compacted: now.compacted });
            }
            Some(at) => (at, self.physical(at, now)?),
        };
        let mut page = Page { revision, ..Page::default() };
        let limit = if request.limit == 0 {
            i64::MAX
        } else {
            i64::try_from(request.limit).unwrap_or(i64::MAX)
        };
        let mut left = limit;
        let mut after = request.after.clone();
        loop {
            let read = self.read_page(size, &request.prefix, at, after.as_deref(), left).await?;
            page.remaining =
                u64::try_from(read.count).unwrap_or(0).saturating_sub(read.kvs.len() as u64);
            left -= i64::try_from(read.kvs.len()).unwrap_or(left);
            let is_last = !read.more || left <= 0;
            self.add(read, &mut page);
            if is_last {
                return Ok(page);
            }
            after = page.last_key().cloned();
        }
    }

    /// The next page: see [`postern_store::Store::next_page`].
    pub(crate) async fn next_page(
        &self,
        size: &PageSize,
        prefix: &str,
        at: u64,
        after: Option<&str>,
    ) -> Result<Page> {
        let now = self.now().await?;
        if at < now.compacted {
            return Err(Error::Compacted { compacted: now.compacted });
        }
        let physical = self.physical(at, now)?;
        let read = self.read_page(size, prefix, physical, after, MAX_NEXT_PAGE_KEYS).await?;
        Ok(self.page(at, read))
    }

    /// All entries at a revision, in pages: see [`postern_store::Store::scan`]. One page is read while the one before is visited.
    pub(crate) async fn scan(&self, size: &PageSize, at: u64, visit: Visitor) -> Result<()> {
        let now = self.now().await?;
        if now.compacted > 0 && at <= now.compacted {
            return Err(Error::Compacted { compacted: now.compacted });
        }
        let physical = self.physical(at, now)?;
        let mut visiting: Option<JoinHandle<()>> = None;
        let mut after: Option<Arc<str>> = None;
        loop {
            let read = self.read_page(size, "", physical, after.as_deref(), i64::MAX).await?;
            let page = self.page(at, read);
            after = page.last_key().cloned();
            if let Some(visiting) = visiting.take() {
                visiting.await?;
            }
            if after.is_none() {
                // A restore of etcd between two pages is noticed here.
                return self.now().await.map(drop);
            }
            let visit = Arc::clone(&visit);
            visiting = Some(spawn_blocking(move || visit(page)));
        }
    }

    /// The page of a response.
    fn page(&self, revision: u64, read: RangeResponse) -> Page {
        let mut page = Page { revision, ..Page::default() };
        self.add(read, &mut page);
        page
    }

    /// The revision of etcd that has the state after a revision of the store.
    fn physical(&self, revision: u64, now: Now) -> Result<i64> {
        if revision > now.revision {
            return Err(Error::Future { current: now.revision });
        }
        // etcd has no revision 0, and takes it for the newest one.
        Ok(self.timeline().physical(revision).max(self.first_physical()))
    }

    /// Reads a page at a revision of etcd; 0 is the newest one.
    pub(crate) async fn read_page(
        &self,
        size: &PageSize,
        prefix: &str,
        revision: i64,
        after: Option<&str>,
        limit: i64,
    ) -> Result<RangeResponse> {
        let (key, range_end) = self.keys.range(prefix, after);
        let mut keys = size.keys().min(limit);
        let read = loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: keys,
                revision,
                ..RangeRequest::default()
            };
            match self.range(request).await {
                Ok(read) => break read,
                // Large values follow small ones.
                Err(status) if rpc::is_too_large_to_receive(&status) => {
                    let fewer = size.learn_too_large(keys);
                    keys = fewer.ok_or_else(|| rpc::to_error(&status))?;
                }
                Err(status) => return Err(self.out_of_range(status).await),
            }
        };
        if keys == size.keys() && read.more {
            size.learn(keys, read.kvs.iter().map(|kv| kv.value.len()).sum());
        }
        Ok(read)
    }

    /// Adds the entries of a response to a page.
    pub(crate) fn add(&self, read: RangeResponse, page: &mut Page) {
        let timeline = self.timeline();
        for kv in read.kvs {
            let Some(key) = self.keys.storage_key(&kv.key) else { continue };
            match decode(&key, &kv, &timeline) {
                Ok((position, value)) => page.entries.push(Entry { key, value, position }),
                Err(error) => {
                    let position = Position::new(timeline.logical(kv.mod_revision), 0);
                    page.corrupt.push(CorruptEntry { key, position, reason: error.to_string() });
                }
            }
        }
    }

    /// The entry of a key, with the newest revision.
    pub(crate) async fn get(&self, name: &str) -> Result<(Option<Entry>, u64)> {
        let ranges = vec![
            self.head_range(),
            one(self.keys.own("compacted")),
            self.format_range(),
            one(self.keys.data(name)),
        ];
        let floor = self.floor();
        let (mut read, at) = self.ranges(ranges).await?;
        let now = self.now_of(&read, at, floor).await?;
        self.check_format(read.get(2), floor).await?;
        let found = read.pop().and_then(|range| range.kvs.into_iter().next());
        let key: Arc<str> = Arc::from(name);
        let entry: Option<Result<Entry>> = found.map(|kv| {
            let (position, value): (Position, Bytes) = decode(&key, &kv, &self.timeline())?;
            Ok(Entry { key, value, position })
        });
        Ok((entry.transpose()?, now.revision))
    }
}
