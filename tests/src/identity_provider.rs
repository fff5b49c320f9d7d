//! An identity provider (OpenID Connect) on loopback, honest or hostile: a test changes any of its answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};

use crate::TlsServer;
use crate::connectors::connector_to;
pub use crate::connectors::{CLIENT_ID, CLIENT_SECRET};
use crate::http::{Client, Response};
use crate::objects::make;

/// The key that signs, by its id.
const KEY_ID: &str = "key-1";

/// A provider. Dropping it leaves its listener to the end of the test.
#[derive(Debug)]
pub struct IdentityProvider {
    server: TlsServer,
    state: Arc<Mutex<State>>,
}

/// The state of a provider, which determines its responses. Each field changes one thing.
#[derive(Debug)]
pub struct State {
    /// The claims of the next ID tokens, over the usual ones. Null removes a claim.
    pub claims: Value,
    /// The header of tokens, over the usual one.
    pub header: Value,
    /// The discovery document, over the usual one.
    pub discovery: Value,
    /// The token response, over the usual one.
    pub tokens: Value,
    /// The answer of the UserInfo endpoint, over the claims of the last ID token.
    pub user_info: Value,
    /// How tokens are signed.
    pub signing: Signing,
    /// Whole answers in place of the usual ones, by path.
    pub raw: HashMap<&'static str, Raw>,
    /// The parameters that the browser brings back, over the usual ones.
    pub answer: Value,
    /// Whether refresh tokens are given.
    pub gives_refresh_tokens: bool,
    /// The paths that were asked for, in order.
    pub requests: Vec<String>,
    /// The forms that were posted to the token endpoint.
    pub forms: Vec<HashMap<String, String>>,
    /// The ids of the keys in the key set; the first one signs.
    pub key_ids: Vec<String>,
    /// How long the token endpoint takes.
    pub token_delay: Duration,
    /// The most requests that the token endpoint had at once.
    pub most_at_once: usize,
    at_once: usize,
    issuer: String,
    key: Arc<EcdsaKeyPair>,
    other_key: Arc<EcdsaKeyPair>,
    codes: HashMap<String, HashMap<String, String>>,
    refresh_tokens: HashMap<String, Value>,
    last_claims: Value,
    count: usize,
}

/// How a provider signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signing {
    /// With its key.
    Honest,
    /// With another key, which it does not publish.
    OtherKey,
    /// Not at all: the signature is empty.
    Nothing,
    /// With its key, and then changes a claim.
    ChangedAfterwards,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Its status.
    pub status: u16,
    /// Its `Location`.
    pub location: Option<String>,
    /// Its body.
    pub body: Vec<u8>,
    /// How long it takes.
    pub delay: Duration,
}

impl Raw {
    /// An answer with this status and body.
    #[must_use]
    pub fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, location: None, body: body.into(), delay: Duration::ZERO }
    }
}

fn new_key() -> Arc<EcdsaKeyPair> {
    Arc::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
}

