//! No caller grants more than it holds, nor to users without their consent. Only the server changes
//! the objects that a rule has created.

use postern_tests::http::{Client, Response};
use postern_tests::objects::{make, name_of, secret, secret_path, secrets, version_of};
use postern_tests::rights::{
    allow, binding, merge, path, rbac, role, rule, rule_on, set, user, with_key,
};
use postern_tests::{Server, wait};
use serde_json::{Value, json};

use crate::access::scene::{
    assert_refused, code, make_secret, make_shared, names, share, to_team, to_user, visible,
};

/// The names and the rules of the roles of access rules.
async fn roles_of_rules(admin: &Client) -> Vec<(String, Value)> {
    let label = "labelSelector=platform.sh%2Fmanaged-by%3Daccess-rules";
    let list = format!("{}?{label}", rbac(Some("platform"), "role"));
    let list = admin.get(&list).send().await.expect(200);
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (name_of(item).to_owned(), item["rules"].clone())).collect()
}

async fn try_share(client: &Client, access: Value) -> Response {
    merge(client, &secret_path("s1"), json!({ "spec": { "access": access } })).await
}

#[tokio::test]
async fn an_access_rule_gives_only_what_its_writer_holds() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    user(&admin, "eve").await;
    make(&admin, "teams", "red", json!({ "users": ["ada", "bob"] })).await;
    make(&admin, "teams", "blue", json!({ "users": ["eve"] })).await;
    let kept = to_user("ada", &["get", "patch", "update"]);
    make_shared(&admin, "s1", json!([kept, to_user("bob", &["delete"])])).await;
    let before = to_user("bob", &["delete"]);
    for (entry, wanted) in [
        (to_team("red", &["delete"]), "delete"),
        (to_team("red", &["*"]), "*"),
        (to_team("red", &["get", "delete"]), "delete"),
        (to_user("eve", &["get"]), "bind"),
        (to_team("blue", &["get"]), "bind"),
        (json!({ "verbs": ["get"], "users": ["*"] }), "bind"),
        (json!({ "verbs": ["get"], "teams": ["red"], "users": ["eve"] }), "bind"),
    ] {
        let reply = try_share(&ada, json!([kept, before, entry])).await;
        assert_refused(&reply, &["User \"ada\" cannot", wanted]);
    }
    // ada can give verbs that they hold to their own team. Existing rules stay.
    try_share(&ada, json!([before, kept, to_team("red", &["get"])])).await.expect(200);
    let stored = admin.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(stored["spec"]["access"].as_array().unwrap().len(), 3);
    // A rule that is made wider is a new one.
    let wider = json!([to_user("bob", &["delete", "get"]), kept]);
    assert_refused(&try_share(&ada, wider).await, &["cannot delete"]);
}

#[tokio::test]
async fn every_way_of_writing_an_access_rule_is_checked() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let makes = json!([rule(&["sharedsecrets"], &["create", "get", "update", "patch"])]);
    allow(&admin, "makers", Some("platform"), makes, "platform:user:ada").await;
    make_secret(&admin, "s1").await;
    let wide = json!([{ "verbs": ["delete"], "users": ["ada"] }]);
    let mut put = ada.get(&secret_path("s1")).send().await.expect(200);
    put["spec"]["access"] = wide.clone();
    let mut applied = secret("s1", "one");
    applied["spec"]["access"] = wide.clone();
    let add = json!([{ "op": "add", "path": "/spec/access", "value": wide }]);
    let one = secret_path("s1");
    let owner = json!([{ "op": "add", "path": "/spec/owner", "value": { "user": "ada" } }]);
    for query in ["", "?dryRun=All"] {
        let at = format!("{one}{query}");
        let apply = format!("{one}?fieldManager=x&force=true{}", query.replace('?', "&"));
        let apply = ada.request("PATCH", &apply);
        let apply = apply.body("application/apply-patch+yaml", applied.to_string());
        let merged = json!({ "spec": { "access": wide } });
        for (what, request) in [
            ("PUT", ada.put(&at).json(&put)),
            ("JSON Patch", ada.patch(&at, "json-patch", &add)),
            ("merge patch", ada.patch(&at, "merge-patch", &merged)),
            ("strategic merge patch", ada.patch(&at, "strategic-merge-patch", &merged)),
            ("apply", apply),
            ("owner", ada.patch(&at, "json-patch", &owner)),
        ] {
            let reply = request.send().await;
            // Some of these forms of a patch may not be served.
            let is_refused = reply.status == 403 || (reply.status == 415 && !what.contains("JSON"));
            assert!(is_refused, "{what}{query}: {}", reply.text());
        }
        // The creator has all rights to a new object, but none to other users.
        let mut new = secret("new", "one");
        new["spec"]["access"] = json!([to_user("bob", &["get"])]);
        let reply = ada.post(&format!("{}{query}", secrets("platform"))).json(&new).send().await;
        assert_refused(&reply, &["bind", "users"]);
        new["spec"] = json!({ "owner": { "user": "bob" } });
        let reply = ada.post(&format!("{}{query}", secrets("platform"))).json(&new).send().await;
        assert_refused(&reply, &["makeowner"]);
    }
    assert_eq!(ada.get(&secret_path("new")).send().await.status, 404);
}

