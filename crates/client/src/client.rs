//! Sending requests and reading their answers.
//!
//! Every request has a deadline, and every answer a largest size. A request is sent again only when
//! it changes nothing, and only when the server asks for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use postern_kinds::{Impersonation, SecretText};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use postern_tls::CaDigest;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::collection::Collection;
use crate::connection::{self, Sender};
use crate::error::Error;
use crate::impersonation_headers;
use crate::proxy::Proxy;
use crate::request::{
    AGENT, ApiRequest, Base, Representation, decode_object, decode_response, retry_after,
    take_continue,
};
use crate::selection::{ApplyOptions, Selection};
use crate::server_url::ServerUrl;
use crate::trust::Trust;
use crate::upgrade::Upgrader;
use crate::warnings::{WarningHandler, Warnings};
use crate::watch::Watch;

/// The largest answer that is read. The server's largest object has 3 MiB, and a page of whole
/// objects has 20 of them.
const RESPONSE_MAX_BYTES: usize = 80 * 1024 * 1024;
/// How often a request is sent that the server is too busy for.
const ATTEMPTS_MAX: usize = 4;
/// The longest wait before the next attempt that the server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// How often an object is read and replaced when others change it at the same time.
const EDITS_MAX: usize = 5;
/// How many pages of a list are read at most.
const PAGES_MAX: usize = 100_000;
/// How many names are read to suggest one.
const SOME_NAMES: usize = 500;
/// Fields that the kind does not have, and fields that occur twice, are errors: without this the
/// server would drop them and only warn.
const STRICT: &str = "fieldValidation=Strict";

/// A server, the access key for it, and how to reach it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's address.
    pub server: ServerUrl,
    /// The access key.
    pub key: SecretText,
    /// The identity to act as; `None` for the key's own bearer.
    pub impersonation: Option<Impersonation>,
    /// The certificate authorities that are trusted.
    pub trust: Trust,
    /// The name that the certificate must be for, if it is not the host's.
    pub tls_server_name: Option<String>,
    /// How long one request may take, with all its attempts.
    pub request_timeout: Duration,
}

/// The response to a form.
#[derive(Debug)]
pub struct FormResponse {
    /// The status code.
    pub code: u16,
    /// How long the server asks to wait, if it is too busy.
    pub retry_after: Option<Duration>,
    /// The JSON; null for an error without JSON.
    pub body: Value,
}

