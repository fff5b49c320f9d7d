//! Whom a caller may name in access rules, and what a new user may do, without any role from an administrator.

use std::ops::Range;

use postern_tests::http::{Client, Response};
use postern_tests::objects::{collection, create, make, secret, secrets};
use postern_tests::rights::{allow, merge, path, rbac, rule, set, user, with_key};
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

/// The namespace of the shared secrets of every user.
const COMMON: &str = "default";

fn at(name: &str) -> String {
    format!("{}/{name}", secrets(COMMON))
}

async fn make_secret(client: &Client, name: &str) -> Response {
    client.post(&secrets(COMMON)).json(&secret(name, "v")).send().await
}

/// Gives `get` on a secret to these users and teams.
async fn share(client: &Client, path: &str, to: Value) -> Response {
    let mut rule = to;
    rule["verbs"] = json!(["get"]);
    merge(client, path, json!({ "spec": { "access": [rule] } })).await
}

/// The users ada and grace of the team shop, and eve of none.
async fn people(admin: &Client) -> [Client; 3] {
    let ada = user(admin, "ada").await;
    let others = [user(admin, "grace").await, user(admin, "eve").await];
    make(admin, "teams", "shop", json!({ "users": ["ada", "grace"] })).await;
    make(admin, "teams", "ops", json!({ "users": ["eve"] })).await;
    let [grace, eve] = others;
    [ada, grace, eve]
}

#[tokio::test]
async fn a_new_user_shares_a_secret_with_the_team_and_its_users_alone() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, grace, eve] = people(&admin).await;
    make_secret(&ada, "db").await.expect(201);
    let db = at("db");
    assert_ne!(grace.get(&db).send().await.status, 200);
    for to in [json!({ "users": ["grace"] }), json!({ "teams": ["shop"] })] {
        share(&ada, &db, to).await.expect(200);
        grace.get(&db).send().await.expect(200);
        eve.get(&db).send().await.expect(404);
    }
    // A user outside of the teams and a missing one get one answer, and all users need `bind`.
    let refused = async |to: Value, name: &str| {
        let reply = share(&ada, &db, to).await;
        reply.expect(403)["message"].as_str().unwrap().replace(name, "NAME")
    };
    let unseen = refused(json!({ "users": ["eve"] }), "eve").await;
    assert_eq!(unseen, refused(json!({ "users": ["missing"] }), "missing").await);
    assert!(unseen.contains("a common team, or the verb bind"), "{unseen}");
    let unseen = refused(json!({ "teams": ["ops"] }), "ops").await;
    assert_eq!(unseen, refused(json!({ "teams": ["missing"] }), "missing").await);
    refused(json!({ "users": ["*"] }), "*").await;
    // What a key with a scope grants would outlive it.
    let every = json!({ "rules": [{ "verbs": ["*"], "resources": [{
        "group": "management.platform.sh", "resources": ["sharedsecrets"] }] }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": every })).await;
    share(&scoped, &db, json!({ "users": ["grace"] })).await.expect(403);
    // A former colleague keeps what was given, and is no longer given more.
    set(&admin, &path("teams", "shop"), json!({ "users": ["ada"] })).await;
    make_secret(&ada, "later").await.expect(201);
    share(&ada, &at("later"), json!({ "users": ["grace"] })).await.expect(403);
}

#[tokio::test]
async fn members_of_a_project_name_each_other_in_it_and_nowhere_else() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, _, eve] = people(&admin).await;
    let members = json!([
        { "kind": "User", "name": "ada", "clusterRole": "platform-project-user" },
        { "kind": "Team", "name": "ops", "clusterRole": "platform-project-viewer" },
    ]);
    make(&admin, "projects", "p", json!({ "members": members })).await;
    let owned = json!({ "spec": { "owner": { "user": "ada" } } });
    create(&admin, &secrets("p-p"), "db", owned).await;
    let db = format!("{}/db", secrets("p-p"));
    share(&ada, &db, json!({ "users": ["eve"] })).await.expect(200);
    eve.get(&db).send().await.expect(200);
    share(&ada, &db, json!({ "users": ["grace"], "teams": ["ops"] })).await.expect(200);
    make_secret(&ada, "elsewhere").await.expect(201);
    share(&ada, &at("elsewhere"), json!({ "users": ["eve"] })).await.expect(403);
    // A membership of all users names none of them: it would tell which users exist.
    let all = json!([members_of("ops"), { "kind": "User", "name": "*" }]);
    set(&admin, &path("projects", "p"), json!({ "members": all })).await;
    share(&ada, &db, json!({ "users": ["grace"], "teams": ["ops"] })).await.expect(200);
    user(&admin, "carl").await;
    share(&ada, &db, json!({ "users": ["carl"] })).await.expect(403);
    share(&ada, &db, json!({ "users": ["missing"] })).await.expect(403);
    // An owner that is no member names no members.
    set(&admin, &path("projects", "p"), json!({ "members": [members_of("ops")] })).await;
    merge(&admin, &db, json!({ "spec": { "access": null } })).await.expect(200);
    share(&ada, &db, json!({ "users": ["eve"] })).await.expect(403);
}

