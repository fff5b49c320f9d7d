//! Logins of the command line, by a browser on the same machine and on another one.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use futures_util::future::join_all;
use postern_tests::cli::CliUser;
use postern_tests::http::{Client, Response};
use postern_tests::identity_provider::{escape, form};
use postern_tests::objects::collection;
use postern_tests::rights::{path, set};
use postern_tests::{Home, Setup, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::scene::{Scene, names};

const VERIFIER: &str = "verifier-canary-abcdefghijklmnopqrstuvwxyz-0123";
const REDIRECT: &str = "http://127.0.0.1:40123/callback";
const STATE: &str = "state-0123456789";
const FORM: &str = "application/x-www-form-urlencoded";
const TOKEN: &str = "/auth/token";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn challenge() -> String {
    BASE64URL.encode(digest(&SHA256, VERIFIER.as_bytes()))
}

fn encoded(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A client at an address, without a credential.
fn stranger(scene: &Scene, last: [u8; 2]) -> Client {
    scene.admin.from_address(Ipv4Addr::new(127, 0, last[0], last[1]).into())
}

async fn post_form(client: &Client, path: &str, fields: &[(&str, &str)]) -> Response {
    let request = client.post(path).without("authorization");
    request.body(FORM, encoded(fields)).send().await
}

fn consent(decision: &str) -> Value {
    json!({
        "redirectURI": REDIRECT, "state": STATE, "codeChallenge": challenge(),
        "host": "laptop", "ttlSeconds": 600, "decision": decision,
    })
}

fn body(spec: &Value) -> Value {
    let version = "management.platform.sh/v1";
    json!({ "apiVersion": version, "kind": "CommandLineConsent", "spec": spec })
}

/// The code in the address that a browser is sent to.
fn code_in(response: &Response) -> String {
    let status = response.expect(200)["status"].clone();
    let address = status["redirectTo"].as_str().unwrap();
    let (page, query) = address.split_once('?').unwrap();
    assert_eq!(page, REDIRECT);
    let query = form(query);
    assert_eq!(query["state"], STATE);
    query["code"].clone()
}

async fn redeem(client: &Client, code: &str, changes: &[(&str, &str)]) -> Response {
    let usual = [
        ("grant_type", "authorization_code"),
        ("client_id", "postern-cli"),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ];
    let fields = usual.map(|(name, value)| {
        (name, changes.iter().find(|(known, _)| *known == name).map_or(value, |(_, new)| *new))
    });
    post_form(client, TOKEN, &fields).await
}

fn error_of(response: &Response) -> (u16, String) {
    let error = response.json()["error"].as_str().unwrap_or_default().to_owned();
    (response.status, error)
}

/// `postern login` at the server of the scene, with its standard error.
fn log_in(scene: &Scene, user: &CliUser, flags: &[&str]) -> (Child, Lines) {
    let ca = user.file("ca.pem", &scene.server.kubeconfig().authority);
    let url = format!("https://{}", scene.server.kubeconfig().authority_of_server());
    let mut arguments = vec!["login", &url, "--ca-file", &ca];
    arguments.extend_from_slice(flags);
    let mut child = user.command(&arguments).spawn().expect("the binary starts");
    let lines = Lines(BufReader::new(child.stderr.take().unwrap()), String::new());
    (child, lines)
}

/// The lines that a command prints.
struct Lines(BufReader<tokio::process::ChildStderr>, String);

impl Lines {
    /// The rest of the next line that begins so, after blanks.
    async fn after(&mut self, start: &str) -> String {
        let found = wait::within(start, async {
            loop {
                let mut line = String::new();
                let length = self.0.read_line(&mut line).await.unwrap();
                assert!(length > 0, "no line with {start:?}: {}", self.1);
                self.1.push_str(&line);
                if let Some(rest) = line.trim().strip_prefix(start) {
                    return rest.trim().to_owned();
                }
            }
        });
        found.await
    }

    async fn all(mut self) -> String {
        self.0.read_to_string(&mut self.1).await.unwrap();
        self.1
    }
}

/// A GET of a plain HTTP address on loopback.
async fn get(address: &str) -> String {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The spec that the page of the console sends for the query of its address.
fn spec_of(query: &str, decision: &str) -> Value {
    let query = form(query);
    json!({
        "redirectURI": query["redirect_uri"], "state": query["state"],
        "codeChallenge": query["code_challenge"], "host": query["host"],
        "ttlSeconds": query["ttl"].parse::<i64>().unwrap(), "decision": decision,
    })
}

#[tokio::test]
async fn a_browser_brings_the_key_to_the_command_line() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let home = CliUser::new();
    // The browser of the user is a program that writes down its address.
    let opened = home.path().join("opened");
    let program =
        home.file("browser", format!("#!/bin/sh\nprintf '%s\\n' \"$1\" > {}\n", opened.display()));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let user = home.clone().with("BROWSER", &program);
    let (child, lines) = log_in(&scene, &user, &["--browser", "--ttl", "10m"]);
    let url = wait::until("the browser opens", async || {
        std::fs::read_to_string(&opened).ok().filter(|text| text.ends_with('\n'))
    })
    .await;
    let (_, authorize) = url.trim().split_once("/auth/").unwrap();
    let mut visitor = scene.browser();
    let page = visitor.visit(&format!("/auth/{authorize}")).await;
    assert_eq!(page.status, 303, "{}", page.text());
    let (path_of_page, query) = page.header("location").unwrap().split_once('?').unwrap();
    assert_eq!(path_of_page, "/ui/authorize");

    let described = browser.consent(&body(&spec_of(query, ""))).await.expect(200);
    let status = &described["status"];
    assert_eq!((&status["userName"], &status["isScoped"]), (&json!("corp:ada"), &json!(false)));
    assert!(status["host"].is_string() && status["expiresAt"].is_string(), "{status}");
    assert_eq!(status["redirectTo"], "", "nothing is given without a decision");
    let allowed = browser.consent(&body(&spec_of(query, "Allow"))).await.expect(200);
    let address = allowed["status"]["redirectTo"].as_str().unwrap();
    // An answer with another state changes nothing: the command waits for its own.
    let foreign = address.replace("state=", "state=x");
    assert!(get(&foreign).await.starts_with("HTTP/1.1 404"));
    let answer = get(address).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("close this page"), "{answer}");
    let output = wait::within("the login", child.wait_with_output()).await.unwrap();
    let said = lines.all().await;
    assert!(output.status.success() && said.contains("as the user ada"), "{said}");
    assert!(user.ok(&["whoami"]).await.contains("ada"));

    // The key is of the session, for the time that was asked for, and in no cookie.
    let keys = scene.admin.get(&collection("ownedaccesskeys")).send().await.expect(200);
    let keys = keys["items"].as_array().unwrap();
    let key = keys.iter().find(|key| key["metadata"]["labels"]["platform.sh/session"] == "cli");
    let key = key.expect("the key of the command line");
    let me = browser.me().await;
    assert_eq!(key["status"]["maker"]["name"], me["status"]["accessKey"]);
    assert_eq!((&key["spec"]["ttl"], &key["spec"]["user"]), (&json!(600), &json!("ada")));
    assert_eq!(key["status"]["session"]["commandLine"]["ttlSeconds"], 600);
    let value = postern_tests::Kubeconfig::read(&user.kubeconfig()).unwrap().token;
    let mut forged = scene.browser();
    forged.cookies.push(("__Host-postern".to_owned(), value.clone()));
    assert_eq!(forged.get(&collection("selves/me")).await.status, 401);
    // Nor does it begin a session, or allow another login.
    let own = scene.admin.with_token(&value);
    assert_eq!(own.post("/auth/session").send().await.status, 403);
    assert_eq!(own.post("/auth/authorize").json(&body(&consent("Allow"))).send().await.status, 403);

    // A logout of the command line ends its key alone.
    user.ok(&["logout"]).await;
    assert_eq!(own.get(&collection("selves/me")).send().await.status, 401);
    assert_eq!(browser.me().await["status"]["user"]["name"], "ada");
    let code = form(address.split_once('?').unwrap().1)["code"].clone();
    let logs = format!("{}{:?}", scene.server.home().logged(), scene.server.home().records());
    for secret in [code.as_str(), value.as_str(), &form(query)["code_challenge"], "id_token"] {
        assert!(!logs.contains(secret), "{secret}");
    }
    assert!(logs.contains("postern-cli"), "the login is recorded");
}

#[tokio::test]
async fn the_key_ends_with_the_session_that_allowed_it() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let client = stranger(&scene, [4, 1]);
    let code = code_in(&browser.consent(&body(&consent("Allow"))).await);
    let given = redeem(&client, &code, &[]).await.expect(200);
    assert_eq!(
        (&given["token_type"], given["expires_in"].as_i64().unwrap() <= 600),
        (&json!("Bearer"), true)
    );
    let own = scene.admin.with_token(given["access_token"].as_str().unwrap());
    let status = async || own.get(&collection("selves/me")).send().await.status;
    assert_eq!(status().await, 200);
    // The new key is a key of the connector as well.
    let corp = path("connectors", "corp");
    set(&scene.admin, &corp, json!({ "disabled": true })).await;
    assert_eq!(status().await, 401);
    set(&scene.admin, &corp, json!({ "disabled": false })).await;
    assert_eq!(status().await, 200);
    assert_eq!(browser.delete("/auth/session").await.status, 200);
    assert_eq!(status().await, 401);
}

