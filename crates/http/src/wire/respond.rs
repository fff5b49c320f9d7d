//! Makes all responses.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName,
    HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE, VARY, WARNING, X_CONTENT_TYPE_OPTIONS,
};
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use postern_auth::kube_request::KubeRequest;
use postern_flow::WatchPermit;
use postern_flow::large::{LARGE_BYTES, LargeWork};
use postern_kinds::AnyKind;
use postern_meta::decode::Format;
use postern_meta::status::{ApiError, Status};
use postern_proxy::ProxyBody;
use postern_registry::registry::EncodedObject;
use postern_registry::registry::read::ObjectPage;
use postern_registry::registry::values::{Recipient, SentValues};
use postern_registry::registry::watch::{Deliveries, Delivery};
use postern_telemetry::log_limited;

use super::body::{Body, Guards, ProxiedBody};
use super::encode::{self, Negotiated};
use super::list::{EncodedList, ListBody};
use super::websocket::{self, Content, Handshake, Socket, Tunnel};
use crate::metrics::WatchMeter;

/// The bytes above which responses are compressed for clients that accept it, as in kube-apiserver.
pub const GZIP_FROM_BYTES: usize = 128 * 1024;

/// The bytes of objects above which one step of a watch encodes them on the threads for large work. All watches can have
/// a step at the same time.
const LARGE_STEP_BYTES: usize = LARGE_BYTES / 4;

/// The bytes of all warnings of a response above which each warning is shortened.
const MAX_WARNING_BYTES: usize = 4096;
const SHORT_WARNING_CHARS: usize = 256;

/// The most warnings of a response.
const MAX_WARNINGS: usize = 50;

/// The header that makes nginx send a response on as it arrives, even with `proxy_buffering on`.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A response with objects, and the secrets whose values it has. The audit record needs both, so one cannot be taken
/// without the other.
pub struct ObjectResponse {
    response: Response<Body>,
    values: SentValues,
}

impl ObjectResponse {
    /// The response, and the secrets whose values it has.
    pub fn into_parts(self) -> (Response<Body>, SentValues) {
        (self.response, self.values)
    }

    /// The same objects in a changed response.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Response<Body>) -> Response<Body>) -> Self {
        Self { response: change(self.response), ..self }
    }
}

/// A response with an object.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn object(
    to: &Recipient,
    kind: &dyn AnyKind,
    code: StatusCode,
    object: EncodedObject,
    negotiated: Negotiated,
) -> Result<ObjectResponse, ApiError> {
    let values = to.object(kind.info(), &object, negotiated.parts);
    let bytes = encode::object(kind, object.into_json(), negotiated)?;
    let response = whole(code, negotiated.representation.content_type(), bytes);
    Ok(ObjectResponse { response: compressed(response, negotiated), values })
}

/// A response with a value that is not a stored object: a Status or a document.
pub fn value(code: StatusCode, value: &serde_json::Value, pretty: bool) -> Response<Body> {
    whole(code, "application/json", encode::value(value, Format::Json, pretty))
}

/// A response with these bytes.
pub fn whole(code: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(bytes)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with plain text, for health checks.
pub fn text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = whole(code, "text/plain; charset=utf-8", Bytes::from(text));
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// A response without a body.
pub fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = code;
    response
}

/// A response with a list, which is encoded as it is sent. A large list that is not sent in its stored encoding is
/// encoded on the threads for large work.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn list(
    to: &Recipient,
    kind: &'static dyn AnyKind,
    list: ObjectPage,
    negotiated: Negotiated,
    large: LargeWork,
) -> Result<ObjectResponse, ApiError> {
    let values = Recipient::list(kind.info(), &list.objects, negotiated.parts);
    let is_stored = negotiated.is_stored();
    let body = if is_stored {
        ListBody::stored(kind, list)
    } else {
        ListBody::encoded(kind, list, negotiated)
    };
    let mut body = body.noting(to.items(kind.info(), negotiated.parts));
    let compress = negotiated.gzip && body.source_bytes() > GZIP_FROM_BYTES;
    if compress {
        body = body.gzipped();
    }
    let content_type = negotiated.representation.content_type();
    let mut response = whole(StatusCode::OK, content_type, Bytes::new());
    *response.body_mut() = if is_stored {
        Body::List(Box::new(body))
    } else if body.source_bytes() <= LARGE_BYTES {
        Body::Whole(Some(body.whole()?))
    } else {
        Body::Encoded(EncodedList::new(body, large))
    };
    if compress {
        note_gzip(&mut response);
    }
    Ok(ObjectResponse { response, values })
}