/// The time in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl IdentityProvider {
    /// Starts an honest provider.
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            claims: json!({}),
            header: json!({}),
            discovery: json!({}),
            tokens: json!({}),
            user_info: json!({}),
            signing: Signing::Honest,
            raw: HashMap::new(),
            answer: json!({}),
            gives_refresh_tokens: false,
            requests: Vec::new(),
            forms: Vec::new(),
            key_ids: vec![KEY_ID.to_owned()],
            token_delay: Duration::ZERO,
            most_at_once: 0,
            at_once: 0,
            issuer: String::new(),
            key: new_key(),
            other_key: new_key(),
            codes: HashMap::new(),
            refresh_tokens: HashMap::new(),
            last_claims: json!({}),
            count: 0,
        }));
        let shared = state.clone();
        let server = TlsServer::start(move |stream| {
            let state = shared.clone();
            async move {
                let service = service_fn(move |request| serve(state.clone(), request));
                // A client that goes away is no failure of the test.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await;
        state.lock().unwrap().issuer = format!("https://{}", server.address());
        Self { server, state }
    }

    /// Its issuer.
    #[must_use]
    pub fn issuer(&self) -> String {
        self.state.lock().unwrap().issuer.clone()
    }

    /// Its certificate as a connector has it.
    #[must_use]
    pub fn ca_data(&self) -> String {
        BASE64_STANDARD.encode(self.server.authority())
    }

    /// The settings of a connector to it.
    #[must_use]
    pub fn connector(&self) -> Value {
        connector_to(&self.issuer(), self.server.authority())
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> Vec<u8> {
        self.server.authority().as_bytes().to_vec()
    }

    /// Changes its state, and with it its later responses.
    pub fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// How often a path was asked for.
    #[must_use]
    pub fn asked(&self, path: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|one| *one == path).count()
    }

    /// The forms that were posted to the token endpoint.
    #[must_use]
    pub fn forms(&self) -> Vec<HashMap<String, String>> {
        self.state.lock().unwrap().forms.clone()
    }

    /// Logs in as a person at the provider does. `address` is the address that the server sent the
    /// browser to. The result is the path and query that the provider sends the browser back to.
    #[must_use]
    pub fn log_in(&self, address: &str) -> String {
        let (endpoint, query) = address.split_once('?').unwrap();
        let mut state = self.state.lock().unwrap();
        assert_eq!(endpoint, format!("{}/authorize", state.issuer));
        let query = form(query);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["client_id"], CLIENT_ID);
        assert_eq!(query["code_challenge_method"], "S256");
        assert!(query["scope"].split(' ').any(|scope| scope == "openid"));
        state.count += 1;
        let code = format!("code-canary-{}", state.count);
        let usual = json!({ "code": code, "state": query["state"] });
        let answer = merged(&usual, &state.answer);
        let callback = query["redirect_uri"].clone();
        state.codes.insert(code, query);
        let path = callback.splitn(4, '/').nth(3).unwrap();
        let parameters: Vec<String> = answer
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", escape(value.as_str().unwrap())))
            .collect();
        format!("/{path}?{}", parameters.join("&"))
    }

    /// A token with these claims over the usual ones, as a platform gives it to a workload.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        let state = self.state.lock().unwrap();
        let usual = json!({ "iss": state.issuer, "iat": now(), "exp": now() + 300 });
        state.sign(&merged(&usual, claims))
    }
}

impl IdentityProvider {
    /// The thumbprint of the present key (RFC 7638), as an administrator gets it from a cluster that they trust.
    pub fn thumbprint(&self) -> String {
        thumbprint_of(&self.state.lock().unwrap().key_set()["keys"][0])
    }
}

/// The thumbprint of a key of a key set (RFC 7638).
pub fn thumbprint_of(key: &Value) -> String {
    let names =
        if key["kty"] == "RSA" { &["e", "kty", "n"][..] } else { &["crv", "kty", "x", "y"] };
    let members: Vec<String> =
        names.iter().map(|name| format!("\"{name}\":{}", key[name])).collect();
    BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, format!("{{{}}}", members.join(",")).as_bytes()))
}

impl State {
    /// Removes all changes.
    pub fn be_honest(&mut self) {
        for changed in [
            &mut self.claims,
            &mut self.header,
            &mut self.discovery,
            &mut self.tokens,
            &mut self.user_info,
            &mut self.answer,
        ] {
            *changed = json!({});
        }
        self.signing = Signing::Honest;
        self.raw.clear();
        self.key_ids = vec![KEY_ID.to_owned()];
        self.gives_refresh_tokens = false;
    }

    /// Replaces the key that signs, under another id.
    pub fn rotate_keys(&mut self, id: &str) {
        self.key = new_key();
        self.key_ids = vec![id.to_owned()];
    }

    /// Revokes all refresh tokens.
    pub fn revoke_refresh_tokens(&mut self) {
        self.refresh_tokens.clear();
    }

