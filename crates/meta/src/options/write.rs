//! Options of create, update and patch.

use super::known::{Request, check_write};
use super::read::check_timeout;
use super::{Query, dry_run, invalid};
use crate::field::{BadValue, FieldError, FieldErrors};
use crate::printable::is_printable;
use crate::status::ApiError;

/// The longest name of a field manager, in bytes.
const MAX_FIELD_MANAGER_BYTES: usize = 128;

/// The operation of a write: the options differ a little, and their errors name the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH, except apply.
    Patch,
    /// PATCH, as server-side apply.
    Apply,
}

impl WriteKind {
    fn request(self) -> Request {
        match self {
            Self::Create => Request::Create,
            Self::Update => Request::Update,
            Self::Patch | Self::Apply => Request::Patch,
        }
    }

    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

/// The treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Ignore them.
    Ignore,
    /// Return warnings.
    #[default]
    Warn,
    /// Refuse the write.
    Strict,
}

/// Options of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether everything is done but the write to the store.
    pub dry_run: bool,
    /// The name of the manager that makes the change.
    pub field_manager: Option<String>,
    /// The treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Whether an apply takes over what other managers own.
    pub force: bool,
}

impl WriteOptions {
    /// Decodes them from the query.
    ///
    /// # Errors
    /// 400 for a query that cannot be decoded, and for a parameter that the request does not have;
    /// 422 for invalid values.
    pub fn parse(query: &Query, kind: WriteKind) -> Result<Self, ApiError> {
        let is_apply = kind == WriteKind::Apply;
        check_write(query, kind.request())?;
        check_timeout(query)?;
        let mut errors = FieldErrors::new();
        let dry_run = dry_run(query.get_all("dryRun"), &mut errors);
        let field_validation = validation(query.single("fieldValidation")?, &mut errors);
        let field_manager = query.single("fieldManager")?.filter(|manager| !manager.is_empty());
        if let Some(manager) = field_manager {
            check_manager("fieldManager", manager, &mut errors);
        }
        if field_manager.is_none() && is_apply {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        let is_patch = kind.request() == Request::Patch;
        let force = if is_patch { query.flag("force")? } else { None };
        if force.is_some() && !is_apply {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if !errors.is_empty() {
            return Err(invalid(kind.options_kind(), errors));
        }
        let field_manager = field_manager.map(str::to_owned);
        let force = force.unwrap_or(false);
        Ok(Self { dry_run, field_manager, field_validation, force })
    }
}

fn validation(text: Option<&str>, errors: &mut FieldErrors) -> FieldValidation {
    match text {
        None | Some("" | "Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            let supported = &["Ignore", "Warn", "Strict"];
            errors.push(FieldError::not_supported("fieldValidation", other, supported));
            FieldValidation::Warn
        }
    }
}

/// Checks the name of a field manager at `path`.
pub(crate) fn check_manager(path: &str, manager: &str, errors: &mut FieldErrors) {
    if manager.len() > MAX_FIELD_MANAGER_BYTES {
        errors.push(FieldError::too_long(path, MAX_FIELD_MANAGER_BYTES));
    }
    if !manager.chars().all(is_printable) {
        let why = "should only contain printable characters";
        errors.push(FieldError::invalid(path, BadValue::Omitted, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_options() {
        let parse =
            |text: &str| WriteOptions::parse(&Query::parse(text).unwrap(), WriteKind::Patch);
        let good = parse("dryRun=All&fieldManager=m&fieldValidation=Strict").unwrap();
        assert!(good.dry_run);
        assert_eq!(good.field_manager.as_deref(), Some("m"));
        assert_eq!(good.field_validation, FieldValidation::Strict);
        assert_eq!(parse("").unwrap(), WriteOptions::default());
        let long = format!("fieldManager={}", "m".repeat(129));
        for bad in [
            "dryRun=Some",
            "fieldValidation=strict",
            "force=true",
            "fieldManager=%0a",
            "fieldManager=%E2%80%8B",
            "fieldManager=a%C2%A0b",
            &long,
        ] {
            let error = parse(bad).unwrap_err();
            assert_eq!(error.code(), 422, "{bad}");
            let message = &error.status().message;
            assert!(message.starts_with("PatchOptions.meta.k8s.io \"\" is invalid: "), "{message}");
        }
    }

    #[test]
    fn an_apply_names_its_manager() {
        let parse =
            |text: &str| WriteOptions::parse(&Query::parse(text).unwrap(), WriteKind::Apply);
        assert!(!parse("fieldManager=m").unwrap().force);
        assert!(!parse("fieldManager=m&force=false").unwrap().force);
        assert!(parse("fieldManager=m&force=true").unwrap().force);
        assert_eq!(parse("fieldManager=m&force=maybe").unwrap_err().code(), 400);
        for query in ["", "force=true", "fieldManager="] {
            let error = parse(query).unwrap_err();
            assert_eq!(
                (error.code(), error.status().message.as_str()),
                (
                    422,
                    "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is \
                     required for apply patch"
                )
            );
        }
    }
}