#[tokio::test]
async fn a_terminal_without_a_browser_waits_for_one_elsewhere() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let user = CliUser::new();
    let (child, mut lines) = log_in(&scene, &user, &["--no-browser"]);
    let link = lines.after("https://").await;
    let typed = lines.after("and enter there:").await;
    let (page, device_code) = link.split_once('#').unwrap();
    assert!(page.ends_with("/ui/device"), "{page}");
    assert_eq!(typed.len(), 9, "{typed}");
    let spec = |typed: &str, decision: &str| {
        body(&json!({ "deviceCode": device_code, "userCode": typed, "decision": decision }))
    };
    for wrong in ["", "BBBB-BBBB", &typed[..8]] {
        let refused = browser.consent(&spec(wrong, "Allow")).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains("not the characters"), "{refused}");
    }
    let described = browser.consent(&spec(&typed, "")).await.expect(200);
    assert_eq!(described["status"]["address"], "127.0.0.1");
    let lower = typed.to_lowercase().replace('-', " ");
    let allowed = browser.consent(&spec(&lower, "Allow")).await.expect(200);
    assert_eq!(allowed["status"]["redirectTo"], "");
    let output = wait::within("the login", child.wait_with_output()).await.unwrap();
    let said = lines.all().await;
    assert!(output.status.success() && said.contains("as the user ada"), "{said}");
    assert!(user.ok(&["whoami"]).await.contains("ada"));
    let logs = format!("{}{:?}", scene.server.home().logged(), scene.server.home().records());
    for secret in [device_code, &typed] {
        assert!(!logs.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_login_that_is_denied_says_so_and_writes_nothing() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let user = CliUser::new();
    let (child, mut lines) = log_in(&scene, &user, &["--browser"]);
    let url = lines.after("https://").await;
    let (_, query) = url.split_once('?').unwrap();
    let mut spec = form(query);
    spec.insert("ttl".to_owned(), "0".to_owned());
    let fields: Vec<(&str, &str)> =
        spec.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let denied = browser.consent(&body(&spec_of(&encoded(&fields), "Deny"))).await.expect(200);
    let address = denied["status"]["redirectTo"].as_str().unwrap();
    assert!(address.contains("?error=access_denied&state="), "{address}");
    get(address).await;
    let output = wait::within("the login", child.wait_with_output()).await.unwrap();
    let said = lines.all().await;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("denied in the browser") && said.contains("nothing was written"),
        "{said}"
    );
    assert!(!user.kubeconfig().exists());
    assert_eq!(scene.sessions().await, 1);
}

