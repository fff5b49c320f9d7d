//! The time after a login: groups change, users are removed, sessions end at the provider.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::identity_provider::{CLIENT_ID, IdentityProvider, Raw, form, now};
use postern_tests::objects::{collection, make};
use postern_tests::rights::{allow, path, rule_on, set, with_key};
use postern_tests::wait;
use serde_json::{Value, json};

use super::scene::{Browser, Scene};

const LOGOUT: &str = "/auth/oidc/corp/backchannel-logout";

/// The shortest interval that a connector can have.
const INTERVAL: i64 = 10;

/// A scene with a provider that gives refresh tokens, and with a user in the team `shop`.
async fn start() -> (Scene, Browser) {
    let scene = Scene::start().await;
    let interval = json!({ "refreshInterval": INTERVAL });
    set(&scene.admin, &path("connectors", "corp"), interval).await;
    make(&scene.admin, "teams", "shop", json!({ "ssoGroups": ["corp:group-canary"] })).await;
    scene.provider.set(|state| state.gives_refresh_tokens = true);
    let (browser, _) = scene.log_in().await;
    assert!(browser.has_session());
    (scene, browser)
}

async fn teams(browser: &Browser) -> usize {
    let me = browser.get(&collection("selves/me")).await;
    me.expect(200)["status"]["user"]["teams"].as_array().map_or(0, Vec::len)
}

