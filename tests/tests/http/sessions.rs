//! Sessions of the console: a login derives a key, and its cookie counts only for requests that no other page can send.

use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{GROUP, collection, make, secret, secrets};
use postern_tests::rights::{allow, path, rule, rule_on, set, user, with_key};
use postern_tests::watching::Watch;
use postern_tests::{Form, Home, Random, Server, Setup, wait};
use serde_json::{Value, json};

const SESSION: &str = "/auth/session";
const NAME: &str = "__Host-postern";

/// A browser with a session.
struct Browser {
    client: Client,
    value: String,
    access_key: String,
}

impl Browser {
    async fn log_in(client: &Client) -> Self {
        let reply = client.post(SESSION).send().await;
        let access_key = reply.expect(201)["status"]["accessKey"].as_str().unwrap().to_owned();
        Self { client: client.clone(), value: cookie_of(&reply), access_key }
    }

    fn cookie(&self) -> String {
        format!("{NAME}={}", self.value)
    }

    /// A request without a credential.
    fn bare(&self, method: &str, path: &str) -> Request<'_> {
        self.client.request(method, path).without("authorization")
    }

    /// A request as the console sends it.
    fn request(&self, method: &str, path: &str) -> Request<'_> {
        self.bare(method, path).header("cookie", &self.cookie()).header("x-postern-console", "1")
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        self.request(method, path).send().await.status
    }
}

/// The value of the cookie that a login sets.
fn cookie_of(reply: &Response) -> String {
    let cookie = reply.header("set-cookie").expect("a login sets a cookie");
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");
    pair.strip_prefix(&format!("{NAME}=")).unwrap().to_owned()
}

fn selves() -> String {
    collection("selves/me")
}

/// Each counts for its key and for the owner, and only the count of the owner is the same.
#[tokio::test]
async fn sessions_of_one_owner_that_begin_at_once_do_not_conflict() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let mut clients = Vec::new();
    for number in 0..24 {
        clients.push(with_key(&admin, &format!("ada-{number}"), json!({ "user": "ada" })).await);
    }
    let begun = clients.iter().map(async |client| client.post(SESSION).send().await.status);
    assert_eq!(futures_util::future::join_all(begun).await, [201; 24]);
}

