//! Fields that grant or narrow access: in these, nothing that a client sends is ignored.
//!
//! This module has the declarations of a kind, and the check of an object that a client sent. A
//! field that is unknown, misspelled, null or present twice is an error (422) if ignoring it would
//! give more access than its writer meant. That holds for any field validation that the client asks
//! for. The same holds for unknown fields next to the values of a secret: a value would be lost.
//! Other unknown fields are warnings, which the server makes.

use postern_meta::decode::MAX_STRICT_ERRORS;
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::schema::Schema;
use serde_json::Value;

use crate::names::MANAGEMENT_V1;

/// Why an unknown field next to the values of a secret is an error.
const WHY_OF_VALUES: &str = "a value of a secret is never dropped";

/// The fields with the values of a secret.
const VALUES: &[&str] = &["data", "stringData"];

/// Why such a field is an error.
const WHY: &str = "fields that grant or narrow access are never ignored";

/// The letters that a name must have for one typing error in it to be recognized, and for two.
const MIN_LETTERS: [usize; 2] = [4, 9];

/// The most letters of a name that are compared: names of fields are shorter.
const MAX_LETTERS: usize = 64;

/// The fields in which nothing is ignored. Paths are dotted.
#[derive(Clone, Copy, Debug)]
pub struct StrictFields {
    /// No unknown fields below these. None of these, of the fields above them and of the fields
    /// below them is present twice.
    pub no_unknown_below: &'static [&'static str],
    /// Without these, there is more access: they are not null, a merge patch does not remove them by a null, and an
    /// apply does not by leaving them out. `*` is any field; `[]` after a name is every item of the list.
    pub not_null: &'static [&'static str],
    /// In a whole object, nothing at and below these is null.
    pub no_null_below: &'static [&'static str],
    /// No unknown field below these has a name like that of a field there: a misspelled one.
    pub no_similar_below: &'static [&'static str],
    /// No unknown field anywhere in the object has a name like one of these; with the correct field
    /// to write.
    pub names: &'static [(&'static str, &'static str)],
    /// Below these, an unknown field could be a value of a secret, and is not dropped; `""` is the
    /// object itself. An unknown field with the name of the values is not dropped anywhere.
    pub holds_values: &'static [&'static str],
    /// Whether the object itself has no unknown fields, and no unknown field elsewhere has the name
    /// of a field of its spec.
    pub is_closed: bool,
}

/// The names of fields of our own kinds that grant or narrow access, and where each belongs.
const NAMES_OF_OURS: &[(&str, &str)] = &[
    ("spec", "spec"),
    ("access", "spec.access"),
    ("accessRules", "spec.access"),
    ("extraAccessRules", "spec.access"),
    ("members", "spec.members"),
    ("allowedClusters", "spec.allowedClusters"),
    ("quotas", "spec.quotas"),
    ("offer", "spec.offer"),
    ("scope", "spec.scope"),
    ("disabled", "spec.disabled"),
    ("enabled", "spec.disabled"),
    ("owner", "spec.owner"),
    ("groups", "spec.groups"),
    ("subject", "spec.subject"),
    ("users", "spec.users"),
];

/// Where our own kinds have them. A kind that has none of a path is not concerned by it.
const PATHS_OF_OURS: &[&str] = &[
    "spec.access",
    "spec.extraAccessRules",
    "spec.members",
    "spec.allowedClusters",
    "spec.quotas",
    "spec.offer",
    "spec.scope",
    "spec.disabled",
    "spec.owner",
    "spec.groups",
    "spec.subject",
];

impl StrictFields {
    /// No such fields.
    pub const NONE: Self = Self {
        no_unknown_below: &[],
        not_null: &[],
        no_null_below: &[],
        no_similar_below: &[],
        names: &[],
        holds_values: &[],
        is_closed: false,
    };

    /// Those of a kind of our own group.
    pub const OURS: Self = Self {
        no_unknown_below: PATHS_OF_OURS,
        no_null_below: PATHS_OF_OURS,
        names: NAMES_OF_OURS,
        ..Self::NONE
    };

