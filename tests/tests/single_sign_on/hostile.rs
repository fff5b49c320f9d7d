//! Hostile responses of a provider or a browser. Each is refused with the text of its rule, and
//! makes no session. No part of it is in a response, the log or the audit log.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postern_tests::connectors::make_connector;
use postern_tests::identity_provider::{CLIENT_SECRET, IdentityProvider, Raw, Signing, State, now};
use postern_tests::objects::make;
use postern_tests::{Home, Setup};
use serde_json::{Value, json};

use super::scene::Browser;

/// One hostile answer.
struct Row {
    name: &'static str,
    /// Changes the settings of the connector.
    connector: Value,
    change: fn(&mut State),
    /// A part of the text that refuses it.
    text: &'static str,
}

fn row(name: &'static str, text: &'static str, change: fn(&mut State)) -> Row {
    Row { name, connector: json!({}), change, text }
}

fn with(connector: Value, mut row: Row) -> Row {
    row.connector = connector;
    row
}

/// A redirect to the metadata service of clouds.
fn redirect() -> Raw {
    let location = Some("http://169.254.169.254/latest/meta-data".to_owned());
    Raw { location, ..Raw::of(302, "") }
}

const DISCOVERY: &str = "/.well-known/openid-configuration";

fn discovery_rows() -> Vec<Row> {
    let large = "the response of the provider is too large";
    let no_json = "the discovery document is not a JSON object";
    vec![
        row("another issuer", "names another issuer", |s| {
            s.discovery = json!({ "issuer": "https://evil.example" });
        }),
        row("a slash after the issuer", "names another issuer", |s| {
            s.discovery = json!({ "issuer": "https://127.0.0.1/" });
        }),
        row("no authorization endpoint", "no authorization_endpoint", |s| {
            s.discovery = json!({ "authorization_endpoint": null });
        }),
        row("a token endpoint without TLS", "no token_endpoint", |s| {
            s.discovery = json!({ "token_endpoint": "http://127.0.0.1/token" });
        }),
        row("no keys", "no jwks_uri", |s| s.discovery = json!({ "jwks_uri": null })),
        row("keys in a file", "no jwks_uri", |s| {
            s.discovery = json!({ "jwks_uri": "file:///etc/passwd" });
        }),
        row("no code flow", "response_type=code", |s| {
            s.discovery = json!({ "response_types_supported": ["id_token"] });
        }),
        row("plain PKCE alone", "PKCE with S256", |s| {
            s.discovery = json!({ "code_challenge_methods_supported": ["plain"] });
        }),
        row("shared secrets alone", "signs with none of", |s| {
            s.discovery = json!({ "id_token_signing_alg_values_supported": ["HS256"] });
        }),
        row("10 MB", large, |s| {
            s.raw.insert(DISCOVERY, Raw::of(200, vec![b' '; 10 << 20]));
        }),
        row("no JSON", no_json, |s| {
            s.raw.insert(DISCOVERY, Raw::of(200, "<html>canary</html>"));
        }),
        row("a field twice", no_json, |s| {
            s.raw.insert(DISCOVERY, Raw::of(200, r#"{"issuer":"a","issuer":"b"}"#));
        }),
        row("a redirect", "answered with a redirect", |s| {
            s.raw.insert(DISCOVERY, redirect());
        }),
        row("an error", "answered with status 500", |s| {
            s.raw.insert(DISCOVERY, Raw::of(500, "canary"));
        }),
    ]
}

fn key_rows() -> Vec<Row> {
    vec![
        row("keys at the metadata service", "could not be reached", |s| {
            s.discovery = json!({ "jwks_uri": "https://169.254.169.254/keys" });
        }),
        row("keys behind a redirect", "answered with a redirect", |s| {
            s.raw.insert("/keys", redirect());
        }),
        row("1 MB of keys", "too large", |s| {
            s.raw.insert("/keys", Raw::of(200, vec![b' '; 1 << 20]));
        }),
        row("101 keys", "more than 100 keys", |s| {
            s.key_ids = (0..101).map(|number| format!("key-{number}")).collect();
        }),
        row("keys that are no JSON", "the key set", |s| {
            s.raw.insert("/keys", Raw::of(200, "canary"));
        }),
        row("a key that is a shared secret", "the key set", |s| {
            s.raw.insert("/keys", Raw::of(200, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#));
        }),
    ]
}

fn token_response_rows() -> Vec<Row> {
    vec![
        row("tokens behind a redirect", "answered with a redirect", |s| {
            s.raw.insert("/token", redirect());
        }),
        row("tokens that are no JSON", "the token response is not a JSON object", |s| {
            s.raw.insert("/token", Raw::of(200, "canary"));
        }),
        row("1 MB of tokens", "too large", |s| {
            s.raw.insert("/token", Raw::of(200, vec![b' '; 1 << 20]));
        }),
        row("no ID token", "no ID token", |s| s.tokens = json!({ "id_token": null })),
        row("another type of token", "another token_type", |s| {
            s.tokens = json!({ "token_type": "mac" });
        }),
        row("a code that is not accepted", "does not accept the code", |s| {
            s.raw.insert("/token", Raw::of(400, r#"{"error":"invalid_grant","x":"canary"}"#));
        }),
        row("a client that is not accepted", "does not accept the client", |s| {
            s.raw.insert("/token", Raw::of(401, r#"{"error":"invalid_client"}"#));
        }),
        row("a failure at the token endpoint", "gave no tokens, but status 503", |s| {
            s.raw.insert("/token", Raw::of(503, "canary"));
        }),
    ]
}

fn signature_rows() -> Vec<Row> {
    let algorithm = "the algorithm is none of";
    vec![
        row("no signature", "not three parts", |s| {
            (s.signing, s.header) = (Signing::Nothing, json!({ "alg": "none" }));
        }),
        row("alg none", algorithm, |s| s.header = json!({ "alg": "none" })),
        row("alg HS256", algorithm, |s| s.header = json!({ "alg": "HS256" })),
        row("alg of another type of key", "no key with the kid and the algorithm", |s| {
            s.header = json!({ "alg": "RS256" });
        }),
        row("another key", "the signature is wrong", |s| s.signing = Signing::OtherKey),
        row("a changed claim", "the signature is wrong", |s| {
            s.signing = Signing::ChangedAfterwards;
        }),
        row("an unknown kid", "no key with the kid", |s| s.header = json!({ "kid": "x" })),
        row("a critical header", "critical extensions", |s| {
            s.header = json!({ "crit": ["b64"], "b64": false });
        }),
        row("an access token", "of another type", |s| s.header = json!({ "typ": "at+jwt" })),
        row("a nested token", "nested token", |s| s.header = json!({ "cty": "JWT" })),
    ]
}

fn claim_rows() -> Vec<Row> {
    vec![
        row("iss of another", "of another issuer", |s| {
            s.claims = json!({ "iss": "https://evil.example" });
        }),
        row("aud of another", "for another audience", |s| s.claims = json!({ "aud": "other" })),
        row("no aud", "for another audience", |s| s.claims = json!({ "aud": null })),
        row("two aud without azp", "issued to another party", |s| {
            s.claims = json!({ "aud": ["postern", "other"] });
        }),
        row("azp of another", "issued to another party", |s| s.claims = json!({ "azp": "other" })),
        row("expired", "has expired", |s| s.claims = json!({ "exp": now() - 120 })),
        row("no end", "has expired, or has no exp", |s| s.claims = json!({ "exp": null })),
        row("not yet valid", "not valid yet", |s| s.claims = json!({ "nbf": now() + 300 })),
        row("issued in the future", "issued in the future", |s| {
            s.claims = json!({ "iat": now() + 300 });
        }),
        row("no iat", "no iat", |s| s.claims = json!({ "iat": null })),
        row("no subject", "no subject", |s| s.claims = json!({ "sub": null })),
        row("a long subject", "too long", |s| s.claims = json!({ "sub": "x".repeat(256) })),
        row("another nonce", "(nonce)", |s| s.claims = json!({ "nonce": "other" })),
        row("no nonce", "(nonce)", |s| s.claims = json!({ "nonce": null })),
        row("another access token", "(at_hash)", |s| s.claims = json!({ "at_hash": "AAAA" })),
        row("a logout token", "is a logout token", |s| s.claims = json!({ "events": {} })),
    ]
}

fn person_rows() -> Vec<Row> {
    let many: fn(&mut State) = |s| {
        let groups: Vec<String> = (0..501).map(|number| format!("g{number}")).collect();
        s.claims = json!({ "groups": groups });
    };
    let domains = json!({ "allow": { "emailDomains": ["corp.example"] } });
    let info = json!({ "groupsFrom": "UserInfo" });
    vec![
        row("no groups", "the claim of the groups is missing", |s| {
            s.claims = json!({ "groups": null });
        }),
        row("groups elsewhere", "more groups than the provider puts", |s| {
            s.claims = json!({ "groups": null, "_claim_names": { "groups": "src1" } });
        }),
        row("groups that are a number", "neither a text nor a list", |s| {
            s.claims = json!({ "groups": 7 });
        }),
        row("501 groups", "more than 500 groups", many),
        row("a long group", "more than 256 bytes", |s| {
            s.claims = json!({ "groups": ["x".repeat(257)] });
        }),
        row("no username", "the claim of the username", |s| {
            s.claims = json!({ "preferred_username": null });
        }),
        with(
            json!({ "allow": { "groups": ["admins"] } }),
            row("a group that is not allowed", "does not allow this user", |_| {}),
        ),
        with(
            domains.clone(),
            row("an address that is not verified", "not say that it has verified", |s| {
                s.claims = json!({ "email": "a@corp.example", "email_verified": false });
            }),
        ),
        with(
            domains,
            row("a domain that looks alike", "does not allow this user", |s| {
                s.claims = json!({ "email": "a@corp.example.evil.example" });
            }),
        ),
        with(
            json!({ "provisioning": "Match" }),
            row("nobody who is linked", "no User is linked", |_| {}),
        ),
        with(
            info.clone(),
            row("UserInfo of another", "about another user", |s| {
                s.user_info = json!({ "sub": "other" });
            }),
        ),
        with(
            info.clone(),
            row("UserInfo that is no JSON", "the UserInfo response is not", |s| {
                s.raw.insert("/userinfo", Raw::of(200, "canary"));
            }),
        ),
        with(
            info,
            row("no UserInfo", "no UserInfo endpoint", |s| {
                s.discovery = json!({ "userinfo_endpoint": null });
            }),
        ),
    ]
}

fn answer_rows() -> Vec<Row> {
    vec![
        row("no state", "the answer has no state", |s| s.answer = json!({ "state": null })),
        row("another state", "did not begin in this browser", |s| {
            s.answer = json!({ "state": "AAAAAAAAAAAA" });
        }),
        row("no code", "has no code", |s| s.answer = json!({ "code": null })),
        row("an unknown code", "does not accept the code", |s| {
            s.answer = json!({ "code": "code-canary-x" });
        }),
        row("iss of another answer", "(iss)", |s| {
            s.answer = json!({ "iss": "https://evil.example" });
        }),
        row("no iss although it is promised", "(iss)", |s| {
            s.discovery = json!({ "authorization_response_iss_parameter_supported": true });
        }),
        row("a user who does not want to", "did not let the user log in", |s| {
            s.answer = json!({ "error": "access_denied", "code": null });
        }),
        row("a scope that it does not know", "does not know a scope", |s| {
            s.answer = json!({ "error": "invalid_scope", "code": null });
        }),
        row("an error that it does not know", "answered with an error", |s| {
            s.answer = json!({ "error": "canary", "error_description": "canary" });
        }),
    ]
}

/// Texts that only a provider sends, or that only it should see.
const CANARIES: [&str; 3] = ["canary", "eyJ", "evil.example"];

#[tokio::test]
async fn hostile_answers_make_no_session_and_leave_nothing() {
    let home = Home::new();
    let server = Setup::on(&home)
        .argument("--allow-local-upstreams")
        .argument("--upstream-deny")
        .argument("169.254.0.0/16")
        .start()
        .await;
    let (admin, provider) = (server.client(), IdentityProvider::start().await);
    make_connector(&admin, provider.connector(), CLIENT_SECRET).await;
    let rows = [
        discovery_rows(),
        key_rows(),
        token_response_rows(),
        signature_rows(),
        claim_rows(),
        person_rows(),
        answer_rows(),
    ];
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    assert!(rows.len() >= 40);
    let pem = BASE64_STANDARD.decode(provider.ca_data()).unwrap();
    for (number, row) in rows.iter().enumerate() {
        // The data of a provider is cached by issuer and authorities.
        let ca_data =
            BASE64_STANDARD.encode([&pem[..], "\n".repeat(number + 1).as_bytes()].concat());
        let mut spec = provider.connector();
        spec["caData"] = json!(ca_data);
        for (field, value) in row.connector.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let name = format!("row-{number}");
        make(&admin, "connectors", &name, spec).await;
        provider.set(|state| {
            state.be_honest();
            (row.change)(state);
        });
        let address = std::net::Ipv4Addr::new(127, 0, 2, u8::try_from(number + 1).unwrap());
        let mut browser = Browser::at(&admin, address.into());
        let mut response = browser.visit(&format!("/auth/oidc/{name}/start")).await;
        if response.status == 303 {
            let callback = provider.log_in(response.header("location").unwrap());
            response = browser.visit(&callback).await;
        }
        let (what, text) = (row.name, response.text());
        assert!((400..600).contains(&response.status), "{what}: {}", response.status);
        assert!(text.contains(row.text), "{what}: {text}");
        assert!(!browser.has_session(), "{what}");
        for canary in CANARIES {
            assert!(!text.contains(canary), "{what}: {text}");
        }
    }
    // The same provider and the same connectors, without a change.
    provider.set(State::be_honest);
    let mut browser = Browser::at(&admin, std::net::Ipv4Addr::new(127, 0, 3, 1).into());
    let refused = browser.log_in(&provider).await;
    assert!(browser.has_session(), "{}", refused.text());
    let log = home.logged();
    for canary in CANARIES {
        assert!(!log.contains(canary), "the log has {canary}");
    }
    let records: Vec<Value> =
        home.records().into_iter().filter(|record| record["verb"] == "login").collect();
    assert!(records.len() > 40, "{}", records.len());
    for record in records {
        let record = record.to_string();
        assert!(CANARIES.iter().all(|canary| !record.contains(canary)), "{record}");
    }
}

#[tokio::test]
async fn an_answer_counts_for_its_own_connector_and_browser() {
    let scene = super::scene::Scene::start().await;
    make(&scene.admin, "connectors", "other", scene.provider.connector()).await;
    let mut browser = scene.browser();
    let callback = scene.provider.log_in(&browser.begin("/auth/oidc/corp/start").await);
    // Another browser has the address alone.
    let stolen = scene.browser().visit(&callback).await;
    assert!(stolen.expect_text(403).contains("did not begin in this browser"));
    let mixed = browser.visit(&callback.replace("/corp/", "/other/")).await;
    assert!(mixed.expect_text(403).contains("began with another connector"), "{}", mixed.text());
    assert!(!browser.has_session());
    // A name twice could mean two things.
    let callback = scene.provider.log_in(&browser.begin("/auth/oidc/corp/start").await);
    let twice = browser.visit(&format!("{callback}&code=x")).await;
    assert!(twice.expect_text(400).contains("a name twice"), "{}", twice.text());
    assert_eq!(scene.sessions().await, 0);
}
