//! The only place that makes a response.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY,
    WARNING, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use postern_kinds::AnyKind;
use postern_meta::accept::Transform;
use postern_meta::decode::Format;
use postern_meta::status::ApiError;

use super::body::{Body, ListBody};
use super::encode::{self, Wanted};
use crate::metrics::WatchMeter;
use crate::registry::EncodedObject;
use crate::registry::read::ObjectPage;
use crate::registry::watch::Watcher;
use crate::stages::flow::WatchSlot;

/// Answers longer than this are compressed for clients that accept it, as upstream.
pub(crate) const GZIP_FROM_BYTES: usize = 128 * 1024;

/// All warnings of one answer; above it each is shortened.
const MAX_WARNING_BYTES: usize = 4096;
const SHORT_WARNING_CHARS: usize = 256;

/// Warnings of one answer.
const MAX_WARNINGS: usize = 50;

/// An object.
pub(crate) fn object(
    kind: &dyn AnyKind,
    code: StatusCode,
    object: EncodedObject,
    wanted: Wanted,
) -> Result<Response<Body>, ApiError> {
    let bytes = encode::object(kind, object.json, wanted)?;
    Ok(compressed(whole(code, wanted.representation.content_type(), bytes), wanted))
}

/// A value that is no stored object: a Status, a document.
pub(crate) fn value(code: StatusCode, value: &serde_json::Value, pretty: bool) -> Response<Body> {
    whole(code, "application/json", encode::value(value, Format::Json, pretty))
}

/// Bytes that are ready.
pub(crate) fn whole(code: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(bytes)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Plain text, for health checks.
pub(crate) fn text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = whole(code, "text/plain; charset=utf-8", Bytes::from(text));
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// An answer without a body.
pub(crate) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = code;
    response
}

/// A list: streamed when it is plain JSON, else put together.
pub(crate) fn list(
    kind: &dyn AnyKind,
    list: ObjectPage,
    wanted: Wanted,
) -> Result<Response<Body>, ApiError> {
    let content_type = wanted.representation.content_type();
    let plain = wanted.representation.format == Format::Json
        && matches!(wanted.representation.transform, Transform::None);
    if !plain || wanted.pretty {
        let bytes = encode::list(kind, &list, wanted)?;
        return Ok(compressed(whole(StatusCode::OK, content_type, bytes), wanted));
    }
    let mut body = ListBody::new(encode::list_head(kind, &list), list.objects);
    let compress = wanted.gzip && body.plain_bytes() > GZIP_FROM_BYTES;
    if compress {
        body = body.gzipped();
    }
    let mut response = whole(StatusCode::OK, content_type, Bytes::new());
    *response.body_mut() = Body::List(Box::new(body));
    if compress {
        note_gzip(&mut response);
    }
    Ok(response)
}

/// A whole body, compressed if it is large and the client accepts that.
fn compressed(mut response: Response<Body>, wanted: Wanted) -> Response<Body> {
    if let Body::Whole(Some(bytes)) = response.body()
        && wanted.gzip
        && bytes.len() > GZIP_FROM_BYTES
    {
        *response.body_mut() = Body::gzipped(bytes);
        note_gzip(&mut response);
    }
    response
}

/// Says that the body is compressed.
pub(crate) fn note_gzip(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// A watch: a stream of events, one line each, that ends when the watch does.
pub(crate) fn watch(
    watcher: Watcher,
    slot: WatchSlot,
    meter: WatchMeter,
    wanted: Wanted,
) -> Response<Body> {
    // In a box, because each event hands it on by value.
    let state = (Box::new(watcher), (slot, meter), true);
    let events = stream::unfold(state, move |(mut watcher, held, first)| async move {
        let deliveries = watcher.next().await?;
        held.1.sent(deliveries.len());
        let kind = watcher.kind();
        let lines = deliveries.into_iter().enumerate().map(move |(index, delivery)| {
            encode::delivery(kind, &delivery, wanted, first && index == 0)
        });
        Some((stream::iter(lines), (watcher, held, false)))
    });
    let content_type = match wanted.representation.format {
        Format::Json => Format::Json.media_type(),
        Format::Yaml => "application/yaml;stream=watch",
    };
    let mut response = whole(StatusCode::OK, content_type, Bytes::new());
    *response.body_mut() = Body::Stream(events.flatten().boxed());
    response
}

/// A Status that tells what went wrong.
pub(crate) fn error(error: &ApiError, format: Format, pretty: bool) -> Response<Body> {
    if let Some(inner) = error.inner() {
        tracing::warn!(code = error.code(), inner, "{}", error.status().message);
    }
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = encode::value(&error.status().to_value(), format, pretty);
    let mut response = whole(code, format.media_type(), bytes);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if code == StatusCode::FORBIDDEN {
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// What every answer carries: the audit id, caching rules, warnings; a HEAD request's has no
/// body.
pub(crate) fn finish(
    mut response: Response<Body>,
    audit_id: &HeaderValue,
    warnings: &[String],
    head: bool,
) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert("audit-id", audit_id.clone());
    let caching = HeaderValue::from_static("no-cache, private");
    headers.entry(CACHE_CONTROL).or_insert(caching);
    for warning in warning_headers(warnings) {
        headers.append(WARNING, warning);
    }
    if head {
        use http_body::Body as _;
        if let Some(length) = response.body().size_hint().exact() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_unique_quoted_and_bounded() {
        let shown = warning_headers(&["a \"b\"".to_owned(), "a \"b\"".to_owned()]);
        assert_eq!(shown, vec![HeaderValue::from_static("299 - \"a \\\"b\\\"\"")]);
        let long: Vec<String> = (0..60).map(|i| format!("{i}{}", "x".repeat(500))).collect();
        let shown = warning_headers(&long);
        assert_eq!(shown.len(), MAX_WARNINGS);
        assert!(shown.iter().all(|warning| warning.len() <= SHORT_WARNING_CHARS + 8));
    }
}
