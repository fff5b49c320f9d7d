//! The common part of RoleBindings and ClusterRoleBindings: their fields, defaults, validation and columns, and the
//! subjects to which they give a role.

use std::collections::BTreeMap;

use postern_meta::decode::decode_typed;
use postern_meta::gvk::GroupResource;

use crate::prelude::*;
use crate::rbac::{
    BindingFacts, BoundSubject, Granted, MADE_ROLE_PREFIXES, RBAC_GROUP, RoleRef, SUBJECT_UIDS,
    Subject,
};
use crate::rbac_kinds::is_only_for_garbage_collection;
use crate::schema_rule::IMMUTABLE;

/// The kinds of subjects.
pub(crate) const USER: &str = "User";
pub(crate) const GROUP: &str = "Group";
pub(crate) const SERVICE_ACCOUNT: &str = "ServiceAccount";

/// The most subjects of one binding.
pub(crate) const MAX_SUBJECTS: usize = 2000;

/// The columns of a table of bindings.
pub(crate) const COLUMNS: &[ColumnInfo] = &[
    ColumnInfo::text("Role", "The role of the binding."),
    ColumnInfo::text("Users", "The users that get the role.").wide(),
    ColumnInfo::text("Groups", "The groups that get the role.").wide(),
    ColumnInfo::text("ServiceAccounts", "The service accounts that get the role.").wide(),
];

/// A role, and to whom it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.rbac.v1.BindingFields", extend("required" = ["roleRef"]))]
pub struct Spec {
    /// The role. To change it, delete the binding and create another one.
    #[schemars(extend("x-kubernetes-validations" = IMMUTABLE))]
    pub role_ref: RoleRef,
    /// The subjects that get the role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subjects: Vec<Subject>,
}

/// The fields of a binding.
pub(crate) type Fields = crate::Fields<Spec>;

/// Fills in the API groups that are left out.
pub(crate) fn set_defaults(spec: &mut Spec) {
    if spec.role_ref.api_group.is_empty() {
        RBAC_GROUP.clone_into(&mut spec.role_ref.api_group);
    }
    for subject in &mut spec.subjects {
        if subject.api_group.is_empty() && matches!(subject.kind.as_str(), USER | GROUP) {
            RBAC_GROUP.clone_into(&mut subject.api_group);
        }
    }
}

/// Adds the invalid fields to `errors`. A binding in a namespace can give a Role, too.
pub(crate) fn validate(
    new: &Spec,
    old: Option<&Spec>,
    is_namespaced: bool,
    errors: &mut FieldErrors,
) {
    let role = &new.role_ref;
    errors.check_supported("roleRef.apiGroup", &role.api_group, &[RBAC_GROUP]);
    let role_kinds = if is_namespaced { &["Role", "ClusterRole"][..] } else { &["ClusterRole"] };
    errors.check_supported("roleRef.kind", &role.kind, role_kinds);
    if role.name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        errors.check_value("roleRef.name", &role.name, NameRule::PathSegment.check(&role.name));
    }
    errors.check_count("subjects", new.subjects.len(), MAX_SUBJECTS);
    for (index, subject) in new.subjects.iter().enumerate().take(MAX_SUBJECTS) {
        validate_subject(&format!("subjects[{index}]"), subject, is_namespaced, errors);
    }
    if old.is_some_and(|old| old.role_ref != new.role_ref) {
        let detail = "cannot change roleRef";
        errors.push(FieldError::invalid("roleRef", BadValue::Omitted, detail));
    }
}

fn validate_subject(path: &str, subject: &Subject, is_namespaced: bool, errors: &mut FieldErrors) {
    let Subject { kind, api_group, name, namespace } = subject;
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let group = match kind.as_str() {
        SERVICE_ACCOUNT => "",
        USER | GROUP => RBAC_GROUP,
        _ => {
            let kinds = &[SERVICE_ACCOUNT, USER, GROUP];
            let path = format!("{path}.kind");
            errors.push(FieldError::not_supported(path, kind.as_str(), kinds));
            return;
        }
    };
    if api_group != group {
        let path = format!("{path}.apiGroup");
        errors.push(FieldError::not_supported(path, api_group.as_str(), &[group]));
    }
    if kind == SERVICE_ACCOUNT {
        if !name.is_empty() {
            errors.check(NameRule::Subdomain.check(name), |detail| {
                FieldError::invalid(format!("{path}.name"), name, detail)
            });
        }
        if !is_namespaced && namespace.is_empty() {
            errors.push(FieldError::required(format!("{path}.namespace"), ""));
        }
    }
}

