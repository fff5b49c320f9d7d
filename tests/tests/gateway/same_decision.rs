//! For the same token and the same request, the gateway and an agent decide alike: random scopes, requests
//! and tricks with paths. An allowed request is the same at the cluster, which is one of the test's own.

use postern_tests::cli::CliUser;
use postern_tests::http::{Client, Request};
use postern_tests::objects::{collection, endpoint_token_if_any, make, make_kubeconfig};
use postern_tests::rights::{allow, rule_on, user};
use postern_tests::{Agent, AgentSetup, Home, Random, Server, Setup};
use serde_json::{Value, json};

use crate::gateway::recording::Recording;
use crate::gateway::scene::make_space;

/// How many requests there are for each scope.
const REQUESTS: usize = 30;

/// How many scopes there are.
fn wanted_scopes() -> usize {
    let text = std::env::var("POSTERN_TEST_DECISION_SCOPES").unwrap_or_else(|_| "40".to_owned());
    text.parse().expect("POSTERN_TEST_DECISION_SCOPES is a number")
}

/// The targets: at the gateway, and at the agent.
const TARGETS: [(&str, &str); 4] = [
    ("/kubernetes/cluster/member", "/kubernetes/cluster"),
    ("/kubernetes/project/p/space/s", "/kubernetes/project/p/space/s"),
    ("/kubernetes/project/p/space/none", "/kubernetes/project/p/space/none"),
    ("/kubernetes/project/q/space/s", "/kubernetes/project/q/space/s"),
];

/// A central server and an agent, with the same cluster behind both.
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
        make_kubeconfig(&admin, "platform", "kc", &recording.kubeconfig()).await;
        let by_cli =
            CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
        let create = ["create", "cluster", "member", "--kubeconfig-secret", "platform/kc"];
        let key = by_cli.ok(&create).await;
        for name in ["ada", "bob", "eve"] {
            drop(user(&admin, name).await);
        }
        let rules = json!([rule_on("clusters", &["member"], &["use"])]);
        allow(&admin, "use-member", None, rules, "platform:user:ada").await;
        make_space(&admin).await;
        let rules = json!([rule_on("spaceinstances", &["s"], &["use"])]);
        allow(&admin, "bob-uses-space", Some("p-p"), rules, "platform:user:bob").await;
        make(&admin, "projects", "q", json!({})).await;
        let upstream = home.path().join("upstream");
        std::fs::write(&upstream, recording.kubeconfig()).unwrap();
        let agent = AgentSetup::new(home, server.kubeconfig(), "member", key.trim(), &upstream);
        Self { agent: agent.start().await, server, recording }
    }

    /// Makes an access key, and a token with its scope. `None` for a scope that is invalid, or that reaches no
    /// cluster, for which there is no token.
    async fn asking(&self, user: &str, scope: Option<&Value>) -> Option<[Client; 2]> {
        let mut spec = json!({ "user": user });
        if let Some(scope) = scope {
            spec["scope"] = scope.clone();
        }
        let admin = self.server.client();
        let keys = collection("ownedaccesskeys");
        let made = admin.post(&keys).json(&json!({ "spec": spec })).send().await;
        if made.status == 422 {
            return None;
        }
        let made = made.expect(201);
        let client = admin.with_token(made["spec"]["key"].as_str().unwrap());
        let token = endpoint_token_if_any(&client, json!({})).await?;
        Some([client, self.agent.client(&token)])
    }
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The request as it arrived at the cluster, if it did.
    arrived: Option<String>,
    status: u16,
    /// The reason of a refusal.
    reason: String,
    /// The response to an access review, if it comes without the cluster.
    review: Value,
}

impl Outcome {
    async fn of(client: &Client, asked: &Asked, prefix: &str, recording: &Recording) -> Self {
        drop(recording.take());
        let path = format!("{prefix}{}", asked.path);
        let reply = asked.request(client, &path).send().await;
        let arrived = recording.take().pop().map(|one| one.line);
        let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let is_ours = arrived.is_none();
        let is_review = said["kind"] == "SelfSubjectAccessReview";
        Self {
            status: reply.status,
            reason: said["reason"].as_str().filter(|_| is_ours).unwrap_or_default().to_owned(),
            review: if is_ours && is_review { said["status"].clone() } else { Value::Null },
            arrived,
        }
    }
}

