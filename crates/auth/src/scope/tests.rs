//! The rules of scopes, line by line of `docs/reference/scopes.md`.

use postern_kinds::scope::{
    RuleVirtualCluster, ScopeProject, ScopeResources, ScopeRule, ScopeSpace, ScopeVirtualCluster,
};

use super::*;

const OURS: &str = MANAGEMENT_V1.group;

const CLUSTER: RequestTarget<'static> = RequestTarget::Cluster { cluster: "c" };
const SPACE: RequestTarget<'static> = RequestTarget::ProjectSpace { project: "p", space: "s" };
const VIRTUAL_CLUSTER: RequestTarget<'static> =
    RequestTarget::VirtualCluster { cluster: "c", namespace: "ns", name: "v" };
const OF_PROJECT: RequestTarget<'static> =
    RequestTarget::ProjectVirtualCluster { project: "p", virtual_cluster: "v" };

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// The namespace `ns-p` is that of the project `p`, and `ns-q` that of `q`.
fn projects() -> Projects {
    let mut projects = Projects::default();
    projects.set("ns-p", Some("p"));
    projects.set("ns-q", Some("q"));
    projects.set("p-r", None);
    projects
}

/// A request `VERB GROUP/RESOURCE[/SUB] NAMESPACE NAME`, `-` for none, or `VERB /PATH`.
fn allows_at(scope: &Scope, target: RequestTarget<'_>, request: &str) -> bool {
    let words: Vec<&str> = request.split(' ').map(|word| word.trim_matches('-')).collect();
    let attributes = match words[..] {
        [verb, path] => Attributes::Path { verb, path },
        [verb, kind, namespace, name] => {
            let (group, resource) = kind.split_once(':').unwrap_or((OURS, kind));
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            Attributes::Resource { verb, group, resource, subresource, namespace, name }
        }
        _ => panic!("{request}"),
    };
    let teams = texts(&["red"]);
    let holder = Holder { user: Some("ada"), team: None, teams: &teams };
    let request = Request { attributes, target };
    ScopeRules::new(scope).allows(&request, &holder, &projects())
}

fn check(scope: &Scope, target: RequestTarget<'_>, allowed: &[&str], denied: &[&str]) {
    for request in allowed {
        assert!(allows_at(scope, target, request), "must be allowed: {request}, {target:?}");
    }
    for request in denied {
        assert!(!allows_at(scope, target, request), "must be denied: {request}, {target:?}");
    }
}

fn rule(rule: ScopeRule) -> Scope {
    Scope { rules: vec![rule], ..Scope::default() }
}

fn on(group: &str, resources: &[&str], names: &[&str]) -> ScopeResources {
    let (resources, resource_names) = (texts(resources), texts(names));
    ScopeResources { group: group.to_owned(), resources, resource_names }
}

#[test]
fn an_empty_scope_allows_nothing() {
    for target in [RequestTarget::Management, CLUSTER, SPACE, VIRTUAL_CLUSTER, OF_PROJECT] {
        check(&Scope::default(), target, &[], &["get projects - p", "list :pods ns-p -", "get /x"]);
    }
}

#[test]
fn a_project_is_itself_to_read_its_subresources_its_namespace_and_its_instances() {
    let scope =
        Scope { projects: vec![ScopeProject { project: "p".to_owned() }], ..Scope::default() };
    let allowed = [
        "get projects - p",
        "list projects - p",
        "watch projects - p",
        "get projects/members - p",
        "create projects/migratevirtualclusterinstance - p",
        "delete projectsecrets ns-p x",
        "list :secrets ns-p -",
        "create rbac.authorization.k8s.io:roles ns-p -",
    ];
    let denied = [
        "list projects - -",
        "update projects - p",
        "delete projects - p",
        "get projects - q",
        "get projects/members - q",
        "get projectsecrets ns-q x",
        "list projectsecrets - -",
        // A namespace belongs to the project that it states, regardless of its name.
        "get projectsecrets p-r x",
        "get example.com:projects - p",
        "get users - ada",
        "get /metrics",
    ];
    check(&scope, RequestTarget::Management, &allowed, &denied);
    check(&scope, SPACE, &["delete :pods any x", "get /healthz"], &[]);
    check(&scope, OF_PROJECT, &["create :pods/exec any x"], &[]);
    let other = RequestTarget::ProjectSpace { project: "q", space: "s" };
    for target in [other, CLUSTER, VIRTUAL_CLUSTER] {
        check(&scope, target, &[], &["get :pods ns-p x"]);
    }
}

