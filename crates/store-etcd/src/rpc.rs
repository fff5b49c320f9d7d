//! Calls to etcd: the choice of the member, the timeouts, and the proof of identity. The engine
//! decides which calls to make.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use postern_store::{Error, Result};
use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::connection::{self, Failed, deepest, invalid};
use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse, WatchCall,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::url::{EtcdAccess, EtcdUrl};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The longest time until a connection is made. It is shorter than that of a call, so that the error names the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// The longest time for one call to one member. A leader election takes about a second at etcd's default timing.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// If no call was answered for this long, etcd counts as unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Reads try other members for this long.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts at a read.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Pings on connections with an open stream. etcd closes connections that ping more often than each 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest message of etcd that is read: a page of a list, or the values of one transaction.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The state of the answers of all members together.
struct Answers {
    /// When a member answered last, with a result or a refusal; the start, if none has.
    last: Instant,
    has_answered: bool,
    /// When the unanswered calls began, including those that failed without an answer. `None`
    /// without such calls.
    asked: Option<Instant>,
    calls_in_flight: usize,
}

impl Answers {
    /// Notes an answer. The silence of calls that still wait counts from now on.
    fn note(&mut self) {
        self.last = Instant::now();
        self.has_answered = true;
        self.asked = (self.calls_in_flight > 1).then_some(self.last);
    }
}

/// A call that has begun, until it is dropped.
struct InFlight<'a>(&'a Mutex<Answers>);

impl<'a> InFlight<'a> {
    fn begin(answers: &'a Mutex<Answers>) -> Self {
        let mut known = answers.lock();
        known.calls_in_flight += 1;
        known.asked.get_or_insert_with(Instant::now);
        Self(answers)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().calls_in_flight -= 1;
    }
}

/// When the newest call began that a majority of the members must have answered.
struct LastProof {
    opened: Instant,
    /// Since `opened`.
    began_nanoseconds: AtomicU64,
}

impl LastProof {
    fn new() -> Self {
        Self { opened: Instant::now(), began_nanoseconds: AtomicU64::new(0) }
    }

    /// Notes a call that began at a moment and was answered. Of several calls, the one that began last counts.
    fn note(&self, began: Instant) {
        let nanoseconds = began.saturating_duration_since(self.opened).as_nanos();
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        self.began_nanoseconds.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    fn age(&self) -> Duration {
        let began = Duration::from_nanos(self.began_nanoseconds.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(began)
    }
}

/// Whether a success of this call proves that a majority of the members had this state while the call ran.
///
/// etcd answers these from its log, or after the leader has heard from a majority: all ranges of this engine are
/// linearizable. Other calls are answered by a member that is cut off from the majority, too: its status, watches, and
/// the renewal of a lease while it takes itself for the leader. A refusal proves nothing either: a member may refuse a
/// call before it asks the others.
fn proves_majority(path: &str) -> bool {
    [RANGE, TXN, COMPACT, LEASE_GRANT, LEASE_REVOKE].contains(&path)
}

/// Connections to the members of an etcd.
pub(crate) struct Client {
    channels: Vec<Channel>,
    /// The addresses of the members, in the order of the channels.
    addresses: Vec<String>,
    has_tls: bool,
    /// The member that answered last.
    current: AtomicUsize,
    access: EtcdAccess,
    answers: Mutex<Answers>,
    last_proof: LastProof,
    /// The token of a user, once it is known.
    token: Mutex<Option<MetadataValue<tonic::metadata::Ascii>>>,
}

impl Client {
    /// A client that connects when it is used first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for files that cannot be used, and without TLS to another machine.
    pub(crate) fn new(url: &EtcdUrl, access: &EtcdAccess) -> Result<Self> {
        let tls = connection::tls(url, access)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let connect = |member: &String| {
            let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
                .map_err(|error| invalid(&format!("{member}: {error}")))?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .tcp_nodelay(true);
            let endpoint = match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| {
                    let cause = deepest(&error);
                    invalid(&format!("cannot use the certificates of --etcd-ca-file and --etcd-cert-file: {cause}"))
                })?,
                None => endpoint,
            };
            Ok(endpoint.connect_lazy())
        };
        Ok(Self {
            channels: url.members.iter().map(connect).collect::<Result<_>>()?,
            addresses: url.members.clone(),
            has_tls: tls.is_some(),
            current: AtomicUsize::new(0),
            access: access.clone(),
            answers: Mutex::new(Answers {
                last: Instant::now(),
                has_answered: false,
                asked: None,
                calls_in_flight: 0,
            }),
            last_proof: LastProof::new(),
            token: Mutex::new(None),
        })
    }

