//! The table of the request targets: the callers that reach a cluster, a space and a virtual
//! cluster with each request. Each request goes through the gateway and to an agent. Behind both is
//! a cluster of the test itself, so that each cell shows only Postern's decision.

use std::fmt::Write as _;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, endpoint_token_if_any, make, make_kubeconfig};
use postern_tests::rights::{allow, path, rule_on, set};
use postern_tests::{Agent, AgentSetup, Home, Server, Setup, wait};
use serde_json::{Value, json};

use crate::gateway::recording::Recording;
use crate::matrix::golden;

const LEGEND: &str = "\
Made by the test `matrix` from a running server and an agent; each cell is what both answered. Do not edit it by
hand.

| cell | means |
|---|---|
| yes | the request gets to the target |
| denied | it is an access review, and is answered with no without the target |
| 400, 401, 403, 404 | the status code of a refusal; nothing gets to the target |
| X, agent Y | the gateway says X and the agent Y |
| X, no token | the gateway says X; no token is made for such a key, so there is nothing to go to an agent with |

The columns *gateway* and *agent* of each of those who ask are one cell where they agree. An agent does not serve
virtual clusters by their place.
";

/// The namespace in the cluster that the space and the virtual cluster are in.
const OWN: &str = "inner";

/// The cell of a request that is let through, to a target without a way there.
const NO_WAY: &str = "no way";

/// The targets: words, the path at the gateway, and that at the agent.
const TARGETS: [(&str, &str, Option<&str>); 4] = [
    ("Cluster", "/kubernetes/cluster/east", Some("/kubernetes/cluster")),
    ("ProjectSpace", SPACE, Some(SPACE)),
    ("ProjectVirtualCluster", INSTANCE, Some(INSTANCE)),
    ("VirtualCluster", "/kubernetes/virtualcluster/east/inner/v", None),
];
const SPACE: &str = "/kubernetes/project/alpha/space/near";
const INSTANCE: &str = "/kubernetes/project/alpha/virtualcluster/v";

/// The requests: words, method, path at the target, and whether it is an upgrade.
const REQUESTS: [(&str, &str, &str, bool); 17] = [
    ("get a pod", "GET", "/api/v1/namespaces/inner/pods/noupgrade", false),
    ("list pods", "GET", "/api/v1/namespaces/inner/pods", false),
    ("watch pods", "GET", "/api/v1/namespaces/inner/pods?watch=1", false),
    ("create a pod", "POST", "/api/v1/namespaces/inner/pods", false),
    ("delete a pod", "DELETE", "/api/v1/namespaces/inner/pods/noupgrade", false),
    ("exec by WebSocket", "GET", "/api/v1/namespaces/inner/pods/noupgrade/exec", true),
    ("exec without an upgrade", "GET", "/api/v1/namespaces/inner/pods/noupgrade/exec", false),
    ("get a secret", "GET", "/api/v1/namespaces/inner/secrets/x", false),
    ("get a pod elsewhere", "GET", "/api/v1/namespaces/other/pods/x", false),
    ("list pods everywhere", "GET", "/api/v1/pods", false),
    ("get the namespace", "GET", "/api/v1/namespaces/inner", false),
    ("list namespaces", "GET", "/api/v1/namespaces", false),
    ("list nodes", "GET", "/api/v1/nodes", false),
    ("read the version", "GET", "/version", false),
    ("read metrics", "GET", "/metrics", false),
    ("ask for access elsewhere", "POST", REVIEWS, false),
    ("climb out by dots", "GET", "/api/v1/namespaces/inner/../other/pods", false),
];
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A caller: the head of the column, words for the legend, and the spec of the access key.
type Who = (&'static str, &'static str, Value);

fn who_asks() -> Vec<Who> {
    let user = |name| json!({ "user": name });
    let mut all = people();
    all.extend(scoped_to_projects());
    all.extend(scoped_by_rules());
    all.push((
        "disabled",
        "a key of the administrator that was disabled after its token was made",
        user("admin"),
    ));
    all.push((
        "blocked",
        "a key of a user who was disabled after its token was made",
        user("blocked"),
    ));
    all
}

fn people() -> Vec<Who> {
    let user = |name| json!({ "user": name });
    vec![
        ("admin", "the administrator", user("admin")),
        (
            "user",
            "a user who holds `use` on the cluster, the space and the virtual cluster",
            user("uses"),
        ),
        (
            "worker",
            "a member of the project `alpha` with the role platform-project-user",
            user("worker"),
        ),
        ("viewer", "a user with the ClusterRole platform-viewer", user("viewer")),
        ("other", "a user who has been given nothing", user("other")),
        ("team", "a key of a team that holds `use` on the cluster", json!({ "team": "red" })),
    ]
}

/// The spec of a key of the administrator with every right, so its scope alone decides.
fn of_admin(scope: &Value) -> Value {
    json!({ "user": "admin", "scope": scope })
}

