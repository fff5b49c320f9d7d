//! The columns that a kind adds to `kubectl get`, and their cells. The table itself is made by the
//! server.

use postern_meta::time::Timestamp;

/// A column of a table, as `meta.k8s.io/v1` describes it.
#[derive(Clone, Copy, Debug)]
pub struct ColumnInfo {
    /// The heading.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub r#type: &'static str,
    /// One sentence about its content.
    pub description: &'static str,
    /// 0 is always printed, anything higher only with `-o wide`.
    pub priority: i32,
}

impl ColumnInfo {
    /// A column of text.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, r#type: "string", description, priority: 0 }
    }

    /// A column of counts.
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self { r#type: "integer", ..Self::text(name, description) }
    }

    /// A column of `true` and `false`.
    pub const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self { r#type: "boolean", ..Self::text(name, description) }
    }

    /// The same column, printed only with `-o wide`.
    #[must_use]
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

/// One cell of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text as it is.
    Text(String),
    /// A count.
    Number(i64),
    /// A time, which is printed as its age; `None` for an unknown one.
    Age(Option<Timestamp>),
}

impl Cell {
    /// The cell of a count.
    pub fn count(count: usize) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }
}
