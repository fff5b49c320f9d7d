//! A transit engine: the two calls of `OpenBao` and Vault that encrypt and decrypt, behind TLS.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::TlsServer;

/// The token that is valid at first.
pub const TOKEN: &str = "token-of-postern";

/// A transit engine that ends with the test. Its mount is `transit`, and its key `postern`.
#[derive(Debug)]
pub struct TransitEngine {
    server: TlsServer,
    token: Arc<Mutex<String>>,
}

impl TransitEngine {
    /// Starts one.
    pub async fn start() -> Self {
        let token = Arc::new(Mutex::new(TOKEN.to_owned()));
        let valid = token.clone();
        let server = TlsServer::start(move |stream| {
            let valid = valid.clone();
            async move {
                let answer = service_fn(move |request| {
                    let valid = valid.lock().unwrap().clone();
                    async move { Ok::<_, Infallible>(answer(request, &valid).await) }
                });
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
            }
        });
        Self { server: server.await, token }
    }

    /// The value of `--keyring`.
    #[must_use]
    pub fn keyring(&self) -> String {
        format!("transit:https://{}/transit/keys/postern", self.server.address())
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.server.authority()
    }

    /// Accepts another token, and no longer the previous one.
    pub fn replace_token(&self, token: &str) {
        token.clone_into(&mut self.token.lock().unwrap());
    }
}

async fn answer(request: Request<Incoming>, token: &str) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get("authorization").cloned();
    let is_valid = authorization.is_some_and(|value| value == format!("Bearer {token}"));
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = match path.as_str() {
        _ if !is_valid => (403, json!({ "errors": ["permission denied"] })),
        "/v1/transit/encrypt/postern" => {
            let plain = BASE64.decode(body["plaintext"].as_str().unwrap()).unwrap();
            let masked: Vec<u8> = plain.iter().map(|byte| !byte).collect();
            let ciphertext = format!("vault:v1:{}", BASE64.encode(masked));
            (200, json!({ "data": { "ciphertext": ciphertext, "key_version": 1 } }))
        }
        "/v1/transit/decrypt/postern" => {
            let text = body["ciphertext"].as_str().unwrap_or_default();
            match text.strip_prefix("vault:v1:").and_then(|text| BASE64.decode(text).ok()) {
                Some(masked) => {
                    let plain: Vec<u8> = masked.iter().map(|byte| !byte).collect();
                    (200, json!({ "data": { "plaintext": BASE64.encode(plain) } }))
                }
                None => (400, json!({ "errors": ["invalid ciphertext: no prefix"] })),
            }
        }
        _ => (404, json!({ "errors": [] })),
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::new(Bytes::from(answer.to_string()))).unwrap()
}
