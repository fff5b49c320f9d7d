//! One tunnel: it is opened, and requests in it are answered until its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use postern_client::{Collection, Error, Switched, Upgrader};
use postern_kinds::cluster::Cluster;
use postern_listen::Peer;
use postern_proxy::{BoxError, MAX_LONG_HEAD_BYTES};
use postern_tunnel::{
    AGENT_NAME, CLUSTER_UID, End, PROTOCOLS, SERVER_NAME, SERVER_VERSION, WAITING, agent_end,
    is_name, negotiate,
};

use crate::answer::Body;
use crate::serve::Agent;
use crate::tunnel_pool::{Failure, Slot};

/// Opens tunnels.
pub(super) struct Dialler {
    pub(super) upgrader: Upgrader,
    pub(super) cluster: String,
    /// The name of this agent.
    pub(super) name: String,
}

/// Opens a tunnel, and serves it until its end.
pub(super) async fn run(agent: Arc<Agent>, dialler: Arc<Dialler>, slot: Slot) {
    let uid = agent.state.cluster_uid();
    // Boxed: an open tunnel needs no room for how it was opened.
    let opened = Box::pin(dialler.open(&slot, uid.as_deref())).await;
    let switched = match opened {
        Ok(switched) => switched,
        Err((failure, why)) => return slot.failed(failure, &why),
    };
    let Switched { headers, address, connection } = switched;
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let server = text(SERVER_NAME).filter(|name| is_name(name)).unwrap_or("unnamed");
    slot.opened(server);
    let version = text(SERVER_VERSION).unwrap_or_default();
    tracing::debug!(server, version, "a tunnel is open");
    // Its values keep the whole buffer that they were read into.
    drop(headers);
    let end = serve(&agent, &Arc::new(slot), connection, address).await;
    tracing::debug!("a tunnel has ended: {}", end.as_str());
}

impl Dialler {
    async fn open(
        &self,
        slot: &Slot,
        cluster_uid: Option<&str>,
    ) -> Result<Switched, (Failure, String)> {
        let headers = self.headers(slot, cluster_uid);
        let headers = headers.map_err(|error| (Failure::Network, error.to_string()))?;
        let clusters = Collection::of::<Cluster>(None);
        let opened = self.upgrader.open(clusters, &self.cluster, "tunnel", headers).await;
        let switched = opened.map_err(|error| (failure_of(&error), error.to_string()))?;
        let chosen = switched.headers.get(SEC_WEBSOCKET_PROTOCOL);
        if chosen.and_then(|value| negotiate(value.to_str().ok())).is_none() {
            let why = "the server has chosen no version of the tunnel that this agent offered";
            return Err((Failure::NoCommonVersion, why.to_owned()));
        }
        Ok(switched)
    }

    fn headers(&self, slot: &Slot, cluster_uid: Option<&str>) -> Result<HeaderMap, http::Error> {
        let mut headers = HeaderMap::new();
        let key = STANDARD.encode(slot.pool().random(slot.id()));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, key.parse()?);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, PROTOCOLS.join(", ").parse()?);
        headers.insert(AGENT_NAME, self.name.parse()?);
        if let Some(uid) = cluster_uid {
            headers.insert(CLUSTER_UID, uid.parse()?);
        }
        Ok(headers)
    }
}

fn failure_of(error: &Error) -> Failure {
    let code = match error {
        Error::Status(status) => status.code,
        Error::Unexpected { code, .. } => *code,
        _ => return Failure::Network,
    };
    match code {
        400 => Failure::NoCommonVersion,
        // An older server has no such subresource.
        404 | 405 => Failure::TooOld,
        401 | 403 => Failure::NotAllowed,
        409 => Failure::NotWanted,
        _ => Failure::Busy,
    }
}

/// Serves the requests in a tunnel, until its end.
async fn serve(agent: &Arc<Agent>, slot: &Arc<Slot>, connection: Upgraded, address: IpAddr) -> End {
    let (stream, carried) = agent_end(TokioIo::new(connection));
    let peer = Peer::new(address);
    let service = service_fn(|mut request: Request<Incoming>| {
        let waiting = request.headers_mut().remove(WAITING);
        let waiting = waiting.and_then(|value| value.to_str().ok()?.parse().ok());
        slot.set_waiting(waiting.unwrap_or_default());
        let (busy, peer) = (Busy::new(slot), &peer);
        async move {
            let response = agent.answer(peer, request).await;
            Ok::<_, Infallible>(kept_busy(response, busy))
        }
    });
    // At its end, the stream is dropped, and the tunnel with it, unless an upgraded request has the stream.
    let served = async move {
        let mut http = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                // An idle tunnel waits for its next request as long as it lives.
                .header_read_timeout(None)
                .max_buf_size(MAX_LONG_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
        );
        let mut draining = agent.draining.subscribe();
        tokio::select! {
            _ = http.as_mut() => return,
            _ = draining.wait_for(|draining| *draining) => http.as_mut().graceful_shutdown(),
        }
        let _ = http.await;
    };
    let mut carried = pin!(carried);
    tokio::select! {
        end = carried.as_mut() => return end,
        () = served => {}
    }
    // The stream of an upgraded request goes on, and its last bytes are on the way.
    carried.await
}

/// A request is in the tunnel until this is dropped.
struct Busy {
    slot: Arc<Slot>,
    /// Whether no request follows.
    is_last: bool,
}

impl Busy {
    fn new(slot: &Arc<Slot>) -> Self {
        slot.set_busy(true);
        Self { slot: slot.clone(), is_last: false }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.is_last {
            self.slot.set_busy(false);
        }
    }
}

/// The response, which keeps the tunnel busy until its body has ended. After an upgrade, no request follows.
fn kept_busy(response: Response<Body>, mut busy: Busy) -> Response<Body> {
    busy.is_last = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    response.map(|body| BusyBody { body, _busy: busy }.boxed_unsync())
}

struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for BusyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