    /// Those of a secret of our own group.
    pub const OF_SECRETS: Self = Self { holds_values: &["spec"], ..Self::OURS };

    /// Those of a credential that a client asks for: all of its fields are about access.
    pub const OF_CREDENTIALS: Self = Self {
        no_unknown_below: &["spec"],
        not_null: &["spec", "spec.scope", "spec.disabled"],
        no_null_below: &["spec.scope", "spec.ttl", "spec.groups", "spec.subject"],
        is_closed: true,
        ..Self::OURS
    };

    /// Those of a role, as in Kubernetes. Without `resourceNames`, a rule is about every object.
    pub const OF_ROLES: Self = Self {
        not_null: &["rules[].resourceNames"],
        no_similar_below: &["rules"],
        names: &[
            ("resourceNames", "rules[].resourceNames"),
            ("nonResourceURLs", "rules[].nonResourceURLs"),
        ],
        ..Self::NONE
    };

    /// Those of a binding, as in Kubernetes.
    pub const OF_BINDINGS: Self = Self { no_similar_below: &["roleRef", "subjects"], ..Self::NONE };

    /// The strict fields of a kind that declares none: of our own group, or of another.
    pub(super) fn of_group(group: &str) -> Self {
        if group == MANAGEMENT_V1.group { Self::OURS } else { Self::NONE }
    }

    /// The nulls of a whole object that are not allowed. Call it before unknown fields and nulls are removed.
    pub fn nulls(&self, schema: &Schema, value: &Value) -> FieldErrors {
        if !has_null(value) {
            return FieldErrors::new();
        }
        let mut found = self.narrowing_nulls(value);
        for null in self.no_null_below.iter().flat_map(|path| schema.nulls_below(value, path)) {
            if !found.contains(&null) {
                found.push(null);
            }
        }
        let detail = format!("must not be null: omit it or set a value; {WHY}");
        errors(found, |path| FieldError::invalid(path, BadValue::Omitted, detail.as_str()))
    }

    /// The fields that a merge patch must not remove by a null: without them, there is more access.
    pub fn nulls_in_patch(&self, patch: &Value) -> FieldErrors {
        if !has_null(patch) {
            return FieldErrors::new();
        }
        let detail = format!(
            "must not be null: set a value, or remove the field with a JSON Patch or a \
             replacement of the object; {WHY}"
        );
        let found = self.narrowing_nulls(patch);
        errors(found, |path| FieldError::invalid(path, BadValue::Omitted, detail.as_str()))
    }