/// A client of one server with one access key. It opens its connection when it needs one.
pub struct Client {
    settings: Settings,
    authorization: HeaderValue,
    /// Empty, unless requests impersonate another user.
    impersonation: HeaderMap,
    tls: Arc<ClientConfig>,
    proxy: Option<Proxy>,
    sender: Option<Sender>,
    tasks: JoinSet<()>,
    warnings: Warnings,
    /// The `ETag` of the last answer.
    tag: Option<String>,
    /// How long the last response asked to wait.
    retry_after: Option<Duration>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that connects with its first request.
    ///
    /// # Errors
    /// When the key, or as whom to act, cannot be sent in a header, or when there is no certificate
    /// authority to trust.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let text = bearer(&settings.key);
        let mut authorization = HeaderValue::from_str(text.expose()).map_err(|_| Error::Key)?;
        authorization.set_sensitive(true);
        let impersonation = settings.impersonation.as_ref().map(impersonation_headers::headers);
        let impersonation = impersonation.transpose()?.unwrap_or_default();
        let tls = settings.trust.tls()?;
        Ok(Self {
            settings,
            authorization,
            impersonation,
            tls,
            proxy: None,
            sender: None,
            tasks: JoinSet::new(),
            warnings: Warnings::default(),
            tag: None,
            retry_after: None,
        })
    }

    /// Sets the handler of the server's warnings. It gets each warning once. Without a handler they
    /// are dropped.
    pub fn set_warning_handler(&mut self, handler: WarningHandler) {
        self.warnings.set_handler(handler);
    }

    /// Sets the proxy that connections go through; `None` for none.
    pub fn set_proxy(&mut self, proxy: Option<Proxy>) {
        self.proxy = proxy;
    }

    /// The proxy that connections go through.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Opens connections of another protocol to the same server, with the same key and the same proxy.
    pub fn upgrader(&self) -> Upgrader {
        Upgrader {
            server: self.settings.server.clone(),
            authorization: self.authorization.clone(),
            tls: self.tls.clone(),
            tls_server_name: self.settings.tls_server_name.clone(),
            proxy: self.proxy.clone(),
            timeout: self.settings.request_timeout,
        }
    }

    /// The server, the access key, and how to reach it.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The access key.
    pub fn key(&self) -> &SecretText {
        &self.settings.key
    }

    /// The server's address.
    pub fn server(&self) -> &ServerUrl {
        &self.settings.server
    }

    /// The impersonation of its requests; `None` if they are made as the key's own bearer.
    pub fn impersonation(&self) -> Option<&Impersonation> {
        self.settings.impersonation.as_ref()
    }

    /// The digest of the authority that the server is trusted by; `None` unless there is just one.
    pub fn authority(&self) -> Option<CaDigest> {
        self.settings.trust.digest()
    }

    /// Reads one whole object.
    pub async fn get(&mut self, of: Collection<'_>, name: &str) -> Result<Object, Error> {
        decode_object(self.get_as(of, name, Representation::Whole).await?)
    }

    /// Reads one object in a representation; a Table has one row.
    pub async fn get_as(
        &mut self,
        of: Collection<'_>,
        name: &str,
        representation: Representation,
    ) -> Result<Value, Error> {
        let request = ApiRequest::new(Method::GET, of.path_of(name)?);
        let request = request.query(representation.rows_query());
        self.send(request.accept(representation.accept_object())).await
    }

    /// Reads a subresource of one object, unless the caller knows its current state. `known` is the
    /// `ETag` of that state (RFC 9110 section 8.8.3), and becomes the `ETag` of the response. The
    /// result is `None` when nothing has changed.
    ///
    /// # Errors
    /// As for every request.
    pub async fn get_changed(
        &mut self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
        known: &mut Option<String>,
    ) -> Result<Option<Object>, Error> {
        let path = format!("{}/{subresource}", of.path_of(name)?);
        let request = ApiRequest { known: known.clone(), ..ApiRequest::new(Method::GET, path) };
        let value = self.send(request).await?;
        if value.is_null() {
            return Ok(None);
        }
        let object = decode_object(value)?;
        *known = self.tag.take();
        Ok(Some(object))
    }

    /// Watches a subresource of one object. `query` has the further parameters. Only its beginning
    /// has a deadline.
    ///
    /// # Errors
    /// As for every request.
    pub async fn watch_part(
        &mut self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
        query: &str,
    ) -> Result<Watch, Error> {
        let path = format!("{}/{subresource}", of.path_of(name)?);
        let query = format!("watch=true&allowWatchBookmarks=true&{query}");
        self.begin_watch(ApiRequest::new(Method::GET, path).query(query)).await
    }

    /// Posts a body to a subresource of one object, and reads the response as a watch. Unknown fields are errors. Only the
    /// beginning of the watch has a deadline.
    ///
    /// # Errors
    /// As for every request.
    pub async fn watch_posted(
        &mut self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
        body: &Object,
    ) -> Result<Watch, Error> {
        let path = format!("{}/{subresource}", of.path_of(name)?);
        let request = ApiRequest::new(Method::POST, path).query(STRICT);
        self.begin_watch(request.body("application/json", body.to_json_bytes())).await
    }

    /// Watches the objects of a collection that a selection has, from a version on. Only its beginning has a deadline.
    ///
    /// # Errors
    /// As for every request. The reason is `Expired` or `Gone` when the version is too old.
    pub async fn watch(
        &mut self,
        of: Collection<'_>,
        representation: Representation,
        selection: &Selection,
        resource_version: &str,
    ) -> Result<Watch, Error> {
        let version = utf8_percent_encode(resource_version, NON_ALPHANUMERIC);
        let query = format!(
            "watch=true&allowWatchBookmarks=true&resourceVersion={version}{}{}",
            selection.query(),
            representation.rows_parameter()
        );
        let request = ApiRequest::new(Method::GET, of.path()?).query(query);
        self.begin_watch(request.accept(representation.accept_object())).await
    }

    async fn begin_watch(&mut self, request: ApiRequest) -> Result<Watch, Error> {
        let (address, after) = (self.settings.server.authority(), self.settings.request_timeout);
        let begun = tokio::time::timeout(after, async {
            let response = self.attempt(&request).await?;
            let code = response.status();
            tracing::debug!(method = "WATCH", path = %request.path, code = code.as_u16(), "answer");
            self.warnings.receive(response.headers());
            // The watch takes the connection.
            let sender = self.sender.take();
            if code != StatusCode::OK {
                let (code, body) = self.read(response).await?;
                decode_response(code, &body)?;
                return Err(Error::NoWatch);
            }
            let address = self.settings.server.authority();
            let sender = sender.ok_or(Error::NoWatch)?;
            Ok(Watch::new(response.into_body(), sender, address, RESPONSE_MAX_BYTES))
        });
        begun.await.map_err(|_| Error::Timeout { address, after })?
    }

    /// Creates an object, or asks with one that is not stored, such as a Self. Unknown fields are
    /// errors.
    pub async fn create(&mut self, of: Collection<'_>, new: &Object) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::POST, of.path()?).query(STRICT);
        let request = request.body("application/json", new.to_json_bytes());
        decode_object(self.send(request).await?)
    }

    /// Asks the server for the result of a creation, without one.
    pub async fn create_dry_run(
        &mut self,
        of: Collection<'_>,
        new: &Object,
    ) -> Result<Object, Error> {
        let request =
            ApiRequest::new(Method::POST, of.path()?).query(format!("{STRICT}&dryRun=All"));
        let request = request.body("application/json", new.to_json_bytes());
        decode_object(self.send(request).await?)
    }

    /// Creates the object that a path at the root of the server makes without a body, such as
    /// `/auth/code`.
    ///
    /// # Errors
    /// As for every request.
    pub async fn create_at_root(&mut self, path: &str) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::POST, path.to_owned());
        decode_object(self.send(ApiRequest { base: Base::Root, ..request }).await?)
    }

    /// Deletes the object at a path at the root of the server, such as `/auth/session`.
    ///
    /// # Errors
    /// As for every request.
    pub async fn delete_at_root(&mut self, path: &str) -> Result<(), Error> {
        let request = ApiRequest::new(Method::DELETE, path.to_owned());
        self.send(ApiRequest { base: Base::Root, ..request }).await.map(drop)
    }

    /// Reads a subresource of an object.
    pub async fn get_part(
        &mut self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
    ) -> Result<Object, Error> {
        let path = format!("{}/{subresource}", of.path_of(name)?);
        decode_object(self.send(ApiRequest::new(Method::GET, path)).await?)
    }

    /// Reads one part of an object under a subresource. `parameter` is the query parameter with the name of the part.
    pub async fn get_named_part(
        &mut self,
        of: Collection<'_>,
        name: &str,
        subresource: &str,
        parameter: &str,
        part: &str,
    ) -> Result<Object, Error> {
        let path = format!("{}/{subresource}", of.path_of(name)?);
        let part = utf8_percent_encode(part, NON_ALPHANUMERIC);
        let request = ApiRequest::new(Method::GET, path).query(format!("{parameter}={part}"));
        decode_object(self.send(request).await?)
    }

    /// Reads an object of a cluster through the gateway. `path` begins behind `/kubernetes`, as in
    /// `/cluster/east/version`; the caller must have checked the names in it.
    ///
    /// # Errors
    /// The errors of the gateway, and those of the cluster.
    pub async fn get_of_gateway(&mut self, path: String) -> Result<Value, Error> {
        self.send(ApiRequest::of_gateway(path)).await
    }

    /// Posts a form to a path at the root of the server, such as `/auth/token`. Returns the response also if it is an error.
    ///
    /// # Errors
    /// If there is no response, or a successful one is not JSON.
    pub async fn post_form(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Result<FormResponse, Error> {
        let field = |(name, value): &(&str, &str)| {
            format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        };
        let form = fields.iter().map(field).collect::<Vec<_>>().join("&");
        let request =
            ApiRequest { base: Base::Root, ..ApiRequest::new(Method::POST, path.to_owned()) };
        let request = request.body("application/x-www-form-urlencoded", form.into_bytes());
        let (code, body) = self.exchange(&request).await?;
        let decoded = decode_response(StatusCode::OK, &body);
        // A load balancer answers with its own pages.
        let body = if code.is_success() { decoded? } else { decoded.unwrap_or_default() };
        Ok(FormResponse { code: code.as_u16(), retry_after: self.retry_after, body })
    }

    /// Reads JSON at a path, which may have a query, at the root of the server. One parameter is added to the query.
    ///
    /// # Errors
    /// As for every request.
    pub async fn get_at_root(
        &mut self,
        path: &str,
        name: &str,
        value: &str,
    ) -> Result<Value, Error> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{mark}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        let request = ApiRequest::new(Method::GET, path).accept("application/json");
        self.send(ApiRequest { base: Base::Root, ..request }).await
    }

    /// Has the server carry out an action on an object, or only check whether it would. Unknown fields are
    /// errors.
    pub async fn act(
        &mut self,
        of: Collection<'_>,
        name: &str,
        action: &str,
        body: &Object,
        dry_run: bool,
    ) -> Result<Object, Error> {
        let path = format!("{}/{action}", of.path_of(name)?);
        let query = if dry_run { format!("{STRICT}&dryRun=All") } else { STRICT.to_owned() };
        let request = ApiRequest::new(Method::POST, path).query(query);
        let request = request.body("application/json", body.to_json_bytes());
        decode_object(self.send(request).await?)
    }

    /// Changes parts of an object by a JSON merge patch (RFC 7396).
    pub async fn merge_patch(
        &mut self,
        of: Collection<'_>,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::PATCH, of.path_of(name)?)
            .body("application/merge-patch+json", patch.to_string().into_bytes());
        decode_object(self.send(request).await?)
    }

    /// Asks the server for the result of a merge patch, without a change.
    pub async fn merge_patch_dry_run(
        &mut self,
        of: Collection<'_>,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::PATCH, of.path_of(name)?)
            .query("dryRun=All")
            .body("application/merge-patch+json", patch.to_string().into_bytes());
        decode_object(self.send(request).await?)
    }

    /// Changes parts of an object by a JSON merge patch, as a field manager. Unknown fields are errors.
    pub async fn merge_patch_as(
        &mut self,
        of: Collection<'_>,
        name: &str,
        patch: &Value,
        field_manager: &str,
    ) -> Result<Object, Error> {
        let manager = utf8_percent_encode(field_manager, NON_ALPHANUMERIC);
        let request = ApiRequest::new(Method::PATCH, of.path_of(name)?)
            .query(format!("fieldManager={manager}&{STRICT}"))
            .body("application/merge-patch+json", patch.to_string().into_bytes());
        decode_object(self.send(request).await?)
    }

    /// Applies an object: server-side apply creates it, or changes the fields that the field manager owns. Unknown
    /// fields are errors.
    pub async fn apply(
        &mut self,
        of: Collection<'_>,
        object: &Object,
        options: ApplyOptions<'_>,
    ) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::PATCH, of.path_of(&object.metadata.name)?)
            .query(options.query())
            .body("application/apply-patch+yaml", object.to_json_bytes());
        decode_object(self.send(request).await?)
    }

    /// Changes only parts of the status of an object, by a JSON merge patch.
    pub async fn merge_patch_status(
        &mut self,
        of: Collection<'_>,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        let request = ApiRequest::new(Method::PATCH, format!("{}/status", of.path_of(name)?))
            .body("application/merge-patch+json", patch.to_string().into_bytes());
        decode_object(self.send(request).await?)
    }

    /// Replaces an object by one with the same name. With a resourceVersion in it, the server refuses
    /// (409) when the object has been changed since. Unknown fields are errors.
    pub async fn update(&mut self, of: Collection<'_>, new: &Object) -> Result<Object, Error> {
        let path = of.path_of(&new.metadata.name)?;
        let request = ApiRequest::new(Method::PUT, path).query(STRICT);
        let request = request.body("application/json", new.to_json_bytes());
        decode_object(self.send(request).await?)
    }

    /// Reads an object, changes it and replaces it; starts again when others have changed it
    /// meanwhile. `change` returns whether there is anything to write, and may be called several times,
    /// each time with the object as it is then. Returns the object as it was written, or as it was read
    /// where there was nothing to write.
    ///
    /// # Errors
    /// Those of reading and replacing: a conflict only after several attempts.
    pub async fn edit(
        &mut self,
        of: Collection<'_>,
        name: &str,
        mut change: impl FnMut(&mut Object) -> bool,
    ) -> Result<Object, Error> {
        for attempt in 1.. {
            let mut object = self.get(of, name).await?;
            if !change(&mut object) {
                return Ok(object);
            }
            match self.update(of, &object).await {
                Err(error) if error.reason() == Some(Reason::Conflict) && attempt < EDITS_MAX => {
                    tracing::debug!(attempt, "another writer changed the object");
                }
                answer => return answer,
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Deletes an object. Returns the object if it is still there, because it waits for its
    /// finalizers.
    pub async fn delete(
        &mut self,
        of: Collection<'_>,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        self.delete_with(of, name, "").await
    }

    /// Deletes an object only if it is the one that was read, and unchanged. Another one is a conflict.
    pub async fn delete_unchanged(
        &mut self,
        of: Collection<'_>,
        read: &Object,
    ) -> Result<Option<Object>, Error> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let ObjectMeta { uid, resource_version, .. } = &read.metadata;
        let query = format!(
            "preconditions.uid={}&preconditions.resourceVersion={}",
            encoded(uid),
            encoded(resource_version)
        );
        self.delete_with(of, &read.metadata.name, &query).await
    }

    /// Asks the server for the result of a deletion, without a change.
    pub async fn delete_dry_run(
        &mut self,
        of: Collection<'_>,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        self.delete_with(of, name, "dryRun=All").await
    }

    async fn delete_with(
        &mut self,
        of: Collection<'_>,
        name: &str,
        query: &str,
    ) -> Result<Option<Object>, Error> {
        let request = ApiRequest::new(Method::DELETE, of.path_of(name)?).query(query);
        let answer = decode_object(self.send(request).await?)?;
        Ok((answer.kind != "Status").then_some(answer))
    }

    /// Reads all objects, page by page, and returns them as one list.
    pub async fn list(
        &mut self,
        of: Collection<'_>,
        representation: Representation,
    ) -> Result<Value, Error> {
        self.list_selected(of, representation, &Selection::default()).await
    }

    /// The same for the objects of a selection.
    pub async fn list_selected(
        &mut self,
        of: Collection<'_>,
        representation: Representation,
        selection: &Selection,
    ) -> Result<Value, Error> {
        let path = of.path()?;
        let selection = selection.query();
        let items = representation.items_field();
        let mut whole = self.page(&path, representation, &selection, "").await?;
        let mut next = take_continue(&mut whole);
        for _ in 0..PAGES_MAX {
            if next.is_empty() {
                return Ok(whole);
            }
            let mut page = self.page(&path, representation, &selection, &next).await?;
            next = take_continue(&mut page);
            if let (Some(Value::Array(all)), Some(Value::Array(more))) =
                (whole.get_mut(items), page.get_mut(items))
            {
                all.append(more);
            }
        }
        Err(Error::Unexpected {
            code: 200,
            what: "the server returns pages without \
                                                  end"
            .to_owned(),
        })
    }

    /// The names of the first objects, to suggest one instead of a mistyped name, or the rest of one. It is one request.
    pub async fn some_names(&mut self, of: Collection<'_>) -> Result<Vec<String>, Error> {
        let request = ApiRequest::new(Method::GET, of.path()?).query(format!("limit={SOME_NAMES}"));
        let mut list = self.send(request.accept(Representation::Metadata.accept_list())).await?;
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Ok(Vec::new());
        };
        let name = |item: Value| item["metadata"]["name"].as_str().map(str::to_owned);
        Ok(items.into_iter().filter_map(name).collect())
    }

    async fn page(
        &mut self,
        path: &str,
        representation: Representation,
        selection: &str,
        next: &str,
    ) -> Result<Value, Error> {
        let rows = representation.rows_parameter();
        let mut query = format!("limit={}{selection}{rows}", representation.page_size());
        if !next.is_empty() {
            let next = utf8_percent_encode(next, NON_ALPHANUMERIC);
            query = format!("{query}&continue={next}");
        }
        let request = ApiRequest::new(Method::GET, path.to_owned()).query(query);
        self.send(request.accept(representation.accept_list())).await
    }

    /// Sends within the deadline, and decodes the answer.
    async fn send(&mut self, request: ApiRequest) -> Result<Value, Error> {
        let (code, body) = self.exchange(&request).await?;
        decode_response(code, &body)
    }

    /// Sends within the deadline.
    async fn exchange(&mut self, request: &ApiRequest) -> Result<(StatusCode, Bytes), Error> {
        let after = self.settings.request_timeout;
        let address = self.settings.server.authority();
        let answered = tokio::time::timeout(after, self.attempts(request)).await;
        if answered.is_err() {
            // The answer may still arrive there, and must not be taken for the next request's.
            self.sender = None;
        }
        answered.map_err(|_| Error::Timeout { address, after })?
    }

    async fn attempts(&mut self, request: &ApiRequest) -> Result<(StatusCode, Bytes), Error> {
        for attempt in 1.. {
            let response = self.attempt(request).await?;
            let code = response.status();
            tracing::debug!(
                method = %request.method,
                path = %request.path,
                code = code.as_u16(),
                "answer"
            );
            self.warnings.receive(response.headers());
            let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
            self.tag = tag.map(str::to_owned);
            self.retry_after = retry_after(code, response.headers());
            let wait = self
                .retry_after
                .filter(|wait| *wait <= RETRY_AFTER_MAX)
                .filter(|_| request.method.is_idempotent() && attempt < ATTEMPTS_MAX);
            let (code, body) = self.read(response).await?;
            match wait {
                None => return Ok((code, body)),
                Some(wait) => {
                    tracing::debug!(seconds = wait.as_secs(), "the server asks to wait");
                    tokio::time::sleep(wait).await;
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt(&mut self, request: &ApiRequest) -> Result<Response<Incoming>, Error> {
        let request = self.http_request(request)?;
        let address = self.settings.server.authority();
        let mut sender = self.ready_sender().await?;
        let sent = sender.send_request(request).await;
        let response = sent.map_err(|error| Error::Lost { address, reason: error.to_string() })?;
        self.sender = Some(sender);
        Ok(response)
    }

    /// The connection of last time, or a new one where that has been closed meanwhile.
    async fn ready_sender(&mut self) -> Result<Sender, Error> {
        if let Some(mut open) = self.sender.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        tracing::debug!(server = %self.settings.server, "connect");
        let name = self.settings.tls_server_name.as_deref();
        let (server, proxy) = (&self.settings.server, self.proxy.as_ref());
        connection::open(server, proxy, name, &self.tls, &mut self.tasks).await
    }

    fn http_request(&self, wanted: &ApiRequest) -> Result<Request<Full<Bytes>>, Error> {
        let server = &self.settings.server;
        let base = match wanted.base {
            Base::Management => server.base_path(),
            Base::Gateway => server.gateway_path(),
            Base::Root => server.root_path(),
        };
        let mut request = Request::builder()
            .method(wanted.method.clone())
            .uri(format!("{base}{}", wanted.path_and_query()))
            .header(HOST, server.authority())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, wanted.accept)
            .header(AUTHORIZATION, self.authorization.clone());
        if let Some(content_type) = wanted.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(known) = &wanted.known {
            request = request.header(IF_NONE_MATCH, known);
        }
        let body = Full::new(wanted.body.clone());
        let mut request = request.body(body).map_err(|_| Error::Name(wanted.path.clone()))?;
        request.headers_mut().extend(self.impersonation.clone());
        Ok(request)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<(StatusCode, Bytes), Error> {
        let code = response.status();
        let read = Limited::new(response.into_body(), RESPONSE_MAX_BYTES).collect().await;
        match read {
            Ok(body) => Ok((code, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Error::TooLarge { limit_bytes: RESPONSE_MAX_BYTES })
            }
            Err(error) => Err(Error::Lost {
                address: self.settings.server.authority(),
                reason: error.to_string(),
            }),
        }
    }
}

fn bearer(key: &SecretText) -> SecretText {
    SecretText::from(format!("Bearer {}", key.expose()))
}
