//! Tables, which `kubectl get` prints: one row for each object.

use postern_kinds::{AnyKind, Cell};
use postern_meta::object::Object;
use postern_meta::options::Query;
use postern_meta::status::ApiError;
use postern_meta::table::{Column, PartialObjectMetadata, Row, Table};
use postern_meta::time::{Timestamp, human_duration};
use serde_json::Value;

use postern_registry::cache::IncludeObject;

/// The value of `includeObject`.
///
/// # Errors
/// 400 for any other value.
pub(crate) fn include_of(query: &Query) -> Result<IncludeObject, ApiError> {
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
pub(crate) fn columns(kind: &dyn AnyKind) -> Vec<Column> {
    let column = |name: &str, r#type: &str, format: &str, description: &str, priority| Column {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority,
    };
    let mut columns = vec![column("Name", "string", "name", "Unique within its namespace.", 0)];
    columns.extend(
        kind.columns().iter().map(|c| column(c.name, c.r#type, "", c.description, c.priority)),
    );
    columns.push(column("Age", "string", "", "The time since the object was created.", 0));
    columns
}

/// The row of an object.
pub(crate) fn row(
    kind: &dyn AnyKind,
    object: Object,
    include: IncludeObject,
    version: &'static str,
    now: Timestamp,
) -> Row {
    let mut cells = vec![Value::String(object.metadata.name.clone())];
    cells.extend(kind.cells(&object).into_iter().map(|cell| value_of(cell, now)));
    cells.push(value_of(Cell::Age(object.metadata.creation_timestamp), now));
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
pub(crate) fn empty(version: &'static str, columns: Vec<Column>) -> Table {
    Table::new(version, columns)
}

fn value_of(cell: Cell, now: Timestamp) -> Value {
    match cell {
        Cell::Text(text) => Value::String(text),
        Cell::Number(number) => Value::from(number),
        Cell::Age(None) => Value::String("<unknown>".to_owned()),
        Cell::Age(Some(then)) => {
            Value::String(human_duration(now.unix_seconds() - then.unix_seconds()))
        }
    }
}
