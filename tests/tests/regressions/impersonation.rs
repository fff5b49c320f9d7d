//! Impersonation with explicit groups is no stored identity, and objects that are made under
//! impersonation end with it.

use postern_tests::http::Client;
use postern_tests::objects::{collection, make, secret, secret_path, secrets};
use postern_tests::rights::{allow, disallow, merge, path, rbac, rule, set, user, with_key};
use postern_tests::{Server, status};
use serde_json::{Value, json};

use crate::regressions::scene::{
    ENDS, End, Findings, KEYS, acting, code_of, is_refused_soon, key_path, may_impersonate,
    wait_for_collector, who,
};

const VALUE: &str = "canary-0123456789-0123456789-0123456789";

/// A user `deputy` that may impersonate only these users and the group `helpers`.
async fn deputy(admin: &Client, users: &[&str]) -> Client {
    let deputy = user(admin, "deputy").await;
    let rules = json!([may_impersonate("users", users), may_impersonate("groups", &["helpers"]),
        { "apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "verbs": ["impersonate"] }]);
    allow(admin, "acting", None, rules, "platform:user:deputy").await;
    deputy
}

/// Requests that only the stored identity may do. `stored` is the owner of a key in a body.
async fn tries(found: &mut Findings, deputy: &Client, user: &str, stored: &Value, key: &str) {
    let as_it = |request| acting(request, user, &["helpers"]);
    let keys = collection(KEYS);
    let mut made = Vec::new();
    for spec in [json!({}), stored.clone(), json!({ "scope": { "rules": [{}] } })] {
        let reply = as_it(deputy.post(&keys)).json(&json!({ "spec": spec })).send().await;
        found.check_code(&reply, &[403, 422], &format!("POST of a key {spec} as {user}"));
        if reply.status == 201 {
            made.push(reply.json());
        }
    }
    for key in made {
        let name = key["spec"]["user"].as_str().or(key["spec"]["team"].as_str());
        found.check(name.is_none(), format!("{user}: a key of {name:?}"));
    }
    for (what, change) in [
        ("value", json!({ "key": VALUE })),
        ("disabled", json!({ "disabled": true })),
        ("displayName", json!({ "displayName": "x" })),
    ] {
        let request = deputy.patch(&key_path(key), "merge-patch", &json!({ "spec": change }));
        let reply = as_it(request).send().await;
        found.check_code(&reply, &[403, 404], &format!("PATCH of the {what} of {key} as {user}"));
    }
    let reply = as_it(deputy.get(&key_path(key))).send().await;
    found.check_code(&reply, &[403, 404], &format!("GET of {key} as {user}"));
    let reply = as_it(deputy.delete(&format!("{}?dryRun=All", key_path(key)))).send().await;
    found.check_code(&reply, &[403, 404], &format!("DELETE of {key} as {user}"));
    let listed = as_it(deputy.get(&keys)).send().await.text();
    found.check(!listed.contains(key), format!("{user} lists {key}"));
    let said = as_it(who(deputy)).send().await.expect(201)["status"].clone();
    let none = said["user"].is_null() && said["team"].is_null();
    found.check(none, format!("the Self of {user} with groups: {said}"));
}

#[tokio::test]
async fn impersonating_a_user_with_explicit_groups_makes_no_key_of_that_user() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = deputy(&admin, &["admin", "boss"]).await;
    let master = json!({ "groups": ["system:masters"], "subject": "boss" });
    make(&admin, "users", "carol", master).await;
    make(&admin, KEYS, "carol-key", json!({ "user": "carol" })).await;
    let mut found = Findings::new();
    tries(&mut found, &deputy, "admin", &json!({ "user": "admin" }), "admin").await;
    tries(&mut found, &deputy, "boss", &json!({ "user": "carol" }), "carol-key").await;
    found.check(code_of(&admin).await == 200, "the administrator's key is another");
    found.check(code_of(&admin.with_token(VALUE)).await == 401, "the deputy has a key");
    found.assert_none();
}

#[tokio::test]
async fn impersonating_a_team_with_explicit_groups_makes_no_key_of_that_team() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = deputy(&admin, &["platform:team:red"]).await;
    make(&admin, "teams", "red", json!({ "groups": ["system:masters"] })).await;
    make(&admin, KEYS, "red-key", json!({ "team": "red" })).await;
    let mut found = Findings::new();
    tries(&mut found, &deputy, "platform:team:red", &json!({ "team": "red" }), "red-key").await;
    found.check(code_of(&admin.with_token(VALUE)).await == 401, "the deputy has a key");
    found.assert_none();
}

#[tokio::test]
async fn impersonating_a_member_with_explicit_groups_makes_no_key_of_the_team() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = deputy(&admin, &["ada"]).await;
    user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    set(&admin, &path("users", "ada"), json!({ "groups": ["leads"] })).await;
    let as_leads = json!([rule(&["teams"], &["createkey", "updatekey", "getkey"])]);
    allow(&admin, "leads", None, as_leads, "leads").await;
    make(&admin, KEYS, "red-key", json!({ "team": "red" })).await;
    let mut found = Findings::new();
    tries(&mut found, &deputy, "ada", &json!({ "team": "red" }), "red-key").await;
    found.assert_none();
}

