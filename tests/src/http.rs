//! A small HTTPS client that sends a test's requests unchanged, and returns the exact response.
//!
//! It neither normalizes paths nor adds headers except the credential, so that a test can send
//! malformed requests.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Kubeconfig, wait};

/// A request's body.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// One server and one credential.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    token: Arc<str>,
    tls: Arc<rustls::ClientConfig>,
    /// The address that connections come from; without one, the kernel chooses it.
    source: Option<IpAddr>,
    /// Connections without a request, for [`Request::send`]. All clones share them, also clones
    /// with different keys.
    idle: Arc<Idle>,
}

/// The most connections that wait for a request: more would count as load.
const MAX_IDLE: usize = 2;

/// Connections that wait for their next request.
#[derive(Default)]
struct Idle(Mutex<Vec<Connection>>);

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idle").finish_non_exhaustive()
    }
}

impl Idle {
    fn take(&self) -> Option<Connection> {
        self.0.lock().unwrap().pop()
    }

    fn keep(&self, connection: Connection) {
        let mut all = self.0.lock().unwrap();
        if all.len() < MAX_IDLE {
            all.push(connection);
        }
    }
}

impl Client {
    /// A client for HTTP/1.1 with the kubeconfig's credential.
    #[must_use]
    pub fn new(kubeconfig: &Kubeconfig) -> Self {
        Self::with_protocol(kubeconfig, b"http/1.1")
    }

    /// The same for HTTP/2.
    #[must_use]
    pub fn http2(kubeconfig: &Kubeconfig) -> Self {
        Self::with_protocol(kubeconfig, b"h2")
    }

    fn with_protocol(kubeconfig: &Kubeconfig, protocol: &[u8]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&kubeconfig.authority) {
            roots.add(certificate.expect("the kubeconfig's authority is PEM")).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![protocol.to_vec()];
        Self {
            authority: kubeconfig.authority_of_server().to_owned(),
            token: kubeconfig.token.as_str().into(),
            tls: Arc::new(tls),
            source: None,
            idle: Arc::default(),
        }
    }

    /// The same server with another access key.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    /// The same server, with connections that come from this address of the loopback network.
    #[must_use]
    pub fn from_address(&self, source: IpAddr) -> Self {
        Self { source: Some(source), idle: Arc::default(), ..self.clone() }
    }

