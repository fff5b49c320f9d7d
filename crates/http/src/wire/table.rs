//! Tables, which `kubectl get` prints: one row for each object.

use bytes::{BufMut as _, BytesMut};
use postern_kinds::{AnyKind, Cell};
use postern_meta::object::Object;
use postern_meta::options::Query;
use postern_meta::status::ApiError;
use postern_meta::table::{Column, PartialObjectMetadata, Row, Table};
use postern_meta::time::{Timestamp, human_duration};
use serde_json::Value;

use postern_registry::cache::{CachedObject, IncludeObject};

/// The value of `includeObject`.
///
/// # Errors
/// 400 for any other value.
pub fn include_of(query: &Query) -> Result<IncludeObject, ApiError> {
    match query.get("includeObject") {
        None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
        Some("None") => Ok(IncludeObject::None),
        Some("Object") => Ok(IncludeObject::Object),
        Some(_) => Err(ApiError::bad_request(
            "Unable to convert to Table as requested: unrecognized includeObject value: must be \
             None, Metadata or Object",
        )),
    }
}

/// The columns of a kind: the name, the kind's columns, the age.
pub fn columns(kind: &dyn AnyKind) -> Vec<Column> {
    let column = |name: &str, r#type: &str, format: &str, description: &str, priority| Column {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority,
    };
    let mut columns = vec![column("Name", "string", "name", "Unique within its namespace.", 0)];
    columns.extend(
        kind.info().columns.iter().map(|c| column(c.name, c.r#type, "", c.description, c.priority)),
    );
    columns.push(column("Age", "string", "", "The time since the object was created.", 0));
    columns
}

/// The cells of an object: its name, those of its kind, and its age.
fn cells(kind: &dyn AnyKind, object: &Object) -> Vec<Cell> {
    let mut cells = vec![Cell::Text(object.metadata.name.clone())];
    cells.extend(kind.cells(object));
    cells.push(Cell::Age(object.metadata.creation_timestamp));
    cells
}

/// Writes the row of an object in plain JSON, from the cells that are kept with it and the bytes of its metadata. Rows with
/// whole objects are not written here.
///
/// # Errors
/// 500 when the stored bytes cannot be decoded.
pub fn write_row(
    out: &mut BytesMut,
    kind: &dyn AnyKind,
    object: &CachedObject,
    include: IncludeObject,
    version: &str,
    now: Timestamp,
) -> Result<(), ApiError> {
    let kept = object.cells(|object| cells(kind, object))?;
    out.put_slice(b"{\"cells\":[");
    for (index, cell) in kept.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        let written = match cell {
            Cell::Text(text) => serde_json::to_writer((&mut *out).writer(), text),
            Cell::Number(number) => serde_json::to_writer((&mut *out).writer(), number),
            Cell::Age(then) => serde_json::to_writer((&mut *out).writer(), &age(*then, now)),
        };
        written.map_err(|error| ApiError::internal("a cell cannot be encoded", error))?;
    }
    out.put_slice(b"],\"object\":");
    match include {
        IncludeObject::Metadata => {
            let metadata = object.metadata_json();
            let metadata = metadata.ok_or_else(|| {
                ApiError::internal("a stored object has no metadata", object.position())
            })?;
            out.put_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
            out.put_slice(version.as_bytes());
            out.put_slice(b"\",\"metadata\":");
            out.put_slice(&metadata);
            out.put_slice(b"}}");
        }
        IncludeObject::None | IncludeObject::Object => out.put_slice(b"null}"),
    }
    Ok(())
}

/// The row of an object.
pub fn row(
    kind: &dyn AnyKind,
    object: Object,
    include: IncludeObject,
    version: &'static str,
    now: Timestamp,
) -> Row {
    let cells = cells(kind, &object).into_iter().map(|cell| value_of(cell, now)).collect();
    let object = match include {
        IncludeObject::None => None,
        IncludeObject::Metadata => {
            Some(PartialObjectMetadata::new(version, object.metadata).into_value())
        }
        IncludeObject::Object => Some(object.into_value()),
    };
    Row { cells, object }
}

/// A table without rows.
pub fn empty(version: &'static str, columns: Vec<Column>) -> Table {
    Table::new(version, columns)
}

fn value_of(cell: Cell, now: Timestamp) -> Value {
    match cell {
        Cell::Text(text) => Value::String(text),
        Cell::Number(number) => Value::from(number),
        Cell::Age(then) => Value::String(age(then, now)),
    }
}

fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(
        || "<unknown>".to_owned(),
        |then| human_duration(now.unix_seconds() - then.unix_seconds()),
    )
}

#[cfg(test)]
mod tests {
    use postern_kinds::cluster::Cluster;
    use postern_kinds::owned_access_key::OwnedAccessKey;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_meta::decode::decode_typed;
    use postern_meta::event::WatchEventType;
    use postern_store::Position;
    use serde_json::json;

    use super::*;

    fn cached(kind: &dyn AnyKind, spec: &Value) -> CachedObject {
        let info = kind.info();
        let head = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{{",
            info.version, info.kind
        );
        let metadata = "\"name\":\"a \\\"b\",\"namespace\":\"n\",\"creationTimestamp\":\"1970-01-01T00:16:40Z\",\
                        \"labels\":{\"x\":\"}\"},\"managedFields\":[{\"manager\":\"m\",\"operation\":\"Update\",\
                        \"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{\"f:spec\":{\".\":{}}}}]";
        let stored = format!("{head}{metadata}}},\"spec\":{spec}}}");
        let position = Position::new(7, 0);
        let event_type = WatchEventType::Added;
        CachedObject::from_stored(&head, "/k".into(), position, event_type, stored.as_bytes())
            .unwrap()
    }

    #[test]
    fn a_written_row_is_the_row_of_the_decoded_object() {
        let kinds: [(&dyn AnyKind, Value); 3] = [
            (&SharedSecret, json!({ "displayName": "s", "data": { "a": "Yg==" } })),
            (&OwnedAccessKey, json!({ "displayName": "k", "user": "ada", "ttl": 3600 })),
            (&Cluster, json!({ "displayName": "x".repeat(2000) })),
        ];
        let now = Timestamp::from_unix_seconds(2000);
        for (kind, spec) in kinds {
            let object = cached(kind, &spec);
            for include in [IncludeObject::None, IncludeObject::Metadata] {
                let decoded = object.decode().unwrap();
                let wanted = row(kind, decoded, include, "v1", now).into_value();
                // Once from the object, and once from kept cells.
                for _ in 0..2 {
                    let mut written = BytesMut::new();
                    write_row(&mut written, kind, &object, include, "v1", now).unwrap();
                    let written: Value = decode_typed(&written).unwrap();
                    assert_eq!(written, wanted, "{}", kind.info().kind);
                }
            }
        }
    }
}
