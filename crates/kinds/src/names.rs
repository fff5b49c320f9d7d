//! Paths, API groups and namespaces that have a meaning here, and the names of identities.

use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::gvk::GroupVersion;

/// Base path of the management API; the server in every kubeconfig ends in it.
pub const BASE_PATH: &str = "/kubernetes/management";

/// The home namespace: where global secrets live unless one says otherwise.
pub const HOME_NAMESPACE: &str = "platform";

/// Namespaces that exist from the first start and cannot be deleted.
pub const PERMANENT_NAMESPACES: [&str; 2] = ["default", HOME_NAMESPACE];

/// The group of our own kinds.
pub const MANAGEMENT_V1: GroupVersion =
    GroupVersion { group: "management.platform.sh", version: "v1" };

/// Kubernetes' core group.
pub const CORE_V1: GroupVersion = GroupVersion { group: "", version: "v1" };

/// Bytes of the longest name of an identity: of a subject, or of a group.
const MAX_IDENTITY_BYTES: usize = 512;

/// Checks a name that an identity shall have: a subject's, or a group's.
///
/// # Errors
/// Says what is wrong with it, for a field error.
pub fn identity_name(name: &str) -> Result<(), String> {
    // Written so that nobody is shown one name and granted another.
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
    };
    if name.is_empty() || name.len() > MAX_IDENTITY_BYTES || name.chars().any(odd) {
        return Err(format!(
            "must be 1 to {MAX_IDENTITY_BYTES} bytes, without control and invisible characters"
        ));
    }
    Ok(())
}

/// Checks the name of a subject or a group.
pub(crate) fn check_identity(path: &str, name: &str, errors: &mut FieldErrors) {
    errors
        .check(identity_name(name), |detail| FieldError::invalid(path, BadValue::Omitted, detail));
}
