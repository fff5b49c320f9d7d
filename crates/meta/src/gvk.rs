//! Names of API types: group and version, group and resource, group and kind.
//!
//! Only the names live here, as compile-time constants of the kinds that use them. This crate knows
//! neither the existing kinds nor their meaning.

use std::fmt;

/// An API group at one version, such as `management.platform.sh/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// The group's DNS name; empty for the core group.
    pub group: &'static str,
    /// The version within the group, such as `v1`.
    pub version: &'static str,
}

impl GroupVersion {
    /// Makes a group and version from its two parts.
    pub const fn new(group: &'static str, version: &'static str) -> Self {
        Self { group, version }
    }

    /// Whether `api_version`, as objects have it, names this group and version.
    pub fn matches(&self, api_version: &str) -> bool {
        if self.group.is_empty() {
            return api_version == self.version;
        }
        api_version
            .strip_prefix(self.group)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|version| version == self.version)
    }
}

/// The form that `apiVersion` has in objects: `group/version`, or the bare
/// version for the core group.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A resource (the plural in URLs) within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The group's DNS name; empty for the core group.
    pub group: &'static str,
    /// The plural resource name, such as `sharedsecrets`.
    pub resource: &'static str,
}

impl GroupResource {
    /// Makes a group and resource from its two parts.
    pub const fn new(group: &'static str, resource: &'static str) -> Self {
        Self { group, resource }
    }
}

/// The form that error texts use: `resource.group`, or the bare resource for
/// the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_dotted(f, self.resource, self.group)
    }
}

/// A kind (the singular, CamelCase name) within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The group's DNS name; empty for the core group.
    pub group: &'static str,
    /// The kind, such as `SharedSecret`.
    pub kind: &'static str,
}

impl GroupKind {
    /// Makes a group and kind from its two parts.
    pub const fn new(group: &'static str, kind: &'static str) -> Self {
        Self { group, kind }
    }
}

/// The form that error texts use: `Kind.group`, or the bare kind for the core group.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_dotted(f, self.kind, self.group)
    }
}

/// `name.group`, without the dot when the group is empty.
fn write_dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if group.is_empty() {
        return Ok(());
    }
    write!(f, ".{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_omits_the_core_group() {
        assert_eq!(GroupVersion::new("g.sh", "v1").to_string(), "g.sh/v1");
        assert_eq!(GroupVersion::new("", "v1").to_string(), "v1");
        assert_eq!(
            GroupResource::new("management.platform.sh", "sharedsecrets").to_string(),
            "sharedsecrets.management.platform.sh"
        );
        assert_eq!(GroupResource::new("", "namespaces").to_string(), "namespaces");
        assert_eq!(GroupKind::new("g.sh", "SharedSecret").to_string(), "SharedSecret.g.sh");
        assert_eq!(GroupKind::new("", "Secret").to_string(), "Secret");
    }

    #[test]
    fn an_api_version_matches_exactly() {
        let ours = GroupVersion::new("g.sh", "v1");
        assert!(ours.matches("g.sh/v1"));
        for other in ["g.sh/v11", "g.sh/v1/", "g.shv1", "v1", "", "/v1", "xg.sh/v1"] {
            assert!(!ours.matches(other), "{other}");
        }
        assert!(GroupVersion::new("", "v1").matches("v1"));
        assert!(!GroupVersion::new("", "v1").matches("/v1"));
    }
}