#[tokio::test]
async fn roles_and_bindings_give_only_what_their_writer_holds() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let of = |what: &str| rbac(Some("platform"), what);
    let writes = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
            "verbs": ["*"] },
        rule(&["sharedsecrets"], &["get"]),
    ]);
    // `*` has escalate and bind in it.
    allow(&admin, "writers", Some("platform"), writes, "writers-all").await;
    let verbs = ["get", "create", "update", "patch", "delete"];
    let writes = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
            "verbs": verbs },
        rule(&["sharedsecrets"], &["get"]),
    ]);
    allow(&admin, "some", Some("platform"), writes, "platform:user:ada").await;
    for rules in [
        json!([rule(&["sharedsecrets"], &["get", "delete"])]),
        json!([rule(&["*"], &["get"])]),
        json!([rule(&["sharedsecrets"], &["*"])]),
        json!([{ "apiGroups": ["*"], "resources": ["sharedsecrets"], "verbs": ["get"] }]),
    ] {
        let reply = ada.post(&of("role")).json(&role("mine", &rules)).send().await;
        assert_refused(&reply, &["attempting to grant RBAC permissions not currently held"]);
    }
    let held = json!([rule_on("sharedsecrets", &["s1"], &["get"])]);
    ada.post(&of("role")).json(&role("mine", &held)).send().await.expect(201);
    let wider = json!({ "rules": [rule(&["sharedsecrets"], &["delete"])] });
    let one = format!("{}/mine", of("role"));
    assert_refused(&merge(&ada, &one, wider).await, &["not currently held", "delete"]);
    // A binding grants the rights of its role to any subject.
    let to = |name: &str, role: &str| binding(name, Some("platform"), role, "platform:user:ada");
    ada.post(&of("rolebinding")).json(&to("own", "mine")).send().await.expect(201);
    let reply = ada.post(&of("rolebinding")).json(&to("all", "writers")).send().await;
    assert_refused(&reply, &["not currently held"]);
    let mut admins = binding("admins", None, "platform-admin", "platform:user:ada");
    for role in ["platform-admin", "platform-project-admin"] {
        admins["roleRef"]["name"] = json!(role);
        let reply = ada.post(&of("rolebinding")).json(&admins).send().await;
        assert_refused(&reply, &["not currently held"]);
    }
    let gone = ada.post(&of("rolebinding")).json(&to("gone", "no-such-role")).send().await;
    assert_refused(&gone, &["bind"]);
}

#[tokio::test]
async fn new_owners_and_members_need_a_right_of_the_writer() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    make(&admin, "teams", "red", json!({})).await;
    let writes =
        json!([rule(&["users", "teams", "projects"], &["get", "create", "update", "patch"])]);
    allow(&admin, "user-managers", None, writes, "platform:user:ada").await;
    for (resource, spec) in [
        ("projects", json!({ "owner": { "user": "bob" } })),
        (
            "projects",
            json!({ "members": [{ "kind": "User", "name": "bob", "clusterRole": "platform-admin" }] }),
        ),
    ] {
        let object = json!({ "metadata": { "name": "new" }, "spec": spec });
        let at = postern_tests::objects::collection(resource);
        let reply = ada.post(&at).json(&object).send().await;
        assert_eq!(reply.status, 403, "{resource} {spec}: {}", reply.text());
    }
    set(&ada, &path("users", "ada"), json!({ "displayName": "Ada" })).await;
}

#[tokio::test]
async fn hand_edits_of_the_roles_of_access_rules_are_put_back() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let before = roles_of_rules(&admin).await;
    assert_eq!(before.len(), 1, "one for the rule, and none for the owner: {before:?}");
    let (name, _) = &before[0];
    for what in ["role", "rolebinding"] {
        let one = format!("{}/{name}", rbac(Some("platform"), what));
        let found = admin.get(&one).send().await.expect(200);
        assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "s1");
        // The right to change roles does not include these: the server undoes the edit.
        let edit = match what {
            "role" => json!({ "rules": [rule(&["*"], &["*"])] }),
            _ => json!({ "subjects": [] }),
        };
        merge(&admin, &one, edit).await.expect(200);
        wait::until("the edit to be put back", async || {
            let now = admin.get(&one).send().await.expect(200);
            let same = now["rules"] == found["rules"] && now["subjects"] == found["subjects"];
            same.then_some(())
        })
        .await;
        admin.delete(&one).send().await.expect(200);
        wait::until("it to be made again", async || {
            (admin.get(&one).send().await.status == 200).then_some(())
        })
        .await;
    }
    wait::until("the share to work again", async || (code(&ada, "s1").await == 200).then_some(()))
        .await;
    assert_eq!(roles_of_rules(&admin).await, before);
}

