//! The options of requests, decoded and validated. See `docs/reference/api.md#options-of-lists-and-watches`.
//!
//! A value that cannot be decoded is 400; an invalid value is 422. An option that the request does not take is ignored, with
//! a warning on writes. An unknown parameter is 400 on a write, and a warning on a read.

mod delete;
mod duration;
mod known;
mod nearest;
mod query;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use delete::{DeleteOptions, DeletionOf, Propagation};
pub use known::{Request, ignored_option_warnings, parameter_warnings};
pub use nearest::nearest;
pub use query::{MAX_PARAMETERS, MAX_QUERY_BYTES, Query};
pub use read::{GetOptions, ListOptions, RequestedVersion, VersionMatch};
pub(crate) use write::check_manager;
pub use write::{FieldValidation, WriteKind, WriteOptions};

use crate::field::{BadValue, FieldError, FieldErrors};
use crate::gvk::GroupKind;
use crate::quote::quote;
use crate::status::ApiError;

/// Maximum number of unsupported values that one error repeats.
const MAX_REPORTED: usize = 10;

/// A 422 about the options object of an operation.
fn invalid(kind: &'static str, errors: FieldErrors) -> ApiError {
    ApiError::invalid(GroupKind { group: "meta.k8s.io", kind }, "", errors)
}

/// Whether `dryRun` is set. `All` is the only value that is supported: with any other, the
/// empty one too, the client expects that nothing is written.
fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut FieldErrors) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let list: Vec<String> =
            values.iter().take(MAX_REPORTED).map(|value| quote(value)).collect();
        let list = BadValue::Bare(format!("[]string{{{}}}", list.join(", ")));
        errors.push(FieldError::not_supported("dryRun", list, &["All"]));
    }
    !values.is_empty()
}
