//! Requests that switch their connection to another protocol, each on a separate connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::collection::Collection;
use crate::connection;
use crate::error::Error;
use crate::proxy::Proxy;
use crate::request::{AGENT, decode_response};
use crate::server_url::ServerUrl;

/// The largest answer that is read when the server does not switch.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// Opens connections of another protocol, one for each call. Cheap to clone.
#[derive(Clone)]
pub struct Upgrader {
    pub(crate) server: ServerUrl,
    pub(crate) authorization: HeaderValue,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) timeout: Duration,
}

/// A connection after it has switched.
#[derive(Debug)]
pub struct Switched {
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The address of the server, or of the proxy in between.
    pub address: IpAddr,
    /// The connection.
    pub connection: Upgraded,
}

impl Upgrader {
    /// Asks for a subresource of an object with these headers, which request the other protocol.
    ///
    /// # Errors
    /// As for every request; [`Error::Unexpected`] if the server answers with something else.
    pub async fn open(
        &self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
        headers: HeaderMap,
    ) -> Result<Switched, Error> {
        let path = format!("{}{}/{subresource}", self.server.base_path(), of.path_of(name)?);
        let mut request = Request::get(path)
            .header(HOST, self.server.authority())
            .header(USER_AGENT, AGENT)
            .header(AUTHORIZATION, self.authorization.clone())
            .body(Full::new(Bytes::new()))
            .map_err(|_| Error::Name(name.to_owned()))?;
        request.headers_mut().extend(headers);
        let (after, address) = (self.timeout, self.server.authority());
        let opened = timeout(after, self.switch(request)).await;
        opened.map_err(|_| Error::Timeout { address, after })?
    }

    async fn switch(&self, request: Request<Full<Bytes>>) -> Result<Switched, Error> {
        let (name, tls) = (self.tls_server_name.as_deref(), &self.tls);
        let stream = connection::secure(&self.server, self.proxy.as_ref(), name, tls).await?;
        let address = stream.get_ref().0.peer_addr().map(|address| address.ip());
        let lost = |reason: String| Error::Lost { address: self.server.authority(), reason };
        let address = address.map_err(|error| lost(error.to_string()))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, driver) = shaken.map_err(|error| lost(error.to_string()))?;
        let answered = async {
            let response = sender.send_request(request).await;
            let mut response = response.map_err(|error| lost(error.to_string()))?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let connection = hyper::upgrade::on(&mut response).await;
                let connection = connection.map_err(|error| lost(error.to_string()))?;
                let headers = std::mem::take(response.headers_mut());
                return Ok(Switched { headers, address, connection });
            }
            let code = response.status();
            let body = Limited::new(response.into_body(), REFUSAL_MAX_BYTES).collect().await;
            let body = body.map_err(|error| lost(error.to_string()))?.to_bytes();
            decode_response(code, &body)?;
            let what = "the server does not switch to the other protocol".to_owned();
            Err(Error::Unexpected { code: code.as_u16(), what })
        };
        // The caller gets the error.
        let never = async {
            let _ = driver.with_upgrades().await;
            std::future::pending().await
        };
        tokio::select! {
            answered = answered => answered,
            never = never => never,
        }
    }
}
