//! Logins through an honest provider: the user, the groups, the key, and the events that end it.

use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use postern_tests::http::Client;
use postern_tests::identity_provider::{IdentityProvider, Raw};
use postern_tests::objects::{collection, make};
use postern_tests::rights::{merge, path, set};
use postern_tests::slow::slow_body;
use postern_tests::wait;
use serde_json::json;

use super::scene::{Scene, names};

#[tokio::test]
async fn a_login_makes_a_user_a_key_and_a_session() {
    let scene = Scene::start().await;
    let (browser, response) = scene.log_in().await;
    assert_eq!((response.status, response.header("location")), (303, Some("/ui/")));
    assert!(browser.has_session(), "{}", response.text());
    let me = browser.me().await;
    assert_eq!(me["status"]["user"]["name"], "ada");
    assert_eq!(me["status"]["accessKeyType"], "Login");
    let groups = me["status"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("corp:group-canary")), "{groups:?}");

    let user = scene.user("ada").await;
    let identity = json!({
        "connector": "corp", "issuer": scene.provider.issuer(), "subject": "sub-canary-ada",
    });
    assert_eq!(user["spec"]["identities"], json!([identity]));
    assert_eq!(user["status"]["sso"][0]["groups"], json!(["corp:group-canary"]));
    let key = me["status"]["accessKey"].as_str().unwrap();
    let key = scene.admin.get(&path("ownedaccesskeys", key)).send().await.expect(200);
    let identity = &key["spec"]["identity"];
    assert_eq!(
        (&identity["userId"], &identity["connector"]),
        (&json!("sub-canary-ada"), &json!("corp"))
    );
    assert_eq!(identity["groups"], json!(["group-canary"]));
    assert!(identity.get("connectorData").is_none(), "it is write-only");
    assert!(key["spec"]["identityRefresh"].is_string());
    assert_eq!(key["spec"]["ttl"], 3600, "without a refresh token, an hour");
    assert_eq!(key["metadata"]["labels"]["platform.sh/session"], "console");

    // The client proves itself, and the code was redeemed with its verifier.
    let form = scene.provider.forms().remove(0);
    assert!(form["authorization"].starts_with("Basic "), "{form:?}");
    assert!(form["code_verifier"].len() >= 43);
    // A second login finds the same user.
    let (again, _) = scene.log_in().await;
    assert_eq!(again.me().await["status"]["user"]["name"], "ada");
    assert_eq!(scene.users().await, ["ada", "admin"]);
    assert_eq!(scene.sessions().await, 2);
}

#[tokio::test]
async fn claims_that_the_id_token_lacks_come_from_user_info() {
    let scene = Scene::start().await;
    let allow = json!({ "everyone": null, "emailDomains": ["example.com"] });
    set(&scene.admin, &path("connectors", "corp"), json!({ "allow": allow })).await;
    scene.provider.set(|state| {
        state.claims = json!({
            "preferred_username": null, "name": "Ada", "email": null, "email_verified": null,
        });
        state.user_info = json!({
            "preferred_username": "ada", "name": "Eve", "groups": ["admins"],
            "email": "ada@example.com", "email_verified": true,
        });
    });
    let (browser, response) = scene.log_in().await;
    assert!(browser.has_session(), "{}", response.text());
    let key = browser.me().await["status"]["accessKey"].as_str().unwrap().to_owned();
    let key = scene.admin.get(&path("ownedaccesskeys", &key)).send().await.expect(200);
    let identity = &key["spec"]["identity"];
    assert_eq!(
        (&identity["username"], &identity["preferredUsername"]),
        (&json!("ada"), &json!("Ada"))
    );
    assert_eq!(
        (&identity["email"], &identity["emailVerified"]),
        (&json!("ada@example.com"), &json!(true))
    );
    // The ID token has these claims, so it decides.
    assert_eq!(identity["groups"], json!(["group-canary"]));
    assert_eq!(scene.user("ada").await["spec"]["displayName"], "Ada");
    // An address is used only if the same document says that it is verified.
    scene.provider.set(|state| state.claims = json!({ "email_verified": null }));
    let (other, refused) = scene.log_in().await;
    assert!(!other.has_session());
    assert!(refused.expect_text(403).contains("does not allow this user"), "{}", refused.text());
}