fn scoped_to_projects() -> Vec<Who> {
    let near = json!({ "spaces": [{ "project": "alpha", "space": "near" }] });
    let instance = json!({ "virtualClusters": [{ "project": "alpha", "virtualCluster": "v" }] });
    vec![
        ("empty", "a key of the administrator with an empty scope", of_admin(&json!({}))),
        (
            "project",
            "the same with the scope: project `alpha`",
            of_admin(&json!({ "projects": [{ "project": "alpha" }] })),
        ),
        ("space", "the same with the scope: space `near` of `alpha`", of_admin(&near)),
        (
            "instance",
            "the same with the scope: virtual cluster `v` of `alpha`",
            of_admin(&instance),
        ),
        (
            "worker in space",
            "a key of `worker` with the scope: space `near` of `alpha`",
            json!({ "user": "worker", "scope": near }),
        ),
        (
            "cli",
            "a key of the administrator with allowPlatformCli",
            of_admin(&json!({ "allowPlatformCli": true })),
        ),
    ]
}

fn scoped_by_rules() -> Vec<Who> {
    let rule = |rule: Value| of_admin(&json!({ "rules": [rule] }));
    let pods = json!([{ "group": "", "resources": ["pods"] }]);
    vec![
        (
            "read",
            "the same with a rule: get, list and watch",
            rule(json!({ "verbs": ["get", "list", "watch"] })),
        ),
        (
            "pods",
            "the same with a rule: pods, without their subresources",
            rule(json!({ "resources": pods })),
        ),
        (
            "namespace",
            "the same with a rule: the namespace `inner`",
            rule(json!({ "namespaces": ["inner"] })),
        ),
        (
            "urls",
            "the same with a rule: the path `/metrics`",
            rule(json!({ "nonResourceURLs": ["/metrics"] })),
        ),
        ("east", "the same with a rule: the cluster `east`", rule(json!({ "cluster": "east" }))),
        ("west", "the same with a rule: the cluster `west`", rule(json!({ "cluster": "west" }))),
        (
            "management",
            "the same with a rule: the target Management",
            rule(json!({ "requestTargets": ["Management"] })),
        ),
        (
            "to spaces",
            "the same with a rule: the target ProjectSpace",
            rule(json!({ "requestTargets": ["ProjectSpace"] })),
        ),
    ]
}

/// A caller, with its client for the gateway, and its client for the agent if there is a token for
/// it.
struct Asking {
    code: &'static str,
    words: &'static str,
    gateway: Client,
    agent: Option<Client>,
}

/// Sends a request, and returns the text of its cell.
async fn ask(
    client: &Client,
    at: &str,
    asked: &(&str, &str, &str, bool),
    of: &Recording,
) -> String {
    let (_, method, path, is_upgrade) = *asked;
    drop(of.take());
    let path = format!("{at}{path}");
    let mut request = client.request(method, &path);
    if is_upgrade {
        request = request.header("connection", "Upgrade").header("upgrade", "websocket");
    }
    if method == "POST" {
        request = request.json(&review());
    }
    match request.send().await.status {
        _ if !of.take().is_empty() => "yes".to_owned(),
        503 => NO_WAY.to_owned(),
        201 => "denied".to_owned(),
        status => status.to_string(),
    }
}

fn review() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "get", "resource": "pods", "namespace": "other" } },
    })
}

/// A central server and an agent, with one cluster behind both.
struct Scene {
    server: Server,
    recording: Recording,
    agent: Agent,
}

impl Scene {
    async fn new(home: &Home) -> Self {
        let recording = Recording::start().await;
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let server = setup.argument("--external-url=https://postern.test").start().await;
        let admin = server.client();
        for name in ["uses", "worker", "viewer", "other", "blocked"] {
            make(&admin, "users", name, json!({})).await;
        }
        make(&admin, "teams", "red", json!({})).await;
        make(&admin, "clusters", "west", json!({})).await;
        let by_cli =
            CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
        make_kubeconfig(&admin, "platform", "kc", &recording.kubeconfig()).await;
        let create = ["create", "cluster", "east", "--kubeconfig-secret", "platform/kc"];
        let key = by_cli.ok(&create).await;
        by_cli.ok(&["create", "project", "alpha", "--member", "user/worker"]).await;
        by_cli.ok(&["share", "cluster", "east", "--user", "uses", "--team", "red"]).await;
        make_kubeconfig(&admin, "p-alpha", "kc", &recording.kubeconfig()).await;
        make_instances(&admin).await;
        let viewer = json!({
            "metadata": { "name": "viewer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "platform-viewer" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer" }],
        });
        let bindings = postern_tests::rights::rbac(None, "rolebinding");
        admin.post(&bindings).json(&viewer).send().await.expect(201);
        let upstream = home.path().join("upstream");
        std::fs::write(&upstream, recording.kubeconfig()).unwrap();
        let agent = AgentSetup::new(home, server.kubeconfig(), "east", key.trim(), &upstream);
        Self { agent: agent.start().await, server, recording }
    }

    /// Makes the keys and their tokens, and then disables some of them.
    async fn all_who_ask(&self) -> Vec<Asking> {
        let admin = self.server.client();
        let mut all = Vec::new();
        for (code, words, spec) in who_asks() {
            let name = format!("key-{}", code.replace(' ', "-"));
            let key = make(&admin, "ownedaccesskeys", &name, spec).await;
            let client = admin.with_token(key["spec"]["key"].as_str().unwrap());
            let token = endpoint_token_if_any(&client, json!({})).await;
            let agent = token.map(|token| self.agent.client(&token));
            all.push(Asking { code, words, gateway: client, agent });
        }
        let disabled = json!({ "disabled": true });
        set(&admin, &path("ownedaccesskeys", "key-disabled"), disabled.clone()).await;
        set(&admin, &path("users", "blocked"), disabled).await;
        for asking in &mut all {
            if ["disabled", "blocked"].contains(&asking.code) {
                let way = asking.agent.as_mut().expect("it has a token");
                wait::until("the agent to hear of it", async || {
                    let version = REQUESTS.iter().find(|asked| asked.2 == "/version").unwrap();
                    let cell = ask(way, "/kubernetes/cluster", version, &self.recording).await;
                    (cell == "401").then_some(())
                })
                .await;
            }
        }
        all
    }
}

