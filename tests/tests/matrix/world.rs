//! A server with users, teams, projects, keys and roles, and the objects of one kind.

use std::sync::Arc;

use postern_tests::http::{Client, Connection};
use postern_tests::objects::{based, collection, make};
use postern_tests::{Server, wait};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::matrix::answer::{Answer, Ask};
use crate::matrix::fixture::{Fixture, Target};
use crate::matrix::identities::{Column, columns};

/// A caller, with an open connection.
pub(crate) struct Identity {
    pub(crate) code: &'static str,
    pub(crate) words: &'static str,
    pub(crate) client: Client,
    impersonated: Option<&'static str>,
    connection: Mutex<Option<Connection>>,
}

impl Identity {
    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&self, ask: &Ask) -> Answer {
        let mut last = String::new();
        // The server may have closed a connection that no valid key came over.
        for _ in 0..3 {
            let mut open = self.connection.lock().await;
            if open.is_none() {
                *open = self.client.connect().await.ok();
            }
            let Some(connection) = open.as_ref().map(Connection::shared) else { continue };
            drop(open);
            match self.send(ask, connection).await {
                Ok(answer) => return answer,
                Err(error) => last = error,
            }
            *self.connection.lock().await = None;
        }
        panic!("{} {} as {}: {last}", ask.method, ask.path, self.code);
    }

    async fn send(&self, ask: &Ask, mut connection: Connection) -> Result<Answer, String> {
        let mut request = self.client.request(&ask.method, &ask.path);
        if let Some((content_type, body)) = &ask.body {
            request = request.body(content_type, body.clone());
        }
        if let Some(user) = self.impersonated {
            request = request.header("impersonate-user", user);
        }
        let what = format!("{} {}", ask.method, ask.path);
        if ask.is_watch {
            return wait::within(&what, Answer::of_watch(request, connection, ask)).await;
        }
        let reply = wait::within(&what, request.try_send_on(&mut connection)).await?;
        Ok(Answer::of_reply(&reply))
    }
}

/// The server, the callers, and the kind of their requests.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) fixture: Fixture,
    pub(crate) identities: Vec<Arc<Identity>>,
}

impl World {
    /// Makes everything for one kind.
    pub(crate) async fn of(fixture: Fixture) -> Self {
        let server = Server::start().await;
        let admin = server.client();
        make_people(&admin).await;
        make_places(&admin, &fixture).await;
        make_issuer(&admin, &fixture).await;
        for target in fixture.targets() {
            if fixture.has(target) {
                make_target(&admin, &fixture, target).await;
            }
        }
        add_members(&admin).await;
        make_roles(&admin, &fixture).await;
        let mut identities = Vec::new();
        let http2 = Client::http2(server.kubeconfig());
        for column in columns(&fixture) {
            identities.push(Arc::new(identity(&admin, &http2, column).await));
        }
        stop_keys(&admin, &identities).await;
        Self { server, fixture, identities }
    }

    /// The administrator, as the one in the first column.
    pub(crate) fn administrator(&self) -> &Identity {
        &self.identities[0]
    }

    /// A client with the administrator's key.
    pub(crate) fn admin(&self) -> Client {
        self.server.client()
    }
}

async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let reply = client.post(&based(path)).json(object).send().await;
    assert!([200, 201].contains(&reply.status), "{path} {object}: {}", reply.text());
    reply.json()
}

async fn make_people(admin: &Client) {
    for name in
        ["owner", "other", "member", "viewer", "maker", "worker", "leader", "host", "blocked"]
    {
        make(admin, "users", name, json!({})).await;
    }
    make(admin, "teams", "red", json!({ "users": ["member"] })).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let group = "rbac.authorization.k8s.io";
    let viewer = json!({
        "metadata": { "name": "viewer" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "platform-viewer" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "viewer" }],
    });
    post(admin, rbac, &viewer).await;
}

/// Makes the trusted issuer of workload identities.
async fn make_issuer(admin: &Client, fixture: &Fixture) {
    if fixture.plural == "workloadidentities" {
        let spec = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
        make(admin, "trustedissuers", "ci", spec).await;
    }
}

/// Makes the namespaces and projects, unless they are the targets themselves.
async fn make_places(admin: &Client, fixture: &Fixture) {
    let projects = Fixture::of("projects");
    for name in ["alpha", "beta"] {
        if fixture.plural != "projects" || name != projects.theirs() {
            let project = projects.object(Target::Theirs, name);
            post(admin, &projects.collection(""), &project).await;
        }
    }
    if fixture.plural != "namespaces" {
        post(admin, "/api/v1/namespaces", &json!({ "metadata": { "name": "apart" } })).await;
    }
}

/// Adds the two members of the project `alpha`.
async fn add_members(admin: &Client) {
    let members = json!([
        { "kind": "User", "name": "worker" },
        { "kind": "User", "name": "leader", "clusterRole": "platform-project-admin" },
    ]);
    let change = json!({ "spec": { "members": members } });
    admin.patch(&collection("projects/alpha"), "merge-patch", &change).send().await.expect(200);
}

/// Makes the object that is a target, if it does not exist.
pub(crate) async fn make_target(admin: &Client, fixture: &Fixture, target: Target) {
    let path = fixture.path(target);
    if admin.get(&based(&path)).send().await.status == 200 {
        return;
    }
    let object = fixture.object(target, fixture.name(target));
    post(admin, &fixture.collection(fixture.namespace(target)), &object).await;
}

async fn make_roles(admin: &Client, fixture: &Fixture) {
    let group = "rbac.authorization.k8s.io";
    let prefix = format!("/apis/{group}/v1");
    for (name, rules, subject) in fixture.rules() {
        let shares = name == "to-red";
        if shares && (fixture.has_access_rules() || !fixture.has(Target::Shared)) {
            continue;
        }
        let (place, role, binding) = match fixture.namespaces {
            Some((here, _)) => (format!("{prefix}/namespaces/{here}"), "Role", "rolebindings"),
            None => (prefix.clone(), "ClusterRole", "clusterrolebindings"),
        };
        let roles = format!("{place}/{}s", role.to_lowercase());
        post(admin, &roles, &json!({ "metadata": { "name": name }, "rules": rules })).await;
        let bound = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": group, "kind": role, "name": name },
            "subjects": [subject],
        });
        post(admin, &format!("{place}/{binding}"), &bound).await;
    }
}

async fn identity(admin: &Client, http2: &Client, column: Column) -> Identity {
    let Column { code, words, key, impersonated } = column;
    let client = match key {
        None => http2.clone(),
        Some(spec) => {
            let name = format!("key-{}", code.replace(' ', "-"));
            let key = make(admin, "ownedaccesskeys", &name, spec).await;
            http2.with_token(key["spec"]["key"].as_str().expect("the answer carries the key"))
        }
    };
    Identity { code, words, client, impersonated, connection: Mutex::new(None) }
}

/// Disables the user of the column `blocked`, and waits until the key of `expired` has ended.
async fn stop_keys(admin: &Client, identities: &[Arc<Identity>]) {
    let disabled = json!({ "spec": { "disabled": true } });
    let user = collection("users/blocked");
    admin.patch(&user, "merge-patch", &disabled).send().await.expect(200);
    let expired = identities.iter().find(|one| one.code == "expired").expect("there is one");
    let asking = Ask::new("GET", &collection("selves/me"));
    wait::until("the key to expire", async || {
        (expired.ask(&asking).await.status == 401).then_some(())
    })
    .await;
}
