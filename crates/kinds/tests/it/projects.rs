//! Projects and their contents: validation, the rights that writes require, and the dependents of a
//! project.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Known, ada, check_errors, context, errors, object, prepare, required, stored};
use postern_kinds::cluster::Cluster;
use postern_kinds::project::{self, Project};
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::rbac::SUBJECT_UIDS;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{
    AnyKind, Caller, Context, Dependent, Observations, ObservedKey, RequiredRight, Right,
    UniqueKey, grants_of_stored,
};
use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};
use serde_json::{Value, json};

fn member(name: &str, role: &str) -> Value {
    json!({ "kind": "User", "name": name, "clusterRole": role })
}

#[test]
fn projects_are_validated() {
    let many: Vec<_> = (0..501).map(|number| member(&format!("u{number}"), "")).collect();
    let roles: Vec<_> = (0..17).map(|number| member("ada", &format!("r{number}"))).collect();
    for (spec, error) in [
        (json!({}), ""),
        (json!({ "members": [member("ada", ""), { "kind": "Team", "name": "red" }] }), ""),
        (json!({ "members": [member("ada", "a:b")] }), ""),
        (json!({ "members": [member("eve", "")] }), "spec.members[0].name: Not found: \"eve\""),
        (
            json!({ "members": [{ "kind": "Group", "name": "ada" }] }),
            "spec.members[0].kind: Unsupported value: \"Group\": supported values: \"User\", \"Team\"",
        ),
        (json!({ "members": [member("A b", "")] }), "spec.members[0].name: Invalid value: \"A b\""),
        (
            json!({ "members": [member("ada", "a/b")] }),
            "spec.members[0].clusterRole: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            json!({ "members": [member("ada", ""), member("ada", "platform-project-user")] }),
            "spec.members[1]: Duplicate value: \"ada\"",
        ),
        (json!({ "members": many }), "spec.members: Too many: 501: must have at most 500 items"),
        (
            json!({ "members": roles }),
            "spec.members: Invalid value: must have at most 16 different",
        ),
        (json!({ "allowedClusters": [{ "name": "*" }, { "name": "c" }] }), ""),
        (json!({ "allowedClusters": [{ "name": "" }] }), "spec.allowedClusters[0].name: Invalid"),
        (json!({ "quotas": { "project": { "virtualclusterinstances": "10" } } }), ""),
        (json!({ "quotas": { "user": { "spaceinstances": "0", "projectsecrets": "1" } } }), ""),
        (
            json!({ "quotas": { "user": { "spaceinstances": "-1" } } }),
            "spec.quotas.user[spaceinstances]: Invalid value: \"-1\": must be a count",
        ),
        (
            json!({ "quotas": { "project": { "spaceinstances": "" } } }),
            "spec.quotas.project[spacei",
        ),
        (
            json!({ "quotas": { "project": { "pods": "1" } } }),
            "spec.quotas.project: Unsupported value: \"pods\": supported values: ",
        ),
    ] {
        check_errors(&Project, &spec, error);
    }
}

#[test]
fn the_name_of_a_project_is_part_of_the_name_of_its_namespace() {
    let (caller, principals) = (ada(), Known::all());
    for (name, is_valid) in
        [("a", true), (&"a".repeat(61), true), (&"a".repeat(62), false), ("a.b", false)]
    {
        let mut new = object(&Project, name, &json!({}));
        let prepared = Project.prepare(&mut new, None, &context(&caller, &principals)).unwrap();
        assert_eq!(prepared.verdict.unwrap().is_empty(), is_valid, "{name}");
    }
}

#[test]
fn clusters_are_all_allowed_from_the_start_and_none_when_they_are_left_out_later() {
    let (caller, principals) = (ada(), Known::all());
    let spec_of = |old: Option<&Value>, new: &Value| -> project::Spec {
        let old = old.map(|spec| object(&Project, "a", spec));
        let mut new = object(&Project, "a", new);
        Project.prepare(&mut new, old.as_ref(), &context(&caller, &principals)).unwrap();
        serde_json::from_value(new.fields["spec"].clone()).unwrap()
    };
    let one = json!({ "allowedClusters": [{ "name": "c" }] });
    for (old, new, allows_c, allows_d) in [
        (None, &json!({}), true, true),
        (None, &json!({ "allowedClusters": [] }), false, false),
        (None, &one, true, false),
        (Some(&one), &json!({}), false, false),
        (Some(&one), &one, true, false),
    ] {
        let spec = spec_of(old, new);
        assert_eq!((spec.allows_cluster("c"), spec.allows_cluster("d")), (allows_c, allows_d));
    }
    let quotas =
        spec_of(None, &json!({ "quotas": { "project": { "a": "3" }, "user": { "a": "x" } } }));
    assert_eq!((quotas.project_quota("a"), quotas.project_quota("b")), (Some(3), None));
    assert_eq!(quotas.user_quota("a"), Some(0), "what cannot be read allows nothing");
}