#[tokio::test]
async fn the_ways_to_log_in_are_listed() {
    let scene = Scene::start().await;
    let methods = async || {
        let methods = scene.admin.get("/auth/methods").without("authorization").send().await;
        methods.expect(200)["methods"].clone()
    };
    let key = json!({ "type": "AccessKey" });
    let corp = json!({
        "type": "OIDC", "connector": "corp", "displayName": "corp",
        "startURL": "/auth/oidc/corp/start",
    });
    wait::until("the connector to be listed", async || {
        (methods().await == json!([key, corp])).then_some(())
    })
    .await;
    set(&scene.admin, &path("connectors", "corp"), json!({ "disabled": true })).await;
    // The list is for unauthenticated clients and is read without asking the store, so a change
    // appears a moment later.
    wait::until("the disabled connector to leave the list", async || {
        (methods().await == json!([key])).then_some(())
    })
    .await;
    let corp = path("connectors", "corp");
    set(&scene.admin, &corp, json!({ "disabled": false })).await;
    wait::until("the connector to be listed again", async || {
        (methods().await != json!([key])).then_some(())
    })
    .await;
    // A finalizer keeps a connector that is being deleted. It gives nothing any more.
    let kept = json!({ "metadata": { "finalizers": ["example.com/kept"] } });
    scene.admin.patch(&corp, "merge-patch", &kept).send().await.expect(200);
    scene.admin.delete(&corp).send().await.expect(200);
    wait::until("the connector to leave the list while it is being deleted", async || {
        (methods().await == json!([key])).then_some(())
    })
    .await;
    let tested = scene.admin.get(&format!("{corp}/test")).send().await.expect(200);
    assert_eq!(tested["checks"][0]["message"], "the connector is being deleted");
}

#[tokio::test]
async fn three_tabs_log_in_at_once_and_a_browser_has_at_most_five_logins() {
    let scene = Scene::start().await;
    let mut browser = scene.browser();
    let mut begun = Vec::new();
    for tab in 0..3 {
        let start = format!("/auth/oidc/corp/start?return=%2Fui%2Ftab-{tab}");
        begun.push(browser.begin(&start).await);
    }
    for (tab, address) in begun.iter().enumerate().rev() {
        let callback = scene.provider.log_in(address);
        let response = browser.visit(&callback).await;
        assert_eq!(response.header("location"), Some(format!("/ui/tab-{tab}").as_str()));
        // The answer counts once.
        assert_eq!(browser.visit(&callback).await.status, 403);
    }
    assert!(browser.has_session());
    let mut other = scene.browser();
    for _ in 0..7 {
        other.begin("/auth/oidc/corp/start").await;
    }
    assert_eq!(other.cookies.len(), 5);
}

#[tokio::test]
async fn a_login_returns_to_pages_of_this_server_alone() {
    let scene = Scene::start().await;
    for (asked, page) in [
        ("%2Fui%2Fsecrets%3Fx%3D1", "/ui/secrets?x=1"),
        ("https%3A%2F%2Fevil.example", "/ui/"),
        ("%2F%2Fevil.example", "/ui/"),
        ("%2Fui%2F..%2Fkubernetes", "/ui/"),
        ("%2Fkubernetes%2Fmanagement", "/ui/"),
    ] {
        let mut browser = scene.browser();
        let start = format!("/auth/oidc/corp/start?return={asked}");
        let callback = scene.provider.log_in(&browser.begin(&start).await);
        let response = browser.visit(&callback).await;
        assert_eq!(response.header("location"), Some(page), "{asked}");
    }
}

#[tokio::test]
async fn members_of_a_group_are_in_the_team_until_the_provider_says_otherwise() {
    let scene = Scene::start().await;
    let team = json!({ "ssoGroups": ["corp:group-canary"] });
    make(&scene.admin, "teams", "shop", team).await;
    let (browser, _) = scene.log_in().await;
    let teams = async || browser.me().await["status"]["user"]["teams"].clone();
    assert_eq!(teams().await[0]["name"], "shop");
    let stored = scene.admin.get(&path("teams", "shop")).send().await.expect(200);
    assert!(stored["spec"].get("users").is_none(), "the list of users is not rewritten");
    // A later login says otherwise, and the earlier session loses the team as well.
    scene.provider.set(|state| state.claims = json!({ "groups": [] }));
    let (other, _) = scene.log_in().await;
    assert!(other.has_session());
    assert_eq!(teams().await.as_array().map_or(0, Vec::len), 0);
}

#[tokio::test]
async fn a_group_that_cannot_be_a_name_is_left_out_with_an_event() {
    let scene = Scene::start().await;
    make(&scene.admin, "teams", "shop", json!({ "ssoGroups": ["corp:group-canary"] })).await;
    let groups = json!(["group-canary", "a,b", " blank", "o\u{308}"]);
    scene.provider.set(|state| state.claims = json!({ "groups": groups }));
    let (browser, _) = scene.log_in().await;
    assert_eq!(browser.me().await["status"]["user"]["teams"][0]["name"], "shop");
    let at = "/kubernetes/management/api/v1/namespaces/default/events";
    let events = scene.admin.get(at).send().await.expect(200);
    let events = events["items"].as_array().unwrap();
    let left_out = events.iter().find(|event| event["reason"] == "GroupsLeftOut").unwrap();
    assert_eq!(left_out["involvedObject"]["name"], "corp");
    let message = left_out["message"].as_str().unwrap();
    assert!(message.starts_with("a login left out 3 groups, the first is \"a,b\""), "{message}");
}

