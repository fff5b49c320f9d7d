//! The vcluster CLI 0.36.1 with the driver `platform`. Each command begins by creating a Self. Its status has the prefix
//! of the namespaces of projects.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::rights::{path, with_key};
use serde_json::{Value, json};

use crate::platform_clients::go::{
    Failure, GoClient, Outcome, annotated, assert_no_sleep_mode, with_rule,
};
use crate::platform_clients::loft_cli::{SHARED_ROLE, SPACE, VCLUSTER, decoded, encoded};
use crate::platform_clients::loft_cli_refusals::NO_SLEEP;
use crate::platform_clients::scene::{LONG, Platform, SHOP, SHORT, assert_reaches};
use crate::platform_clients::typed::Age;

/// The namespaces in which the client looks for secrets when the user names none.
const SECRET_NAMESPACES: [&str; 2] = ["vcluster-platform", "loft"];

/// The client of one user, at the start of a command.
struct Vcluster {
    go: GoClient,
    myself: Value,
}

impl Vcluster {
    /// Starts a command.
    async fn of(http: &Client) -> Outcome<Self> {
        let go = GoClient::new(http, Age::V4);
        let myself = go.myself().await?;
        Ok(Self { go, myself })
    }

    /// `platform login HOST --access-key KEY`
    async fn log_in(http: &Client) -> Outcome<Self> {
        let this = Self::of(http).await?;
        this.go.log_into_registries().await?;
        Ok(this)
    }

    fn prefix(&self) -> &str {
        self.myself["projectNamespacePrefix"].as_str().unwrap_or("loft-p-")
    }

    fn collection(&self, project: &str, resource: &str) -> String {
        format!("namespaces/{}{project}/{resource}", self.prefix())
    }

    /// Finds the instances that the caller may use: one list of all namespaces, and the projects that they belong to.
    async fn list(&self, (resource, _): (&str, &str)) -> Outcome<Vec<(String, Value)>> {
        let projects = self.go.list("projects").await?;
        let mut found = Vec::new();
        for instance in self.go.list(&format!("{resource}?extended=true")).await? {
            let namespace = instance["metadata"]["namespace"].as_str().unwrap();
            let project = namespace.strip_prefix(self.prefix()).unwrap_or(namespace);
            let is_known = projects.iter().any(|one| one["metadata"]["name"] == project);
            if is_known && instance["status"]["canUse"] == true {
                found.push((project.to_owned(), instance.clone()));
            }
        }
        Ok(found)
    }

    async fn find(&self, what: (&str, &str), name: &str) -> Outcome<(String, Value)> {
        let found = self.list(what).await?.into_iter();
        found
            .into_iter()
            .find(|(_, one)| one["metadata"]["name"] == name)
            .ok_or_else(|| Failure::of_client(format!("couldn't find vcluster {name}")))
    }

    /// `connect NAME`, `platform connect namespace NAME`: returns the server of the context.
    async fn connect(&self, what: (&str, &str), name: &str, patience: Duration) -> Outcome {
        let (project, found) = self.find(what, name).await?;
        let namespace = found["metadata"]["namespace"].as_str().unwrap();
        let collection = format!("namespaces/{namespace}/{}", what.0);
        self.go.get(&format!("{collection}/{name}")).await?;
        let found = self.go.wait_until_ready(&collection, name, patience).await?;
        self.go.cluster_of(&project, &found).await?;
        Ok(format!("/kubernetes/project/{project}/{}/{name}", what.1))
    }

    /// `platform share vcluster NAME`
    async fn share(&self, name: &str, rule: &Value) -> Outcome<()> {
        let projects = self.go.list("projects").await?;
        let project = projects.first().ok_or_else(|| Failure::of_client("no projects"))?;
        let collection = self.collection(project["metadata"]["name"].as_str().unwrap(), VCLUSTER.0);
        let found = self.go.get(&format!("{collection}/{name}")).await?;
        self.go.update(&collection, &with_rule(&found, rule)).await.map(drop)
    }

    /// `platform sleep vcluster NAME`: a PUT of the object as it was read with `extended=true`.
    async fn sleep(&self, name: &str) -> Outcome<()> {
        let (project, found) = self.find(VCLUSTER, name).await?;
        assert_eq!(found["status"]["canUse"], true);
        let asleep = annotated(&found, "sleepmode.platform.sh/force", "true");
        self.go.update(&self.collection(&project, VCLUSTER.0), &asleep).await.map(drop)
    }

