//! Members and leases, which end with etcd's lease of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::proto::{
    DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, RangeRequest,
    Request, TxnRequest, TxnResponse,
};
use super::rpc;
use super::shared::{Shared, exists, is_at, one, op, ranges_of};
use crate::{Error, Fleet, Lease, Member, Result};

/// The time after which a server that does not answer is gone.
const SESSION_SECONDS: i64 = 6;

/// The time between two signs of life, and between two looks at the members and at a lease that another server holds.
const BEAT: Duration = Duration::from_secs(1);

/// A member as it is stored.
#[derive(Clone, PartialEq, Message)]
struct Announcement {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(uint32, tag = "2")]
    format: u32,
    #[prost(string, repeated, tag = "3")]
    seal_keys: Vec<String>,
}

/// What this server has in the fleet.
pub(super) struct Session {
    shared: Arc<Shared>,
    /// etcd's lease; 0 if there is none.
    lease: AtomicI64,
    me: Mutex<Option<Member>>,
    members: watch::Sender<Arc<[Member]>>,
    held: Mutex<BTreeMap<String, (u64, watch::Sender<bool>)>>,
    next_number: AtomicU64,
    /// Leases that were given back and are still stored.
    returned: Mutex<Vec<String>>,
    is_returned: Notify,
    beats: Mutex<Option<JoinSet<()>>>,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            lease: AtomicI64::new(0),
            me: Mutex::default(),
            members: watch::Sender::new(Arc::from([])),
            held: Mutex::default(),
            next_number: AtomicU64::new(1),
            returned: Mutex::default(),
            is_returned: Notify::new(),
            beats: Mutex::default(),
        })
    }

    /// The number of servers that are announced.
    pub(super) fn servers(&self) -> usize {
        self.members.borrow().len()
    }

    /// Starts to give signs of life, and to look at the members.
    pub(super) fn start(self: &Arc<Self>) {
        let session = Arc::downgrade(self);
        let mut beats = JoinSet::new();
        beats.spawn(async move {
            while let Some(session) = session.upgrade() {
                session.beat().await;
                let returned = session.is_returned.notified();
                tokio::select! {
                    () = sleep(BEAT) => {}
                    () = returned => {}
                }
            }
        });
        // A task of its own: while a sign of life waits, the looks go on, and with them the store's silence is true.
        let session = Arc::downgrade(self);
        beats.spawn(async move {
            while let Some(session) = session.upgrade() {
                session.look_at_members().await;
                sleep(BEAT).await;
            }
        });
        *self.beats.lock() = Some(beats);
    }

    /// Gives one sign of life.
    async fn beat(&self) {
        self.remove_returned().await;
        if self.lease.load(Ordering::Acquire) != 0 && !self.keep_alive().await {
            self.lose();
        }
        let announced = self.me.lock().clone();
        if let Some(me) = announced
            && self.lease.load(Ordering::Acquire) == 0
            && let Err(error) = self.announce(me).await
        {
            // The end of the session is in the log already, and that of the store, too.
            tracing::debug!("this server cannot be announced to the others: {error}");
        }
    }

    /// Looks at the members. That is a call that a majority of the members of etcd must answer, each second, so that
    /// [`Store::silence`](crate::Store::silence) also grows only with their silence if no caller asks.
    async fn look_at_members(&self) {
        if let Ok(members) = read_members(&self.shared).await {
            self.members.send_if_modified(|known| {
                let is_new = **known != *members;
                if is_new {
                    *known = members.into();
                }
                is_new
            });
        }
    }

    /// Whether etcd's lease is alive. If etcd does not answer, that is unknown, and the lease ends by itself.
    async fn keep_alive(&self) -> bool {
        let id = self.lease.load(Ordering::Acquire);
        let begun = Instant::now();
        loop {
            let request = LeaseKeepAliveRequest { id };
            let result = self.shared.client.once(rpc::LEASE_KEEP_ALIVE, request).await;
            match result {
                Ok(LeaseKeepAliveResponse { ttl, .. }) => return ttl > 0,
                Err(_) if begun.elapsed() < Duration::from_secs(SESSION_SECONDS.unsigned_abs()) => {
                    sleep(BEAT / 4).await;
                }
                Err(_) => return false,
            }
        }
    }

    /// All leases are lost, and the announcement is gone.
    fn lose(&self) {
        tracing::warn!("etcd has ended the session of this server");
        self.lease.store(0, Ordering::Release);
        for (_, (_, is_lost)) in std::mem::take(&mut *self.held.lock()) {
            is_lost.send_replace(true);
        }
    }

    /// The id of etcd's lease, which is granted if there is none.
    async fn lease_id(&self) -> Result<i64> {
        let known = self.lease.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known);
        }
        let request = LeaseGrantRequest { ttl: SESSION_SECONDS };
        let granted: LeaseGrantResponse =
            self.shared.noted(self.shared.client.read(rpc::LEASE_GRANT, request).await)?;
        if !granted.error.is_empty() {
            return Err(Error::Unavailable(format!("etcd grants no lease: {}", granted.error)));
        }
        match self.lease.compare_exchange(0, granted.id, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(granted.id),
            // The other one ends by itself.
            Err(first) => Ok(first),
        }
    }

    async fn announce(&self, me: Member) -> Result<()> {
        let Member { id, address, format, seal_keys } = me;
        let value = Announcement { address, format, seal_keys }.encode_to_vec().into();
        self.shared.create_if_new().await?;
        let lease = self.lease_id().await?;
        let put = PutRequest { key: self.shared.keys.member(&id), value, lease };
        let request = TxnRequest {
            compare: vec![exists(self.shared.keys.own("format"))],
            success: vec![
                op(Request::Put(put)),
                op(Request::Range(one(self.shared.keys.own("epochs")))),
            ],
            failure: Vec::new(),
        };
        let response: TxnResponse =
            self.shared.noted(self.shared.client.read(rpc::TXN, request).await)?;
        if !response.succeeded {
            return Err(self.shared.gone().await);
        }
        // An operator begins an epoch only while no server is announced, so it is known from here on.
        let epochs =
            ranges_of(response).into_iter().next().and_then(|range| range.kvs.into_iter().next());
        self.shared.adopt(epochs.as_ref())
    }

    /// Removes leases that were given back.
    async fn remove_returned(&self) {
        let returned = std::mem::take(&mut *self.returned.lock());
        for name in returned {
            let removed = self.remove(self.shared.keys.lease(&name)).await;
            if removed.is_err() {
                self.returned.lock().push(name);
            }
        }
    }

    async fn remove(&self, key: Bytes) -> Result<()> {
        let delete =
            op(Request::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }));
        let request = TxnRequest { success: vec![delete], ..TxnRequest::default() };
        let _: TxnResponse = self.shared.noted(self.shared.client.call(rpc::TXN, request).await)?;
        Ok(())
    }

    /// Takes the lease of a name, unless it is held.
    async fn try_lease(self: &Arc<Self>, name: &str) -> Result<Option<Lease>> {
        // Within this process, too, only one holds it.
        if self.held.lock().contains_key(name)
            || self.returned.lock().iter().any(|other| other == name)
        {
            return Ok(None);
        }
        self.shared.create_if_new().await?;
        let lease = self.lease_id().await?;
        let key = self.shared.keys.lease(name);
        let value = Bytes::copy_from_slice(self.shared.member.as_bytes());
        let request = TxnRequest {
            compare: vec![is_at(key.clone(), 0), exists(self.shared.keys.own("format"))],
            success: vec![op(Request::Put(PutRequest { key: key.clone(), value, lease }))],
            failure: vec![op(Request::Range(one(key)))],
        };
        let response: TxnResponse =
            self.shared.noted(self.shared.client.call(rpc::TXN, request).await)?;
        // If the answer to an earlier attempt was lost, this server has it already, and no other server can get it.
        let is_own =
            |kv: &KeyValue| kv.lease == lease && *kv.value == *self.shared.member.as_bytes();
        if !response.succeeded
            && !ranges_of(response).iter().flat_map(|range| &range.kvs).any(is_own)
        {
            return Ok(None);
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (is_lost, receiver) = watch::channel(false);
        self.held.lock().insert(name.to_owned(), (number, is_lost));
        let held = Held { session: Arc::clone(self), name: name.to_owned(), number };
        Ok(Some(Lease::new(receiver, Box::new(held))))
    }

    /// Ends the session: the announcement and all leases go at once.
    pub(super) async fn end(&self) {
        let beats = self.beats.lock().take();
        if let Some(mut beats) = beats {
            beats.shutdown().await;
        }
        let id = self.lease.swap(0, Ordering::AcqRel);
        if id != 0 {
            let request = LeaseRevokeRequest { id };
            let revoked: std::result::Result<LeaseRevokeResponse, _> =
                self.shared.client.call(rpc::LEASE_REVOKE, request).await;
            if let Err(status) = revoked {
                tracing::warn!("the session ends later: {}", rpc::explain(&status));
            }
        }
        self.lose_quietly();
    }

    fn lose_quietly(&self) {
        for (_, (_, is_lost)) in std::mem::take(&mut *self.held.lock()) {
            is_lost.send_replace(true);
        }
    }
}

