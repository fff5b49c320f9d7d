//! The lists of a project, and the fields of an instance about its caller.

use postern_tests::Server;
use postern_tests::objects::{GROUP, make};
use postern_tests::rights::{allow, path, rule, rule_on, set, user, with_key};
use serde_json::{Value, json};

use crate::projects::scene::{instances, of_project, two_projects};

#[tokio::test]
async fn members_are_listed_with_their_names_and_roles() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    set(&admin, &path("users", "ada"), json!({ "displayName": "Ada", "username": "ada1" })).await;
    make(&admin, "teams", "red", json!({ "displayName": "Red" })).await;
    make(&admin, "users", "bob", json!({ "displayName": "Bob" })).await;
    let spec = json!({ "members": [
        { "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" },
        { "kind": "Team", "name": "red" },
        { "kind": "User", "name": "bob" },
    ] });
    make(&admin, "projects", "p", spec).await;
    // A namesake is no member.
    admin.delete(&path("users", "bob")).send().await.expect(200);
    make(&admin, "users", "bob", json!({ "displayName": "Another" })).await;
    let listed = admin.get(&of_project("p", "members")).send().await.expect(200);
    assert_eq!(listed["kind"], "ProjectMembers");
    assert_eq!(listed["metadata"]["name"], "p");
    assert_eq!(
        listed["users"],
        json!([
            { "info": { "name": "ada", "displayName": "Ada", "username": "ada1" },
              "clusterRole": "platform-project-admin" },
            { "info": { "name": "bob" }, "clusterRole": "platform-project-user" },
        ])
    );
    assert_eq!(
        listed["teams"],
        json!([{ "info": { "name": "red", "displayName": "Red" },
            "clusterRole": "platform-project-user" }])
    );
    // A member sees them, and another caller only by a role.
    ada.get(&of_project("p", "members")).send().await.expect(200);
    let eve = user(&admin, "eve").await;
    assert_eq!(eve.get(&of_project("p", "members")).send().await.status, 403);
    let rules = json!([rule_on("projects/members", &["p"], &["get"])]);
    allow(&admin, "lists", None, rules, "platform:user:eve").await;
    eve.get(&of_project("p", "members")).send().await.expect(200);
    assert_eq!(eve.get(&of_project("p", "clusters")).send().await.status, 404);
    assert_eq!(admin.get(&of_project("none", "members")).send().await.status, 404);
}

fn names(list: &Value) -> Vec<&str> {
    let clusters = list["clusters"].as_array().unwrap().iter();
    clusters.map(|one| one["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn clusters_are_those_that_the_project_allows_and_the_caller_may_know() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    let config = json!({ "secretName": "s", "secretNamespace": "platform" });
    make(&admin, "clusters", "c3", json!({ "displayName": "Third", "config": config })).await;
    let ada = user(&admin, "ada").await;
    let clusters = of_project("a", "clusters");
    let all = admin.get(&clusters).send().await.expect(200);
    assert_eq!(names(&all), ["c1", "c2", "c3"]);
    assert_eq!(all["kind"], "ProjectClusters");
    assert_eq!(all["clusters"][2]["kind"], "Cluster");
    assert_eq!(all["clusters"][2]["spec"], json!({ "displayName": "Third" }));
    let rules = json!([
        rule(&["projects", "projects/clusters", "projects/members"], &["get"]),
        rule_on("clusters", &["c3"], &["use"]),
        rule_on("clusters", &["c2"], &["get"]),
    ]);
    allow(&admin, "some", None, rules, "platform:user:ada").await;
    assert_eq!(names(&ada.get(&clusters).send().await.expect(200)), ["c2", "c3"]);
    // All readers of the list see the clusters that the project names.
    let some = json!([{ "name": "c1" }, { "name": "c3" }, { "name": "gone" }]);
    set(&admin, &path("projects", "a"), json!({ "allowedClusters": some })).await;
    assert_eq!(names(&admin.get(&clusters).send().await.expect(200)), ["c1", "c3"]);
    assert_eq!(names(&ada.get(&clusters).send().await.expect(200)), ["c1", "c3"]);
    // Scopes reach the lists: the one of a project, and the one of the command line.
    for (name, scope) in [
        ("of-project", json!({ "projects": [{ "project": "a" }] })),
        ("of-cli", json!({ "allowPlatformCli": true })),
    ] {
        let key = with_key(&admin, name, json!({ "user": "ada", "scope": scope })).await;
        assert_eq!(names(&key.get(&clusters).send().await.expect(200)), ["c1", "c3"], "{name}");
        key.get(&of_project("a", "members")).send().await.expect(200);
    }
    let other = json!({ "user": "ada", "scope": { "projects": [{ "project": "b" }] } });
    let other = with_key(&admin, "other", other).await;
    assert!([403, 404].contains(&other.get(&clusters).send().await.status));
    set(&admin, &path("projects", "a"), json!({ "allowedClusters": [] })).await;
    assert!(names(&admin.get(&clusters).send().await.expect(200)).is_empty());
}

#[tokio::test]
async fn an_instance_says_to_who_asks_what_they_may_do() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    let ada = user(&admin, "ada").await;
    let rules = json!([rule(&["virtualclusterinstances"], &["get", "list", "watch", "use"])]);
    allow(&admin, "uses", None, rules, "platform:user:ada").await;
    let (all, one) = (instances("a"), format!("{}/v", instances("a")));
    let phase = admin.get(&one).send().await.expect(200)["status"].clone();
    assert_eq!((&phase["phase"], &phase["reason"]), (&json!("Pending"), &json!("NoAgent")));
    let with = |told: Value| {
        let mut status = phase.clone();
        status.as_object_mut().unwrap().extend(told.as_object().unwrap().clone());
        status
    };
    let told = with(json!({ "canUse": true, "canUpdate": false }));
    let all_told = with(json!({ "canUse": true, "canUpdate": true }));
    for (client, wanted) in [(&ada, &told), (&admin, &all_told)] {
        let got = client.get(&format!("{one}?extended=true")).send().await.expect(200);
        assert_eq!(&got["status"], wanted);
        let list = client.get(&format!("{all}?extended=true")).send().await.expect(200);
        assert_eq!(&list["items"][0]["status"], wanted);
        let event = client.watch(&all, "&extended=true&resourceVersion=0").await.take(1).await;
        assert_eq!(&event[0].object["status"], wanted);
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let whole = format!("{all}?extended=true&includeObject=Object");
    let table = ada.get(&whole).accept(table).send().await.expect(200);
    assert_eq!(table["rows"][0]["object"]["status"], told);
    for query in ["", "?extended=false"] {
        let got = ada.get(&format!("{one}{query}")).send().await.expect(200);
        assert_eq!(got["status"], phase, "{query}");
    }
    let got = ada.get(&format!("{one}?extended=perhaps")).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    let spaces = format!("{GROUP}/namespaces/p-a/spaceinstances");
    let space = json!({ "metadata": { "name": "s" }, "spec": {} });
    admin.post(&spaces).json(&space).send().await.expect(201);
    let got = admin.get(&format!("{spaces}/s?extended=true")).send().await.expect(200);
    assert_eq!(
        (&got["status"]["canUse"], &got["status"]["canUpdate"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(got["status"]["reason"], "NoCluster");
}
