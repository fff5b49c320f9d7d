//! terraform-provider-loft 1.0.0: the documented examples of its resources, the instances without templates. Each is
//! applied, planned again, changed and destroyed.

use postern_tests::http::Client;
use postern_tests::rights::merge;
use serde_json::{Map, Value, json};

use crate::platform_clients::go::{GoClient, Outcome};
use crate::platform_clients::scene::Platform;
use crate::platform_clients::typed::Age;

/// An attribute of a resource: its name in an object, and whether the server may choose it.
struct Attribute {
    name: &'static str,
    is_computed: bool,
}

const fn given(name: &'static str) -> Attribute {
    Attribute { name, is_computed: false }
}

const fn computed(name: &'static str) -> Attribute {
    Attribute { name, is_computed: true }
}

const PROJECT: &[Attribute] = &[
    computed("access"),
    given("allowedClusters"),
    given("allowedTemplates"),
    given("argoCD"),
    given("description"),
    given("displayName"),
    given("members"),
    given("namespacePattern"),
    computed("owner"),
    given("quotas"),
];

const INSTANCE: &[Attribute] = &[
    computed("access"),
    computed("clusterRef"),
    given("description"),
    given("displayName"),
    given("extraAccessRules"),
    computed("owner"),
    given("parameters"),
    given("template"),
    given("templateRef"),
];

/// One resource of a configuration.
struct Resource<'a> {
    go: &'a GoClient,
    collection: String,
    name: &'static str,
    attributes: &'static [Attribute],
    config: Value,
}

impl Resource<'_> {
    fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    /// Reads the object, as after each change and before each plan.
    async fn read(&self) -> Outcome<Value> {
        self.go.get(&self.path()).await
    }

    /// `terraform apply`, the first time.
    async fn create(&self) -> Outcome<()> {
        let object = json!({ "metadata": { "name": self.name }, "spec": self.config });
        self.go.create(&self.collection, &object).await?;
        self.read().await.map(drop)
    }

    /// `terraform plan`: the attributes that differ from the configuration.
    async fn plan(&self) -> Outcome<Vec<String>> {
        let found = self.read().await?["spec"].clone();
        let differs = |attribute: &&Attribute| {
            let wanted = without_empty(&self.config[attribute.name]);
            let is_open = wanted.is_null() && attribute.is_computed;
            !is_open && wanted != without_empty(&found[attribute.name])
        };
        let changes = self.attributes.iter().filter(differs);
        Ok(changes.map(|attribute| attribute.name.to_owned()).collect())
    }

    /// `terraform apply` of another configuration: a merge patch from the stored object.
    async fn update(&mut self, config: Value) -> Outcome<()> {
        self.config = config;
        let found = self.read().await?;
        let mut wanted = found.clone();
        wanted["spec"] = self.config.clone();
        // For a computed attribute that the configuration leaves out, the state counts.
        for attribute in self.attributes.iter().filter(|attribute| attribute.is_computed) {
            if self.config[attribute.name].is_null() {
                wanted["spec"][attribute.name] = found["spec"][attribute.name].clone();
            }
        }
        self.go.patch(&self.collection, &found, &wanted).await?;
        self.read().await.map(drop)
    }

    /// `terraform destroy`
    async fn destroy(&self) -> Outcome<()> {
        self.go.delete(&self.path()).await.map(drop)
    }

    /// Applies, plans, changes and destroys it.
    async fn live(&mut self, change: &Value) {
        self.create().await.unwrap();
        assert_eq!(self.plan().await.unwrap(), Vec::<String>::new(), "after the first apply");
        let mut config = self.config.clone();
        for (name, value) in change.as_object().unwrap() {
            config[name] = value.clone();
        }
        self.update(config).await.unwrap();
        assert_eq!(self.plan().await.unwrap(), Vec::<String>::new(), "after the change");
    }
}

/// The value as Terraform compares it: an empty value equals an absent one. `null` if nothing is left.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(without_empty).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), without_empty(value)));
            let fields: Map<_, _> = fields.filter(|(_, value)| !value.is_null()).collect();
            if fields.is_empty() { Value::Null } else { Value::Object(fields) }
        }
        Value::String(text) if text.is_empty() => Value::Null,
        Value::Bool(false) | Value::Array(_) => Value::Null,
        other => other.clone(),
    }
}

/// Logs in as the provider does when it is configured.
async fn configured(http: &Client) -> GoClient {
    let go = GoClient::new(http, Age::V31);
    let version = go.get_raw("/version").await.unwrap();
    version["major"].as_str().unwrap().parse::<u32>().expect("the client parses it");
    go.myself().await.unwrap();
    go
}

