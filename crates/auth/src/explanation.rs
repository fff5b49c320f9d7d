//! The reasons for a decision, as data, and the smallest additions that would change it.

use std::fmt::Write as _;

use postern_kinds::rbac::{BoundSubject, PolicyRule};
use postern_kinds::scope::{Scope, ScopeRule};

/// A role or a binding, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyName {
    /// The namespace; `None` for a ClusterRole or ClusterRoleBinding.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// The source of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are in `system:masters`.
    Masters,
    /// Every authenticated identity has it.
    Everyone,
    /// It concerns the identity's own user, or a team of that user.
    Themselves,
    /// The identity owns the object, as a user or by a team.
    Owner,
    /// By a role.
    Role {
        /// The binding that gives it.
        binding: PolicyName,
        /// The role.
        role: PolicyName,
        /// The index of the rule in the role.
        rule: usize,
        /// The subject that the binding gives it to.
        subject: BoundSubject,
    },
}

/// A scope that does not allow a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusingScope {
    /// The index of the scope: 0 for that of the key itself, then those of the keys that created
    /// it.
    pub index: usize,
    /// The smallest addition to it that would allow the request.
    pub missing: Scope,
}

/// A rule that no role of the identity has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRule {
    /// The namespace that the role has to be given in; `None` for everywhere.
    pub namespace: Option<String>,
    /// The smallest rule that would allow the request.
    pub rule: PolicyRule,
}

/// The reasons for a decision. It allows the request if nothing is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The source of the identity's permission, without regard to its scopes.
    pub source: Option<Source>,
    /// The rule that no role has.
    pub missing_rule: Option<MissingRule>,
    /// The scopes that deny the request.
    pub refusing_scopes: Vec<RefusingScope>,
    /// The reason if no permission allows the request. An example is the limit of a scoped key to
    /// keys that it created.
    pub limit: Option<String>,
}

impl Explanation {
    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.source.is_some()
            && self.missing_rule.is_none()
            && self.refusing_scopes.is_empty()
            && self.limit.is_none()
    }

    /// Adds what scopes lack for another part of the same request.
    pub fn add_refusing_scopes(&mut self, more: Vec<RefusingScope>) {
        for one in more {
            match self.refusing_scopes.iter_mut().find(|known| known.index == one.index) {
                Some(known) => known.missing.rules.extend(one.missing.rules),
                None => self.refusing_scopes.push(one),
            }
        }
    }
}

/// A rule as an entry of a role's `rules`, in YAML.
pub fn rule_yaml(rule: &PolicyRule) -> String {
    let mut yaml = Yaml::default();
    yaml.entry(&[
        ("apiGroups", rule.api_groups.as_slice()),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
        ("verbs", &rule.verbs),
    ]);
    yaml.text
}

/// The entries of a scope as part of a key's `spec`, in YAML.
pub fn scope_yaml(scope: &Scope) -> String {
    let mut yaml = Yaml::default();
    yaml.line(0, "scope:");
    if scope.allow_platform_cli {
        yaml.line(2, "allowPlatformCli: true");
    }
    let projects = scope.projects.iter().map(|one| vec![("project", &one.project)]);
    yaml.list("projects", projects.collect());
    let spaces = scope.spaces.iter();
    let spaces = spaces.map(|one| vec![("project", &one.project), ("space", &one.space)]);
    yaml.list("spaces", spaces.collect());
    let clusters = scope.virtual_clusters.iter();
    let clusters = clusters
        .map(|one| vec![("project", &one.project), ("virtualCluster", &one.virtual_cluster)]);
    yaml.list("virtualClusters", clusters.collect());
    if !scope.rules.is_empty() {
        yaml.line(2, "rules:");
        scope.rules.iter().for_each(|rule| yaml.scope_rule(rule));
    }
    yaml.text
}

#[derive(Default)]
struct Yaml {
    text: String,
}

impl Yaml {
    fn line(&mut self, indent: usize, line: &str) {
        let _ = writeln!(self.text, "{:indent$}{line}", "");
    }

    /// Adds one entry of a list, of the fields that are set.
    fn entry(&mut self, fields: &[(&str, &[String])]) {
        self.entry_at(0, fields);
    }

    fn entry_at(&mut self, indent: usize, fields: &[(&str, &[String])]) {
        let set = fields.iter().filter(|(_, values)| !values.is_empty());
        for (index, (name, values)) in set.enumerate() {
            let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
            let start = if index == 0 { "- " } else { "  " };
            self.line(indent, &format!("{start}{name}: [{}]", values.join(", ")));
        }
    }

    fn list(&mut self, name: &str, entries: Vec<Vec<(&str, &String)>>) {
        if !entries.is_empty() {
            self.line(2, &format!("{name}:"));
        }
        for entry in entries {
            let fields: Vec<_> =
                entry.iter().map(|(name, value)| format!("{name}: {}", quoted(value))).collect();
            self.line(2, &format!("- {{ {} }}", fields.join(", ")));
        }
    }

    fn scope_rule(&mut self, rule: &ScopeRule) {
        let mut fields: Vec<String> = Vec::new();
        let list = |values: &[String]| {
            values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")
        };
        for (name, values) in [
            ("verbs", &rule.verbs),
            ("namespaces", &rule.namespaces),
            ("nonResourceURLs", &rule.non_resource_urls),
            ("requestTargets", &rule.request_targets),
        ] {
            if !values.is_empty() {
                fields.push(format!("{name}: [{}]", list(values)));
            }
        }
        if !rule.cluster.is_empty() {
            fields.push(format!("cluster: {}", quoted(&rule.cluster)));
        }
        for one in &rule.virtual_clusters {
            let (name, namespace) = (quoted(&one.name), quoted(&one.namespace));
            fields.push(format!("virtualClusters: [{{ name: {name}, namespace: {namespace} }}]"));
        }
        for one in &rule.resources {
            let mut element = format!(
                "resources: [{{ group: {}, resources: [{}]",
                quoted(&one.group),
                list(&one.resources)
            );
            if !one.resource_names.is_empty() {
                let _ = write!(element, ", resourceNames: [{}]", list(&one.resource_names));
            }
            fields.push(element + " }]");
        }
        for (index, field) in fields.iter().enumerate() {
            self.line(2, &format!("{}{field}", if index == 0 { "- " } else { "  " }));
        }
    }
}

/// A text in double quotes, as YAML and JSON have them.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            one if one.is_control() || matches!(one, '\u{2028}' | '\u{2029}' | '\u{FEFF}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(one));
            }
            one => quoted.push(one),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use postern_kinds::scope::ScopeSpace;

    use super::*;

    #[test]
    fn what_is_missing_is_yaml_to_paste() {
        let rule = PolicyRule {
            verbs: vec!["get".to_owned()],
            api_groups: vec![String::new()],
            resources: vec!["pods/log".to_owned()],
            resource_names: vec!["a \"b\"".to_owned()],
            ..PolicyRule::default()
        };
        assert_eq!(
            rule_yaml(&rule),
            "- apiGroups: [\"\"]\n  resources: [\"pods/log\"]\n  resourceNames: [\"a \\\"b\\\"\"]\n  \
             verbs: [\"get\"]\n"
        );
        let space = ScopeSpace { project: "p".to_owned(), space: "s".to_owned() };
        let scope = Scope { spaces: vec![space], ..Scope::default() };
        assert_eq!(scope_yaml(&scope), "scope:\n  spaces:\n  - { project: \"p\", space: \"s\" }\n");
    }
}
