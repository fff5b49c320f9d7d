//! Floods of logins: a client without a credential sends slowly, fails often, or repeats rejected
//! requests. The server still admits all requests of the other clients.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postern_tests::http::{Client, Response};
use postern_tests::identity_provider::{CLIENT_ID, IdentityProvider, exchange_form, post_form};
use postern_tests::objects::{collection, make};
use postern_tests::slow::slow_body;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::attacks::load::{Load, hammer, repeat};
use crate::attacks::scene::{Scene, pass};

const EXTERNAL: &str = "https://postern.example.com";

const FORM: &str = "application/x-www-form-urlencoded";

const LOGOUT: &str = "/auth/oidc/corp/backchannel-logout";

/// A request of the command line for the consent of a person.
const AUTHORIZE: &str = "/auth/authorize?response_type=code&client_id=postern-cli\
    &redirect_uri=http%3A%2F%2F127.0.0.1%3A8000%2Fcallback&state=0123456789abcdef\
    &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";

/// The pause of others between two requests.
const PAUSE: Duration = Duration::from_millis(250);

/// The most bytes that the log of the server may grow by during a flood.
const LOG_BYTES: usize = 16 * 1024;

/// A server with a connector, a trusted issuer and a workload identity at one provider.
struct Logins {
    scene: Scene,
    provider: IdentityProvider,
}

impl Logins {
    async fn start(arguments: &[&str]) -> Self {
        let own = ["--allow-local-upstreams", "--external-url", EXTERNAL];
        let scene = Scene::start(&[&own, arguments].concat()).await;
        let provider = IdentityProvider::start().await;
        let (issuer, ca) = (provider.issuer(), provider.ca_data());
        make(&scene.admin, "users", "bot", json!({})).await;
        let connector = json!({
            "issuer": issuer, "clientId": CLIENT_ID, "caData": ca, "allow": { "everyone": true },
        });
        make(&scene.admin, "connectors", "corp", connector).await;
        let trusted = json!({ "type": "GitHubActions", "issuer": issuer, "caData": ca });
        make(&scene.admin, "trustedissuers", "ci", trusted).await;
        let identity = json!({
            "issuer": "ci", "owner": { "user": "bot" }, "maxLive": 1000,
            "match": [
                { "claim": "repository_id", "values": ["4711"] },
                { "claim": "ref", "values": ["refs/heads/main"] },
            ],
            "scope": { "rules": [{ "verbs": ["get"] }] },
        });
        make(&scene.admin, "workloadidentities", "deploy", identity).await;
        Self { scene, provider }
    }

    /// The requests of other clients, each from its own address.
    fn others(&self) -> Others {
        let token = self.provider.token(&json!({
            "aud": format!("{EXTERNAL}/auth/token"), "sub": "repo:shop", "repository_id": "4711",
            "ref": "refs/heads/main", "event_name": "push",
        }));
        let ended = self.provider.token(&json!({
            "aud": CLIENT_ID, "jti": "1", "sid": "none",
            "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
        }));
        let client = |last| self.scene.admin.from_address(Ipv4Addr::new(127, 3, 0, last).into());
        Others {
            exchange: (client(1), exchange_form(&token, "deploy")),
            logout: (client(2), format!("logout_token={ended}")),
            browser: client(3),
            person: client(4),
        }
    }

    /// Runs an attack. All requests of others must be admitted meanwhile.
    async fn hold(&self, name: &str, attack: impl Future<Output = ()>) {
        let others = self.others();
        others.all_at_once().await;
        let mut admitted = 0;
        let requests = async {
            loop {
                others.all_at_once().await;
                admitted += 1;
                pass(PAUSE).await;
            }
        };
        tokio::select! {
            () = attack => {}
            () = requests => {}
        }
        eprintln!("{name}: {admitted} rounds of others' requests, and none was refused");
        assert!(admitted > 1, "{name}: {admitted}");
    }
}

struct Others {
    exchange: (Client, String),
    logout: (Client, String),
    browser: Client,
    person: Client,
}

impl Others {
    async fn all_at_once(&self) {
        let check = |what: &str, wanted: u16, sent: Response| {
            assert_eq!(sent.status, wanted, "{what}: {}", sent.text());
        };
        let (client, form) = &self.exchange;
        let exchange = async { check("an exchange", 200, post_form(client, form).await) };
        let (client, form) = &self.logout;
        let logout = client.post(LOGOUT).without("authorization").body(FORM, form.clone());
        let logout = async { check("a logout of the provider", 200, logout.send().await) };
        let get = async |path: &str| self.browser.get(path).without("authorization").send().await;
        let login = async {
            check("a login", 303, get("/auth/oidc/corp/start").await);
            check("a login of the command line", 303, get(AUTHORIZE).await);
        };
        let session = async {
            let begun = self.person.post("/auth/session").send().await;
            let key = begun.json()["status"]["accessKey"].as_str().map(str::to_owned);
            check("a session", 201, begun);
            // An owner has a limit of sessions.
            let key = format!("{}/{}", collection("ownedaccesskeys"), key.unwrap_or_default());
            check("its end", 200, self.person.delete(&key).send().await);
        };
        tokio::join!(exchange, logout, login, session);
    }
}

