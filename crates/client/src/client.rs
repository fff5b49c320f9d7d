//! Requests and their answers.
//!
//! Every request has a deadline, every answer a limit to its size. Only what changes nothing when
//! it is repeated is repeated, and only when the server asks for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use postern_kinds::{Impersonation, Kind, SecretText};
use postern_meta::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::Status;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::collection::Collection;
use crate::connection::{self, Sender};
use crate::error::Error;
use crate::impersonation;
use crate::server_url::ServerUrl;
use crate::trust::Trust;

/// The largest answer that is read. The server's largest object has 3 MiB; see [`Form::page`].
const ANSWER_MAX_BYTES: usize = 80 * 1024 * 1024;
/// How often a request is sent that the server is too busy for.
const ATTEMPTS_MAX: usize = 4;
/// The longest that the server may ask to wait before the next attempt.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// How many pages a list is followed.
const PAGES_MAX: usize = 100_000;
/// What we say that we are.
const AGENT: &str = concat!("postern/", env!("CARGO_PKG_VERSION"));

/// A server, and who comes to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it is.
    pub server: ServerUrl,
    /// The access key.
    pub key: SecretText,
    /// As whom to act; without, as the key's own bearer.
    pub impersonation: Option<Impersonation>,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// The name that the certificate must be for, if it is not the host's.
    pub tls_server_name: Option<String>,
    /// How long one request may take, with all its attempts.
    pub request_timeout: Duration,
}

/// How a list is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Whole objects, values included.
    Whole,
    /// What `kubectl get` shows: the server's columns, no values.
    Table,
    /// Metadata alone.
    Metadata,
}

impl Form {
    fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Table => "application/json;as=Table;g=meta.k8s.io;v=v1",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }

    /// Objects in a page, such that a page of the largest stays below [`ANSWER_MAX_BYTES`].
    fn page(self) -> usize {
        match self {
            Self::Whole => 20,
            // An object's annotations have at most 256 KiB.
            Self::Table | Self::Metadata => 200,
        }
    }

    /// The list's field in which its parts are.
    fn parts(self) -> &'static str {
        if self == Self::Table { "rows" } else { "items" }
    }
}

/// One server and one access key, over one connection that is made when it is needed.
pub struct Client {
    settings: Settings,
    authorization: HeaderValue,
    /// Asks to act as somebody else, if that is wanted.
    impersonation: HeaderMap,
    tls: Arc<ClientConfig>,
    sender: Option<Sender>,
    tasks: JoinSet<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// An object's own fields, as its kind has them.
///
/// # Errors
/// [`Error::Unexpected`] when they do not fit.
pub fn fields<K: Kind>(object: &Object) -> Result<K::Fields, Error> {
    let bytes = postern_meta::object::json_bytes(&object.fields);
    decode_typed(&bytes).map_err(|error| Error::Unexpected {
        code: StatusCode::OK.as_u16(),
        what: format!("the answer is no {}: {error}", K::INFO.kind),
    })
}

impl Client {
    /// Does not connect yet.
    ///
    /// # Errors
    /// When the key, or as whom to act, cannot stand in a header, or nobody can be trusted.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let text = zeroizing_bearer(&settings.key);
        let mut authorization = HeaderValue::from_str(text.expose()).map_err(|_| Error::Key)?;
        authorization.set_sensitive(true);
        let impersonation = settings.impersonation.as_ref().map(impersonation::headers);
        let impersonation = impersonation.transpose()?.unwrap_or_default();
        let tls = settings.trust.tls()?;
        let tasks = JoinSet::new();
        Ok(Self { settings, authorization, impersonation, tls, sender: None, tasks })
    }

    /// Where the server is.
    pub fn server(&self) -> &ServerUrl {
        &self.settings.server
    }

    /// As whom is acted, if not as the key's own bearer.
    pub fn impersonation(&self) -> Option<&Impersonation> {
        self.settings.impersonation.as_ref()
    }

