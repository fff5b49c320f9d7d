//! The common part of Roles and ClusterRoles: the validation of their rules, in upstream's words.

use postern_meta::field::{BadValue, FieldError, FieldErrors};

use crate::rbac::{ALL, PolicyRule};

/// The most rules of one role, and the most entries of each list of a rule.
pub(crate) const MAX_RULES: usize = 1000;

/// Adds the invalid fields in the rules of a role to `errors`.
pub(crate) fn validate(rules: &[PolicyRule], is_namespaced: bool, errors: &mut FieldErrors) {
    if !errors.check_count("rules", rules.len(), MAX_RULES) {
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(&format!("rules[{index}]"), rule, is_namespaced, errors);
    }
}

fn validate_rule(path: &str, rule: &PolicyRule, is_namespaced: bool, errors: &mut FieldErrors) {
    for (name, list) in [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ] {
        if list.len() > MAX_RULES {
            errors.push(FieldError::too_many(format!("{path}.{name}"), list.len(), MAX_RULES));
        }
    }
    if rule.verbs.is_empty() {
        let detail = "verbs must contain at least one value";
        errors.push(FieldError::required(format!("{path}.verbs"), detail));
    }
    if !rule.non_resource_urls.is_empty() {
        return validate_urls(path, rule, is_namespaced, errors);
    }
    if rule.api_groups.is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{path}.apiGroups"), detail));
    }
    if rule.resources.is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(format!("{path}.resources"), detail));
    }
}

fn validate_urls(path: &str, rule: &PolicyRule, is_namespaced: bool, errors: &mut FieldErrors) {
    let mut refuse = |detail: &str| {
        // Upstream prints the whole list here, which can be long.
        let path = format!("{path}.nonResourceURLs");
        errors.push(FieldError::invalid(path, BadValue::Omitted, detail));
    };
    if is_namespaced {
        refuse("namespaced rules cannot apply to non-resource URLs");
    }
    let resource_lists = [&rule.api_groups, &rule.resources, &rule.resource_names];
    if resource_lists.iter().any(|list| !list.is_empty()) {
        refuse("rules cannot apply to both regular resources and non-resource URLs");
    }
}

/// Rules that together allow everything. The writer of an aggregation must hold them, because the rules that it will
/// gather are not known.
pub(crate) fn everything() -> [PolicyRule; 2] {
    let all = || vec![ALL.to_owned()];
    let resources =
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() };
    let urls = PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() };
    [resources, urls]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn errors_of(rules: Value, is_namespaced: bool) -> Vec<String> {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).unwrap();
        let mut errors = FieldErrors::new();
        validate(&rules, is_namespaced, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_are_validated_in_upstreams_words() {
        const NO_VERBS: &str =
            "rules[0].verbs: Required value: verbs must contain at least one value";
        const NO_GROUPS: &str = "rules[0].apiGroups: Required value: resource rules must supply at \
                                 least one api group";
        const NO_RESOURCES: &str = "rules[0].resources: Required value: resource rules must supply \
                                    at least one resource";
        const NAMESPACED: &str = "rules[0].nonResourceURLs: Invalid value: namespaced rules cannot \
                                  apply to non-resource URLs";
        const BOTH: &str = "rules[0].nonResourceURLs: Invalid value: rules cannot apply to both \
                            regular resources and non-resource URLs";
        let whole = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] });
        let urls = json!({ "verbs": ["get"], "nonResourceURLs": ["/version"] });
        let both = json!({ "verbs": ["get"], "nonResourceURLs": ["/"], "resourceNames": ["a"] });
        for (rule, is_namespaced, errors) in [
            (&whole, true, vec![]),
            (&whole, false, vec![]),
            (&urls, false, vec![]),
            (&urls, true, vec![NAMESPACED]),
            (&both, false, vec![BOTH]),
            (&both, true, vec![NAMESPACED, BOTH]),
            (&json!({}), false, vec![NO_VERBS, NO_GROUPS, NO_RESOURCES]),
            (&json!({ "nonResourceURLs": ["/"] }), false, vec![NO_VERBS]),
            (&json!({ "verbs": ["*"], "resources": ["*"] }), true, vec![NO_GROUPS]),
            (&json!({ "verbs": ["*"], "apiGroups": ["*"] }), true, vec![NO_RESOURCES]),
        ] {
            assert_eq!(errors_of(json!([rule]), is_namespaced), errors, "{rule}");
        }
    }

    #[test]
    fn the_number_of_rules_and_entries_is_limited() {
        let rule = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] });
        assert!(errors_of(json!(vec![rule.clone(); MAX_RULES]), true).is_empty());
        let errors = errors_of(json!(vec![rule.clone(); MAX_RULES + 1]), true);
        assert_eq!(errors, ["rules: Too many: 1001: must have at most 1000 items"]);
        let mut long = rule;
        long["resourceNames"] = json!(vec!["a"; MAX_RULES + 1]);
        assert!(errors_of(json!([long]), true)[0].starts_with("rules[0].resourceNames: Too many"));
    }
}
