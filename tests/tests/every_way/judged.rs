//! A real kube-apiserver with RBAC behind the gateway and the agent: whether a caller may act there, and as whom they
//! come, is judged by code of others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::identity_provider::{
    exchange_form, make_pod_identity, post_form, thumbprint_of,
};
use postern_tests::kubectl::{CommandOutput, Kubectl};
use postern_tests::objects::{GROUP, collection, endpoint_token, make};
use postern_tests::rights::{allow, rule_on, with_key};
use postern_tests::{ControlPlane, Home, Kubeconfig, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::scene::Scene;

/// The permissions of ada in the cluster, which they have as a member of their team, and in no other way. The
/// role is none of the cluster's own ones, which get their rules from a controller that does not run here.
const EDITORS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: editor, namespace: shop}
rules: [{apiGroups: [''], resources: [configmaps], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: devs, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: editor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'platform:team:devs'}]
";

/// The binding that gives the agent the role that was printed.
const BOUND: &str = "---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: postern-agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: postern-agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: postern-agent}]
";

/// A real cluster, and the platform in front of it, which reaches it with the role that `postern create cluster`
/// prints and with nothing more.
struct Real {
    scene: Scene,
    plane: ControlPlane,
    kubectl: Kubectl,
}

impl Real {
    async fn start() -> Self {
        let home = Home::new();
        let (plane, kubectl) = (ControlPlane::start(&home).await, Kubectl::new(&home));
        let apply = async |text: &str| {
            let file = kubectl.file("as-administrator.yaml", text);
            let mut command = kubectl.command(&["apply", "-f", &file]);
            command.env("KUBECONFIG", plane.kubeconfig_of_admin());
            let done = kubectl.run_command(command).await;
            assert!(done.ok, "{done:?}");
        };
        apply(EDITORS).await;
        let grant = async |printed: String| {
            let (_, role) = printed.split_once("needs this role:").unwrap();
            let (role, _) = role.split_once("note:").unwrap();
            apply(&format!("{role}{BOUND}")).await;
        };
        let scene = Scene::with(home, &plane.kubeconfig_of_agent(), grant).await;
        Self { scene, plane, kubectl }
    }

    fn way(&self, name: &str, kubeconfig: &Kubeconfig, program: PathBuf) -> Way<'_> {
        let file = self.scene.home.path().join(name.replace(' ', "-"));
        let kubeconfig = kubeconfig.write(&file);
        Way { real: self, name: name.to_owned(), kubeconfig, program }
    }
}

/// One kubectl by one way.
struct Way<'a> {
    real: &'a Real,
    name: String,
    kubeconfig: PathBuf,
    program: PathBuf,
}

impl Way<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.real.kubectl.command_of(&self.program, arguments);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.real.kubectl.run_command(self.command(arguments)).await
    }

    async fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments).await;
        assert!(done.ok, "{} {arguments:?}: {done:?}", self.name);
        done.out
    }

    /// The object comes, changes and goes, and a watch shows all of it.
    async fn works_in_the_namespace(&self) {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "applied" },
            "data": { "a": "1" },
        });
        let file = self.real.kubectl.file("applied.json", &object.to_string());
        let watched = ["-n", "shop", "get", "configmaps", "--watch", "--no-headers"];
        let mut watch = self.command(&watched).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let shows = async |lines: &mut tokio::io::Lines<_>| {
            let what = format!("the watch by {}", self.name);
            loop {
                let line = wait::within(&what, lines.next_line()).await.unwrap();
                if line.expect("the watch goes on").starts_with("applied ") {
                    return;
                }
            }
        };
        let apply = ["-n", "shop", "apply", "-f", &file];
        assert!(self.ok(&apply).await.contains("created"), "{}", self.name);
        shows(&mut lines).await;
        assert!(self.ok(&apply).await.contains("unchanged"), "{}", self.name);
        let by_server = [&apply[..], &["--server-side", "--force-conflicts"]].concat();
        assert!(self.ok(&by_server).await.contains("serverside-applied"), "{}", self.name);
        let patch = ["-n", "shop", "patch", "configmap", "applied", "-p", r#"{"data":{"a":"2"}}"#];
        self.ok(&patch).await;
        shows(&mut lines).await;
        let value = ["-n", "shop", "get", "configmap", "applied", "-o", "jsonpath={.data.a}"];
        assert_eq!(self.ok(&value).await, "2", "{}", self.name);
        self.ok(&["-n", "shop", "delete", "configmap", "applied"]).await;
        shows(&mut lines).await;
        watch.kill().await.unwrap();
    }

    /// A request that the cluster's own roles do not allow is refused, in the cluster's words.
    async fn is_refused_elsewhere(&self) {
        let refused = self.run(&["-n", "kube-system", "get", "secrets"]).await;
        let words = "secrets is forbidden: User \"ada\" cannot list resource \"secrets\" in API group \"\" in the \
                     namespace \"kube-system\"";
        assert!(!refused.ok && refused.err.contains(words), "{}: {refused:?}", self.name);
        for (question, answer) in [
            (&["-n", "shop", "auth", "can-i", "create", "configmaps"], "yes"),
            (&["-n", "kube-system", "auth", "can-i", "get", "secrets"], "no"),
        ] {
            let said = self.run(question).await;
            assert_eq!(said.out.trim(), answer, "{} {question:?}: {said:?}", self.name);
        }
        let rules = self.ok(&["-n", "shop", "auth", "can-i", "--list"]).await;
        assert!(rules.contains("configmaps"), "{}: {rules}", self.name);
    }
}