/// The servers that are announced.
pub(super) async fn read_members(shared: &Shared) -> Result<Vec<Member>> {
    let (key, range_end) = shared.keys.members();
    let request = RangeRequest { key: key.clone(), range_end, ..RangeRequest::default() };
    let read = shared.noted(shared.range(request).await)?;
    let member = |kv: KeyValue| {
        let id = std::str::from_utf8(kv.key.get(key.len()..)?).ok()?;
        // The key of another store, whose prefix is under this one.
        let id = (!id.contains('/')).then(|| id.into())?;
        let Announcement { address, format, seal_keys } = Announcement::decode(kv.value).ok()?;
        Some(Member { id, address, format, seal_keys })
    };
    Ok(read.kvs.into_iter().filter_map(member).collect())
}

/// Gives a lease back when it is dropped.
struct Held {
    session: Arc<Session>,
    name: String,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.session.held.lock();
        if held.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            held.remove(&self.name);
            self.session.returned.lock().push(self.name.clone());
            self.session.is_returned.notify_one();
        }
    }
}

/// The fleet of an engine.
pub(super) struct EtcdFleet(pub(super) Arc<Session>);

#[async_trait]
impl Fleet for EtcdFleet {
    async fn join(&self, me: Member) -> Result<()> {
        self.0.shared.check_open()?;
        *self.0.me.lock() = Some(me.clone());
        match self.0.announce(me).await {
            // The watches of this server end, and it loads everything again.
            Ok(()) | Err(Error::EpochChanged { .. }) => {}
            Err(error) => return Err(error),
        }
        let members = read_members(&self.0.shared).await?;
        self.0.members.send_replace(members.into());
        Ok(())
    }

    fn members(&self) -> watch::Receiver<Arc<[Member]>> {
        self.0.members.subscribe()
    }

    fn gone(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.shared.gone.subscribe()
    }

    async fn lease(&self, name: &str) -> Result<Lease> {
        let mut is_closed = self.0.shared.is_closed.subscribe();
        loop {
            self.0.shared.check_open()?;
            if let Some(lease) = self.0.try_lease(name).await? {
                return Ok(lease);
            }
            tokio::select! {
                () = sleep(BEAT / 2) => {}
                _ = is_closed.changed() => {}
            }
        }
    }
}