#[test]
fn all_projects_are_every_project_and_nothing_outside_of_them() {
    let project = "*".to_owned();
    let scope = Scope { projects: vec![ScopeProject { project }], ..Scope::default() };
    let allowed = ["list projects - -", "get projects - q", "delete projectsecrets ns-q x"];
    let denied = ["create projects - -", "get sharedsecrets platform x", "list sharedsecrets - -"];
    check(&scope, RequestTarget::Management, &allowed, &denied);
    check(&scope, OF_PROJECT, &["get :pods x y"], &[]);
}

#[test]
fn a_space_is_that_instance_to_read_and_to_reach() {
    let space = |space: &str| ScopeSpace { project: "p".to_owned(), space: space.to_owned() };
    let one = Scope { spaces: vec![space("s")], ..Scope::default() };
    let read = ["get spaceinstances ns-p s", "watch spaceinstances ns-p s"];
    let denied = [
        "list spaceinstances ns-p -",
        "update spaceinstances ns-p s",
        "get spaceinstances/status ns-p s",
        "get spaceinstances ns-p t",
        "get spaceinstances ns-q s",
        "get virtualclusterinstances ns-p s",
        "get projects - p",
    ];
    check(&one, RequestTarget::Management, &read, &denied);
    check(&one, SPACE, &["create :pods ns x"], &[]);
    check(&one, RequestTarget::ProjectSpace { project: "p", space: "t" }, &[], &["get :pods ns x"]);
    check(&one, OF_PROJECT, &[], &["get :pods ns x"]);
    let all = Scope { spaces: vec![space("*")], ..Scope::default() };
    check(&all, RequestTarget::Management, &["list spaceinstances ns-p -"], &denied[1..3]);
    check(&all, RequestTarget::ProjectSpace { project: "p", space: "t" }, &["get :pods n x"], &[]);
}

#[test]
fn a_virtual_cluster_is_that_instance_to_read_and_to_reach() {
    let one = ScopeVirtualCluster { project: "p".to_owned(), virtual_cluster: "v".to_owned() };
    let scope = Scope { virtual_clusters: vec![one], ..Scope::default() };
    let denied = ["use virtualclusterinstances ns-p v", "get virtualclusterinstances ns-q v"];
    check(&scope, RequestTarget::Management, &["get virtualclusterinstances ns-p v"], &denied);
    check(&scope, OF_PROJECT, &["delete :nodes - x"], &[]);
    check(&scope, VIRTUAL_CLUSTER, &[], &["delete :nodes - x"]);
    check(&scope, SPACE, &[], &["get :pods ns x"]);
}

#[test]
fn the_command_line_may_look_around_and_never_at_secrets_or_keys() {
    let scope = Scope { allow_platform_cli: true, ..Scope::default() };
    let allowed = [
        "get users - ada",
        "get teams - red",
        "list projects - -",
        "get clusters - c",
        "list virtualclusterinstances - -",
        "list spaceinstances ns-q -",
        "get projects/members - p",
        "get projects/clusters - p",
    ];
    let denied = [
        "get users - bob",
        "get teams - blue",
        "get users/accesskeys - ada",
        "update users - ada",
        "watch projects - -",
        "get projects/status - p",
        "get projectsecrets ns-p x",
        "get sharedsecrets platform x",
        "list ownedaccesskeys - -",
        "get :secrets ns-p x",
    ];
    check(&scope, RequestTarget::Management, &allowed, &denied);
    check(&scope, SPACE, &[], &["get projects - p"]);
}