/// The documented project. Its templates are kept, and have no effect.
fn example_project() -> Value {
    let counts = json!({ "spaceinstances": "10", "virtualclusterinstances": "10" });
    json!({
        "access": [
            { "name": "loft-admin-access", "verbs": ["get", "update", "patch", "delete"],
              "subresources": ["*"], "users": ["admin"] },
            { "name": "loft-access", "verbs": ["get"], "users": ["*"],
              "subresources": ["members", "clusters", "templates", "chartinfo", "charts"] },
        ],
        "allowedClusters": [{ "name": "*" }],
        "allowedTemplates": [
            { "kind": "VirtualClusterTemplate", "group": "storage.platform.sh", "name": "*" },
            { "kind": "SpaceTemplate", "group": "storage.platform.sh", "name": "*" },
        ],
        "description": "Terraform Managed Project",
        "displayName": "Terraform Managed Project",
        "members": [{ "kind": "User", "group": "storage.platform.sh", "name": "*",
            "clusterRole": "loft-management-project-user" }],
        "owner": { "user": "admin" },
        "quotas": { "project": counts, "user": counts },
    })
}

fn project(go: &GoClient, config: Value) -> Resource<'_> {
    let collection = "projects".to_owned();
    Resource { go, collection, name: "example-project", attributes: PROJECT, config }
}

#[tokio::test]
async fn the_documented_project() {
    let platform = Platform::start(&[]).await;
    let go = configured(&platform.admin).await;
    let mut project = project(&go, example_project());
    let counts = json!({ "spaceinstances": "2", "virtualclusterinstances": "10" });
    let change = json!({
        "description": "Changed",
        "quotas": { "project": counts, "user": counts },
        "members": [{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }],
    });
    project.live(&change).await;
    assert_eq!(project.read().await.unwrap()["spec"]["description"], "Changed");
    project.destroy().await.unwrap();
    project.read().await.unwrap_err().expect(404, &["example-project"]);
}

#[tokio::test]
async fn the_documented_space() {
    let platform = Platform::start(&[]).await;
    let go = configured(&platform.admin).await;
    let config = json!({ "clusterRef": { "cluster": "member", "namespace": "example" } });
    let collection = platform.within("spaceinstances");
    let mut space =
        Resource { go: &go, collection, name: "example-space", attributes: INSTANCE, config };
    let rules = json!([{ "users": ["bob"], "clusterRole": "loft-cluster-space-admin" }]);
    space.live(&json!({ "displayName": "Example", "extraAccessRules": rules })).await;
    assert_eq!(space.read().await.unwrap()["spec"]["owner"], json!({ "user": "admin" }));
    space.destroy().await.unwrap();
    space.read().await.unwrap_err().expect(404, &["example-space"]);
}

/// A kubeconfig that was set by another client is kept by an update.
#[tokio::test]
async fn the_documented_virtual_cluster() {
    let platform = Platform::start(&[]).await;
    let go = configured(&platform.admin).await;
    let at = json!({ "cluster": "member", "namespace": "example", "virtualCluster": "example" });
    let config = json!({ "owner": { "user": "admin" }, "clusterRef": at });
    let collection = platform.within("virtualclusterinstances");
    let mut instance =
        Resource { go: &go, collection, name: "example-vcluster", attributes: INSTANCE, config };
    instance.create().await.unwrap();
    let one = format!("{}/example-vcluster", platform.collection("virtualclusterinstances"));
    let reference = json!({ "secretName": "web" });
    merge(&platform.admin, &one, json!({ "spec": { "config": reference } })).await.expect(200);
    assert_eq!(instance.plan().await.unwrap(), Vec::<String>::new());
    let rules = json!([
        { "users": ["tim"], "clusterRole": "loft-cluster-space-admin" },
        { "teams": ["night"], "clusterRole": "loft-cluster-space-admin" },
    ]);
    let mut config = instance.config.clone();
    config["description"] = "Changed".into();
    config["extraAccessRules"] = rules;
    instance.update(config.clone()).await.unwrap();
    assert_eq!(instance.plan().await.unwrap(), Vec::<String>::new());
    let found = instance.read().await.unwrap();
    assert_eq!(found["spec"]["config"]["secretName"], "web", "{found}");
    // An attribute that is removed from the configuration is removed from the object.
    config.as_object_mut().unwrap().remove("extraAccessRules");
    instance.update(config).await.unwrap();
    assert_eq!(instance.plan().await.unwrap(), Vec::<String>::new());
    let found = instance.read().await.unwrap();
    assert!(found["spec"].get("extraAccessRules").is_none(), "{found}");
    instance.destroy().await.unwrap();
    instance.read().await.unwrap_err().expect(404, &["example-vcluster"]);
}

/// If a template were dropped from the answer, each plan would add it again.
#[tokio::test]
async fn what_would_be_in_every_plan_is_refused_by_name() {
    let platform = Platform::start(&[]).await;
    let go = configured(&platform.admin).await;
    let at = json!({ "cluster": "member", "namespace": "example" });
    for (field, value) in [
        ("templateRef", json!({ "name": "isolated-space" })),
        ("template", json!({ "objects": "kind: ConfigMap" })),
        ("parameters", json!("size: 1")),
    ] {
        let config = json!({ "clusterRef": at, field: value });
        let collection = platform.within("spaceinstances");
        let space =
            Resource { go: &go, collection, name: "example-space", attributes: INSTANCE, config };
        space.create().await.unwrap_err().expect(422, &[&format!("spec.{field}")]);
    }
}
