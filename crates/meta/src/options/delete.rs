//! Options of a deletion, from its body and from the query.

use serde_json::{Map, Value};

use super::known::{Request, check_write, unknown_field};
use super::read::check_timeout;
use super::{Query, dry_run, invalid};
use crate::decode::Decoded;
use crate::field::{FieldError, FieldErrors};
use crate::quote::quote;
use crate::status::ApiError;

const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The fields of `DeleteOptions`.
const BODY_FIELDS: &[&str] = &[
    "kind",
    "apiVersion",
    "gracePeriodSeconds",
    "preconditions",
    "orphanDependents",
    "propagationPolicy",
    "dryRun",
    IGNORE_STORE_READ_ERROR,
];

/// The fields of `preconditions`.
const PRECONDITION_FIELDS: &[&str] = &["uid", "resourceVersion"];

/// The effect on the dependents of a deleted object: upstream's `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are kept, without the owner reference.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

/// Options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds until the object is deleted.
    pub grace_period_seconds: Option<i64>,
    /// The effect on dependents.
    pub propagation: Option<Propagation>,
    /// The deprecated form of `propagation`; not both may be set.
    pub orphan_dependents: Option<bool>,
    /// Only if the object has this uid.
    pub precondition_uid: Option<String>,
    /// Only if the object has this version.
    pub precondition_resource_version: Option<String>,
    /// Whether everything is done but the write to the store.
    pub dry_run: bool,
    /// Whether an object is deleted even if it is corrupt, and with any finalizers; upstream's
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    pub ignore_store_read_error: bool,
}

/// The target of a deletion. Some parameters of the query mean something else for a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionOf {
    /// One object.
    Object,
    /// The objects of a collection that [`ListOptions`](super::ListOptions) select. There,
    /// `resourceVersion` in the query is one of those options, and no precondition.
    Collection,
}

impl DeleteOptions {
    /// Decodes them from the query.
    ///
    /// # Errors
    /// 400 for a query that cannot be decoded, and for a parameter that a deletion does not have;
    /// 422 for invalid values.
    pub fn from_query(query: &Query, of: DeletionOf) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::new();
        let options = Self::decode_query(query, of, &mut errors)?;
        options.validated(errors)
    }

    /// Decodes them from a body and the query. Upstream ignores the query when there is a body;
    /// here options of both count, so that a `dryRun` in the query is not lost.
    ///
    /// # Errors
    /// As [`DeleteOptions::from_query`]; 400 for a field of the body that is unknown or occurs
    /// twice, and for an option that has different values in the body and in the query.
    pub fn from_body(body: Decoded, query: &Query, of: DeletionOf) -> Result<Self, ApiError> {
        let Decoded { value, duplicates } = body;
        let Value::Object(fields) = value else { return Err(mistyped("the body", "an object")) };
        match fields.get("kind").unwrap_or(&Value::Null) {
            Value::Null => {}
            Value::String(kind) if matches!(kind.as_str(), "" | "DeleteOptions") => {}
            _ => return Err(ApiError::bad_request("expected DeleteOptions in the body")),
        }
        check_version(&fields)?;
        if let Some(twice) = duplicates.first() {
            return Err(unreadable(&format!("duplicate field {}", quote(twice))));
        }
        let mut errors = FieldErrors::new();
        let body = Self::decode_body(&fields, &mut errors)?;
        let query = Self::decode_query(query, of, &mut errors)?;
        body.with(query)?.validated(errors)
    }

    fn decode_query(
        query: &Query,
        of: DeletionOf,
        errors: &mut FieldErrors,
    ) -> Result<Self, ApiError> {
        let (request, versions): (_, &[&str]) = match of {
            DeletionOf::Object => {
                (Request::Delete, &["preconditions.resourceVersion", "resourceVersion"])
            }
            DeletionOf::Collection => {
                (Request::DeleteCollection, &["preconditions.resourceVersion"])
            }
        };
        check_write(query, request)?;
        check_timeout(query)?;
        Ok(Self {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation: propagation(query.single("propagationPolicy")?, errors),
            orphan_dependents: query.flag("orphanDependents")?,
            precondition_uid: precondition(query, &["preconditions.uid", "uid"])?,
            precondition_resource_version: precondition(query, versions)?,
            dry_run: dry_run(query.get_all("dryRun"), errors),
            ignore_store_read_error: query.flag(IGNORE_STORE_READ_ERROR)?.unwrap_or(false),
        })
    }

    fn decode_body(
        fields: &Map<String, Value>,
        errors: &mut FieldErrors,
    ) -> Result<Self, ApiError> {
        check_fields(fields, BODY_FIELDS)?;
        let empty = Map::new();
        let preconditions = match fields.get("preconditions") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(preconditions)) => preconditions,
            Some(_) => return Err(mistyped("preconditions", "an object")),
        };
        check_fields(preconditions, PRECONDITION_FIELDS)?;
        let precondition = |name| {
            let text = read(preconditions, name, "a string", Value::as_str)?;
            Ok::<_, ApiError>(text.map(str::to_owned))
        };
        Ok(Self {
            grace_period_seconds: read(
                fields,
                "gracePeriodSeconds",
                "a whole number",
                Value::as_i64,
            )?,
            propagation: propagation(
                read(fields, "propagationPolicy", "a string", Value::as_str)?,
                errors,
            ),
            orphan_dependents: read(fields, "orphanDependents", "true or false", Value::as_bool)?,
            precondition_uid: precondition("uid")?,
            precondition_resource_version: precondition("resourceVersion")?,
            dry_run: dry_run(dry_run_values(fields)?.into_iter(), errors),
            ignore_store_read_error: read(
                fields,
                IGNORE_STORE_READ_ERROR,
                "true or false",
                Value::as_bool,
            )?
            .unwrap_or(false),
        })
    }

    /// Adds the options of the query to those of the body.
    fn with(self, query: Self) -> Result<Self, ApiError> {
        Ok(Self {
            grace_period_seconds: either(
                "gracePeriodSeconds",
                self.grace_period_seconds,
                query.grace_period_seconds,
            )?,
            propagation: either("propagationPolicy", self.propagation, query.propagation)?,
            orphan_dependents: either(
                "orphanDependents",
                self.orphan_dependents,
                query.orphan_dependents,
            )?,
            precondition_uid: either("uid", self.precondition_uid, query.precondition_uid)?,
            precondition_resource_version: either(
                "resourceVersion",
                self.precondition_resource_version,
                query.precondition_resource_version,
            )?,
            dry_run: self.dry_run || query.dry_run,
            ignore_store_read_error: self.ignore_store_read_error || query.ignore_store_read_error,
        })
    }

    fn validated(self, mut errors: FieldErrors) -> Result<Self, ApiError> {
        if self.propagation.is_some() && self.orphan_dependents.is_some() {
            let why = "orphanDependents and propagationPolicy cannot be both set";
            errors.push(FieldError::forbidden("propagationPolicy", why));
        }
        if errors.is_empty() { Ok(self) } else { Err(invalid("DeleteOptions", errors)) }
    }
}

