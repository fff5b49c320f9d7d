//! `postern login --workload-identity`: where the token of a platform comes from.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::identity_provider::{IdentityProvider, Raw};
use postern_tests::objects::make;
use postern_tests::{Home, Server, Setup};
use serde_json::json;

use crate::cli::{authority, url};

/// A server that exchanges tokens of a provider for keys of the user `bot`, and such a token.
async fn scene() -> (Server, IdentityProvider, String) {
    let server = Setup::on(&Home::new()).argument("--allow-local-upstreams").start().await;
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