#[tokio::test]
async fn a_connector_that_is_disabled_or_deleted_stops_its_keys_and_groups() {
    let scene = Scene::start().await;
    let team = json!({ "ssoGroups": ["corp:group-canary"] });
    make(&scene.admin, "teams", "shop", team).await;
    let (browser, _) = scene.log_in().await;
    let own = postern_tests::rights::with_key(&scene.admin, "own", json!({ "user": "ada" })).await;
    let teams = async || {
        let me = own.get(&collection("selves/me")).send().await.expect(200);
        me["status"]["user"]["teams"].as_array().map_or(0, Vec::len)
    };
    let status = async || browser.get(&collection("selves/me")).await.status;
    let corp = path("connectors", "corp");
    assert_eq!((status().await, teams().await), (200, 1));
    set(&scene.admin, &corp, json!({ "disabled": true })).await;
    assert_eq!((status().await, teams().await), (401, 0));
    assert_eq!(scene.browser().visit("/auth/oidc/corp/start").await.status, 404);
    set(&scene.admin, &corp, json!({ "disabled": false })).await;
    assert_eq!((status().await, teams().await), (200, 1));
    // A later connector of the same name is another one.
    scene.admin.delete(&corp).send().await.expect(200);
    assert_eq!((status().await, teams().await), (401, 0));
    make(&scene.admin, "connectors", "corp", scene.provider.connector()).await;
    assert_eq!((status().await, teams().await), (401, 0));
    let (again, _) = scene.log_in().await;
    assert_eq!(again.me().await["status"]["user"]["name"], "ada");
}

#[tokio::test]
async fn keys_that_a_login_key_makes_do_not_outlive_what_the_provider_says() {
    let scene = Scene::start().await;
    let (browser, _) = scene.log_in().await;
    let user = path("users", "ada");
    set(&scene.admin, &user, json!({ "disabled": true })).await;
    assert_eq!(browser.get(&collection("selves/me")).await.status, 401);
    let (other, refused) = scene.log_in().await;
    assert!(!other.has_session());
    assert!(refused.expect_text(403).contains("the user is disabled"), "{}", refused.text());
}

#[tokio::test]
async fn a_provider_that_hangs_leaves_places_to_the_others_and_failures_are_recorded() {
    let scene = Scene::start().await;
    let slow = IdentityProvider::start().await;
    make(&scene.admin, "connectors", "slow", slow.connector()).await;
    slow.set(|state| {
        let raw = Raw { delay: Duration::from_mins(1), ..Raw::of(200, "{}") };
        state.raw.insert("/.well-known/openid-configuration", raw);
    });
    // More than there are places.
    let mut starts: FuturesUnordered<_> = (1..=70)
        .map(|last| {
            let client = scene.admin.from_address(Ipv4Addr::new(127, 0, 8, last).into());
            async move {
                let start = client.get("/auth/oidc/slow/start").without("authorization");
                start.send().await.status
            }
        })
        .collect();
    assert_eq!(starts.next().await, Some(429), "all others wait for the provider");
    let (browser, response) = scene.log_in().await;
    assert!(browser.has_session(), "{}", response.text());
    let waited = wait::within("the others", starts.collect::<Vec<u16>>()).await;
    assert!(waited.contains(&502), "{waited:?}");
    for (code, reason) in [(429, "too many logins at once"), (502, "did not answer within 5 s")] {
        wait::until("the record", async || {
            let records = scene.server.home().records();
            let found = records.iter().find(|record| record["responseStatus"]["code"] == code);
            let found = found.filter(|record| record["requestURI"] == "/auth/oidc/slow/start")?;
            assert!(found["responseStatus"].to_string().contains(reason), "{found}");
            Some(())
        })
        .await;
    }
}