/// The key of such a login would be in no file.
#[tokio::test]
async fn a_login_that_cannot_be_written_ends_at_the_server() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let user = CliUser::new();
    let foreign = "apiVersion: v1\nkind: Config\ncurrent-context: work\n\
        contexts: [{name: work, context: {cluster: c, user: u}}]\n\
        clusters: [{name: c, cluster: {server: 'https://work.example'}}]\n\
        users: [{name: u, user: {token: t}}]\n";
    std::fs::create_dir_all(user.kubeconfig().parent().unwrap()).unwrap();
    std::fs::write(user.kubeconfig(), foreign).unwrap();
    let (child, mut lines) = log_in(&scene, &user, &["--no-browser", "--context=work"]);
    let link = lines.after("https://").await;
    let typed = lines.after("and enter there:").await;
    let (_, device_code) = link.split_once('#').unwrap();
    let allowed = json!({ "deviceCode": device_code, "userCode": typed, "decision": "Allow" });
    browser.consent(&body(&allowed)).await.expect(200);
    let output = wait::within("the login", child.wait_with_output()).await.unwrap();
    let said = lines.all().await;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("already has an entry \"work\""), "{said}");
    assert_eq!(std::fs::read_to_string(user.kubeconfig()).unwrap(), foreign);
    assert_eq!(scene.sessions().await, 1, "the session of the browser alone");
}