#[tokio::test]
async fn the_roles_of_access_rules_are_the_servers() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    allow(&admin, "everything", Some("platform"), all, "platform:user:ada").await;
    let (name, rules) = roles_of_rules(&admin).await.pop().unwrap();
    for what in ["role", "rolebinding"] {
        let of = rbac(Some("platform"), what);
        let one = format!("{of}/{name}");
        let edit = json!({ "metadata": { "labels": { "a": "b" } } });
        assert_refused(&merge(&ada, &one, edit).await, &["platform:"]);
        assert_refused(&ada.delete(&one).send().await, &["platform:"]);
    }
    let own = role("platform:access:sharedsecrets:s2:0", &rules);
    let reply = ada.post(&rbac(Some("platform"), "role")).json(&own).send().await;
    assert_refused(&reply, &["platform:"]);
    ada.delete(&rbac(Some("platform"), "role")).send().await;
    assert_eq!(roles_of_rules(&admin).await.len(), 1);
}

#[tokio::test]
async fn no_generated_name_is_one_of_the_servers() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    allow(&admin, "everything", Some("platform"), all, "platform:user:ada").await;
    let object = json!({ "metadata": { "generateName": "platform:access:x:" }, "rules": [] });
    let at = rbac(Some("platform"), "role");
    let reply = ada.post(&at).json(&object).send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

#[tokio::test]
async fn a_namesake_has_none_of_the_shares() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    make_shared(&admin, "to-ada", json!([to_user("ada", &["get"])])).await;
    make_shared(&admin, "to-red", json!([to_team("red", &["get"])])).await;
    let mut owned = secret("owned", "one");
    owned["spec"]["owner"] = json!({ "user": "ada" });
    admin.post(&secrets("platform")).json(&owned).send().await.expect(201);
    admin.delete(&path("users", "ada")).send().await.expect(200);
    admin.delete(&path("teams", "red")).send().await.expect(200);
    let gone = async || {
        (admin.get(&path("ownedaccesskeys", "ada-key")).send().await.status == 404).then_some(())
    };
    wait::until("the key to be deleted with its owner", gone).await;
    let ada = user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    assert!(visible(&ada).await.is_empty());
    for name in ["to-ada", "to-red", "owned"] {
        assert_eq!(code(&ada, name).await, 404, "{name}");
        // Touching the object does not give it to the namesake.
        set(&admin, &secret_path(name), json!({ "displayName": "touched" })).await;
        assert_eq!(code(&ada, name).await, 404, "{name}");
    }
    share(&admin, "to-ada", json!([])).await;
    share(&admin, "to-ada", json!([to_user("ada", &["get"])])).await;
    assert_eq!(visible(&ada).await, ["to-ada"], "shared anew");
    let robot = with_key(&admin, "robot", json!({ "subject": "robot" })).await;
    assert!(visible(&robot).await.is_empty());
}

#[tokio::test]
async fn an_objects_roles_go_in_its_own_transaction() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let list = admin.get(&secrets("platform")).send().await.expect(200);
    let since = format!("&resourceVersion={}", version_of(&list));
    let wanted: Vec<String> =
        roles_of_rules(&admin).await.into_iter().map(|(name, _)| name).collect();
    admin.delete(&secret_path("s1")).send().await.expect(200);
    let deleted = admin.watch(&secrets("platform"), &since).await.take(1).await.remove(0);
    assert_eq!(deleted.summary(), "DELETED s1");
    for what in ["role", "rolebinding"] {
        let mut events = admin.watch(&rbac(Some("platform"), what), &since).await;
        let mut gone = Vec::new();
        for event in events.take(1).await {
            assert_eq!(event.version() >> 8, deleted.version() >> 8, "one transaction");
            assert_eq!(event.kind, "DELETED");
            gone.push(name_of(&event.object).to_owned());
        }
        gone.sort();
        assert_eq!(gone, wanted);
        let left = admin.get(&rbac(Some("platform"), what)).send().await.expect(200);
        assert!(names(&left).is_empty());
    }
    // The next one of this name begins without shares.
    make_secret(&admin, "s1").await;
    assert_eq!(roles_of_rules(&admin).await.len(), 0);
}

/// The roles of access rules are made with the object. If another writer has just made them, that
/// is a change of the object, and the server tries a patch again.
#[tokio::test]
async fn access_rules_that_are_written_at_the_same_time_are_all_answered() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    for round in 0..15 {
        let name = format!("s{round}");
        make_secret(&admin, &name).await;
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let (admin, path) = (admin.clone(), secret_path(&name));
            writers.spawn(async move {
                let access = json!([to_user("bob", &["get"])]);
                merge(&admin, &path, json!({ "spec": { "access": access } })).await
            });
        }
        while let Some(reply) = writers.join_next().await {
            reply.unwrap().expect(200);
        }
    }
}
