//! The story of a team that works without the platform administrator. The project admin, a member
//! with that role, does everything alone. The tutorial tells the same story.

use postern_tests::documents::{run, shell_of};
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, collection};
use postern_tests::rights::{allow, merge, path, user};
use postern_tests::{Home, Setup};
use serde_json::{Value, json};

use crate::platform_clients::scene::{Platform, SHOP, assert_reaches};

/// The virtual cluster at the gateway.
const WEB: &str = "/kubernetes/project/shop/virtualcluster/web";

/// One user of the server.
struct Person<'a> {
    client: &'a Client,
    platform: &'a Platform,
}

impl Person<'_> {
    async fn projects(&self) -> Vec<String> {
        self.names(&collection("projects")).await
    }

    async fn names(&self, list: &str) -> Vec<String> {
        let found = self.client.get(list).send().await.expect(200);
        let items = found["items"].as_array().unwrap().iter();
        items.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn one(&self, resource: &str, name: &str) -> String {
        format!("{}/{name}", self.platform.collection(resource))
    }

    async fn code(&self, path: &str) -> u16 {
        self.client.get(path).send().await.status
    }

    /// Adds a member to the project, as `kubectl edit` does: the whole object with one more entry.
    async fn add_member(&self, name: &str, role: &str) -> Value {
        let project = path("projects", SHOP);
        let mut found = self.client.get(&project).send().await.expect(200);
        let member = json!({ "kind": "User", "name": name, "clusterRole": role });
        found["spec"]["members"].as_array_mut().unwrap().push(member);
        self.client.put(&project).json(&found).send().await.expect(200)
    }
}

#[tokio::test]
async fn a_project_admin_does_it_all_and_a_member_uses_it() {
    let platform = Platform::start(&[]).await;
    let max = user(&platform.admin, "max").await;
    let inside = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }]);
    allow(&platform.upstream.client(), "max", None, inside, "platform:user:max").await;
    let (ada, max) = (
        Person { client: &platform.ada, platform: &platform },
        Person { client: &max, platform: &platform },
    );

    // The admin sees the project.
    assert_eq!(ada.projects().await, [SHOP]);
    let project = path("projects", SHOP);
    for part in ["", "/members", "/clusters", "/templates"] {
        ada.client.get(&format!("{project}{part}")).send().await.expect(200);
    }
    assert!(max.projects().await.is_empty());
    assert!(is_hidden(max.code(&project).await));

    // The admin adds a member without holding `bind` on them.
    ada.add_member("max", "platform-project-viewer").await;
    assert_eq!(max.projects().await, [SHOP]);
    let members = max.client.get(&format!("{project}/members")).send().await.expect(200);
    assert!(members["users"].as_array().unwrap().iter().any(|one| one["info"]["name"] == "max"));

    // The admin makes a project secret, and shares it.
    let data = json!({ "password": "aHVudGVyMg==" });
    let access = json!([{ "verbs": ["get"], "users": ["max"] }]);
    let secret =
        json!({ "metadata": { "name": "db" }, "spec": { "data": data, "access": access } });
    let secrets = platform.collection("projectsecrets");
    ada.client.post(&secrets).json(&secret).send().await.expect(201);
    let read = max.client.get(&max.one("projectsecrets", "db")).send().await.expect(200);
    assert_eq!(read["spec"]["data"], data);

    // The admin shares the virtual cluster, and connects to it.
    assert!(is_hidden(max.code(&format!("{WEB}/version")).await));
    let rules = json!([{ "users": ["max"], "clusterRole": "loft-cluster-space-admin" }]);
    let web = ada.one("virtualclusterinstances", "web");
    merge(ada.client, &web, json!({ "spec": { "extraAccessRules": rules } })).await.expect(200);
    assert_reaches(ada.client, WEB).await;

    // The member uses it with their own identity: the roles in the virtual cluster decide.
    assert_reaches(max.client, WEB).await;
    let namespaces = max.names(&format!("{WEB}/api/v1/namespaces")).await;
    assert!(namespaces.contains(&"platform".to_owned()), "{namespaces:?}");
    assert_eq!(max.code(&format!("{WEB}/api/v1/namespaces/platform/secrets")).await, 403);
    let told = max.client.get(&format!("{web}?extended=true")).send().await.expect(200);
    assert_eq!(told["status"]["canUse"], true);
    assert_eq!(told["status"]["canUpdate"], false);

    outsider_sees_nothing(&platform).await;
    member_may_not_do_what_admins_do(&max, &ada).await;

    // A former member does not see the project.
    let members =
        json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }]);
    merge(ada.client, &project, json!({ "spec": { "members": members } })).await.expect(200);
    assert!(max.projects().await.is_empty());
    assert!(is_hidden(max.code(&project).await));
}

