//! Conflicts between an apply and other managers, and the Status that tells of them.

use std::fmt::Write as _;

use super::managers::{ManagedSet, Manager};
use super::set::FieldSet;
use crate::object::Operation;
use crate::quote::{cut, quote};
use crate::status::{ApiError, StatusCause};

/// Maximum number of conflicts that an error names. It says how many there are.
const MAX_NAMED: usize = 500;

/// Maximum bytes of all paths that an error names. A path is a few dozen bytes long.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// Maximum bytes of one path in an error.
const MAX_ONE_PATH_BYTES: usize = 2048;

/// The fields that an apply would change and that other managers own. Paths have names of fields
/// and what identifies an item of a list, and no other values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts {
    with: Vec<Conflict>,
}

/// The fields of one manager.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Conflict {
    manager: Manager,
    operation: Operation,
    fields: FieldSet,
}

impl Conflicts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.with.is_empty()
    }

    /// How many fields of managers there are.
    pub fn len(&self) -> usize {
        self.with.iter().map(|conflict| conflict.fields.len()).sum()
    }

    /// Adds the fields that are in conflict with one entry.
    pub(super) fn add(&mut self, owner: &ManagedSet, fields: FieldSet) {
        if fields.is_empty() {
            return;
        }
        let (manager, operation) = (owner.manager.clone(), owner.operation);
        self.with.push(Conflict { manager, operation, fields });
    }

    /// The conflicts that are not about `allowed` fields.
    #[must_use]
    pub(super) fn without(mut self, allowed: &FieldSet) -> Self {
        for conflict in &mut self.with {
            conflict.fields.subtract(allowed);
        }
        self.with.retain(|conflict| !conflict.fields.is_empty());
        self
    }

    /// The 409 in upstream's words: one cause for each field, sorted by managers and paths.
    pub fn into_error(mut self) -> ApiError {
        self.with.sort_by(|left, right| left.order_key().cmp(&right.order_key()));
        let count = self.len();
        let mut message = match count {
            1 => "Apply failed with 1 conflict:".to_owned(),
            _ => format!("Apply failed with {count} conflicts:"),
        };
        let (mut causes, mut bytes) = (Vec::new(), 0);
        for conflict in &self.with {
            if is_full(causes.len(), bytes) {
                break;
            }
            let manager = conflict.manager_text();
            if count > 1 {
                let separator = if causes.is_empty() { ' ' } else { '\n' };
                // Writing to a text cannot fail.
                let _ = write!(message, "{separator}conflicts with {manager}:");
            }
            for path in conflict.fields.paths() {
                if is_full(causes.len(), bytes) {
                    break;
                }
                let field = cut(&path, MAX_ONE_PATH_BYTES).to_owned();
                bytes += field.len();
                let _ = match count {
                    1 => write!(message, " conflict with {manager}: {field}"),
                    _ => write!(message, "\n- {field}"),
                };
                causes.push(StatusCause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {manager}"),
                    field,
                });
            }
        }
        if causes.len() < count {
            let _ = write!(message, "\nand {} more", count - causes.len());
        }
        ApiError::apply_conflict(message, causes)
    }
}

fn is_full(named: usize, bytes: usize) -> bool {
    named >= MAX_NAMED || bytes > MAX_PATH_BYTES
}

impl Conflict {
    fn order_key(&self) -> (&str, Operation, &str, &str) {
        let Manager { name, api_version, subresource } = &self.manager;
        (name, self.operation, api_version, subresource)
    }

    /// The manager as upstream writes it: an update is told from an apply by its version.
    fn manager_text(&self) -> String {
        let mut text = quote(&self.manager.name);
        if !self.manager.subresource.is_empty() {
            let _ = write!(text, " with subresource {}", quote(&self.manager.subresource));
        }
        if self.operation == Operation::Update {
            let _ = write!(text, " using {}", self.manager.api_version);
        }
        text
    }
}