/// An address of an attacker.
fn address(network: u8, number: usize) -> IpAddr {
    Ipv4Addr::new(127, network, 0, u8::try_from(number).expect("few addresses")).into()
}

/// 52 connections with bodies that do not arrive, on all paths that accept a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_without_a_credential() {
    let logins = Logins::start(&[]).await;
    let client = logins.scene.server.client();
    let lasting = logins.scene.form.pick(Duration::from_secs(7), Duration::from_secs(20));
    let attack = repeat(52, lasting, move |worker| {
        // The client has one address, or a few.
        let client = client.from_address(address(4, worker % 3));
        async move {
            let path = ["/auth/token", "/auth/device", LOGOUT][worker % 3];
            let (never, body) = slow_body(&json!("grant_type=urn"));
            let sent = client.post(path).without("authorization").streamed(FORM, body);
            let sent = sent.try_send().await;
            assert!(sent.is_err() || sent.is_ok_and(|reply| [400, 429].contains(&reply.status)));
            drop(never);
            pass(Duration::from_millis(100)).await;
        }
    });
    logins.hold("slow bodies, unauthenticated", attack).await;
}

/// Failures from 20 addresses, which were once the budget of everyone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_logins_from_many_addresses() {
    let logins = Logins::start(&[]).await;
    let client = logins.scene.server.client();
    let next = Arc::new(AtomicUsize::new(0));
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let attack = repeat(8, logins.scene.lasting() * 2, move |_| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (client, sent) = (client.from_address(address(5, number % 20)), sent.clone());
        async move {
            let wrong = exchange_form("a.b.c", "deploy");
            let with_key = client.with_token("pst_wrong");
            let reply = match number % 3 {
                0 => client.post("/auth/token").without("authorization").body(FORM, wrong),
                1 => client.get("/auth/oidc/corp/callback?state=x").without("authorization"),
                _ => with_key.post("/auth/session"),
            };
            let reply = reply.try_send().await;
            assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status >= 400));
            sent.fetch_add(1, Ordering::Relaxed);
        }
    });
    logins.hold("failed logins, 20 addresses", attack).await;
    assert!(counted.load(Ordering::Relaxed) > 600, "as many as once shut out everyone");
}

/// The path on which servers hand requests to each other. A server without others does not have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_fill_no_log_and_are_recorded() {
    let logins = Logins::start(&[]).await;
    let scene = &logins.scene;
    let before = scene.server.home().logged().len();
    let stranger = scene.server.client();
    let load = Load { connections: 8, streams: 1, lasting: scene.lasting() };
    let attack = async {
        let statuses = hammer(&stranger, load, |client| {
            let request = client.get("/kubernetes/relay/x/y").without("authorization");
            request.header("platform-member-token", "a.b.c")
        });
        let statuses = statuses.await;
        assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [401], "{statuses:?}");
    };
    logins.hold("requests of a server that is none", attack).await;
    let home = scene.server.home();
    let logged = home.logged().len() - before;
    assert!(logged <= LOG_BYTES, "{logged} bytes of log");
    let is_it = |record: &&Value| record["requestURI"] == "/kubernetes/relay/x/y";
    let records = home.records();
    let record = records.iter().find(is_it).expect("a record in the audit log");
    assert_eq!(record["responseStatus"]["code"], 401);
}

/// A tenant with a kubeconfig that leads nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_that_are_not_reached_fill_no_log() {
    let scene = Scene::start(&["--allow-local-upstreams"]).await;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "token": "t" } }],
    });
    let secret = json!({ "metadata": { "name": "nowhere" }, "stringData": { "config": kubeconfig.to_string() } });
    let secrets = "/kubernetes/management/api/v1/namespaces/default/secrets";
    scene.admin.post(secrets).json(&secret).send().await.expect(201);
    let config = json!({ "config": {
        "secretName": "nowhere", "secretNamespace": "default", "key": "config",
    } });
    make(&scene.admin, "clusters", "nowhere", config).await;
    let before = scene.server.home().logged().len();
    let path = "/kubernetes/cluster/nowhere/api/v1/pods";
    let mut tenants = JoinSet::new();
    for _ in 0..4 {
        let admin = scene.admin.clone();
        tenants.spawn(async move {
            for _ in 0..100 {
                assert_eq!(admin.get(path).send().await.status, 503);
            }
        });
    }
    tenants.join_all().await;
    let log = scene.server.home().logged();
    let lines: Vec<&str> = log[before..].lines().collect();
    assert!(log[before..].contains("cannot reach a target"), "{lines:?}");
    assert!(log.len() - before <= LOG_BYTES, "{} lines: {:?}", lines.len(), lines.first());
}

/// Logins by one key, which each make a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_one_key() {
    let logins = Logins::start(&[]).await;
    let key = logins.scene.user("many").await;
    let client = logins.scene.attacker(&key);
    let load = Load { connections: 8, streams: 1, lasting: logins.scene.lasting() };
    let attack = async {
        let statuses = hammer(&client, load, |client| client.post("/auth/session")).await;
        // Each connection may have one request that is decided at the same time as the last free place.
        assert!(statuses[&201] <= 50 + load.connections, "{statuses:?}");
        assert!(statuses[&403] > statuses[&201], "{statuses:?}");
    };
    logins.hold("sessions of one key", attack).await;
}