/// The rights that a write of a project requires, and the roles that it gives if its writer holds their permissions.
/// The stored project has the owner with this uid.
fn rights_and_roles(
    caller: &Caller,
    old: Option<(&Value, &str)>,
    new: &Value,
) -> (Vec<String>, Vec<String>) {
    let principals = Known::all();
    let owner_uid = old.map(|(_, uid)| uid);
    let old = old.map(|(spec, _)| object(&Project, "a", spec));
    let context = Context { owner_uid, ..context(caller, &principals) };
    let prepared =
        Project.prepare(&mut object(&Project, "a", new), old.as_ref(), &context).unwrap();
    let text = |required: &RequiredRight| {
        let Right { verb, resource, namespace, name, .. } = required.first();
        let as_owner = if required.is_as_owner() { " as owner" } else { "" };
        let namespace =
            if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        format!("{verb} {resource}/{name}{namespace}{as_owner}")
    };
    let roles = prepared.granted_roles.map(|granted| {
        assert_eq!(granted.namespace, "p-a");
        granted.cluster_roles.into_iter().collect()
    });
    (prepared.required_rights.iter().map(text).collect(), roles.unwrap_or_default())
}

/// A caller that could update a project made themselves its admin.
#[test]
fn who_adds_or_raises_members_gives_no_role_that_they_do_not_hold() {
    let of =
        |owner: &str, members: Value| json!({ "owner": { "user": owner }, "members": members });
    let roles = |names: &[&str]| {
        names.iter().map(|name| format!("platform-project-{name}")).collect::<Vec<_>>()
    };
    let ada_as = |role: &str| json!([member("ada", &format!("platform-project-{role}"))]);
    let bind = vec!["bind users/ada".to_owned()];
    let bob = |members| of("bob", members);
    for (old, new, given) in [
        (bob(json!([])), bob(ada_as("admin")), roles(&["admin"])),
        (bob(json!([])), bob(json!([member("ada", "")])), roles(&["user"])),
        (bob(ada_as("viewer")), bob(ada_as("admin")), roles(&["admin"])),
        // Taking the project over at once gives nothing: it belonged to another user.
        (bob(json!([])), of("ada", ada_as("admin")), roles(&["admin"])),
        (
            bob(json!([])),
            bob(json!([member("ada", "cluster-admin")])),
            vec!["cluster-admin".into()],
        ),
    ] {
        let (rights, found) = rights_and_roles(&ada(), Some((&old, "uid-bob")), &new);
        assert!(rights.starts_with(&bind), "{rights:?}");
        assert_eq!(found, given, "{old} -> {new}");
    }
    // Members that stay are not checked again, and removing members requires no right.
    for new in [bob(ada_as("admin")), bob(json!([]))] {
        let old = bob(ada_as("admin"));
        let nothing = (Vec::new(), Vec::new());
        assert_eq!(rights_and_roles(&ada(), Some((&old, "uid-bob")), &new), nothing, "{new}");
    }
}

#[test]
fn the_owner_of_a_project_gives_the_roles_of_members_and_no_others() {
    let of = |owner: Value, members: Value| json!({ "owner": owner, "members": members });
    let members =
        || json!([member("bob", "platform-project-admin"), member("bob", "cluster-admin")]);
    let as_owner = "bind clusterroles/platform-project-admin in p-a as owner".to_owned();
    let bind = || "bind users/bob".to_owned();
    let (admin, other) = ("platform-project-admin".to_owned(), "cluster-admin".to_owned());
    let (user, team) = (json!({ "user": "ada" }), json!({ "team": "red" }));
    for (old_uid, owner, is_owner) in [
        (None, user.clone(), true),
        (None, team.clone(), true),
        // Without one, the caller becomes the owner.
        (None, json!({}), true),
        (None, json!({ "user": "bob" }), false),
        (Some("uid-ada"), user.clone(), true),
        (Some("uid-red"), team, true),
        // A namesake of the owner was the owner.
        (Some("uid-of-another-ada"), user.clone(), false),
        (Some(""), user, false),
    ] {
        let old = of(owner.clone(), json!([]));
        let old = old_uid.map(|uid| (&old, uid));
        let (rights, roles) = rights_and_roles(&ada(), old, &of(owner.clone(), members()));
        let is_given = rights.contains(&as_owner);
        assert_eq!(is_given, is_owner, "{owner} {old_uid:?}: {rights:?}");
        assert!(rights.contains(&bind()), "{rights:?}");
        let expected =
            if is_owner { vec![other.clone()] } else { vec![other.clone(), admin.clone()] };
        assert_eq!(roles, expected, "{owner} {old_uid:?}");
    }
}