    /// The unknown and duplicate fields that must not be ignored. The paths are those of [`Schema::prune_unknown`] and
    /// of the decoder.
    pub fn ignored(
        &self,
        schema: &Schema,
        unknown: &[String],
        duplicates: &[String],
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for path in unknown {
            if let Some(correction) = self.correction_for(schema, path) {
                let detail = format!("unknown field \"{path}\": {correction}; {WHY}");
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        for path in duplicates.iter().filter(|path| self.is_not_twice(path)) {
            let detail = format!("duplicate field \"{path}\": {WHY}");
            errors.push(FieldError::forbidden(path, detail));
        }
        for (what, paths) in [("unknown", unknown), ("duplicate", duplicates)] {
            // Only so many are known, and the next one could matter.
            if paths.len() >= MAX_STRICT_ERRORS && !self.is_none() && errors.is_empty() {
                let last = paths.last().map_or("", String::as_str);
                let detail = format!("too many {what} fields; {WHY}");
                errors.push(FieldError::forbidden(last, detail));
            }
        }
        errors
    }

    /// The unknown fields that could be values of a secret. The paths are those of [`Schema::prune_unknown`].
    pub fn lost_values(&self, schema: &Schema, unknown: &[String]) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for path in unknown {
            let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
            let is_inside = |of: &str| is_below(path, of) || (of.is_empty() && parent.is_empty());
            let around = self.holds_values.iter().find(|of| is_inside(of));
            let Some(holder) = around.or(self.holds_values.first()) else { continue };
            let hint = match VALUES.iter().find(|values| letters(values) == letters(name)) {
                Some(values) => format!("write {} instead", joined(holder, values)),
                None if around.is_some() => {
                    let known = known_names(schema, parent);
                    match known.iter().find(|known| is_like(name, known)) {
                        Some(known) => format!("did you mean {}?", joined(parent, known)),
                        None => format!("known here: {}", known.join(", ")),
                    }
                }
                None => continue,
            };
            let detail = format!("unknown field \"{path}\": {hint}; {WHY_OF_VALUES}");
            errors.push(FieldError::forbidden(path, detail));
        }
        errors
    }

    fn is_none(&self) -> bool {
        self.names.is_empty() && self.no_similar_below.is_empty() && !self.is_closed
    }

    /// The text that says what to write instead of an unknown field; `None` for one that is ignored.
    fn correction_for(&self, schema: &Schema, path: &str) -> Option<String> {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let known = known_names(schema, parent);
        let similar = known.iter().find(|known| is_like(name, known));
        let is_below = |paths: &[&str]| paths.iter().any(|one| is_below(path, one));
        if let Some(known) = similar
            && (is_below(self.no_unknown_below) || is_below(self.no_similar_below))
        {
            return Some(format!("did you mean {}?", joined(parent, known)));
        }
        if let Some((_, at)) = self.names.iter().find(|(guarded, _)| is_like(name, guarded)) {
            let (of, last) = at.rsplit_once('.').unwrap_or(("", at));
            let of = of.replace("[]", "[0]");
            let exists = known_names(schema, &of).contains(&last);
            return Some(if exists {
                format!("write {at} instead")
            } else {
                format!("this kind has no {last}, leave it out")
            });
        }
        let in_spec = || known_names(schema, "spec").into_iter().find(|known| is_like(name, known));
        if self.is_closed
            && let Some(known) = in_spec()
        {
            return Some(format!("write spec.{known} instead"));
        }
        let is_refused = is_below(self.no_unknown_below) || (self.is_closed && parent.is_empty());
        is_refused.then(|| format!("known here: {}", known.join(", ")))
    }

    /// Whether a field at this path must not be present twice: nothing in it is ignored, or it is
    /// above such a field.
    fn is_not_twice(&self, path: &str) -> bool {
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let mut whole = self.no_unknown_below.iter().chain(self.no_null_below);
        let mut guarded =
            self.no_unknown_below.iter().chain(self.not_null).chain(self.no_null_below);
        whole.any(|one| is_below(path, one))
            || guarded.any(|one| path == *one || is_below(one, path))
            || self.names.iter().any(|(guarded, _)| *guarded == name)
    }

    /// The paths of nulls among [`Self::not_null`].
    fn narrowing_nulls(&self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for path in self.not_null {
            nulls_at(value, path, "", &mut found);
        }
        found
    }
}

fn errors(paths: Vec<String>, error: impl Fn(String) -> FieldError) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for path in paths {
        errors.push(error(path));
    }
    errors
}

fn joined(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// Whether a path is below another.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Whether there is a null anywhere, as in hardly any object. This is cheaper than the search by paths.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Adds the paths of the null values at `path` below `value`, which is at `at`.
fn nulls_at(value: &Value, path: &str, at: &str, found: &mut Vec<String>) {
    if found.len() >= MAX_STRICT_ERRORS {
        return;
    }
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut next = |value: &Value, at: String| match (value, rest) {
        (Value::Null, "") => found.push(at),
        (_, "") => {}
        _ => nulls_at(value, rest, &at, found),
    };
    if step == "*" {
        for (name, value) in value.as_object().into_iter().flatten() {
            next(value, joined(at, name));
        }
    } else if let Some(list) = step.strip_suffix("[]") {
        let items = value.get(list).and_then(Value::as_array).into_iter().flatten();
        for (index, item) in items.enumerate() {
            next(item, format!("{}[{index}]", joined(at, list)));
        }
    } else if let Some(value) = value.get(step) {
        next(value, joined(at, step));
    }
}

/// The names of the fields that the schema has at a path; none where it says nothing about them.
fn known_names<'a>(schema: &'a Schema, path: &str) -> Vec<&'a str> {
    let mut at = schema.resolve(schema.root());
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (name, indices) = step.split_once('[').unwrap_or((step, ""));
        let property = at.get("properties").and_then(|known| known.get(name));
        let Some(mut next) = property.or_else(|| at.get("additionalProperties")) else {
            return Vec::new();
        };
        for _ in indices.matches(']') {
            let Some(items) = schema.resolve(next).get("items") else { return Vec::new() };
            next = items;
        }
        at = schema.resolve(next);
    }
    let properties = at.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// Whether a name seems to be meant as another: in other capitals, with other separators, singular
