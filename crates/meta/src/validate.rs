//! Validation of metadata on create and on update. See `docs/reference/api.md#metadata`.
//!
//! The kinds validate their own fields.

use std::collections::{BTreeMap, HashSet};

use crate::field::{BadValue, FieldError, FieldErrors};
use crate::names::{self, NameRule};
use crate::object::{
    FOREGROUND_FINALIZER, ManagedFieldsEntry, ORPHAN_FINALIZER, ObjectMeta, Operation,
};
use crate::options::check_manager;
use crate::quote::cut;

/// Maximum bytes of all annotations of one object, keys and values together, as upstream.
pub const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Maximum number of labels of one object.
pub const MAX_LABELS: usize = 1024;
/// Maximum number of finalizers of one object.
pub const MAX_FINALIZERS: usize = 128;
/// Maximum number of owner references of one object.
pub const MAX_OWNERS: usize = 128;
/// Maximum bytes of an owner's uid: it is part of a path in `managedFields`.
const MAX_UID_BYTES: usize = 128;
/// Maximum bytes of the name of a subresource in `managedFields`.
pub const MAX_SUBRESOURCE_BYTES: usize = 256;

/// The errors in the metadata of a new object.
pub fn validate_create(
    metadata: &ObjectMeta,
    namespaced: bool,
    name_rule: NameRule,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    validate_name(metadata, name_rule, &mut errors);
    if namespaced && metadata.namespace.is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    } else if namespaced {
        errors.check_value(
            "metadata.namespace",
            &metadata.namespace,
            names::dns1123_label(&metadata.namespace),
        );
    }
    validate_common(metadata, &mut errors);
    errors
}

/// The errors in the metadata of an update. Fields that only the server sets have been restored already.
pub fn validate_update(new: &ObjectMeta, old: &ObjectMeta) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (path, same) in [
        ("metadata.name", new.name == old.name),
        ("metadata.namespace", new.namespace == old.namespace),
        ("metadata.uid", new.uid == old.uid),
        ("metadata.creationTimestamp", new.creation_timestamp == old.creation_timestamp),
        ("metadata.deletionTimestamp", new.deletion_timestamp == old.deletion_timestamp),
    ] {
        if !same {
            errors.push(FieldError::immutable(path));
        }
    }
    if old.is_terminating() {
        validate_no_new_finalizers(new, old, &mut errors);
    }
    validate_common(new, &mut errors);
    errors
}

/// Removes owner references that equal an earlier one. Returns a warning for each. More than
/// [`MAX_OWNERS`] are left as they are: validation refuses them.
pub fn dedup_owner_references(metadata: &mut ObjectMeta) -> Vec<String> {
    if metadata.owner_references.len() > MAX_OWNERS {
        return Vec::new();
    }
    let mut seen = HashSet::with_capacity(metadata.owner_references.len());
    let mut warnings = Vec::new();
    metadata.owner_references.retain(|owner| {
        let is_new = seen.insert(owner.clone());
        if !is_new {
            warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; duplicate UID(s) observed: {}",
                cut(&owner.uid, MAX_UID_BYTES)
            ));
        }
        is_new
    });
    warnings
}

fn validate_name(metadata: &ObjectMeta, rule: NameRule, errors: &mut FieldErrors) {
    let (name, prefix) = (&metadata.name, &metadata.generate_name);
    if !prefix.is_empty() {
        errors.check_value("metadata.generateName", prefix, rule.check_prefix(prefix));
    }
    if !name.is_empty() {
        errors.check_value("metadata.name", name, rule.check(name));
    } else if prefix.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    }
}

fn validate_common(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    validate_labels(&metadata.labels, errors);
    validate_annotations(&metadata.annotations, errors);
    validate_finalizers(metadata, errors);
    validate_owners(metadata, errors);
    validate_managed_fields(&metadata.managed_fields, errors);
}

fn validate_labels(labels: &BTreeMap<String, String>, errors: &mut FieldErrors) {
    const PATH: &str = "metadata.labels";
    if !errors.check_count(PATH, labels.len(), MAX_LABELS) {
        return;
    }
    for (key, value) in labels {
        errors.check_value(PATH, key, names::qualified_name(key));
        errors.check_value(PATH, value, names::label_value(value));
    }
}

