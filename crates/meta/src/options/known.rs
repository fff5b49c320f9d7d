//! Which options each request has, by the names of their query parameters.
//!
//! On a write, and on the deletion of a collection, every other parameter is refused: its sender
//! expects an effect that it does not have, such as a selector or a dry run. On a read, an option of
//! another request is refused, too, and one in the wrong case. A parameter that is not known at all has
//! no effect, and [`parameter_warnings`] says so: proxies and browsers add parameters of their own.

use super::Query;
use super::nearest::nearest;
use crate::quote::{cut, quote};
use crate::status::ApiError;

/// Options that every request may have. `includeUninitialized` is sent by old clients, and has no
/// effect since Kubernetes 1.14.
const COMMON: &[&str] = &["pretty", "timeout", "includeObject", "includeUninitialized"];

/// Options of a get; upstream's `GetOptions`.
pub(super) const GET: &[&str] = &["resourceVersion", "export", "exact", "extended"];

/// Options that select objects.
const SELECTORS: &[&str] = &["labelSelector", "fieldSelector"];

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

const ALL: [&[&str]; 6] = [COMMON, GET, LIST, WRITE, PATCH, DELETE];

/// Maximum bytes of a name in a message.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of warnings about the parameters of one request.
const MAX_WARNINGS: usize = 10;

/// How the values of access keys begin. A name that has it is not repeated.
const KEY_PREFIX: &str = "pst_";

/// Checks that the query of a read has no option of another request. `request` is the name of the
/// options object, for the error.
///
/// # Errors
/// 400 for such an option, and for one whose name is written in the wrong case.
pub(super) fn check_read(
    query: &Query,
    request: &str,
    understood: &[&[&'static str]],
) -> Result<(), ApiError> {
    for name in query.names().filter(|name| !has(understood, name)) {
        if has(&ALL, name) {
            return Err(not_supported(name, request));
        }
        if let Some(known) = all().find(|known| known.eq_ignore_ascii_case(name)) {
            return Err(ApiError::bad_request(format!(
                "unknown query parameter {}: did you mean {known}?",
                cut(name, MAX_NAME_BYTES)
            )));
        }
    }
    Ok(())
}

/// Checks that the query of a write has no parameters but those of `understood`. `request` is the
/// name of the options object, for the error.
///
/// # Errors
/// 400 for any other. The error names the parameter, and the one that is nearest to it.
pub(super) fn check_write(
    query: &Query,
    request: &str,
    understood: &[&[&'static str]],
) -> Result<(), ApiError> {
    let Some(name) = query.names().find(|name| !has(understood, name)) else { return Ok(()) };
    if has(&ALL, name) {
        return Err(not_supported(name, request));
    }
    let own = || understood.iter().copied().chain([COMMON]).flatten().copied();
    let near = nearest(name, own().chain(all()));
    let (supported, others): (Vec<_>, Vec<_>) =
        near.iter().copied().partition(|near| own().any(|own| own == *near));
    let hint = match (supported.as_slice(), others.as_slice()) {
        ([], []) => format!("{request} has {}", own().collect::<Vec<_>>().join(", ")),
        ([], others) => {
            format!(
                "the nearest known one is {}, which {request} does not support",
                others.join(" or ")
            )
        }
        (supported, _) => format!("did you mean {}?", supported.join(" or ")),
    };
    Err(ApiError::bad_request(format!("unknown query parameter {}: {hint}", display_name(name))))
}

/// A warning for each parameter of a read that no request has, at most `MAX_WARNINGS`. `own` is a parameter that only
/// this request has.
pub fn parameter_warnings(query: &Query, own: Option<&str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in query.names().filter(|name| !has(&ALL, name) && Some(*name) != own) {
        if warnings.len() == MAX_WARNINGS {
            break;
        }
        let near = nearest(name, all());
        let hint = match near.as_slice() {
            [] => String::new(),
            near => format!(": did you mean {}?", near.join(" or ")),
        };
        let warning = format!("unknown query parameter {} has no effect{hint}", display_name(name));
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    warnings
}

/// The error for a field of an options object that is not `known`.
pub(super) fn unknown_field(name: &str, known: &'static [&'static str]) -> String {
    let hint = match nearest(name, known.iter().copied()).as_slice() {
        [] => String::new(),
        near => format!(", did you mean {}?", near.join(" or ")),
    };
    format!("unknown field {}{hint}", display_name(name))
}

fn not_supported(name: &str, request: &str) -> ApiError {
    let why = if SELECTORS.contains(&name) {
        ": it selects objects in a list, a watch or the deletion of a collection"
    } else {
        ""
    };
    ApiError::bad_request(format!("query parameter {name} is not supported in {request}{why}"))
}

/// A name as messages have it.
fn display_name(name: &str) -> String {
    if name.contains(KEY_PREFIX) {
        return "(not printed, because it may be an access key)".to_owned();
    }
    quote(cut(name, MAX_NAME_BYTES))
}

fn has(lists: &[&[&'static str]], name: &str) -> bool {
    lists.iter().chain([&COMMON]).any(|list| list.contains(&name))
}

fn all() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().flatten().copied()
}