#[test]
fn members_must_be_bound() {
    let of = |members: Value| json!({ "owner": { "user": "bob" }, "members": members });
    let bob = of(json!([member("bob", "")]));
    let both =
        of(json!([{ "kind": "Team", "name": "blue" }, member("bob", "platform-project-user")]));
    let viewer = of(json!([member("bob", "platform-project-viewer")]));
    let other = of(json!([member("bob", "view"), member("ada", "view")]));
    let none = of(json!([]));
    for (old, new, rights) in [
        (&none, &bob, vec!["bind users/bob"]),
        (&none, &both, vec!["bind users/bob", "bind teams/blue"]),
        (&both, &viewer, vec!["bind users/bob"]),
        (&both, &none, vec![]),
        (&viewer, &viewer, vec![]),
        (&viewer, &other, vec!["bind users/ada", "bind users/bob"]),
    ] {
        assert_eq!(required(&Project, Some(old), new), rights, "{old} -> {new}");
    }
}

fn dependents(
    spec: &Value,
    previous: &[Object],
    known: &Known,
) -> Result<Vec<Dependent>, ApiError> {
    let caller = ada();
    let context = context(&caller, known);
    let mut project = object(&Project, "one", spec);
    Project.prepare(&mut project, None, &context)?;
    let bound = grants_of_stored(previous, &project.metadata);
    Project.dependents(&project, previous, &Context { bound: &bound, ..context })
}

#[test]
fn a_project_has_its_namespace_a_binding_for_each_role_of_members_and_access_rules() {
    let members =
        json!([member("bob", ""), { "kind": "Team", "name": "blue" }, member("bob", "view")]);
    let access = json!([{ "verbs": ["*"], "subresources": ["*"], "users": ["bob"] }]);
    let spec = json!({ "members": members, "access": access });
    let found = dependents(&spec, &[], &Known::all()).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|one| {
            (one.kind.info().kind, one.namespace.as_deref().unwrap_or_default(), &one.name[..])
        })
        .collect();
    assert_eq!(
        names,
        [
            ("Namespace", "", "p-one"),
            ("RoleBinding", "p-one", "platform:members:platform-project-user"),
            ("RoleBinding", "p-one", "platform:members:view"),
            ("ClusterRole", "", "platform:members:one"),
            ("ClusterRoleBinding", "", "platform:members:one"),
            ("ClusterRole", "", "platform:access:projects:one:0"),
            ("ClusterRoleBinding", "", "platform:access:projects:one:0"),
        ]
    );
    assert_eq!(found[0].labels["platform.sh/project"], "one");
    assert!(found.iter().all(|one| one.owned));
    let uids = "{\"platform:team:blue\":\"uid-blue\",\"platform:user:bob\":\"uid-bob\"}";
    assert_eq!(found[1].annotations[SUBJECT_UIDS], uids);
    let role =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" });
    assert_eq!(found[2].fields["roleRef"], role);
    let of_members =
        json!(["projects", "projects/members", "projects/clusters", "projects/templates"]);
    assert_eq!(found[3].fields["rules"][0]["resources"], of_members);
    assert_eq!(found[3].fields["rules"][0]["resourceNames"], json!(["one"]));
    assert_eq!(found[4].annotations[SUBJECT_UIDS], uids);
    let resources = json!(found[5].fields["rules"][0]["resources"]);
    let actions = ["clusters", "members", "migratevirtualclusterinstance", "status", "templates"];
    let subresources = actions.map(|action| format!("projects/{action}"));
    assert_eq!(resources, json!([&["projects".to_owned()], &subresources[..]].concat()));
}