fn validate_annotations(annotations: &BTreeMap<String, String>, errors: &mut FieldErrors) {
    const PATH: &str = "metadata.annotations";
    for key in annotations.keys() {
        // The error leaves the value out: tools put whole objects into annotations.
        errors.check_value(PATH, key, names::qualified_name(&key.to_ascii_lowercase()));
    }
    if annotations_bytes(annotations) > MAX_ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(PATH, MAX_ANNOTATIONS_BYTES));
    }
}

/// The bytes of annotations that count: of keys and values, as upstream.
pub(crate) fn annotations_bytes(annotations: &BTreeMap<String, String>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn validate_finalizers(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    const PATH: &str = "metadata.finalizers";
    let finalizers = &metadata.finalizers;
    if !errors.check_count(PATH, finalizers.len(), MAX_FINALIZERS) {
        return;
    }
    for (index, finalizer) in finalizers.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        errors.check_value(&path, finalizer, names::qualified_name(finalizer));
    }
    let both = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];
    if both.iter().all(|one| finalizers.iter().any(|finalizer| finalizer == one)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(PATH, BadValue::Omitted, why));
    }
}

fn validate_no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, errors: &mut FieldErrors) {
    if new.finalizers.len() > MAX_FINALIZERS {
        // Refused for their number.
        return;
    }
    let known: HashSet<&String> = old.finalizers.iter().collect();
    let added: Vec<&str> = new
        .finalizers
        .iter()
        .filter(|finalizer| !known.contains(finalizer))
        .map(String::as_str)
        .collect();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             {added:?}"
        );
        errors.push(FieldError::forbidden("metadata.finalizers", why));
    }
}

fn validate_owners(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    const PATH: &str = "metadata.ownerReferences";
    let owners = &metadata.owner_references;
    if !errors.check_count(PATH, owners.len(), MAX_OWNERS) {
        return;
    }
    for (index, owner) in owners.iter().enumerate() {
        let path = |field| format!("{PATH}[{index}].{field}");
        let version = owner.api_version.split('/').next_back().unwrap_or_default();
        if version.is_empty() || owner.api_version.matches('/').count() > 1 {
            let why = "version must not be empty";
            errors.push(FieldError::invalid(path("apiVersion"), owner.api_version.as_str(), why));
        }
        for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
            if value.is_empty() {
                let why = "must not be empty";
                errors.push(FieldError::invalid(path(field), value.as_str(), why));
            }
        }
        if owner.uid.len() > MAX_UID_BYTES {
            errors.push(FieldError::too_long(path("uid"), MAX_UID_BYTES));
        }
        if owner.api_version == "v1" && owner.kind == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(format!("{PATH}[{index}]"), BadValue::Omitted, why));
        }
    }
    let mut controllers = owners.iter().filter(|owner| owner.controller == Some(true));
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for \
             {} and {}",
            first.name, second.name
        );
        errors.push(FieldError::invalid(PATH, BadValue::Omitted, why));
    }
}

