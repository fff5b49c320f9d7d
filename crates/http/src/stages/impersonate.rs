//! Impersonation, from `Authenticated` to `Acting`: applies the impersonation headers, if the caller has permission.
//!
//! The headers are those of Kubernetes: `Impersonate-User`, `-Group` (repeated), `-Uid`, `-Extra-<key>`.

use http::HeaderValue;
use percent_encoding::percent_decode_str;
use postern_auth::policy::Policy;
use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::{Impersonation, access_key, identity_name};
use postern_meta::status::ApiError;
use postern_registry::credential::{Credential, USERS, check_impersonation};

use crate::stages::authenticate::Authenticated;
use crate::stages::parse::Parsed;

/// The prefix of all impersonation headers.
const PREFIX: &str = "impersonate-";

/// A request with its caller and the impersonated user. Only [`impersonate`] makes one.
pub struct Acting {
    parsed: Parsed,
    credential: Credential,
}

impl Acting {
    /// The caller's credential, with the impersonated user.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The parsed request.
    pub fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    /// The request and its credential, for the next stage.
    pub fn into_parts(self) -> (Parsed, Credential) {
        (self.parsed, self.credential)
    }
}

/// Applies the impersonation headers. Without headers, callers act as themselves.
///
/// # Errors
/// 400 for invalid headers; 403 in kube-apiserver's words when the caller has no permission to impersonate.
pub fn impersonate(
    authenticated: Authenticated,
    principals: &PrincipalIndex,
    policy: &Policy,
) -> Result<Acting, ApiError> {
    let (parsed, credential) = authenticated.into_parts();
    let asked = parsed.headers().keys().any(|name| name.as_str().starts_with(PREFIX));
    if !asked {
        return Ok(Acting { parsed, credential });
    }
    let wanted = wanted(&parsed)?;
    let impersonated = principals.impersonate(&wanted, credential.bearer());
    let disabled = impersonated.disabled.then(|| {
        let message = "the user is disabled: enable the user first";
        ApiError::forbidden(USERS, &wanted.user, message)
    });
    let credential = credential.acting_as(wanted, impersonated.identity);
    // Permissions are checked first: not every caller may know which users are disabled.
    check_impersonation(&credential, policy)?;
    disabled.map_or(Ok(Acting { parsed, credential }), Err)
}

/// The impersonation in the headers.
fn wanted(parsed: &Parsed) -> Result<Impersonation, ApiError> {
    let mut wanted = Impersonation::default();
    for (name, value) in parsed.headers() {
        let Some(what) = name.as_str().strip_prefix(PREFIX) else { continue };
        if !matches!(what, "user" | "uid" | "group") && !what.starts_with("extra-") {
            return Err(unknown(what));
        }
        let value = text(what, value)?;
        match what {
            "user" => set_once(&mut wanted.user, what, value)?,
            "uid" => set_once(&mut wanted.uid, what, value)?,
            "group" if !wanted.groups.contains(&value) => wanted.groups.push(value),
            "group" => {}
            _ => {
                let key = what.strip_prefix("extra-").filter(|key| !key.is_empty());
                let key = key.ok_or_else(|| unknown(what))?;
                let key = percent_decode_str(key).decode_utf8().map_err(|_| unknown(what))?;
                wanted.extra.entry(key.to_ascii_lowercase()).or_default().push(value);
            }
        }
    }
    if wanted.user.is_empty() {
        return Err(ApiError::bad_request(
            "requested groups, a uid or extra fields without impersonating a user: send \
             Impersonate-User as well",
        ));
    }
    Ok(wanted)
}

/// A header's value as a printable name. Header values are bytes; names are UTF-8.
fn text(what: &str, value: &HeaderValue) -> Result<String, ApiError> {
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    let checked = text.ok_or_else(|| "must be UTF-8".to_owned()).and_then(|text| {
        if text.split_whitespace().any(access_key::is_well_formed) {
            return Err("is the value of an access key: send a name instead".to_owned());
        }
        identity_name(text)?;
        Ok(text.to_owned())
    });
    checked.map_err(|wrong| ApiError::bad_request(format!("header Impersonate-{what}: {wrong}")))
}

/// Sets a field that must be sent only once, because a duplicate is ambiguous.
fn set_once(field: &mut String, what: &str, value: String) -> Result<(), ApiError> {
    if !field.is_empty() {
        let message = format!("header Impersonate-{what} must be sent only once");
        return Err(ApiError::bad_request(message));
    }
    *field = value;
    Ok(())
}

/// The 400 for an unknown impersonation header. If it were ignored, the request could have more permissions than its
/// sender requested.
fn unknown(what: &str) -> ApiError {
    if what == "joined-group" {
        return ApiError::bad_request(
            "the header Impersonate-Joined-Group is not supported: send one header Impersonate-Group for each group",
        );
    }
    ApiError::bad_request(format!(
        "unknown header Impersonate-{what}: send Impersonate-User, -Group, -Uid or \
         -Extra-KEY"
    ))
}
