//! Paths, API groups and namespaces that have a meaning here, and the rule for names of identities.

use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::gvk::GroupVersion;
pub use postern_meta::names::identity_name;

/// Base path of the management API; the server in every kubeconfig ends in it.
pub const BASE_PATH: &str = "/kubernetes/management";

/// The group of our own kinds.
pub const MANAGEMENT_V1: GroupVersion =
    GroupVersion { group: "management.platform.sh", version: "v1" };

/// Kubernetes' core group.
pub const CORE_V1: GroupVersion = GroupVersion { group: "", version: "v1" };

/// The prefixes of the names of identities that only members of `system:masters` may give: those of
/// Kubernetes, and those of this platform.
pub(crate) const RESERVED_PREFIXES: [&str; 2] = ["system:", "platform:"];

/// Whether the name of an identity begins with a prefix that only members of `system:masters` may use.
pub fn is_reserved_identity(name: &str) -> bool {
    RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Adds an error for the field `path` if it is not the name of a subject or a group.
pub fn check_identity(path: &str, name: &str, errors: &mut FieldErrors) {
    errors
        .check(identity_name(name), |detail| FieldError::invalid(path, BadValue::Omitted, detail));
}

/// The most groups of a user, a team or a key, and the most users of a team.
pub const MAX_IDENTITIES: usize = 1000;

/// Adds an error for each entry of the list `path` that is not the name of a subject or a group.
pub fn check_identities(path: &str, names: &[String], errors: &mut FieldErrors) {
    if !errors.check_count(path, names.len(), MAX_IDENTITIES) {
        return;
    }
    for (index, name) in names.iter().enumerate() {
        check_identity(&format!("{path}[{index}]"), name, errors);
    }
}
