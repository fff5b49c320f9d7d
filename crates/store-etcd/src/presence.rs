//! Whether the store still exists. Its key `e/format` says so. A move of the data removes the key,
//! and so does an operator when removing all keys.
//!
//! A server may be paused or cut off while that happens. So each read of the newest revision reads the format, too, at
//! the same revision of etcd. Nothing that was committed to the other store in between is then missing in an answer.

use std::sync::Arc;

use bytes::Bytes;
use postern_store::{Error, MigrationMark, Result, StoreState};

use crate::layout::FORMAT;
use crate::proto::{Compare, KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use crate::requests::{exists, is_at, one, put};
use crate::rpc;
use crate::shared::{Creation, Floor, NOTE_ATTEMPTS, Presence, Shared};
use crate::state::read_state;

impl Shared {
    /// The range that reads the format without its value.
    pub(crate) fn format_range(&self) -> RangeRequest {
        RangeRequest { keys_only: true, ..one(self.keys.own("format")) }
    }

    /// Checks that the store is there, and is the one that was opened. The floor was taken before the format was read.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not; [`Error::EpochChanged`] if it was moved away and back.
    pub(crate) async fn check_format(
        &self,
        format: Option<&RangeResponse>,
        floor: Floor,
    ) -> Result<()> {
        let Some(presence) = self.presence.get() else { return Ok(()) };
        let created = format.and_then(|range| range.kvs.first()).map(|kv| kv.create_revision);
        match created {
            Some(created) if self.saw_format(floor, created) => Ok(()),
            None if presence.creation != Creation::Never && floor.format() == 0 => Ok(()),
            _ => Err(self.gone().await),
        }
    }

    /// Whether there must be a format: the store was opened, and is not still to be created.
    pub(crate) fn must_exist(&self) -> bool {
        let presence = self.presence.get();
        presence.is_some_and(|one| one.creation == Creation::Never || self.floor().format() != 0)
    }

    /// Creates the store if it is still to be created.
    pub(crate) async fn create_if_new(&self) -> Result<()> {
        if self.presence.get().is_none() || self.must_exist() {
            Ok(())
        } else {
            self.create().await
        }
    }

    /// Creates the store, if this engine may do that and nothing is under the prefix.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the store is gone; [`Error::Invalid`] if the prefix is used for something else.
    pub(crate) async fn create(&self) -> Result<()> {
        let may_create = |presence: &&Presence| presence.creation != Creation::Never;
        let Some(Presence { url, creation }) = self.presence.get().filter(may_create) else {
            return Err(self.gone().await);
        };
        for _ in 0..NOTE_ATTEMPTS {
            // Before the state is read: another transaction may create it meanwhile.
            let was_there = self.floor().format() != 0;
            match read_state(self, url).await?.0 {
                StoreState::InUse => return Ok(()),
                StoreState::Marked(mark) => {
                    return Err(Error::Invalid(mark.explain(&url.to_string())));
                }
                StoreState::Unused if was_there => return Err(self.gone().await),
                StoreState::Unused => {}
            }
            let request = TxnRequest {
                compare: vec![nothing_in(self.keys.everything())],
                success: vec![put(self.keys.own("format"), Bytes::from_static(FORMAT))],
                failure: Vec::new(),
            };
            let response: TxnResponse = self.noted(self.client.call(rpc::TXN, request).await)?;
            if !response.succeeded {
                continue;
            }
            if *creation == Creation::Compacted {
                let at = response.header.map_or(0, |header| header.revision);
                let note = self.timeline().logical(at).to_be_bytes();
                let (key, value) = (self.keys.own("compacted"), Bytes::copy_from_slice(&note));
                let request = TxnRequest {
                    compare: vec![exists(self.keys.own("format")), is_at(key.clone(), 0)],
                    success: vec![put(key, value)],
                    failure: Vec::new(),
                };
                let noted: Result<TxnResponse> =
                    self.noted(self.client.call(rpc::TXN, request).await);
                noted?;
            }
            return Ok(());
        }
        Err(Error::Unavailable("the format of the store keeps changing".to_owned()))
    }

    /// Finds out why the store does not exist any longer, and tells the server.
    pub(crate) async fn gone(&self) -> Error {
        match self.find_out_why_gone().await {
            Ok(reason) => {
                tracing::error!("{reason}");
                self.gone.send_replace(Some(Arc::from(&*reason)));
                Error::Unavailable(reason)
            }
            Err(error) => error,
        }
    }

    /// Why the store does not exist.
    ///
    /// # Errors
    /// If the store does exist, and if etcd does not answer.
    async fn find_out_why_gone(&self) -> Result<String> {
        let Some(Presence { url, .. }) = self.presence.get() else {
            return Err(Error::Unavailable("the data of the store was moved".to_owned()));
        };
        let floor = self.floor();
        let own = |name| one(self.keys.own(name));
        let (read, _) =
            self.ranges(vec![self.format_range(), own("migration"), own("epochs")]).await?;
        let mut found = read.into_iter().map(|range| range.kvs.into_iter().next());
        let mut next = || -> Option<KeyValue> { found.next().flatten() };
        let (format, mark, epochs) = (next(), next(), next());
        self.adopt(epochs.as_ref())?;
        match (format, mark) {
            (Some(format), _) if self.saw_format(floor, format.create_revision) => {
                Err(Error::Unavailable("the format of the store keeps changing".to_owned()))
            }
            (Some(_), _) => Ok(format!(
                "the store {url} was removed and prepared again since this server has opened it: start the server \
                 again, with the key directory of the new store"
            )),
            (None, Some(mark)) => {
                let text = String::from_utf8_lossy(&mark.value).into_owned();
                let mark = MigrationMark::parse(&text);
                Ok(mark.map_or(text, |mark| mark.explain(&url.to_string())))
            }
            (None, None) => Ok(format!(
                "the store {url} is gone: its keys were removed from etcd, or etcd was started with an empty data \
                 directory; restore a snapshot of etcd, or run postern storage restore with a backup"
            )),
        }
    }
}

/// The condition that no key is in a range.
pub(crate) fn nothing_in((key, range_end): (Bytes, Bytes)) -> Compare {
    Compare { range_end, ..is_at(key, 0) }
}