/// The value of an option that the body, the query or both have.
fn either<T: PartialEq>(
    name: &str,
    body: Option<T>,
    query: Option<T>,
) -> Result<Option<T>, ApiError> {
    if body.is_some() && query.is_some() && body != query {
        return Err(ApiError::bad_request(format!(
            "{name} has different values in the body and in the query"
        )));
    }
    Ok(body.or(query))
}

/// A precondition in the query, which has one of `names`. An empty one is an error: it is
/// what becomes of a variable that is not set.
fn precondition(query: &Query, names: &[&str]) -> Result<Option<String>, ApiError> {
    let mut precondition = None;
    for name in names {
        let Some(text) = query.single(name)? else { continue };
        if text.is_empty() {
            return Err(ApiError::bad_request(format!("query parameter {name} must not be empty")));
        }
        precondition = either(name, precondition, Some(text.to_owned()))?;
    }
    Ok(precondition)
}

/// Checks that all fields are `known`: each of them is an option.
fn check_fields(
    fields: &Map<String, Value>,
    known: &'static [&'static str],
) -> Result<(), ApiError> {
    let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    Err(unreadable(&unknown_field(name, known)))
}

/// Checks the API version: `DeleteOptions` belong to every group, but a version other than `v1`
/// could have another meaning.
fn check_version(fields: &Map<String, Value>) -> Result<(), ApiError> {
    match read(fields, "apiVersion", "a string", Value::as_str)? {
        None | Some("" | "v1") => Ok(()),
        Some(version) if version.split_once('/').is_some_and(|(_, version)| version == "v1") => {
            Ok(())
        }
        Some(_) => Err(ApiError::bad_request(
            "the API version of DeleteOptions is v1, meta.k8s.io/v1 or that of the resource",
        )),
    }
}

fn propagation(text: Option<&str>, errors: &mut FieldErrors) -> Option<Propagation> {
    match text {
        None => None,
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            let supported = &["Foreground", "Background", "Orphan"];
            errors.push(FieldError::not_supported("propagationPolicy", other, supported));
            None
        }
    }
}