#[tokio::test]
async fn requests_that_are_not_of_the_command_line_go_nowhere() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let challenge = challenge();
    let usual = [
        ("response_type", "code"),
        ("client_id", "postern-cli"),
        ("redirect_uri", REDIRECT),
        ("state", STATE),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    let rows = [
        ("redirect_uri", "https://127.0.0.1:40123/callback"),
        ("redirect_uri", "http://localhost:40123/callback"),
        ("redirect_uri", "http://127.0.0.1/callback"),
        ("redirect_uri", "http://127.0.0.1:40123/"),
        ("redirect_uri", "http://127.0.0.1:40123/callback/x"),
        ("redirect_uri", "http://127.0.0.1:40123/callback?x=1"),
        ("redirect_uri", "http://127.0.0.1:40123@evil.example/callback"),
        ("redirect_uri", "http://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1.evil.example:1/callback"),
        ("redirect_uri", "http://127.0.0.1:0/callback"),
        ("redirect_uri", "http://127.0.0.1:99999/callback"),
        ("redirect_uri", "http://[::2]:1/callback"),
        ("redirect_uri", "http://0.0.0.0:1/callback"),
        ("redirect_uri", "javascript:alert(1)"),
        ("redirect_uri", "/ui/"),
        ("redirect_uri", ""),
        ("response_type", "token"),
        ("client_id", "another"),
        ("code_challenge_method", "plain"),
        ("code_challenge_method", ""),
        ("code_challenge", ""),
        ("code_challenge", "short"),
        ("state", ""),
    ];
    let query = |(changed, value): (&str, &str)| {
        encoded(&usual.map(|(name, known)| (name, if name == changed { value } else { known })))
    };
    for (number, row) in rows.iter().enumerate() {
        let client = stranger(&scene, [5, u8::try_from(number + 1).unwrap()]);
        let page = format!("/auth/authorize?{}", query(*row));
        let answer = client.get(&page).without("authorization").send().await;
        assert_eq!(answer.status, 400, "{row:?}: {}", answer.text());
        assert!(answer.header("location").is_none(), "{row:?}");
        assert!(answer.text().contains(row.0), "{row:?}: {}", answer.text());
    }
    let good = format!("/auth/authorize?{}", query(("", "")));
    let client = stranger(&scene, [5, 100]);
    assert_eq!(client.get(&good).without("authorization").send().await.status, 303);
    // The consent checks the same.
    for (field, value) in [("redirectURI", "http://evil.example/callback"), ("codeChallenge", "x")]
    {
        let mut spec = consent("Allow");
        spec[field] = json!(value);
        assert_eq!(browser.consent(&body(&spec)).await.status, 400, "{field}");
    }
    assert_eq!(scene.sessions().await, 1);
}

#[tokio::test]
async fn a_code_counts_once_and_with_its_verifier_alone() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let code = code_in(&browser.consent(&body(&consent("Allow"))).await);
    let stored = scene.admin.get(&collection("ownedaccesskeys")).send().await.expect(200);
    let stored = stored["items"].as_array().unwrap().iter();
    let stored: Vec<&Value> =
        stored.filter(|key| key["status"]["session"]["loginCode"] == true).collect();
    assert_eq!((stored.len(), &stored[0]["spec"]["ttl"]), (1, &json!(60)));
    let other = VERIFIER.replace('a', "b");
    let client = stranger(&scene, [6, 1]);
    for (changes, error) in [
        ([("code_verifier", other.as_str())], "invalid_grant"),
        ([("code_verifier", "short")], "invalid_grant"),
        ([("code_verifier", "")], "invalid_request"),
        ([("redirect_uri", "http://127.0.0.1:40124/callback")], "invalid_grant"),
        ([("redirect_uri", "")], "invalid_request"),
        ([("client_id", "another")], "invalid_client"),
        ([("code", "another")], "invalid_grant"),
        ([("grant_type", "password")], "unsupported_grant_type"),
    ] {
        let refused = redeem(&client, &code, &changes).await;
        assert_eq!(error_of(&refused), (400, error.to_owned()), "{changes:?}");
    }
    // The stored text is no credential: not for the API, and not for a session.
    let hashed =
        BASE64URL.encode(digest(&SHA256, format!("{} {REDIRECT}", challenge()).as_bytes()));
    for token in [code.clone(), format!("{code}.{hashed}")] {
        let bearer = client.with_token(&token);
        assert_eq!(bearer.get(&collection("selves/me")).send().await.status, 401);
        assert_eq!(bearer.post("/auth/session").send().await.status, 401);
    }
    let other = stranger(&scene, [6, 2]);
    let at_once = join_all((0..8).map(|_| redeem(&other, &code, &[]))).await;
    let mut codes: Vec<u16> = at_once.iter().map(|answer| answer.status).collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 400, 400, 400, 400, 400, 400, 400]);
    assert_eq!(error_of(&redeem(&other, &code, &[]).await), (400, "invalid_grant".to_owned()));
    assert_eq!(scene.sessions().await, 2);
}