    /// `create NAME`: asks whether a template is needed, and creates the instance.
    async fn create(&self, name: &str) -> Outcome<()> {
        let collection = self.collection(SHOP, VCLUSTER.0);
        let existing = self.go.get(&format!("{collection}/{name}")).await.unwrap_err();
        existing.expect(404, &[name]);
        let project = self.go.get(&format!("projects/{SHOP}")).await?;
        let without = project["spec"]["requireTemplate"]["disabled"] == true
            || self.may_create_without_template().await?;
        if !without {
            let templates = self.go.get(&format!("projects/{SHOP}/templates")).await?;
            assert_eq!(templates["virtualClusterTemplates"], json!([]));
            return Err(Failure::of_client("there are no allowed virtual cluster templates"));
        }
        let template = json!({
            "metadata": {}, "instanceTemplate": { "metadata": {} },
            "pro": { "enabled": true },
            "helmRelease": { "chart": { "name": "vcluster", "version": "0.36.1" }, "values": "{}\n" },
            "accessPoint": { "ingress": {} }, "forwardToken": true,
            "spaceTemplate": { "metadata": {} },
        });
        let annotations = json!({ "sleepmode.platform.sh/timezone": "UTC#0" });
        let instance = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "template": template },
        });
        self.go.create(&collection, &instance).await.map(drop)
    }

    async fn may_create_without_template(&self) -> Outcome<bool> {
        let asked = json!({ "verb": "create", "resource": "virtualclusterinstances",
            "subresource": "restricted", "namespace": format!("{}{SHOP}", self.prefix()) });
        self.go.may(asked).await
    }

    /// `platform get secret NAME.KEY`
    async fn get_secret(&self, name: &str, key: &str) -> Outcome {
        let mut failures = Vec::new();
        for namespace in SECRET_NAMESPACES {
            match self.go.get(&format!("namespaces/{namespace}/sharedsecrets/{name}")).await {
                Ok(found) => return Ok(decoded(&found["spec"]["data"][key])),
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures.remove(0))
    }
}

#[tokio::test]
async fn logging_in_keys_and_logging_out() {
    let platform = Platform::start(&[]).await;
    let spec = json!({ "user": "ada", "type": "Login" });
    let key = with_key(&platform.admin, "ada-login", spec).await;
    let ada = Vcluster::log_in(&key).await.unwrap();
    assert_eq!(ada.myself["user"]["name"], "ada");
    // `platform create accesskey`
    let new = json!({ "metadata": { "name": "ci" },
        "spec": { "displayName": "ci", "user": "ada", "type": "User", "ttl": 3600 } });
    let made = ada.go.create("ownedaccesskeys", &new).await.unwrap();
    let ci = platform.admin.with_token(made["spec"]["key"].as_str().unwrap());
    assert_eq!(Vcluster::of(&ci).await.unwrap().myself["accessKey"], "ci");
    let keys = ada.go.get("users/ada/accesskeys").await.unwrap();
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&keys["accessKeys"]), ["ada-key", "ada-login", "ci"]);
    assert_eq!(keys["items"], keys["accessKeys"]);
    assert!(keys["accessKeys"][2]["spec"].get("key").is_none());
    // A key for virtual clusters has a scope with roles, which this server does not have.
    let new = json!({ "metadata": { "name": "v" }, "spec": { "displayName": "v", "user": "ada",
        "type": "User", "scope": { "roles": [{ "role": "vcluster" }] } } });
    ada.go.create("ownedaccesskeys", &new).await.unwrap_err().expect(422, &["roles"]);
    ada.go.log_out().await.unwrap();
    let Err(gone) = Vcluster::of(&key).await else { panic!("the key still works") };
    gone.expect(401, &["access key"]);
    Vcluster::of(&ci).await.unwrap();
}

#[tokio::test]
async fn lists_and_contexts() {
    let platform = Platform::start(&["--project-namespace-prefix=team-"]).await;
    assert_eq!(platform.namespace, "team-shop");
    platform.when_ready().await;
    let bob = Vcluster::of(&platform.bob).await.unwrap();
    assert_eq!(bob.prefix(), "team-");
    let projects = bob.go.list("projects").await.unwrap();
    assert_eq!(projects[0]["metadata"]["name"], SHOP);
    for (what, name) in [(VCLUSTER, "web"), (SPACE, "stage")] {
        let listed = bob.list(what).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].0, SHOP);
        assert_eq!(listed[0].1["status"]["phase"], "Ready");
        let server = bob.connect(what, name, LONG).await.unwrap();
        if what == VCLUSTER {
            assert_reaches(&platform.bob, &server).await;
        }
    }
    for client in [&platform.tim, &platform.eve] {
        let foreign = Vcluster::of(client).await.unwrap();
        assert!(foreign.list(VCLUSTER).await.unwrap().is_empty());
        foreign.connect(VCLUSTER, "web", SHORT).await.unwrap_err();
    }
    let admin = Vcluster::of(&platform.admin).await.unwrap();
    assert_eq!(admin.go.get("clusters/member").await.unwrap()["status"]["phase"], "Ready");
}

