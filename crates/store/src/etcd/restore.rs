//! Puts the entries of another store into an unused one.

use bytes::Bytes;

use super::layout::{FORMAT, Timeline, encode};
use super::proto::{PutRequest, Request, TxnRequest, TxnResponse};
use super::shared::{Shared, op};
use super::url::EtcdUrl;
use super::{check_unused, rpc};
use crate::{Entry, Result, check};

/// Entries that are put in one transaction, and their bytes. The last value may exceed them.
const TXN_ENTRIES: usize = 100;
const TXN_BYTES: usize = 256 * 1024;

/// See [`super::Etcd::restore`]. The format is written last: before, nothing opens the store.
pub(super) async fn restore(
    shared: &Shared,
    url: &EtcdUrl,
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
    check_unused(shared, url).await?;
    let (mut puts, mut bytes) = (Vec::new(), 0);
    for Entry { key, value, position } in entries {
        let value = encode(position.index(), Some(*position), value);
        bytes += value.len();
        puts.push(op(Request::Put(PutRequest { key: shared.keys.data(key), value, lease: 0 })));
        if puts.len() >= TXN_ENTRIES || bytes >= TXN_BYTES {
            put_all(shared, std::mem::take(&mut puts)).await?;
            bytes = 0;
        }
    }
    if !puts.is_empty() {
        put_all(shared, puts).await?;
    }
    let at = shared.put(shared.keys.head(), Bytes::new()).await?;
    shared.put(shared.keys.own("epochs"), Timeline::default().with(revision, at).encode()).await?;
    shared.put(shared.keys.own("format"), Bytes::from_static(FORMAT)).await?;
    Ok(())
}

async fn put_all(shared: &Shared, success: Vec<super::proto::RequestOp>) -> Result<()> {
    let request = TxnRequest { success, ..TxnRequest::default() };
    let _: TxnResponse = shared.noted(shared.client.read(rpc::TXN, request).await)?;
    Ok(())
}
