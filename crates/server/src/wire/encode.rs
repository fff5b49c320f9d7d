//! Objects, lists and events in the representation that was negotiated.

use bytes::Bytes;
use http::{HeaderMap, header};
use postern_kinds::AnyKind;
use postern_meta::accept::{Offered, Representation, Transform, negotiate};
use postern_meta::decode::{Format, encode_yaml};
use postern_meta::event::WatchEventType;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::table::PartialObjectMetadata;
use postern_meta::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::table;
use crate::cache::{CachedObject, Encoding, IncludeObject, event_line};
use crate::registry::read::ObjectPage;
use crate::registry::watch::Delivery;
use crate::stages::parse::Parsed;

/// The annotation of the bookmark that ends a watch's initial state.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How a client wants its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Format and transformation.
    pub(crate) representation: Representation,
    /// How much of the object a table's rows carry.
    pub(crate) include: IncludeObject,
    /// For human eyes?
    pub(crate) pretty: bool,
    /// May lists be compressed?
    pub(crate) gzip: bool,
    /// The time of the answer, for ages.
    pub(crate) now: Timestamp,
}

impl Wanted {
    /// Negotiates.
    ///
    /// # Errors
    /// 406 when nothing that is offered is acceptable; 400 for a bad `includeObject`.
    pub(crate) fn of(parsed: &Parsed, offered: Offered, now: Timestamp) -> Result<Self, ApiError> {
        let representation = negotiate(&parsed.header_values(header::ACCEPT), offered)?;
        let include = match representation.transform {
            Transform::Table { .. } => table::include_of(parsed.query())?,
            _ => IncludeObject::default(),
        };
        Ok(Self {
            representation,
            include,
            pretty: wants_pretty(parsed)?,
            gzip: accepts_gzip(parsed.headers()),
            now,
        })
    }
}

/// `?pretty` decides; else programs that people type into do.
pub(crate) fn wants_pretty(parsed: &Parsed) -> Result<bool, ApiError> {
    if let Some(pretty) = parsed.query().flag("pretty")? {
        return Ok(pretty);
    }
    Ok(parsed.header(header::USER_AGENT).is_some_and(is_for_people))
}

/// The form in which a client wants to hear of failures: format, and for human eyes? Where it
/// cannot be told, JSON.
pub(crate) fn failure_form(headers: &HeaderMap) -> (Format, bool) {
    let accept = headers.get_all(header::ACCEPT);
    let accept: Vec<&str> = accept.iter().filter_map(|value| value.to_str().ok()).collect();
    let format = negotiate(&accept, Offered::Document).map_or(Format::Json, |r| r.format);
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    (format, agent.is_some_and(is_for_people))
}

fn is_for_people(agent: &str) -> bool {
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
}