fn validate_managed_fields(entries: &[ManagedFieldsEntry], errors: &mut FieldErrors) {
    for (index, entry) in entries.iter().enumerate() {
        let path = |field| format!("metadata.managedFields[{index}].{field}");
        if entry.operation == Operation::Unknown {
            let why = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(path("operation"), BadValue::Omitted, why));
        }
        if !matches!(entry.fields_type.as_str(), "" | "FieldsV1") {
            let why = "must be `FieldsV1`";
            errors.push(FieldError::invalid(path("fieldsType"), BadValue::Omitted, why));
        }
        check_manager(&path("manager"), &entry.manager, errors);
        if entry.subresource.len() > MAX_SUBRESOURCE_BYTES {
            errors.push(FieldError::too_long(path("subresource"), MAX_SUBRESOURCE_BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::object::OwnerReference;
    use crate::time::Timestamp;

    use super::*;

    fn named() -> ObjectMeta {
        ObjectMeta {
            name: "a".to_owned(),
            namespace: "default".to_owned(),
            ..ObjectMeta::default()
        }
    }

    fn wrong(change: impl FnOnce(&mut ObjectMeta)) -> String {
        let mut metadata = named();
        change(&mut metadata);
        validate_create(&metadata, true, NameRule::Subdomain).to_string()
    }

    fn owner(name: &str) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn names() {
        assert!(validate_create(&named(), true, NameRule::Subdomain).is_empty());
        let none = wrong(|m| m.name.clear());
        assert_eq!(none, "metadata.name: Required value: name or generateName is required");
        for bad in ["A", ".", "..", "a/b", "a%b", "-a", "a_b"] {
            assert!(
                wrong(|m| m.name = bad.to_owned()).starts_with("metadata.name: Invalid value: ")
            );
        }
        assert!(wrong(|m| m.namespace = "a.b".to_owned()).starts_with("metadata.namespace: "));
        let prefixed = ObjectMeta { generate_name: "x-".to_owned(), ..named() };
        assert!(validate_create(&prefixed, true, NameRule::Subdomain).is_empty());
    }

    #[test]
    fn names_of_roles_are_path_segments() {
        let wrong = |name: &str, generate_name: &str| {
            let metadata = ObjectMeta {
                name: name.to_owned(),
                generate_name: generate_name.to_owned(),
                ..named()
            };
            validate_create(&metadata, true, NameRule::PathSegment).to_string()
        };
        assert_eq!(wrong("system:Public", ""), "[]");
        assert_eq!(wrong("", "platform:"), "[]");
        assert!(wrong("..", "").contains("metadata.name: Invalid value: \"..\": may not be '..'"));
        assert!(wrong("a/b", "").contains("may not contain '/'"));
        assert!(wrong("", "a%").contains("metadata.generateName: Invalid value"));
        assert!(wrong("", "").contains("name or generateName is required"));
    }

    #[test]
    fn labels_annotations_finalizers() {
        let insert = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert!(wrong(|m| m.labels = insert("a b", "x")).contains("metadata.labels: Invalid"));
        assert!(wrong(|m| m.labels = insert("a", "x y")).contains("metadata.labels: Invalid"));
        assert_eq!(wrong(|m| m.annotations = insert("X.io/Y", "any thing")), "[]");
        let long = "x".repeat(MAX_ANNOTATIONS_BYTES);
        let error = wrong(|m| m.annotations = insert("a", &long));
        assert!(error.contains("may not be more than 262144 bytes"), "{error}");
        assert!(error.len() < 500, "the annotation itself is not in the error");
        assert!(wrong(|m| m.finalizers = vec!["a b".to_owned()]).contains("finalizers[0]"));
        let both = ["orphan", "foregroundDeletion"].map(str::to_owned).to_vec();
        assert!(wrong(|m| m.finalizers = both).contains("cannot be both set"));
    }

    #[test]
    fn annotations_have_the_bytes_that_upstream_gives() {
        let of = |sizes: &[(&str, usize)]| {
            let pair = |(key, bytes): &(&str, usize)| ((*key).to_owned(), "x".repeat(*bytes));
            wrong(|m| m.annotations = sizes.iter().map(pair).collect())
        };
        for (sizes, fits) in [
            (&[("note", 262_140)][..], true),
            (&[("note", 262_141)], false),
            (&[("a", 131_071), ("b", 131_071)], true),
            (&[("a", 131_071), ("b", 131_072)], false),
        ] {
            assert_eq!(of(sizes) == "[]", fits, "{sizes:?}");
        }
        let kanji = wrong(|m| m.annotations = [("a".to_owned(), "\u{65e5}".repeat(87_382))].into());
        assert!(kanji.contains("Too long"), "bytes count, and not characters: {}", kanji.len());
    }

    #[test]
    fn owners() {
        assert_eq!(wrong(|m| m.owner_references = vec![owner("x")]), "[]");
        for clear in [0, 1, 2, 3] {
            let mut bad = owner("x");
            [&mut bad.api_version, &mut bad.kind, &mut bad.name, &mut bad.uid][clear].clear();
            assert!(wrong(|m| m.owner_references = vec![bad]).contains("ownerReferences[0]."));
        }
        let uid = |bytes| vec![OwnerReference { uid: "u".repeat(bytes), ..owner("x") }];
        assert_eq!(wrong(|m| m.owner_references = uid(128)), "[]");
        let long = wrong(|m| m.owner_references = uid(129));
        assert!(long.contains("ownerReferences[0].uid: Too long"), "{long}");
        let controller = |name| OwnerReference { controller: Some(true), ..owner(name) };
        let two = wrong(|m| m.owner_references = vec![controller("x"), controller("y")]);
        assert!(two.contains("Found \"true\" in references for x and y"), "{two}");
        let mut twice = named();
        twice.owner_references = vec![owner("x"), owner("x"), owner("y")];
        assert_eq!(dedup_owner_references(&mut twice).len(), 1);
        assert_eq!(twice.owner_references.len(), 2);
    }

    #[test]
    fn too_many_owners_are_refused_before_they_are_compared() {
        let mut many = named();
        many.owner_references = vec![owner("x"); MAX_OWNERS + 1];
        assert_eq!(dedup_owner_references(&mut many), Vec::<String>::new());
        assert_eq!(many.owner_references.len(), MAX_OWNERS + 1);
        let errors = validate_create(&many, false, NameRule::Subdomain);
        assert!(errors.to_string().contains("must have at most 128 items"), "{errors}");
    }

    #[test]
    fn of_too_many_entries_only_the_number_is_reported() {
        let long = || (0..2000).map(|i| format!("not valid {i}"));
        let labels = wrong(|m| m.labels = long().map(|key| (key, String::new())).collect());
        assert_eq!(labels, "metadata.labels: Too many: 2000: must have at most 1024 items");
        let finalizers = wrong(|m| m.finalizers = long().collect());
        assert_eq!(finalizers, "metadata.finalizers: Too many: 2000: must have at most 128 items");
    }

    #[test]
    fn managed_fields() {
        let good = ManagedFieldsEntry {
            manager: "m".to_owned(),
            operation: Operation::Update,
            ..ManagedFieldsEntry::default()
        };
        let text = |entry| wrong(|m| m.managed_fields = vec![good.clone(), entry]);
        assert_eq!(text(good.clone()), "[]");
        for (bad, want) in [
            (
                ManagedFieldsEntry { operation: Operation::Unknown, ..good.clone() },
                "operation: Invalid value: must be `Apply` or `Update`",
            ),
            (
                ManagedFieldsEntry { fields_type: "FieldsV2".to_owned(), ..good.clone() },
                "fieldsType: Invalid value: must be `FieldsV1`",
            ),
            (
                ManagedFieldsEntry { manager: "m".repeat(129), ..good.clone() },
                "manager: Too long: may not be more than 128 bytes",
            ),
            (
                ManagedFieldsEntry { manager: "m\n".to_owned(), ..good.clone() },
                "manager: Invalid value: should only contain printable characters",
            ),
            (
                ManagedFieldsEntry { subresource: "s".repeat(257), ..good.clone() },
                "subresource: Too long: may not be more than 256 bytes",
            ),
        ] {
            assert_eq!(text(bad), format!("metadata.managedFields[1].{want}"));
        }
    }

    #[test]
    fn updates() {
        let old = ObjectMeta { finalizers: vec!["x.io/a".to_owned()], ..named() };
        assert!(validate_update(&old, &old).is_empty());
        let renamed = ObjectMeta { name: "b".to_owned(), ..old.clone() };
        let text = validate_update(&renamed, &old).to_string();
        assert!(
            text.starts_with("metadata.name: ") && text.ends_with("field is immutable"),
            "{text}"
        );

        let deleting =
            ObjectMeta { deletion_timestamp: Some(Timestamp::from_unix_seconds(0)), ..old.clone() };
        let added = ObjectMeta {
            finalizers: vec!["x.io/a".to_owned(), "x.io/b".to_owned()],
            ..deleting.clone()
        };
        let text = validate_update(&added, &deleting).to_string();
        assert!(text.contains("found new finalizers [\"x.io/b\"]"), "{text}");
        let fewer = ObjectMeta { finalizers: vec![], ..deleting.clone() };
        assert!(validate_update(&fewer, &deleting).is_empty());
    }
}
