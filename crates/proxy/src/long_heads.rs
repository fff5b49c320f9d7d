//! Connections for requests with long heads. A listener keeps little of a head while its client is
//! unauthenticated. So such a connection begins with a short request that has its own credential.
//! The listener answers with 101, and requests with heads of up to [`MAX_LONG_HEAD_BYTES`] follow
//! in HTTP/1.1.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::dial::Stream;
use crate::error::ProxyError;
use crate::exchange::reason_of;
use crate::origin::Origin;

/// The protocol that such a connection is upgraded to.
pub const LONG_HEADS: &str = "postern-long-heads/1";

/// The most bytes of the head of a request on such a connection: a token of 1 MiB, and room for the rest.
pub const MAX_LONG_HEAD_BYTES: usize = (1024 + 64) * 1024;

/// A stream that is being opened for long heads.
type Opened = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, ProxyError>> + Send>>;

/// How a connection for long heads is opened.
#[derive(Clone)]
pub struct Opening {
    /// The path of the first request. The prefix of the upstream is not added.
    pub path: PathAndQuery,
    /// The headers of the first request, with its credential.
    pub headers: HeaderMap,
}

impl fmt::Debug for Opening {
    /// Shows the names of headers only: their values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("path", &self.path)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Opening {
    /// Sends the first request on a new stream, and returns the stream for those that follow. Boxed: other requests
    /// need no room for it.
    pub(crate) fn open(&self, stream: Box<dyn Stream>, origin: &Origin) -> Opened {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.path.clone().into();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, origin.host_header.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(LONG_HEADS));
        Box::pin(open(stream, request, origin.address.clone()))
    }
}

async fn open(
    stream: Box<dyn Stream>,
    request: Request<Empty<Bytes>>,
    address: Arc<str>,
) -> Result<Box<dyn Stream>, ProxyError> {
    let lost = |error: hyper::Error| {
        let (address, reason) = (address.to_string(), reason_of(&error));
        ProxyError::Lost { address, reason }
    };
    let (mut sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let mut connection = pin!(connection.with_upgrades());
    let mut answered = pin!(sender.send_request(request));
    let mut has_ended = false;
    let mut response = tokio::select! {
        biased;
        response = answered.as_mut() => response.map_err(lost)?,
        ended = connection.as_mut() => {
            ended.map_err(lost)?;
            has_ended = true;
            answered.await.map_err(lost)?
        }
    };
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS || !names_protocol(response.headers()) {
        return Err(ProxyError::NoLongHeads { address: address.to_string(), status });
    }
    let switched = hyper::upgrade::on(&mut response);
    // The connection gives its stream away when it ends.
    if !has_ended {
        connection.await.map_err(lost)?;
    }
    let switched = switched.await;
    Ok(Box::new(TokioIo::new(switched.map_err(lost)?)))
}

/// Whether a request is the first one of a connection for long heads. Its credential is not checked.
pub fn is_opening<B>(request: &Request<B>, path: &str) -> bool {
    request.uri().path() == path
        && request.version() == Version::HTTP_11
        && names_protocol(request.headers())
}

/// The response to the first request, after which long heads follow.
pub fn opened<B>(empty: B) -> Response<B> {
    let mut response = Response::new(empty);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(LONG_HEADS));
    response
}

fn names_protocol(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value == LONG_HEADS)
}