    /// Reads, from any member that answers in time. If no member has answered for a while, there is one attempt.
    pub(crate) async fn read<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        loop {
            let deadline = self.answers.lock().last + READ_TIMEOUT;
            match self.call(path, request.clone()).await {
                Err(status) if is_ambiguous(&status) && Instant::now() < deadline => {
                    sleep(READ_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Calls one member once. After an error that [`is_ambiguous`], the call may have been done.
    pub(crate) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let result = self.call_with_token(path, request.clone()).await;
        match result {
            // The token has expired, or etcd has restarted. Nothing was done.
            Err(status) if status.code() == Code::Unauthenticated && self.access.user.is_some() => {
                *self.token.lock() = None;
                self.call_with_token(path, request).await
            }
            result => result,
        }
    }

    async fn call_with_token<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.with_token(request).await?;
        self.unary(path, request).await
    }

    async fn unary<Q, A>(
        &self,
        path: &'static str,
        request: Request<Q>,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let _in_flight = InFlight::begin(&self.answers);
        let began = Instant::now();
        let number = self.current.load(Ordering::Relaxed);
        match self.unary_to(number, path, request).await {
            Ok(response) => {
                self.answers.lock().note();
                if proves_majority(path) {
                    self.last_proof.note(began);
                }
                Ok(response.into_inner())
            }
            Err(status) => {
                if !is_ambiguous(&status) {
                    self.answers.lock().note();
                    return Err(status);
                }
                let next = (number + 1) % self.channels.len();
                let relaxed = Ordering::Relaxed;
                let _ = self.current.compare_exchange(number, next, relaxed, relaxed);
                Err(status)
            }
        }
    }

    /// Calls one member, and waits for its answer.
    async fn unary_to<Q, A>(
        &self,
        number: usize,
        path: &'static str,
        request: Request<Q>,
    ) -> std::result::Result<Response<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(number)?;
        let call = async {
            grpc.ready().await.map_err(|error| self.failed(number).not_connected(&error))?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            grpc.unary(request, PathAndQuery::from_static(path), codec).await
        };
        self.in_time(number, call).await
    }

    /// The result of a call to one member, or an error if it takes too long.
    async fn in_time<T>(
        &self,
        number: usize,
        call: impl Future<Output = std::result::Result<T, Status>>,
    ) -> std::result::Result<T, Status> {
        match timeout(CALL_TIMEOUT, call).await {
            Ok(result) => result.map_err(|status| self.failed(number).in_words(status)),
            Err(_) => Err(self.failed(number).late()),
        }
    }

    fn failed(&self, number: usize) -> Failed<'_> {
        Failed {
            address: self.addresses.get(number).map_or("etcd", String::as_str),
            has_tls: self.has_tls,
            has_answered: self.answers.lock().has_answered,
        }
    }

    /// The status of each member. A member without a leader has one, too, so this says nothing of the store.
    pub(crate) async fn statuses(
        &self,
    ) -> Vec<(&str, std::result::Result<StatusResponse, Status>)> {
        let ask = async |number| {
            let request = self.with_token(StatusRequest {}).await?;
            self.unary_to(number, STATUS, request).await.map(Response::into_inner)
        };
        let addresses = self.addresses.iter().map(String::as_str).enumerate();
        join_all(addresses.map(async |(number, address)| (address, ask(number).await))).await
    }

    /// The time since a member has answered last.
    pub(crate) fn answer_age(&self) -> Duration {
        self.answers.lock().last.elapsed()
    }

    /// See [`Store::silence`](postern_store::Store::silence).
    pub(crate) fn silence(&self) -> Duration {
        self.last_proof.age()
    }

    /// Whether calls have had no answer for [`SILENCE_MAX`].
    pub(crate) fn is_silent(&self) -> bool {
        self.answers.lock().asked.is_some_and(|asked| asked.elapsed() > SILENCE_MAX)
    }