    /// Reads one object.
    pub async fn get(&mut self, of: Collection<'_>, name: &str) -> Result<Object, Error> {
        let answer = self.send(Ask::new(Method::GET, of.path_of(name)?)).await?;
        object(answer)
    }

    /// Makes an object, which may be one that is only asked, such as a Self.
    pub async fn create(&mut self, of: Collection<'_>, new: &Object) -> Result<Object, Error> {
        let ask = Ask::new(Method::POST, of.path()?).body("application/json", new.to_json_bytes());
        object(self.send(ask).await?)
    }

    /// Changes parts of an object by a JSON merge patch.
    pub async fn merge_patch(
        &mut self,
        of: Collection<'_>,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        let ask = Ask::new(Method::PATCH, of.path_of(name)?)
            .body("application/merge-patch+json", patch.to_string().into_bytes());
        object(self.send(ask).await?)
    }

    /// Deletes an object. `Some` is the object that lingers, because somebody must do something
    /// before it goes.
    pub async fn delete(
        &mut self,
        of: Collection<'_>,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        let answer = object(self.send(Ask::new(Method::DELETE, of.path_of(name)?)).await?)?;
        Ok((answer.kind != "Status").then_some(answer))
    }

    /// Everything that there is, page by page, as one list of the given form.
    pub async fn list(&mut self, of: Collection<'_>, form: Form) -> Result<Value, Error> {
        let path = of.path()?;
        let mut whole = self.page(&path, form, "").await?;
        let mut next = take_continue(&mut whole);
        for _ in 0..PAGES_MAX {
            if next.is_empty() {
                return Ok(whole);
            }
            let mut page = self.page(&path, form, &next).await?;
            next = take_continue(&mut page);
            if let (Some(Value::Array(all)), Some(Value::Array(more))) =
                (whole.get_mut(form.parts()), page.get_mut(form.parts()))
            {
                all.append(more);
            }
        }
        Err(Error::Unexpected { code: 200, what: "the list does not end".to_owned() })
    }