fn dry_run_values(fields: &Map<String, Value>) -> Result<Vec<&str>, ApiError> {
    match fields.get("dryRun") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) => values
            .iter()
            .map(|value| value.as_str().ok_or_else(|| mistyped("dryRun", "a list of strings")))
            .collect(),
        Some(_) => Err(mistyped("dryRun", "a list of strings")),
    }
}

fn read<'a, T>(
    fields: &'a Map<String, Value>,
    name: &str,
    expected: &str,
    as_type: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => as_type(value).map(Some).ok_or_else(|| mistyped(name, expected)),
    }
}

fn mistyped(name: &str, expected: &str) -> ApiError {
    unreadable(&format!("{name} must be {expected}"))
}

fn unreadable(why: &str) -> ApiError {
    ApiError::bad_request(format!("DeleteOptions cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::{Format, decode};

    #[test]
    fn bodies() {
        let of = |value| {
            let body = Decoded { value, duplicates: Vec::new() };
            DeleteOptions::from_body(body, &Query::default(), DeletionOf::Object)
        };
        let good = of(json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5,
            "propagationPolicy": "Background", "dryRun": ["All"],
            "preconditions": { "uid": "u", "resourceVersion": "7" },
        }))
        .unwrap();
        assert_eq!(good.grace_period_seconds, Some(5));
        assert_eq!(good.propagation, Some(Propagation::Background));
        assert_eq!(good.precondition_uid.as_deref(), Some("u"));
        assert!(good.dry_run);
        for (bad, code) in [
            (json!([]), 400),
            (json!({ "kind": "SharedSecret" }), 400),
            (json!({ "apiVersion": "x/v9" }), 400),
            (json!({ "gracePeriodSeconds": "5" }), 400),
            (json!({ "dryRun": "All" }), 400),
            (json!({ "preconditions": 1 }), 400),
            (json!({ "kind": 1 }), 400),
            (json!({ "dryrun": ["All"] }), 400),
            (json!({ "dryRuns": ["All"] }), 400),
            (json!({ "preconditions": { "UID": "u" } }), 400),
            (json!({ "dryRun": [""] }), 422),
            (json!({ "dryRun": ["all"] }), 422),
            (json!({ "dryRun": ["All", "None"] }), 422),
            (json!({ "propagationPolicy": "" }), 422),
            (json!({ "propagationPolicy": "orphan" }), 422),
            (json!({ "propagationPolicy": "Sideways" }), 422),
            (json!({ "propagationPolicy": "Orphan", "orphanDependents": true }), 422),
        ] {
            assert_eq!(of(bad.clone()).unwrap_err().code(), code, "{bad}");
        }
    }

    #[test]
    fn a_field_that_occurs_twice_is_refused() {
        let body = decode(br#"{"dryRun":["All"],"dryRun":[]}"#, Format::Json).unwrap();
        let error = DeleteOptions::from_body(body, &Query::default(), DeletionOf::Object);
        assert_eq!(error.unwrap_err().code(), 400);
    }

    #[test]
    fn body_and_query_both_count() {
        let parse = |body: &str, query: &str, of| {
            let body = decode(body.as_bytes(), Format::Json).unwrap();
            DeleteOptions::from_body(body, &Query::parse(query).unwrap(), of)
        };
        let both = parse("{}", "dryRun=All&uid=u&resourceVersion=7", DeletionOf::Object).unwrap();
        assert!(both.dry_run);
        assert_eq!(both.precondition_uid.as_deref(), Some("u"));
        assert_eq!(both.precondition_resource_version.as_deref(), Some("7"));
        let collection = parse("{}", "resourceVersion=7&limit=1", DeletionOf::Collection).unwrap();
        assert_eq!(collection, DeleteOptions::default());
        let same = parse(r#"{"gracePeriodSeconds":5}"#, "gracePeriodSeconds=5", DeletionOf::Object);
        assert_eq!(same.unwrap().grace_period_seconds, Some(5));
        for (body, query) in [
            (r#"{"gracePeriodSeconds":5}"#, "gracePeriodSeconds=0"),
            (r#"{"preconditions":{"uid":"u"}}"#, "uid=v"),
            (r#"{"propagationPolicy":"Orphan"}"#, "propagationPolicy=Background"),
        ] {
            let error = parse(body, query, DeletionOf::Object).unwrap_err();
            assert_eq!(error.code(), 400, "{body} {query}");
        }
        let error =
            parse(r#"{"orphanDependents":true}"#, "propagationPolicy=Orphan", DeletionOf::Object);
        assert_eq!(error.unwrap_err().code(), 422);
    }
}