#[tokio::test]
async fn a_code_ends_by_time() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--allow-local-upstreams");
    let server = server.argument("--console-session=4s").start().await;
    let scene = Scene::of(server).await;
    let (browser, _) = scene.log_in().await;
    let code = code_in(&browser.consent(&body(&consent("Allow"))).await);
    wait::until("the session ends", async || {
        (browser.get(&collection("selves/me")).await.status == 401).then_some(())
    })
    .await;
    let late = redeem(&stranger(&scene, [7, 1]), &code, &[]).await;
    assert_eq!(error_of(&late), (400, "invalid_grant".to_owned()));
}

#[tokio::test]
async fn only_the_console_with_its_session_can_allow() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let body = body(&consent("Allow"));
    let cookie = browser.cookie();
    let request = |last: u8| (stranger(&scene, [8, last]), body.clone());
    for (last, headers, status) in [
        (1, vec![], 401),
        (2, vec![("cookie", cookie.as_str())], 401),
        (3, vec![("x-postern-console", "1")], 401),
        (4, vec![("cookie", &cookie), ("x-postern-console", "0")], 401),
        (
            5,
            vec![
                ("cookie", &cookie),
                ("x-postern-console", "1"),
                ("origin", "https://evil.example"),
            ],
            401,
        ),
        (
            6,
            vec![("cookie", &cookie), ("x-postern-console", "1"), ("sec-fetch-site", "cross-site")],
            401,
        ),
    ] {
        let (client, body) = request(last);
        let mut asked = client.post("/auth/authorize").without("authorization").json(&body);
        for (name, value) in &headers {
            asked = asked.header(*name, value);
        }
        assert_eq!(asked.send().await.status, status, "{headers:?}");
    }
    // An access key is no session, and neither is the value of a session in a header.
    assert_eq!(scene.admin.post("/auth/authorize").json(&body).send().await.status, 403);
    let value = cookie.split_once('=').unwrap().1;
    let own = scene.admin.with_token(value);
    assert_eq!(own.post("/auth/authorize").json(&body).send().await.status, 401);
    let mut unknown = consent("Allow");
    unknown["other"] = json!(1);
    assert_eq!(browser.consent(&self::body(&unknown)).await.status, 400);
    assert_eq!(browser.consent(&self::body(&consent("allow"))).await.status, 400);
    assert_eq!(scene.sessions().await, 1);
}

