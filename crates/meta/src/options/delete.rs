//! Options of a deletion: from its body or, without one, from the query.

use serde_json::{Map, Value};

use super::read::check_timeout;
use super::{Query, dry_run, invalid};
use crate::field::{FieldError, FieldErrors};
use crate::status::ApiError;

const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// What happens to the dependents of a deleted object: upstream's `propagationPolicy`.
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
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// The deprecated form of `propagation`; not both may be set.
    pub orphan_dependents: Option<bool>,
    /// Only if the object has this uid.
    pub precondition_uid: Option<String>,
    /// Only if the object has this version.
    pub precondition_resource_version: Option<String>,
    /// Whether everything is done but the write to the store.
    pub dry_run: bool,
    /// Whether an object is deleted even if it is corrupt, and whatever its finalizers; upstream's
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// Decodes them from the query.
    ///
    /// # Errors
    /// 400 for what cannot be decoded, 422 for what is invalid.
    pub fn from_query(query: &Query) -> Result<Self, ApiError> {
        check_timeout(query)?;
        let mut errors = FieldErrors::new();
        let text = |name| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = Self {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation: propagation(query.get("propagationPolicy"), &mut errors),
            orphan_dependents: query.flag("orphanDependents")?,
            precondition_uid: text("preconditions.uid"),
            precondition_resource_version: text("preconditions.resourceVersion"),
            dry_run: dry_run(query.get_all("dryRun"), &mut errors),
            ignore_store_read_error: query.flag(IGNORE_STORE_READ_ERROR)?.unwrap_or(false),
        };
        options.validated(errors)
    }

    /// Decodes them from a body; those in the query are then ignored, as upstream does.
    ///
    /// # Errors
    /// As [`DeleteOptions::from_query`].
    pub fn from_body(body: Value, query: &Query) -> Result<Self, ApiError> {
        check_timeout(query)?;
        let Value::Object(fields) = body else { return Err(mistyped("the body", "an object")) };
        match fields.get("kind").and_then(Value::as_str) {
            None | Some("" | "DeleteOptions") => {}
            Some(_) => return Err(ApiError::bad_request("expected DeleteOptions in the body")),
        }
        check_version(&fields)?;
        let mut errors = FieldErrors::new();
        let empty = Map::new();
        let preconditions = match fields.get("preconditions") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(preconditions)) => preconditions,
            Some(_) => return Err(mistyped("preconditions", "an object")),
        };
        let options = Self {
            grace_period_seconds: read(
                &fields,
                "gracePeriodSeconds",
                "a whole number",
                Value::as_i64,
            )?,
            propagation: propagation(
                read(&fields, "propagationPolicy", "a string", Value::as_str)?,
                &mut errors,
            ),
            orphan_dependents: read(&fields, "orphanDependents", "true or false", Value::as_bool)?,
            precondition_uid: read(preconditions, "uid", "a string", Value::as_str)?
                .map(str::to_owned),
            precondition_resource_version: read(
                preconditions,
                "resourceVersion",
                "a string",
                Value::as_str,
            )?
            .map(str::to_owned),
            dry_run: dry_run(dry_run_values(&fields)?.into_iter(), &mut errors),
            ignore_store_read_error: read(
                &fields,
                IGNORE_STORE_READ_ERROR,
                "true or false",
                Value::as_bool,
            )?
            .unwrap_or(false),
        };
        options.validated(errors)
    }

    fn validated(self, mut errors: FieldErrors) -> Result<Self, ApiError> {
        if self.propagation.is_some() && self.orphan_dependents.is_some() {
            let why = "orphanDependents and propagationPolicy cannot be both set";
            errors.push(FieldError::forbidden("propagationPolicy", why));
        }
        if errors.is_empty() { Ok(self) } else { Err(invalid("DeleteOptions", errors)) }
    }
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
        None | Some("") => None,
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
    ApiError::bad_request(format!("DeleteOptions cannot be read: {name} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies() {
        let of = |body| DeleteOptions::from_body(body, &Query::default());
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
            (json!({ "propagationPolicy": "Sideways" }), 422),
            (json!({ "propagationPolicy": "Orphan", "orphanDependents": true }), 422),
        ] {
            assert_eq!(of(bad.clone()).unwrap_err().code(), code, "{bad}");
        }
    }
}
