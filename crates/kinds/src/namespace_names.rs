//! The names of namespaces that the operator of a store chooses once: the prefix of the namespaces of projects, and the
//! namespace where shared secrets are by default.
//!
//! They are the same for everything in a process, and set before anything else: a server reads them from its store, a
//! client asks its server.

use std::sync::OnceLock;

use postern_meta::names::dns1123_label;
use serde::{Deserialize, Serialize};

/// The names, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceNames {
    /// The prefix of the namespaces of projects. Clients may not create one.
    pub project_prefix: String,
    /// The namespace where shared secrets are by default.
    pub default_namespace: String,
}

/// The namespace `default`, as in Kubernetes: for objects without another one, and for the shared secrets of every user.
pub const COMMON_NAMESPACE: &str = "default";

/// Maximum bytes of a prefix: the rest is for the names of projects.
const MAX_PREFIX_BYTES: usize = 20;

static NAMES: OnceLock<NamespaceNames> = OnceLock::new();

impl Default for NamespaceNames {
    fn default() -> Self {
        Self { project_prefix: "p-".to_owned(), default_namespace: "platform".to_owned() }
    }
}

impl NamespaceNames {
    /// Checks that they are names that do not get in each other's way.
    ///
    /// # Errors
    /// The text gives the reason, and which of the two names is invalid.
    pub fn validate(&self) -> Result<(), String> {
        let Self { project_prefix, default_namespace } = self;
        if dns1123_label(&format!("{project_prefix}a")).is_err()
            || !(2..=MAX_PREFIX_BYTES).contains(&project_prefix.len())
        {
            return Err(format!(
                "the prefix of project namespaces {project_prefix:?} must have 2 to {MAX_PREFIX_BYTES} characters of \
                 a-z, 0-9 and '-', and begin with a letter or digit"
            ));
        }
        dns1123_label(default_namespace)
            .map_err(|detail| format!("the default namespace {default_namespace:?}: {detail}"))?;
        for name in [COMMON_NAMESPACE, default_namespace] {
            if name.starts_with(project_prefix.as_str()) {
                return Err(format!(
                    "the namespace {name:?} begins with the prefix of project namespaces \
                     {project_prefix:?}, which is reserved for projects"
                ));
            }
        }
        Ok(())
    }
}

/// Sets the names for this process.
///
/// # Errors
/// The names that count already, if they are others.
pub fn set_namespace_names(names: &NamespaceNames) -> Result<(), &'static NamespaceNames> {
    let now = NAMES.get_or_init(|| names.clone());
    if now == names { Ok(()) } else { Err(now) }
}

fn names() -> &'static NamespaceNames {
    NAMES.get_or_init(NamespaceNames::default)
}

/// The prefix of the namespaces of projects.
pub fn project_prefix() -> &'static str {
    &names().project_prefix
}

/// The namespace where shared secrets are by default.
pub fn default_namespace() -> &'static str {
    &names().default_namespace
}

/// The namespaces that exist from the first start and cannot be deleted.
pub fn permanent_namespaces() -> [&'static str; 2] {
    [COMMON_NAMESPACE, default_namespace()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_not_get_in_each_others_way() {
        for (prefix, namespace, wrong) in [
            ("p-", "platform", ""),
            ("loft-p-", "loft", ""),
            ("p-", "vcluster-platform", ""),
            ("P-", "platform", "the prefix of project namespaces \"P-\""),
            ("-", "platform", "the prefix of project namespaces"),
            ("a-very-long-prefix-of-projects-", "platform", "the prefix of project namespaces"),
            ("p-", "Platform", "the default namespace \"Platform\""),
            ("p-", "p-a", "the namespace \"p-a\" begins with"),
            ("de", "platform", "the namespace \"default\" begins with"),
        ] {
            let (project_prefix, default_namespace) = (prefix.to_owned(), namespace.to_owned());
            let found = NamespaceNames { project_prefix, default_namespace }.validate();
            let found = found.err().unwrap_or_default();
            assert!(found.starts_with(wrong) && found.is_empty() == wrong.is_empty(), "{found}");
        }
    }
}