async fn begin_device(client: &Client) -> Value {
    let challenge = challenge();
    let fields = [
        ("client_id", "postern-cli"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
        ("host", "build-7"),
    ];
    post_form(client, "/auth/device", &fields).await.expect(200)
}

/// Asks for the key until the interval between two requests is over.
async fn poll_in_time(client: &Client, device_code: &str) -> Response {
    wait::until("the interval", async || {
        // Each request that is too early counts as a failure.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answer = poll(client, device_code, VERIFIER).await;
        (error_of(&answer).1 != "slow_down").then_some(answer)
    })
    .await
}

async fn poll(client: &Client, device_code: &str, verifier: &str) -> Response {
    let fields = [
        ("grant_type", DEVICE_GRANT),
        ("client_id", "postern-cli"),
        ("device_code", device_code),
        ("code_verifier", verifier),
    ];
    post_form(client, TOKEN, &fields).await
}

#[tokio::test]
async fn a_device_code_gives_one_key_to_the_client_that_began() {
    let scene = Scene::start().await;
    let (ada, _) = scene.log_in().await;
    let client = stranger(&scene, [9, 1]);
    let begun = begin_device(&client).await;
    let text = |name: &str| begun[name].as_str().unwrap().to_owned();
    let (device_code, user_code) = (text("device_code"), text("user_code"));
    assert_eq!((&begun["interval"], &begun["expires_in"]), (&json!(5), &json!(600)));
    assert!(text("verification_uri_complete").ends_with(&format!("/ui/device#{device_code}")));
    let pending = error_of(&poll(&client, &device_code, VERIFIER).await);
    assert_eq!(pending, (400, "authorization_pending".to_owned()));
    let other = VERIFIER.replace('a', "b");
    let grant = (400, "invalid_grant".to_owned());
    assert_eq!(error_of(&poll(&client, &device_code, &other).await), grant);
    let changed = format!("{}AAAA", &device_code[..device_code.len() - 4]);
    assert_eq!(error_of(&poll(&client, &changed, VERIFIER).await), grant);
    let spec = |device_code: &str, decision: &str| {
        body(&json!({ "deviceCode": device_code, "userCode": user_code, "decision": decision }))
    };
    assert_eq!(ada.consent(&spec(&changed, "Allow")).await.status, 400);
    // An unauthenticated client has no session.
    let alone = client.post("/auth/authorize").without("authorization");
    let alone = alone.header("x-postern-console", "1").json(&spec(&device_code, "Allow"));
    assert_eq!(alone.send().await.status, 401);
    // A denial stores nothing: the terminal waits to the end.
    ada.consent(&spec(&device_code, "Deny")).await.expect(200);
    let early = poll(&client, &device_code, VERIFIER).await;
    assert_eq!(error_of(&early), (400, "slow_down".to_owned()), "before the interval");
    assert_eq!(error_of(&poll_in_time(&client, &device_code).await), pending);

    ada.consent(&spec(&device_code, "Allow")).await.expect(200);
    scene.provider.set(|state| {
        state.claims = json!({ "sub": "another", "preferred_username": "bob", "sid": "other" });
    });
    let (bob, _) = scene.log_in().await;
    assert_eq!(bob.consent(&spec(&device_code, "Allow")).await.status, 409);
    let given = poll_in_time(&client, &device_code).await.expect(200);
    let own = scene.admin.with_token(given["access_token"].as_str().unwrap());
    let me = own.get(&collection("selves/me")).send().await.expect(200);
    assert_eq!(me["status"]["user"]["name"], "ada");
    assert_eq!(error_of(&poll(&client, &device_code, VERIFIER).await), pending);
    let keys = names(&scene.admin, "ownedaccesskeys").await;
    assert_eq!(keys.iter().filter(|name| name.starts_with("cli-")).count(), 1, "{keys:?}");
    let name = me["status"]["accessKey"].as_str().unwrap();
    let key = scene.admin.get(&path("ownedaccesskeys", name)).send().await.expect(200);
    assert_eq!(key["spec"]["displayName"], "Command line on build-7");
}

#[tokio::test]
async fn strangers_store_nothing() {
    let scene = Scene::start().await;
    let revision = async || {
        let list = scene.admin.get(&collection("ownedaccesskeys")).send().await.expect(200);
        list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() / 256
    };
    let before = revision().await;
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    let challenge = challenge();
    let fields = [
        ("client_id", "postern-cli"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    for last in 1..=67 {
        let client = stranger(&scene, [10, last]);
        for _ in 0..30 {
            let answer = post_form(&client, "/auth/device", &fields).await;
            *codes.entry(answer.status).or_default() += 1;
        }
    }
    // None is a failure, and none uses a scarce resource.
    assert_eq!(codes.keys().copied().collect::<Vec<_>>(), [200], "{codes:?}");
    // The last use of the administrator's key may be stored meanwhile.
    let stored = revision().await - before;
    assert!(stored <= 5, "{stored} transactions");
}

/// Without the web console, there is no page on which a user could allow the login.
#[tokio::test]
async fn without_a_console_the_reason_is_said() {
    let server = Setup::on(&Home::new()).argument("--console=false").start().await;
    let client = server.client();
    let page = client.get("/auth/authorize").without("authorization").send().await;
    assert_eq!(page.status, 404);
    assert!(page.text().contains("no web console"), "{}", page.text());
    let user = CliUser::new();
    let ca = user.file("ca.pem", &server.kubeconfig().authority);
    let url = format!("https://{}", server.kubeconfig().authority_of_server());
    let done = user.run(&["login", &url, "--ca-file", &ca, "--no-browser"]).await;
    assert_eq!(done.code, 1);
    assert!(done.err.contains("no web console"), "{}", done.err);
}
