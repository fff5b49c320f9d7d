//! Encodes objects, lists and events in the negotiated representation.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Method, header};
use postern_kinds::AnyKind;
use postern_meta::accept::{Offered, Representation, Transform, asks_for_pretty, negotiate};
use postern_meta::decode::{Format, encode_yaml};
use postern_meta::event::WatchEventType;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::table::{PartialObjectMetadata, Row};
use postern_meta::time::Timestamp;
use postern_registry::cache::{CachedObject, Encoding, IncludeObject, event_line};
use postern_registry::registry::read::ObjectPage;
use postern_registry::registry::values::ObjectParts;
use postern_registry::registry::watch::Delivery;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::table;
use crate::stages::parse::{Parsed, Target};

/// The maximum size of a chunk of joined lines, in bytes.
const JOINED_BYTES: usize = SMALL_BODY_BYTES;

/// The length above which lines are not copied into a chunk, in bytes.
const LONGEST_COPIED_BYTES: usize = JOINED_BYTES / 4;

/// The annotation of the bookmark that ends a watch's initial state.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The result of content negotiation.
#[derive(Clone, Copy)]
pub struct Negotiated {
    /// The format and the transformation.
    pub representation: Representation,
    /// The part of the object in the rows of a table.
    pub include: IncludeObject,
    /// Whether the response is indented.
    pub pretty: bool,
    /// Whether the response may be compressed.
    pub gzip: bool,
    /// The time of the response, from which ages are computed.
    pub now: Timestamp,
    /// The version of the kind in another group, if the request is for that version.
    pub version: Option<&'static dyn AnyKind>,
    /// The parts of objects that the response has.
    pub parts: ObjectParts,
}

impl Negotiated {
    /// The result of content negotiation.
    ///
    /// # Errors
    /// 406 when the client accepts none of the offered formats; 400 for an invalid `includeObject`.
    pub fn of(parsed: &Parsed, offered: Offered, now: Timestamp) -> Result<Self, ApiError> {
        let accept = parsed.header_values(header::ACCEPT);
        let representation = negotiate(&accept, offered)?;
        let include = match representation.transform {
            Transform::Table { .. } => table::include_of(parsed.query())?,
            _ => IncludeObject::default(),
        };
        Ok(Self {
            representation,
            include,
            parts: match (representation.transform, include) {
                _ if *parsed.method() == Method::HEAD => ObjectParts::None,
                (Transform::None, _) | (Transform::Table { .. }, IncludeObject::Object) => {
                    ObjectParts::Whole
                }
                (Transform::Table { .. }, IncludeObject::None) => ObjectParts::None,
                (
                    Transform::Table { .. }
                    | Transform::PartialObjectMetadata { .. }
                    | Transform::PartialObjectMetadataList { .. },
                    _,
                ) => ObjectParts::Metadata,
            },
            pretty: wants_pretty(parsed)? || asks_for_pretty(&accept, offered),
            gzip: accepts_gzip(parsed.headers()),
            now,
            version: match parsed.target() {
                Target::Resource(target) => target.version,
                _ => None,
            },
        })
    }

    /// A stored object in the version of the request.
    fn in_version(self, object: Object) -> Object {
        let version = self.version.and_then(|version| Some((version, version.info().stored_as?)));
        match version {
            Some((version, stored)) => stored.in_version(object, version),
            None => object,
        }
    }
}

impl Negotiated {
    /// Whether objects are sent in their stored encoding.
    pub fn is_stored(self) -> bool {
        is_plain(self) && !self.pretty
    }
}

/// Whether a response is indented: by `?pretty`, or else by the user agent.
pub fn wants_pretty(parsed: &Parsed) -> Result<bool, ApiError> {
    if let Some(pretty) = parsed.query().flag("pretty")? {
        return Ok(pretty);
    }
    Ok(parsed.header(header::USER_AGENT).is_some_and(is_interactive))
}