#[test]
fn members_stay_who_they_were_and_a_namespace_that_is_in_the_way_is_a_conflict() {
    let spec = json!({ "members": [member("bob", "")] });
    let mut later = Known::all();
    later.0.insert("bob", "uid-later");
    let first = dependents(&spec, &[], &Known::all()).unwrap();
    let project = object(&Project, "one", &spec);
    let own = stored(&first, &project, "uid-of-it");
    let bob = |found: &[Dependent]| found[1].annotations[SUBJECT_UIDS].clone();
    let early = "{\"platform:user:bob\":\"uid-bob\"}";
    assert_eq!(bob(&dependents(&spec, &own, &later).unwrap()), early);
    let foreign = stored(&first, &project, "uid-of-another");
    let error = dependents(&spec, &foreign, &later).unwrap_err();
    assert_eq!((error.code(), error.reason()), (409, Reason::AlreadyExists));
    assert!(error.status().message.contains("namespaces \"p-one\""), "{}", error.status().message);
    let bindings = &foreign[1..];
    let late = "{\"platform:user:bob\":\"uid-later\"}";
    assert_eq!(bob(&dependents(&spec, bindings, &later).unwrap()), late);
}

#[test]
fn instances_are_validated() {
    let vci: &dyn AnyKind = &VirtualClusterInstance;
    let space: &dyn AnyKind = &SpaceInstance;
    let whole = json!({ "cluster": "c", "namespace": "n", "virtualCluster": "v" });
    for (kind, spec, error) in [
        (vci, json!({}), ""),
        (vci, json!({ "clusterRef": whole, "config": { "secretName": "s", "key": "k" } }), ""),
        (vci, json!({ "config": { "secretName": "s", "secretNamespace": "p-one" } }), ""),
        (space, json!({ "clusterRef": { "cluster": "c", "namespace": "n" } }), ""),
        (
            vci,
            json!({ "clusterRef": { "cluster": "c", "namespace": "n" } }),
            "spec.clusterRef.virtualCluster: Required value",
        ),
        (
            space,
            json!({ "clusterRef": { "cluster": "c" } }),
            "spec.clusterRef.namespace: Required value",
        ),
        (
            space,
            json!({ "clusterRef": { "cluster": "C", "namespace": "n" } }),
            "spec.clusterRef.cluster: Invalid value: \"C\"",
        ),
        (
            vci,
            json!({ "config": { "secretName": "s", "secretNamespace": "p-two" } }),
            "spec.config.secretNamespace: Invalid value: \"p-two\": must be the instance's own namespace",
        ),
        (vci, json!({ "config": {}, "clusterRef": whole }), ""),
        (vci, json!({ "config": { "key": "k" } }), "spec.config.secretName: Required value"),
        (
            vci,
            json!({ "clusterRef": {} }),
            "spec.clusterRef: Required value: this server does not create virtual clusters; name an existing one in \
             spec.clusterRef",
        ),
        (
            space,
            json!({ "clusterRef": {} }),
            "spec.clusterRef: Required value: this server does not create spaces",
        ),
        (
            vci,
            json!({ "config": { "secretName": "s", "key": "a b" } }),
            "spec.config.key: Invalid value",
        ),
        (
            &Cluster,
            json!({ "config": { "secretName": "s" } }),
            "spec.config.secretNamespace: Required value",
        ),
        (&Cluster, json!({ "config": { "secretName": "s", "secretNamespace": "p-two" } }), ""),
    ] {
        check_errors(kind, &spec, error);
    }
}

#[test]
fn extra_access_rules_are_validated() {
    let vci: &dyn AnyKind = &VirtualClusterInstance;
    for (kind, spec, error) in [
        (vci, json!({ "extraAccessRules": [{ "users": ["bob"] }] }), ""),
        (
            vci,
            json!({ "extraAccessRules": [{ "users": ["bob"], "clusterRole": "loft-cluster-space-admin" }] }),
            "",
        ),
        (
            vci,
            json!({ "extraAccessRules": [{ "users": ["bob"], "clusterRole": "view" }] }),
            "spec.extraAccessRules[0].clusterRole: Invalid value: \"view\": means nothing on this server",
        ),
        (
            vci,
            json!({ "extraAccessRules": [{ "users": ["gone"] }] }),
            "spec.extraAccessRules[0].users[0]: Not found: \"gone\"",
        ),
    ] {
        check_errors(kind, &spec, error);
    }
}

#[test]
fn instances_live_in_projects() {
    let kinds: [&dyn AnyKind; 2] = [&VirtualClusterInstance, &SpaceInstance];
    let (caller, principals) = (ada(), Known::all());
    for kind in kinds {
        for (old, project, is_valid) in [
            (None, Some("one"), true),
            (None, None, false),
            (Some(object(kind, "a", &json!({}))), None, true),
        ] {
            let context =
                Context { project_of_namespace: project, ..context(&caller, &principals) };
            let mut new = object(kind, "a", &json!({}));
            let verdict = kind.prepare(&mut new, old.as_ref(), &context).unwrap().verdict.unwrap();
            assert_eq!(verdict.is_empty(), is_valid, "{kind:?} in {project:?}: {verdict}");
        }
    }
}