/// A browser may open its connection long before the person clicks.
#[tokio::test]
async fn a_login_is_answered_after_the_time_of_a_connection_without_a_key() {
    const BEFORE_THE_LIMIT: Duration = Duration::from_secs(28);
    let scene = Scene::start().await;
    let slow = IdentityProvider::start().await;
    make(&scene.admin, "connectors", "slow", slow.connector()).await;
    slow.set(|state| {
        let document = state.discovery().to_string();
        let raw = Raw { delay: Duration::from_millis(4500), ..Raw::of(200, document) };
        state.raw.insert("/.well-known/openid-configuration", raw);
    });
    let login = async |client: Client| {
        let mut connection = client.connect().await.unwrap();
        tokio::time::sleep(BEFORE_THE_LIMIT).await;
        let start = || client.get("/auth/oidc/slow/start").without("authorization");
        let answer = start().try_send_on(&mut connection).await;
        let again = start().try_send_on(&mut connection).await;
        (answer.map(|answer| answer.status), again.is_err())
    };
    let of_one = login(scene.admin.clone());
    let of_many = login(Client::http2(scene.server.kubeconfig()));
    let (one, many) = join(of_one, of_many).await;
    assert_eq!((one, many), ((Ok(303), true), (Ok(303), true)), "and none is served after it");
}

#[tokio::test]
async fn slow_logouts_at_a_provider_keep_nobody_from_logging_in() {
    let scene = Scene::start().await;
    // More than there are places for logouts of one connector.
    let logouts: FuturesUnordered<_> = (1..=40)
        .map(|last| {
            let client = scene.admin.from_address(Ipv4Addr::new(127, 0, 10, last).into());
            let (never, body) = slow_body(&json!("logout_token"));
            async move {
                let logout = client.post("/auth/oidc/corp/backchannel-logout");
                let form = "application/x-www-form-urlencoded";
                let sent = logout.without("authorization").streamed(form, body).send().await;
                drop(never);
                sent.status
            }
        })
        .collect();
    let logins = async {
        let (browser, response) = scene.log_in().await;
        assert!(browser.has_session(), "{}", response.text());
        // Nor do they keep the provider from ending sessions.
        let logout = scene.admin.post("/auth/oidc/corp/backchannel-logout");
        let form = "application/x-www-form-urlencoded";
        let logout = logout.without("authorization").body(form, "logout_token=a.b.c").send().await;
        assert_eq!(logout.status, 400, "it was read, and its token is wrong");
    };
    let (waited, ()) = join(logouts.collect::<Vec<u16>>(), logins).await;
    assert!(waited.iter().all(|status| *status == 400), "{waited:?}");
}

#[tokio::test]
async fn only_who_may_be_anybody_writes_a_connector_or_links_a_user() {
    let scene = Scene::start().await;
    let clerk = postern_tests::rights::user(&scene.admin, "clerk").await;
    let rules = json!([postern_tests::rights::rule(&["connectors", "users", "teams"], &["*"])]);
    postern_tests::rights::allow(&scene.admin, "clerk", None, rules, "platform:user:clerk").await;
    let spec = scene.provider.connector();
    let made = clerk.post(&collection("connectors"));
    let made = made.json(&json!({ "metadata": { "name": "mine" }, "spec": spec })).send().await;
    assert!(made.expect_text(403).contains("impersonate"), "{}", made.text());
    let corp = path("connectors", "corp");
    for (changes, code) in [
        (json!({ "spec": { "issuer": "https://evil.example" } }), 403),
        (json!({ "spec": { "usernameClaim": "email" } }), 403),
        (json!({ "metadata": { "labels": { "a": "b" } } }), 200),
        (json!({ "spec": { "disabled": true } }), 200),
        (json!({ "spec": { "disabled": false } }), 403),
    ] {
        assert_eq!(merge(&clerk, &corp, changes.clone()).await.status, code, "{changes}");
    }
    let identity = json!({ "connector": "corp", "issuer": "https://a.example", "subject": "1" });
    make(&scene.admin, "users", "bob", json!({})).await;
    let bob = path("users", "bob");
    let link = json!({ "spec": { "identities": [identity] } });
    assert_eq!(merge(&clerk, &bob, link.clone()).await.status, 403);
    merge(&scene.admin, &bob, link).await.expect(200);
    // No other user has the same identity.
    make(&scene.admin, "users", "carol", json!({})).await;
    let (carol, link) = (path("users", "carol"), json!({ "spec": { "identities": [identity] } }));
    assert_eq!(merge(&scene.admin, &carol, link).await.status, 422);
    // No client writes fields that come from the provider.
    let sso = json!({ "status": { "sso": [{ "connector": "corp", "groups": ["corp:admins"] }] } });
    merge(&scene.admin, &bob, sso).await.expect(200);
    assert!(scene.user("bob").await["status"].get("sso").is_none());
}

#[tokio::test]
async fn names_that_would_be_of_the_system_are_no_connectors() {
    let scene = Scene::start().await;
    for name in ["system", "platform"] {
        let spec = scene.provider.connector();
        let body = json!({ "metadata": { "name": name }, "spec": spec });
        let made = scene.admin.post(&collection("connectors")).json(&body).send().await;
        assert_eq!(made.status, 422, "{}", made.text());
    }
    assert_eq!(names(&scene.admin, "connectors").await, ["corp"]);
}
