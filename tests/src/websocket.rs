//! Watches over a WebSocket, read by a library that the server does not use.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::http::Client;
use crate::objects::collection;
use crate::wait;
use crate::watching::Event;

/// An open WebSocket.
pub struct Socket {
    /// The headers of the answer.
    pub headers: HeaderMap,
    stream: WebSocketStream<TlsStream<TcpStream>>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Socket({:?})", self.headers)
    }
}

/// A message, a close, or the end of a WebSocket connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    /// A text message.
    Text(String),
    /// A close, with its code.
    Close(Option<u16>),
    /// The end of the connection.
    End,
}

impl Client {
    /// Opens a WebSocket with these headers, which contain the credential.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub async fn websocket(&self, path: &str, headers: &[(&str, &str)]) -> Result<Socket, String> {
        wait::within("a WebSocket", Box::pin(self.try_websocket(path, headers))).await
    }

    async fn try_websocket(&self, path: &str, headers: &[(&str, &str)]) -> Result<Socket, String> {
        let stream = self.raw().await.map_err(|error| error.to_string())?;
        let mut request = Request::get(format!("wss://{}{path}", self.address()))
            .header("host", self.address())
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).map_err(|error| error.to_string())?;
        let opened = tokio_tungstenite::client_async(request, stream).await;
        let (stream, answer) = opened.map_err(|error| error.to_string())?;
        Ok(Socket { headers: answer.headers().clone(), stream })
    }
}

/// The tunnel of an agent, in the hands of a test.
#[derive(Debug)]
pub struct RawTunnel(Socket);

impl Client {
    /// Opens a tunnel to a cluster as an agent of this name, with the client's key.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub async fn tunnel(&self, cluster: &str, agent: &str) -> Result<RawTunnel, String> {
        let bearer = format!("Bearer {}", self.token());
        let headers = [
            ("sec-websocket-protocol", "v1.tunnel.platform.sh"),
            ("platform-agent-name", agent),
            ("authorization", &*bearer),
        ];
        let path = format!("{}/{cluster}/tunnel", collection("clusters"));
        Ok(RawTunnel(self.websocket(&path, &headers).await?))
    }
}

impl RawTunnel {
    /// Sends bytes of the stream in one message. False when the server has closed the tunnel.
    pub async fn send(&mut self, bytes: impl Into<Bytes>) -> bool {
        self.0.stream.send(Message::binary(bytes.into())).await.is_ok()
    }

    /// Sends a text message, which no tunnel has.
    pub async fn send_text(&mut self, text: &str) -> bool {
        self.0.stream.send(Message::text(text)).await.is_ok()
    }

    /// The next bytes of the stream; `None` at the end of the tunnel.
    pub async fn bytes(&mut self) -> Option<Bytes> {
        loop {
            match self.0.stream.next().await? {
                Ok(Message::Binary(bytes)) => return Some(bytes),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// The head of the next request; `None` at the end of the tunnel.
    pub async fn request(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            head.extend_from_slice(&self.bytes().await?);
        }
        Some(String::from_utf8_lossy(&head).into_owned())
    }
}

impl Socket {
    /// The next message, close or end. Pings are skipped.
    pub async fn received(&mut self) -> Received {
        wait::within("a message", Box::pin(self.received_without_deadline())).await
    }

    async fn received_without_deadline(&mut self) -> Received {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Received::Text(text.as_str().to_owned()),
                Some(Ok(Message::Close(close))) => {
                    return Received::Close(close.map(|close| close.code.into()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("neither text nor control: {other:?}"),
                Some(Err(_)) | None => return Received::End,
            }
        }
    }

    /// The next event of a watch. One message is one JSON document.
    pub async fn event(&mut self) -> Event {
        let Received::Text(text) = self.received().await else { panic!("the watch has ended") };
        let mut event: Value = serde_json::from_str(&text).expect("a message is a JSON document");
        let kind = event["type"].as_str().expect("an event has a type").to_owned();
        Event { kind, object: event["object"].take() }
    }

    /// Sends a close, and waits for the answer.
    pub async fn close(mut self) -> Received {
        self.stream.close(None).await.expect("a close can be sent");
        self.received().await
    }

    /// Sends a text, as no client of a watch has to.
    pub async fn say(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.expect("a text can be sent");
    }
}
