//! Small random policies, scopes and identities, and every question about their small world.

use std::sync::Arc;

use postern_auth::attributes::{Attributes, Request, RequestTarget};
use postern_auth::identity::Identity;
use postern_auth::policy::Policy;
use postern_auth::scope::ScopeRules;
use postern_kinds::GroupResource;
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::scope::{
    RuleVirtualCluster, Scope, ScopeProject, ScopeResources, ScopeRule, ScopeSpace,
    ScopeVirtualCluster,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

pub(crate) const OURS: &str = "management.platform.sh";

pub(crate) const VERBS: [&str; 6] = ["get", "list", "create", "delete", "bind", "getkey"];

/// Kinds, and whether they have namespaces; some have a subresource.
pub(crate) const KINDS: [(&str, &str, bool); 9] = [
    (OURS, "sharedsecrets", true),
    (OURS, "users", false),
    (OURS, "teams", false),
    (OURS, "selves", false),
    (OURS, "ownedaccesskeys", false),
    ("", "namespaces", false),
    ("", "nodes", false),
    (OURS, "spaceinstances", true),
    (OURS, "projects", false),
];

pub(crate) const NAMESPACES: [&str; 4] = ["", "n1", "n2", "n3"];

pub(crate) const NAMES: [&str; 5] = ["", "a", "b", "ada", "red"];

pub(crate) const PATHS: [&str; 4] = ["/a", "/a/b", "/a/b/c", "/x"];

pub(crate) const TARGETS: [RequestTarget<'static>; 8] = [
    RequestTarget::Management,
    RequestTarget::Cluster { cluster: "c1" },
    RequestTarget::Cluster { cluster: "c2" },
    RequestTarget::VirtualCluster { cluster: "c1", namespace: "n1", name: "v1" },
    RequestTarget::VirtualCluster { cluster: "c1", namespace: "n2", name: "v1" },
    RequestTarget::ProjectSpace { project: "p1", space: "a" },
    RequestTarget::ProjectSpace { project: "p2", space: "b" },
    RequestTarget::ProjectVirtualCluster { project: "p1", virtual_cluster: "a" },
];

/// A change of a policy, that owns its texts.
pub(crate) type Change = (Option<String>, String, PolicyChange);

pub(crate) fn policy_of(changes: &[Change]) -> Policy {
    after(&Policy::built_in(), changes)
}

pub(crate) fn after(policy: &Policy, changes: &[Change]) -> Policy {
    let changes: Vec<_> = changes
        .iter()
        .map(|(namespace, name, change)| (namespace.as_deref(), name.as_str(), change.clone()))
        .collect();
    policy.with(&changes)
}

/// Every question about resources in the small world.
pub(crate) fn questions() -> Vec<Attributes<'static>> {
    let mut all = Vec::new();
    for verb in VERBS {
        for (group, resource, _) in KINDS {
            for subresource in ["", "status"] {
                for namespace in NAMESPACES {
                    for name in NAMES {
                        all.push(Attributes::Resource {
                            verb,
                            group,
                            resource,
                            subresource,
                            namespace,
                            name,
                        });
                    }
                }
            }
        }
    }
    for verb in ["get", "create"] {
        all.extend(PATHS.map(|path| Attributes::Path { verb, path }));
        all.push(Attributes::Description { verb, path: "/a" });
    }
    all
}

fn texts(all: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> + Clone {
    let most = most.min(all.len());
    let texts = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    subsequence(all.to_vec(), 0..=most).prop_map(texts)
}

fn text(all: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    select(all.to_vec()).prop_map(str::to_owned)
}

pub(crate) fn rule() -> impl Strategy<Value = PolicyRule> {
    let resources = &[
        "*",
        "sharedsecrets",
        "sharedsecrets/status",
        "users",
        "teams/",
        "*/status",
        "nodes",
        "spaceinstances",
        "projects",
        "users/status",
    ];
    (
        texts(&["get", "list", "create", "*", "bind", "getkey"], 4),
        texts(&[OURS, "", "*"], 2),
        texts(resources, 4),
        prop_oneof![2 => Just(Vec::new()), 1 => texts(&["a", "b", "ada", ""], 2)],
        prop_oneof![2 => Just(Vec::new()), 1 => texts(&["/a", "/a/*", "*", "/a/b*"], 2)],
    )
        .prop_map(|(verbs, api_groups, resources, resource_names, non_resource_urls)| {
            PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls }
        })
}

fn subject() -> impl Strategy<Value = BoundSubject> {
    prop_oneof![
        text(&["ada", "bob"]).prop_map(BoundSubject::User),
        text(&["red", "system:authenticated", "blue"]).prop_map(BoundSubject::Group),
        text(&["u1", "t1", "u2", ""])
            .prop_map(|uid| BoundSubject::Principal { group: "platform:user:ada".to_owned(), uid }),
    ]
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    let place = || proptest::option::of(text(&["n1", "n2"]));
    // More roles than are asked one by one, so that tables are made, too.
    let role = || (0..14u8).prop_map(|number| format!("r{number}"));
    let rules = proptest::collection::vec(rule(), 0..7);
    let binding = (any::<bool>(), role(), proptest::collection::vec(subject(), 0..4)).prop_map(
        |(is_cluster_role, role, subjects)| BindingFacts { is_cluster_role, role, subjects },
    );
    prop_oneof![
        4 => (place(), role(), proptest::option::weighted(0.8, rules))
            .prop_map(|(place, name, rules)| (place, name, PolicyChange::Role(rules))),
        6 => (place(), 0..24u8, proptest::option::weighted(0.8, binding))
            .prop_map(|(place, name, facts)| (place, format!("b{name}"), PolicyChange::Binding(facts))),
        3 => (place(), text(&NAMES[1..]), select(KINDS.to_vec()), proptest::option::weighted(0.8, text(&["u1", "t1", "u2", ""])))
            .prop_map(|(place, name, (group, resource, _), uid)| {
                (place, name, PolicyChange::Owner(GroupResource::new(group, resource), uid))
            }),
        1 => (text(&["n1", "n2", "n3"]), proptest::option::of(text(&["p1", "p2"])))
            .prop_map(|(name, project)| (None, name, PolicyChange::Namespace(project))),
    ]
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    proptest::collection::vec(change(), 0..60)
}

