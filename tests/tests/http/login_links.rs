//! Login links: a code begins one session, within its lifetime, and has no other use.

use futures_util::future::join_all;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{GROUP, collection, make};
use postern_tests::rights::{path, set, with_key};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

const CODE: &str = "/auth/code";
const SESSION: &str = "/auth/session";

/// A code, and the name of the key that the session will be.
async fn code(client: &Client) -> (String, String) {
    let made = client.post(CODE).send().await.expect(201);
    let text = |name: &str| made["status"][name].as_str().unwrap().to_owned();
    (text("code"), text("accessKey"))
}

async fn redeem(client: &Client, code: &str) -> Response {
    client.with_token(code).post(SESSION).header("user-agent", "Browser/1").send().await
}

/// The value in the cookie of a login.
fn value(reply: &Response) -> String {
    let cookie = reply.header("set-cookie").expect("a login sets a cookie");
    cookie.split_once(';').unwrap().0.strip_prefix("__Host-postern=").unwrap().to_owned()
}

async fn with_cookie(client: &Client, value: &str, path: &str) -> u16 {
    let request = client.get(path).without("authorization").header("x-postern-console", "1");
    request.header("cookie", &format!("__Host-postern={value}")).send().await.status
}

fn selves() -> String {
    collection("selves/me")
}

#[tokio::test]
async fn a_code_begins_one_session_with_the_rights_of_its_key() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let key = with_key(&admin, "mine", json!({ "user": "ada" })).await;
    let made = key.post(CODE).send().await;
    let told = made.expect(201);
    assert_eq!(
        (&told["kind"], &told["status"]["userName"]),
        (&json!("ConsoleLoginCode"), &json!("ada"))
    );
    assert_eq!((made.header("cache-control"), made.header("set-cookie")), (Some("no-store"), None));
    let (code, name) =
        (told["status"]["code"].as_str().unwrap(), told["status"]["accessKey"].as_str().unwrap());
    let key_path = path("ownedaccesskeys", name);
    let before = admin.get(&key_path).send().await.expect(200);
    assert_eq!(
        (&before["spec"]["ttl"], &before["status"]["session"]["loginCode"]),
        (&json!(60), &json!(true))
    );
    // A browser shows the user of the session, and asks, before it uses the code.
    let link = admin.with_token(code);
    for _ in 0..2 {
        let described = link.get(SESSION).send().await;
        assert_eq!(described.expect(200)["status"]["userName"], "ada");
        assert_eq!(described.header("set-cookie"), None);
    }
    let begun = redeem(&admin, code).await;
    assert_eq!(begun.expect(201)["status"]["accessKey"], name);
    assert!(!begun.text().contains("pst_"), "the value is in the cookie alone");
    let cookie = value(&begun);
    assert_ne!(cookie, code);
    let stored = admin.get(&key_path).send().await.expect(200);
    assert_eq!(stored["spec"]["ttl"], 12 * 3600);
    assert_eq!(
        (&stored["status"]["maker"]["name"], &stored["metadata"]["uid"]),
        (&json!("mine"), &before["metadata"]["uid"])
    );
    let session = &stored["status"]["session"];
    assert_eq!(
        (&session["userAgent"], &session["idleSeconds"]),
        (&json!("Browser/1"), &json!(1800))
    );
    assert!(session.get("loginCode").is_none(), "{session}");
    assert_eq!(stored["metadata"]["labels"]["platform.sh/session"], "console");
    assert_eq!(with_cookie(&admin, &cookie, &selves()).await, 200);
    assert_eq!(with_cookie(&admin, &cookie, SESSION).await, 200);
    let again = redeem(&admin, code).await;
    assert_eq!((again.status, again.header("set-cookie")), (401, None), "a second time");
    assert_eq!(link.get(SESSION).send().await.status, 401);
    assert_eq!(with_cookie(&admin, &cookie, &selves()).await, 200, "the session goes on");
    // The session ends with the key that asked for the code.
    admin.delete(&path("ownedaccesskeys", "mine")).send().await.expect(200);
    assert_eq!(with_cookie(&admin, &cookie, &selves()).await, 401);
}

