//! Options of get, list and watch.

use super::known::{Request, check_write};
use super::{Query, duration, invalid};
use crate::field::{FieldError, FieldErrors};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;

/// The `resourceVersion` of a read: how old the returned state may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedVersion {
    /// `0`: any age.
    Any,
    /// A version, as the number that clients have.
    At(u64),
}

/// The `resourceVersionMatch` of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// That version and no other.
    Exact,
    /// That version or a later one.
    NotOlderThan,
}

/// Options of a get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// How old the returned state may be; `None` for the most recent.
    pub resource_version: Option<RequestedVersion>,
    /// Whether the caller is told their permissions on the object.
    pub extended: bool,
}

impl GetOptions {
    /// Decodes them from the query. Options of other requests are ignored, such as those of a list.
    ///
    /// # Errors
    /// 400 for what cannot be decoded.
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        check_common(query)?;
        let extended = query.flag("extended")?.unwrap_or(false);
        Ok(Self { resource_version: version(query)?, extended })
    }
}

/// Options of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Which labels the objects must have.
    pub label_selector: LabelSelector,
    /// Which fields the objects must have.
    pub field_selector: FieldSelector,
    /// Maximum number of objects on one page; 0 for all.
    pub limit: u64,
    /// The position at which this page starts.
    pub continue_token: Option<String>,
    /// How old the returned state may be; `None` for the most recent.
    pub resource_version: Option<RequestedVersion>,
    /// How `resource_version` is matched.
    pub version_match: Option<VersionMatch>,
    /// Whether it is a watch.
    pub watch: bool,
    /// Whether a watch starts with events for the objects that exist.
    pub send_initial_events: Option<bool>,
    /// Whether the watch may send bookmarks.
    pub allow_bookmarks: bool,
    /// How long a watch lasts, in seconds.
    pub timeout_seconds: Option<u64>,
    /// Whether the caller is told their permissions on each object.
    pub extended: bool,
}

impl ListOptions {
    /// Decodes them from the query. `fields` are those that a field selector may name. Options of other requests are
    /// ignored.
    ///
    /// # Errors
    /// 400 for a query that cannot be decoded, 422 for invalid values.
    pub fn parse(query: &Query, fields: &[&str]) -> Result<Self, ApiError> {
        Self::decode(query, fields)
    }

    /// Decodes which objects a deletion of a collection takes. The query may have the options of
    /// the deletion, too: see [`DeleteOptions`](super::DeleteOptions).
    ///
    /// # Errors
    /// As [`ListOptions::parse`]; 400 for `watch=true`.
    pub fn parse_of_deletion(query: &Query, fields: &[&str]) -> Result<Self, ApiError> {
        check_write(query, Request::DeleteCollection)?;
        let options = Self::decode(query, fields)?;
        if options.watch {
            return Err(ApiError::bad_request("watch is not supported for deletions"));
        }
        Ok(options)
    }