/// Does the client take gzip?
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING);
    values.iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(',')).any(|clause| {
        let (coding, params) = clause.split_once(';').unwrap_or((clause, ""));
        coding.trim().eq_ignore_ascii_case("gzip")
            && !matches!(params.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// A JSON value in the format that was negotiated.
pub(crate) fn value(value: &Value, format: Format, pretty: bool) -> Bytes {
    match (format, pretty) {
        (Format::Yaml, _) => Bytes::from(encode_yaml(value)),
        (Format::Json, true) => Bytes::from(format!("{value:#}\n")),
        (Format::Json, false) => Bytes::from(format!("{value}\n")),
    }
}

/// One object.
///
/// # Errors
/// 500 when our own bytes cannot be read back.
pub(crate) fn object(kind: &dyn AnyKind, json: Bytes, wanted: Wanted) -> Result<Bytes, ApiError> {
    let Representation { format, transform, .. } = wanted.representation;
    if let (Format::Json, Transform::None, false) = (format, transform, wanted.pretty) {
        return Ok(json);
    }
    let whole = match transform {
        Transform::None => read_back(&json)?,
        _ => transformed(kind, read_back(&json)?, wanted, true),
    };
    Ok(value(&whole, format, wanted.pretty))
}

/// A whole list in a form other than plain JSON, which is streamed.
///
/// # Errors
/// 500 when our own bytes cannot be read back.
pub(crate) fn list(
    kind: &dyn AnyKind,
    list: &ObjectPage,
    wanted: Wanted,
) -> Result<Bytes, ApiError> {
    let objects = list.objects.iter().map(|object| object.decode());
    let metadata = Value::Object(list_metadata(list));
    let whole = match wanted.representation.transform {
        Transform::Table { version } => {
            let mut whole = table::empty(version, table::columns(kind));
            for object in objects {
                whole.rows.push(table::row(kind, object?, wanted.include, version, wanted.now));
            }
            with_metadata(whole.into_value(), metadata)
        }
        Transform::PartialObjectMetadata { version }
        | Transform::PartialObjectMetadataList { version } => {
            let items = objects
                .map(
                    |object| Ok(PartialObjectMetadata::new(version, object?.metadata).into_value()),
                )
                .collect::<Result<Vec<_>, ApiError>>()?;
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
                "items": items,
            })
        }
        Transform::None => {
            let items = objects
                .map(|object| object.map(Object::into_value))
                .collect::<Result<Vec<_>, ApiError>>()?;
            json!({
                "kind": format!("{}List", kind.info().kind),
                "apiVersion": kind.info().version.to_string(),
                "metadata": metadata,
                "items": items,
            })
        }
    };
    Ok(value(&whole, wanted.representation.format, wanted.pretty))
}

/// The beginning of a list in plain JSON, up to its first item.
pub(crate) fn list_head(kind: &dyn AnyKind, list: &ObjectPage) -> Bytes {
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

/// One delivery of a watch. `first` is the first event of the stream, the only one whose table
/// says what its columns are.
pub(crate) fn delivery(
    kind: &dyn AnyKind,
    delivery: &Delivery,
    wanted: Wanted,
    first: bool,
) -> Bytes {
    let encoded = match delivery {
        Delivery::Event { event_type, object, shared } => {
            let make = || event(kind, *event_type, object, wanted, first);
            match shared {
                Some(shared) if !first && !is_plain(wanted) => {
                    let Wanted { representation, include, .. } = wanted;
                    let event_type = *event_type;
                    shared.encoded(Encoding { representation, include, event_type }, make)
                }
                _ => make(),
            }
        }
        Delivery::Bookmark { position, initial_end } => {
            Ok(bookmark(kind, &position.to_string(), *initial_end, wanted, first))
        }
        Delivery::Failed(error) => Err(error.clone()),
    };
    encoded.unwrap_or_else(|error| failure(&error, wanted))
}

fn is_plain(wanted: Wanted) -> bool {
    let Representation { format, transform, .. } = wanted.representation;
    matches!((format, transform), (Format::Json, Transform::None))
}

fn event(
    kind: &dyn AnyKind,
    event_type: WatchEventType,
    object: &CachedObject,
    wanted: Wanted,
    first: bool,
) -> Result<Bytes, ApiError> {
    if is_plain(wanted) {
        return Ok(if object.event_type() == event_type {
            object.frame()
        } else {
            event_line(event_type, &object.json())
        });
    }
    let shown = transformed(kind, object.decode()?, wanted, first);
    Ok(framed(event_type, &shown, wanted))
}

fn bookmark(
    kind: &dyn AnyKind,
    version: &str,
    initial_end: bool,
    wanted: Wanted,
    first: bool,
) -> Bytes {
    let mut metadata = ObjectMeta { resource_version: version.to_owned(), ..ObjectMeta::default() };
    if initial_end {
        metadata.annotations.insert(INITIAL_EVENTS_END.to_owned(), "true".to_owned());
    }
    let info = kind.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata,
        fields: Map::new(),
    };
    framed(WatchEventType::Bookmark, &transformed(kind, object, wanted, first), wanted)
}

fn failure(error: &ApiError, wanted: Wanted) -> Bytes {
    framed(WatchEventType::Error, &error.status().to_value(), wanted)
}

fn framed(event_type: WatchEventType, object: &Value, wanted: Wanted) -> Bytes {
    match wanted.representation.format {
        Format::Json => event_line(event_type, object.to_string().as_bytes()),
        Format::Yaml => {
            let event = json!({ "type": event_type.as_str(), "object": object });
            Bytes::from(format!("---\n{}", encode_yaml(&event)))
        }
    }
}

fn transformed(kind: &dyn AnyKind, object: Object, wanted: Wanted, columns: bool) -> Value {
    match wanted.representation.transform {
        Transform::None => object.into_value(),
        Transform::Table { version } => {
            let columns = if columns { table::columns(kind) } else { Vec::new() };
            let mut whole = table::empty(version, columns);
            let resource_version = json!({ "resourceVersion": object.metadata.resource_version });
            whole.rows.push(table::row(kind, object, wanted.include, version, wanted.now));
            with_metadata(whole.into_value(), resource_version)
        }
        Transform::PartialObjectMetadata { version }
        | Transform::PartialObjectMetadataList { version } => {
            PartialObjectMetadata::new(version, object.metadata).into_value()
        }
    }
}

fn with_metadata(mut whole: Value, metadata: Value) -> Value {
    if let Value::Object(fields) = &mut whole {
        fields.insert("metadata".to_owned(), metadata);
    }
    whole
}

fn read_back<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
    postern_meta::decode::decode_typed(json)
        .map_err(|error| ApiError::internal("the answer could not be read back", error))
}