#[tokio::test]
async fn a_code_does_nothing_but_begin_a_session() {
    let server = Server::start().await;
    let admin = server.client();
    let (code, name) = code(&admin).await;
    let bearer = admin.with_token(&code);
    for path in [
        selves(),
        collection("users"),
        "/metrics".to_owned(),
        "/kubernetes/cluster/none/api".to_owned(),
    ] {
        assert_eq!(bearer.get(&path).send().await.status, 401, "{path}");
    }
    for (method, path) in [("POST", CODE), ("DELETE", SESSION), ("PUT", SESSION)] {
        assert_eq!(bearer.request(method, path).send().await.status, 401, "{method} {path}");
    }
    let key = json!({ "metadata": { "name": "more" }, "spec": {} });
    assert_eq!(bearer.post(&collection("ownedaccesskeys")).json(&key).send().await.status, 401);
    for path in [selves(), SESSION.to_owned()] {
        assert_eq!(with_cookie(&admin, &code, &path).await, 401, "in the cookie: {path}");
    }
    let in_cookie = admin.post(SESSION).without("authorization").header("x-postern-console", "1");
    let in_cookie = in_cookie.header("cookie", &format!("__Host-postern={code}")).send().await;
    assert_eq!(in_cookie.status, 401);
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": code } });
    let reviews = "/kubernetes/management/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed = admin.post(reviews).json(&review).send().await.expect(201);
    assert_ne!(reviewed["status"]["authenticated"], true, "{reviewed}");
    // Its owner cannot make a key of it.
    let key_path = path("ownedaccesskeys", &name);
    let mut stored = admin.get(&key_path).send().await.expect(200);
    stored["status"] = json!({});
    stored["spec"]["key"] = Value::from("x".repeat(40));
    admin.put(&key_path).json(&stored).send().await.expect(422);
    assert_eq!(admin.with_token(&"x".repeat(40)).get(&selves()).send().await.status, 401);
    redeem(&admin, &code).await.expect(201);
    assert_eq!(admin.get(&format!("{GROUP}/consolelogincodes")).send().await.status, 404);
}

#[tokio::test]
async fn of_many_requests_with_one_code_one_begins_a_session() {
    let server = Server::start().await;
    let admin = server.client();
    let (code, _) = code(&admin).await;
    let replies = join_all((0..8).map(|_| redeem(&admin, &code))).await;
    let mut codes: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    codes.sort_unstable();
    assert_eq!(codes, [201, 401, 401, 401, 401, 401, 401, 401]);
}

#[tokio::test]
async fn a_code_ends_by_time_and_with_its_key_and_its_user() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--console-session=4s").start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let ada = with_key(&admin, "mine", json!({ "user": "ada" })).await;
    let (expired, _) = code(&ada).await;
    wait::until("the code ends", async || {
        // Not a request for a login: those are limited.
        let reply = admin.with_token(&expired).get(&selves()).send().await;
        (reply.json()["message"] == "access key expired").then_some(())
    })
    .await;
    assert_eq!(redeem(&admin, &expired).await.json()["message"], "access key expired");
    for disabled in [path("users", "ada"), path("ownedaccesskeys", "mine")] {
        let (code, _) = code(&ada).await;
        set(&admin, &disabled, json!({ "disabled": true })).await;
        assert_eq!(redeem(&admin, &code).await.status, 401, "{disabled}");
        set(&admin, &disabled, json!({ "disabled": false })).await;
    }
    let (code, _) = code(&ada).await;
    admin.delete(&path("ownedaccesskeys", "mine")).send().await.expect(200);
    assert_eq!(redeem(&admin, &code).await.status, 401, "the key is gone");
}

#[tokio::test]
async fn who_may_ask_for_a_code() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    assert_eq!(admin.post(CODE).header("impersonate-user", "ada").send().await.status, 403);
    assert_eq!(admin.post(CODE).without("authorization").send().await.status, 401);
    assert_eq!(admin.post(&format!("{CODE}?dryRun=All")).send().await.status, 400);
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(admin.request(method, CODE).send().await.status, 405, "{method}");
    }
    let begun = admin.post(SESSION).send().await;
    begun.expect(201);
    let with_session = admin.post(CODE).without("authorization").header("x-postern-console", "1");
    let cookie = format!("__Host-postern={}", value(&begun));
    assert_eq!(with_session.header("cookie", &cookie).send().await.status, 403, "a session");
    let (code, _) = code(&admin).await;
    let acting =
        admin.with_token(&code).post(SESSION).header("impersonate-user", "ada").send().await;
    assert_eq!((acting.status, acting.header("set-cookie")), (403, None));
    redeem(&admin, &code).await.expect(201);
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": {} })).await;
    assert_eq!(scoped.post(CODE).send().await.status, 403, "a key with a scope");
    // A user without permissions may ask: the session may do nothing.
    let nothing = with_key(&admin, "none", json!({ "user": "ada" })).await;
    let made = nothing.post(CODE).send().await.expect(201);
    let begun = redeem(&admin, made["status"]["code"].as_str().unwrap()).await;
    assert_eq!(with_cookie(&admin, &value(&begun), "/metrics").await, 403);
}