fn members_of(team: &str) -> Value {
    json!({ "kind": "Team", "name": team, "clusterRole": "platform-project-viewer" })
}

#[tokio::test]
async fn the_operator_chooses_whom_callers_may_name() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--sharing=bind").start().await;
    let admin = server.client();
    let [ada, _, eve] = people(&admin).await;
    make_secret(&ada, "db").await.expect(201);
    share(&ada, &at("db"), json!({ "users": ["grace"] })).await.expect(403);
    share(&ada, &at("db"), json!({ "users": ["ada"], "teams": ["shop"] })).await.expect(200);
    assert_eq!(teams_of(&eve).await, ["ops"]);
    server.stop().await;

    let server = Setup::on(&home).argument("--sharing=everyone").start().await;
    let (ada, eve) =
        (server.client().with_token(ada.token()), server.client().with_token(eve.token()));
    share(&ada, &at("db"), json!({ "users": ["eve"], "teams": ["ops"] })).await.expect(200);
    eve.get(&at("db")).send().await.expect(200);
    share(&ada, &at("db"), json!({ "users": ["missing"] })).await.expect(422);
    share(&ada, &at("db"), json!({ "users": ["*"] })).await.expect(403);
    assert_eq!(teams_of(&eve).await, ["ops", "shop"]);
    server.stop().await;

    // The list of teams ends with the setting.
    let server = Setup::on(&home).start().await;
    let eve = server.client().with_token(eve.token());
    assert_eq!(teams_of(&eve).await, ["ops"]);
}

/// The names of the teams that a caller sees.
async fn teams_of(client: &Client) -> Vec<String> {
    let listed = client.get(&collection("teams")).send().await.expect(200);
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn members_read_the_names_in_their_team_and_nothing_else_of_each_other() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, _, eve] = people(&admin).await;
    let spec = json!({ "displayName": "Grace H", "email": "grace@example.test" });
    set(&admin, &path("users", "grace"), spec).await;
    let members = format!("{}/members", path("teams", "shop"));
    let listed = ada.get(&members).send().await.expect(200);
    let expected = json!([{ "name": "ada" }, { "name": "grace", "displayName": "Grace H" }]);
    assert_eq!(listed["users"], expected, "{listed}");
    assert_eq!(listed["kind"], "TeamMembers");
    eve.get(&members).send().await.expect(404);
    ada.get(&format!("{}/members", path("teams", "missing"))).send().await.expect(404);
    admin.get(&format!("{}/members", path("teams", "missing"))).send().await.expect(404);
    ada.get(&path("users", "grace")).send().await.expect(404);
}

#[tokio::test]
async fn a_new_user_has_a_hundred_secrets_at_most_and_leaves_none_without_an_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, grace, _] = people(&admin).await;
    for number in 0..100 {
        make_secret(&ada, &format!("s{number}")).await.expect(201);
    }
    let refused = make_secret(&ada, "more").await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("already has 100 shared secrets in the namespace \"default\""),
        "{message}"
    );
    make_secret(&grace, "of-grace").await.expect(201);
    // A team as the owner would be another hundred.
    let mut of_team = secret("of-team", "v");
    of_team["spec"]["owner"] = json!({ "team": "shop" });
    let reply = grace.post(&secrets(COMMON)).json(&of_team).send().await.expect(403);
    assert!(reply["message"].as_str().unwrap().contains("belongs to its creator"), "{reply}");
    make_secret(&admin, "of-admin").await.expect(201);
    let none = json!({ "spec": { "owner": null } });
    for owner in [none.clone(), json!({ "spec": { "owner": {} } })] {
        let left = merge(&ada, &at("s0"), owner).await;
        let still = ada.get(&at("s0")).send().await.expect(200);
        assert_eq!(still["spec"]["owner"]["user"], "ada", "{}", left.text());
    }
    ada.delete(&at("s0")).send().await.expect(200);
    make_secret(&ada, "more").await.expect(201);
    make_secret(&ada, "one-more").await.expect(403);
    // Another role lifts the limit.
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some(COMMON), rules, "platform:user:ada").await;
    make_secret(&ada, "one-more").await.expect(201);
    merge(&ada, &at("s1"), none).await.expect(200);
}