/// A request to a target.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    /// At the target, with the query.
    path: String,
    is_upgrade: bool,
    body: Value,
}

impl Asked {
    fn request<'a>(&self, client: &'a Client, path: &str) -> Request<'a> {
        let mut request = client.request(self.method, path);
        if self.is_upgrade {
            request = request.header("connection", "Upgrade").header("upgrade", "websocket");
        }
        if ["POST", "PUT", "PATCH"].contains(&self.method) {
            request = request.json(&self.body);
        }
        request
    }
}

/// Draws scopes and requests.
struct Draw(Random);

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.0.below(all.len() as u64);
        all[usize::try_from(at).unwrap()]
    }

    fn in_one_of(&mut self, times: u64) -> bool {
        self.0.below(times) == 0
    }

    fn some_of(&mut self, all: &[&str]) -> Vec<String> {
        let drawn = all.iter().filter(|_| self.0.below(2) == 0);
        drawn.map(|text| (*text).to_owned()).collect()
    }

    /// Draws the caller: mostly ada, with every right; bob may use the space, and eve nothing.
    fn user(&mut self) -> &'static str {
        self.one_of(&["ada", "ada", "ada", "bob", "eve"])
    }

    /// A target, mostly an existing one.
    fn target(&mut self) -> (&'static str, &'static str) {
        let [cluster, space, absent, other] = TARGETS;
        self.one_of(&[cluster, cluster, cluster, space, space, absent, other])
    }

    /// The scope of a key; `None` for a key without one.
    fn scope(&mut self) -> Option<Value> {
        if self.in_one_of(6) {
            return None;
        }
        let mut scope = json!({});
        if self.in_one_of(4) {
            scope["projects"] = json!([{ "project": self.one_of(&["p", "q", "*"]) }]);
        }
        if self.in_one_of(3) {
            let space = self.one_of(&["s", "none", "*"]);
            scope["spaces"] = json!([{ "project": self.one_of(&["p", "q"]), "space": space }]);
        }
        if self.in_one_of(8) {
            scope["allowPlatformCli"] = json!(true);
        }
        let rules: Vec<Value> = (0..self.0.below(3)).map(|_| self.rule()).collect();
        if !rules.is_empty() {
            scope["rules"] = json!(rules);
        }
        Some(scope)
    }

    fn rule(&mut self) -> Value {
        let mut rule = json!({});
        if self.in_one_of(4) {
            rule["verbs"] =
                json!(self.some_of(&["get", "list", "watch", "create", "update", "delete", "*"]));
        }
        if self.in_one_of(3) {
            let group = self.one_of(&["", "apps", "management.platform.sh", "*"]);
            let resources =
                self.some_of(&["pods", "pods/exec", "pods/*", "secrets", "deployments", "*"]);
            let mut of = json!({ "group": group, "resources": resources });
            if self.in_one_of(3) {
                of["resourceNames"] = json!([self.one_of(&["x", "y"])]);
            }
            rule["resources"] = json!([of]);
        } else if self.in_one_of(8) {
            let paths = ["/metrics", "/logs/*", "/apis", "*"];
            rule["nonResourceURLs"] = json!([self.one_of(&paths)]);
        }
        if self.in_one_of(3) {
            rule["namespaces"] = json!(self.some_of(&["platform", "other", ""]));
        }
        if self.in_one_of(3) {
            let targets = ["Cluster", "ProjectSpace", "Management", "ProjectVirtualCluster"];
            rule["requestTargets"] = json!(self.some_of(&targets));
        }
        if self.in_one_of(2) {
            rule["cluster"] = json!("member");
        }
        rule
    }

    fn request(&mut self) -> Asked {
        if self.in_one_of(8) {
            return self.review();
        }
        let methods =
            ["GET", "GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let mut path = self.path();
        if self.in_one_of(6) {
            path = self.tricked(&path);
        }
        let queries = [
            "",
            "",
            "",
            "?watch=1",
            "?watch=true&fieldSelector=metadata.name%3Dx",
            "?fieldSelector=metadata.namespace%3Dplatform",
            "?watch=1&watch=0",
            "?limit=5&resourceVersion=0",
            "?command=sh&stdin=true",
        ];
        path.push_str(self.one_of(&queries));
        let (method, is_upgrade) = (self.one_of(&methods), self.in_one_of(6));
        Asked { method, path, is_upgrade, body: json!({}) }
    }

    fn path(&mut self) -> String {
        let plain = [
            "",
            "/",
            "/version",
            "/metrics",
            "/healthz",
            "/api",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/openapi/v2",
            "/openapi/v3",
            "/logs/x",
            "/api/v1",
            "/api/v1/watch/namespaces/platform/pods",
            "/api/v1/proxy/namespaces/platform/pods/x",
            "/api/v1/namespaces/platform",
            "/api/v1/namespaces/platform/finalize",
        ];
        if self.in_one_of(3) {
            return self.one_of(&plain).to_owned();
        }
        let root = self.one_of(&["/api/v1", "/apis/apps/v1", "/apis/management.platform.sh/v1"]);
        let namespace = self.one_of(&["", "/namespaces/platform", "/namespaces/other"]);
        let resources = ["pods", "secrets", "deployments", "nodes", "namespaces", "sharedsecrets"];
        let mut path = format!("{root}{namespace}/{}", self.one_of(&resources));
        // A cluster of the test's own switches to no other protocol where this is in the path.
        let name = self.one_of(&["", "/x", "/x", "/noupgrade", "/noupgrade"]);
        path.push_str(name);
        if !name.is_empty() {
            let all = ["", "", "/log", "/exec", "/attach", "/portforward", "/proxy/a/b", "/status"];
            path.push_str(self.one_of(&all));
        }
        path
    }

    /// A path that two readers could read in two ways.
    fn tricked(&mut self, path: &str) -> String {
        let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).collect();
        if slashes.is_empty() {
            return "/..".to_owned();
        }
        let at = self.one_of(&slashes);
        let (before, after) = (&path[..at], &path[at + 1..]);
        let tricks = [
            "//", "/%2f", "%2f", "%2F", "/./", "/../", "/%2e%2e/", "/.%2e/", "%252f", "/;a=b/",
            ";/", "/%70", "/%00", "/%", "/a/../", "/..;/", "/%c0%ae/", "/+/",
        ];
        if self.in_one_of(5) {
            return format!("{path}/");
        }
        let trick = self.one_of(&tricks);
        // The part before the first slash is the target, which has another name at an agent.
        let start = if trick.starts_with('/') || at > 0 { "" } else { "/" };
        format!("{before}{start}{trick}{after}")
    }

    fn review(&mut self) -> Asked {
        let attributes = json!({
            "verb": self.one_of(&["get", "list", "create", "delete"]),
            "group": self.one_of(&["", "apps"]),
            "resource": self.one_of(&["pods", "secrets", "deployments"]),
            "namespace": self.one_of(&["platform", "other", ""]),
            "name": self.one_of(&["", "x"]),
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        Asked { method: "POST", path, is_upgrade: false, body }
    }
}

#[tokio::test]
async fn for_the_same_token_and_request_the_gateway_and_an_agent_decide_alike() {
    let home = Home::new();
    let scene = Scene::new(&home).await;
    let mut draw = Draw(Random::new(11));
    let (mut let_through, mut refused, mut denied, mut scopes) = (0, 0, 0, 0);
    while scopes < wanted_scopes() {
        let (name, scope) = (draw.user(), draw.scope());
        let Some(clients) = scene.asking(name, scope.as_ref()).await else { continue };
        scopes += 1;
        let [gateway, agent] = clients;
        for _ in 0..REQUESTS {
            let asked = draw.request();
            let (at_gateway, at_agent) = draw.target();
            let one = Outcome::of(&gateway, &asked, at_gateway, &scene.recording).await;
            let other = Outcome::of(&agent, &asked, at_agent, &scene.recording).await;
            assert_eq!(one, other, "{name} with {scope:?} at {at_gateway}: {asked:?}");
            match one {
                Outcome { arrived: Some(_), .. } => let_through += 1,
                Outcome { review: Value::Null, .. } => refused += 1,
                Outcome { .. } => denied += 1,
            }
        }
    }
    let counts = (let_through, refused, denied);
    assert!(let_through > 100 && refused > 100 && denied > 5, "all kinds of answers: {counts:?}");
    scene.agent.stop().await;
}