/// `connect` waits for an instance that cannot be reached, and then prints the reason.
#[tokio::test]
async fn an_instance_that_cannot_be_reached_says_why() {
    let platform = Platform::start(&[]).await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    let one = format!("{}/web", platform.collection("virtualclusterinstances"));
    let none = json!({ "spec": { "config": null } });
    postern_tests::rights::merge(&platform.admin, &one, none).await.expect(200);
    postern_tests::wait::until("another phase", async || {
        (platform.stored(VCLUSTER.0, "web").await["status"]["phase"] != "Ready").then_some(())
    })
    .await;
    let failure = ada.connect(VCLUSTER, "web", SHORT).await.unwrap_err();
    assert!(failure.message.len() > "cannot reach it:  ()".len(), "{}", failure.message);
    let status = platform.stored(VCLUSTER.0, "web").await["status"].clone();
    assert!(["Pending", "Failed"].iter().any(|phase| status["phase"] == *phase), "{status}");
    assert!(status["reason"].is_string() && status["message"].is_string(), "{status}");
}

#[tokio::test]
async fn sharing_and_sleeping() {
    let platform = Platform::start(&[]).await;
    platform.when_ready().await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    ada.sleep("web").await.unwrap_err().expect(422, &[NO_SLEEP]);
    let rule = json!({ "users": ["tim"], "clusterRole": SHARED_ROLE });
    ada.share("web", &rule).await.unwrap();
    let tim = Vcluster::of(&platform.tim).await.unwrap();
    let server = tim.connect(VCLUSTER, "web", LONG).await.unwrap();
    assert_reaches(&platform.tim, &server).await;
    let stored = platform.stored(VCLUSTER.0, "web").await;
    assert_eq!(stored["spec"]["config"]["secretName"], "web");
    assert_no_sleep_mode(&stored);
    let may_not = Vcluster::of(&platform.bob).await.unwrap().share("web", &rule).await;
    may_not.unwrap_err().expect(403, &["update"]);
}

#[tokio::test]
async fn creating_is_refused_with_the_way_that_there_is() {
    let platform = Platform::start(&[]).await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    // The project requires no template, so that the client goes on and the server answers.
    for client in [&platform.ada, &platform.bob] {
        let refused = Vcluster::of(client).await.unwrap().create("new").await.unwrap_err();
        let why = "this server does not create virtual clusters";
        let text = refused.expect(422, &["spec.template", "spec.clusterRef", why]);
        assert!(!text.contains("sleep"), "a time zone asks for nothing: {text}");
    }
    // A project admin may also create without a template.
    assert!(ada.may_create_without_template().await.unwrap());
    // `platform add vcluster` creates an external instance.
    let external = json!({ "metadata": { "name": "new" },
        "spec": { "external": true, "networkPeer": true } });
    let refused = ada.go.create(&ada.collection(SHOP, VCLUSTER.0), &external).await.unwrap_err();
    refused.expect(422, &["spec.external", "spec.networkPeer"]);
}

#[tokio::test]
async fn secrets_are_found_in_the_namespace_of_the_client() {
    let platform = Platform::start(&["--default-namespace=vcluster-platform"]).await;
    platform.let_all_make_secrets("vcluster-platform").await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    let data = json!({ "password": encoded("hunter2") });
    let secret = json!({ "metadata": { "name": "db" }, "spec": { "data": data } });
    let at = "namespaces/vcluster-platform/sharedsecrets";
    ada.go.create(at, &secret).await.unwrap();
    assert_eq!(ada.get_secret("db", "password").await.unwrap(), "hunter2");
    let eve = Vcluster::of(&platform.eve).await.unwrap();
    let refused = eve.get_secret("db", "password").await.unwrap_err();
    refused.expect(404, &["db"]);
}

/// If a client looks in a namespace that does not exist, the message names the default namespace.
#[tokio::test]
async fn a_secret_that_is_looked_for_elsewhere() {
    let platform = Platform::start(&[]).await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    platform.let_all_make_secrets("platform").await;
    // The message names the namespace to try.
    let refused = ada.get_secret("db", "password").await.unwrap_err();
    refused.expect(404, &["in the namespace platform by default"]);
}

#[tokio::test]
async fn deleting_a_virtual_cluster() {
    let platform = Platform::start(&[]).await;
    let ada = Vcluster::of(&platform.ada).await.unwrap();
    let (_, found) = ada.find(VCLUSTER, "web").await.unwrap();
    let namespace = found["metadata"]["namespace"].as_str().unwrap();
    let one = format!("namespaces/{namespace}/{}/web", VCLUSTER.0);
    ada.go.delete(&one).await.unwrap();
    ada.go.get(&one).await.unwrap_err().expect(404, &["web"]);
    assert!(ada.list(VCLUSTER).await.unwrap().is_empty());
    let user = platform.ada.get(&path("users", "ada")).send().await.expect(200);
    assert_eq!(user["spec"]["username"], "ada.l");
}