    fn decode(query: &Query, fields: &[&str]) -> Result<Self, ApiError> {
        check_common(query)?;
        let text = |name| query.single(name).map(Option::unwrap_or_default);
        let label_selector = LabelSelector::parse(text("labelSelector")?);
        let field_selector = FieldSelector::parse(text("fieldSelector")?, fields);
        let version_match = match query.single("resourceVersionMatch")?.filter(|t| !t.is_empty()) {
            None => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                let supported = &["Exact", "NotOlderThan"];
                let error = FieldError::not_supported("resourceVersionMatch", other, supported);
                let mut errors = FieldErrors::new();
                errors.push(error);
                return Err(invalid("ListOptions", errors));
            }
        };
        let options = Self {
            label_selector: label_selector.map_err(ApiError::bad_request)?,
            field_selector: field_selector.map_err(ApiError::bad_request)?,
            limit: query.number("limit")?.unwrap_or(0),
            continue_token: query.single("continue")?.filter(|t| !t.is_empty()).map(str::to_owned),
            resource_version: version(query)?,
            version_match,
            watch: query.flag("watch")?.unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents")?,
            allow_bookmarks: query.flag("allowWatchBookmarks")?.unwrap_or(false),
            timeout_seconds: query.number("timeoutSeconds")?,
            extended: query.flag("extended")?.unwrap_or(false),
        };
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), ApiError> {
        let mut errors = FieldErrors::new();
        self.check_match(&mut errors);
        self.check_initial(&mut errors);
        if !errors.is_empty() {
            return Err(invalid("ListOptions", errors));
        }
        let has_version = matches!(self.resource_version, Some(RequestedVersion::At(_)));
        if self.continue_token.is_some() && has_version {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(())
    }

    fn check_match(&self, errors: &mut FieldErrors) {
        const PATH: &str = "resourceVersionMatch";
        let Some(version_match) = self.version_match else { return };
        let mut forbid = |why: &str| errors.push(FieldError::forbidden(PATH, why));
        if self.watch && self.send_initial_events.is_none() {
            forbid(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if self.continue_token.is_some() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if self.watch {
            return;
        }
        match (self.resource_version, version_match) {
            (None, _) => {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            (Some(RequestedVersion::Any), VersionMatch::Exact) => {
                forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            _ => {}
        }
    }

    fn check_initial(&self, errors: &mut FieldErrors) {
        if self.send_initial_events.is_none() {
            return;
        }
        if !self.watch {
            let why = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", why));
        } else if self.version_match != Some(VersionMatch::NotOlderThan) {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
}

/// Checks the parameters that every read may have.
fn check_common(query: &Query) -> Result<(), ApiError> {
    if query.flag("export")?.unwrap_or(false) {
        return Err(ApiError::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    if query.flag("exact")?.unwrap_or(false) {
        return Err(ApiError::bad_request("the exact parameter is no longer supported"));
    }
    check_timeout(query)
}

/// Checks `timeout`, which most of kubectl's requests have (`timeout=32s`). It has no effect: the
/// server has its own deadlines, and zero or less is no wish upstream either.
pub(super) fn check_timeout(query: &Query) -> Result<(), ApiError> {
    let Some(text) = query.single("timeout")?.filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    duration::parse(text).map(drop).ok_or_else(|| {
        ApiError::bad_request("query parameter timeout must be a duration, such as 32s")
    })
}

fn version(query: &Query) -> Result<Option<RequestedVersion>, ApiError> {
    match query.single("resourceVersion")? {
        None | Some("") => Ok(None),
        Some("0") => Ok(Some(RequestedVersion::Any)),
        Some(text) => match text.parse() {
            Ok(version) => Ok(Some(RequestedVersion::At(version))),
            Err(_) => Err(ApiError::bad_request("invalid resource version: it must be a number")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> u16 {
        let query = Query::parse(text).unwrap();
        ListOptions::parse(&query, &["metadata.name"]).map_or_else(|error| error.code(), |_| 200)
    }

    #[test]
    fn status_codes_of_the_wire_contract() {
        for (text, want) in [
            ("", 200),
            ("limit=5&resourceVersion=7", 200),
            ("resourceVersion=x", 400),
            ("resourceVersion=-1", 400),
            ("limit=x", 400),
            ("limit=-1", 400),
            ("timeout=32s", 200),
            ("timeout=soon", 400),
            ("timeout=0", 200),
            ("timeout=0s", 200),
            ("timeout=-1s", 200),
            ("timeout=.5h", 200),
            ("timeout=1", 400),
            ("timeoutSeconds=x", 400),
            ("watch=maybe", 400),
            ("watch=true&watch=false", 400),
            ("export=true", 400),
            ("labelSelector=a%20b", 400),
            ("fieldSelector=spec.x%3D1", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=NotOlderThan", 422),
            ("resourceVersionMatch=Exact&resourceVersion=0", 422),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=0", 200),
            ("resourceVersionMatch=Exact&resourceVersion=5", 200),
            ("resourceVersionMatch=Sometimes&resourceVersion=5", 422),
            ("resourceVersionMatch=Exact&resourceVersion=5&continue=x", 422),
            ("continue=x&resourceVersion=5", 400),
            ("continue=x&resourceVersion=0", 200),
            ("sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 200),
            ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 200),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 422),
            ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", 422),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", 422),
        ] {
            assert_eq!(code(text), want, "{text}");
        }
    }
}
