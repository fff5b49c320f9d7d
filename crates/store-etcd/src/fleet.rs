//! Members and leases, which end with etcd's lease of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use postern_store::{Error, Fleet, Introduction, Lease, Member, Peer, Result};
use prost::Message;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::freshness::HeadLook;
use crate::peers::{Announced, Look, Peers};
use crate::proto::{
    DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, RangeRequest,
    Request, TxnRequest, TxnResponse,
};
use crate::requests::{exists, is_at, one, op, ranges_of};
use crate::rpc;
use crate::shared::Shared;

/// The time after which a server that does not answer is gone.
const SESSION_SECONDS: i64 = 6;

/// The time between two announcements of a server that announces its clock. The other servers
/// compare it with their own.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);

/// How long a server that starts tries to announce itself.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server waits for the end of another one with its address: longer than the lease of one that has crashed.
/// etcd looks for leases that have ended twice a second, and its new leader extends them once.
const ADDRESS_WAIT: Duration = Duration::from_secs(2 * SESSION_SECONDS.unsigned_abs() + 3);

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
    /// Empty in announcements of servers that have not introduced themselves.
    #[prost(string, tag = "4")]
    external_url: String,
    /// The clock of the server when it wrote this; 0 is unknown.
    #[prost(int64, tag = "5")]
    unix_milliseconds: i64,
}