/// The format of errors that a client accepts, and whether `Accept` requests indentation. It is JSON if the negotiation
/// fails.
pub fn error_form(headers: &HeaderMap) -> (Format, bool) {
    let accept = headers.get_all(header::ACCEPT);
    let accept: Vec<&str> = accept.iter().filter_map(|value| value.to_str().ok()).collect();
    let format = negotiate(&accept, Offered::Document).map_or(Format::Json, |r| r.format);
    (format, asks_for_pretty(&accept, Offered::Document))
}

fn is_interactive(agent: &str) -> bool {
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
}

/// Whether the client accepts gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING);
    values.iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(',')).any(|clause| {
        let (coding, params) = clause.split_once(';').unwrap_or((clause, ""));
        coding.trim().eq_ignore_ascii_case("gzip")
            && !matches!(params.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// A JSON value in the negotiated format.
pub fn value(value: &Value, format: Format, pretty: bool) -> Bytes {
    match (format, pretty) {
        (Format::Yaml, _) => Bytes::from(encode_yaml(value)),
        (Format::Json, true) => Bytes::from(format!("{value:#}\n")),
        (Format::Json, false) => Bytes::from(format!("{value}\n")),
    }
}

/// One object in the negotiated representation.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn object(kind: &dyn AnyKind, json: Bytes, negotiated: Negotiated) -> Result<Bytes, ApiError> {
    let Representation { format, transform, .. } = negotiated.representation;
    if negotiated.is_stored() {
        return Ok(json);
    }
    let whole = match transform {
        Transform::None if negotiated.version.is_none() => read_back(&json)?,
        _ => transformed(kind, read_back(&json)?, negotiated, true),
    };
    Ok(value(&whole, format, negotiated.pretty))
}

/// A list without items, and the name of the field for the items.
pub fn list_frame(
    kind: &dyn AnyKind,
    list: &ObjectPage,
    negotiated: Negotiated,
) -> (Value, &'static str) {
    let metadata = Value::Object(list_metadata(list));
    match negotiated.representation.transform {
        Transform::Table { version } => {
            let table = table::empty(version, table::columns(kind)).into_value();
            (with_metadata(table, metadata), "rows")
        }
        Transform::PartialObjectMetadata { version }
        | Transform::PartialObjectMetadataList { version } => {
            let frame = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
            });
            (frame, "items")
        }
        Transform::None => {
            let info = negotiated.version.unwrap_or(kind).info();
            let frame = json!({
                "kind": format!("{}List", info.kind),
                "apiVersion": info.version.to_string(),
                "metadata": metadata,
            });
            (frame, "items")
        }
    }
}

/// An object as an item of a list.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn list_item(
    kind: &dyn AnyKind,
    object: &CachedObject,
    negotiated: Negotiated,
) -> Result<Value, ApiError> {
    let object = object.decode()?;
    Ok(match negotiated.representation.transform {
        Transform::Table { version } => table_row(kind, object, negotiated, version).into_value(),
        Transform::PartialObjectMetadata { version }
        | Transform::PartialObjectMetadataList { version } => {
            PartialObjectMetadata::new(version, object.metadata).into_value()
        }
        Transform::None => negotiated.in_version(object).into_value(),
    })
}

/// Writes an object as a row of a table in plain JSON, if the negotiated representation is that. Returns whether it did.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn write_row(
    out: &mut BytesMut,
    kind: &dyn AnyKind,
    object: &CachedObject,
    negotiated: Negotiated,
) -> Result<bool, ApiError> {
    let Representation { format, transform, .. } = negotiated.representation;
    let Transform::Table { version } = transform else { return Ok(false) };
    let is_plain = format == Format::Json && !negotiated.pretty && negotiated.version.is_none();
    if !is_plain || matches!(negotiated.include, IncludeObject::Object) {
        return Ok(false);
    }
    table::write_row(out, kind, object, negotiated.include, version, negotiated.now)?;
    Ok(true)
}

/// The start of a list in plain JSON, up to the first item.
pub fn list_head(kind: &dyn AnyKind, list: &ObjectPage) -> Bytes {
    let info = kind.info();
    Bytes::from(format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        info.kind,
        info.version,
        Value::Object(list_metadata(list)),
    ))
}

