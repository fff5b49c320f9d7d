//! Documents that do not change while the server runs. They are made and compressed once, and have their hash as
//! `ETag`.

use aws_lc_rs::digest::{SHA512, digest};
use bytes::Bytes;
use flate2::Compression;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use postern_http::wire::body::{Body, gzip};
use postern_http::wire::{encode, respond};

/// The size from which a file is compressed, in bytes.
const PACKED_FROM_BYTES: usize = 512;

/// A document in one format.
pub(crate) struct Fixed {
    content_type: &'static str,
    bytes: Bytes,
    gzipped: Option<Bytes>,
    hash: String,
}

impl Fixed {
    /// A document of these bytes.
    pub(crate) fn new(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::of(content_type, bytes.into(), Compression::fast(), respond::GZIP_FROM_BYTES)
    }

    /// A file of these bytes, compressed as far as possible.
    pub(crate) fn packed(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::of(content_type, bytes.into(), Compression::best(), PACKED_FROM_BYTES)
    }

    fn of(content_type: &'static str, bytes: Bytes, level: Compression, from: usize) -> Self {
        let gzipped = (bytes.len() > from).then(|| gzip(&bytes, level));
        let hash = hex::encode_upper(digest(&SHA512, &bytes));
        Self { content_type, bytes, gzipped, hash }
    }

    /// The SHA-512 of the document in upper-case hex, as in kube-apiserver.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The response to a GET: the document, or 304 if the client has it already.
    pub(crate) fn response(&self, request: &HeaderMap) -> Response<Body> {
        let zipped = self.gzipped.as_ref().filter(|_| encode::accepts_gzip(request));
        let bytes = zipped.unwrap_or(&self.bytes).clone();
        let mut response = respond::whole(StatusCode::OK, self.content_type, bytes);
        if zipped.is_some() {
            respond::note_gzip(&mut response);
        }
        tagged(request, response, &self.hash)
    }
}

/// The response with the hash as `ETag`, or 304 if the client has the document already.
pub(crate) fn tagged(
    request: &HeaderMap,
    mut response: Response<Body>,
    hash: &str,
) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    if known.flat_map(|value| value.split(',')).any(|known| is_tag(known, &tag)) {
        response = respond::empty(StatusCode::NOT_MODIFIED);
    }
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Whether a client's `ETag` matches. GET uses weak comparison (RFC 9110 section 13.1.2).
fn is_tag(known: &str, tag: &str) -> bool {
    let known = known.trim();
    known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
}