    /// A GET of a path from the root of the server.
    pub fn get(&self, path: &str) -> Request<'_> {
        self.request("GET", path)
    }

    /// A POST.
    pub fn post(&self, path: &str) -> Request<'_> {
        self.request("POST", path)
    }

    /// A PUT.
    pub fn put(&self, path: &str) -> Request<'_> {
        self.request("PUT", path)
    }

    /// A PATCH of the given type: `json-patch`, `merge-patch`, or any other.
    pub fn patch(&self, path: &str, kind: &str, changes: &Value) -> Request<'_> {
        let kind = format!("application/{kind}+json");
        self.request("PATCH", path).body(&kind, changes.to_string())
    }

    /// A DELETE.
    pub fn delete(&self, path: &str) -> Request<'_> {
        self.request("DELETE", path)
    }

    /// A request with any method.
    pub fn request(&self, method: &str, path: &str) -> Request<'_> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .body(Full::new(Bytes::new()).boxed_unsync())
            .expect("the test's method and path can be sent");
        Request { client: self, request }.header(AUTHORIZATION, &format!("Bearer {}", self.token))
    }

    /// The raw TLS connection, for bytes that are not HTTP.
    ///
    /// # Errors
    /// The error of the network, or of the handshake.
    pub async fn raw(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = self.tcp().await?;
        let host = self.authority.rsplit_once(':').map_or("", |(host, _)| host);
        let name = ServerName::try_from(host.to_owned()).expect("the kubeconfig names a host");
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await
    }

    /// A TCP connection without TLS.
    ///
    /// # Errors
    /// The error of the network.
    pub async fn tcp(&self) -> std::io::Result<TcpStream> {
        let stream = match self.source {
            None => TcpStream::connect(&self.authority).await?,
            Some(source) => {
                let socket = TcpSocket::new_v4()?;
                socket.bind(SocketAddr::new(source, 0))?;
                let server = tokio::net::lookup_host(&self.authority).await?.next();
                socket.connect(server.expect("the kubeconfig names a host")).await?
            }
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The access key.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// `HOST:PORT`
    #[must_use]
    pub fn address(&self) -> &str {
        &self.authority
    }

    /// Opens a connection for several requests.
    ///
    /// # Errors
    /// Why it could not be opened, as text.
    pub async fn connect(&self) -> Result<Connection, String> {
        let stream = Box::pin(self.raw()).await.map_err(|error| error.to_string())?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let sender = if http2 {
            let handshake = Box::pin(http2::handshake(TokioExecutor::new(), io)).await;
            let (sender, connection) = handshake.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let handshake = Box::pin(http1::handshake(io)).await;
            let (sender, connection) = handshake.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            Sender::One(sender)
        };
        Ok(Connection { sender, authority: self.authority.clone() })
    }
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

/// A connection to the server.
pub struct Connection {
    sender: Sender,
    authority: String,
}

impl Connection {
    /// Another handle to the same connection, for concurrent requests. Only HTTP/2 can do this.
    #[must_use]
    pub fn shared(&self) -> Self {
        let Sender::Two(sender) = &self.sender else {
            panic!("HTTP/1.1 has one request at a time")
        };
        Self { sender: Sender::Two(sender.clone()), authority: self.authority.clone() }
    }

    async fn send(
        &mut self,
        request: http::Request<Body>,
    ) -> Result<http::Response<Incoming>, String> {
        self.send_or_give_back(request).await.map_err(|unsent| unsent.error)
    }

    async fn send_or_give_back(
        &mut self,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Incoming>, Unsent> {
        let sent = match &mut self.sender {
            Sender::One(sender) => {
                let host = HeaderValue::from_str(&self.authority).unwrap();
                request.headers_mut().entry(http::header::HOST).or_insert(host);
                if let Err(error) = sender.ready().await {
                    return Err(Unsent { error: error.to_string(), request: Some(request) });
                }
                sender.try_send_request(request).await
            }
            Sender::Two(sender) => {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                let uri = format!("https://{}{path}", self.authority);
                *request.uri_mut() = uri.parse().unwrap();
                if let Err(error) = sender.ready().await {
                    return Err(Unsent { error: error.to_string(), request: Some(request) });
                }
                sender.try_send_request(request).await
            }
        };
        sent.map_err(|mut unsent| {
            let request = unsent.take_message();
            Unsent { error: format!("{:?}", unsent.into_error()), request }
        })
    }
}

/// A request without a response. It has the request if nothing of it was sent.
struct Unsent {
    error: String,
    request: Option<http::Request<Body>>,
}

/// A request being put together.
#[must_use]
#[derive(Debug)]
pub struct Request<'a> {
    client: &'a Client,
    request: http::Request<Body>,
}

impl Request<'_> {
    /// Adds a header. A second header with the same name is sent as well.
    pub fn header(mut self, name: impl TryInto<HeaderName>, value: &str) -> Self {
        let name = name.try_into().ok().expect("a header's name");
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header's value");
        self.request.headers_mut().append(name, value);
        self
    }

    /// Removes a header.
    pub fn without(mut self, name: &str) -> Self {
        self.request.headers_mut().remove(name);
        self
    }

    /// Asks for a response in this format.
    pub fn accept(self, accept: &str) -> Self {
        self.header("accept", accept)
    }

    /// Sets a body of any type.
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = Full::new(body.into()).boxed_unsync();
        self.request.headers_mut().remove(CONTENT_TYPE);
        self.header(CONTENT_TYPE, content_type)
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sets a YAML body.
    pub fn yaml(self, body: &str) -> Self {
        self.body("application/yaml", body.to_owned())
    }

    /// Sets a streamed body of unknown length.
    pub fn streamed(mut self, content_type: &str, body: Body) -> Self {
        *self.request.body_mut() = body;
        self.header(CONTENT_TYPE, content_type)
    }

    /// Sends the request, on a connection that an earlier request has left or on a new one, and reads the whole
    /// response.
    pub async fn send(self) -> Response {
        let what = format!("{} {}", self.request.method(), self.request.uri());
        let sent = wait::within(&what, Box::pin(self.send_reusing())).await;
        sent.unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    async fn send_reusing(self) -> Result<Response, String> {
        let Self { client, mut request } = self;
        while let Some(mut connection) = client.idle.take() {
            match connection.send_or_give_back(request).await {
                Ok(response) => {
                    let response = read(response).await?;
                    client.idle.keep(connection);
                    return Ok(response);
                }
                // The server has closed it since the last response.
                Err(Unsent { request: Some(unsent), .. }) => request = unsent,
                Err(Unsent { error, .. }) => return Err(error),
            }
        }
        let mut connection = client.connect().await?;
        let response = read(connection.send(request).await?).await?;
        client.idle.keep(connection);
        Ok(response)
    }

    /// Sends the request on a new connection, to a server that may not be running.
    ///
    /// # Errors
    /// Why there is no response, as text.
    pub async fn try_send(self) -> Result<Response, String> {
        let what = format!("{} {}", self.request.method(), self.request.uri());
        let exchange = async {
            let mut connection = self.client.connect().await?;
            self.try_send_on(&mut connection).await
        };
        wait::within(&what, Box::pin(exchange)).await
    }

    /// Like [`Request::try_send`], on an open connection.
    ///
    /// # Errors
    /// Why there is no response, as text.
    pub async fn try_send_on(self, connection: &mut Connection) -> Result<Response, String> {
        read(connection.send(self.request).await?).await
    }

    /// Sends the request and reads the response line by line. Its code has to be 200.
    pub async fn stream(self) -> Lines {
        let what = format!("{} {}", self.request.method(), self.request.uri());
        let lines = wait::within(&what, self.try_stream()).await;
        lines.unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    /// Like [`Request::stream`], for servers that may not be there.
    ///
    /// # Errors
    /// Why there is no stream, as text.
    pub async fn try_stream(self) -> Result<Lines, String> {
        let connection = self.client.connect().await?;
        self.try_stream_on(connection).await
    }

    /// Like [`Request::try_stream`], on an open connection.
    ///
    /// # Errors
    /// Why there is no stream, as text.
    pub async fn try_stream_on(self, mut connection: Connection) -> Result<Lines, String> {
        let response = connection.send(self.request).await?;
        let (parts, body) = response.into_parts();
        if parts.status != 200 {
            let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
            return Err(format!("{}: {}", parts.status, String::from_utf8_lossy(&body)));
        }
        let lines =
            Lines { headers: parts.headers, body, buffer: Vec::new(), _connection: connection };
        Ok(lines)
    }
}

async fn read(response: http::Response<Incoming>) -> Result<Response, String> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
    let status = parts.status.as_u16();
    Ok(Response { status, version: parts.version, headers: parts.headers, body })
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its status code.
    pub status: u16,
    /// The protocol version.
    pub version: http::Version,
    /// Its headers.
    pub headers: http::HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Response {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The body as JSON, after a check of the code.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The body as text, after a check of the code.
    pub fn expect_text(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        self.text()
    }

    /// One header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a readable header"))
    }

    /// The texts of the Warning headers.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values.map(|value| value.to_str().expect("a readable header").to_owned()).collect()
    }
}

/// A response that is read line by line while it arrives.
pub struct Lines {
    /// Its headers.
    pub headers: http::HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
    // HTTP/1.1 ends the connection when its sender is dropped.
    _connection: Connection,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({} bytes waiting)", self.buffer.len())
    }
}

impl Lines {
    /// The next line; `None` at the clean end.
    ///
    /// # Errors
    /// If the connection breaks, or ends within a line.
    pub async fn next(&mut self) -> Result<Option<String>, String> {
        wait::within("a line of a stream", self.next_without_deadline()).await
    }

    async fn next_without_deadline(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line).map_err(|error| error.to_string())?));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(format!("{error:?}")),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err("the stream ended within a line".to_owned()),
            }
        }
    }
}