/// The state of this server in the fleet.
pub(crate) struct Session {
    shared: Arc<Shared>,
    /// etcd's lease; 0 if there is none.
    lease: AtomicI64,
    me: Mutex<Option<Member>>,
    introduction: Mutex<Option<Introduction>>,
    /// When this server was announced last.
    announced_at: Mutex<Option<Instant>>,
    members: watch::Sender<Arc<[Member]>>,
    peers: Mutex<Peers>,
    held: Mutex<BTreeMap<String, (u64, watch::Sender<bool>)>>,
    next_number: AtomicU64,
    /// Leases that were given back and are still stored.
    returned: Mutex<Vec<String>>,
    is_returned: Notify,
    beats: Mutex<Option<JoinSet<()>>>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            lease: AtomicI64::new(0),
            me: Mutex::default(),
            introduction: Mutex::default(),
            announced_at: Mutex::default(),
            peers: Mutex::default(),
            members: watch::Sender::new(Arc::from([])),
            held: Mutex::default(),
            next_number: AtomicU64::new(1),
            returned: Mutex::default(),
            is_returned: Notify::new(),
            beats: Mutex::default(),
        })
    }

    /// The number of servers that are announced.
    pub(crate) fn servers(&self) -> usize {
        self.members.borrow().len()
    }

    /// Starts to give signs of life, and to look at the members.
    pub(crate) fn start(self: &Arc<Self>) {
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
        // A separate task: while a sign of life waits, the looks go on, and the store's silence
        // stays correct.
        let session = Arc::downgrade(self);
        beats.spawn(async move {
            while let Some(session) = session.upgrade() {
                session.look_at_members().await;
                session.look_at_head().await;
                // Otherwise the two tasks would keep the session for each other when its store is dropped.
                drop(session);
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
            && (self.lease.load(Ordering::Acquire) == 0 || self.is_time_to_announce())
            && let Err(error) = self.announce(me).await
        {
            // The end of the session is in the log already, and that of the store, too.
            tracing::debug!("this server cannot be announced to the others: {error}");
        }
    }

    /// Looks at the members. That is a call that a majority of the members of etcd must answer, each second, so that
    /// [`Store::silence`](postern_store::Store::silence) also grows only with their silence if no caller asks.
    async fn look_at_members(&self) {
        let clock = self.introduction.lock().as_ref().map(|own| Arc::clone(&own.clock));
        let now = || clock.as_ref().map(|clock| clock());
        let begun = now();
        if let Ok(announced) = read_announced(&self.shared).await {
            let own = self.me.lock().as_ref().map(|me| Arc::clone(&me.id));
            self.peers.lock().note(
                &announced,
                own.as_deref(),
                begun.zip(now()).map(|(begun, ended)| Look { begun, ended }),
            );
            self.warn_of_other_urls();
            let members: Vec<Member> = announced.into_iter().map(|one| one.member).collect();
            self.members.send_if_modified(|known| {
                let is_new = **known != *members;
                if is_new {
                    *known = members.into();
                }
                is_new
            });
        }
    }

    /// Looks at the head, so that watches know until when they have everything.
    async fn look_at_head(&self) {
        let looked = Instant::now();
        if let Ok(read) = self.shared.range(self.shared.head_range()).await {
            let newest = read.kvs.first().map_or(0, |head| head.mod_revision);
            self.shared.freshness.note_head(HeadLook { newest, looked });
        }
    }

    /// Whether the time of this server is due in its announcement.
    fn is_time_to_announce(&self) -> bool {
        let due = |at: &Instant| at.elapsed() >= ANNOUNCE_INTERVAL;
        self.introduction.lock().is_some() && self.announced_at.lock().as_ref().is_some_and(due)
    }

    /// Warns once of each external URL that another server has.
    fn warn_of_other_urls(&self) {
        let Some(own) = self.introduction.lock().as_ref().map(|own| own.external_url.clone())
        else {
            return;
        };
        for (address, url) in self.peers.lock().take_new_urls(&own) {
            tracing::warn!(
                "the server {address} has the --external-url {url}, and this one has {own}: tokens of one are not valid at \
                 the other, so give all servers on a store the same one"
            );
        }
    }

    /// Waits until no other server is announced at an address.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is still one after [`ADDRESS_WAIT`].
    async fn wait_for_address(&self, me: &Member) -> Result<()> {
        let (begun, mut is_logged) = (Instant::now(), false);
        while read_announced(&self.shared).await?.iter().any(|one| one.has_address_of(me)) {
            if begun.elapsed() >= ADDRESS_WAIT {
                return Err(Error::address_taken(&me.address));
            }
            if !std::mem::replace(&mut is_logged, true) {
                tracing::info!(
                    address = me.address,
                    "another server is announced at this address: waiting for its end"
                );
            }
            sleep(BEAT).await;
        }
        Ok(())
    }

    /// Announces this server, and tries again for a while if etcd does not answer.
    async fn announce_soon(&self, me: &Member) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.announce(me.clone()).await {
                Err(Error::Unavailable(_)) if begun.elapsed() < ANNOUNCE_TIMEOUT => {
                    self.shared.check_open()?;
                    sleep(BEAT / 4).await;
                }
                result => return result,
            }
        }
    }

    /// Announces this server for the first time.
    async fn announce_first(&self, me: &Member) -> Result<()> {
        if !me.address.is_empty() {
            self.wait_for_address(me).await?;
        }
        let announced = self.announce_soon(me).await;
        if !me.address.is_empty() && announced.is_ok() {
            // Of several servers that start at once, the first one stays.
            let all = read_announced(&self.shared).await?;
            let own = all.iter().find(|one| one.member.id == me.id).map(|one| one.created);
            let is_later = |one: &Announced| own.is_none_or(|own| one.created < own);
            if all.iter().any(|one| one.has_address_of(me) && is_later(one)) {
                self.remove(self.shared.keys.member(&me.id)).await?;
                return Err(Error::address_taken(&me.address));
            }
        }
        announced
    }

    /// Whether etcd's lease is alive. If etcd does not answer, that is unknown, and the lease
    /// expires.
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
            // The lease that was just granted is not used, and expires.
            Err(first) => Ok(first),
        }
    }

    /// Announces this server, in one attempt: the time in the announcement is that of the attempt.
    async fn announce(&self, me: Member) -> Result<()> {
        let Member { id, address, format, seal_keys } = me;
        self.shared.create_if_new().await?;
        let lease = self.lease_id().await?;
        let introduction = self.introduction.lock().clone();
        let (external_url, unix_milliseconds) =
            introduction.map_or_else(Default::default, |own| (own.external_url, (own.clock)()));
        let value = Announcement { address, format, seal_keys, external_url, unix_milliseconds }
            .encode_to_vec()
            .into();
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
            self.shared.noted(self.shared.client.call(rpc::TXN, request).await)?;
        if !response.succeeded {
            return Err(self.shared.gone().await);
        }
        *self.announced_at.lock() = Some(Instant::now());
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
    pub(crate) async fn end(&self) {
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
pub(crate) async fn read_members(shared: &Shared) -> Result<Vec<Member>> {
    let announced = read_announced(shared).await?;
    Ok(announced.into_iter().map(|one| one.member).collect())
}

/// The announcements of all servers.
async fn read_announced(shared: &Shared) -> Result<Vec<Announced>> {
    let (key, range_end) = shared.keys.members();
    let request = RangeRequest { key: key.clone(), range_end, ..RangeRequest::default() };
    let read = shared.noted(shared.range(request).await)?;
    let announced = |kv: KeyValue| {
        let id = std::str::from_utf8(kv.key.get(key.len()..)?).ok()?;
        // The key of another store with a prefix under this one.
        let id = (!id.contains('/')).then(|| id.into())?;
        let Announcement { address, format, seal_keys, external_url, unix_milliseconds } =
            Announcement::decode(kv.value).ok()?;
        Some(Announced {
            member: Member { id, address, format, seal_keys },
            external_url: Some(external_url).filter(|url| !url.is_empty()),
            unix_milliseconds: Some(unix_milliseconds).filter(|time| *time != 0),
            created: kv.create_revision,
            written: kv.mod_revision,
        })
    };
    Ok(read.kvs.into_iter().filter_map(announced).collect())
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
pub(crate) struct EtcdFleet(pub(crate) Arc<Session>);

#[async_trait]
impl Fleet for EtcdFleet {
    async fn join(&self, me: Member) -> Result<()> {
        self.0.shared.check_open()?;
        let is_first = self.0.me.lock().is_none();
        let joined = if is_first {
            self.0.announce_first(&me).await
        } else {
            self.0.announce_soon(&me).await
        };
        if !matches!(joined, Err(Error::Invalid(_))) {
            // If it is not announced now, that is tried again.
            *self.0.me.lock() = Some(me);
        }
        match joined {
            // The watches of this server end, and it loads everything again.
            Ok(()) | Err(Error::EpochChanged { .. }) => {}
            Err(error) => return Err(error),
        }
        let members = read_members(&self.0.shared).await?;
        self.0.members.send_replace(members.into());
        Ok(())
    }

    fn introduce(&self, introduction: Introduction) {
        *self.0.introduction.lock() = Some(introduction);
    }

    fn peers(&self) -> Vec<Peer> {
        self.0.peers.lock().peers()
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
