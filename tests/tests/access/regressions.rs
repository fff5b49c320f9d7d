//! Bugs that an attack or a test found once, and that must not come back.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{collection, make, secret_path, secrets, version_of};
use postern_tests::rights::{
    RBAC_GROUP, allow, merge, path, rbac, role, rule, set, user, with_key,
};
use serde_json::{Value, json};

use crate::access::scene::{code, make_secret, make_shared, to_user, visible};

#[tokio::test]
async fn no_answer_tells_whether_a_key_of_another_owner_exists() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let of = |name: &str| path("ownedaccesskeys", name);
    for method in ["GET", "DELETE", "PATCH"] {
        let mut codes = Vec::new();
        for name in ["bob-key", "never"] {
            let request = ada.request(method, &of(name));
            let patched = method == "PATCH";
            let request =
                if patched { request.body("application/merge-patch+json", "{}") } else { request };
            codes.push(request.send().await.status);
        }
        assert_eq!(codes, [404, 404], "{method}");
    }
}

#[tokio::test]
async fn a_deleted_collection_shows_no_data_to_those_who_may_not_get() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["delete"])])).await;
    for query in ["?dryRun=All", ""] {
        let reply = ada.delete(&format!("{}{query}", secrets("platform"))).send().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(!reply.text().contains("b25l"), "{query}: {}", reply.text());
    }
}

#[tokio::test]
async fn kep_4006_an_upgrade_is_not_a_read() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let request = ada.get(&secret_path("s1"));
    let request = request.header("connection", "Upgrade").header("upgrade", "websocket");
    let request = request.header("sec-websocket-version", "13");
    let reply = request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==").send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

async fn ada_refused(admin: &Client, resource: &str, spec: Value) {
    let ada = user(admin, "ada").await;
    user(admin, "bob").await;
    make(admin, "teams", "red", json!({})).await;
    let writes = json!([rule(&["users", "teams"], &["get", "create", "update", "patch"])]);
    allow(admin, "user-managers", None, writes, "platform:user:ada").await;
    let one = if resource == "users" { path("users", "ada") } else { path("teams", "red") };
    let reply = merge(&ada, &one, json!({ "spec": spec })).await;
    assert_eq!(reply.status, 403, "change {spec}: {}", reply.text());
    let object = json!({ "metadata": { "name": "new" }, "spec": spec });
    let reply = ada.post(&collection(resource)).json(&object).send().await;
    assert_eq!(reply.status, 403, "create {spec}: {}", reply.text());
}

#[tokio::test]
async fn groups_of_a_user_need_impersonate() {
    let server = Server::start().await;
    ada_refused(&server.client(), "users", json!({ "groups": ["ops"] })).await;
}

#[tokio::test]
async fn masters_is_for_masters() {
    let server = Server::start().await;
    ada_refused(&server.client(), "users", json!({ "groups": ["system:masters"] })).await;
}

#[tokio::test]
async fn a_subject_needs_impersonate() {
    let server = Server::start().await;
    ada_refused(&server.client(), "users", json!({ "subject": "robot" })).await;
}

#[tokio::test]
async fn groups_of_a_team_need_impersonate() {
    let server = Server::start().await;
    ada_refused(&server.client(), "teams", json!({ "groups": ["ops"] })).await;
}

#[tokio::test]
async fn members_of_a_team_need_bind() {
    let server = Server::start().await;
    let admin = server.client();
    ada_refused(&admin, "teams", json!({ "users": ["bob"] })).await;
}

#[tokio::test]
async fn adding_oneself_to_a_team_needs_bind() {
    let server = Server::start().await;
    let admin = server.client();
    ada_refused(&admin, "teams", json!({ "users": ["ada"] })).await;
}

