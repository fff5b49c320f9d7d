//! Login links that an administrator makes for another user.

use postern_tests::http::{Client, Response};
use postern_tests::objects::{collection, make};
use postern_tests::rights::{allow, path, rule, set, user, with_key};
use postern_tests::{Home, Setup, wait};
use serde_json::{Value, json};

const SESSION: &str = "/auth/session";

async fn invite(client: &Client, name: &str, spec: Value) -> Response {
    let at = format!("{}/logincode", path("users", name));
    client.post(&at).json(&json!({ "spec": spec })).send().await
}

/// Begins the session of a code, and returns its cookie.
async fn begin(client: &Client, code: &str) -> String {
    let reply = client.with_token(code).post(SESSION).send().await;
    reply.expect(201);
    let cookie = reply.header("set-cookie").expect("a login sets a cookie");
    cookie.split_once(';').unwrap().0.to_owned()
}

#[tokio::test]
async fn an_invited_user_begins_one_session_and_makes_a_key_that_stays() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let made = invite(&admin, "ada", json!({})).await.expect(201);
    assert_eq!((&made["kind"], &made["spec"]["ttl"]), (&json!("ConsoleLoginCode"), &json!(86400)));
    assert_eq!(made["status"]["userName"], "ada");
    let code = made["status"]["code"].as_str().unwrap();
    // The code is no access key, and no client gets it again.
    let selves = collection("selves/me");
    admin.with_token(code).get(&selves).send().await.expect(401);
    let name = made["status"]["accessKey"].as_str().unwrap();
    let stored = admin.get(&path("ownedaccesskeys", name)).send().await;
    assert_eq!(stored.expect(200)["spec"]["user"], "ada");
    assert!(!stored.text().contains(code));
    let cookie = begin(&admin, code).await;
    admin.with_token(code).post(SESSION).send().await.expect(401);
    let browser = |method: &str, path: &str| {
        let request = admin.request(method, path).without("authorization");
        request.header("cookie", &cookie).header("x-postern-console", "1")
    };
    let me = browser("GET", &selves).send().await.expect(200);
    assert_eq!(me["status"]["user"]["name"], "ada");
    let session = admin.get(&path("ownedaccesskeys", name)).send().await.expect(200);
    assert_eq!(session["spec"]["ttl"], 12 * 3600, "the lifetime of a session");
    assert!(session["status"]["session"]["begun"].is_string(), "{session}");
    let key = json!({ "metadata": { "name": "laptop" }, "spec": {} });
    let key = browser("POST", &collection("ownedaccesskeys")).json(&key).send().await.expect(201);
    browser("DELETE", SESSION).send().await.expect(200);
    let laptop = admin.with_token(key["spec"]["key"].as_str().unwrap());
    laptop.get(&selves).send().await.expect(200);
    // A second code that is not spent ends with its key.
    let second = invite(&admin, "ada", json!({ "ttl": 3600 })).await.expect(201);
    let name = second["status"]["accessKey"].as_str().unwrap();
    admin.delete(&path("ownedaccesskeys", name)).send().await.expect(200);
    let code = second["status"]["code"].as_str().unwrap();
    admin.with_token(code).post(SESSION).send().await.expect(401);
    server.stop().await;
    let recorded = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(recorded.contains("logincode") && !recorded.contains("pst_"));
}

#[tokio::test]
async fn who_may_invite_could_make_a_key_without_an_end() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let refused = async |client: &Client, text: &str| {
        let reply = invite(client, "ada", json!({})).await;
        let message = reply.expect(403)["message"].as_str().unwrap().to_owned();
        assert!(message.contains(text), "{message}");
    };
    // The verbs on oneself are no role.
    refused(&ada, "createkey").await;
    let rules = json!([rule(&["users"], &["createkey", "impersonate"])]);
    allow(&admin, "keys", None, rules, "platform:user:help").await;
    let help = user(&admin, "help").await;
    invite(&help, "ada", json!({})).await.expect(201);
    let ending = with_key(&admin, "ending", json!({ "user": "help", "ttl": 3600 })).await;
    refused(&ending, "ends, and cannot invite").await;
    let scope = json!({ "rules": [{ "verbs": ["*"] }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "help", "scope": scope })).await;
    refused(&scoped, "has a scope").await;
    // The session would not end with the key that these end with.
    let short = json!({ "user": "help", "ttl": 3600 });
    with_key(&admin, "short", short).await;
    let child = with_key(&admin, "child", json!({ "user": "help", "parent": "short" })).await;
    refused(&child, "ends, and cannot invite").await;
    let rules =
        json!([{ "apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"] }]);
    allow(&admin, "acts", None, rules, "platform:user:agent").await;
    let agent = user(&admin, "agent").await;
    let object = json!({ "metadata": { "name": "by-agent" }, "spec": {} });
    let made = agent.post(&collection("ownedaccesskeys")).header("impersonate-user", "help");
    let made = made.json(&object).send().await.expect(201);
    let by_agent = agent.with_token(made["spec"]["key"].as_str().unwrap());
    refused(&by_agent, "ends, and cannot invite").await;
    let at = format!("{}/logincode", path("users", "ada"));
    let acting = admin.post(&at).header("impersonate-user", "help").json(&json!({})).send().await;
    acting.expect(403);
    invite(&user(&admin, "eve").await, "ada", json!({})).await.expect(403);
    invite(&admin, "missing", json!({})).await.expect(404);
    for ttl in [-1, 72 * 3600 + 1] {
        let message = invite(&admin, "ada", json!({ "ttl": ttl })).await.expect(422);
        assert!(message["message"].as_str().unwrap().contains("spec.ttl"), "{message}");
    }
    let dry = admin.post(&format!("{at}?dryRun=All")).json(&json!({})).send().await.expect(201);
    assert!(dry["status"]["code"].as_str().unwrap_or_default().is_empty(), "{dry}");
    set(&admin, &path("users", "ada"), json!({ "disabled": true })).await;
    invite(&admin, "ada", json!({})).await.expect(409);
}