/// The response with a compressed body, if the body is large and the client accepts it.
fn compressed(mut response: Response<Body>, negotiated: Negotiated) -> Response<Body> {
    if let Body::Whole(Some(bytes)) = response.body()
        && negotiated.gzip
        && bytes.len() > GZIP_FROM_BYTES
    {
        *response.body_mut() = Body::gzipped(bytes);
        note_gzip(&mut response);
    }
    response
}

/// Sets the headers of a compressed body.
pub fn note_gzip(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// The response of a watch: a stream with one line for each event, or with a handshake, a WebSocket with one message
/// for each event.
pub fn watch(
    to: Recipient,
    watcher: impl Deliveries,
    permit: WatchPermit,
    meter: WatchMeter,
    negotiated: Negotiated,
    handshake: Option<Handshake>,
    large: LargeWork,
) -> ObjectResponse {
    // A message of a WebSocket is one event.
    let is_joined = handshake.is_none();
    let values = Recipient::watch(watcher.kind().info(), negotiated.parts);
    let sent = values.clone();
    // The watcher is boxed, because it is moved with each event.
    let state = Some((Box::new(watcher), (permit, meter), true));
    let events = stream::unfold(state, move |state| {
        let (large, to, sent) = (large.clone(), to.clone(), sent.clone());
        async move {
            let (mut watcher, owned, first) = state?;
            let deliveries = watcher.next().await?;
            owned.1.sent(deliveries.len());
            let kind = watcher.kind();
            to.events(kind.info(), &deliveries, negotiated.parts, &sent);
            // Ages in tables are computed for now, not for the start of the watch.
            let negotiated = Negotiated { now: watcher.now(), ..negotiated };
            let bytes: usize = deliveries.iter().map(Delivery::source_bytes).sum();
            let encode =
                move || encode::deliveries(kind, &deliveries, negotiated, first, is_joined);
            let is_large = bytes > LARGE_STEP_BYTES && !encode::is_plain(negotiated);
            let lines = if is_large { large.run(encode).await } else { Ok(encode()) };
            match lines {
                Ok(lines) => Some((stream::iter(lines), Some((watcher, owned, false)))),
                // A delivery that cannot be encoded must not be skipped: the watch ends.
                Err(error) => {
                    let last = encode::delivery(kind, &Delivery::Failed(error), negotiated, first);
                    Some((stream::iter(vec![last]), None))
                }
            }
        }
    });
    let events = events.flatten().boxed();
    if let Some(handshake) = handshake {
        return ObjectResponse { response: switching(handshake, events), values };
    }
    let content_type = match negotiated.representation.format {
        Format::Json => Format::Json.media_type(),
        Format::Yaml => "application/yaml;stream=watch",
    };
    let mut response = whole(StatusCode::OK, content_type, Bytes::new());
    *response.body_mut() = Body::Stream(events);
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    ObjectResponse { response, values }
}

/// The response of a target behind the gateway, as it arrives.
pub fn proxied(
    answer: Response<ProxyBody>,
    request: &KubeRequest,
    guards: Guards,
) -> Response<Body> {
    let (is_watch, is_long) = (request.is_watch(), request.is_long());
    let mut response = answer
        .map(|body| Body::Proxied(Box::new(ProxiedBody::new(body, is_watch, is_long, guards))));
    if (is_watch || is_long) && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    response
}

/// A response to another server, as it arrives.
pub fn relayed(answer: Response<ProxyBody>) -> Response<Body> {
    let body = |body| ProxiedBody::new(body, false, true, Guards::default());
    answer.map(|answer| Body::Proxied(Box::new(body(answer))))
}

/// The connection on which another server sends long heads, as an extension of the response that opens it.
#[derive(Clone)]
pub struct LongHeads(pub OnUpgrade);

/// The response to another server's first request, after which it sends long heads.
pub fn long_heads<B>(request: Request<B>) -> Response<Body> {
    let mut response = postern_proxy::opened(Body::Whole(None));
    response.extensions_mut().insert(LongHeads(hyper::upgrade::on(request)));
    response
}

/// A response with the Status of a completed request. It has no table or metadata form.
pub fn success(status: &Status, negotiated: Negotiated) -> Response<Body> {
    let format = negotiated.representation.format;
    let bytes = encode::value(&status.to_value(), format, negotiated.pretty);
    whole(StatusCode::OK, format.media_type(), bytes)
}

/// A response with an error's Status.
pub fn error(error: &ApiError, format: Format, pretty: bool) -> Response<Body> {
    if let Some(inner) = error.inner() {
        let (code, message) = (error.code(), &error.status().message);
        if code >= 500 {
            log_limited!(warn, for message, code, inner, "{message}");
        } else {
            // Clients can repeat such errors often.
            tracing::debug!(code, inner, "{message}");
        }
    }
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = encode::value(&error.status().to_value(), format, pretty);
    let mut response = whole(code, format.media_type(), bytes);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if code == StatusCode::UPGRADE_REQUIRED {
        let version = HeaderValue::from_static(websocket::PROTOCOL_VERSION);
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
    }
    if code == StatusCode::FORBIDDEN {
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// The header with the id of a request in the audit log.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The response with the headers of all responses: audit id, caching, warnings. The response to a HEAD request loses
/// its body.
pub fn finish(
    mut response: Response<Body>,
    audit_id: &HeaderValue,
    warnings: &[String],
    head: bool,
) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, audit_id.clone());
    let caching = HeaderValue::from_static("no-cache, private");
    headers.entry(CACHE_CONTROL).or_insert(caching);
    for warning in warning_headers(warnings) {
        headers.append(WARNING, warning);
    }
    if head {
        // The length of a response from a target behind the gateway stays.
        if !response.body().is_stream()
            && let Some(length) = response.body().size_hint().exact()
        {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.body_mut() = Body::Whole(None);
    }
    response
}

fn warning_headers(warnings: &[String]) -> Vec<HeaderValue> {
    let mut unique: Vec<&str> = Vec::new();
    for warning in warnings {
        if !unique.contains(&warning.as_str()) && unique.len() < MAX_WARNINGS {
            unique.push(warning);
        }
    }
    let long = unique.iter().map(|warning| warning.len()).sum::<usize>() > MAX_WARNING_BYTES;
    let limit = if long { SHORT_WARNING_CHARS } else { usize::MAX };
    let quoted = |text: &str| {
        let mut quoted = String::from("299 - \"");
        for c in text.chars().take(limit).filter(|c| !c.is_control()) {
            if matches!(c, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        quoted.push('"');
        HeaderValue::from_bytes(quoted.as_bytes()).ok()
    };
    unique.into_iter().filter_map(quoted).collect()
}

/// The response that switches the connection to a WebSocket with these events.
pub fn switching(handshake: Handshake, events: BoxStream<'static, Bytes>) -> Response<Body> {
    switching_to(handshake, Content::Watch(events))
}

/// The response that switches the connection to a tunnel.
pub fn switching_to_tunnel(handshake: Handshake, tunnel: Tunnel) -> Response<Body> {
    switching_to(handshake, Content::Tunnel(tunnel))
}

fn switching_to(handshake: Handshake, content: Content) -> Response<Body> {
    let Handshake { accept, protocol, upgrade } = handshake;
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    *response.body_mut() = Body::Socket(Some(Box::new(Socket::new(content, upgrade))));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_unique_quoted_and_bounded() {
        let headers = warning_headers(&["a \"b\"".to_owned(), "a \"b\"".to_owned()]);
        assert_eq!(headers, vec![HeaderValue::from_static("299 - \"a \\\"b\\\"\"")]);
        let long: Vec<String> = (0..60).map(|i| format!("{i}{}", "x".repeat(500))).collect();
        let headers = warning_headers(&long);
        assert_eq!(headers.len(), MAX_WARNINGS);
        assert!(headers.iter().all(|warning| warning.len() <= SHORT_WARNING_CHARS + 8));
    }
}