    /// The names of the first objects that there are: for telling somebody who mistyped one.
    pub async fn some_names(&mut self, of: Collection<'_>) -> Result<Vec<String>, Error> {
        let mut list = self.page(&of.path()?, Form::Metadata, "").await?;
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Ok(Vec::new());
        };
        let name = |item: Value| item["metadata"]["name"].as_str().map(str::to_owned);
        Ok(items.into_iter().filter_map(name).collect())
    }

    async fn page(&mut self, path: &str, form: Form, next: &str) -> Result<Value, Error> {
        let mut query = format!("limit={}", form.page());
        if !next.is_empty() {
            let next =
                percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC);
            query = format!("{query}&continue={next}");
        }
        let mut ask = Ask::new(Method::GET, path.to_owned());
        ask.query = query;
        ask.accept = form.accept();
        self.send(ask).await
    }

    /// Sends within the deadline.
    async fn send(&mut self, ask: Ask) -> Result<Value, Error> {
        let after = self.settings.request_timeout;
        let address = self.settings.server.authority();
        let answered = tokio::time::timeout(after, self.attempts(&ask)).await;
        if answered.is_err() {
            // What the connection is in the middle of is for nobody.
            self.sender = None;
        }
        answered.map_err(|_| Error::Timeout { address, after })?
    }

    async fn attempts(&mut self, ask: &Ask) -> Result<Value, Error> {
        for attempt in 1.. {
            let response = self.attempt(ask).await?;
            let code = response.status();
            tracing::debug!(method = %ask.method, path = %ask.path, code = code.as_u16(), "answer");
            let wait = retry_after(&response)
                .filter(|wait| *wait <= RETRY_AFTER_MAX)
                .filter(|_| ask.is_idempotent() && attempt < ATTEMPTS_MAX);
            let (code, body) = self.read(response).await?;
            match wait {
                None => return answer(code, &body),
                Some(wait) => {
                    tracing::debug!(seconds = wait.as_secs(), "the server asks to wait");
                    tokio::time::sleep(wait).await;
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt(&mut self, ask: &Ask) -> Result<Response<Incoming>, Error> {
        let request = self.request(ask)?;
        let address = self.settings.server.authority();
        let mut sender = self.sender_that_is_ready().await?;
        let sent = sender.send_request(request).await;
        let response = sent.map_err(|error| Error::Lost { address, reason: error.to_string() })?;
        self.sender = Some(sender);
        Ok(response)
    }

    /// The connection of last time, unless it was closed while nobody used it.
    async fn sender_that_is_ready(&mut self) -> Result<Sender, Error> {
        if let Some(mut open) = self.sender.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        self.connect().await
    }

    async fn connect(&mut self) -> Result<Sender, Error> {
        tracing::debug!(server = %self.settings.server, "connect");
        let name = self.settings.tls_server_name.as_deref();
        connection::open(&self.settings.server, name, &self.tls, &mut self.tasks).await
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Error> {
        let server = &self.settings.server;
        let mark = if ask.query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}{mark}{}", server.base_path(), ask.path, ask.query))
            .header(HOST, server.authority())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, ask.accept)
            .header(AUTHORIZATION, self.authorization.clone());
        if let Some(content_type) = ask.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let body = Full::new(ask.body.clone());
        let mut request = request.body(body).map_err(|_| Error::Name(ask.path.clone()))?;
        request.headers_mut().extend(self.impersonation.clone());
        Ok(request)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<(StatusCode, Bytes), Error> {
        let code = response.status();
        let read = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
        match read {
            Ok(body) => Ok((code, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Error::TooLarge { limit_bytes: ANSWER_MAX_BYTES })
            }
            Err(error) => Err(Error::Lost {
                address: self.settings.server.authority(),
                reason: error.to_string(),
            }),
        }
    }
}

/// A request, as it can be sent again.
struct Ask {
    method: Method,
    path: String,
    query: String,
    accept: &'static str,
    content_type: Option<&'static str>,
    body: Bytes,
}

impl Ask {
    fn new(method: Method, path: String) -> Self {
        Self {
            method,
            path,
            query: String::new(),
            accept: Form::Whole.accept(),
            content_type: None,
            body: Bytes::new(),
        }
    }

    fn body(self, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { content_type: Some(content_type), body: body.into(), ..self }
    }

    fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }
}

fn zeroizing_bearer(key: &SecretText) -> SecretText {
    SecretText::from(format!("Bearer {}", key.expose()))
}

/// How long the server asks to wait, in an answer that says it is too busy.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    if !busy.contains(&response.status()) {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The answer's value, or the server's reason why there is none.
fn answer(code: StatusCode, body: &[u8]) -> Result<Value, Error> {
    let unexpected = |what: &str| Error::Unexpected { code: code.as_u16(), what: what.to_owned() };
    if code.is_success() {
        return decode_typed(body)
            .map_err(|error| unexpected(&format!("the answer is not JSON: {error}")));
    }
    match decode_typed::<Status>(body) {
        Ok(status) if status.kind == "Status" => {
            Err(Error::Status(Box::new(Status { code: code.as_u16(), ..status })))
        }
        _ => Err(unexpected("the answer is not one that this kind of server gives")),
    }
}

fn object(answer: Value) -> Result<Object, Error> {
    // A Status says in a text what an object says in a field of its own.
    let answer = match answer {
        Value::Object(fields) if fields.get("kind") == Some(&json!("Status")) => {
            return Ok(Object { kind: "Status".to_owned(), fields, ..Object::default() });
        }
        answer => answer,
    };
    Object::from_value(answer).map_err(|what| Error::Unexpected { code: 200, what })
}

/// Takes the token of the next page out of a list; empty when this was the last.
fn take_continue(list: &mut Value) -> String {
    let metadata = list.get_mut("metadata").and_then(Value::as_object_mut);
    match metadata.and_then(|metadata| {
        metadata.remove("remainingItemCount");
        metadata.remove("continue")
    }) {
        Some(Value::String(token)) => token,
        _ => String::new(),
    }
}