#[tokio::test]
async fn groups_subjects_and_usernames_have_no_blanks_at_the_ends() {
    let server = Server::start().await;
    let admin = server.client();
    let mut taken = Vec::new();
    for (index, text) in
        [" ops", "ops ", "a,b", "e\u{301}", "\u{200b}x", "x\u{a0}"].into_iter().enumerate()
    {
        for (field, value) in
            [("groups", json!([text])), ("subject", json!(text)), ("username", json!(text))]
        {
            let name = format!("u{index}-{field}");
            let object = json!({ "metadata": { "name": name }, "spec": { field: value } });
            let reply = admin.post(&collection("users")).json(&object).send().await;
            if reply.status != 422 {
                taken.push(format!("{field} {text:?}: {}", reply.status));
            }
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

#[tokio::test]
async fn a_key_ends_with_the_key_that_made_it() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all = json!({ "scope": { "rules": [{}] } });
    let parent = with_key(&ada, "parent", all.clone()).await;
    let child = with_key(&parent, "child", all).await;
    let object = admin.get(&path("ownedaccesskeys", "child")).send().await.expect(200);
    assert_eq!(code(&child, "s1").await, 404);
    set(&admin, &path("ownedaccesskeys", "parent"), json!({ "disabled": true })).await;
    assert_eq!(code(&child, "s1").await, 401, "{}", object["metadata"]);
}

#[tokio::test]
async fn a_project_can_be_made_with_its_members() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let members = json!([{ "kind": "User", "name": "ada" }]);
    make(&admin, "projects", "shop", json!({ "members": members })).await;
}

#[tokio::test]
async fn allowed_clusters_hold() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "clusters", "c1", json!({})).await;
    make(&admin, "projects", "shop", json!({ "allowedClusters": [] })).await;
    let instance = json!({ "metadata": { "name": "vc" },
        "spec": { "clusterRef": { "cluster": "c1", "namespace": "n", "virtualCluster": "v" } } });
    let at = collection("namespaces/p-shop/virtualclusterinstances");
    let reply = admin.post(&at).json(&instance).send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

#[tokio::test]
async fn quotas_hold() {
    let server = Server::start().await;
    let admin = server.client();
    let quotas = json!({ "project": { "projectsecrets": "1" } });
    make(&admin, "projects", "shop", json!({ "quotas": quotas })).await;
    let at = collection("namespaces/p-shop/projectsecrets");
    let mut codes = Vec::new();
    for name in ["a", "b"] {
        let object = json!({ "metadata": { "name": name }, "spec": { "data": {} } });
        codes.push(admin.post(&at).json(&object).send().await.status);
    }
    assert_eq!(codes, [201, 403]);
}

#[tokio::test]
async fn the_past_shows_only_what_its_caller_might_get_then_and_may_get_now() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "lost", json!([to_user("ada", &["get"])])).await;
    for name in ["a", "b", "s1"] {
        make_secret(&admin, name).await;
    }
    let then = version_of(&admin.get(&secrets("platform")).send().await.expect(200));
    let all = format!("{}?limit=1", secrets("platform"));
    let page = ada.get(&all).send().await.expect(200);
    // A new value is shared; the old one was not. And a share is taken back.
    let new = json!({ "data": { "value": "dHdv" }, "access": [to_user("ada", &["get"])] });
    set(&admin, &secret_path("s1"), new).await;
    set(&admin, &secret_path("lost"), json!({ "access": [] })).await;
    assert_eq!(visible(&ada).await, ["s1"]);
    let exact = format!("?resourceVersion={then}&resourceVersionMatch=Exact");
    let mut queries = vec![exact.clone(), format!("{exact}&limit=2")];
    queries.push(format!("?watch=true&timeoutSeconds=1&resourceVersion={then}"));
    let token = page["metadata"]["continue"].as_str();
    queries.extend(token.map(|token| format!("?limit=5&continue={token}")));
    for query in queries {
        for namespace in [secrets("platform"), postern_tests::objects::collection("sharedsecrets")]
        {
            let reply = ada.get(&format!("{namespace}{query}")).send().await;
            // "one", in base64.
            assert!(!reply.text().contains("b25l"), "{query}: {}", reply.text());
        }
    }
}

/// The number of objects tells about those that the caller could not see then.
#[tokio::test]
async fn a_past_list_counts_no_objects_that_its_caller_could_not_see_then() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "a", json!([to_user("ada", &["get"])])).await;
    for name in ["b", "c"] {
        make_secret(&admin, name).await;
    }
    let then = version_of(&admin.get(&secrets("platform")).send().await.expect(200));
    let reads = json!([rule(&["sharedsecrets"], &["get", "list"])]);
    allow(&admin, "reads", Some("platform"), reads, "platform:user:ada").await;
    let past = format!("resourceVersion={then}&resourceVersionMatch=Exact&limit=1");
    let of = format!("{}?{past}&fieldSelector=metadata.name%5E%3D", secrets("platform"));
    for (client, wanted) in [(&ada, Value::Null), (&admin, json!(2))] {
        let page = client.get(&of).send().await.expect(200);
        assert_eq!(page["items"][0]["metadata"]["name"], "a", "{page}");
        assert_eq!(page["metadata"]["remainingItemCount"], wanted, "{page}");
    }
}

