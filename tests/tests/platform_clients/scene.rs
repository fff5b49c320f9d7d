//! A server with a project, its members and its instances.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::objects::{GROUP, create, make, make_kubeconfig};
use postern_tests::rights::{allow, path, set, user};
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

/// The project.
pub(crate) const SHOP: &str = "shop";

/// The waits of a client: `LONG` for an instance that becomes ready, `SHORT` for one that does not.
pub(crate) const LONG: Duration = Duration::from_secs(20);
pub(crate) const SHORT: Duration = Duration::from_millis(500);

/// The settings for the loft CLI: its built-in namespaces, and a version that it accepts.
pub(crate) const FOR_LOFT: [&str; 3] = [
    "--project-namespace-prefix=loft-p-",
    "--default-namespace=loft",
    "--advertise-version=v0.0.0",
];

/// A server with the project `shop`: ada is its admin, bob a user of it, tim a viewer, and zoe one by the team `night`.
/// eve is not a member. The virtual cluster `web` and the space `stage` belong to ada.
pub(crate) struct Platform {
    pub(crate) admin: Client,
    pub(crate) ada: Client,
    pub(crate) bob: Client,
    pub(crate) tim: Client,
    pub(crate) zoe: Client,
    pub(crate) eve: Client,
    pub(crate) namespace: String,
    pub(crate) server: Server,
    /// The server behind both the connected cluster and the virtual cluster.
    pub(crate) upstream: Server,
}

impl Platform {
    /// Starts it with these settings.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let setup = setup.argument("--drain-timeout=1s");
        let server = settings.iter().fold(setup, Setup::argument).start().await;
        let upstream = Server::start().await;
        let admin = server.client();
        let mut clients = Vec::new();
        for name in ["ada", "bob", "tim", "zoe", "eve"] {
            clients.push(user(&admin, name).await);
        }
        let [ada, bob, tim, zoe, eve] = clients.try_into().expect("five clients");
        let names = json!({ "displayName": "Ada", "username": "ada.l", "email": "ada@shop.test" });
        set(&admin, &path("users", "ada"), names).await;
        make(&admin, "teams", "night", json!({ "displayName": "Night", "users": ["zoe"] })).await;
        let namespace = format!("{}{SHOP}", prefix(&admin).await);
        let platform = Self { admin, ada, bob, tim, zoe, eve, namespace, server, upstream };
        platform.fill().await;
        platform
    }

    async fn fill(&self) {
        let admin = &self.admin;
        let namespaces =
            json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] }]);
        allow(&self.upstream.client(), "bob", None, namespaces, "platform:user:bob").await;
        let kubeconfig = std::fs::read_to_string(self.upstream.home().kubeconfig()).unwrap();
        make_kubeconfig(admin, "default", "member", &kubeconfig).await;
        let config = json!({ "secretName": "member", "secretNamespace": "default" });
        make(admin, "clusters", "member", json!({ "config": config })).await;
        let member = |kind: &str, name: &str, role: &str| json!({ "kind": kind, "name": name, "clusterRole": role });
        let members = json!([
            member("User", "ada", "platform-project-admin"),
            member("User", "bob", "platform-project-user"),
            member("User", "tim", "platform-project-viewer"),
            member("Team", "night", "platform-project-viewer"),
        ]);
        make(admin, "projects", SHOP, json!({ "displayName": "Shop", "members": members })).await;
        make_kubeconfig(admin, &self.namespace, "web", &kubeconfig).await;
        let owner = json!({ "user": "ada" });
        let at = json!({ "cluster": "member", "namespace": "web", "virtualCluster": "web" });
        let config = json!({ "secretName": "web" });
        let web = json!({ "spec": { "owner": owner, "clusterRef": at, "config": config } });
        create(admin, &self.collection("virtualclusterinstances"), "web", web).await;
        let at = json!({ "cluster": "member", "namespace": "platform" });
        let stage = json!({ "spec": { "owner": owner, "clusterRef": at } });
        create(admin, &self.collection("spaceinstances"), "stage", stage).await;
    }

    /// Waits until the cluster and the instances are ready. From then on, only clients change them.
    pub(crate) async fn when_ready(&self) {
        let member = path("clusters", "member");
        let web = format!("{}/web", self.collection("virtualclusterinstances"));
        let stage = format!("{}/stage", self.collection("spaceinstances"));
        for one in [member, web, stage] {
            postern_tests::wait::until("a phase that is Ready", async || {
                let found = self.admin.get(&one).send().await.expect(200);
                (found["status"]["phase"] == "Ready").then_some(())
            })
            .await;
        }
    }

    /// The path of a collection of the project, from the root of the server.
    pub(crate) fn collection(&self, resource: &str) -> String {
        format!("{GROUP}/{}", self.within(resource))
    }

    /// The same from the root of the group.
    pub(crate) fn within(&self, resource: &str) -> String {
        format!("namespaces/{}/{resource}", self.namespace)
    }

    /// One object of the project, as the administrator reads it.
    pub(crate) async fn stored(&self, resource: &str, name: &str) -> Value {
        let path = format!("{}/{name}", self.collection(resource));
        self.admin.get(&path).send().await.expect(200)
    }

    /// Lets every user create shared secrets in a namespace.
    pub(crate) async fn let_all_make_secrets(&self, namespace: &str) {
        let rules = json!([postern_tests::rights::rule(&["sharedsecrets"], &["create"])]);
        allow(&self.admin, "makers", Some(namespace), rules, "platform:authenticated").await;
    }
}

/// Asks the server for the prefix of the namespaces of projects, as the vcluster CLI does.
pub(crate) async fn prefix(client: &Client) -> String {
    let asked = client.post(&format!("{GROUP}/selves")).json(&json!({})).send().await.expect(201);
    asked["status"]["projectNamespacePrefix"].as_str().expect("a prefix").to_owned()
}

/// Fails unless a target's path leads to the cluster.
pub(crate) async fn assert_reaches(client: &Client, path: &str) {
    let version = client.get(&format!("{path}/version")).send().await.expect(200);
    assert!(version["gitVersion"].is_string(), "{version}");
}