fn logout_token(scene: &Scene, changes: &Value) -> String {
    let mut claims = json!({
        "aud": CLIENT_ID, "jti": "1",
        "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    format!("logout_token={}", scene.provider.token(&claims))
}

async fn post_logout(scene: &Scene, form: &str) -> u16 {
    let request = scene.admin.post(LOGOUT).without("authorization");
    let form_type = "application/x-www-form-urlencoded";
    request.body(form_type, form.to_owned()).send().await.status
}

#[tokio::test]
async fn a_group_that_the_provider_takes_away_is_gone_from_all_keys_of_the_user() {
    let (scene, browser) = start().await;
    let me = browser.me().await;
    let key = path("ownedaccesskeys", me["status"]["accessKey"].as_str().unwrap());
    let key = scene.admin.get(&key).send().await.expect(200);
    assert_eq!(key["spec"]["ttl"], 12 * 3600, "with a refresh token, as the connector says");
    assert_eq!(teams(&browser).await, 1);
    scene.provider.set(|state| state.claims = json!({ "groups": [] }));
    wait::until("the team is gone", async || (teams(&browser).await == 0).then_some(())).await;
    let refreshes: Vec<_> = scene.provider.forms();
    let refreshes = refreshes.iter().filter(|form| form["grant_type"] == "refresh_token");
    assert!(refreshes.count() >= 1);
    // The new refresh token was stored: the next refresh works as well.
    scene.provider.set(|state| state.claims = json!({ "groups": ["group-canary"] }));
    wait::until("the team is back", async || (teams(&browser).await == 1).then_some(())).await;
}

/// A client with another key of the user than the key of the login.
async fn other_key(scene: &Scene, browser: &Browser, name: &str) -> Client {
    let me = browser.me().await;
    let owner = me["status"]["user"]["name"].as_str().unwrap();
    with_key(&scene.admin, name, json!({ "user": owner })).await
}

async fn teams_of(client: &Client) -> usize {
    let me = client.get(&collection("selves/me")).send().await.expect(200);
    me["status"]["user"]["teams"].as_array().map_or(0, Vec::len)
}

/// If the provider's response ends the login, it affects the other keys of the user too.
#[tokio::test]
async fn groups_are_gone_from_all_keys_if_the_user_may_no_longer_log_in() {
    let (scene, browser) = start().await;
    let allowed = json!({ "allow": { "groups": ["group-canary"], "everyone": null } });
    set(&scene.admin, &path("connectors", "corp"), allowed).await;
    // A refusal takes groups away, and gives none.
    make(&scene.admin, "teams", "night", json!({ "ssoGroups": ["corp:on-call"] })).await;
    let other = other_key(&scene, &browser, "other").await;
    for groups in [json!([]), json!(["on-call"]), json!(null), json!({ "not": "a list" })] {
        scene.provider.set(|state| state.claims = json!({}));
        let (browser, _) = scene.log_in().await;
        assert_eq!((teams(&browser).await, teams_of(&other).await), (1, 1));
        scene.provider.set(|state| state.claims = json!({ "groups": groups }));
        wait::until("the login is over", async || {
            (browser.get(&collection("selves/me")).await.status == 401).then_some(())
        })
        .await;
        assert_eq!(teams_of(&other).await, 0, "{groups}");
    }
    // A login that is refused says so, too.
    scene.provider.set(|state| state.claims = json!({}));
    let (browser, _) = scene.log_in().await;
    assert_eq!((teams(&browser).await, teams_of(&other).await), (1, 1));
    scene.provider.set(|state| state.claims = json!({ "groups": ["on-call"] }));
    let (refused, response) = scene.log_in().await;
    assert!(!refused.has_session());
    assert!(response.text().contains("does not allow this user"), "{}", response.text());
    assert_eq!(teams_of(&other).await, 0);
}

#[tokio::test]
async fn a_user_who_is_no_longer_linked_has_neither_sessions_nor_groups_of_the_identity() {
    let (scene, browser) = start().await;
    let other = other_key(&scene, &browser, "other").await;
    let mut watch = browser.watch(&collection("users")).await;
    let ada = path("users", "ada");
    let linked = scene.user("ada").await["spec"]["identities"].clone();
    set(&scene.admin, &ada, json!({ "identities": [] })).await;
    assert_eq!(browser.get(&collection("selves/me")).await.status, 401);
    assert_eq!(teams_of(&other).await, 0);
    assert_eq!(scene.user("ada").await["status"]["sso"], Value::Null);
    let mut ended = false;
    while let Some(event) = watch.next().await {
        ended |= event.object["code"] == 401;
    }
    assert!(ended, "an open watch ends with 401");
    // The same identity, linked again: a new login brings the groups.
    set(&scene.admin, &ada, json!({ "identities": linked })).await;
    assert_eq!(teams_of(&other).await, 0);
    let (browser, _) = scene.log_in().await;
    assert_eq!((teams(&browser).await, teams_of(&other).await), (1, 1));
}

/// A provider may say at a refresh only that the user may still log in (OpenID Connect Core 1.0 section 12.2).
#[tokio::test]
async fn groups_of_user_info_are_asked_for_without_an_id_token() {
    let (scene, browser) = start().await;
    let there = json!({ "groupsFrom": "UserInfo" });
    set(&scene.admin, &path("connectors", "corp"), there).await;
    scene.provider.set(|state| {
        state.tokens = json!({ "id_token": null });
        state.user_info = json!({ "groups": [] });
    });
    wait::until("the team is gone", async || (teams(&browser).await == 0).then_some(())).await;
    // The login goes on, and ends when the connector no longer allows the user.
    let allowed = json!({ "allow": { "groups": ["group-canary"], "everyone": null } });
    set(&scene.admin, &path("connectors", "corp"), allowed).await;
    wait::until("the login is over", async || {
        (browser.get(&collection("selves/me")).await.status == 401).then_some(())
    })
    .await;
}

/// Agents do not report the user of an endpoint token.
#[tokio::test]
async fn a_login_with_an_endpoint_token_is_refreshed_without_other_uses() {
    let (scene, browser) = start().await;
    make(&scene.admin, "clusters", "c1", json!({})).await;
    let rules = json!([rule_on("clusters", &["c1"], &["use"])]);
    allow(&scene.admin, "c1-users", None, rules, "platform:user:ada").await;
    let made = browser.post(&collection("directclusterendpointtokens"), &json!({})).await;
    made.expect(201);
    let refreshes = || {
        let forms = scene.provider.forms();
        forms.iter().filter(|form| form["grant_type"] == "refresh_token").count()
    };
    // The login and the token are one use. Later refreshes need another reason.
    wait::until("two more refreshes", async || (refreshes() >= 3).then_some(())).await;
}

/// The second connector is to a provider that no longer answers when the first one is asked again.
#[tokio::test]
async fn a_provider_that_hangs_delays_no_other_connector() {
    let scene = Scene::start().await;
    let slow = IdentityProvider::start().await;
    make(&scene.admin, "connectors", "slow", slow.connector()).await;
    make(&scene.admin, "teams", "shop", json!({ "ssoGroups": ["corp:group-canary"] })).await;
    for (name, seconds) in [("slow", INTERVAL), ("corp", INTERVAL + 2)] {
        let interval = json!({ "refreshInterval": seconds });
        set(&scene.admin, &path("connectors", name), interval).await;
    }
    let mut other = scene.browser();
    slow.set(|state| state.gives_refresh_tokens = true);
    let address = other.begin("/auth/oidc/slow/start").await;
    assert_eq!(other.visit(&slow.log_in(&address)).await.status, 303);
    scene.provider.set(|state| state.gives_refresh_tokens = true);
    let (browser, _) = scene.log_in().await;
    let (asked, hanging) = (slow.asked("/token"), Duration::from_mins(1));
    slow.set(|state| {
        let raw = Raw { delay: hanging, ..Raw::of(200, "{}") };
        state.raw.insert("/token", raw);
    });
    scene.provider.set(|state| state.claims = json!({ "groups": [] }));
    wait::until("the slow provider is asked", async || {
        other.me().await;
        assert_eq!(teams(&browser).await, 1);
        (slow.asked("/token") > asked).then_some(())
    })
    .await;
    wait::until("the team is gone", async || (teams(&browser).await == 0).then_some(())).await;
    let connector = scene.admin.get(&path("connectors", "slow")).send().await.expect(200);
    assert_eq!(connector["status"]["conditions"], Value::Null, "the slow provider still hangs");
}

#[tokio::test]
async fn a_connector_refreshes_some_keys_at_once() {
    const LOGINS: usize = 12;
    let (scene, browser) = start().await;
    let mut browsers = vec![browser];
    while browsers.len() < LOGINS {
        browsers.push(scene.log_in().await.0);
    }
    scene.provider.set(|state| {
        state.token_delay = Duration::from_millis(500);
        state.claims = json!({ "groups": [] });
    });
    let refreshes = || {
        let forms = scene.provider.forms();
        forms.iter().filter(|form| form["grant_type"] == "refresh_token").count()
    };
    let before = refreshes();
    wait::until("all keys are refreshed", async || {
        for browser in &browsers {
            browser.me().await;
        }
        (refreshes() >= before + LOGINS).then_some(())
    })
    .await;
    scene.provider.set(|state| assert!((2..=8).contains(&state.most_at_once)));
    assert_eq!(teams(&browsers[0]).await, 0);
}

#[tokio::test]
async fn a_user_whom_the_provider_removes_loses_the_login_and_an_outage_ends_none() {
    let (scene, browser) = start().await;
    scene.provider.set(|state| {
        state.raw.insert("/token", Raw::of(503, "canary"));
    });
    let corp = path("connectors", "corp");
    wait::until("the outage is noted", async || {
        // The use of the session makes it due.
        assert_eq!(teams(&browser).await, 1);
        let connector = scene.admin.get(&corp).send().await.expect(200);
        let condition = connector["status"]["conditions"][0].clone();
        (condition["status"] == "False").then_some(())
    })
    .await;
    let mut watch = browser.watch(&collection("users")).await;
    scene.provider.set(|state| {
        state.raw.clear();
        state.revoke_refresh_tokens();
    });
    wait::until("the login is over", async || {
        (browser.get(&collection("selves/me")).await.status == 401).then_some(())
    })
    .await;
    let mut ended = false;
    while let Some(event) = watch.next().await {
        ended |= event.object["code"] == 401;
    }
    assert!(ended, "an open watch ends with 401");
}

#[tokio::test]
async fn a_logout_at_the_provider_ends_the_sessions_that_it_names() {
    let (scene, first) = start().await;
    scene.provider.set(|state| state.claims = json!({ "sid": "another" }));
    let (second, _) = scene.log_in().await;
    let status = async |browser: &Browser| browser.get(&collection("selves/me")).await.status;
    for refused in [
        "logout_token=a.b.c".to_owned(),
        logout_token(&scene, &json!({})),
        logout_token(&scene, &json!({ "sid": "sid-canary", "nonce": "x" })),
        logout_token(&scene, &json!({ "sid": "sid-canary", "events": {} })),
        logout_token(&scene, &json!({ "sid": "sid-canary", "aud": "other" })),
        logout_token(&scene, &json!({ "sid": "sid-canary", "iss": "https://evil.example" })),
        logout_token(&scene, &json!({ "sid": "sid-canary", "exp": now() - 120 })),
        format!(
            "logout_token={}",
            scene.provider.token(&json!({ "aud": CLIENT_ID, "sub": "sub-canary-ada" }))
        ),
    ] {
        assert_eq!(post_logout(&scene, &refused).await, 400);
    }
    // A logout token without a known session is no error, and ends nothing.
    assert_eq!(post_logout(&scene, &logout_token(&scene, &json!({ "sid": "x" }))).await, 200);
    let other = json!({ "sub": "somebody-else", "sid": "sid-canary" });
    assert_eq!(post_logout(&scene, &logout_token(&scene, &other)).await, 200);
    assert_eq!((status(&first).await, status(&second).await), (200, 200));
    let by_session = logout_token(&scene, &json!({ "sid": "sid-canary" }));
    assert_eq!(post_logout(&scene, &by_session).await, 200);
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    // A provider may end many sessions at once: the limit of logins does not apply to logouts that
    // it proves.
    for _ in 0..40 {
        assert_eq!(post_logout(&scene, &by_session).await, 200);
    }
    let by_subject = logout_token(&scene, &json!({ "sub": "sub-canary-ada" }));
    assert_eq!(post_logout(&scene, &by_subject).await, 200);
    assert_eq!(status(&second).await, 401);
}

#[tokio::test]
async fn a_logout_here_goes_on_at_the_provider_if_it_offers_that() {
    const HEADER: &str = "x-postern-provider-logout";
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let ended = browser.delete("/auth/session").await;
    assert_eq!((ended.status, ended.header(HEADER)), (200, None));
    // For the server, another issuer with a document that it has not read yet.
    let other = IdentityProvider::start().await;
    let end = format!("{}/end?tenant=1", other.issuer());
    other.set(|state| state.discovery = json!({ "end_session_endpoint": end }));
    let connector = other.connector();
    set(&scene.admin, &path("connectors", "corp"), connector).await;
    let tested = scene.admin.get(&path("connectors", "corp/test")).send().await.expect(200);
    let back = tested["logoutRedirectURI"].as_str().unwrap();
    let log_in = async || {
        let mut browser = scene.browser();
        browser.log_in(&other).await;
        browser
    };
    let browser = log_in().await;
    let address = browser.delete("/auth/session").await.header(HEADER).unwrap().to_owned();
    let query = form(address.strip_prefix(&format!("{end}&")).unwrap());
    assert_eq!((&*query["client_id"], &*query["post_logout_redirect_uri"]), (CLIENT_ID, back));
    assert!(back.ends_with("/ui/"), "{back}");
    assert_eq!(query["id_token_hint"].split('.').count(), 3);
    assert_eq!(browser.get("/auth/session").await.status, 401, "the session here is over");
    // A key that the session has made is of no session at the provider.
    let browser = log_in().await;
    let me = browser.me().await;
    let mine = json!({ "user": me["status"]["user"]["name"] });
    let key = with_key(&scene.admin, "mine", mine).await;
    let reply = key.post("/auth/session").send().await;
    let cookie = reply.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
    let request = key.delete("/auth/session").without("authorization").header("cookie", &cookie);
    let ended = request.header("x-postern-console", "1").send().await;
    assert_eq!((ended.status, ended.header(HEADER)), (200, None));
    // A connector that is disabled sends no browser anywhere, and its sessions are over.
    set(&scene.admin, &path("connectors", "corp"), json!({ "disabled": true })).await;
    assert_eq!(browser.delete("/auth/session").await.status, 401);
}

#[tokio::test]
async fn the_owner_of_a_key_cannot_end_its_refresh() {
    let (scene, browser) = start().await;
    let me = browser.me().await;
    let owner = me["status"]["user"]["name"].as_str().unwrap();
    let own = with_key(&scene.admin, "own", json!({ "user": owner })).await;
    let key = path("ownedaccesskeys", me["status"]["accessKey"].as_str().unwrap());
    for spec in [
        json!({ "identityRefresh": "2100-01-01T00:00:00Z" }),
        json!({ "identity": { "userId": "another" } }),
        json!({ "identity": null }),
        json!({ "identity": { "connectorData": "x" } }),
    ] {
        let patch = json!({ "spec": spec });
        let refused = own.patch(&key, "merge-patch", &patch).send().await.expect_text(422);
        assert!(refused.contains("only the server sets it"), "{refused}");
    }
    let renamed = json!({ "spec": { "displayName": "mine" } });
    own.patch(&key, "merge-patch", &renamed).send().await.expect(200);
    assert_eq!(browser.get(&collection("selves/me")).await.status, 200);
}

/// Responses of the provider that say nothing about the user.
#[tokio::test]
async fn a_refresh_that_fails_otherwise_ends_no_login_and_keeps_the_new_refresh_token() {
    let (scene, browser) = start().await;
    let none = json!({});
    let failing = [
        ("a page", Some(Raw::of(200, "<html>maintenance</html>")), &none, &none),
        ("no ID token", None, &json!({ "id_token": null }), &none),
        ("groups that are not in the token", None, &none, &json!({ "hasgroups": true })),
    ];
    for (what, raw, tokens, claims) in failing {
        let asked = scene.provider.asked("/token");
        scene.provider.set(|state| {
            state.tokens = tokens.clone();
            state.claims = claims.clone();
            state.raw.clear();
            state.raw.extend(raw.map(|raw| ("/token", raw)));
        });
        wait::until(what, async || {
            // The use of the session makes it due.
            assert_eq!(teams(&browser).await, 1, "{what}");
            (scene.provider.asked("/token") > asked).then_some(())
        })
        .await;
    }
    // The provider accepts only the newest refresh token.
    scene.provider.set(|state| {
        state.tokens = json!({});
        state.raw.clear();
        state.claims = json!({ "groups": [] });
    });
    wait::until("the team is gone", async || (teams(&browser).await == 0).then_some(())).await;
}