/// An administrator of a project may write bindings with any subject, and could ask for a thousand names at a time.
#[tokio::test]
async fn a_review_tells_nothing_about_users_that_its_caller_may_not_get() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let member = json!({ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" });
    make(&admin, "projects", "web", json!({ "members": [member] })).await;
    let reads = role("reads", &json!([rule(&["projectsecrets"], &["get"])]));
    admin.post(&rbac(Some("p-web"), "role")).json(&reads).send().await.expect(201);
    let subjects: Vec<Value> = ["bob", "eve"]
        .iter()
        .map(|name| json!({ "kind": "User", "name": name, "apiGroup": RBAC_GROUP }))
        .collect();
    let binding = json!({
        "metadata": { "name": "reads" },
        "roleRef": { "kind": "Role", "name": "reads", "apiGroup": RBAC_GROUP },
        "subjects": subjects,
    });
    ada.post(&rbac(Some("p-web"), "rolebinding")).json(&binding).send().await.expect(201);
    let (group, resource) = ("management.platform.sh", "projectsecrets");
    let of_object = json!({ "verb": "get", "group": group, "resource": resource, "namespace": "p-web", "name": "x" });
    let asked = json!({ "spec": of_object });
    let kinds = async |client: &Client| {
        let review = client.post(&collection("resourceaccessreviews")).json(&asked);
        let review = review.send().await.expect(201);
        let rows = review["status"]["subjects"].as_array().unwrap().clone();
        let of =
            |name: &str| rows.iter().find(|row| row["name"] == name).map(|row| row["kind"].clone());
        [of("bob"), of("eve")]
    };
    assert_eq!(kinds(&ada).await, [Some(json!("Subject")), Some(json!("Subject"))]);
    assert_eq!(kinds(&admin).await, [Some(json!("User")), Some(json!("Subject"))]);
}

#[tokio::test]
async fn who_makes_a_namesake_does_not_read_the_past_of_the_earlier_one() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let makes = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makes, "platform:user:*").await;
    make_secret(&admin, "db").await;
    let then = version_of(&admin.get(&secrets("platform")).send().await.expect(200));
    admin.delete(&secret_path("db")).send().await.expect(200);
    let own = postern_tests::objects::secret("db", "two");
    ada.post(&secrets("platform")).json(&own).send().await.expect(201);
    let exact = format!("?resourceVersion={then}&resourceVersionMatch=Exact");
    let reply = ada.get(&format!("{}{exact}", secrets("platform"))).send().await;
    // "one", in base64.
    assert!(!reply.text().contains("b25l"), "{}", reply.text());
}

#[tokio::test]
async fn self_does_not_tell_whether_a_key_exists() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let mut replies = Vec::new();
    for name in ["bob-key", "never"] {
        let ask = json!({ "spec": { "accessKey": name } });
        let reply = ada.post(&collection("selves")).json(&ask).send().await;
        replies.push((reply.status, reply.text().replace(name, "NAME")));
    }
    assert_eq!(replies[0], replies[1]);
}

#[tokio::test]
async fn a_scoped_key_makes_no_key_that_lives_by_its_use() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let spec = json!({ "user": "ada", "scope": { "rules": [{}] } });
    let key = with_key(&admin, "parent", spec).await;
    let spec = json!({ "scope": {}, "ttlAfterLastActivity": true, "ttl": 600 });
    let reply =
        key.post(&collection("ownedaccesskeys")).json(&json!({ "spec": spec })).send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

#[tokio::test]
async fn a_key_made_by_a_scoped_key_names_it_as_its_maker() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let spec = json!({ "user": "ada", "scope": { "rules": [{}] } });
    let key = with_key(&admin, "parent", spec).await;
    make(&key, "ownedaccesskeys", "child", json!({ "scope": {} })).await;
    let child = admin.get(&path("ownedaccesskeys", "child")).send().await.expect(200);
    assert_eq!(child["status"]["maker"]["name"], "parent");
    assert!(child["metadata"]["ownerReferences"].is_null(), "{child}");
}
