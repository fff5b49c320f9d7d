//! The audit policy, in Kubernetes' format `audit.k8s.io/v1`. It decides which requests are
//! recorded, and how much of them. The first rule that matches a request applies. A request that
//! matches no rule is not recorded.

use anyhow::{Context as _, ensure};
use postern_auth::identity::Identity;
use postern_meta::decode::{Format, decode};
use postern_registry::permit::ResourceTarget;
use serde::{Deserialize, Serialize};

/// The built-in policy, which applies without `--audit-policy-file`.
const DEFAULT: &str = include_str!("default-policy.yaml");

/// The most rules of a policy.
const MAX_RULES: usize = 1000;

/// How much is recorded of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Level {
    /// No record.
    #[default]
    None,
    /// The caller, the request, the times, and the result.
    Metadata,
    /// The metadata, and the body of the request.
    Request,
    /// The metadata, and the bodies of the request and the response.
    RequestResponse,
}

impl Level {
    /// The level's name in policies and records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request at which a record is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The sender is known, and nothing is done yet.
    RequestReceived,
    /// The response has started; only for streams.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The server panicked, so there is no response.
    Panic,
}

impl Stage {
    /// The stage's name in policies and records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// How a request is recorded, from the rule that matches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuditDecision {
    /// How much is recorded.
    pub level: Level,
    /// Whether bodies are recorded without managed fields.
    pub omit_managed_fields: bool,
    omitted: u8,
}

impl AuditDecision {
    /// Whether there is a record at this stage.
    pub(crate) fn wants(self, stage: Stage) -> bool {
        self.level != Level::None && self.omitted & bit(stage) == 0
    }

    /// The decision for a request that changes anything. Its record is written before the change,
    /// even if the policy omits the record (`docs/reference/audit.md#audit-policy`).
    pub(super) fn of_change(mut self) -> Self {
        if self.level == Level::None {
            (self.level, self.omitted) = (Level::Metadata, u8::MAX);
        }
        self.omitted &= !bit(Stage::RequestReceived);
        self
    }
}

fn bit(stage: Stage) -> u8 {
    1 << stage as u8
}

/// The attributes of a request that rules match.
pub(crate) struct RequestAttributes<'a> {
    /// The owner of the key; `None` when authentication failed.
    pub bearer: Option<&'a Identity>,
    /// The verb, or the method in lower case.
    pub verb: &'a str,
    /// The resource; `None` for other paths.
    pub target: Option<&'a ResourceTarget>,
    /// The path.
    pub path: &'a str,
}

