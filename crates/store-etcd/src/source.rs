//! A store on etcd that is the source of a move, and a new epoch that an operator begins. Both
//! require that no server runs on the store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postern_store::{
    Epoch, Error, MigrationMark, MigrationSource, Result, Store, StoreState, limits,
};

use crate::proto::{Compare, TxnRequest, TxnResponse};
use crate::requests::{delete, exists, is_at, put};
use crate::rpc;
use crate::shared::Shared;
use crate::state::{connect_checked, read_state};
use crate::store::Etcd;
use crate::url::{EtcdAccess, EtcdUrl};

/// The greatest revision at which an epoch may begin: half of all.
const LAST_BEGIN: u64 = limits::REVISION / 2;

/// Revisions that an epoch leaves out if it is not known which ones were given out: those of 35 years at a thousand
/// transactions in a second.
const UNKNOWN_GAP: u64 = 1 << 40;

/// A store on etcd, as the source of a copy.
pub(crate) struct EtcdSource {
    etcd: Arc<Etcd>,
    url: EtcdUrl,
}

impl EtcdSource {
    /// Opens a store to move its data to `to`. It may have the mark of that already.
    ///
    /// # Errors
    /// As for [`Etcd::open`]; [`Error::Invalid`] if there is no store, or its data was moved elsewhere.
    pub(crate) async fn open(url: &EtcdUrl, access: &EtcdAccess, to: &str) -> Result<Self> {
        let shared = connect_checked(url, access).await?;
        match read_state(&shared, url).await?.0 {
            StoreState::InUse => {}
            StoreState::Marked(MigrationMark::Moved { to: found }) if found == to => {}
            StoreState::Marked(mark) => return Err(Error::Invalid(mark.explain(&url.to_string()))),
            StoreState::Unused => {
                return Err(Error::Invalid(format!("there is no store at {url}")));
            }
        }
        let etcd = Arc::new(Etcd::over(shared).await?);
        Ok(Self { etcd, url: url.clone() })
    }
}

#[async_trait]
impl MigrationSource for EtcdSource {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.etcd) as Arc<dyn Store>
    }

    async fn mark_moved(&self, to: &str, revision: u64) -> Result<()> {
        let shared = &self.etcd.shared;
        let mark = MigrationMark::Moved { to: to.to_owned() };
        if read_state(shared, &self.url).await?.0 == StoreState::Marked(mark.clone()) {
            return Ok(());
        }
        let (fences, end) = shared.keys.fences();
        let head_at = shared.timeline().physical(revision);
        let request = TxnRequest {
            compare: vec![
                is_at(shared.keys.head(), head_at),
                exists(shared.keys.own("format")),
                no_members(shared),
            ],
            success: vec![
                // Each commit passes a fence, which is made only where there is a format.
                delete(fences, end),
                delete(shared.keys.own("format"), Bytes::new()),
                put(shared.keys.own("migration"), mark.to_string().into()),
            ],
            failure: Vec::new(),
        };
        let response: TxnResponse = shared.noted(shared.client.call(rpc::TXN, request).await)?;
        if response.succeeded { Ok(()) } else { Err(still_used(&self.url)) }
    }
}

/// Begins an epoch, after a restore of etcd that no server has noticed: its revisions are greater than `above`, or, if
/// that is not known, than all that any server can have given out.
pub(crate) async fn begin_epoch(
    url: &EtcdUrl,
    access: &EtcdAccess,
    above: Option<u64>,
) -> Result<Epoch> {
    if above.is_some_and(|above| above >= LAST_BEGIN) {
        return Err(Error::Invalid("an epoch cannot begin that late".to_owned()));
    }
    let shared = connect_checked(url, access).await?;
    match read_state(&shared, url).await?.0 {
        StoreState::InUse => {}
        StoreState::Marked(mark) => return Err(Error::Invalid(mark.explain(&url.to_string()))),
        StoreState::Unused => return Err(Error::Invalid(format!("there is no store at {url}"))),
    }
    shared.load_timeline().await?;
    let (stored, _) = shared.key(shared.keys.own("epochs")).await?;
    let read_at = stored.map_or(0, |kv| kv.mod_revision);
    let (fences, end) = shared.keys.fences();
    // The head, so that the newest revision is one of the new epoch. A process that runs unnoticed has no fence then.
    let request = TxnRequest {
        compare: vec![
            exists(shared.keys.own("format")),
            is_at(shared.keys.own("epochs"), read_at),
            no_members(&shared),
        ],
        success: vec![delete(fences, end), put(shared.keys.head(), Bytes::new())],
        failure: Vec::new(),
    };
    let response: TxnResponse = shared.noted(shared.client.call(rpc::TXN, request).await)?;
    if !response.succeeded {
        return Err(still_used(url));
    }
    let at = response.header.map_or(0, |header| header.revision);
    let timeline = shared.timeline();
    let newest = timeline.logical(at);
    let begins = match above {
        // The revision before the first one is compacted, and no client may have it.
        Some(above) => newest.max(above) + 2,
        None => newest + UNKNOWN_GAP,
    };
    if begins > LAST_BEGIN {
        return Err(Error::Invalid(format!("an epoch cannot begin at revision {begins}")));
    }
    let next = timeline.with(begins, at);
    let epochs = shared.keys.own("epochs");
    let request = TxnRequest {
        // A server may have started in between.
        compare: vec![
            is_at(epochs.clone(), read_at),
            is_at(shared.keys.head(), at),
            no_members(&shared),
        ],
        success: vec![put(epochs, next.encode())],
        failure: Vec::new(),
    };
    let response: TxnResponse = shared.noted(shared.client.call(rpc::TXN, request).await)?;
    if response.succeeded { Ok(next.epoch()) } else { Err(still_used(url)) }
}

/// The condition that no server is announced.
fn no_members(shared: &Shared) -> Compare {
    let (key, range_end) = shared.keys.members();
    Compare { range_end, ..is_at(key, 0) }
}

fn still_used(url: &EtcdUrl) -> Error {
    Error::Invalid(format!(
        "a server has started on the store {url}, or has written to it: stop all servers, and run the command again"
    ))
}