/// Makes the space `near` and the virtual cluster `v`, which the user `uses` may use.
async fn make_instances(admin: &Client) {
    let at = json!({ "cluster": "east", "namespace": OWN });
    let space = json!({ "metadata": { "name": "near" }, "spec": { "clusterRef": at } });
    let at = json!({ "cluster": "east", "namespace": OWN, "virtualCluster": "v" });
    let spec = json!({ "clusterRef": at, "config": { "secretName": "kc" } });
    let instance = json!({ "metadata": { "name": "v" }, "spec": spec });
    for (resource, object) in [("spaceinstances", space), ("virtualclusterinstances", instance)] {
        let all = format!("{GROUP}/namespaces/p-alpha/{resource}");
        admin.post(&all).json(&object).send().await.expect(201);
        let name = object["metadata"]["name"].as_str().unwrap();
        let rules = json!([rule_on(resource, &[name], &["use"])]);
        let role = format!("use-{name}");
        allow(admin, &role, Some("p-alpha"), rules, "platform:user:uses").await;
    }
}

/// The cell of a caller.
async fn cell(
    asking: &mut Asking,
    (at_gateway, at_agent): (&str, Option<&str>),
    asked: &(&str, &str, &str, bool),
    of: &Recording,
) -> String {
    let gateway = ask(&asking.gateway, at_gateway, asked, of).await;
    let Some(at_agent) = at_agent else { return gateway };
    let Some(way) = &asking.agent else { return format!("{gateway}, no token") };
    let agent = ask(way, at_agent, asked, of).await;
    // An agent decides before it looks for the way. The virtual cluster here is reached by its own kubeconfig.
    let is_let_through = agent == NO_WAY && ["yes", "denied"].contains(&gateway.as_str());
    if agent == gateway || is_let_through { gateway } else { format!("{gateway}, agent {agent}") }
}

#[tokio::test]
async fn request_targets() {
    let home = Home::new();
    let scene = Scene::new(&home).await;
    let mut all = scene.all_who_ask().await;
    let mut text = format!(
        "# Who gets where: request targets, through the gateway and at an agent\n\n{LEGEND}\n"
    );
    text.push_str("| who | is |\n|---|---|\n");
    for asking in &all {
        writeln!(text, "| {} | {} |", asking.code, asking.words).unwrap();
    }
    for (words, at_gateway, at_agent) in TARGETS {
        let heads: Vec<_> = all.iter().map(|asking| asking.code).collect();
        let line = "---|".repeat(heads.len() + 2);
        let heads = heads.join(" | ");
        write!(text, "\n## {words}: `{at_gateway}`\n\n| request | is | {heads} |\n|{line}\n")
            .unwrap();
        for asked in &REQUESTS {
            let mut cells = Vec::new();
            for asking in &mut all {
                let at = (at_gateway, at_agent);
                cells.push(cell(asking, at, asked, &scene.recording).await);
            }
            let (what, method, path, is_upgrade) = asked;
            let upgrade = if *is_upgrade { ", upgrade" } else { "" };
            let cells = cells.join(" | ");
            writeln!(text, "| {what} | `{method} {path}`{upgrade} | {cells} |").unwrap();
        }
    }
    let tables = text.split_once("\n## ").map_or("", |(_, tables)| tables);
    for cell in tables.split('|').filter(|cell| cell.contains(", agent ")) {
        // A token for another cluster is none at this one, and that comes before the decision.
        assert!(cell.ends_with("agent 401 "), "both decide alike, and not {cell}:\n{text}");
    }
    golden::check("targets", &text);
    scene.agent.stop().await;
}
