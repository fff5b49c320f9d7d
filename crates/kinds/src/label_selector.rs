//! Label selectors as fields of objects have them: upstream's `metav1.LabelSelector`. Those of
//! requests are in `postern_meta::selector`.

use std::collections::BTreeMap;

use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::names::{label_value, qualified_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operators of a requirement.
const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist"];

/// The most entries of each list of a selector.
const MAX_ENTRIES: usize = 100;

/// Selects objects by their labels. An object matches when it meets all of it; an empty selector
/// matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector")]
pub struct LabelSelector {
    /// Labels that an object must have, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(
    rename = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
    extend("required" = ["key", "operator"])
)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// How the label is compared.
    #[schemars(extend("enum" = OPERATORS))]
    pub operator: String,
    /// The values of In and `NotIn`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether an object with these labels matches. A requirement with an unknown operator is
    /// never met.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let has_label = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(has_label)
            && self.match_expressions.iter().all(|requirement| requirement.is_met(labels))
    }

    /// Adds the invalid fields to `errors`, in upstream's words.
    pub fn validate(&self, path: &str, errors: &mut FieldErrors) {
        let many = [self.match_labels.len(), self.match_expressions.len()];
        if let Some(actual) = many.into_iter().find(|actual| *actual > MAX_ENTRIES) {
            errors.push(FieldError::too_many(path, actual, MAX_ENTRIES));
            return;
        }
        for (key, value) in &self.match_labels {
            let path = format!("{path}.matchLabels");
            errors.check_value(&path, key, qualified_name(key));
            errors.check_value(&path, value, label_value(value));
        }
        for (index, requirement) in self.match_expressions.iter().enumerate() {
            requirement.validate(&format!("{path}.matchExpressions[{index}]"), errors);
        }
    }
}

impl Requirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }

    fn validate(&self, path: &str, errors: &mut FieldErrors) {
        let values = || format!("{path}.values");
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(values(), detail));
            }
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(values(), detail));
            }
            operator if !OPERATORS.contains(&operator) => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), operator, detail));
            }
            _ => {}
        }
        if self.values.len() > MAX_ENTRIES {
            errors.push(FieldError::too_many(values(), self.values.len(), MAX_ENTRIES));
            return;
        }
        errors.check(qualified_name(&self.key), |detail| {
            FieldError::invalid(format!("{path}.key"), &self.key, detail)
        });
        for (index, value) in self.values.iter().enumerate() {
            errors.check(label_value(value), |detail| {
                FieldError::invalid(format!("{path}.values[{index}]"), value, detail)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_object_matches_when_it_meets_all_requirements() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let one = |operator: &str, key: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (wanted, matches) in [
            (json!({}), true),
            (json!({ "matchLabels": { "a": "1" } }), true),
            (json!({ "matchLabels": { "a": "2" } }), false),
            (json!({ "matchLabels": { "a": "1", "b": "1" } }), false),
            (one("In", "a", json!(["1", "2"])), true),
            (one("In", "a", json!(["2"])), false),
            (one("In", "b", json!(["1"])), false),
            (one("NotIn", "a", json!(["1"])), false),
            (one("NotIn", "b", json!(["1"])), true),
            (one("Exists", "a", json!([])), true),
            (one("Exists", "b", json!([])), false),
            (one("DoesNotExist", "a", json!([])), false),
            (one("DoesNotExist", "b", json!([])), true),
            (one("exists", "a", json!([])), false),
        ] {
            assert_eq!(selector(wanted.clone()).matches(&labels), matches, "{wanted}");
        }
    }

    #[test]
    fn what_is_invalid_is_told_in_upstreams_words() {
        let one = |operator: &str, key: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (wanted, text) in [
            (json!({ "matchLabels": { "a b": "1" } }), "s.matchLabels: Invalid value: \"a b\""),
            (json!({ "matchLabels": { "a": "-" } }), "s.matchLabels: Invalid value: \"-\""),
            (one("In", "a", json!([])), "s.matchExpressions[0].values: Required value: must be"),
            (one("Exists", "a", json!(["1"])), "s.matchExpressions[0].values: Forbidden: may not"),
            (one("in", "a", json!(["1"])), "operator: Invalid value: \"in\": not a valid selector"),
            (one("Exists", "", json!([])), "s.matchExpressions[0].key: Invalid value: \"\""),
            (one("In", "a", json!(["-"])), "s.matchExpressions[0].values[0]: Invalid value"),
        ] {
            let mut errors = FieldErrors::new();
            selector(wanted.clone()).validate("s", &mut errors);
            assert!(errors.to_string().contains(text), "{wanted}: {errors}");
        }
        let mut errors = FieldErrors::new();
        selector(one("NotIn", "a", json!(["", "1"]))).validate("s", &mut errors);
        assert!(errors.is_empty(), "{errors}");
    }
}
