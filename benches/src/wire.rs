//! One connection: sends requests and reads responses, over HTTP/1.1 or a share of an HTTP/2
//! connection.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::target::Target;

/// Large enough that the benchmark does not measure the flow control of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// The number of last bytes of a stream in which the end of a part is searched for.
const TAIL_BYTES: usize = 4096;

/// Sends requests, one after the other.
pub(crate) struct Client {
    target: Arc<Target>,
    sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A response, its body read to the end.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The seconds in `Retry-After`, if any.
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) body_bytes: u64,
    /// The body, if the caller asked for it; else empty.
    pub(crate) body: Bytes,
}

impl Client {
    /// Connects, with TLS and the version of HTTP that the target wants.
    pub(crate) async fn connect(target: &Arc<Target>) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(target.tls.clone());
        let stream = connector.connect(target.name.clone(), stream).await?;
        let sender = if target.http2 { http2(stream).await? } else { http1(stream).await? };
        Ok(Self { target: target.clone(), sender })
    }

    /// Connects once more, to the same server and with the same credential.
    pub(crate) async fn reconnect(&mut self) -> Result<()> {
        *self = Self::connect(&self.target).await?;
        Ok(())
    }

    /// Another client on the same connection, if it is HTTP/2.
    pub(crate) fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => {
                Some(Self { target: self.target.clone(), sender: Sender::Http2(sender.clone()) })
            }
        }
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        let request = request(&self.target, method, path, body)?;
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }

    /// Sends a GET and reads the response until these bytes are near the end of the received part.
    /// The response may go on, so the caller has to open a new connection after this.
    pub(crate) async fn read_until(&mut self, path: &str, end: &[u8]) -> Result<Response> {
        let mut response = self.send(Method::GET, path, Bytes::new()).await?;
        let (mut tail, mut body_bytes) = (BytesMut::new(), 0);
        let finder = memchr::memmem::Finder::new(end);
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            body_bytes += data.len() as u64;
            // To copy and search all of it would cost this program as much as to read it.
            tail.extend_from_slice(&data[data.len().saturating_sub(TAIL_BYTES)..]);
            drop(tail.split_to(tail.len().saturating_sub(TAIL_BYTES)));
            if finder.find(&tail).is_some() {
                let (status, body) = (response.status().as_u16(), Bytes::new());
                return Ok(Response { status, retry_after_seconds: None, body_bytes, body });
            }
        }
        bail!("GET {path} returned {}, and not what was waited for", response.status())
    }

    /// Sends a request and reads the whole response. The body is returned if `keep` is set.
    pub(crate) async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        keep: bool,
    ) -> Result<Response> {
        let mut response = self.send(method, path, body).await?;
        let mut collected = BytesMut::new();
        let mut body_bytes = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            body_bytes += data.len() as u64;
            if keep {
                collected.extend_from_slice(&data);
            }
        }
        Ok(Response {
            status: response.status().as_u16(),
            retry_after_seconds: retry_after(&response),
            body_bytes,
            body: collected.freeze(),
        })
    }
}

fn retry_after(response: &http::Response<Incoming>) -> Option<u64> {
    response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

async fn http1(stream: TlsStream<TcpStream>) -> Result<Sender> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // When the connection fails, so do the requests on it, which report the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Sender::Http1(sender))
}

async fn http2(stream: TlsStream<TcpStream>) -> Result<Sender> {
    let chosen = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    ensure!(chosen, "the server does not speak HTTP/2");
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(Sender::Http2(sender))
}

fn request(
    target: &Target,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method);
    if target.http2 {
        request = request.uri(format!("https://{}{path}", target.authority));
    } else {
        request = request.uri(path).header(http::header::HOST, &target.authority);
    }
    if !body.is_empty() {
        let patches = request.method_ref() == Some(&Method::PATCH);
        let kind = match path.contains("fieldManager=") {
            // Only applies name one here.
            true if patches => "application/apply-patch+yaml",
            false if patches => "application/merge-patch+json",
            _ => "application/json",
        };
        request = request.header(http::header::CONTENT_TYPE, kind);
    }
    if let Some(accept) = &target.accept {
        request = request.header(http::header::ACCEPT, accept);
    }
    if let Some((name, value)) = &target.credential {
        request = request.header(name, value);
    }
    request.body(Full::new(body)).context("the path is not valid in a request")
}