#[tokio::test]
async fn the_limit_of_a_new_user_holds_with_creates_at_the_same_time() {
    let server = Server::start().await;
    let [ada, ..] = people(&server.client()).await;
    let at_once = async |names: Range<u32>| {
        let names: Vec<String> = names.map(|number| format!("s{number}")).collect();
        let made = futures_util::future::join_all(names.iter().map(|name| make_secret(&ada, name)));
        let mut statuses: Vec<u16> = made.await.iter().map(|reply| reply.status).collect();
        statuses.sort_unstable();
        statuses
    };
    // No create fails because another one has counted at the same moment.
    for batch in 0..4 {
        assert_eq!(at_once(batch * 24..(batch + 1) * 24).await, [201; 24]);
    }
    assert_eq!(at_once(96..108).await, [&[201; 4][..], &[403; 8]].concat());
    let listed = ada.get(&secrets(COMMON)).send().await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn the_binding_of_every_user_is_made_once() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let me = async |client: &Client| {
        let own = client.get(&format!("{}/me", collection("selves"))).send().await.expect(200);
        own["status"]["secretNamespaces"].clone()
    };
    assert_eq!(me(&ada).await, json!(["default"]));
    assert_eq!(me(&admin).await, json!(["*"]));
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), rules, "platform:user:ada").await;
    assert_eq!(me(&ada).await, json!(["platform", "default"]));
    let binding = format!("{}/platform-user-default", rbac(Some(COMMON), "rolebinding"));
    admin.delete(&binding).send().await.expect(200);
    assert_eq!(me(&ada).await, json!(["platform"]));
    make_secret(&ada, "db").await.expect(403);
    server.stop().await;
    let server = Setup::on(&home).start().await;
    server.client().get(&binding).send().await.expect(404);
}

/// A user that may create secrets by the role of every user sees what they have written.
#[tokio::test]
async fn the_response_to_a_create_has_the_values_for_its_owner() {
    let server = Server::start().await;
    let ada = user(&server.client(), "ada").await;
    for number in 0..50 {
        let made = make_secret(&ada, &format!("s{number}")).await.expect(201);
        assert!(made["spec"]["data"].is_object(), "{made}");
    }
}

/// The owner of an object learns who can read it, and nothing about keys and groups that the owner may not see.
#[tokio::test]
async fn the_owner_of_an_object_sees_no_keys_of_others_in_who_can() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, _, _] = people(&admin).await;
    for (key, spec) in [
        ("ada-second", json!({ "user": "ada" })),
        ("grace-laptop", json!({ "user": "grace" })),
        ("ci", json!({ "team": "shop" })),
    ] {
        with_key(&admin, key, spec).await;
    }
    make_secret(&ada, "db").await.expect(201);
    share(&ada, &at("db"), json!({ "teams": ["shop"] })).await.expect(200);
    let question = json!({ "verb": "get", "group": "management.platform.sh",
        "resource": "sharedsecrets", "namespace": COMMON, "name": "db" });
    let asked = async |client: &Client| {
        let review = json!({ "spec": question });
        let reply = client.post(&collection("resourceaccessreviews")).json(&review).send().await;
        reply.expect(201)["status"]["subjects"].as_array().unwrap().clone()
    };
    let names = |subjects: &[Value], kind: &str| {
        let of_kind = subjects.iter().filter(|one| one["kind"] == kind);
        of_kind.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = names(&asked(&admin).await, "AccessKey");
    for key in ["ada-second", "ci", "grace-laptop"] {
        assert!(all.iter().any(|name| name == key), "{all:?}");
    }
    let subjects = asked(&ada).await;
    let keys = names(&subjects, "AccessKey");
    assert!(keys.iter().all(|key| key.starts_with("ada")) && !keys.is_empty(), "{keys:?}");
    let team = subjects.iter().find(|one| one["kind"] == "Team").unwrap();
    assert_eq!((&team["name"], &team["size"]), (&json!("shop"), &json!(2)), "{subjects:?}");
    let all_users = share(&admin, &at("db"), json!({ "users": ["*"] })).await;
    all_users.expect(200);
    let subjects = asked(&ada).await;
    let group = subjects.iter().find(|one| one["kind"] == "Group").unwrap();
    assert!(group.get("size").is_none_or(Value::is_null), "{group}");
}
