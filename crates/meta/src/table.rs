//! The shapes of `meta.k8s.io`: tables, and objects reduced to their metadata.
//!
//! The kinds define their columns and cells.

use serde::Serialize;
use serde_json::{Value, json};

use crate::object::ObjectMeta;

/// A column's definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// An `OpenAPI` type: `string`, `integer`, `boolean`, `date`.
    pub r#type: String,
    /// `name` for the column that names the object, else mostly empty.
    pub format: String,
    /// The meaning of the column, for users.
    pub description: String,
    /// 0 for columns that are always displayed, higher for those in wide output only (`-o wide`).
    pub priority: i32,
}

/// A row: a cell for each column, and as much of the object as was requested.
#[derive(Clone, PartialEq)]
pub struct Row {
    /// One for each column.
    pub cells: Vec<Value>,
    /// The object, its metadata, or nothing.
    pub object: Option<Value>,
}

impl Row {
    /// The row as it is sent.
    pub fn into_value(self) -> Value {
        json!({ "cells": self.cells, "object": self.object })
    }
}

/// A table.
#[derive(Clone, PartialEq)]
pub struct Table {
    version: &'static str,
    /// Empty in all but the first event of a watch.
    pub columns: Vec<Column>,
    /// One for each object.
    pub rows: Vec<Row>,
}

impl Table {
    /// Makes a table without rows. `version` is that of `meta.k8s.io`: `v1` or `v1beta1`.
    pub fn new(version: &'static str, columns: Vec<Column>) -> Self {
        Self { version, columns, rows: Vec::new() }
    }

    /// The table as it is sent; its metadata is empty.
    pub fn into_value(self) -> Value {
        let rows: Vec<Value> = self.rows.into_iter().map(Row::into_value).collect();
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{}", self.version),
            "metadata": {},
            "columnDefinitions": self.columns,
            "rows": rows,
        })
    }
}

/// An object reduced to its metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialObjectMetadata {
    version: &'static str,
    metadata: ObjectMeta,
}

impl PartialObjectMetadata {
    /// Makes one of `metadata`. `version` is that of `meta.k8s.io`: `v1` or `v1beta1`.
    pub fn new(version: &'static str, metadata: ObjectMeta) -> Self {
        Self { version, metadata }
    }

    /// The object as it is sent.
    pub fn into_value(self) -> Value {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", self.version),
            "metadata": self.metadata.to_value(),
        })
    }
}