/// An audit policy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default, rename = "resources")]
    plurals: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl Policy {
    /// The built-in policy.
    ///
    /// # Errors
    /// None: a test parses the policy.
    pub(crate) fn by_default() -> anyhow::Result<Self> {
        Self::parse(DEFAULT)
    }

    /// Parses a policy in YAML or JSON.
    ///
    /// # Errors
    /// When the text is not a valid policy. The error names the field.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let decoded = decode(text.as_bytes(), Format::Yaml)?;
        if let Some(field) = decoded.duplicates.first() {
            anyhow::bail!("{field}: duplicate field");
        }
        let policy: Self = serde_json::from_value(decoded.value)?;
        policy.check()?;
        Ok(policy)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.api_version == "audit.k8s.io/v1" && self.kind == "Policy",
            "apiVersion must be audit.k8s.io/v1, and kind must be Policy"
        );
        ensure!(!self.rules.is_empty(), "rules: must have at least 1 rule");
        ensure!(self.rules.len() <= MAX_RULES, "rules: must have at most {MAX_RULES} rules");
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check().with_context(|| format!("rules[{index}]"))?;
        }
        Ok(())
    }

    /// The decision of the first rule that matches. If no rule matches, nothing is recorded.
    pub(crate) fn decision(&self, request: &RequestAttributes<'_>) -> AuditDecision {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(request)) else {
            return AuditDecision::default();
        };
        let stages = self.omit_stages.iter().chain(&rule.omit_stages);
        AuditDecision {
            level: rule.level,
            omitted: stages.fold(0, |bits, stage| bits | bit(*stage)),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn check(&self) -> anyhow::Result<()> {
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        ensure!(
            self.paths.is_empty() || !of_resources,
            "nonResourceURLs cannot be combined with resources or namespaces: write two \
             rules"
        );
        for path in &self.paths {
            let star = path.find('*').is_none_or(|index| index + 1 == path.len());
            ensure!(
                star && (path == "*" || path.starts_with('/')),
                "nonResourceURLs: {path:?} must start with /, and can have a * only at its end"
            );
        }
        for resources in &self.resources {
            ensure!(
                resources.resource_names.is_empty() || !resources.plurals.is_empty(),
                "resources: resourceNames require resources"
            );
            ensure!(
                !resources.group.contains('/'),
                "resources: group {:?} must be without a version",
                resources.group
            );
        }
        Ok(())
    }

    fn matches(&self, request: &RequestAttributes<'_>) -> bool {
        let names = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
        let user = self.users.is_empty()
            || request.bearer.is_some_and(|bearer| names(&self.users, &bearer.name));
        let group = self.user_groups.is_empty()
            || request.bearer.is_some_and(|b| self.user_groups.iter().any(|group| b.is_in(group)));
        if !user || !group || !names(&self.verbs, request.verb) {
            return false;
        }
        let matches_all =
            self.resources.is_empty() && self.namespaces.is_empty() && self.paths.is_empty();
        match request.target {
            _ if matches_all => true,
            Some(target) => {
                let namespace = namespace_of(target).unwrap_or_default();
                self.paths.is_empty()
                    && names(&self.namespaces, namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|resources| resources.match_with(target)))
            }
            None => self.paths.iter().any(|pattern| matches_path(pattern, request.path)),
        }
    }
}

fn matches_path(pattern: &str, path: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == path, |start| path.starts_with(start))
}

impl Resources {
    /// Whether these resources match, as in kube-apiserver. `users` matches only the objects, `users/accesskeys` only
    /// that subresource, and `users/*` both. `*/accesskeys` matches the subresource of every kind, and `*` everything.
    fn match_with(&self, target: &ResourceTarget) -> bool {
        let info = target.requested().info();
        let name = target.name.as_deref().unwrap_or_default();
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == name);
        let subresource = Some(target.subresource()).filter(|name| !name.is_empty());
        let matches = |pattern: &String| match (pattern.split_once('/'), subresource) {
            (None, requested) => pattern == "*" || (pattern == info.plural && requested.is_none()),
            (Some((plural, "*")), _) => plural == info.plural,
            (Some((plural, subresource)), requested) => {
                requested == Some(subresource) && (plural == "*" || plural == info.plural)
            }
        };
        self.group == info.version.group
            && (self.plurals.is_empty() || (named && self.plurals.iter().any(matches)))
    }
}

/// The namespace of a request. For a Namespace, it is the object's name, as in kube-apiserver.
pub(super) fn namespace_of(target: &ResourceTarget) -> Option<&str> {
    let info = target.requested().info();
    let is_namespace = info.version.group.is_empty() && info.plural == "namespaces";
    if is_namespace { target.name.as_deref() } else { target.namespace.as_deref() }
}

#[cfg(test)]
mod tests {
    use postern_kinds::action::Action;
    use postern_kinds::namespace::Namespace;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;
    use postern_kinds::{AnyKind, Verb};

    use super::*;

    fn target(kind: &'static dyn AnyKind, namespace: &str, name: &str) -> ResourceTarget {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (namespace, name) = (some(namespace), some(name));
        ResourceTarget { kind, verb: Verb::Get, namespace, name, action: None, version: None }
    }

    fn bearer(groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Identity { name: "ada".to_owned(), groups, ..Identity::default() }
    }

