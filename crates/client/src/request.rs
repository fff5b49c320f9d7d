//! A request as it can be sent again, in which representation it wants the answer, and the decoding
//! of answers. Connections are not here.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use postern_kinds::{Fields, Kind, Layout};
use postern_meta::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::Status;
use serde_json::{Value, json};

use crate::error::Error;

/// The `User-Agent` of every request.
pub(crate) const AGENT: &str = concat!("postern/", env!("CARGO_PKG_VERSION"));

/// The representation that an answer is wanted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    /// Whole objects, secret values included.
    Whole,
    /// A Table: the server's columns, as `kubectl get` prints them, without secret values.
    Table,
    /// A Table. Its rows also have the whole objects, secret values included.
    TableWithObjects,
    /// Metadata alone.
    Metadata,
}

impl Representation {
    /// The `Accept` header for one object.
    pub(crate) fn accept_object(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Table | Self::TableWithObjects => "application/json;as=Table;g=meta.k8s.io;v=v1",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }

    /// The `Accept` header for a list.
    pub(crate) fn accept_list(self) -> &'static str {
        match self {
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            other => other.accept_object(),
        }
    }

    /// How many objects one page of a list has, such that a page of the largest objects
    /// stays below the limit of a response's size.
    pub(crate) fn page_size(self) -> usize {
        match self {
            Self::Whole | Self::TableWithObjects => 20,
            // An object's annotations have at most 256 KiB.
            Self::Table | Self::Metadata => 200,
        }
    }

    /// The field of a list that its items are in.
    pub(crate) fn items_field(self) -> &'static str {
        if self.is_table() { "rows" } else { "items" }
    }

    /// Whether it is a table.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::TableWithObjects)
    }

    /// The query for the parts of the objects in the rows of a table.
    pub(crate) fn rows_query(self) -> &'static str {
        if self == Self::TableWithObjects { "includeObject=Object" } else { "" }
    }

    /// The same behind other parameters.
    pub(crate) fn rows_parameter(self) -> &'static str {
        if self == Self::TableWithObjects { "&includeObject=Object" } else { "" }
    }
}

/// The paths of a server that a request's path is below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// The management API.
    Management,
    /// The gateway.
    Gateway,
    /// The root of the server.
    Root,
}

/// A request, as it can be sent again.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// The base of the path.
    pub(crate) base: Base,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: Option<&'static str>,
    /// The `ETag` of the known state.
    pub(crate) known: Option<String>,
    pub(crate) body: Bytes,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, path: String) -> Self {
        Self {
            method,
            base: Base::Management,
            path,
            query: String::new(),
            accept: Representation::Whole.accept_object(),
            content_type: None,
            known: None,
            body: Bytes::new(),
        }
    }

    /// A request to read a path of the gateway.
    pub(crate) fn of_gateway(path: String) -> Self {
        Self { base: Base::Gateway, ..Self::new(Method::GET, path) }
    }

    pub(crate) fn query(self, query: impl Into<String>) -> Self {
        Self { query: query.into(), ..self }
    }

    pub(crate) fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    pub(crate) fn body(self, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { content_type: Some(content_type), body: body.into(), ..self }
    }

    pub(crate) fn path_and_query(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.path, self.query)
    }
}

/// How long the server asks to wait, in an answer that says that it is too busy.
pub(crate) fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    if !busy.contains(&code) {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The answer's value, or the server's reason why there is none. It is null where the client knows it
/// already.
pub(crate) fn decode_response(code: StatusCode, body: &[u8]) -> Result<Value, Error> {
    let unexpected = |what: &str| Error::Unexpected { code: code.as_u16(), what: what.to_owned() };
    if code == StatusCode::NOT_MODIFIED {
        return Ok(Value::Null);
    }
    if code.is_success() {
        return decode_typed(body)
            .map_err(|error| unexpected(&format!("the answer is not JSON: {error}")));
    }
    match decode_typed::<Status>(body) {
        Ok(status) if status.kind == "Status" => {
            Err(Error::Status(Box::new(Status { code: code.as_u16(), ..status })))
        }
        _ => Err(unexpected("the response is not from a Kubernetes API server")),
    }
}

/// An answer's value as an object.
pub(crate) fn decode_object(value: Value) -> Result<Object, Error> {
    // A Status has text in a field that is an object everywhere else.
    let value = match value {
        Value::Object(fields) if fields.get("kind") == Some(&json!("Status")) => {
            return Ok(Object { kind: "Status".to_owned(), fields, ..Object::default() });
        }
        value => value,
    };
    Object::from_value(value).map_err(|what| Error::Unexpected { code: 200, what })
}

/// An object's own fields, typed as its kind has them.
///
/// # Errors
/// [`Error::Unexpected`] when they do not fit.
pub fn decode_fields<K: Kind>(object: &Object) -> Result<Fields<K::Spec, K::Status>, Error> {
    let bytes = postern_meta::object::json_bytes(&object.fields);
    let decoded = match K::INFO.layout {
        Layout::SpecAndStatus => decode_typed(&bytes),
        Layout::TopLevel => decode_typed(&bytes).map(Fields::of),
    };
    decoded.map_err(|error| Error::Unexpected {
        code: StatusCode::OK.as_u16(),
        what: format!("the answer is no {}: {error}", K::INFO.kind),
    })
}

/// Takes the token of the next page out of a list; empty when this was the last.
pub(crate) fn take_continue(list: &mut Value) -> String {
    let metadata = list.get_mut("metadata").and_then(Value::as_object_mut);
    match metadata.and_then(|metadata| {
        metadata.remove("remainingItemCount");
        metadata.remove("continue")
    }) {
        Some(Value::String(token)) => token,
        _ => String::new(),
    }
}