/// The groups with which a user came to the cluster, as its audit log has them.
fn groups_of(plane: &ControlPlane, user: &str) -> BTreeSet<String> {
    let records = plane.records();
    let of_user = records.iter().filter(|record| record["impersonatedUser"]["username"] == user);
    let groups = of_user.flat_map(|record| {
        assert_eq!(record["user"]["username"], "postern-agent", "{record}");
        record["impersonatedUser"]["groups"].as_array().cloned().unwrap_or_default()
    });
    groups.map(|group| group.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn kubectl_works_by_each_way_and_the_clusters_own_roles_decide() {
    let real = Real::start().await;
    for (name, kubeconfig) in real.scene.ways() {
        for program in [Kubectl::oldest_program(), Kubectl::program()] {
            let way = real.way(&name, &kubeconfig, program);
            way.works_in_the_namespace().await;
            way.is_refused_elsewhere().await;
        }
    }
    // Of the user's own groups, only the forwarded ones; of `system:` groups, one.
    let groups = groups_of(&real.plane, "ada");
    let expected = [
        "ops",
        "platform:authenticated",
        "platform:team:devs",
        "platform:user:*",
        "platform:user:ada",
        "system:authenticated",
    ];
    assert_eq!(groups, expected.map(str::to_owned).into());
}

/// In a cluster, a user with every right at the central server has only the rights of the cluster's
/// roles.
#[tokio::test]
async fn the_administrator_is_nobody_special_in_a_cluster() {
    let real = Real::start().await;
    let token = real.scene.central.kubeconfig().token.clone();
    for (name, kubeconfig) in real.scene.ways().into_iter().take(2) {
        let kubeconfig = Kubeconfig { token: token.clone(), ..kubeconfig };
        let way = real.way(&name, &kubeconfig, Kubectl::program());
        let refused = way.run(&["-n", "shop", "get", "configmaps"]).await;
        let words = "configmaps is forbidden: User \"admin\" cannot list resource \"configmaps\"";
        assert!(!refused.ok && refused.err.contains(words), "{name}: {refused:?}");
        for more in [&["--as=system:admin"][..], &["--as=x", "--as-group=system:masters"]] {
            let refused = way.run(&[&["-n", "shop", "get", "configmaps"], more].concat()).await;
            assert!(!refused.ok, "{name} {more:?}: {refused:?}");
        }
        // If they impersonate another user, they are that user.
        way.ok(&["-n", "shop", "get", "configmaps", "--as=ada"]).await;
    }
    let groups = groups_of(&real.plane, "admin");
    assert!(groups.contains("platform:user:admin"), "{groups:?}");
    let of_system: Vec<_> = groups.iter().filter(|group| group.starts_with("system:")).collect();
    assert_eq!(of_system, ["system:authenticated"]);
    let refused = |record: &Value| {
        let names = record["impersonatedUser"].to_string();
        names.contains("system:masters") || names.contains("system:admin")
    };
    assert!(!real.plane.records().iter().any(refused), "what is refused does not get there");
}

/// Creates a space in the namespace `shop` of each cluster, which ada may use, and returns ada's client with a key for
/// these alone.
async fn make_spaces(admin: &Client) -> Client {
    make(admin, "projects", "web", json!({})).await;
    for cluster in ["near", "far"] {
        let space = json!({
            "metadata": { "name": cluster },
            "spec": { "clusterRef": { "cluster": cluster, "namespace": "shop" } },
        });
        let spaces = format!("{GROUP}/namespaces/p-web/spaceinstances");
        admin.post(&spaces).json(&space).send().await.expect(201);
    }
    let rules = json!([rule_on("spaceinstances", &["near", "far"], &["use"])]);
    allow(admin, "use-spaces", Some("p-web"), rules, "platform:user:ada").await;
    let spaces = ["near", "far"].map(|space| json!({ "project": "web", "space": space }));
    let spec = json!({ "user": "ada", "scope": { "spaces": spaces } });
    with_key(admin, "of-spaces", spec).await
}

/// kubectl with a key for a space works in its namespace. Everything else is refused before it gets to the cluster, and
/// in the namespace, the cluster's own roles decide.
#[tokio::test]
async fn kubectl_works_in_a_space_and_nowhere_else() {
    let real = Real::start().await;
    let narrow = make_spaces(&real.scene.central.client()).await;
    let token = &endpoint_token(&narrow, json!({})).await;
    let at = |space: &str, token: &str, of: &Kubeconfig| Kubeconfig {
        server: format!(
            "https://{}/kubernetes/project/web/space/{space}",
            of.authority_of_server()
        ),
        token: token.to_owned(),
        ..of.clone()
    };
    let ways = real.scene.ways();
    let (central, agent) = (&ways[0].1, &ways[2].1);
    wait::until("the agent to know of the space", async || {
        let client = Client::new(&at("far", token, agent));
        let reply = client.get("/kubernetes/project/web/space/far/version").send().await;
        (reply.status == 200).then_some(())
    })
    .await;
    for (name, kubeconfig) in [
        ("a space and the gateway", at("near", narrow.token(), central)),
        ("a space, the gateway and the agent", at("far", narrow.token(), central)),
        ("a space and the agent", at("far", token, agent)),
    ] {
        let way = real.way(name, &kubeconfig, Kubectl::program());
        way.works_in_the_namespace().await;
        let refused = way.run(&["-n", "shop", "get", "secrets"]).await;
        let words = "User \"ada\" cannot list resource \"secrets\" in API group \"\"";
        assert!(!refused.ok && refused.err.contains(words), "{name}: {refused:?}");
        let outside: [&[&str]; 3] = [
            &["-n", "kube-system", "get", "configmaps"],
            &["get", "configmaps", "--all-namespaces"],
            &["get", "clusterroles"],
        ];
        for arguments in outside {
            let refused = way.run(arguments).await;
            assert!(!refused.ok && refused.err.contains("space"), "{name}: {refused:?}");
        }
    }
    let outside = |record: &Value| {
        record["impersonatedUser"]["username"] == "ada"
            && record["objectRef"]["namespace"].as_str().is_some_and(|name| name != "shop")
    };
    assert!(!real.plane.records().iter().any(outside), "what is refused does not get there");
}

/// The token of a `ServiceAccount` of a real cluster, which the central server reaches through the agent alone, is exchanged
/// for an access key.
#[tokio::test]
async fn a_service_account_of_a_real_cluster_gets_a_key_through_the_agent() {
    let real = Real::start().await;
    let (cluster, admin) = (real.plane.admin(), real.scene.central.client());
    let subject = json!({
        "kind": "User", "name": "postern-agent", "apiGroup": "rbac.authorization.k8s.io",
    });
    let role = json!({
        "kind": "ClusterRole", "name": "system:service-account-issuer-discovery",
        "apiGroup": "rbac.authorization.k8s.io",
    });
    let binding =
        json!({ "metadata": { "name": "issuer" }, "roleRef": role, "subjects": [subject] });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.post(bindings).json(&binding).send().await.expect(201);
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    for name in ["deployer", "other"] {
        let account = json!({ "metadata": { "name": name } });
        cluster.post(accounts).json(&account).send().await.expect(201);
    }
    let issuer = cluster.get("/.well-known/openid-configuration").send().await.expect(200);
    let keys = cluster.get("/openid/v1/jwks").send().await.expect(200);
    let (issuer, thumbprint) =
        (issuer["issuer"].as_str().unwrap(), thumbprint_of(&keys["keys"][0]));
    make_pod_identity(&admin, "far", issuer, &thumbprint).await;
    let external = format!("https://{}", real.scene.central.kubeconfig().authority_of_server());
    let audience = format!("{external}/auth/token");
    let exchange = async |account: &str, audience: &str| {
        let request = json!({ "spec": { "audiences": [audience], "expirationSeconds": 600 } });
        let at = format!("{accounts}/{account}/token");
        let given = cluster.post(&at).json(&request).send().await.expect(201);
        let token = given["status"]["token"].as_str().unwrap();
        post_form(&admin, &exchange_form(token, "pod")).await
    };
    let key = exchange("deployer", &audience).await.expect(200);
    let workload = admin.with_token(key["access_token"].as_str().unwrap());
    let me = workload.get(&collection("selves/me")).send().await.expect(200);
    assert_eq!(me["status"]["user"]["name"], "bot");
    exchange("deployer", "https://other.example").await.expect(400);
    exchange("other", &audience).await.expect(400);
}

/// Waits until the agent has said where it is reached.
async fn wait_for_the_endpoint(client: &Client) {
    wait::until("the endpoint in the Cluster", async || {
        let cluster = client.get(&collection("clusters/far")).send().await.expect(200);
        let annotations = &cluster["metadata"]["annotations"];
        annotations["platform.sh/direct-cluster-endpoint"].as_str().map(drop)
    })
    .await;
}

/// `kubectl wait` watches until something is so. Its tokens for the direct endpoint count for seconds; the plugin
/// that `postern connect` writes brings new ones.
#[tokio::test]
async fn a_long_watch_outlives_the_tokens_that_it_is_made_with() {
    let real = Real::start().await;
    wait_for_the_endpoint(&real.scene.central.client()).await;
    let ada = CliUser::new();
    let central = real.scene.central.kubeconfig();
    let authority = ada.file("ca.pem", &central.authority);
    let login = ["login", &central.server, "--access-key", "-", "--ca-file", &authority];
    let key = real.scene.ways()[0].1.token.clone();
    let done = ada.run_with(&login, key.as_bytes()).await;
    assert_eq!(done.code, 0, "{}", done.err);
    let printed = ada.ok(&["connect", "cluster", "far", "--print", "--ttl", "3"]).await;
    let kubeconfig = PathBuf::from(ada.file("far.yaml", &printed));
    let name = "the plugin".to_owned();
    let way = Way { real: &real, name, kubeconfig, program: Kubectl::program() };
    way.ok(&["-n", "shop", "create", "configmap", "flag", "--from-literal=done=no"]).await;
    let until = "--for=jsonpath={.data.done}=yes";
    let waiting = ["-n", "shop", "wait", until, "configmap/flag", "--timeout=55s"];
    let mut waiting = way.command(&waiting);
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    wait::until("watches with more than one token", async || {
        assert!(waiting.try_wait().unwrap().is_none(), "kubectl still waits");
        let is_watch = |record: &&Value| {
            record["verb"] == "watch"
                && record["objectRef"]["resource"] == "configmaps"
                && record["impersonatedUser"]["username"] == "ada"
                && record["stage"] == "ResponseComplete"
        };
        (real.plane.records().iter().filter(is_watch).count() >= 2).then_some(())
    })
    .await;
    way.ok(&["-n", "shop", "patch", "configmap", "flag", "-p", r#"{"data":{"done":"yes"}}"#]).await;
    let ended = wait::within("kubectl wait", waiting.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}