fn list_metadata(list: &ObjectPage) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), Value::String(list.version.to_string()));
    if let Some(token) = &list.continue_token {
        metadata.insert("continue".to_owned(), Value::String(token.clone()));
    }
    if let Some(remaining) = list.remaining {
        metadata.insert("remainingItemCount".to_owned(), Value::from(remaining));
    }
    metadata
}

/// One encoded delivery of a watch. `first` is true for the first event of the stream. Only the table of this event has
/// column definitions.
pub fn delivery(
    kind: &dyn AnyKind,
    delivery: &Delivery,
    negotiated: Negotiated,
    first: bool,
) -> Bytes {
    let encoded = match delivery {
        Delivery::Event { event_type, object, shared } => {
            let make = || event(kind, *event_type, object, negotiated, first);
            match shared {
                Some(shared) if !first && !is_plain(negotiated) && negotiated.version.is_none() => {
                    let Negotiated { representation, include, .. } = negotiated;
                    let event_type = *event_type;
                    shared.encoded(Encoding { representation, include, event_type }, make)
                }
                _ => make(),
            }
        }
        Delivery::Bookmark { position, initial_end } => {
            Ok(bookmark(kind, &position.to_string(), *initial_end, negotiated, first))
        }
        Delivery::Failed(error) => Err(error.clone()),
    };
    encoded.unwrap_or_else(|error| error_event(&error, negotiated))
}

/// The encoded deliveries of a watch. Deliveries of the initial state are joined if `is_joined`.
pub fn deliveries(
    kind: &dyn AnyKind,
    deliveries: &[Delivery],
    negotiated: Negotiated,
    first: bool,
    is_joined: bool,
) -> Vec<Bytes> {
    let lines = deliveries.iter().enumerate();
    let lines = lines.map(|(index, one)| delivery(kind, one, negotiated, first && index == 0));
    let lines = lines.collect();
    let is_initial = !deliveries.iter().any(Delivery::is_shared);
    if is_joined && is_initial { joined(lines) } else { lines }
}

/// Joins lines to chunks that are too small to be counted: sending a chunk costs more than copying a short line. Long
/// lines are not copied.
fn joined(lines: Vec<Bytes>) -> Vec<Bytes> {
    if lines.len() < 2 {
        return lines;
    }
    let (mut chunks, mut chunk) = (Vec::new(), BytesMut::new());
    for line in lines {
        if chunk.len() + line.len() > JOINED_BYTES && !chunk.is_empty() {
            chunks.push(chunk.split().freeze());
        }
        if line.len() > LONGEST_COPIED_BYTES {
            chunks.extend((!chunk.is_empty()).then(|| chunk.split().freeze()));
            chunks.push(line);
            continue;
        }
        if chunk.is_empty() {
            chunk.reserve(JOINED_BYTES);
        }
        chunk.put_slice(&line);
    }
    chunks.extend((!chunk.is_empty()).then(|| chunk.freeze()));
    chunks
}

/// Whether objects are sent in their stored encoding, except for indentation.
pub fn is_plain(negotiated: Negotiated) -> bool {
    let Representation { format, transform, .. } = negotiated.representation;
    negotiated.version.is_none() && matches!((format, transform), (Format::Json, Transform::None))
}

fn event(
    kind: &dyn AnyKind,
    event_type: WatchEventType,
    object: &CachedObject,
    negotiated: Negotiated,
    first: bool,
) -> Result<Bytes, ApiError> {
    if is_plain(negotiated) {
        return Ok(if object.event_type() == event_type {
            object.frame()
        } else {
            event_line(event_type, &object.json())
        });
    }
    let object = transformed(kind, object.decode()?, negotiated, first);
    Ok(framed(event_type, &object, negotiated))
}