    fn sign(&self, claims: &Value) -> String {
        let usual = json!({ "alg": "ES256", "typ": "JWT", "kid": self.key_ids[0] });
        let header = merged(&usual, &self.header);
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let key = if self.signing == Signing::OtherKey { &self.other_key } else { &self.key };
        let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        match self.signing {
            Signing::Nothing => format!("{signed}."),
            Signing::ChangedAfterwards => {
                let changed = merged(claims, &json!({ "sub": "another-subject" }));
                format!("{}.{}.{signature}", encode(&header), encode(&changed))
            }
            Signing::Honest | Signing::OtherKey => format!("{signed}.{signature}"),
        }
    }

    /// The discovery document.
    pub fn discovery(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        let usual = json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "userinfo_endpoint": at("/userinfo"),
            "jwks_uri": at("/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "code_challenge_methods_supported": ["S256"],
        });
        merged(&usual, &self.discovery)
    }

    /// The published keys.
    pub fn key_set(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let number = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let key = |id: &String| {
            json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id,
                "x": number(&point[1..33]), "y": number(&point[33..]) })
        };
        json!({ "keys": self.key_ids.iter().map(key).collect::<Vec<_>>() })
    }

    /// The usual claims of a person, with those of the test.
    fn claims(&self, nonce: Option<&str>) -> Value {
        let mut usual = json!({
            "iss": self.issuer,
            "sub": "sub-canary-ada",
            "aud": CLIENT_ID,
            "iat": now(),
            "exp": now() + 300,
            "preferred_username": "ada",
            "name": "Ada canary",
            "email": "ada.canary@example.com",
            "email_verified": true,
            "groups": ["group-canary"],
            "sid": "sid-canary",
        });
        if let Some(nonce) = nonce {
            usual["nonce"] = json!(nonce);
        }
        merged(&usual, &self.claims)
    }

    /// Counts a request to the token endpoint. Returns how long it takes.
    fn begin_token(&mut self) -> Duration {
        self.at_once += 1;
        self.most_at_once = self.most_at_once.max(self.at_once);
        self.token_delay
    }

    fn redeem(&mut self, sent: &HashMap<String, String>) -> (u16, Value) {
        let refused = |error: &str| (400, json!({ "error": error }));
        let claims = match sent.get("grant_type").map(String::as_str) {
            Some("authorization_code") => {
                let Some(begun) = self.codes.remove(&sent["code"]) else {
                    return refused("invalid_grant");
                };
                let hash = digest(&SHA256, sent["code_verifier"].as_bytes());
                if BASE64_URL_SAFE_NO_PAD.encode(hash) != begun["code_challenge"]
                    || sent["redirect_uri"] != begun["redirect_uri"]
                {
                    return refused("invalid_grant");
                }
                self.claims(Some(&begun["nonce"]))
            }
            Some("refresh_token") => {
                if self.refresh_tokens.remove(&sent["refresh_token"]).is_none() {
                    return refused("invalid_grant");
                }
                self.claims(None)
            }
            _ => return refused("unsupported_grant_type"),
        };
        self.last_claims = claims.clone();
        let mut usual = json!({
            "access_token": "access-token-canary",
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": self.sign(&claims),
        });
        if self.gives_refresh_tokens {
            self.count += 1;
            let token = format!("refresh-token-canary-{}", self.count);
            self.refresh_tokens.insert(token.clone(), claims);
            usual["refresh_token"] = json!(token);
        }
        (200, merged(&usual, &self.tokens))
    }
}