#[test]
fn a_place_takes_use_of_its_cluster_and_a_kubeconfig_takes_get_of_its_secret() {
    let at = |cluster: &str, namespace: &str| {
        json!({
            "owner": { "user": "ada" },
            "clusterRef": { "cluster": cluster, "namespace": namespace, "virtualCluster": "v" },
        })
    };
    let with = |secret: &str| json!({ "owner": { "user": "ada" }, "config": { "secretName": secret, "secretNamespace": "p-one" } });
    let vci: &dyn AnyKind = &VirtualClusterInstance;
    for (kind, old, new, rights) in [
        (vci, None, at("c", "n"), vec!["use clusters/c"]),
        (vci, Some(at("c", "n")), at("c", "n"), vec![]),
        (vci, Some(at("c", "n")), at("c", "m"), vec!["use clusters/c"]),
        (vci, Some(at("c", "n")), with("s"), vec!["get p-one/secrets/s"]),
        (vci, Some(with("s")), with("s"), vec![]),
        (vci, Some(with("s")), with("t"), vec!["get p-one/secrets/t"]),
        (&SpaceInstance, None, at("c", "n"), vec!["use clusters/c"]),
        (&Cluster, None, with("s"), vec!["get p-one/secrets/s"]),
        (&Cluster, Some(with("s")), with("s"), vec![]),
    ] {
        assert_eq!(required(kind, old.as_ref(), &new), rights, "{kind:?} {old:?} -> {new}");
    }
}

#[test]
fn a_place_belongs_to_one_instance_and_says_its_cluster() {
    let spec = json!({ "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": "v" } });
    for (kind, key) in [(&VirtualClusterInstance as &dyn AnyKind, "c/n/v"), (&SpaceInstance, "c/n")]
    {
        let with = object(kind, "a", &spec);
        let place = UniqueKey { field: "spec.clusterRef", value: key.to_owned(), is_place: true };
        assert_eq!(kind.unique_keys(&with).unwrap(), [place]);
        assert_eq!(kind.on_cluster(&with).as_deref(), Some("c"));
        let without = object(kind, "a", &json!({}));
        assert_eq!(kind.unique_keys(&without).unwrap(), []);
        assert_eq!(kind.on_cluster(&without), None);
        assert!(kind.info().is_counted_in_quotas);
    }
    let counted = postern_kinds::all().iter().filter(|kind| kind.info().is_counted_in_quotas);
    let counted: Vec<_> = counted.map(|kind| kind.info().plural).collect();
    assert_eq!(counted, project::COUNTED_IN_QUOTAS);
    assert!(ProjectSecret.info().is_counted_in_quotas && !Project.info().is_counted_in_quotas);
}

#[test]
fn what_the_caller_may_do_is_observed_for_those_who_ask_and_never_stored() {
    struct May(bool);
    impl Observations for May {
        fn key(&self, _: &str, _: &str) -> Option<ObservedKey> {
            None
        }
        fn is_extended(&self) -> bool {
            self.0
        }
        fn caller_may(&self, verb: &str) -> bool {
            verb == "use"
        }
    }
    let observe = VirtualClusterInstance.info().observed_status.unwrap();
    let observed = observe("a", "u", &May(true));
    assert_eq!(observed, [("canUpdate", json!(false)), ("canUse", json!(true))]);
    assert!(observe("a", "u", &May(false)).is_empty());
    let mut new = object(&VirtualClusterInstance, "a", &json!({}));
    new.fields.insert("status".to_owned(), json!({ "canUse": true }));
    let (caller, principals) = (ada(), Known::all());
    VirtualClusterInstance.prepare(&mut new, None, &context(&caller, &principals)).unwrap();
    assert_eq!(new.fields["status"], json!({}));
}

#[test]
fn the_data_of_a_project_secret_is_strict_and_it_is_confidential() {
    assert!(ProjectSecret.info().confidential);
    assert_eq!(errors(&ProjectSecret, &json!({ "data": { "a": "aGk=" } })), "");
    assert!(
        errors(&ProjectSecret, &json!({ "data": { "a b": "" } }))
            .starts_with("spec.data[a b]: Invalid")
    );
    let error =
        prepare(&ProjectSecret, None, &json!({ "data": { "a": "hunter2!" } })).verdict.unwrap_err();
    let message = &error.status().message;
    assert_eq!(error.code(), 400);
    assert!(
        message.contains("a ProjectSecret: spec.data[a]: illegal base64")
            && !message.contains("hunter2")
    );
}