    fn with_rules(rules: &str) -> Policy {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rules}]");
        Policy::parse(&text).unwrap()
    }

    /// Whether a rule matches a get of a secret by Ada.
    fn matches(rule: &str) -> bool {
        let (target, bearer) = (target(&SharedSecret, "platform", "db"), bearer(&["ops"]));
        let request = RequestAttributes {
            bearer: Some(&bearer),
            verb: "get",
            target: Some(&target),
            path: "/secrets",
        };
        with_rules(&format!("{{level: Metadata{rule}}}")).decision(&request).level != Level::None
    }

    #[test]
    fn rules_match_as_upstream() {
        let ours = "group: management.platform.sh";
        for (rule, want) in [
            ("", true),
            (", users: [ada]", true),
            (", users: [bob]", false),
            (", userGroups: [dev, ops]", true),
            (", userGroups: [dev]", false),
            (", users: [ada], userGroups: [dev]", false),
            (", verbs: [get, list]", true),
            (", verbs: [create]", false),
            (", namespaces: [platform]", true),
            (", namespaces: [\"\"]", false),
            (", nonResourceURLs: [\"*\"]", false),
            (&format!(", resources: [{{{ours}}}]"), true),
            (", resources: [{group: \"\"}]", false),
            (&format!(", resources: [{{{ours}, resources: [sharedsecrets]}}]"), true),
            (&format!(", resources: [{{{ours}, resources: [users]}}]"), false),
            (&format!(", resources: [{{{ours}, resources: [\"*\"], resourceNames: [db]}}]"), true),
            (&format!(", resources: [{{{ours}, resources: [\"*\"], resourceNames: [x]}}]"), false),
            (&format!(", namespaces: [default], resources: [{{{ours}}}]"), false),
        ] {
            assert_eq!(matches(rule), want, "{rule}");
        }
    }

    #[test]
    fn subresources_are_named_with_a_slash() {
        let mut keys = target(&User, "", "ada");
        keys.action = Some(&Action::GET_ACCESS_KEYS);
        for (pattern, object, subresource) in [
            ("users", true, false),
            ("users/accesskeys", false, true),
            ("users/*", true, true),
            ("*/*", false, false),
            ("*/accesskeys", false, true),
            ("*", true, true),
            ("teams/*", false, false),
        ] {
            let resources = Resources {
                group: "management.platform.sh".to_owned(),
                plurals: vec![pattern.to_owned()],
                resource_names: Vec::new(),
            };
            assert_eq!(resources.match_with(&target(&User, "", "ada")), object, "{pattern}");
            assert_eq!(resources.match_with(&keys), subresource, "{pattern}");
        }
    }

    #[test]
    fn a_namespace_is_in_itself() {
        let policy = with_rules("{level: Metadata, namespaces: [platform]}");
        let level = |name| {
            let target = target(&Namespace, "", name);
            let target = Some(&target);
            let request = RequestAttributes { bearer: None, verb: "delete", target, path: "/x" };
            policy.decision(&request).level
        };
        assert_eq!((level("platform"), level("other")), (Level::Metadata, Level::None));
    }

    #[test]
    fn paths_match_whole_or_by_their_prefix() {
        let policy = with_rules("{level: Request, nonResourceURLs: [/metrics, \"/api*\"]}");
        for (path, want) in
            [("/metrics", true), ("/metrics/x", false), ("/apis/x", true), ("/ap", false)]
        {
            let request = RequestAttributes { bearer: None, verb: "get", target: None, path };
            let level = policy.decision(&request).level;
            assert_eq!(level == Level::Request, want, "{path}");
        }
    }

    #[test]
    fn the_first_rule_decides_and_stages_add_up() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitManagedFields: true, \
                     omitStages: [Panic], rules: [{level: None, verbs: [get]}, {level: Request, \
                     omitStages: [RequestReceived], omitManagedFields: false}, {level: Metadata}]}";
        let policy = Policy::parse(text).unwrap();
        let of = |verb| {
            policy.decision(&RequestAttributes { bearer: None, verb, target: None, path: "/x" })
        };
        assert_eq!(of("get").level, Level::None);
        assert!(!of("get").wants(Stage::ResponseComplete));
        let create = of("create");
        assert_eq!((create.level, create.omit_managed_fields), (Level::Request, false));
        assert!(create.wants(Stage::ResponseComplete) && create.wants(Stage::ResponseStarted));
        assert!(!create.wants(Stage::Panic) && !create.wants(Stage::RequestReceived));
    }

    #[test]
    fn a_change_is_recorded_before_it_is_done_whatever_is_omitted() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], \
                     rules: [{level: None, verbs: [delete]}, {level: Request}]}";
        let policy = Policy::parse(text).unwrap();
        let of = |verb| {
            let request = RequestAttributes { bearer: None, verb, target: None, path: "/x" };
            policy.decision(&request).of_change()
        };
        let delete = of("delete");
        assert_eq!(delete.level, Level::Metadata);
        assert!(delete.wants(Stage::RequestReceived) && !delete.wants(Stage::ResponseComplete));
        let create = of("create");
        assert_eq!(create.level, Level::Request);
        assert!(create.wants(Stage::RequestReceived) && create.wants(Stage::ResponseComplete));
    }

    #[test]
    fn the_default_policy_records_failed_authentications_on_all_paths() {
        let policy = Policy::by_default().unwrap();
        let level = |bearer: Option<&Identity>, verb, path| {
            policy.decision(&RequestAttributes { bearer, verb, target: None, path }).level
        };
        let ada = bearer(&["system:authenticated"]);
        let apis = "/kubernetes/management/apis";
        assert_eq!(level(Some(&ada), "get", apis), Level::None);
        assert_eq!(level(Some(&ada), "post", apis), Level::Metadata);
        assert_eq!(level(Some(&ada), "get", "/elsewhere"), Level::Metadata);
        assert_eq!(level(None, "get", apis), Level::Metadata);
        let secret = target(&SharedSecret, "platform", "db");
        let of = |verb| {
            let target = Some(&secret);
            policy.decision(&RequestAttributes { bearer: Some(&ada), verb, target, path: "/s" })
        };
        assert!(!of("get").wants(Stage::RequestReceived));
        assert!(of("watch").wants(Stage::ResponseStarted));
        assert!(of("patch").wants(Stage::RequestReceived));
    }

    #[test]
    fn errors_name_the_mistake() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, wanted) in [
            ("kind: Policy".to_owned(), "apiVersion"),
            ("{apiVersion: v1, kind: Policy, rules: [{level: None}]}".to_owned(), "audit.k8s.io"),
            (format!("{head}rules: []"), "at least 1 rule"),
            (format!("{head}rules: [{{}}]"), "level"),
            (format!("{head}rules: [{{level: All}}]"), "All"),
            (format!("{head}rules: [{{level: None, usres: [a]}}]"), "usres"),
            (format!("{head}rules: [{{level: None, omitStages: [End]}}]"), "End"),
            (format!("{head}rules: [{{level: None, nonResourceURLs: [x]}}]"), "rules[0]"),
            (
                format!("{head}rules: [{{level: None, nonResourceURLs: [/*/x]}}]"),
                "* only at its end",
            ),
            (
                format!("{head}rules: [{{level: None, nonResourceURLs: [/x], namespaces: [a]}}]"),
                "two rules",
            ),
            (format!("{head}rules: [{{level: None, resources: [{{group: a/v1}}]}}]"), "a version"),
            (
                format!("{head}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]"),
                "require resources",
            ),
            (
                format!("{head}rules: [{{level: None}}]\nrules: [{{level: None}}]"),
                "duplicate field",
            ),
        ] {
            let error = format!("{:#}", Policy::parse(&text).unwrap_err());
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