#[tokio::test]
async fn explicit_groups_leave_none_of_the_rights_that_an_owner_has_without_a_role() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = deputy(&admin, &["ada"]).await;
    let ada = user(&admin, "ada").await;
    let uid = admin.get(&path("users", "ada")).send().await.expect(200)["metadata"]["uid"].clone();
    let mut owned = secret("owned", "canary");
    owned["spec"]["owner"] = json!({ "user": "ada" });
    admin.post(&secrets("platform")).json(&owned).send().await.expect(201);
    ada.get(&secret_path("owned")).send().await.expect(200);
    make(&admin, "projects", "of-ada", json!({ "owner": { "user": "ada" } })).await;
    // A user that may create shared secrets may share them with users on whom that user holds
    // `bind`.
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "helpers", None, rules, "helpers").await;
    let mut found = Findings::new();
    for with_uid in [false, true] {
        let as_ada = |request| {
            let request = acting(request, "ada", &["helpers"]);
            if with_uid {
                request.header("impersonate-uid", uid.as_str().unwrap())
            } else {
                request
            }
        };
        for hidden in [
            secret_path("owned"),
            path("users", "ada"),
            path("projects", "of-ada"),
            format!("{}/accesskeys", path("users", "ada")),
            key_path("ada-key"),
        ] {
            let reply = as_ada(deputy.get(&hidden)).send().await;
            found.check_code(&reply, &[403, 404], &format!("GET {hidden}, uid: {with_uid}"));
        }
        let reply =
            as_ada(deputy.delete(&format!("{}?dryRun=All", secret_path("owned")))).send().await;
        found.check_code(&reply, &[403, 404], &format!("DELETE of what ada owns, uid: {with_uid}"));
        let name = format!("made-{with_uid}");
        let mut shared = secret(&name, "x");
        shared["spec"]["access"] = json!([{ "verbs": ["get"], "users": ["ada"] }]);
        let reply = as_ada(deputy.post(&secrets("platform"))).json(&shared).send().await;
        found.check_code(&reply, &[403], &format!("bind on ada, uid: {with_uid}"));
        let reply =
            as_ada(deputy.post(&secrets("platform"))).json(&secret(&name, "x")).send().await;
        if reply.status == 201 {
            let by = reply.json()["spec"]["owner"].clone();
            found.check(by.is_null(), format!("what is made is owned by {by}"));
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn impersonation_without_groups_takes_the_right_to_each_stored_group() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = deputy(&admin, &["admin"]).await;
    for (name, value) in [("x-nothing", "x"), ("impersonate-uid", "u"), ("impersonate-group", "")] {
        let request = deputy.post(&collection(KEYS)).json(&json!({ "spec": {} }));
        let request = request.header("impersonate-user", "admin").header(name, value);
        let reply = request.send().await;
        assert!([400, 403].contains(&reply.status), "{name}: {}", reply.text());
    }
    let text = status::failure(&acting(who(&deputy), "admin", &[]).send().await);
    assert!(text.contains("impersonate"), "{text}");
}

#[tokio::test]
async fn a_key_made_under_impersonation_ends_with_it() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    let mut found = Findings::new();
    for (index, end) in ENDS.into_iter().enumerate() {
        let name = format!("ops{index}");
        let ops = user(&admin, &name).await;
        let rules = json!([may_impersonate("users", &["bob"])]);
        allow(&admin, &name, None, rules, &format!("platform:user:{name}")).await;
        let object = json!({ "metadata": { "name": format!("made{index}") }, "spec": {} });
        let made = acting(ops.post(&collection(KEYS)), "bob", &[]).json(&object).send().await;
        let made = made.expect(201);
        assert_eq!(made["spec"]["user"], "bob");
        let key = admin.with_token(made["spec"]["key"].as_str().unwrap());
        assert_eq!(code_of(&key).await, 200);
        // And a key that this key makes.
        let second = with_key(&key, &format!("second{index}"), json!({})).await;
        assert_eq!(code_of(&second).await, 200);
        end.come(&admin, &name, &format!("{name}-key")).await;
        found.check(is_refused_soon(&key).await, format!("{end:?}: the key goes on"));
        found.check(is_refused_soon(&second).await, format!("{end:?}: what it made goes on"));
        wait_for_collector(&admin).await;
        found.check(code_of(&key).await != 200, format!("{end:?}: the key is back"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_key_replaced_under_impersonation_ends_with_it() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    let mut found = Findings::new();
    for (index, end) in [End::KeyDeleted, End::KeyDisabled, End::RightTaken].into_iter().enumerate()
    {
        let name = format!("ops{index}");
        let ops = user(&admin, &name).await;
        let rules = json!([may_impersonate("users", &["bob"])]);
        allow(&admin, &name, None, rules, &format!("platform:user:{name}")).await;
        let of_bob = format!("bob-{index}");
        make(&admin, KEYS, &of_bob, json!({ "user": "bob" })).await;
        let value = format!("{VALUE}-{index}");
        let change = json!({ "spec": { "key": value } });
        let patch = ops.patch(&key_path(&of_bob), "merge-patch", &change);
        let reply = acting(patch, "bob", &[]).send().await;
        if reply.status != 200 {
            continue;
        }
        let key = admin.with_token(&value);
        end.come(&admin, &name, &format!("{name}-key")).await;
        found.check(is_refused_soon(&key).await, format!("{end:?}: the replaced key goes on"));
    }
    found.assert_none();
}

/// Changes of an impersonated user after which the impersonator may not be them any more.
const CHANGES: [&str; 4] = ["groups", "team", "subject", "role"];

#[tokio::test]
async fn a_key_made_under_impersonation_ends_when_its_user_becomes_more() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for (index, change) in CHANGES.into_iter().enumerate() {
        let (ops_name, bob) = (format!("ops{index}"), format!("bob{index}"));
        let ops = user(&admin, &ops_name).await;
        user(&admin, &bob).await;
        let rules = json!([may_impersonate("users", &[&bob])]);
        allow(&admin, &ops_name, None, rules, &format!("platform:user:{ops_name}")).await;
        let object = json!({ "metadata": { "name": format!("made{index}") }, "spec": {} });
        let made = acting(ops.post(&collection(KEYS)), &bob, &[]).json(&object).send().await;
        let key = admin.with_token(made.expect(201)["spec"]["key"].as_str().unwrap());
        assert_eq!(code_of(&key).await, 200);
        match change {
            "groups" => {
                set(&admin, &path("users", &bob), json!({ "groups": ["system:masters"] })).await;
            }
            "team" => {
                let team = json!({ "users": [bob], "groups": ["leads"] });
                make(&admin, "teams", &format!("team{index}"), team).await;
            }
            "subject" => {
                set(&admin, &path("users", &bob), json!({ "subject": format!("boss{index}") }))
                    .await;
            }
            _ => {
                let role = format!("{}/{ops_name}", rbac(None, "role"));
                merge(&admin, &role, json!({ "rules": [] })).await.expect(200);
            }
        }
        found.check(is_refused_soon(&key).await, format!("{change}: the key goes on"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_key_made_under_impersonation_changes_no_other_key_of_the_user() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    let ops = user(&admin, "ops").await;
    let rules = json!([may_impersonate("users", &["bob"])]);
    allow(&admin, "ops", None, rules, "platform:user:ops").await;
    let made = acting(ops.post(&collection(KEYS)), "bob", &[]).json(&json!({ "spec": {} }));
    let made = made.send().await.expect(201);
    let key = admin.with_token(made["spec"]["key"].as_str().unwrap());
    // The value would not end with the impersonation.
    let change = json!({ "spec": { "key": VALUE } });
    key.patch(&key_path("bob-key"), "merge-patch", &change).send().await;
    disallow(&admin, "ops", None).await;
    assert!(is_refused_soon(&key).await, "the key goes on");
    assert_eq!(code_of(&admin.with_token(VALUE)).await, 401, "another key has the value");
    assert_eq!(code_of(&bob).await, 200, "the value of bob's own key is gone");
}
