//! The server's tables as text, as kubectl prints them: also row by row, as a watch has them.

use postern_kinds::Info;
use serde_json::Value;

use crate::output::{aligned, cell, full_name, widen};

/// The printed parts of a table.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of kubectl")]
pub(crate) struct TableOptions {
    /// Also the columns of lower priority.
    pub(crate) wide: bool,
    /// A first column with the namespaces.
    pub(crate) namespaces: bool,
    /// A last column with the labels.
    pub(crate) labels: bool,
    /// No headings.
    pub(crate) no_headings: bool,
    /// The kind that stands before each name, where there are tables of several.
    pub(crate) kind: Option<&'static Info>,
}

/// Prints the rows of one table, in columns that only become wider.
pub(crate) struct TablePrinter {
    options: TableOptions,
    /// The places of the columns in a row, and their headings.
    columns: Vec<(usize, String)>,
    /// The place of the name in a row.
    name_at: Option<usize>,
    widths: Vec<usize>,
    headings_are_printed: bool,
}

impl TablePrinter {
    /// A printer for tables with the columns of this one.
    pub(crate) fn new(table: &Value, options: TableOptions) -> Self {
        let empty = Vec::new();
        let all = table["columnDefinitions"].as_array().unwrap_or(&empty);
        let is_printed =
            |column: &Value| options.wide || column["priority"].as_i64().unwrap_or(0) == 0;
        let heading = |column: &Value| cell(&column["name"]).to_uppercase();
        let columns = all.iter().enumerate().filter(|(_, column)| is_printed(column));
        Self {
            options,
            columns: columns.map(|(at, column)| (at, heading(column))).collect(),
            name_at: all.iter().position(|column| column["format"] == "name"),
            widths: Vec::new(),
            headings_are_printed: options.no_headings,
        }
    }

    /// The rows as lines; before the first ones, the headings.
    pub(crate) fn lines(&mut self, rows: &[Value]) -> String {
        let mut lines: Vec<Vec<String>> = Vec::new();
        if !self.headings_are_printed && !rows.is_empty() {
            self.headings_are_printed = true;
            lines.push(self.headings());
        }
        lines.extend(rows.iter().map(|row| self.cells(row)));
        widen(&mut self.widths, &lines);
        aligned(&self.widths, &lines)
    }

    fn headings(&self) -> Vec<String> {
        let namespace = self.options.namespaces.then(|| "NAMESPACE".to_owned());
        let labels = self.options.labels.then(|| "LABELS".to_owned());
        let columns = self.columns.iter().map(|(_, heading)| heading.clone());
        namespace.into_iter().chain(columns).chain(labels).collect()
    }

    fn cells(&self, row: &Value) -> Vec<String> {
        let metadata = &row["object"]["metadata"];
        let namespace = self.options.namespaces.then(|| cell(&metadata["namespace"]));
        let labels = self.options.labels.then(|| labels(&metadata["labels"]));
        let columns = self.columns.iter().map(|(at, _)| match self.options.kind {
            Some(info) if Some(*at) == self.name_at => full_name(info, &cell(&row["cells"][at])),
            _ => cell(&row["cells"][at]),
        });
        namespace.into_iter().chain(columns).chain(labels).collect()
    }
}

fn labels(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<_> = pairs.map(|(key, value)| format!("{}={}", key, cell(value))).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

#[cfg(test)]
mod tests {
    use postern_kinds::Kind as _;
    use postern_kinds::user::User;
    use serde_json::json;

    use super::*;

    fn table() -> Value {
        json!({
            "columnDefinitions": [
                { "name": "Name", "format": "name", "priority": 0 },
                { "name": "Keys", "priority": 0 },
                { "name": "Display Name", "priority": 1 },
            ],
            "rows": [
                { "cells": ["db", 2, "évil\u{1b}[2J"],
                  "object": { "metadata": { "namespace": "a", "labels": { "x": "1", "y": "" } } } },
                { "cells": ["longer-name", 11, null], "object": null },
            ],
        })
    }

    fn print(options: TableOptions) -> String {
        let table = table();
        TablePrinter::new(&table, options).lines(table["rows"].as_array().unwrap())
    }

    #[test]
    fn tables_have_the_columns_that_are_asked_for() {
        let plain = TableOptions::default();
        assert_eq!(print(plain), "NAME          KEYS\ndb            2\nlonger-name   11\n");
        let all = TableOptions { wide: true, namespaces: true, labels: true, ..plain };
        let printed = print(all);
        let headings = "NAMESPACE   NAME          KEYS   DISPLAY NAME    LABELS\n";
        assert!(printed.starts_with(headings), "{printed}");
        assert!(printed.contains("évil\\u{1b}[2J   x=1,y=\n"), "{printed}");
        assert!(printed.ends_with("<none>\n"), "{printed}");
        let bare = TableOptions { no_headings: true, kind: Some(&User::INFO), ..plain };
        assert!(print(bare).starts_with("user.management.platform.sh/db "), "{}", print(bare));
    }

    #[test]
    fn rows_that_come_later_have_no_headings_and_the_same_columns() {
        let table = table();
        let rows = table["rows"].as_array().unwrap();
        let mut printer = TablePrinter::new(&table, TableOptions::default());
        assert_eq!(printer.lines(&[]), "");
        assert_eq!(printer.lines(&rows[1..]), "NAME          KEYS\nlonger-name   11\n");
        assert_eq!(printer.lines(&rows[..1]), "db            2\n");
    }
}
