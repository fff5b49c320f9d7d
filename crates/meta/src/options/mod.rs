//! The options of requests, decoded and validated (wire contract 1.4).
//!
//! A value that cannot be decoded is 400; one that can, and is invalid, is 422.

mod delete;
mod query;
mod read;
mod write;

pub use delete::{DeleteOptions, Propagation};
pub use query::Query;
pub use read::{GetOptions, ListOptions, RequestedVersion, VersionMatch};
pub(crate) use write::check_manager;
pub use write::{FieldValidation, WriteKind, WriteOptions};

use crate::field::{FieldError, FieldErrors};
use crate::gvk::GroupKind;
use crate::status::ApiError;

/// Returns a 422 about the options object of an operation.
fn invalid(kind: &'static str, errors: FieldErrors) -> ApiError {
    ApiError::invalid(GroupKind { group: "meta.k8s.io", kind }, "", errors)
}

/// Returns whether `dryRun` is set. `All` is the only value that is supported.
fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut FieldErrors) -> bool {
    let mut dry_run = false;
    for value in values.filter(|value| !value.is_empty()) {
        if value == "All" {
            dry_run = true;
        } else {
            errors.push(FieldError::not_supported("dryRun", value, &["All"]));
        }
    }
    dry_run
}