fn scope_rule() -> impl Strategy<Value = ScopeRule> {
    let resources =
        &["*", "sharedsecrets", "users/status", "sharedsecrets/*", "*/status", "nodes", "projects"];
    let element = (
        text(&[OURS, ""]),
        texts(resources, 3),
        prop_oneof![2 => Just(Vec::new()), 1 => texts(&["a", "b", "ada"], 2)],
    )
        .prop_map(|(group, resources, resource_names)| ScopeResources {
            group,
            resources,
            resource_names,
        });
    let some = |texts: BoxedStrategy<Vec<String>>| prop_oneof![2 => Just(Vec::new()), 1 => texts];
    let virtual_cluster = (text(&["", "v1"]), text(&["", "n1", "n2"]))
        .prop_map(|(name, namespace)| RuleVirtualCluster { name, namespace });
    (
        some(texts(&["get", "list", "create", "*"], 3).boxed()),
        proptest::collection::vec(element, 0..3),
        some(texts(&["a", "b"], 2).boxed()),
        some(texts(&["", "n1", "n2"], 2).boxed()),
        prop_oneof![4 => Just(Vec::new()), 1 => texts(&["/a", "/a/*", "/a/b/*"], 2)],
        some(texts(&["Management", "Cluster", "VirtualCluster", "ProjectSpace", "x"], 3).boxed()),
        prop_oneof![4 => Just(String::new()), 1 => text(&["c1", "c2"])],
        prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(virtual_cluster, 0..2)],
    )
        .prop_map(
            |(verbs, resources, names, namespaces, urls, targets, cluster, virtual_clusters)| {
                ScopeRule {
                    verbs,
                    resources,
                    resource_names: names,
                    namespaces,
                    non_resource_urls: urls,
                    request_targets: targets,
                    cluster,
                    virtual_clusters,
                }
            },
        )
}

pub(crate) fn scope() -> impl Strategy<Value = Scope> {
    let project = || text(&["p1", "p2", "*", ""]);
    let name = || text(&["a", "b", "*", ""]);
    let some = |most: usize| 0..=most;
    (
        any::<bool>(),
        proptest::collection::vec(project(), some(1)),
        proptest::collection::vec((project(), name()), some(2)),
        proptest::collection::vec((project(), name()), some(2)),
        proptest::collection::vec(scope_rule(), some(5)),
    )
        .prop_map(|(allow_platform_cli, projects, spaces, clusters, rules)| Scope {
            allow_platform_cli,
            projects: projects.into_iter().map(|project| ScopeProject { project }).collect(),
            spaces: spaces
                .into_iter()
                .map(|(project, space)| ScopeSpace { project, space })
                .collect(),
            virtual_clusters: clusters
                .into_iter()
                .map(|(project, virtual_cluster)| ScopeVirtualCluster { project, virtual_cluster })
                .collect(),
            rules,
        })
}

pub(crate) fn unscoped() -> impl Strategy<Value = Identity> {
    let owned = |text: &str| text.to_owned();
    (any::<bool>(), any::<bool>(), texts(&["red", "blue"], 2), 0..20u8).prop_map(
        move |(is_team, has_uids, mut groups, rare)| {
            groups.push(owned("system:authenticated"));
            if rare == 0 {
                groups.push(owned("system:masters"));
            }
            let uids = if is_team { vec!["t1"] } else { vec!["u1", "t1"] };
            Identity {
                name: owned("ada"),
                uid: owned("u1"),
                groups,
                user: (!is_team).then(|| owned("ada")),
                team: is_team.then(|| owned("red")),
                teams: if is_team { Vec::new() } else { vec![owned("red")] },
                principal_uids: uids.into_iter().filter(|_| has_uids).map(owned).collect(),
                is_impersonated: rare == 1,
                ..Identity::default()
            }
        },
    )
}

pub(crate) fn identity() -> impl Strategy<Value = Identity> {
    let scopes = prop_oneof![
        2 => Just(Vec::new()),
        2 => proptest::collection::vec(scope(), 1),
        1 => proptest::collection::vec(scope(), 2),
    ];
    (unscoped(), scopes).prop_map(|(identity, scopes)| Identity {
        scopes: scopes.iter().map(|scope| Arc::new(ScopeRules::new(scope))).collect(),
        ..identity
    })
}

/// Every request of the small world: each question, at each target.
pub(crate) fn requests() -> Vec<Request<'static>> {
    let at = |target| move |attributes| Request { attributes, target };
    TARGETS.into_iter().flat_map(|target| questions().into_iter().map(at(target))).collect()
}
