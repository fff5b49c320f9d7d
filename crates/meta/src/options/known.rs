//! Which options each request takes: one table, by the names of their query parameters.
//!
//! An option of another request is ignored, as in kube-apiserver: dynamic clients send the options of lists with each
//! GET, and some with a DELETE of one object. On a write, [`ignored_option_warnings`] says so. A write is refused if the
//! option is a precondition that the write does not check, since it would do more than its sender wants.
//!
//! A name that no request takes, or in another letter case, is refused on a write, because it may be a misspelled dry
//! run. On a read it has no effect, and [`parameter_warnings`] says so.

use super::Query;
use super::nearest::nearest;
use crate::quote::{cut, quote};
use crate::status::ApiError;

/// A request that takes options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// GET of one object.
    Get,
    /// GET of a collection: a list, or a watch.
    List,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

use Request::{Create, Delete, DeleteCollection, Get, List, Patch, Update};

impl Request {
    /// The name of its options object, for errors.
    fn options_kind(self) -> &'static str {
        match self {
            Get => "GetOptions",
            List => "ListOptions",
            Create => "CreateOptions",
            Update => "UpdateOptions",
            Patch => "PatchOptions",
            Delete => "DeleteOptions",
            DeleteCollection => "DeleteOptions of a collection",
        }
    }
}

/// A query parameter, and the requests that take it.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) taken_by: &'static [Request],
}

const EVERY: &[Request] = &[Get, List, Create, Update, Patch, Delete, DeleteCollection];
const READS: &[Request] = &[Get, List, DeleteCollection];
const SELECTS: &[Request] = &[List, DeleteCollection];
const CHANGES: &[Request] = &[Create, Update, Patch];
const WRITES: &[Request] = &[Create, Update, Patch, Delete, DeleteCollection];
const DELETES: &[Request] = &[Delete, DeleteCollection];

/// The options of each request, in the order of messages. `includeUninitialized` is sent by old clients, and has no
/// effect since Kubernetes 1.14.
#[rustfmt::skip]
pub(super) const TABLE: &[Known] = &[
    Known { name: "dryRun", taken_by: WRITES },
    Known { name: "fieldManager", taken_by: CHANGES },
    Known { name: "fieldValidation", taken_by: CHANGES },
    Known { name: "force", taken_by: &[Patch] },
    Known { name: "gracePeriodSeconds", taken_by: DELETES },
    Known { name: "propagationPolicy", taken_by: DELETES },
    Known { name: "orphanDependents", taken_by: DELETES },
    Known { name: "uid", taken_by: DELETES },
    Known { name: "preconditions.uid", taken_by: DELETES },
    Known { name: "preconditions.resourceVersion", taken_by: DELETES },
    Known { name: "ignoreStoreReadErrorWithClusterBreakingPotential", taken_by: DELETES },
    Known { name: "resourceVersion", taken_by: &[Get, List, Delete, DeleteCollection] },
    Known { name: "labelSelector", taken_by: SELECTS },
    Known { name: "fieldSelector", taken_by: SELECTS },
    Known { name: "limit", taken_by: SELECTS },
    Known { name: "continue", taken_by: SELECTS },
    Known { name: "resourceVersionMatch", taken_by: SELECTS },
    Known { name: "watch", taken_by: SELECTS },
    Known { name: "sendInitialEvents", taken_by: SELECTS },
    Known { name: "allowWatchBookmarks", taken_by: SELECTS },
    Known { name: "timeoutSeconds", taken_by: SELECTS },
    Known { name: "export", taken_by: READS },
    Known { name: "exact", taken_by: READS },
    Known { name: "extended", taken_by: READS },
    Known { name: "pretty", taken_by: EVERY },
    Known { name: "timeout", taken_by: EVERY },
    Known { name: "includeObject", taken_by: EVERY },
    Known { name: "includeUninitialized", taken_by: EVERY },
];

/// Options that limit a deletion. A write that does not take one is rejected.
const PRECONDITIONS: &[&str] =
    &["uid", "preconditions.uid", "preconditions.resourceVersion", "resourceVersion"];

/// Maximum bytes of a name in a message.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of warnings about the parameters of one request.
const MAX_WARNINGS: usize = 10;

/// How the values of access keys begin. A name that has it is not repeated.
const KEY_PREFIX: &str = "pst_";

/// Checks that the query of a write has no parameter that is unknown, and no precondition that the write does not check.
///
/// # Errors
/// 400 with the parameter, and the one that is nearest to it.
pub(super) fn check_write(query: &Query, request: Request) -> Result<(), ApiError> {
    let is_taken = |name: &str| of(request).any(|taken| taken == name);
    let is_ignored = |name: &str| is_known(name) && !PRECONDITIONS.contains(&name);
    let refused = query.names().find(|name| !is_taken(name) && !is_ignored(name));
    let Some(name) = refused else { return Ok(()) };
    let kind = request.options_kind();
    if is_known(name) {
        let message = format!("query parameter {name} is not supported in {kind}");
        return Err(ApiError::bad_request(message));
    }
    let near = nearest(name, of(request).chain(all()));
    let (supported, others): (Vec<_>, Vec<_>) = near.into_iter().partition(|near| is_taken(near));
    let hint = match (supported.as_slice(), others.as_slice()) {
        ([], []) => format!("{kind} has {}", of(request).collect::<Vec<_>>().join(", ")),
        ([], others) => {
            format!(
                "the nearest known one is {}, which {kind} does not support",
                others.join(" or ")
            )
        }
        (supported, _) => format!("did you mean {}?", supported.join(" or ")),
    };
    Err(ApiError::bad_request(format!("unknown query parameter {}: {hint}", display_name(name))))
}

/// A warning for each option of other requests in the query of a write, at most `MAX_WARNINGS`.
pub fn ignored_option_warnings(query: &Query, request: Request) -> Vec<String> {
    let is_taken = |name: &str| of(request).any(|taken| taken == name);
    let mut ignored: Vec<&str> = query.names().filter(|name| !is_taken(name)).collect();
    ignored.dedup();
    let kind = request.options_kind();
    let warning = |name: &&str| format!("query parameter {name} has no effect in {kind}");
    ignored.iter().filter(|name| is_known(name)).take(MAX_WARNINGS).map(warning).collect()
}

/// A warning for each parameter of a read that no request has, at most `MAX_WARNINGS`. `own` is a parameter that only
/// this request has.
pub fn parameter_warnings(query: &Query, own: Option<&str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in query.names().filter(|name| !is_known(name) && Some(*name) != own) {
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

/// A name as messages have it.
fn display_name(name: &str) -> String {
    if name.contains(KEY_PREFIX) {
        return "(not printed, because it may be an access key)".to_owned();
    }
    quote(cut(name, MAX_NAME_BYTES))
}

fn is_known(name: &str) -> bool {
    all().any(|known| known == name)
}

/// The parameters that a request takes.
fn of(request: Request) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |known| known.taken_by.contains(&request)).map(|known| known.name)
}

fn all() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|known| known.name)
}