#[tokio::test]
async fn a_session_is_a_key_that_ends_with_the_key_of_its_login() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let key = with_key(&admin, "mine", json!({ "user": "ada" })).await;
    let reply = key.post(SESSION).header("user-agent", "Browser/1 (a\tb)").send().await;
    let told = reply.expect(201);
    assert!(!reply.text().contains("pst_"), "the value is in the cookie alone");
    assert_eq!(told["kind"], "ConsoleSession");
    assert_eq!(
        (&told["status"]["userName"], &told["status"]["idleSeconds"]),
        (&json!("ada"), &json!(1800))
    );
    let name = told["status"]["accessKey"].as_str().unwrap();
    let stored = admin.get(&path("ownedaccesskeys", name)).send().await.expect(200);
    assert_eq!(stored["spec"]["user"], "ada");
    assert_eq!(stored["spec"]["ttl"], 12 * 3600);
    assert_eq!(stored["status"]["maker"]["name"], "mine");
    let session = &stored["status"]["session"];
    assert_eq!(
        (&session["address"], &session["userAgent"]),
        (&json!("127.0.0.1"), &json!("Browser/1 (ab)"))
    );
    assert!(stored["metadata"]["ownerReferences"].is_null(), "{stored}");
    // The list of sessions is a list of keys.
    let listed =
        format!("{}?labelSelector=platform.sh/session=console", collection("ownedaccesskeys"));
    let listed = admin.get(&listed).send().await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let browser =
        Browser { client: key.clone(), value: cookie_of(&reply), access_key: name.to_owned() };
    let me = browser.request("GET", &selves()).send().await.expect(200);
    assert_eq!(
        (&me["status"]["user"]["name"], &me["status"]["accessKey"]),
        (&json!("ada"), &json!(name))
    );
    assert_eq!(
        browser.request("GET", SESSION).send().await.expect(200)["status"]["accessKey"],
        name
    );
    // A session begins with a key alone, for the caller alone, and is no key for another session.
    assert_eq!(browser.status("POST", SESSION).await, 403);
    assert_eq!(admin.post(SESSION).header("impersonate-user", "ada").send().await.status, 403);
    assert_eq!(key.get(SESSION).send().await.status, 404);
    assert_eq!(key.delete(SESSION).send().await.status, 404);
    for method in ["POST", "DELETE"] {
        let dry = browser.status(method, &format!("{SESSION}?dryRun=All")).await;
        assert_eq!(dry, 400, "{method}");
    }
    assert_eq!(key.put(SESSION).json(&json!({})).send().await.status, 405);
    assert_eq!(admin.get(&format!("{GROUP}/consolesessions")).send().await.status, 404);
    // A change that disables the key, or deletes it, ends the session.
    let mine = path("ownedaccesskeys", "mine");
    set(&admin, &mine, json!({ "disabled": true })).await;
    assert_eq!(browser.status("GET", &selves()).await, 401);
    set(&admin, &mine, json!({ "disabled": false })).await;
    assert_eq!(browser.status("GET", &selves()).await, 200);
    admin.delete(&mine).send().await.expect(200);
    assert_eq!(browser.status("GET", &selves()).await, 401);
    let session = path("ownedaccesskeys", name);
    wait::until("the session is gone", async || {
        (admin.get(&session).send().await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_logout_deletes_the_key_and_clears_the_browser() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let (one, other) = (Browser::log_in(&ada).await, Browser::log_in(&ada).await);
    let watching = one.request("GET", &format!("{}?watch=true", collection("users")));
    let mut watch = Watch::new(watching.stream().await);
    let reply = one.request("DELETE", SESSION).send().await;
    reply.expect(200);
    assert_eq!(reply.header("clear-site-data"), Some(r#""cache", "cookies", "storage""#));
    assert!(reply.header("set-cookie").unwrap().ends_with("Max-Age=0"));
    assert_eq!(one.status("GET", &selves()).await, 401);
    assert_eq!(other.status("GET", &selves()).await, 200, "another session goes on");
    let mut ended = false;
    while let Some(event) = watch.next().await {
        ended |= event.object["code"] == 401;
    }
    assert!(ended, "an open watch ends with 401");
    assert_eq!(admin.get(&path("ownedaccesskeys", &one.access_key)).send().await.status, 404);
    // One session ends another by its key.
    let key = path("ownedaccesskeys", &other.access_key);
    let third = Browser::log_in(&ada).await;
    assert_eq!(third.status("DELETE", &key).await, 200);
    assert_eq!(other.status("GET", &selves()).await, 401);
}

#[tokio::test]
async fn the_responses_to_logins_have_the_headers_for_browsers() {
    let server = Server::start().await;
    let admin = server.client();
    let methods = admin.get("/auth/methods").without("authorization").send().await;
    let url = format!("https://{}", server.kubeconfig().authority_of_server());
    let listed = json!({ "methods": [{ "type": "AccessKey" }], "externalUrl": url });
    assert_eq!(methods.expect(200), listed);
    let refused = admin.post(SESSION).without("authorization").send().await;
    assert_eq!(refused.status, 401);
    let begun = admin.post(SESSION).send().await;
    begun.expect(201);
    for reply in [methods, refused, begun] {
        for (name, value) in [
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{}", reply.status);
        }
    }
    // A page of a connected cluster is on the console's origin: it must not run there.
    let browser = Browser::log_in(&admin).await;
    let page = browser.request("GET", "/kubernetes/cluster/none/api/v1/pods").send().await;
    assert_eq!(page.header("content-security-policy"), Some("sandbox"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let navigated =
        browser.bare("GET", "/kubernetes/cluster/none/").header("cookie", &browser.cookie());
    let navigated = navigated.send().await;
    assert_eq!(
        (navigated.status, navigated.header("content-security-policy")),
        (401, Some("sandbox"))
    );
    let by_key = admin.get("/kubernetes/cluster/none/api/v1/pods").send().await;
    assert_eq!(by_key.header("content-security-policy"), None);
}

/// A form of requests, with the headers next to the cookie, and whether the cookie counts.
type FormOfRequest = (&'static str, Vec<(&'static str, String)>, bool);

/// The forms of requests that a browser can send with the cookie.
fn matrix(host: &str) -> Vec<FormOfRequest> {
    let console = || ("x-postern-console", "1".to_owned());
    let with = |name: &'static str, value: &str| vec![console(), (name, value.to_owned())];
    let own = format!("https://{host}");
    let (hostname, port) = host.rsplit_once(':').unwrap();
    let other_port = format!("https://{hostname}:{}", port.parse::<u16>().unwrap() ^ 1);
    vec![
        ("the console", vec![console()], true),
        ("the console with its origin", with("origin", &own), true),
        ("the console with a same-origin fetch", with("sec-fetch-site", "same-origin"), true),
        ("a navigation, an image or an iframe", vec![], false),
        ("a form of another origin", vec![("origin", "https://evil.example".to_owned())], false),
        ("a same-origin fetch without the header", vec![("origin", own.clone())], false),
        ("another value of the header", vec![("x-postern-console", "0".to_owned())], false),
        ("the header twice", vec![console(), console()], false),
        ("another origin", with("origin", "https://evil.example"), false),
        ("a page on another port", with("origin", &other_port), false),
        ("without TLS", with("origin", &own.replace("https", "http")), false),
        ("an opaque origin", with("origin", "null"), false),
        ("an empty origin", with("origin", ""), false),
        ("two origins", vec![console(), ("origin", own.clone()), ("origin", own)], false),
        ("a fetch of the same site", with("sec-fetch-site", "same-site"), false),
        ("a fetch of another site", with("sec-fetch-site", "cross-site"), false),
        ("a typed address", with("sec-fetch-site", "none"), false),
        ("a script of a service worker", with("service-worker", "script"), false),
        ("a WebSocket", with("upgrade", "websocket"), false),
        ("an upgrade", with("upgrade", "h2c"), false),
        ("a second session cookie", with("cookie", &format!("{NAME}=x")), false),
        ("the same cookie with another name before", with("cookie", "a=b"), true),
    ]
}

#[tokio::test]
async fn the_cookie_counts_only_for_requests_of_the_console() {
    let server = Server::start().await;
    let admin = server.client();
    let browser = Browser::log_in(&admin).await;
    let host = admin.address().to_owned();
    let http2 = Client::http2(server.kubeconfig());
    for (what, headers, counts) in matrix(&host) {
        for path in [selves(), collection("users")] {
            // Over HTTP/2, the host is a pseudo-header, and an upgrade does not exist.
            let two = http2.get(&path).without("authorization").without("host");
            let is_upgrade = headers.iter().any(|(name, _)| *name == "upgrade");
            let requests = [Some(browser.bare("GET", &path)), (!is_upgrade).then_some(two)];
            for request in requests.into_iter().flatten() {
                let mut request = request.header("cookie", &browser.cookie());
                for (name, value) in &headers {
                    request = request.header(*name, value);
                }
                let wanted = if counts { 200 } else { 401 };
                assert_eq!(request.send().await.status, wanted, "{what}: {path}");
            }
        }
    }
    // The same for a request that changes something.
    for (headers, wanted) in [(&[][..], 401), (&[("x-postern-console", "1")], 201)] {
        let mut request =
            browser.bare("POST", &secrets("platform")).header("cookie", &browser.cookie());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let reply = request.json(&secret("by-cookie", "x")).send().await;
        assert_eq!(reply.status, wanted, "{}", reply.text());
    }
    // With a credential, the cookie is nothing.
    let wrong = admin.with_token("not-a-key");
    let both = wrong.get(&selves()).header("cookie", &browser.cookie());
    assert_eq!(both.header("x-postern-console", "1").send().await.status, 401);
    let empty = browser.request("GET", &selves()).header("authorization", "");
    assert_eq!(empty.send().await.status, 401);
    // The value of an ordinary key, or of nothing, is no session.
    for value in [admin.token(), "", "x", "a b"] {
        let cookie = format!("{NAME}={value}");
        let request = browser.bare("GET", &selves()).header("cookie", &cookie);
        assert_eq!(request.header("x-postern-console", "1").send().await.status, 401, "{value}");
    }
    for name in ["postern", "__host-postern", "__Secure-postern", "__Host-postern2"] {
        let cookie = format!("{name}={}", browser.value);
        let request = browser.bare("GET", &selves()).header("cookie", &cookie);
        assert_eq!(request.header("x-postern-console", "1").send().await.status, 401, "{name}");
    }
    // Over HTTP/2, a browser may split cookies.
    let two = http2.get(&selves()).without("authorization");
    let two = two.header("cookie", "a=b").header("cookie", &browser.cookie());
    two.header("x-postern-console", "1").send().await.expect(200);
}

#[tokio::test]
async fn failed_logins_are_limited_for_each_address_and_successful_ones_are_not() {
    let server = Setup::on(&Home::new()).argument("--max-login-failures=5").start().await;
    let admin = server.client();
    let from = |last: u8| admin.from_address(std::net::IpAddr::from([127, 0, 0, last]));
    let (one, other) = (from(7), from(8));
    for _ in 0..20 {
        one.get("/auth/methods").without("authorization").send().await.expect(200);
        one.get(SESSION).without("authorization").send().await.expect(401);
    }
    let keys = [admin.token(), user(&admin, "ada").await.token()].map(str::to_owned);
    for key in keys.iter().cycle().take(20) {
        one.with_token(key).post(SESSION).send().await.expect(201);
    }
    // A browser speaks HTTP/2: it must see the code as well.
    let http2 =
        Client::http2(server.kubeconfig()).from_address(std::net::IpAddr::from([127, 0, 0, 7]));
    for (client, at_least) in [(&one, 6), (&http2, 1)] {
        // At most one minute begins meanwhile.
        let mut codes = Vec::new();
        while codes.last() != Some(&429) {
            assert!(codes.len() < 12, "{codes:?}");
            let reply = client.with_token("pst_wrong").post(SESSION).send().await;
            assert!(reply.status == 401 || reply.header("retry-after").is_some(), "{codes:?}");
            codes.push(reply.status);
        }
        assert!(codes.len() >= at_least, "{codes:?}");
    }
    // Neither another address nor a valid key at this one pays for it.
    other.with_token("pst_wrong").post(SESSION).send().await.expect(401);
    one.post(SESSION).send().await.expect(201);
    one.get(&selves()).send().await.expect(200);
    // A request before the login is refused too, and a browser gets a page.
    let start = || one.get("/auth/oidc/none/start").without("authorization");
    let page = start().header("accept", "text/html,*/*;q=0.8").send().await;
    assert!(
        page.header("retry-after").is_some()
            && page.header("content-type").unwrap().starts_with("text/")
    );
    let text = page.expect_text(429);
    assert!(
        text.contains("too many failed logins from this address") && text.contains("Wait "),
        "{text}"
    );
    let start = start().send().await;
    assert_eq!(start.expect(429)["kind"], "Status");
}

/// A logout that is refused would leave the session open.
#[tokio::test]
async fn a_session_is_read_and_ended_however_many_logins_there_were() {
    let server = Server::start().await;
    let admin = server.client();
    let browser = Browser::log_in(&admin).await;
    for _ in 0..40 {
        browser.request("GET", SESSION).send().await.expect(200);
    }
    for _ in 0..61 {
        if admin.with_token("pst_wrong").post(SESSION).send().await.status == 429 {
            break;
        }
    }
    browser.request("GET", SESSION).send().await.expect(200);
    browser.request("DELETE", SESSION).send().await.expect(200);
    let gone = browser.request("GET", &selves()).send().await;
    assert_eq!(gone.status, 401);
}

#[tokio::test]
async fn a_session_that_is_not_used_ends_although_it_watches() {
    let home = Home::new();
    let setup = Setup::on(&home).argument("--console-idle=8s").argument("--console-session=1h");
    let server = setup.start().await;
    let admin = server.client();
    let (idle, busy) = (Browser::log_in(&admin).await, Browser::log_in(&admin).await);
    let me = selves();
    wait::until("the idle session ends", async || {
        assert_eq!(busy.status("GET", &me).await, 200, "each use moves the end");
        let poll = idle.request("GET", &me).header("x-postern-background", "1");
        (poll.send().await.status == 401).then_some(())
    })
    .await;
    let refused = idle.request("GET", &selves()).send().await;
    assert_eq!(refused.json()["message"], "access key expired");
    assert_eq!(busy.status("GET", &me).await, 200);
    // The header is for cookies: a key is used by each request.
    let key = with_key(&admin, "used", json!({ "user": "admin" })).await;
    key.get(&selves()).header("x-postern-background", "1").send().await.expect(200);
    let used = admin.get(&path("ownedaccesskeys", "used")).send().await.expect(200);
    assert!(used["status"]["lastActivity"].is_string());
}

/// A value that was read from the cookie would otherwise be a key on every machine, without the conditions of the cookie.
#[tokio::test]
async fn the_value_of_a_session_is_no_bearer_token() {
    let server = Server::start().await;
    let admin = server.client();
    let browser = Browser::log_in(&admin).await;
    let bearer = admin.with_token(&browser.value);
    for request in [
        bearer.get(&selves()),
        bearer.get(SESSION),
        bearer.post(SESSION),
        bearer.post("/auth/code"),
    ] {
        let refused = request.send().await;
        assert!(refused.expect_text(401).contains("only in its cookie"), "{}", refused.text());
    }
    // Also not on a connection on which the session was used.
    let mut connection = admin.connect().await.unwrap();
    let used = browser.request("GET", &selves()).try_send_on(&mut connection).await.unwrap();
    used.expect(200);
    let refused = bearer.get(&selves()).try_send_on(&mut connection).await.unwrap();
    assert_eq!(refused.status, 401);
    assert_eq!(browser.status("GET", &selves()).await, 200);
}

#[tokio::test]
async fn what_is_created_in_a_session_does_not_end_with_it() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let browser = Browser::log_in(&ada).await;
    let keys = collection("ownedaccesskeys");
    let made =
        browser.request("POST", &keys).json(&json!({ "metadata": { "name": "ci" }, "spec": {} }));
    let made = made.send().await.expect(201);
    assert!(made["status"].get("maker").is_none(), "{made}");
    let ci = admin.with_token(made["spec"]["key"].as_str().unwrap());
    browser.request("DELETE", SESSION).send().await.expect(200);
    ci.get(&selves()).send().await.expect(200);
    // A key with a scope creates keys that end with it, also in a session that began before it had the scope.
    let owned =
        json!({ "group": "management.platform.sh", "resources": ["ownedaccesskeys", "users"] });
    let scope = json!({ "rules": [{ "resources": [owned] }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada" })).await;
    let browser = Browser::log_in(&scoped).await;
    set(&admin, &path("ownedaccesskeys", "scoped"), json!({ "scope": scope })).await;
    let child = json!({ "metadata": { "name": "child" }, "spec": { "scope": scope } });
    let made = browser.request("POST", &keys).json(&child).send().await.expect(201);
    assert_eq!(made["status"]["maker"]["name"], "scoped");
    let forged = json!({ "metadata": { "name": "forged" }, "spec": {}, "status": {
        "session": { "idleSeconds": 1 }, "maker": { "name": "x", "uid": "y" } } });
    let forged = ada.post(&keys).json(&forged).send().await.expect(201);
    assert!(forged.get("status").is_none_or(|status| status.get("session").is_none()), "{forged}");
    assert_eq!(
        browser.request("POST", &keys).json(&json!({ "spec": {} })).send().await.status,
        403
    );
}

/// A key without the scope of a spec, and the scope: a key with a scope begins no session, and may get one later.
async fn unscoped_key(admin: &Client, name: &str, spec: &Value) -> (Client, Option<Value>) {
    let mut unscoped = spec.clone();
    let scope = unscoped.as_object_mut().unwrap().remove("scope");
    (with_key(admin, name, unscoped).await, scope)
}

/// Sets the scope of a key.
async fn narrow(admin: &Client, key: &str, scope: &Value) {
    set(admin, &path("ownedaccesskeys", key), json!({ "scope": scope })).await;
}

/// A request that changes nothing.
fn random_request(random: &mut Random) -> (&'static str, String) {
    let mut one = |of: &[&'static str]| of[usize::try_from(random.below(of.len() as u64)).unwrap()];
    let namespace = one(&["platform", "default"]);
    let name = one(&["s0", "s1", "absent"]);
    match one(&["get", "entries", "list", "delete", "create", "cluster-scoped", "key", "path"]) {
        "get" => ("GET", format!("{}/{name}", secrets(namespace))),
        "entries" => ("GET", format!("{}/{name}/entries", secrets(namespace))),
        "list" => ("GET", secrets(namespace)),
        "delete" => ("DELETE", format!("{}/{name}?dryRun=All", secrets(namespace))),
        "create" => ("POST", format!("{}?dryRun=All", secrets(namespace))),
        "key" => ("POST", format!("{}?dryRun=All", collection("ownedaccesskeys"))),
        "path" => {
            ("GET", one(&["/metrics", "/openapi/v3", "/kubernetes/cluster/none/api"]).to_owned())
        }
        _ => {
            let of =
                ["users", "users/ada", "teams/red", "projects", "ownedaccesskeys", "selves/me"];
            ("GET", collection(one(&of)))
        }
    }
}

/// The response to a request, without the parts that differ between two requests.
fn compared(reply: &Response) -> (u16, Value) {
    let mut value = if reply.status < 300 { Value::Null } else { reply.json() };
    if let Some(object) = value.as_object_mut() {
        object.remove("metadata");
    }
    // The lifetime that is left is shorter after a second.
    if let Some(Value::String(message)) = value.get_mut("message")
        && let Some((before, after)) = message.split_once("spec.ttl to at most ")
    {
        *message =
            format!("{before}{}", after.trim_start_matches(|one: char| one.is_ascii_digit()));
    }
    (reply.status, value)
}

#[tokio::test]
async fn a_session_gets_what_its_key_gets_whatever_the_key() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    make(&admin, "teams", "red", json!({ "users": ["ada"], "groups": ["ops"] })).await;
    for namespace in ["platform", "default"] {
        for name in ["s0", "s1"] {
            admin.post(&secrets(namespace)).json(&secret(name, "x")).send().await.expect(201);
        }
    }
    let rules = json!([rule(&["sharedsecrets"], &["get", "create"])]);
    allow(&admin, "a", Some("platform"), rules, "platform:user:ada").await;
    let rules = json!([rule_on("sharedsecrets", &["s0"], &["get", "delete"])]);
    allow(&admin, "b", Some("default"), rules, "ops").await;
    let secrets_only = json!({ "group": "management.platform.sh", "resources": ["sharedsecrets"] });
    let scope = json!({ "rules": [{ "verbs": ["get"], "resources": [secrets_only] }] });
    let mut random = Random::new(34);
    let specs = [
        json!({ "user": "ada" }),
        json!({ "user": "ada", "scope": scope }),
        json!({ "user": "ada", "scope": {} }),
        json!({ "user": "ada", "ttl": 600 }),
        json!({ "user": "ada", "groups": ["ops"] }),
        json!({ "user": "ada", "type": "Login", "ttl": 900 }),
        json!({ "team": "red" }),
        json!({ "team": "red", "scope": { "allowPlatformCli": true } }),
        json!({ "subject": "robot", "groups": ["ops"] }),
        json!({ "user": "admin" }),
    ];
    let requests = Form::of_this_run().pick(40, 1000);
    let (mut allowed, mut refused) = (0, 0);
    for (index, spec) in specs.into_iter().enumerate() {
        let ttl = spec["ttl"].as_i64();
        let (key, scope) = unscoped_key(&admin, &format!("k{index}"), &spec).await;
        let login = key.from_address(std::net::IpAddr::from([127, 0, 1, 1]));
        let reply = login.post(SESSION).send().await;
        let told = reply.expect(201)["status"].clone();
        let value = cookie_of(&reply);
        let browser = Browser { client: key.clone(), value, access_key: String::new() };
        if let Some(ttl) = ttl {
            let stored =
                admin.get(&path("ownedaccesskeys", &format!("k{index}"))).send().await.expect(200);
            let created = stored["metadata"]["creationTimestamp"].as_str().unwrap();
            let end = seconds(told["expiresAt"].as_str().unwrap());
            // A month may end between the two.
            let lasts = (end - seconds(created)).rem_euclid(24 * 3600);
            assert!(lasts <= ttl, "{spec}: {told}");
        }
        if let Some(scope) = scope {
            narrow(&admin, &format!("k{index}"), &scope).await;
        }
        for _ in 0..requests {
            let (method, path) = random_request(&mut random);
            let body = match (method, path.contains("ownedaccesskeys")) {
                ("POST", true) => {
                    json!({ "metadata": { "name": "new" }, "spec": { "user": "ada" } })
                }
                _ => secret("new", "x"),
            };
            let mut replies = Vec::new();
            for request in [key.request(method, &path), browser.request(method, &path)] {
                let request = if method == "POST" { request.json(&body) } else { request };
                replies.push(compared(&request.send().await));
            }
            assert_eq!(replies[0], replies[1], "{spec}: {method} {path}");
            *(if replies[0].0 < 300 { &mut allowed } else { &mut refused }) += 1;
        }
    }
    assert!(allowed > 50 && refused > 50, "{allowed} allowed, {refused} refused");
}

/// The seconds of a time since the begin of its month: the test needs no other difference.
fn seconds(time: &str) -> i64 {
    let part = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    ((part(8..10) * 24 + part(11..13)) * 60 + part(14..16)) * 60 + part(17..19)
}
