//! `postern login --workload-identity`: where the token of a platform comes from.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::identity_provider::{IdentityProvider, Raw, post_form};
use postern_tests::objects::make;
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

use crate::cli::running::Running;
use crate::cli::{authority, url};

/// A server that exchanges tokens of a provider for keys of the user `bot`, and such a token.
async fn scene() -> (Server, IdentityProvider, String) {
    scene_with(Setup::on(&Home::new())).await
}

async fn scene_with(setup: Setup) -> (Server, IdentityProvider, String) {
    let server = setup.argument("--allow-local-upstreams").start().await;
    let (admin, provider) = (server.client(), IdentityProvider::start().await);
    make(&admin, "users", "bot", json!({})).await;
    let issuer = json!({
        "type": "Generic", "issuer": provider.issuer(), "caData": provider.ca_data(),
    });
    make(&admin, "trustedissuers", "ci", issuer).await;
    let identity = json!({
        "issuer": "ci", "match": [{ "claim": "sub", "values": ["build"] }],
        "owner": { "user": "bot" }, "scope": { "allowPlatformCli": true },
    });
    make(&admin, "workloadidentities", "deploy", identity).await;
    let audience = format!("{}/auth/token", url(&server));
    let token = provider.token(&json!({ "sub": "build", "aud": audience }));
    (server, provider, token)
}

#[tokio::test]
async fn a_pipeline_logs_in_with_the_token_of_its_platform() {
    let (server, provider, token) = scene().await;
    let url = url(&server);
    let arguments_with = |ca: &str| {
        ["login", &url, "--ca-file", ca, "--workload-identity", "deploy"].map(str::to_owned)
    };
    let log_in = async |user: &CliUser, more: &[&str]| {
        let arguments = arguments_with(&authority(user, &server));
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        user.ok(&arguments).await;
        assert!(user.ok(&["whoami"]).await.contains("bot"));
    };
    let file_user = CliUser::new();
    let file = file_user.file("token", format!("{token}\n"));
    log_in(&file_user, &["--token-file", &file]).await;
    log_in(&CliUser::new().with("POSTERN_ID_TOKEN", &token), &[]).await;
    // As GitHub Actions gives it.
    let answer = json!({ "value": token }).to_string();
    provider.set(|state| {
        state.raw.insert("/id-token", Raw::of(200, answer));
    });
    let user = CliUser::new();
    let ca = user.file("platform.pem", BASE64_STANDARD.decode(provider.ca_data()).unwrap());
    let request = format!("{}/id-token?api-version=2.0", provider.issuer());
    let user = user
        .with("SSL_CERT_FILE", &ca)
        .with("ACTIONS_ID_TOKEN_REQUEST_URL", &request)
        .with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner");
    log_in(&user, &[]).await;
    assert_eq!(provider.asked("/id-token"), 1);
}

#[tokio::test]
async fn a_login_without_a_token_that_counts_says_what_to_do() {
    let (server, provider, _) = scene().await;
    let (url, user) = (url(&server), CliUser::new());
    let ca = authority(&user, &server);
    let login = ["login", &url, "--ca-file", &ca, "--workload-identity", "deploy"];
    let said = user.fails(2, &login).await;
    assert!(said.contains("there is no token of a platform"), "{said}");
    let other = provider.token(&json!({ "sub": "build", "aud": "other" }));
    let user = user.with("POSTERN_ID_TOKEN", &other);
    let said = user.fails(1, &login).await;
    assert!(said.contains("invalid_grant") && said.contains("/auth/token"), "{said}");
    assert!(!said.contains(&other), "{said}");
    let both = user.fails(2, &[&login[..], &["--access-key", "-"]].concat()).await;
    assert!(both.contains("cannot be used with"), "{both}");
}

/// A server with scripted responses, and a user with a token of a platform for it.
async fn scripted(answers: &[(&'static str, u16, Value)]) -> (IdentityProvider, CliUser) {
    let server = IdentityProvider::start().await;
    for (path, status, body) in answers {
        answer(&server, path, *status, body);
    }
    (server, CliUser::new().with("POSTERN_ID_TOKEN", "token"))
}

fn answer(server: &IdentityProvider, path: &'static str, status: u16, body: &Value) {
    let raw = Raw::of(status, body.to_string());
    server.set(|state| drop(state.raw.insert(path, raw)));
}

/// The arguments of a login at such a server.
fn login_at(server: &IdentityProvider, user: &CliUser, timeout: &str) -> Vec<String> {
    let ca = user.file("ca.pem", server.authority());
    let url = server.issuer();
    ["login", &url, "--ca-file", &ca, "--workload-identity", "deploy", "--timeout", timeout]
        .map(str::to_owned)
        .to_vec()
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The Status of a rate limit.
fn busy(code: u16, seconds: u32) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "too many requests for logins: try again later",
        "details": { "retryAfterSeconds": seconds } })
}

const SELVES: &str = "/kubernetes/management/apis/management.platform.sh/v1/selves";

