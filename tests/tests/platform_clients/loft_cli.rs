//! The loft CLI 3.4.8. It has the prefix `loft-p-` and the namespace `loft` built in, and asks the server for its
//! version before it connects.

use postern_tests::http::Client;
use postern_tests::rights::{merge, path, with_key};
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

use crate::platform_clients::go::{Failure, GoClient, Outcome, annotated, nobody, with_rule};
use crate::platform_clients::scene::{FOR_LOFT, LONG, Platform, SHOP, assert_reaches};
use crate::platform_clients::typed::Age;

/// The major version of the client.
const MAJOR: u32 = 3;

/// The role that `share` gives unless the user names another.
pub(crate) const SHARED_ROLE: &str = "loft-cluster-space-admin";

/// Each kind of instance: its resource, and its part of the gateway path.
pub(crate) const VCLUSTER: (&str, &str) = ("virtualclusterinstances", "virtualcluster");
pub(crate) const SPACE: (&str, &str) = ("spaceinstances", "space");

/// The namespace in which the client looks for the objects of a project.
fn namespace_of(project: &str) -> String {
    format!("loft-p-{project}")
}

/// The collection of instances in a project.
pub(crate) fn instances(project: &str, resource: &str) -> String {
    format!("namespaces/{}/{resource}", namespace_of(project))
}

/// The client of one user.
pub(crate) struct Loft {
    pub(crate) go: GoClient,
}

impl Loft {
    /// A client that is logged in already.
    pub(crate) fn of(http: &Client) -> Self {
        Self { go: GoClient::new(http, Age::V3) }
    }

    /// `login HOST --access-key KEY`
    async fn log_in(http: &Client) -> Outcome<Self> {
        let this = Self::of(http);
        this.check_version().await?;
        this.go.myself().await?;
        this.go.log_into_registries().await?;
        Ok(this)
    }

    /// Refuses servers of another major version.
    pub(crate) async fn check_version(&self) -> Outcome<()> {
        let answer = self.go.get_raw("/version").await?;
        let (version, major) = (&answer["version"], &answer["major"]);
        if version == "v0.0.0" {
            return Ok(());
        }
        let of_server: u32 = major.as_str().unwrap_or_default().parse().expect("a major version");
        if of_server == MAJOR {
            return Ok(());
        }
        Err(Failure::of_client(format!("unsupported version {version}")))
    }

    /// `login` without arguments, and `get user`.
    async fn whoami(&self) -> Outcome<Value> {
        let myself = self.go.myself().await?;
        if myself["user"].is_null() {
            return Err(nobody());
        }
        Ok(myself["user"].clone())
    }

    /// Finds an instance that the caller may use, in one project or in all.
    pub(crate) async fn find(
        &self,
        (resource, _): (&str, &str),
        project: Option<&str>,
        name: &str,
    ) -> Outcome<(String, Value)> {
        let projects = match project {
            Some(project) => vec![self.go.get(&format!("projects/{project}")).await?],
            None => self.go.list("projects").await?,
        };
        for project in projects {
            let project = project["metadata"]["name"].as_str().unwrap();
            let one = format!("{}/{name}?extended=true", instances(project, resource));
            match self.go.get(&one).await {
                Ok(found) if found["status"]["canUse"] == true => {
                    return Ok((project.to_owned(), found));
                }
                _ => {}
            }
        }
        Err(Failure::of_client(format!("couldn't find or access {name}")))
    }

