//! Logins: calls of clients without a key that never end, and identity providers that do not answer as they should.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::identity_provider::{IdentityProvider, Raw, exchange_form};
use postern_tests::objects::{collection, make};
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::load::repeat;
use crate::attacks::scene::{Scene, pass};
use crate::attacks::trial::hold;
use crate::attacks::victims::Victims;

/// How much slower others may get while a provider fails: their p99, to their usual one.
const SLOWDOWN_BY_A_PROVIDER: f64 = 1.2;

/// The pause of each of eight callers between two logins: together, they begin 600 in a minute, from 250 addresses.
const PAUSE: Duration = Duration::from_millis(800);

/// Where a login through the connector `corp` begins.
const START: &str = "/auth/oidc/corp/start?return=/ui/secrets";

/// The type of bodies with a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// Calls before the memory is measured. They allocate everything that is allocated once, such as
/// the buffers of each thread.
const WARM_UP: u32 = 4_000;

/// The most memory that the calls may take, in MB.
const MEMORY_MB: u64 = 5;

async fn make_connector(scene: &Scene, provider: &IdentityProvider) {
    let spec = json!({
        "issuer": provider.issuer(), "clientId": "postern", "caData": provider.ca_data(),
        "allow": { "everyone": true },
    });
    make(&scene.admin, "connectors", "corp", spec).await;
}

/// A separate address for each caller, because logins are limited by address.
fn address(number: u32) -> IpAddr {
    let [_, _, high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 9, high, low).into()
}

/// Sends one of the calls that need no key. Returns the status.
async fn call(client: &Client, number: u32) -> Result<u16, String> {
    let junk = format!("{number:064}");
    let open = match number % 5 {
        0 => client.get(START),
        1 => client.post("/auth/token").body(FORM, exchange_form(&junk, "deploy")),
        2 => client.post("/auth/device").body(
            FORM,
            format!(
                "client_id=postern-cli&code_challenge_method=S256&code_challenge={}",
                &junk[..43]
            ),
        ),
        3 => client.get(&format!("/auth/oidc/corp/callback?state={junk}&code={junk}")),
        _ => client
            .post("/auth/oidc/corp/backchannel-logout")
            .body(FORM, format!("logout_token={junk}")),
    };
    Ok(open.without("authorization").try_send().await?.status)
}

/// Sends so many calls, from 16 callers at once.
async fn call_often(scene: &Scene, count: u32) {
    let next = Arc::new(AtomicU32::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let (client, next) = (scene.server.client(), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let client = client.from_address(address(number % 250));
                let status = call(&client, number).await.expect("an answer");
                assert!(status != 500 && status != 201, "{number}: {status}");
            }
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_without_a_key_store_nothing() {
    let scene = Scene::start(&["--allow-local-upstreams"]).await;
    let provider = IdentityProvider::start().await;
    make_connector(&scene, &provider).await;
    let revision = async || {
        let list = scene.admin.get(&collection("users")).send().await.expect(200);
        list["metadata"]["resourceVersion"].clone()
    };
    call_often(&scene, scene.form.pick(300, WARM_UP)).await;
    let (stored, memory) = (revision().await, scene.memory_mb());
    call_often(&scene, scene.form.pick(700, 100_000)).await;
    let grown = scene.memory_mb().saturating_sub(memory);
    eprintln!("the calls took {grown} MB more than {memory} MB");
    assert_eq!(revision().await, stored, "nothing was committed");
    assert!(grown <= MEMORY_MB, "{grown} MB");
}

/// The ways in which a provider fails, each with its response.
fn failures() -> Vec<(&'static str, Raw)> {
    let metadata = "https://169.254.169.254/latest/meta-data".to_owned();
    vec![
        ("a provider that is down", Raw::of(503, "down")),
        ("a provider that takes 60 s", Raw { delay: Duration::from_mins(1), ..Raw::of(200, "{}") }),
        ("a provider that answers 10 MB", Raw::of(200, vec![b' '; 10 * 1024 * 1024])),
        ("a provider that redirects", Raw { location: Some(metadata), ..Raw::of(302, "") }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_that_fail() {
    let scene = Scene::start(&["--allow-local-upstreams"]).await;
    let victims = Victims::new(&scene).await;
    for (name, failure) in failures() {
        // A connector to another issuer, because the metadata of one issuer is cached for a day.
        let provider = IdentityProvider::start().await;
        provider.set(|state| {
            for path in ["/.well-known/openid-configuration", "/keys", "/token"] {
                state.raw.insert(path, failure.clone());
            }
        });
        make_connector(&scene, &provider).await;
        let next = Arc::new(AtomicU32::new(0));
        let stranger = scene.server.client();
        let attack = async {
            let logins = repeat(8, scene.lasting(), move |_| {
                let client =
                    stranger.from_address(address(next.fetch_add(1, Ordering::Relaxed) % 250));
                async move {
                    let reply = client.get(START).without("authorization").try_send().await;
                    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status >= 400));
                    pass(PAUSE).await;
                }
            });
            let login = async { scene.admin.post("/auth/session").send().await.expect(201) };
            tokio::join!(logins, login)
        };
        hold(name, &scene, &victims, SLOWDOWN_BY_A_PROVIDER, attack).await;
        scene.admin.delete(&format!("{}/corp", collection("connectors"))).send().await.expect(200);
    }
}