/// Checks that a client binds no role that is made from access rules or members. Such a role is
/// made anew for each object of the name, so the binding would give the role of a later object.
///
/// # Errors
/// 403 for such a role.
pub(crate) fn check_role(
    resource: GroupResource,
    write: &Write<'_, Fields>,
) -> Result<(), ApiError> {
    let role = write.spec().role_ref.name.as_str();
    let is_made = MADE_ROLE_PREFIXES.iter().any(|prefix| role.starts_with(prefix));
    let is_as_before = write.old_spec() == Some(write.spec());
    if !is_made || is_as_before || write.ctx.may_change_servers_own() {
        return Ok(());
    }
    let reason = format!("{role} is generated from access rules or members: change those");
    Err(ApiError::forbidden(resource, &write.new.metadata.name, reason))
}

/// The role that a write gives to others. A binding to anything else than a role gives nothing. It
/// is invalid, which a refusal for want of rights would hide.
pub(crate) fn granted(write: &Write<'_, Fields>) -> Option<Granted> {
    let role = &write.spec().role_ref;
    let is_role = is_cluster_role(&write.new.metadata, role).is_some();
    (is_role && !is_only_for_garbage_collection(write)).then(|| Granted::RoleRef(role.clone()))
}

/// The facts of a binding; `None` if the uids of its subjects cannot be read. The binding then grants nothing.
pub(crate) fn facts(metadata: &ObjectMeta, spec: &Spec) -> Option<BindingFacts> {
    let is_cluster_role = is_cluster_role(metadata, &spec.role_ref)?;
    let uids = subject_uids(metadata)?;
    let bound = |subject| bound_subject(subject, &metadata.namespace, &uids);
    let subjects = spec.subjects.iter().filter_map(bound).collect();
    Some(BindingFacts { is_cluster_role, role: spec.role_ref.name.clone(), subjects })
}

/// Whether the role of a binding is a ClusterRole. `None` for anything else than a role, and for a
/// role that such a binding cannot give.
fn is_cluster_role(binding: &ObjectMeta, role: &RoleRef) -> Option<bool> {
    match (role.api_group.as_str(), role.kind.as_str()) {
        (RBAC_GROUP, "ClusterRole") => Some(true),
        (RBAC_GROUP, "Role") if !binding.namespace.is_empty() => Some(false),
        _ => None,
    }
}

/// The uids of the subjects of a binding that the server has made; none for any other binding,
/// and `None` when they cannot be read.
pub(crate) fn subject_uids(metadata: &ObjectMeta) -> Option<BTreeMap<String, String>> {
    metadata
        .annotations
        .get(SUBJECT_UIDS)
        .map_or(Some(BTreeMap::new()), |text| decode_typed(text.as_bytes()).ok())
}

/// A subject as decisions need it; `None` for one that matches no caller: it is of an unknown kind, or its uid is
/// empty.
fn bound_subject(
    subject: &Subject,
    namespace: &str,
    uids: &BTreeMap<String, String>,
) -> Option<BoundSubject> {
    let name = subject.name.clone();
    if let Some(uid) = uids.get(&name) {
        let is_somebody = subject.kind == GROUP && !uid.is_empty();
        return is_somebody.then(|| BoundSubject::Principal { group: name, uid: uid.clone() });
    }
    match (subject.kind.as_str(), subject.api_group.as_str()) {
        (USER, RBAC_GROUP) => Some(BoundSubject::User(name)),
        (GROUP, RBAC_GROUP) => Some(BoundSubject::Group(name)),
        (SERVICE_ACCOUNT, "") => {
            let own = Some(&subject.namespace).filter(|own| !own.is_empty());
            let namespace = own.map_or(namespace, String::as_str);
            let user = format!("system:serviceaccount:{namespace}:{name}");
            (!namespace.is_empty()).then_some(BoundSubject::User(user))
        }
        _ => None,
    }
}