    /// `list vclusters`, `list spaces`: name, project, cluster and status of each.
    async fn list(&self, (resource, _): (&str, &str)) -> Outcome<Vec<[String; 4]>> {
        let mut rows = Vec::new();
        for project in self.go.list("projects").await? {
            let project = project["metadata"]["name"].as_str().unwrap();
            let all = format!("{}?extended=true", instances(project, resource));
            let usable = self.go.list(&all).await?.into_iter();
            for found in usable.filter(|found| found["status"]["canUse"] == true) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                rows.push([
                    text(&found["metadata"]["name"]),
                    project.to_owned(),
                    text(&found["spec"]["clusterRef"]["cluster"]),
                    text(&found["status"]["phase"]),
                ]);
            }
        }
        Ok(rows)
    }

    /// `use vcluster`, `use space`: returns the server of the context that it writes.
    async fn use_instance(&self, what: (&str, &str), name: &str) -> Outcome {
        self.check_version().await?;
        let (project, _) = self.find(what, Some(SHOP), name).await?;
        let collection = instances(&project, what.0);
        self.go.get(&format!("{collection}/{name}")).await?;
        let found = self.go.wait_until_ready(&collection, name, LONG).await?;
        self.go.cluster_of(&project, &found).await?;
        Ok(format!("/kubernetes/project/{project}/{}/{name}", what.1))
    }

    /// `share vcluster`, `share space`: returns the warnings of the server, which the client prints.
    pub(crate) async fn share(
        &self,
        what: (&str, &str),
        name: &str,
        rule: &Value,
    ) -> Outcome<Vec<String>> {
        let (project, _) = self.find(what, Some(SHOP), name).await?;
        let collection = instances(&project, what.0);
        let found = self.go.get(&format!("{collection}/{name}")).await?;
        Ok(self.go.update(&collection, &with_rule(&found, rule)).await?.warnings())
    }

    /// `sleep vcluster`: a whole object with one more annotation.
    pub(crate) async fn sleep_vcluster(&self, name: &str) -> Outcome<()> {
        let (project, _) = self.find(VCLUSTER, None, name).await?;
        let collection = instances(&project, VCLUSTER.0);
        let found = self.go.get(&format!("{collection}/{name}")).await?;
        let asleep = annotated(&found, "sleepmode.platform.sh/force", "true");
        self.go.update(&collection, &asleep).await.map(drop)
    }

    /// `sleep space`: a merge patch with one more annotation.
    pub(crate) async fn sleep_space(&self, name: &str) -> Outcome<()> {
        let (project, _) = self.find(SPACE, None, name).await?;
        let collection = instances(&project, SPACE.0);
        let found = self.go.get(&format!("{collection}/{name}")).await?;
        let asleep = annotated(&found, "sleepmode.platform.sh/force", "true");
        let asleep = annotated(&asleep, "sleepmode.platform.sh/force-duration", "0");
        self.go.patch(&collection, &found, &asleep).await.map(drop)
    }

    /// `delete vcluster --wait`, `delete space --wait`
    async fn delete(&self, what: (&str, &str), name: &str) -> Outcome<()> {
        let (project, _) = self.find(what, None, name).await?;
        let one = format!("{}/{name}", instances(&project, what.0));
        self.go.delete(&one).await?;
        postern_tests::wait::until("the instance to be deleted", async || {
            self.go.get(&one).await.is_err().then_some(())
        })
        .await;
        Ok(())
    }

    /// `set secret NAME.KEY VALUE`
    async fn set_secret(
        &self,
        collection: &str,
        name: &str,
        key: &str,
        value: &str,
    ) -> Outcome<()> {
        match self.go.get(&format!("{collection}/{name}")).await {
            Ok(mut found) => {
                found["spec"]["data"][key] = encoded(value).into();
                self.go.update(collection, &found).await.map(drop)
            }
            Err(failure) if failure.code == 404 => {
                let data = json!({ key: encoded(value) });
                let secret = json!({ "metadata": { "name": name }, "spec": { "data": data } });
                self.go.create(collection, &secret).await.map(drop)
            }
            Err(failure) => Err(failure),
        }
    }

    /// `get secret NAME.KEY`
    async fn get_secret(&self, collection: &str, name: &str, key: &str) -> Outcome {
        let found = self.go.get(&format!("{collection}/{name}")).await?;
        Ok(decoded(&found["spec"]["data"][key]))
    }

    /// `list secrets --project P`: the names of the secrets that the caller may use.
    async fn list_project_secrets(&self, project: &str) -> Outcome<Vec<String>> {
        self.go.get(&format!("projects/{project}")).await?;
        let mut names = Vec::new();
        for secret in self.go.list(&instances(project, "projectsecrets")).await? {
            let name = secret["metadata"]["name"].as_str().unwrap();
            let asked = json!({ "verb": "use", "resource": "projectsecrets", "name": name,
                "namespace": secret["metadata"]["namespace"] });
            if self.go.may(asked).await? {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// Base64, as secrets have it.
pub(crate) fn encoded(value: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(value)
}

/// The text of a value of a secret.
pub(crate) fn decoded(value: &Value) -> String {
    use base64::Engine as _;
    let text = value.as_str().expect("the secret has the key");
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn logging_in_and_out() {
    let platform = Platform::start(&FOR_LOFT).await;
    let spec = json!({ "user": "ada", "type": "Login" });
    let key = with_key(&platform.admin, "ada-login", spec).await;
    let loft = Loft::log_in(&key).await.unwrap();
    let user = loft.whoami().await.unwrap();
    assert_eq!(user["name"], "ada");
    assert_eq!(user["username"], "ada.l");
    assert_eq!(user["displayName"], "Ada");
    assert_eq!(user["email"], "ada@shop.test");
    let of_zoe = Loft::log_in(&platform.zoe).await.unwrap().whoami().await.unwrap();
    assert_eq!(of_zoe["teams"], json!([{ "name": "night", "displayName": "Night" }]));
    loft.go.log_out().await.unwrap();
    loft.whoami().await.unwrap_err().expect(401, &["access key"]);
    // Another type of key is not deleted.
    let loft = Loft::log_in(&platform.ada).await.unwrap();
    loft.go.log_out().await.unwrap();
    loft.whoami().await.unwrap();
    // The key of a team.
    let team = with_key(&platform.admin, "night-key", json!({ "team": "night" })).await;
    assert_eq!(Loft::log_in(&team).await.unwrap().whoami().await, Err(nobody()));
}

/// Without the setting, the client compares the major version of Kubernetes with its own.
#[tokio::test]
async fn the_version_that_is_advertised_lets_the_client_in() {
    let server = Server::start().await;
    let refused = Loft::of(&server.client()).check_version().await.unwrap_err();
    assert!(refused.message.starts_with("unsupported version"), "{}", refused.message);
    let platform = Platform::start(&FOR_LOFT).await;
    Loft::of(&platform.eve).check_version().await.unwrap();
    let answer = platform.eve.get("/version").send().await.expect(200);
    assert_eq!(answer["version"], "v0.0.0");
    assert!(answer["gitVersion"].as_str().unwrap().starts_with('v'), "for kubectl: {answer}");
    // Another version has to equal the client's version.
    let setup = Setup::on(&Home::new()).argument("--advertise-version=v3.4.8");
    let server = setup.start().await;
    Loft::of(&server.client()).check_version().await.unwrap();
    let below_base = server.client().get("/kubernetes/management/version").send().await.expect(200);
    assert_eq!(below_base["major"], "1", "kubectl reads this one");
}

#[tokio::test]
async fn lists_show_what_the_caller_may_use() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let row = |name: &str| {
        ["web", "stage"].contains(&name).then(|| [name, SHOP, "member", "Ready"].map(str::to_owned))
    };
    for client in [&platform.ada, &platform.bob] {
        let loft = Loft::of(client);
        assert_eq!(loft.list(VCLUSTER).await.unwrap(), [row("web").unwrap()]);
        assert_eq!(loft.list(SPACE).await.unwrap(), [row("stage").unwrap()]);
    }
    // A viewer sees the project, and may use nothing in it.
    let of_tim = Loft::of(&platform.tim);
    assert_eq!(of_tim.go.list("projects").await.unwrap().len(), 1);
    assert!(of_tim.list(VCLUSTER).await.unwrap().is_empty());
    let of_eve = Loft::of(&platform.eve);
    assert!(of_eve.go.list("projects").await.unwrap().is_empty());
    assert!(of_eve.list(VCLUSTER).await.unwrap().is_empty());
    assert!(of_eve.go.list("clusters").await.unwrap().is_empty());
    let clusters = Loft::of(&platform.admin).go.list("clusters").await.unwrap();
    assert_eq!(clusters[0]["metadata"]["name"], "member");
    assert_eq!(clusters[0]["status"]["phase"], "Ready");
}

#[tokio::test]
async fn secrets_of_a_user_are_in_the_default_namespace() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.let_all_make_secrets("loft").await;
    let loft = Loft::of(&platform.ada);
    let at = "namespaces/loft/sharedsecrets";
    loft.set_secret(at, "db", "password", "hunter2").await.unwrap();
    loft.set_secret(at, "db", "user", "shop").await.unwrap();
    assert_eq!(loft.get_secret(at, "db", "password").await.unwrap(), "hunter2");
    assert_eq!(loft.get_secret(at, "db", "user").await.unwrap(), "shop");
    let all = loft.go.list("sharedsecrets").await.unwrap();
    assert_eq!(all[0]["metadata"]["namespace"], "loft");
    assert_eq!(all[0]["spec"]["data"].as_object().unwrap().len(), 2);
    assert!(Loft::of(&platform.eve).go.list("sharedsecrets").await.unwrap().is_empty());
    Loft::of(&platform.eve).get_secret(at, "db", "user").await.unwrap_err().expect(404, &["db"]);
}

#[tokio::test]
async fn secrets_of_a_project() {
    let platform = Platform::start(&FOR_LOFT).await;
    let loft = Loft::of(&platform.ada);
    let at = instances(SHOP, "projectsecrets");
    loft.set_secret(&at, "db", "password", "hunter2").await.unwrap();
    loft.set_secret(&at, "db", "user", "shop").await.unwrap();
    assert_eq!(loft.get_secret(&at, "db", "password").await.unwrap(), "hunter2");
    assert_eq!(loft.list_project_secrets(SHOP).await.unwrap(), ["db"]);
    // A user of the project may not read its secrets.
    assert!(Loft::of(&platform.bob).list_project_secrets(SHOP).await.unwrap().is_empty());
    Loft::of(&platform.eve).list_project_secrets(SHOP).await.unwrap_err().expect_hidden();
    // The list asks for the verb `use`, so an access rule has to have it.
    let rule =
        |verbs: &[&str]| json!({ "spec": { "access": [{ "verbs": verbs, "users": ["bob"] }] } });
    let one = format!("{}/db", platform.collection("projectsecrets"));
    merge(&platform.ada, &one, rule(&["get"])).await.expect(200);
    assert!(Loft::of(&platform.bob).list_project_secrets(SHOP).await.unwrap().is_empty());
    merge(&platform.ada, &one, rule(&["get", "use"])).await.expect(200);
    assert_eq!(Loft::of(&platform.bob).list_project_secrets(SHOP).await.unwrap(), ["db"]);
}

#[tokio::test]
async fn using_a_cluster_a_virtual_cluster_and_a_space() {
    let platform = Platform::start(&FOR_LOFT).await;
    let loft = Loft::of(&platform.bob);
    for (what, name) in [(VCLUSTER, "web"), (SPACE, "stage")] {
        let server = loft.use_instance(what, name).await.unwrap();
        if what == VCLUSTER {
            assert_reaches(&platform.bob, &server).await;
        } else {
            // A space gives access only to its namespace.
            let namespaces = format!("{server}/api/v1/namespaces");
            let one = |name: &str| format!("{namespaces}/{name}");
            platform.bob.get(&one("platform")).send().await.expect(200);
            platform.bob.get(&one("default")).send().await.expect(403);
        }
        let of_tim = Loft::of(&platform.tim).use_instance(what, name).await.unwrap_err();
        assert!(of_tim.message.contains("couldn't find or access"), "{}", of_tim.message);
        Loft::of(&platform.eve).use_instance(what, name).await.unwrap_err().expect_hidden();
    }
    // `use cluster` reads the cluster. It fails for a caller without the right to get the cluster.
    loft.go.get("clusters/member").await.unwrap_err();
    let found = Loft::of(&platform.admin).go.get("clusters/member").await.unwrap();
    assert_eq!(found["metadata"]["name"], "member");
    assert_reaches(&platform.admin, "/kubernetes/cluster/member").await;
    // The context asks for an endpoint token each time.
    let none = json!({});
    let token = loft.go.create("directclusterendpointtokens", &none).await.unwrap();
    assert!(!token["status"]["token"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn sharing_a_virtual_cluster_gives_access_and_loses_nothing() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let loft = Loft::of(&platform.ada);
    let rule = json!({ "users": ["tim"], "clusterRole": SHARED_ROLE });
    let before = platform.stored(VCLUSTER.0, "web").await;
    let warnings = loft.share(VCLUSTER, "web", &rule).await.unwrap();
    assert!(warnings.iter().any(|text| text.contains("spec.config")), "{warnings:?}");
    let stored = platform.stored(VCLUSTER.0, "web").await;
    assert_eq!(stored["spec"]["extraAccessRules"], json!([rule]));
    assert_eq!(stored["spec"]["config"], before["spec"]["config"]);
    let server = Loft::of(&platform.tim).use_instance(VCLUSTER, "web").await.unwrap();
    assert_reaches(&platform.tim, &server).await;
    // A second one is added to the first.
    let second = json!({ "teams": ["night"], "clusterRole": SHARED_ROLE });
    loft.share(VCLUSTER, "web", &second).await.unwrap();
    let stored = platform.stored(VCLUSTER.0, "web").await;
    assert_eq!(stored["spec"]["extraAccessRules"], json!([rule, second]));
    Loft::of(&platform.zoe).use_instance(VCLUSTER, "web").await.unwrap();
    // A removed rule gives no access.
    let one = format!("{}/web", platform.collection(VCLUSTER.0));
    merge(&platform.ada, &one, json!({ "spec": { "extraAccessRules": [second] } }))
        .await
        .expect(200);
    assert_eq!(platform.tim.get(&format!("{server}/version")).send().await.status, 403);
}

#[tokio::test]
async fn sharing_a_space_gives_access() {
    let platform = Platform::start(&FOR_LOFT).await;
    platform.when_ready().await;
    let rule = json!({ "teams": ["night"], "clusterRole": SHARED_ROLE });
    Loft::of(&platform.ada).share(SPACE, "stage", &rule).await.unwrap();
    assert_eq!(platform.stored(SPACE.0, "stage").await["spec"]["extraAccessRules"], json!([rule]));
    Loft::of(&platform.zoe).use_instance(SPACE, "stage").await.unwrap();
    Loft::of(&platform.tim).use_instance(SPACE, "stage").await.unwrap_err();
}

#[tokio::test]
async fn deleting_a_virtual_cluster_and_a_space() {
    let platform = Platform::start(&FOR_LOFT).await;
    for (what, name) in [(VCLUSTER, "web"), (SPACE, "stage")] {
        Loft::of(&platform.bob).delete(what, name).await.unwrap_err().expect(403, &["delete"]);
        Loft::of(&platform.ada).delete(what, name).await.unwrap();
        let again = Loft::of(&platform.ada).delete(what, name).await.unwrap_err();
        assert!(again.message.contains("couldn't find"), "{}", again.message);
    }
    // The console lists the access keys of a user.
    let keys = Loft::of(&platform.ada).go.get("users/ada/accesskeys").await.unwrap();
    assert_eq!(keys["accessKeys"][0]["metadata"]["name"], "ada-key");
    assert_eq!(keys["items"], keys["accessKeys"]);
    let missing = platform.ada.get(&path("users", "eve")).send().await;
    assert!([403, 404].contains(&missing.status));
}