/// or plural, or with an error in typing.
fn is_like(name: &str, meant: &str) -> bool {
    let (name, meant) = (letters(name), letters(meant));
    let [one, two] = MIN_LETTERS;
    let typing_errors = usize::from(meant.len() >= one) + usize::from(meant.len() >= two);
    let is_same_number = stems(&name).any(|stem| stems(&meant).any(|other| stem == other));
    is_same_number || is_within(&name, &meant, typing_errors)
}

/// The letters and digits of a name in lower case.
fn letters(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).take(MAX_LETTERS).collect()
}

/// A word, and its forms without an ending of the plural.
fn stems(word: &[char]) -> impl Iterator<Item = &[char]> {
    let stem = |ending: &[char]| word.strip_suffix(ending).filter(|stem| stem.len() > 2);
    [Some(word), stem(&['s']), stem(&['e', 's'])].into_iter().flatten()
}

/// Whether one word is within an edit distance of another (insertions, deletions, substitutions, swaps of neighbours).
fn is_within(one: &[char], other: &[char], changes: usize) -> bool {
    let (Some((a, one_rest)), Some((b, other_rest))) = (one.split_first(), other.split_first())
    else {
        return one.len().max(other.len()) <= changes;
    };
    if a == b {
        // To keep an equal letter is never worse.
        return is_within(one_rest, other_rest, changes);
    }
    let Some(left) = changes.checked_sub(1) else { return false };
    let is_exchanged = || match (one, other) {
        ([a, b, one_rest @ ..], [c, d, other_rest @ ..]) if a == d && b == c => {
            is_within(one_rest, other_rest, left)
        }
        _ => false,
    };
    is_within(one_rest, other_rest, left)
        || is_within(one_rest, other, left)
        || is_within(one, other_rest, left)
        || is_exchanged()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::AnyKind;
    use crate::cluster_role::ClusterRole;
    use crate::direct_cluster_endpoint_token::DirectClusterEndpointToken;
    use crate::owned_access_key::OwnedAccessKey;
    use crate::project::Project;
    use crate::role_binding::RoleBinding;
    use crate::secret::Secret;
    use crate::shared_secret::SharedSecret;
    use crate::team::Team;
    use crate::user::User;

    /// The errors of a whole object.
    fn problems(kind: &dyn AnyKind, mut value: Value) -> Vec<String> {
        let (strict, schema) = (kind.info().strict_fields(), kind.schema());
        let mut errors = strict.nulls(schema, &value);
        let unknown = schema.prune_unknown(&mut value);
        errors.extend(strict.ignored(schema, &unknown, &[]));
        errors.iter().map(ToString::to_string).collect()
    }

    /// Checks that each object is rejected for the field at a path, with the advice on the correct
    /// field.
    fn are_refused(kind: &'static dyn AnyKind, rows: &[(Value, &str, &str)]) {
        for (value, path, correction) in rows {
            let found = problems(kind, value.clone());
            let [only] = &found[..] else { panic!("{kind:?} {value}: {found:?}") };
            let expected = format!("{path}: Forbidden: unknown field \"{path}\": {correction}");
            assert!(only.starts_with(&expected), "{kind:?} {value}: {only}");
        }
    }

    #[test]
    fn a_misspelled_field_of_a_project_does_not_open_it_to_every_cluster() {
        let spec = |spec: Value| json!({ "spec": spec });
        let clusters = "write spec.allowedClusters instead";
        are_refused(
            &Project,
            &[
                (spec(json!({ "allowedclusters": [] })), "spec.allowedclusters", clusters),
                (spec(json!({ "alowedCluster": [] })), "spec.alowedCluster", clusters),
                (json!({ "allowed_clusters": [] }), "allowed_clusters", clusters),
                (spec(json!({ "quota": {} })), "spec.quota", "write spec.quotas instead"),
                (
                    spec(json!({ "quotas": { "projects": {} } })),
                    "spec.quotas.projects",
                    "did you mean spec.quotas.project?",
                ),
                (
                    spec(json!({ "members": [{ "role": "x" }] })),
                    "spec.members[0].role",
                    "known here: clusterRole, group, kind, name",
                ),
                (
                    spec(json!({ "allowedClusters": [{ "cluster": "c" }] })),
                    "spec.allowedClusters[0].cluster",
                    "known here: name",
                ),
            ],
        );
    }

    #[test]
    fn a_misspelled_field_of_a_user_does_not_leave_them_enabled() {
        let disabled = "write spec.disabled instead";
        are_refused(
            &User,
            &[
                (json!({ "spec": { "Disabled": true } }), "spec.Disabled", disabled),
                (json!({ "spec": { "disable": true } }), "spec.disable", disabled),
                (json!({ "spec": { "enabled": false } }), "spec.enabled", disabled),
                (json!({ "disabled": true }), "disabled", disabled),
                (json!({ "metadata": { "disabled": true } }), "metadata.disabled", disabled),
                (json!({ "status": { "disabled": true } }), "status.disabled", disabled),
                (json!({ "spce": { "disabled": true } }), "spce", "write spec instead"),
                (json!({ "Spec": { "disabled": true } }), "Spec", "write spec instead"),
                (json!({ "spec": { "access": [] } }), "spec.access", "this kind has no access"),
            ],
        );
        are_refused(
            &Team,
            &[
                (json!({ "spec": { "disabled": true } }), "spec.disabled", "this kind has no"),
                (json!({ "spec": { "user": [] } }), "spec.user", "write spec.users instead"),
            ],
        );
    }

    #[test]
    fn misspelled_access_rules_and_owners_are_refused_on_every_kind_that_has_them() {
        let access = "write spec.access instead";
        let extra = (json!({ "spec": { "accessRules": [] } }), "spec.accessRules", access);
        let of = |spec: Value| json!({ "spec": spec });
        let rows = [
            extra,
            (json!({ "access": [] }), "access", access),
            (json!({ "specs": {} }), "specs", "write spec instead"),
            (
                of(json!({ "access": [{ "user": ["a"] }] })),
                "spec.access[0].user",
                "did you mean spec.access[0].users?",
            ),
            (of(json!({ "owner": { "name": "a" } })), "spec.owner.name", "known here: team, user"),
            (of(json!({ "owners": {} })), "spec.owners", "write spec.owner instead"),
        ];
        let with_access = crate::all().iter().filter(|kind| kind.has_ownership());
        assert!(with_access.map(|kind| are_refused(*kind, &rows)).count() > 5);
        let extra = json!({ "spec": { "extraAccessRules": [] } });
        are_refused(&SharedSecret, &[(extra, "spec.extraAccessRules", access)]);
    }

    #[test]
    fn keys_and_tokens_have_no_unknown_field_at_the_top() {
        are_refused(
            &OwnedAccessKey,
            &[
                (json!({ "metadata": { "scope": {} } }), "metadata.scope", "write spec.scope"),
                (json!({ "metadata": { "ttl": 1 } }), "metadata.ttl", "write spec.ttl instead"),
                (json!({ "specs": { "scope": {} } }), "specs", "write spec instead"),
                (json!({ "anything": {} }), "anything", "known here: apiVersion"),
                (json!({ "spec": { "x": {} } }), "spec.x", "known here: "),
            ],
        );
        let top = (json!({ "x": {} }), "x", "known here: apiVersion");
        are_refused(&DirectClusterEndpointToken, &[top]);
    }

    #[test]
    fn other_unknown_fields_are_left_to_the_field_validation() {
        for (kind, value) in [
            (&Project as &dyn AnyKind, json!({ "spec": { "displayname": "a", "color": "b" } })),
            (&Project, json!({ "x": 1, "metadata": { "clusterName": "c", "selfLink": "d" } })),
            (&SharedSecret, json!({ "spec": { "data": { "access": "", "Spec": "" } } })),
            (&SharedSecret, json!({ "metadata": { "labels": { "owner": "a", "scope": "b" } } })),
            (&User, json!({ "spec": { "icon": "a", "password": "b" }, "status": {} })),
            (&Secret, json!({ "access": [], "spec": {}, "disabled": true })),
            (&ClusterRole, json!({ "spec": {}, "rules": [{ "comment": "a" }] })),
            (&RoleBinding, json!({ "scope": {}, "subjects": [{ "uid": "a" }] })),
        ] {
            assert_eq!(problems(kind, value.clone()), [""; 0], "{kind:?} {value}");
        }
    }

    #[test]
    fn misspelled_fields_of_roles_and_bindings_widen_and_are_refused() {
        let rule = |field: &str| json!({ "rules": [{ "verbs": ["get"], field: ["a"] }] });
        let names = "did you mean rules[0].resourceNames?";
        for (kind, value, expected) in [
            (&ClusterRole as &dyn AnyKind, rule("resourceName"), names),
            (&ClusterRole, rule("resourcenames"), names),
            (&ClusterRole, rule("resource_names"), names),
            (&ClusterRole, rule("resuorceNames"), names),
            (&ClusterRole, rule("nonResourceUrl"), "did you mean rules[0].nonResourceURLs?"),
            (&ClusterRole, json!({ "resourceNames": ["a"] }), "write rules[].resourceNames"),
            (
                &ClusterRole,
                json!({ "metadata": { "resourceNames": ["a"] } }),
                "write rules[].resourceNames",
            ),
            (
                &RoleBinding,
                json!({ "subjects": [{ "namespaces": "a" }] }),
                "did you mean subjects[0].namespace?",
            ),
            (&RoleBinding, json!({ "roleRef": { "apigroup": "a" } }), "did you mean roleRef.apiGr"),
        ] {
            let found = problems(kind, value.clone());
            assert!(
                matches!(&found[..], [only] if only.contains(expected)),
                "{value}: {found:?}, not {expected}"
            );
        }
        let null = problems(&ClusterRole, json!({ "rules": [{}, { "resourceNames": null }] }));
        assert!(null[0].starts_with("rules[1].resourceNames: Invalid value: must not be null"));
        // Clients in Go write these.
        let empty = json!({ "rules": [{ "verbs": null }], "aggregationRule": null });
        assert_eq!(problems(&ClusterRole, empty), [""; 0]);
        assert_eq!(problems(&ClusterRole, json!({ "rules": null })), [""; 0]);
    }

    #[test]
    fn null_is_no_way_to_say_nothing_of_what_grants_or_narrows() {
        for (kind, spec, path) in [
            (&Project as &dyn AnyKind, json!({ "allowedClusters": null }), "allowedClusters"),
            (&Project, json!({ "quotas": null }), "quotas"),
            (&Project, json!({ "quotas": { "project": { "a": null } } }), "quotas.project.a"),
            (&Project, json!({ "members": [{ "clusterRole": null }] }), "members[0].clusterRole"),
            (&User, json!({ "disabled": null }), "disabled"),
            (&User, json!({ "groups": null }), "groups"),
            (&SharedSecret, json!({ "access": [{ "users": null }] }), "access[0].users"),
            (&OwnedAccessKey, json!({ "scope": null }), "scope"),
            (&OwnedAccessKey, json!({ "ttl": null }), "ttl"),
        ] {
            let found = problems(kind, json!({ "spec": spec }));
            let expected = format!("spec.{path}: Invalid value: must not be null");
            let is_it = matches!(&found[..], [only] if only.starts_with(&expected));
            assert!(is_it, "{kind:?} {spec}: {found:?}");
        }
        assert_eq!(problems(&SharedSecret, json!({ "spec": { "data": null } })), [""; 0]);
    }

    #[test]
    fn a_merge_patch_takes_away_by_null_what_grants_and_not_what_narrows() {
        for (kind, patch, is_refused) in [
            (&User as &dyn AnyKind, json!({ "spec": null }), true),
            (&User, json!({ "spec": { "disabled": null } }), true),
            (&User, json!({ "spec": { "groups": null, "email": null } }), false),
            (&Project, json!({ "spec": null }), true),
            (&Project, json!({ "spec": { "quotas": null } }), true),
            (&Project, json!({ "spec": { "quotas": { "user": null } } }), true),
            (&Project, json!({ "spec": { "quotas": { "user": { "a": null } } } }), true),
            (&Project, json!({ "spec": { "members": null, "access": null } }), false),
            // Then none is allowed.
            (&Project, json!({ "spec": { "allowedClusters": null } }), false),
            (&SharedSecret, json!({ "spec": { "owner": null, "access": null } }), false),
            (&OwnedAccessKey, json!({ "spec": { "scope": null } }), true),
            (&OwnedAccessKey, json!({ "spec": { "disabled": null } }), true),
            // The right to do that is decided as for any other lifetime.
            (&OwnedAccessKey, json!({ "spec": { "ttl": null } }), false),
            (&OwnedAccessKey, json!({ "spec": { "description": null } }), false),
        ] {
            let errors = kind.info().strict_fields().nulls_in_patch(&patch);
            assert_eq!(!errors.is_empty(), is_refused, "{kind:?} {patch}: {errors}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_where_one_of_them_narrows() {
        for (kind, path, is_refused) in [
            (&User as &dyn AnyKind, "spec.disabled", true),
            (&User, "spec", true),
            (&User, "spec.email", false),
            (&SharedSecret, "spec.access[0].users", true),
            (&SharedSecret, "metadata.labels", false),
            (&ClusterRole, "rules[0].resourceNames", true),
            (&ClusterRole, "rules[0].verbs", false),
            (&Secret, "data", false),
        ] {
            let twice = [path.to_owned()];
            let errors = kind.info().strict_fields().ignored(kind.schema(), &[], &twice);
            assert_eq!(!errors.is_empty(), is_refused, "{kind:?} {path}: {errors}");
        }
    }

    #[test]
    fn more_unknown_fields_than_are_counted_are_refused() {
        let many = |count: usize| -> Value {
            (0..count).map(|index| (format!("x{index}"), json!(1))).collect()
        };
        let found = |kind: &dyn AnyKind, count| problems(kind, json!({ "spec": many(count) }));
        assert_eq!(found(&User, MAX_STRICT_ERRORS - 1), [""; 0]);
        assert!(found(&User, MAX_STRICT_ERRORS)[0].contains("too many unknown fields"));
        assert_eq!(problems(&Secret, many(2 * MAX_STRICT_ERRORS)), [""; 0]);
    }

    #[test]
    fn names_are_alike_by_case_separators_number_and_typing_errors() {
        for (name, meant, expected) in [
            ("ACCESS", "access", true),
            ("allowed-clusters", "allowedClusters", true),
            ("accesses", "access", true),
            ("quota", "quotas", true),
            ("scoep", "scope", true),
            ("cope", "scope", true),
            ("spc", "spec", true),
            ("sepc", "spec", true),
            ("specification", "spec", false),
            ("use", "uses", true),
            ("ad", "add", false),
            ("status", "spec", false),
            ("object", "subject", false),
            ("accessKeys", "access", false),
            ("alowdClusters", "allowedClusters", true),
            ("closters", "allowedClusters", false),
            ("", "access", false),
        ] {
            assert_eq!(is_like(name, meant), expected, "{name} for {meant}");
        }
        let long = "a".repeat(100_000);
        assert!(!is_like(&long, "access"));
    }
}