    fn grpc(&self, number: usize) -> std::result::Result<Grpc<Channel>, Status> {
        let channel = self.channels.get(number).or(self.channels.first());
        let channel = channel.ok_or_else(|| Status::unavailable("the etcd has no member"))?;
        Ok(Grpc::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// A request with the token of the user, if there is one.
    async fn with_token<T>(&self, message: T) -> std::result::Result<Request<T>, Status> {
        self.authenticate().await?;
        let mut request = Request::new(message);
        if let Some(token) = self.token.lock().clone() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    /// Gets a token, if there is a user and no token yet.
    async fn authenticate(&self) -> std::result::Result<(), Status> {
        let Some((name, password)) = &self.access.user else { return Ok(()) };
        if self.token.lock().is_some() {
            return Ok(());
        }
        let request =
            AuthenticateRequest { name: name.clone(), password: password.expose().to_owned() };
        let response: AuthenticateResponse =
            self.unary(AUTHENTICATE, Request::new(request)).await?;
        let token =
            response.token.parse().map_err(|_| Status::internal("etcd's token is no text"))?;
        *self.token.lock() = Some(token);
        Ok(())
    }

    /// Opens a watch on any member that has a leader.
    pub(crate) async fn watch(
        &self,
        create: WatchCreateRequest,
    ) -> std::result::Result<Streaming<WatchResponse>, Status> {
        let number = self.current.load(Ordering::Relaxed);
        let mut grpc = self.grpc(number)?;
        let first = WatchRequest { call: Some(WatchCall::Create(create)) };
        // The watch lasts as long as its requests.
        let requests = stream::iter([first]).chain(stream::pending());
        let mut request = self.with_token(requests).await?;
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let open = async {
            grpc.ready().await.map_err(|error| self.failed(number).not_connected(&error))?;
            let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
            grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await
        };
        match self.in_time(number, open).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                self.leave_current_member();
                if status.code() == Code::Unauthenticated {
                    *self.token.lock() = None;
                }
                Err(status)
            }
        }
    }

    /// Uses another member from now on.
    pub(crate) fn leave_current_member(&self) {
        let next = (self.current.load(Ordering::Relaxed) + 1) % self.channels.len();
        self.current.store(next, Ordering::Relaxed);
    }

    /// Calls a method that takes and returns streams once, and returns the first response.
    pub(crate) async fn once<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.with_token(stream::iter([request])).await?;
        let number = self.current.load(Ordering::Relaxed);
        let mut grpc = self.grpc(number)?;
        let call = async {
            grpc.ready().await.map_err(|error| self.failed(number).not_connected(&error))?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            let mut responses =
                grpc.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner();
            responses.message().await?.ok_or_else(|| Status::unavailable("etcd answered nothing"))
        };
        let result = self.in_time(number, call).await;
        if result.as_ref().is_err_and(is_ambiguous) {
            self.leave_current_member();
        }
        result
    }
}

/// Whether a call with this error may have been done, or may still be done.
pub(crate) fn is_ambiguous(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Cancelled
            | Code::Internal
            | Code::Aborted
    )
}

/// Whether the storage of etcd is full. A transaction with this error may have been done.
pub(crate) fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("space exceeded")
}

/// Whether the revision of a read is compacted (`Some(true)`), or does not exist yet
/// (`Some(false)`).
pub(crate) fn is_compacted(status: &Status) -> Option<bool> {
    if status.code() != Code::OutOfRange {
        return None;
    }
    Some(status.message().contains("compacted"))
}

/// Whether a response is larger than this server receives, or etcd sends.
pub(crate) fn is_too_large_to_receive(status: &Status) -> bool {
    match status.code() {
        Code::OutOfRange => status.message().contains("length too large"),
        Code::ResourceExhausted => status.message().contains("larger than max"),
        _ => false,
    }
}

/// The text of an error. For an error of a connection, [`Failed::in_words`] has put the cause into it.
pub(crate) fn explain(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    }
}

/// The error of the store for an error of a read, or of a write that was not done.
pub(crate) fn to_error(status: &Status) -> Error {
    if is_full(status) {
        return Error::Full;
    }
    let reason = explain(status);
    match status.code() {
        // Without a user, etcd finds an argument invalid.
        Code::InvalidArgument if status.message().contains("user name is empty") => {
            Error::Unavailable(format!("etcd refuses this server: {reason}; pass --etcd-user"))
        }
        Code::FailedPrecondition if reason.contains("authentication is not enabled") => {
            Error::Unavailable(format!("etcd: {reason}; pass no --etcd-user, or enable it in etcd"))
        }
        Code::Unauthenticated | Code::PermissionDenied => {
            Error::Unavailable(format!("etcd refuses this server: {reason}"))
        }
        _ => Error::Unavailable(format!("etcd: {reason}")),
    }
}