fn bookmark(
    kind: &dyn AnyKind,
    version: &str,
    initial_end: bool,
    negotiated: Negotiated,
    first: bool,
) -> Bytes {
    let mut metadata = ObjectMeta { resource_version: version.to_owned(), ..ObjectMeta::default() };
    let mut negotiated = negotiated;
    if initial_end {
        metadata.annotations.insert(INITIAL_EVENTS_END.to_owned(), "true".to_owned());
        // A row without its object would not have the annotation, and the client would wait without
        // a limit.
        if matches!(negotiated.include, IncludeObject::None) {
            negotiated.include = IncludeObject::Metadata;
        }
    }
    let info = kind.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata,
        fields: Map::new(),
    };
    framed(WatchEventType::Bookmark, &transformed(kind, object, negotiated, first), negotiated)
}

fn error_event(error: &ApiError, negotiated: Negotiated) -> Bytes {
    framed(WatchEventType::Error, &error.status().to_value(), negotiated)
}

fn framed(event_type: WatchEventType, object: &Value, negotiated: Negotiated) -> Bytes {
    match negotiated.representation.format {
        Format::Json => event_line(event_type, object.to_string().as_bytes()),
        Format::Yaml => {
            let event = json!({ "type": event_type.as_str(), "object": object });
            Bytes::from(format!("---\n{}", encode_yaml(&event)))
        }
    }
}

fn transformed(kind: &dyn AnyKind, object: Object, negotiated: Negotiated, columns: bool) -> Value {
    match negotiated.representation.transform {
        Transform::None => negotiated.in_version(object).into_value(),
        Transform::Table { version } => {
            let columns = if columns { table::columns(kind) } else { Vec::new() };
            let mut whole = table::empty(version, columns);
            let resource_version = json!({ "resourceVersion": object.metadata.resource_version });
            whole.rows.push(table_row(kind, object, negotiated, version));
            with_metadata(whole.into_value(), resource_version)
        }
        Transform::PartialObjectMetadata { version }
        | Transform::PartialObjectMetadataList { version } => {
            PartialObjectMetadata::new(version, object.metadata).into_value()
        }
    }
}

/// The row of an object. Its cells are those of the stored kind.
fn table_row(
    kind: &dyn AnyKind,
    object: Object,
    negotiated: Negotiated,
    version: &'static str,
) -> Row {
    let mut row = table::row(kind, object, negotiated.include, version, negotiated.now);
    if negotiated.version.is_some() && matches!(negotiated.include, IncludeObject::Object) {
        let object = row.object.take().and_then(|object| Object::from_value(object).ok());
        row.object = object.map(|object| negotiated.in_version(object).into_value());
    }
    row
}

fn with_metadata(mut whole: Value, metadata: Value) -> Value {
    if let Value::Object(fields) = &mut whole {
        fields.insert("metadata".to_owned(), metadata);
    }
    whole
}

fn read_back<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
    postern_meta::decode::decode_typed(json).map_err(|error| {
        ApiError::internal("cannot decode a stored object for the response", error)
    })
}

/// The length up to which a body or a chunk is not counted, in bytes.
pub const SMALL_BODY_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_are_joined_up_to_a_chunk_and_nothing_is_lost() {
        let line = |bytes: usize, letter: u8| Bytes::from(vec![letter; bytes]);
        let alone = line(10, b'a');
        assert_eq!(
            joined(vec![alone.clone()])[0].as_ptr(),
            alone.as_ptr(),
            "the line is not copied"
        );
        let long = line(LONGEST_COPIED_BYTES + 1, b'l');
        let mut lines: Vec<Bytes> = (0..100).map(|_| line(1300, b's')).collect();
        lines.insert(40, long.clone());
        lines.push(line(1, b'e'));
        let chunks = joined(lines.clone());
        assert_eq!(chunks.concat(), lines.concat());
        assert!(chunks.iter().all(|chunk| chunk.len() <= JOINED_BYTES));
        assert!(chunks.len() <= 12, "{} chunks", chunks.len());
        assert!(
            chunks.iter().any(|chunk| chunk.as_ptr() == long.as_ptr()),
            "the line is not copied"
        );
        assert!(joined(Vec::new()).is_empty());
    }
}