#[test]
fn all_set_fields_of_a_rule_must_match() {
    let narrow = rule(ScopeRule {
        verbs: texts(&["get", "list"]),
        resources: vec![on(OURS, &["sharedsecrets"], &["a"]), on("", &["pods/*", "*/scale"], &[])],
        namespaces: texts(&["ns"]),
        request_targets: texts(&["Management"]),
        ..ScopeRule::default()
    });
    let allowed = ["get sharedsecrets ns a", "get :pods/log ns x", "list :deployments/scale ns x"];
    let denied = [
        "delete sharedsecrets ns a",
        "get sharedsecrets ns b",
        "list sharedsecrets ns -",
        "get sharedsecrets other a",
        "get sharedsecrets - a",
        "get sharedsecrets/status ns a",
        "get :pods ns x",
        "get /metrics",
    ];
    check(&narrow, RequestTarget::Management, &allowed, &denied);
    check(&narrow, CLUSTER, &[], &allowed);
    let open = rule(ScopeRule::default());
    for target in [RequestTarget::Management, CLUSTER, SPACE, VIRTUAL_CLUSTER, OF_PROJECT] {
        check(&open, target, &["delete :nodes - x", "get /metrics", "list sharedsecrets - -"], &[]);
    }
}

#[test]
fn flat_names_apply_to_all_elements_and_need_resources() {
    let with = |resources| {
        rule(ScopeRule { resources, resource_names: texts(&["a"]), ..ScopeRule::default() })
    };
    let both = with(vec![on("", &["pods"], &[]), on("", &["nodes"], &["a", "b"])]);
    let denied = ["get :pods n b", "get :nodes - b"];
    check(&both, RequestTarget::Management, &["get :pods n a", "get :nodes - a"], &denied);
    check(&with(Vec::new()), RequestTarget::Management, &[], &["get :pods n a", "get /a"]);
}

#[test]
fn no_namespace_is_for_kinds_without_and_never_for_all_namespaces() {
    let scope = rule(ScopeRule { namespaces: texts(&["", "n"]), ..ScopeRule::default() });
    let allowed =
        ["list :nodes - -", "list users - -", "get example.com:things - x", "list :pods n -"];
    let denied = [
        "list sharedsecrets - -",
        "list sharedsecrets - a",
        "get sharedsecrets - a",
        "watch example.com:things - -",
        "deletecollection :pods - -",
        "get /metrics",
    ];
    check(&scope, RequestTarget::Management, &allowed, &denied);
}

#[test]
fn targets_clusters_and_virtual_clusters_of_a_rule() {
    let pods = ["get :pods n x"];
    let only = |target: &str| {
        rule(ScopeRule { request_targets: texts(&[target]), ..ScopeRule::default() })
    };
    let all = [
        ("Management", RequestTarget::Management),
        ("Cluster", CLUSTER),
        ("VirtualCluster", VIRTUAL_CLUSTER),
        ("ProjectSpace", SPACE),
        ("ProjectVirtualCluster", OF_PROJECT),
    ];
    for (name, target) in all {
        for (_, other) in all {
            let is_it = other == target;
            assert_eq!(allows_at(&only(name), other, pods[0]), is_it, "{name} {other:?}");
        }
    }
    check(&only("Elsewhere"), CLUSTER, &[], &pods);
    let cluster =
        |cluster: &str| rule(ScopeRule { cluster: cluster.to_owned(), ..ScopeRule::default() });
    check(&cluster("c"), CLUSTER, &pods, &[]);
    for target in [RequestTarget::Management, VIRTUAL_CLUSTER, SPACE, OF_PROJECT] {
        check(&cluster("c"), target, &[], &pods);
    }
    check(&cluster("d"), CLUSTER, &[], &pods);
    let virtual_cluster = |name: &str, namespace: &str| {
        let one = RuleVirtualCluster { name: name.to_owned(), namespace: namespace.to_owned() };
        rule(ScopeRule { virtual_clusters: vec![one], ..ScopeRule::default() })
    };
    for (name, namespace, is_it) in
        [("v", "ns", true), ("", "", true), ("v", "other", false), ("w", "", false)]
    {
        let scope = virtual_cluster(name, namespace);
        assert_eq!(allows_at(&scope, VIRTUAL_CLUSTER, pods[0]), is_it, "{name} {namespace}");
        check(&scope, OF_PROJECT, &[], &pods);
        check(&scope, RequestTarget::Management, &[], &pods);
    }
}