/// Whether the code is one for a hidden object: 404, or 403 if the caller can reach no object of the kind.
fn is_hidden(code: u16) -> bool {
    [403, 404].contains(&code)
}

async fn outsider_sees_nothing(platform: &Platform) {
    let eve = Person { client: &platform.eve, platform };
    assert!(eve.projects().await.is_empty());
    for resource in ["projectsecrets", "virtualclusterinstances", "spaceinstances"] {
        assert!(eve.names(&platform.collection(resource)).await.is_empty(), "{resource}");
        assert!(eve.names(&format!("{GROUP}/{resource}")).await.is_empty(), "{resource}");
    }
    let project = path("projects", SHOP);
    for hidden in [
        project.clone(),
        format!("{project}/members"),
        format!("{project}/templates"),
        eve.one("virtualclusterinstances", "web"),
        eve.one("projectsecrets", "db"),
    ] {
        let none = hidden.replace(SHOP, "none").replace("web", "none").replace("/db", "/none");
        let (found, other) = (eve.code(&hidden).await, eve.code(&none).await);
        assert_eq!(found, other, "{hidden} must not differ from a name that is not there");
        assert!(is_hidden(found), "{hidden}: {found}");
    }
    assert!(is_hidden(eve.code(&format!("{WEB}/version")).await));
}

async fn member_may_not_do_what_admins_do(max: &Person<'_>, ada: &Person<'_>) {
    let project = path("projects", SHOP);
    let change = json!({ "spec": { "members": [] } });
    assert_eq!(merge(max.client, &project, change).await.status, 403);
    let rules = json!([{ "users": ["max"], "clusterRole": "loft-cluster-space-admin" }]);
    let change = json!({ "spec": { "extraAccessRules": rules } });
    let stage = max.one("spaceinstances", "stage");
    assert_eq!(merge(max.client, &stage, change.clone()).await.status, 403);
    // A project admin cannot change the fields that belong to the platform administrator.
    for (field, value) in [
        ("allowedClusters", json!([])),
        ("quotas", json!({ "project": { "spaceinstances": "9" } })),
        ("owner", json!({ "user": "ada" })),
        ("access", json!([{ "verbs": ["*"], "users": ["ada"] }])),
    ] {
        let reply = merge(ada.client, &project, json!({ "spec": { field: value } })).await;
        assert_eq!(reply.status, 403, "{field}: {}", reply.text());
    }
    // A project admin cannot give a role that exceeds their own.
    let mut found = ada.client.get(&project).send().await.expect(200);
    let beyond = json!({ "kind": "User", "name": "eve", "clusterRole": "platform-admin" });
    found["spec"]["members"].as_array_mut().unwrap().push(beyond);
    let reply = ada.client.put(&project).json(&found).send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let deleted = ada.client.delete(&project).send().await;
    assert_eq!(deleted.status, 403);
    // A project admin shares with members alone.
    let eve = json!([{ "users": ["eve"], "clusterRole": "loft-cluster-space-admin" }]);
    let change = json!({ "spec": { "extraAccessRules": eve } });
    let refused = merge(ada.client, &stage, change).await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("eve") && message.contains("member"), "{message}");
    // Only project admins read core Secrets in the namespace of the project.
    let core = format!("{CORE}/namespaces/{}/secrets", max.platform.namespace);
    assert_eq!(max.code(&core).await, 403);
    assert_eq!(ada.code(&core).await, 200);
}

#[tokio::test]
async fn the_tutorial_is_true() {
    let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
    let server = setup.start().await;
    let script = shell_of("docs/tutorials/a-teams-project.md", "# A team's project", "\n## Next");
    let output = run(&server, &script).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    assert_eq!(output.out.matches("hunter2").count(), 1, "Bob reads it: {}", output.out);
    assert_eq!(output.err.matches("No resources found").count(), 2, "{}", output.err);
    assert!(!format!("{}{}", output.out, output.err).contains("pst_"), "no key is on the screen");
    let left = server.kubectl().ok(&["get", "projects,ns", "-A", "-o", "name"]).await;
    assert_eq!(left, "namespace/default\nnamespace/platform\n", "the script deletes its objects");
}
