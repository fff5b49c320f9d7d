//! The options of requests: what they may be, and what is wrong with them (wire contract 1.4).
//!
//! A value that cannot be read is 400; one that can be read and makes no sense is 422.

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

/// 422 on the options object of an operation.
fn invalid(kind: &'static str, errors: FieldErrors) -> ApiError {
    ApiError::invalid(GroupKind { group: "meta.k8s.io", kind }, "", errors)
}

/// `dryRun` knows one value.
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