async fn serve(
    state: Arc<Mutex<State>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get("authorization").cloned();
    // The media type that kube-apiserver alone offers for its keys.
    let accepts_keys = request.headers().get("accept").is_none_or(|accept| {
        let accept = accept.to_str().unwrap();
        ["application/jwk-set+json", "*/*"].iter().any(|one| accept.contains(one))
    });
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let sent = form(std::str::from_utf8(&body.unwrap_or_default()).unwrap());
    let raw = {
        let mut state = state.lock().unwrap();
        state.requests.push(path.clone());
        let raw = state.raw.iter().find(|(of, _)| **of == path);
        raw.map(|(_, raw)| raw.clone())
    };
    if let Some(raw) = raw {
        tokio::time::sleep(raw.delay).await;
        let mut response = http::Response::builder().status(raw.status);
        if let Some(location) = raw.location {
            response = response.header("location", location);
        }
        return Ok(response.body(Full::from(raw.body)).unwrap());
    }
    if path == "/token" {
        let delay = state.lock().unwrap().begin_token();
        tokio::time::sleep(delay).await;
        state.lock().unwrap().at_once -= 1;
    }
    let mut state = state.lock().unwrap();
    let (status, answer) = match path.as_str() {
        "/.well-known/openid-configuration" => (200, state.discovery()),
        "/openid/v1/jwks" if !accepts_keys => (406, json!({ "error": "not_acceptable" })),
        "/keys" | "/openid/v1/jwks" => (200, state.key_set()),
        "/userinfo" => {
            let claims = state.last_claims.clone();
            (200, merged(&claims, &state.user_info))
        }
        "/token" => {
            let mut sent = sent;
            if let Some(authorization) = authorization {
                sent.insert("authorization".to_owned(), authorization.to_str().unwrap().to_owned());
            }
            state.forms.push(sent.clone());
            state.redeem(&sent)
        }
        _ => (404, json!({ "error": "not_found" })),
    };
    drop(state);
    let body = Full::from(answer.to_string());
    let response = http::Response::builder().status(status);
    Ok(response.header("content-type", "application/json").body(body).unwrap())
}

/// The object with changes; null removes a field.
fn merged(usual: &Value, changes: &Value) -> Value {
    let mut merged: Map<String, Value> = usual.as_object().unwrap().clone();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            merged.remove(name);
        } else {
            merged.insert(name.clone(), value.clone());
        }
    }
    Value::Object(merged)
}

/// The fields of a form or a query.
#[must_use]
pub fn form(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), unescape(value))).collect()
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A text as a query has it.
#[must_use]
pub fn escape(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}

/// The form of an exchange of a workload's token for a key of a workload identity.
#[must_use]
pub fn exchange_form(token: &str, workload_identity: &str) -> String {
    let grant = escape("urn:ietf:params:oauth:grant-type:token-exchange");
    let kind = escape("urn:ietf:params:oauth:token-type:jwt");
    let token = escape(token);
    format!(
        "grant_type={grant}&subject_token={token}&subject_token_type={kind}&audience={workload_identity}"
    )
}

/// Posts a form to the token endpoint of a server, without a credential.
pub async fn post_form(client: &Client, form: &str) -> Response {
    let request = client.post("/auth/token").without("authorization");
    request.body("application/x-www-form-urlencoded", form.to_owned()).send().await
}

/// Makes a connected cluster a trusted issuer, and the workload identity `pod` of the user `bot` for its `ServiceAccount`
/// `deployer` in the namespace `shop`.
pub async fn make_pod_identity(admin: &Client, cluster: &str, issuer: &str, thumbprint: &str) {
    make(admin, "users", "bot", json!({})).await;
    let issuer = json!({
        "type": "Kubernetes", "cluster": cluster, "issuer": issuer, "keyThumbprints": [thumbprint],
    });
    make(admin, "trustedissuers", cluster, issuer).await;
    let spec = json!({
        "issuer": cluster,
        "match": [
            { "claim": "namespace", "values": ["shop"] },
            { "claim": "serviceaccount", "values": ["deployer"] },
        ],
        "owner": { "user": "bot" },
        "scope": { "rules": [{
            "verbs": ["get"],
            "resources": [{ "group": "management.platform.sh", "resources": ["users"] }],
        }] },
    });
    make(admin, "workloadidentities", "pod", spec).await;
}
