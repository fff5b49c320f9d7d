//! One connection: requests out, answers in, over HTTP/1.1 or a share of an HTTP/2 connection.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::target::Target;

/// Flow control of HTTP/2 shall not be what is measured.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// A way to send requests, one after the other.
pub(crate) struct Client {
    target: Arc<Target>,
    sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What a request was answered with, its body read to the end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// After how many seconds it said to come again, if it did.
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) body_bytes: u64,
    /// The body, if it was to be kept.
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

    /// Another one on the same connection, where the version of HTTP can do that.
    pub(crate) fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => {
                Some(Self { target: self.target.clone(), sender: Sender::Http2(sender.clone()) })
            }
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
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

    /// Sends a request and reads the whole answer, whose body is kept if `keep` says so.
    pub(crate) async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        keep: bool,
    ) -> Result<Answer> {
        let mut response = self.send(method, path, body).await?;
        let mut kept = BytesMut::new();
        let mut body_bytes = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            body_bytes += data.len() as u64;
            if keep {
                kept.extend_from_slice(&data);
            }
        }
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after_seconds: retry_after(&response),
            body_bytes,
            body: kept.freeze(),
        })
    }
}

fn retry_after(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

async fn http1(stream: TlsStream<TcpStream>) -> Result<Sender> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // A connection that fails, fails the requests on it; they tell.
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
        request = request.header(http::header::CONTENT_TYPE, "application/json");
    }
    if let Some((name, value)) = &target.credential {
        request = request.header(name, value);
    }
    request.body(Full::new(body)).context("this path makes no request")
}
