//! The responses with the documents that describe the API, and with the metrics. The caller is authorized already.

use flate2::Compression;
use http::{HeaderValue, Response, StatusCode, header};
use postern_kinds::BASE_PATH;
use postern_meta::accept::{Offered, choose};
use postern_meta::gvk::GroupVersion;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_openapi::{v2, v3};

use super::aggregated::{self, Root};
use super::discovery;
use super::fixed::{Fixed, tagged};
use super::openapi;
use postern_http::metrics;
use postern_http::stages::parse::{Document, Parsed};
use postern_http::wire::body::{Body, gzip};
use postern_http::wire::encode::{self, Negotiated};
use postern_http::wire::respond;

/// The response to a GET of a document. `metrics` is the text, if the document has metrics.
///
/// # Errors
/// 404 when the document does not exist; 406 when the client accepts no format of it.
pub(crate) fn response(
    parsed: &Parsed,
    document: Document,
    now: Timestamp,
    metrics: String,
) -> Result<Response<Body>, ApiError> {
    let root = match document {
        Document::CoreVersions => Some(Root::Core),
        Document::Groups => Some(Root::Groups),
        _ => None,
    };
    if let Some(response) = root.and_then(|root| aggregated::response(parsed, root)) {
        return Ok(response);
    }
    let value = match document {
        Document::CoreVersions => discovery::core_versions(),
        Document::Groups => discovery::groups(),
        Document::Group(name) => {
            discovery::group(name).ok_or_else(ApiError::resource_not_served)?
        }
        Document::Resources(version) => discovery::resources(&version),
        Document::Metrics | Document::OwnerMetrics => {
            return Ok(metrics_response(parsed, metrics));
        }
        Document::OpenApiV2 => return open_api_v2(parsed),
        Document::OpenApiIndex => return open_api_index(parsed, now),
        Document::OpenApi(version) => return open_api(parsed, version, now),
    };
    let negotiated = Negotiated::of(parsed, Offered::Document, now)?;
    let bytes = encode::value(&value, negotiated.representation.format, negotiated.pretty);
    let content_type = negotiated.representation.content_type();
    let mut response = respond::whole(StatusCode::OK, content_type, bytes);
    if root.is_some() {
        // A cache must not use this for clients that accept the aggregated document.
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    Ok(response)
}

/// The metrics in Prometheus' text format. There is no other format, so `Accept` is ignored.
/// The text is compressed for clients that accept it, as Prometheus does.
fn metrics_response(parsed: &Parsed, text: String) -> Response<Body> {
    if !encode::accepts_gzip(parsed.headers()) {
        return respond::whole(StatusCode::OK, metrics::CONTENT_TYPE, text.into());
    }
    let packed = gzip(text.as_bytes(), Compression::fast());
    let mut response = respond::whole(StatusCode::OK, metrics::CONTENT_TYPE, packed);
    respond::note_gzip(&mut response);
    response
}

/// The response with the document of version 2.
fn open_api_v2(parsed: &Parsed) -> Result<Response<Body>, ApiError> {
    let document = openapi::document_v2();
    open_api_form(parsed, &document.json, &document.protobuf, &v2::PROTOBUF_TYPES)
        .map(|form| form.response(parsed.headers()))
}

/// The format of an OpenAPI document that the client accepts.
fn open_api_form<'a>(
    parsed: &Parsed,
    json: &'a Fixed,
    protobuf: &'a Fixed,
    protobuf_types: &[&str],
) -> Result<&'a Fixed, ApiError> {
    let chosen = choose(&parsed.header_values(header::ACCEPT), |clause| {
        if clause.takes_json() {
            return Some(json);
        }
        protobuf_types.contains(&clause.media_type.as_str()).then_some(protobuf)
    });
    chosen.ok_or_else(|| {
        let types = ["application/json"].into_iter().chain(protobuf_types.iter().copied());
        ApiError::not_acceptable(&types.collect::<Vec<_>>())
    })
}

/// The response with the index. The index has the hash of each document, so its own hash changes with each of them.
fn open_api_index(parsed: &Parsed, now: Timestamp) -> Result<Response<Body>, ApiError> {
    let negotiated = Negotiated::of(parsed, Offered::JsonDocument, now)?;
    let response = respond::value(StatusCode::OK, &openapi::index(), negotiated.pretty);
    Ok(tagged(parsed.headers(), response, &openapi::index_hash()))
}

/// The response with one document of version 3. A URL with the hash from the index is immutable. A request with another
/// hash is redirected to the current one.
fn open_api(
    parsed: &Parsed,
    version: GroupVersion,
    now: Timestamp,
) -> Result<Response<Body>, ApiError> {
    let document = openapi::documents().iter().find(|(served, _)| *served == version);
    let (_, document) = document.ok_or_else(ApiError::resource_not_served)?;
    let sent = parsed.query().get("hash");
    if sent.is_some_and(|hash| hash != document.json.hash()) {
        let path = v3::path_of(&version);
        let location = format!("{BASE_PATH}/openapi/v3/{path}?hash={}", document.json.hash());
        let mut response = respond::empty(StatusCode::MOVED_PERMANENTLY);
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(response);
    }
    let form = open_api_form(parsed, &document.json, &document.protobuf, &v3::PROTOBUF_TYPES)?;
    let mut response = form.response(parsed.headers());
    if sent.is_some() {
        let headers = response.headers_mut();
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("public, immutable, max-age=31536000"),
        );
        // As in kube-apiserver, for caches that do not support `immutable`.
        if let Some(expires) = http_date(now.unix_seconds() + IMMUTABLE_SECONDS) {
            headers.insert(header::EXPIRES, expires);
        }
    }
    Ok(response)
}

/// How long an immutable document can be cached: a year.
const IMMUTABLE_SECONDS: i64 = 365 * 24 * 60 * 60;

/// A time in the format of HTTP (RFC 9110 section 5.6.7).
fn http_date(unix_seconds: i64) -> Option<HeaderValue> {
    let time = jiff::Timestamp::from_second(unix_seconds).ok()?;
    let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(http_date(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