/// The lifetime of a session counts from its beginning, so it is within the maximum of keys whenever it begins.
#[tokio::test]
async fn links_work_under_a_maximum_lifetime_of_keys() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--access-key-max-ttl=1h").start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let made = invite(&admin, "ada", json!({})).await.expect(201);
    assert_eq!(made["spec"]["ttl"], 3600);
    let refused = invite(&admin, "ada", json!({ "ttl": 3601 })).await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("between 1 and 3600"), "{refused}");
    let own = admin.post("/auth/code").send().await.expect(201);
    // A second of waiting would exceed a maximum that counts from the creation of the code.
    let name = own["status"]["accessKey"].as_str().unwrap();
    let key = admin.get(&path("ownedaccesskeys", name)).send().await.expect(200);
    let created = key["metadata"]["creationTimestamp"].clone();
    wait::until("another second", async || {
        let probe = invite(&admin, "ada", json!({ "ttl": 60 })).await.expect(201);
        let name = probe["status"]["accessKey"].as_str().unwrap();
        let key = admin.get(&path("ownedaccesskeys", name)).send().await.expect(200);
        (key["metadata"]["creationTimestamp"] != created).then_some(())
    })
    .await;
    begin(&admin, own["status"]["code"].as_str().unwrap()).await;
    begin(&admin, made["status"]["code"].as_str().unwrap()).await;
}

/// A former colleague does not come back by a link from before, also if the user is enabled or created again.
#[tokio::test]
async fn an_invitation_ends_for_good_when_its_user_is_disabled_or_deleted() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let ada = path("users", "ada");
    let made = invite(&admin, "ada", json!({})).await.expect(201);
    let state = async |made: &Value| {
        let key = path("ownedaccesskeys", made["status"]["accessKey"].as_str().unwrap());
        admin.get(&key).send().await.expect(200)["status"]["state"].clone()
    };
    assert_eq!(state(&made).await, "Active");
    // Other changes of the user, and a write that changes nothing, leave the invitation alone.
    set(&admin, &ada, json!({ "displayName": "Ada" })).await;
    set(&admin, &ada, json!({ "disabled": false })).await;
    assert_eq!(state(&made).await, "Active");
    set(&admin, &ada, json!({ "disabled": true })).await;
    set(&admin, &ada, json!({ "disabled": true, "displayName": "Ada" })).await;
    set(&admin, &ada, json!({ "disabled": false })).await;
    // No client can take the count back.
    let patch = json!({ "status": { "disabledCount": 0 } });
    admin.patch(&ada, "merge-patch", &patch).send().await.expect(200);
    let user = admin.get(&ada).send().await.expect(200);
    assert_eq!(user["status"]["disabledCount"], 1, "{user}");
    let code = made["status"]["code"].as_str().unwrap();
    admin.with_token(code).get(SESSION).send().await.expect(401);
    admin.with_token(code).post(SESSION).send().await.expect(401);
    assert_eq!(state(&made).await, "OwnerDisabled");
    // A new invitation works, and its session is one of the user, with the life of one.
    let again = invite(&admin, "ada", json!({})).await.expect(201);
    begin(&admin, again["status"]["code"].as_str().unwrap()).await;
    let spare = invite(&admin, "ada", json!({})).await.expect(201);
    admin.delete(&ada).send().await.expect(200);
    make(&admin, "users", "ada", json!({})).await;
    let code = spare["status"]["code"].as_str().unwrap();
    admin.with_token(code).post(SESSION).send().await.expect(401);
}

/// The inviter could have made a key without an end, which would stay, too. So the invitation says who has made it.
#[tokio::test]
async fn an_invitation_stays_when_its_inviter_is_disabled_and_names_the_inviter() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let rules = json!([rule(&["users"], &["createkey", "get"])]);
    allow(&admin, "invites", None, rules, "platform:user:help").await;
    let help = user(&admin, "help").await;
    let made = invite(&help, "ada", json!({})).await.expect(201);
    let key = path("ownedaccesskeys", made["status"]["accessKey"].as_str().unwrap());
    let stored = admin.get(&key).send().await.expect(200);
    assert_eq!(stored["status"]["issuedTo"]["user"], "help", "{stored}");
    set(&admin, &path("users", "help"), json!({ "disabled": true })).await;
    begin(&admin, made["status"]["code"].as_str().unwrap()).await;
    let session = admin.get(&key).send().await.expect(200);
    assert_eq!(session["status"]["issuedTo"], Value::Null, "only ada knows its value");
}
