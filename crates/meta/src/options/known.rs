//! Which options each request has, by the names of their query parameters.
//!
//! Parameters that are no option of any request are ignored, as upstream does: clients and proxies
//! add their own. An option of another request, or one in the wrong case, is refused: its sender
//! expects an effect that it does not have.

use super::Query;
use crate::quote::cut;
use crate::status::ApiError;

/// Options that every request may have.
const COMMON: &[&str] = &["pretty", "timeout"];

/// Options of a get; upstream's `GetOptions`.
pub(super) const GET: &[&str] = &["resourceVersion", "export", "exact", "extended"];

/// Options of a list, a watch and the selection of a collection; upstream's `ListOptions`.
pub(super) const LIST: &[&str] = &[
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "export",
    "exact",
    "extended",
];

/// Options of create and update.
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

/// Options of a patch.
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

/// Options of a deletion; upstream's `DeleteOptions`.
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "propagationPolicy",
    "orphanDependents",
    "uid",
    "resourceVersion",
    "preconditions.uid",
    "preconditions.resourceVersion",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
];

/// Checks that the query has no options but those of `understood`. `request` is the name of the
/// options object, for the error.
///
/// # Errors
/// 400 for an option of another request, and for one whose name is written in the wrong case.
pub(super) fn check_names(
    query: &Query,
    request: &str,
    understood: &[&[&str]],
) -> Result<(), ApiError> {
    let is_in = |lists: &[&[&str]], name: &str| lists.iter().any(|list| list.contains(&name));
    let all = [COMMON, GET, LIST, WRITE, PATCH, DELETE];
    for name in query.names() {
        if is_in(&[COMMON], name) || is_in(understood, name) {
            continue;
        }
        if is_in(&all, name) {
            return Err(ApiError::bad_request(format!(
                "query parameter {name} is not supported in {request}"
            )));
        }
        check_case(name, all.iter().copied().flatten().copied(), "query parameter")?;
    }
    Ok(())
}

/// Checks that `name`, which is not `known`, does not differ from one of them in case alone.
///
/// # Errors
/// 400 with the known name.
pub(super) fn check_case(
    name: &str,
    mut known: impl Iterator<Item = &'static str>,
    what: &str,
) -> Result<(), ApiError> {
    match known.find(|known| known.eq_ignore_ascii_case(name)) {
        Some(known) => Err(ApiError::bad_request(format!(
            "{what} {} is not known: it is written {known}",
            cut(name, 128)
        ))),
        None => Ok(()),
    }
}