/// The cells of [`COLUMNS`].
pub(crate) fn cells(spec: &Spec) -> Vec<Cell> {
    let of_kind = |kind: &str| {
        let subjects = spec.subjects.iter().filter(|subject| subject.kind == kind);
        let names = subjects.map(|subject| match subject.namespace.as_str() {
            "" => subject.name.clone(),
            namespace => format!("{namespace}/{}", subject.name),
        });
        Cell::Text(names.collect::<Vec<_>>().join(", "))
    };
    let RoleRef { kind, name, .. } = &spec.role_ref;
    let role = Cell::Text(format!("{kind}/{name}"));
    vec![role, of_kind(USER), of_kind(GROUP), of_kind(SERVICE_ACCOUNT)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Caller, NoPrincipals};

    fn spec(role: Value, subjects: Value) -> Spec {
        let mut spec = Spec {
            role_ref: serde_json::from_value(role).unwrap(),
            subjects: serde_json::from_value(subjects).unwrap(),
        };
        set_defaults(&mut spec);
        spec
    }

    fn role() -> Value {
        json!({ "kind": "ClusterRole", "name": "view" })
    }

    fn granted_by(new: &Draft<Fields>, old: Option<&Draft<Fields>>) -> Option<Granted> {
        let caller = Caller::default();
        let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
        granted(&Write { new, old, ctx: &ctx })
    }

    #[test]
    fn roles_and_subjects_are_validated_in_upstreams_words() {
        let user = |extra: Value| {
            let mut user = json!({ "kind": "User", "name": "ada" });
            user.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!([user])
        };
        let account = |namespace: &str| json!([{ "kind": "ServiceAccount", "name": "ci", "namespace": namespace }]);
        for (role, subjects, is_namespaced, errors) in [
            (role(), user(json!({})), true, ""),
            (role(), account(""), true, ""),
            (role(), account("a"), false, ""),
            (role(), account(""), false, "subjects[0].namespace: Required value"),
            (
                role(),
                user(json!({ "apiGroup": "a" })),
                true,
                "subjects[0].apiGroup: Unsupported value: \"a\": supported values: \
                 \"rbac.authorization.k8s.io\"",
            ),
            (
                role(),
                user(json!({ "kind": "ServiceAccount", "apiGroup": "a" })),
                true,
                "subjects[0].apiGroup: Unsupported value: \"a\": supported values: \"\"",
            ),
            (
                role(),
                user(json!({ "kind": "user" })),
                true,
                "subjects[0].kind: Unsupported value: \"user\": supported values: \
                 \"ServiceAccount\", \"User\", \"Group\"",
            ),
            (role(), user(json!({ "name": "" })), true, "subjects[0].name: Required value"),
            (
                json!({ "kind": "Role", "name": "a" }),
                json!([]),
                false,
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
            (json!({ "kind": "ClusterRole" }), json!([]), true, "roleRef.name: Required value"),
            (
                json!({ "kind": "ClusterRole", "name": "a/b" }),
                json!([]),
                true,
                "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
            ),
            (
                json!({ "kind": "ClusterRole", "name": "a", "apiGroup": "b" }),
                json!([]),
                true,
                "roleRef.apiGroup: Unsupported value: \"b\": supported values: \
                 \"rbac.authorization.k8s.io\"",
            ),
        ] {
            let mut found = FieldErrors::new();
            validate(&spec(role, subjects), None, is_namespaced, &mut found);
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(", "), errors);
        }
    }

    #[test]
    fn the_role_cannot_be_changed() {
        let (old, new) = (
            spec(role(), json!([])),
            spec(json!({ "kind": "ClusterRole", "name": "edit" }), json!([])),
        );
        let mut errors = FieldErrors::new();
        validate(&new, Some(&old), true, &mut errors);
        assert_eq!(errors.to_string(), "roleRef: Invalid value: cannot change roleRef");
    }

    #[test]
    fn subjects_with_a_uid_are_known_by_it_alone_and_unreadable_uids_give_nothing() {
        let subjects = json!([
            { "kind": "Group", "name": "platform:user:ada" },
            { "kind": "Group", "name": "platform:user:gone" },
            { "kind": "Group", "name": "platform:user:*" },
            { "kind": "User", "name": "ada" },
            { "kind": "ServiceAccount", "name": "ci" },
            { "kind": "Other", "name": "ada" },
        ]);
        let spec = spec(role(), subjects);
        let with = |uids: Option<&str>| {
            let annotations = uids.map(|uids| (SUBJECT_UIDS.to_owned(), uids.to_owned()));
            let annotations = annotations.into_iter().collect();
            let namespace = "ns".to_owned();
            facts(&ObjectMeta { annotations, namespace, ..ObjectMeta::default() }, &spec)
        };
        let group = |name: &str| BoundSubject::Group(name.to_owned());
        let user = |name: &str| BoundSubject::User(name.to_owned());
        let all = || group("platform:user:*");
        let others = || [user("ada"), user("system:serviceaccount:ns:ci")];
        let uids = "{\"platform:user:ada\":\"u1\",\"platform:user:gone\":\"\"}";
        let ada = BoundSubject::Principal { group: "platform:user:ada".into(), uid: "u1".into() };
        let found = with(Some(uids)).unwrap();
        assert_eq!((found.is_cluster_role, found.role.as_str()), (true, "view"));
        assert_eq!(found.subjects, [&[ada, all()][..], &others()].concat());
        let by_name = [group("platform:user:ada"), group("platform:user:gone"), all()];
        assert_eq!(with(None).unwrap().subjects, [&by_name[..], &others()].concat());
        for unreadable in ["", "{", "[]", "{\"platform:user:ada\":1}", "null"] {
            assert_eq!(with(Some(unreadable)), None, "{unreadable}");
        }
    }

    #[test]
    fn a_role_without_a_namespace_or_of_another_group_gives_nothing() {
        let in_namespace = |namespace: &str| ObjectMeta {
            namespace: namespace.to_owned(),
            ..ObjectMeta::default()
        };
        let of_role = spec(json!({ "kind": "Role", "name": "a" }), json!([]));
        assert!(!facts(&in_namespace("ns"), &of_role).unwrap().is_cluster_role);
        assert_eq!(facts(&in_namespace(""), &of_role), None);
        let mut foreign = of_role;
        foreign.role_ref.api_group = "other".to_owned();
        assert_eq!(facts(&in_namespace("ns"), &foreign), None);
    }

    #[test]
    fn a_write_gives_the_role_unless_it_is_for_the_garbage_collector() {
        let old =
            Draft { metadata: ObjectMeta::default(), fields: Fields::of(spec(role(), json!([]))) };
        let gives = Some(Granted::RoleRef(old.fields.spec.role_ref.clone()));
        assert_eq!(granted_by(&old, None), gives);
        assert_eq!(granted_by(&old, Some(&old)), None);
        let mut new = old.clone();
        new.metadata.finalizers.push("a/b".to_owned());
        assert_eq!(granted_by(&new, Some(&old)), None);
        new.metadata.labels.insert("a".to_owned(), "b".to_owned());
        assert_eq!(granted_by(&new, Some(&old)), gives);
    }

    /// A binding to anything else than a role was answered 404, as if the kind were not served.
    #[test]
    fn what_is_no_role_is_given_to_nobody_and_is_invalid() {
        let group = RBAC_GROUP;
        for (role, namespace, gives) in [
            (json!({ "kind": "Role", "name": "a" }), "ns", true),
            (json!({ "kind": "ClusterRole", "name": "a", "apiGroup": group }), "ns", true),
            (json!({ "kind": "ClusterRole", "name": "a" }), "", true),
            (json!({ "kind": "Role", "name": "a" }), "", false),
            (json!({ "kind": "role", "name": "a" }), "ns", false),
            (json!({ "kind": "User", "name": "a" }), "ns", false),
            (json!({ "name": "a" }), "ns", false),
            (json!({ "kind": "Role", "name": "a", "apiGroup": "b" }), "ns", false),
            (json!({ "kind": "Role", "name": "a", "apiGroup": "v1" }), "ns", false),
        ] {
            let metadata = ObjectMeta { namespace: namespace.to_owned(), ..ObjectMeta::default() };
            let new = Draft { metadata, fields: Fields::of(spec(role.clone(), json!([]))) };
            let mut errors = FieldErrors::new();
            let is_namespaced = !namespace.is_empty();
            validate(&new.fields.spec, None, is_namespaced, &mut errors);
            assert_eq!(granted_by(&new, None).is_some(), gives, "{role} in {namespace}");
            assert_eq!(errors.is_empty(), gives, "{role} in {namespace}: {errors}");
        }
    }

    #[test]
    fn cells_have_the_role_and_the_subjects_by_kind() {
        let subjects = json!([
            { "kind": "User", "name": "ada" },
            { "kind": "User", "name": "bob" },
            { "kind": "ServiceAccount", "name": "ci", "namespace": "ns" },
        ]);
        let cells = cells(&spec(role(), subjects));
        let texts = ["ClusterRole/view", "ada, bob", "", "ns/ci"];
        assert_eq!(cells, texts.map(|text| Cell::Text(text.to_owned())));
    }
}
