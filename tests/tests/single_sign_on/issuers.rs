//! Exchanges while their trusted issuer is slow, unreachable or changed.

use std::time::Duration;

use futures_util::future::{join, join_all};
use postern_tests::identity_provider::{Raw, exchange_form, post_form};
use postern_tests::rights::{path, set};
use postern_tests::wait;
use serde_json::{Value, json};

use super::workloads::{Workloads, claims};

const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Makes the issuer slow: its discovery document takes this time.
fn be_slow(workloads: &Workloads, delay: Duration) {
    workloads.provider.set(|state| {
        let raw = Raw { delay, ..Raw::of(200, state.discovery().to_string()) };
        state.raw.insert(DISCOVERY, raw);
    });
}

#[tokio::test]
async fn many_pipelines_of_one_address_start_together() {
    let workloads = Workloads::start().await;
    be_slow(&workloads, Duration::from_millis(300));
    let form = exchange_form(&workloads.provider.token(&claims()), "deploy");
    let exchanged = join_all((0..40).map(|_| post_form(&workloads.admin, &form))).await;
    // More than one address may have at once: the others wait for a moment.
    assert!(exchanged.iter().all(|response| response.status == 200));
    let again = join_all((0..30).map(|_| post_form(&workloads.admin, &form))).await;
    assert!(again.iter().all(|response| response.status == 200));
}

#[tokio::test]
async fn pipelines_that_are_refused_leave_the_logins_of_people_alone() {
    let workloads = Workloads::start().await;
    let wrong = exchange_form("a.b.c", "deploy");
    for _ in 0..30 {
        assert_eq!(post_form(&workloads.admin, &wrong).await.status, 400);
    }
    let limited = post_form(&workloads.admin, &wrong).await;
    assert!(limited.headers.contains_key("retry-after"));
    assert_eq!(limited.expect(429)["error"], "temporarily_unavailable");
    let start = workloads.admin.get("/auth/oidc/none/start").without("authorization");
    assert_eq!(start.send().await.status, 404, "there is no such connector");
}

/// Otherwise a client without a credential learns which workload identities exist, by guessing.
#[tokio::test]
async fn an_issuer_that_is_down_does_not_tell_which_workload_identities_exist() {
    let workloads = Workloads::start().await;
    let down = postern_tests::identity_provider::IdentityProvider::start().await;
    down.set(|state| {
        state.raw.insert(DISCOVERY, Raw::of(503, "down"));
    });
    let issuer = json!({
        "type": "GitHubActions", "issuer": down.issuer(), "caData": down.ca_data(),
    });
    postern_tests::objects::make(&workloads.admin, "trustedissuers", "down", issuer).await;
    let mut late = super::workloads::deploy();
    late["issuer"] = json!("down");
    postern_tests::objects::make(&workloads.admin, "workloadidentities", "late", late).await;
    let answer = async |token: &str, name: &str| {
        let answer = post_form(&workloads.admin, &exchange_form(token, name)).await;
        (answer.status, answer.json())
    };
    let of_down = down.token(&claims());
    let unavailable = answer(&of_down, "late").await;
    assert_eq!(unavailable.0, 503);
    // One identity does not exist, and one has another issuer.
    for name in ["guess", "deploy"] {
        assert_eq!(answer(&of_down, name).await, unavailable, "{name}");
    }
    let refused = answer("a.b.c", "guess").await;
    assert_eq!(refused.0, 400);
    let other = workloads.provider.token(&json!({ "aud": "x", "sub": "y" }));
    for (token, name) in
        [("a.b.c", "late"), (&*other, "late"), (&*other, "guess"), (&*other, "deploy")]
    {
        assert_eq!(answer(token, name).await, refused, "{name}");
    }
    // All of them count.
    let mut statuses = Vec::new();
    for guess in 0..60 {
        statuses.push(answer(&of_down, &format!("guess-{guess}")).await.0);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

/// The reading of a secret by a key that is exchanged while the workload identity is changed.
async fn reading_after(change: Value) -> Option<u16> {
    let workloads = Workloads::start().await;
    be_slow(&workloads, Duration::from_secs(3));
    let changed = async {
        let provider = &workloads.provider;
        wait::until("the exchange waits for the issuer", async || {
            (provider.asked(DISCOVERY) > 0).then_some(())
        })
        .await;
        set(&workloads.admin, &path("workloadidentities", "deploy"), change).await;
    };
    let (given, ()) = join(workloads.exchange(json!({})), changed).await;
    let key = given.json()["access_token"].as_str().map(str::to_owned)?;
    let secret = postern_tests::objects::secret_path("db");
    Some(workloads.admin.with_token(&key).get(&secret).send().await.status)
}

#[tokio::test]
async fn a_change_during_an_exchange_counts() {
    assert_eq!(reading_after(json!({ "disabled": true })).await, None);
    let other = json!({ "scope": { "rules": [{
        "verbs": ["get"], "resources": [{
            "group": "management.platform.sh", "resources": ["sharedsecrets"],
            "resourceNames": ["other"],
        }],
    }] } });
    let read = reading_after(other).await;
    assert!(matches!(read, Some(403 | 404)), "{read:?}");
}

#[tokio::test]
async fn an_outage_of_the_keys_is_no_fault_of_the_token() {
    let workloads = Workloads::start().await;
    workloads.exchange(json!({})).await.expect(200);
    workloads.provider.set(|state| {
        state.raw.insert("/keys", Raw::of(503, ""));
        state.header = json!({ "kid": "new" });
    });
    let late = workloads.exchange(json!({})).await;
    assert!(late.headers.contains_key("retry-after"));
    assert_eq!(late.expect(503)["error"], "temporarily_unavailable");
    // A key that is known still counts.
    workloads.provider.set(|state| state.header = json!({}));
    workloads.exchange(json!({})).await.expect(200);
}

#[tokio::test]
async fn keys_that_were_moved_are_found() {
    let workloads = Workloads::start().await;
    workloads.exchange(json!({})).await.expect(200);
    workloads.provider.set(|state| {
        state.rotate_keys("key-2");
        let moved = format!("{}/moved", state.discovery()["issuer"].as_str().unwrap());
        state.discovery = json!({ "jwks_uri": moved });
        state.raw.insert("/keys", Raw::of(404, ""));
        let keys = state.key_set().to_string();
        state.raw.insert("/moved", Raw::of(200, keys));
    });
    workloads.exchange(json!({})).await.expect(200);
}