#[test]
fn paths_of_a_rule() {
    let of =
        |urls: &[&str]| rule(ScopeRule { non_resource_urls: texts(urls), ..ScopeRule::default() });
    let scope = of(&["/metrics", "/logs/*", "/a*", "/*/x"]);
    let denied = ["get /metrics/x", "get /logs", "get /ab", "get /b/x", "get :pods n x"];
    check(&scope, RequestTarget::Management, &["get /metrics", "get /logs/a/b"], &denied);
}

#[test]
fn containment_accepts_what_is_narrower_and_names_what_is_not() {
    let project = |name: &str| ScopeProject { project: name.to_owned() };
    let parent = Scope {
        projects: vec![project("p")],
        rules: vec![ScopeRule {
            verbs: texts(&["get", "list"]),
            resources: vec![on("", &["pods", "pods/*"], &[])],
            ..ScopeRule::default()
        }],
        ..Scope::default()
    };
    let of_rule = |verbs: &[&str], resources: &[&str], namespaces: &[&str], targets: &[&str]| {
        rule(ScopeRule {
            verbs: texts(verbs),
            resources: vec![on("", resources, &[])],
            namespaces: texts(namespaces),
            request_targets: texts(targets),
            ..ScopeRule::default()
        })
    };
    let space = |project: &str| Scope {
        spaces: vec![ScopeSpace { project: project.to_owned(), space: "*".to_owned() }],
        ..Scope::default()
    };
    let one = Scope { projects: vec![project("q")], ..Scope::default() };
    let cli = Scope { allow_platform_cli: true, ..Scope::default() };
    for (child, refused) in [
        (Scope::default(), None),
        (parent.clone(), None),
        (space("p"), None),
        (of_rule(&["get"], &["pods", "pods/log"], &["n"], &["Cluster"]), None),
        (of_rule(&[], &[], &["ns-p"], &["Management"]), None),
        (space("q"), Some("spaces[0]")),
        (one, Some("projects[0]")),
        (cli, Some("allowPlatformCli")),
        (of_rule(&[], &["pods"], &[], &[]), Some("rules[0]")),
        (of_rule(&["get"], &["*"], &[], &[]), Some("rules[0]")),
        (of_rule(&[], &[], &["ns-p"], &[]), Some("rules[0]")),
        (of_rule(&[], &[], &["p-r"], &["Management"]), Some("rules[0]")),
        (rule(ScopeRule::default()), Some("rules[0]")),
    ] {
        let parents = [std::sync::Arc::new(ScopeRules::new(&parent))];
        let answer = contains(&parents, &child, &projects());
        let names = answer.err().map(|text| text.split(' ').next().map(str::to_owned));
        assert_eq!(names, refused.map(|entry| Some(entry.to_owned())), "{child:?}");
    }
    let open = [std::sync::Arc::new(ScopeRules::new(&rule(ScopeRule::default())))];
    assert!(contains(&open, &parent, &projects()).is_ok());
    assert!(contains(&[], &rule(ScopeRule::default()), &projects()).is_ok());
}