#[tokio::test]
async fn a_login_waits_for_a_busy_server() {
    let who = json!({ "kind": "Self", "apiVersion": "management.platform.sh/v1", "metadata": {},
        "status": { "user": { "name": "bot" } } });
    for (code, body) in [
        (429, busy(429, 1)),
        (503, busy(503, 1)),
        (503, json!({ "error": "temporarily_unavailable" })),
    ] {
        let (server, user) =
            scripted(&[("/auth/token", code, body), (SELVES, 201, who.clone())]).await;
        let arguments = login_at(&server, &user, "1h");
        let mut running = Running::start(&user, &borrowed(&arguments));
        running.error_line("so the next attempt is in").await;
        answer(&server, "/auth/token", 200, &json!({ "access_token": "key" }));
        running.error_line("logged in to").await;
        assert_eq!(running.ended().await.0.code(), Some(0));
        assert!(server.asked("/auth/token") > 1);
    }
}

#[tokio::test]
async fn a_login_that_cannot_wait_says_when_to_try_again() {
    let (server, user) = scripted(&[("/auth/token", 429, busy(429, 3599))]).await;
    let said = user.fails(1, &borrowed(&login_at(&server, &user, "30s"))).await;
    assert!(said.contains("too many requests for logins"), "{said}");
    assert!(said.contains("try again in 3599 s"), "{said}");
    assert_eq!(server.asked("/auth/token"), 1);
}

#[tokio::test]
async fn the_rate_limit_of_the_server_is_understood() {
    let (server, _, token) = scene().await;
    let (url, client) = (url(&server), server.client());
    let user = CliUser::new().with("POSTERN_ID_TOKEN", &token);
    let ca = authority(&user, &server);
    // The client never waits: each wait is at least as long.
    let login =
        ["login", &url, "--ca-file", &ca, "--workload-identity", "deploy", "--timeout", "1s"];
    wait::until("a login that is limited", async || {
        while post_form(&client, "subject_token=refused").await.status != 429 {}
        // A new minute may have begun.
        let output = user.run(&login).await;
        output.err.contains("too many failed logins").then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_audience_is_that_of_the_external_url() {
    let refused = json!({ "error": "invalid_grant" });
    let (server, user) = scripted(&[("/auth/token", 400, refused)]).await;
    let arguments = login_at(&server, &user, "30s");
    let said = user.fails(1, &borrowed(&arguments)).await;
    assert!(said.contains("must be the server's --external-url with /auth/token"), "{said}");
    let methods = |url: &str| json!({ "externalUrl": url, "methods": [] });
    answer(&server, "/auth/methods", 200, &methods("https://postern.test/base"));
    let said = user.fails(1, &borrowed(&arguments)).await;
    assert!(said.contains("must be https://postern.test/base/auth/token"), "{said}");
    answer(&server, "/auth/methods", 200, &methods("javascript:"));
    let said = user.fails(1, &borrowed(&arguments)).await;
    assert!(said.contains("must be the server's --external-url"), "{said}");
}

#[tokio::test]
async fn the_server_can_be_reached_at_another_address_than_its_external_url() {
    let setup = Setup::on(&Home::new()).argument("--external-url=https://postern.test");
    let (server, provider, of_address) = scene_with(setup).await;
    let (url, user) = (url(&server), CliUser::new());
    let ca = authority(&user, &server);
    let login = ["login", &url, "--ca-file", &ca, "--workload-identity", "deploy"];
    let said = user.clone().with("POSTERN_ID_TOKEN", &of_address).fails(1, &login).await;
    assert!(said.contains("must be https://postern.test/auth/token"), "{said}");
    let claims = json!({ "sub": "build", "aud": "https://postern.test/auth/token" });
    user.with("POSTERN_ID_TOKEN", &provider.token(&claims)).ok(&login).await;
}

#[tokio::test]
async fn github_is_asked_for_the_audience_of_the_server_and_of_no_other() {
    let refused = json!({ "error": "invalid_grant" });
    let (server, user) =
        scripted(&[("/auth/token", 400, refused), ("/id-token", 200, json!({ "value": "t" }))])
            .await;
    let request = format!("{}/id-token?api-version=2.0", server.issuer());
    let user = CliUser::at(postern_tests::Home::new())
        .with("SSL_CERT_FILE", &user.file("platform.pem", server.authority()))
        .with("ACTIONS_ID_TOKEN_REQUEST_URL", &request)
        .with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner");
    let mut arguments = login_at(&server, &user, "30s");
    arguments.push("--debug".to_owned());
    let host = server.issuer();
    let host = host.trim_start_matches("https://").split(':').next().unwrap();
    let asked = async |external: &str| {
        let methods = json!({ "externalUrl": external, "methods": [] });
        answer(&server, "/auth/methods", 200, &methods);
        let said = user.fails(1, &borrowed(&arguments)).await;
        assert!(said.contains(&format!("must be {external}/auth/token")), "{said}");
        said.lines()
            .filter(|line| line.contains("audience="))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let same_host = asked(&format!("https://{host}:1/base")).await;
    assert_eq!(same_host.len(), 2, "{same_host:?}");
    assert!(same_host[1].contains("%3A1%2Fbase%2Fauth%2Ftoken"), "{same_host:?}");
    // Such a server could use the token of the other host itself.
    assert_eq!(asked("https://postern.test").await.len(), 1);
}
