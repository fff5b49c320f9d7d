//! Exchanges of the tokens of workloads for access keys: successful ones and refused ones.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postern_tests::http::{Client, Response};
use postern_tests::identity_provider::{
    CLIENT_ID, IdentityProvider, Raw, exchange_form, now, post_form,
};
use postern_tests::objects::{collection, make, secret, secret_path, secrets};
use postern_tests::rights::{allow, merge, path, rule, set, user, with_key};
use postern_tests::{Form, Home, Server, Setup, wait};
use serde_json::{Value, json};

/// The address of the server, which is part of the audience of tokens.
const EXTERNAL: &str = "https://postern.example.com";

const TOKEN: &str = "/auth/token";

/// The 99th percentile of the times of exchanges.
const EXCHANGE_MAX: Duration = Duration::from_millis(30);

/// A server with the trusted issuer `ci` and the workload identity `deploy` of the user `bot`.
pub(super) struct Workloads {
    pub(super) server: Server,
    pub(super) admin: Client,
    pub(super) provider: IdentityProvider,
}

/// The scope of `deploy`: one secret.
pub(super) fn one_secret() -> Value {
    json!({ "rules": [{
        "verbs": ["get"],
        "resources": [{
            "group": "management.platform.sh", "resources": ["sharedsecrets"],
            "resourceNames": ["db"],
        }],
        "namespaces": ["platform"],
    }] })
}

pub(super) fn deploy() -> Value {
    json!({
        "issuer": "ci",
        "match": [
            { "claim": "repository_id", "values": ["4711"] },
            { "claim": "ref", "values": ["refs/heads/main", "refs/tags/v*"] },
        ],
        "owner": { "user": "bot" },
        "scope": one_secret(),
    })
}

/// The claims of a run for the branch `main`.
pub(super) fn claims() -> Value {
    json!({
        "aud": format!("{EXTERNAL}{TOKEN}"),
        "sub": "repo:canary/shop:ref:refs/heads/main",
        "repository": "canary/shop",
        "repository_id": "4711",
        "ref": "refs/heads/main",
        "event_name": "push",
    })
}

impl Workloads {
    pub(super) async fn start() -> Self {
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let server = setup.argument("--external-url").argument(EXTERNAL).start().await;
        let (admin, provider) = (server.client(), IdentityProvider::start().await);
        make(&admin, "users", "bot", json!({})).await;
        for name in ["db", "other"] {
            let mut made = secret(name, "value");
            made["spec"]["owner"] = json!({ "user": "bot" });
            admin.post(&secrets("platform")).json(&made).send().await.expect(201);
        }
        let issuer = json!({
            "type": "GitHubActions", "issuer": provider.issuer(), "caData": provider.ca_data(),
        });
        make(&admin, "trustedissuers", "ci", issuer).await;
        make(&admin, "workloadidentities", "deploy", deploy()).await;
        Self { server, admin, provider }
    }

    /// Exchanges a token with these claims, over those of [`claims`].
    pub(super) async fn exchange(&self, changes: Value) -> Response {
        let mut all = claims();
        for (name, value) in changes.as_object().unwrap() {
            all[name] = value.clone();
        }
        self.send(&exchange_form(&self.provider.token(&all), "deploy")).await
    }

    pub(super) async fn send(&self, form: &str) -> Response {
        post_form(&self.admin, form).await
    }

    /// A client with the key of an exchange.
    async fn client(&self) -> (Client, String) {
        let given = self.exchange(json!({})).await.expect(200);
        let client = self.admin.with_token(given["access_token"].as_str().unwrap());
        let me = client.get(&collection("selves/me")).send().await.expect(200);
        let name = me["status"]["accessKey"].as_str().unwrap().to_owned();
        (client, name)
    }
}

#[tokio::test]
async fn an_issuer_that_hangs_leaves_exchanges_to_the_others_and_all_are_counted() {
    let workloads = Workloads::start().await;
    let slow = IdentityProvider::start().await;
    slow.set(|state| {
        let raw = Raw { delay: Duration::from_mins(1), ..Raw::of(200, "{}") };
        state.raw.insert("/.well-known/openid-configuration", raw);
    });
    let issuer = json!({
        "type": "GitHubActions", "issuer": slow.issuer(), "caData": slow.ca_data(),
    });
    make(&workloads.admin, "trustedissuers", "slow", issuer).await;
    let mut late = deploy();
    late["issuer"] = json!("slow");
    make(&workloads.admin, "workloadidentities", "late", late).await;
    let form = exchange_form(&slow.token(&claims()), "late");
    // More than there are places for one issuer, and less than there are for all.
    let mut exchanges: FuturesUnordered<_> = (1..=40)
        .map(|last| {
            let client = workloads.admin.from_address(Ipv4Addr::new(127, 0, 9, last).into());
            let form = &form;
            async move { post_form(&client, form).await }
        })
        .collect();
    let refused = exchanges.next().await.unwrap();
    assert_eq!(refused.status, 429, "all others wait for the issuer: {}", refused.text());
    assert!(refused.text().contains("too many logins at once"), "{}", refused.text());
    workloads.exchange(json!({})).await.expect(200);
    let waited = wait::within("the others", exchanges.collect::<Vec<Response>>()).await;
    let late = waited.iter().filter(|response| response.status == 503).count();
    assert_eq!(late, 32, "{:?}", waited.iter().map(|one| one.status).collect::<Vec<_>>());
    let metrics = workloads.admin.get("/metrics").send().await.text();
    for (code, count) in [(200, 1), (429, 8), (503, 32)] {
        let is_it = |line: &&str| {
            let code = format!("code=\"{code}\"");
            line.starts_with("apiserver_request_total{")
                && line.contains("/auth\"")
                && line.contains(&code)
        };
        let found = metrics.lines().find(is_it).unwrap_or_default();
        assert!(found.ends_with(&format!(" {count}")), "{code}: {found}");
    }
}

#[tokio::test]
async fn a_token_is_exchanged_for_a_short_key_within_the_scope() {
    let workloads = Workloads::start().await;
    let given = workloads.exchange(json!({})).await;
    assert_eq!(given.header("cache-control"), Some("no-store"));
    let given = given.expect(200);
    assert_eq!((&given["token_type"], &given["expires_in"]), (&json!("Bearer"), &json!(900)));
    let (client, name) = workloads.client().await;
    let key = workloads.admin.get(&path("ownedaccesskeys", &name)).send().await.expect(200);
    let spec = &key["spec"];
    assert_eq!(
        (&spec["type"], &spec["user"], &spec["ttl"]),
        (&json!("Other"), &json!("bot"), &json!(900))
    );
    assert_eq!(spec["scope"], one_secret());
    assert_eq!(spec["identity"]["userId"], claims()["sub"]);
    assert_eq!(key["status"]["workload"]["identity"], "deploy");
    assert!(key["metadata"]["ownerReferences"].is_null(), "{key}");
    // It can read only one secret, although its owner has both.
    client.get(&secret_path("db")).send().await.expect(200);
    for (method, at) in [
        ("GET", secret_path("other")),
        ("DELETE", secret_path("db")),
        ("GET", path("users", "bot")),
        ("GET", collection("ownedaccesskeys")),
    ] {
        let status = client.request(method, &at).send().await.status;
        assert!([403, 404].contains(&status), "{method} {at}: {status}");
    }
    // A key of a workload makes none that does more or lives longer.
    let wider = json!({ "metadata": { "name": "wider" }, "spec": { "user": "bot" } });
    let made = client.post(&collection("ownedaccesskeys")).json(&wider).send().await;
    assert_eq!(made.status, 403);
    // The end of the workload identity is the end of its keys.
    workloads.admin.delete(&path("workloadidentities", "deploy")).send().await.expect(200);
    wait::until("the key is gone", async || {
        (client.get(&secret_path("db")).send().await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn other_tokens_are_refused_and_only_the_audit_log_says_why() {
    let workloads = Workloads::start().await;
    let refused = [
        (json!({ "aud": EXTERNAL }), "another audience"),
        (json!({ "aud": CLIENT_ID }), "another audience"),
        (json!({ "iss": "https://evil.example" }), "another issuer"),
        (json!({ "exp": now() - 120 }), "has expired"),
        (json!({ "iat": now() + 300 }), "issued in the future"),
        (json!({ "repository_id": "4712" }), "the claim repository_id has another value"),
        (json!({ "repository_id": 47110 }), "the claim repository_id has another value"),
        (json!({ "repository_id": null }), "the claim repository_id is missing"),
        (json!({ "repository_id": ["4711"] }), "the claim repository_id is not a text"),
        (json!({ "ref": "refs/heads/main2" }), "the claim ref has another value"),
        (json!({ "ref": "refs/heads/Main" }), "the claim ref has another value"),
        (json!({ "ref": "refs/tags/" }), "the claim ref has another value"),
        (json!({ "event_name": "pull_request" }), "the claim event_name"),
        (json!({ "event_name": "pull_request_target" }), "the claim event_name"),
        (json!({ "event_name": null }), "the claim event_name is missing"),
    ];
    let mut reasons = Vec::new();
    for (changes, reason) in refused {
        let response = workloads.exchange(changes.clone()).await;
        assert_eq!(response.status, 400, "{changes}: {}", response.text());
        assert_eq!(response.json(), json!({ "error": "invalid_grant" }), "{changes}");
        reasons.push(reason);
    }
    let token = workloads.provider.token(&claims());
    for (form, error) in [
        (exchange_form(&token, "nothing"), "invalid_grant"),
        (exchange_form("a.b.c", "deploy"), "invalid_grant"),
        (exchange_form(&token, ""), "invalid_request"),
        (exchange_form(&token, "deploy").replace("token-exchange", "x"), "unsupported_grant_type"),
        (format!("{}&scope=all", exchange_form(&token, "deploy")), "invalid_scope"),
        (format!("{}&resource=x", exchange_form(&token, "deploy")), "invalid_target"),
        (format!("{}&actor_token_type=x", exchange_form(&token, "deploy")), "invalid_request"),
        (format!("{}&audience=deploy", exchange_form(&token, "deploy")), "invalid_request"),
    ] {
        assert_eq!(workloads.send(&form).await.expect(400)["error"], error);
    }
    let logins = || -> Vec<String> {
        let records = workloads.server.home().records().into_iter();
        records.filter(|one| one["verb"] == "login").map(|one| one.to_string()).collect()
    };
    for reason in reasons {
        wait::until(reason, async || {
            logins().iter().any(|record| record.contains(reason)).then_some(())
        })
        .await;
    }
    let records = logins();
    let log = workloads.server.home().logged();
    for text in records.iter().chain([&log]) {
        assert!(!text.contains("canary") && !text.contains("eyJ"), "{text}");
    }
}

#[tokio::test]
async fn an_exchange_counts_what_is_stored_now_and_the_listed_claims_alone() {
    let workloads = Workloads::start().await;
    for (kind, name, owner) in [
        ("workloadidentities", "deploy", json!({ "disabled": true })),
        ("trustedissuers", "ci", json!({ "disabled": true })),
        ("users", "bot", json!({ "disabled": true })),
    ] {
        workloads.exchange(json!({})).await.expect(200);
        set(&workloads.admin, &path(kind, name), owner).await;
        assert_eq!(workloads.exchange(json!({})).await.status, 400, "{kind}");
        set(&workloads.admin, &path(kind, name), json!({ "disabled": false })).await;
    }
    // Renamed repositories and both forms of sub: only the listed claims count.
    for claims in [
        json!({ "repository": "canary/renamed", "sub": "repo:canary/renamed:environment:x" }),
        json!({ "ref": "refs/tags/v1.2" }),
        json!({ "repository_id": 4711 }),
    ] {
        workloads.exchange(claims).await.expect(200);
    }
}

#[tokio::test]
async fn a_workload_identity_has_so_many_keys_at_once_and_none_without_its_owner() {
    let workloads = Workloads::start().await;
    let deploy = path("workloadidentities", "deploy");
    set(&workloads.admin, &deploy, json!({ "maxLive": 2, "ttl": 60 })).await;
    let first = workloads.exchange(json!({})).await.expect(200);
    assert_eq!(first["expires_in"], 60);
    workloads.exchange(json!({})).await.expect(200);
    let third = workloads.exchange(json!({})).await;
    assert_eq!(third.expect(429)["error"], "temporarily_unavailable");
    // Over HTTP/2 it is a response too, and no reset of the stream, after which clients try again at once.
    let http2 = Client::http2(workloads.server.kubeconfig());
    let form = exchange_form(&workloads.provider.token(&claims()), "deploy");
    let third = post_form(&http2, &form).await;
    assert_eq!((third.status, third.headers["retry-after"].as_bytes()), (429, &b"10"[..]));
    let stored = workloads.admin.get(&deploy).send().await.expect(200);
    for (field, none) in [("maxLive", json!(0)), ("maxLive", Value::Null), ("ttl", json!(0))] {
        let mut changed = stored.clone();
        changed["spec"][field] = none;
        let put = workloads.admin.put(&deploy).json(&changed).send().await;
        assert_eq!(put.status, 422, "{field}: {}", put.text());
    }
    // A later user of the same name has neither the workload identity nor its keys.
    workloads.admin.delete(&path("users", "bot")).send().await.expect(200);
    make(&workloads.admin, "users", "bot", json!({})).await;
    assert_eq!(workloads.exchange(json!({})).await.status, 400);
    let client = workloads.admin.with_token(first["access_token"].as_str().unwrap());
    assert_eq!(client.get(&collection("selves/me")).send().await.status, 401);
    wait::until("the workload identity is gone", async || {
        (workloads.admin.get(&deploy).send().await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_workload_identity_must_match_what_its_platform_needs() {
    let workloads = Workloads::start().await;
    for (name, kind) in [("gitlab", "GitLab"), ("generic", "Generic"), ("k8s", "Kubernetes")] {
        let spec = json!({ "type": kind, "issuer": format!("https://{name}.example.com") });
        make(&workloads.admin, "trustedissuers", name, spec).await;
    }
    let claim = |name: &str| json!({ "claim": name, "values": ["x"] });
    for (issuer, claims, code) in [
        ("ci", vec!["repository_id"], 422),
        ("ci", vec!["ref"], 422),
        ("ci", vec!["sub"], 422),
        ("ci", vec!["repository_id", "ref", "sub"], 422),
        ("ci", vec!["repository_id", "environment"], 201),
        ("gitlab", vec!["project_id", "ref"], 422),
        ("gitlab", vec!["project_id", "ref", "ref_protected"], 201),
        ("k8s", vec!["namespace"], 422),
        ("k8s", vec!["namespace", "serviceaccount"], 201),
        ("generic", vec!["email"], 422),
        ("generic", vec!["sub"], 201),
        ("generic", vec!["sub", "aud"], 422),
        ("nothing", vec!["sub"], 422),
    ] {
        let mut spec = deploy();
        spec["issuer"] = json!(issuer);
        spec["match"] = claims.iter().map(|name| claim(name)).collect();
        let name = format!("{issuer}-{}", claims.join("-").replace('_', "-"));
        let body = json!({ "metadata": { "name": name }, "spec": spec });
        let made = workloads.admin.post(&collection("workloadidentities")).json(&body).send().await;
        assert_eq!(made.status, code, "{issuer} {claims:?}: {}", made.text());
    }
    for (field, value) in [
        ("scope", Value::Null),
        ("ttl", json!(3601)),
        ("ttl", json!(-1)),
        ("maxLive", json!(-1)),
        ("owner", json!({ "user": "nobody" })),
        ("match", json!([{ "claim": "ref", "values": ["*"] }])),
        ("march", json!([])),
    ] {
        let mut spec = deploy();
        spec[field] = value.clone();
        let body = json!({ "metadata": { "name": "bad" }, "spec": spec });
        let made = workloads.admin.post(&collection("workloadidentities")).json(&body).send().await;
        assert_eq!(made.status, 422, "{field} {value}: {}", made.text());
    }
}

/// Another type would not check the claims that tokens of GitHub need.
#[tokio::test]
async fn the_issuer_of_github_has_the_type_of_github() {
    let server = Server::start().await;
    let admin = server.client();
    for suffix in ["", "/an-enterprise"] {
        let issuer = format!("https://token.actions.githubusercontent.com{suffix}");
        let body = json!({
            "metadata": { "name": "github" }, "spec": { "type": "Generic", "issuer": issuer },
        });
        let refused = admin.post(&collection("trustedissuers")).json(&body).send().await;
        assert!(refused.expect_text(422).contains("must be GitHubActions for this issuer"));
    }
}

#[tokio::test]
async fn only_a_caller_who_may_see_an_issuer_learns_whether_it_exists_and_of_which_type_it_is() {
    let workloads = Workloads::start().await;
    let (admin, at) = (&workloads.admin, collection("workloadidentities"));
    let ada = user(admin, "ada").await;
    for issuer in ["none", "ci"] {
        let unfit = json!({ "claim": "sub", "values": ["x"] });
        let spec = json!({
            "owner": { "user": "ada" }, "issuer": issuer, "scope": {}, "match": [unfit],
        });
        let body = json!({ "metadata": { "name": "probe" }, "spec": spec });
        ada.post(&format!("{at}?dryRun=All")).json(&body).send().await.expect(201);
        admin.post(&at).json(&body).send().await.expect(422);
    }
}

#[tokio::test]
async fn a_workload_identity_gives_no_more_than_its_writer_has() {
    let workloads = Workloads::start().await;
    let admin = &workloads.admin;
    let ada = user(admin, "ada").await;
    let make_as = async |client: &Client, name: &str, spec: Value| {
        let body = json!({ "metadata": { "name": name }, "spec": spec });
        client.post(&collection("workloadidentities")).json(&body).send().await
    };
    let with = |field: &str, value: Value| {
        let mut spec = deploy();
        spec[field] = value;
        spec
    };
    // A user makes workload identities of their own, by the right to make their own keys.
    let own = with("owner", json!({ "user": "ada" }));
    make_as(&ada, "own", own.clone()).await.expect(201);
    ada.get(&path("workloadidentities", "own")).send().await.expect(200);
    assert_eq!(make_as(&ada, "of-bot", deploy()).await.status, 403);
    assert_eq!(ada.get(&path("workloadidentities", "deploy")).send().await.status, 404);
    // The verb on the kind alone is no right to another's keys.
    let rules = json!([rule(&["workloadidentities", "trustedissuers"], &["*"])]);
    allow(admin, "clerk", None, rules, "platform:user:ada").await;
    assert_eq!(make_as(&ada, "of-bot", deploy()).await.status, 403);
    let deploy_path = path("workloadidentities", "deploy");
    let wider = json!({ "spec": { "scope": { "rules": [{ "verbs": ["*"] }] } } });
    assert_eq!(merge(&ada, &deploy_path, wider.clone()).await.status, 403);
    let issuer = json!({ "type": "Generic", "issuer": "https://evil.example" });
    let body = json!({ "metadata": { "name": "evil" }, "spec": issuer });
    assert_eq!(ada.post(&collection("trustedissuers")).json(&body).send().await.status, 403);
    let to = json!({ "spec": { "issuer": "https://evil.example" } });
    assert_eq!(merge(&ada, &path("trustedissuers", "ci"), to).await.status, 403);
    // A key that expires makes nothing that does not.
    let short = with_key(admin, "short", json!({ "user": "ada", "ttl": 600 })).await;
    assert_eq!(make_as(&short, "later", own.clone()).await.status, 403);
    // A scoped key stays within its scope, and the objects that it makes end with it.
    let scope = json!({ "rules": [
        { "verbs": ["get"], "resources": [{
            "group": "management.platform.sh", "resources": ["sharedsecrets"],
            "resourceNames": ["db"],
        }], "namespaces": ["platform"] },
        { "verbs": ["*"], "resources": [{
            "group": "management.platform.sh", "resources": ["workloadidentities"],
        }] },
        { "verbs": ["createkey", "updatekey"], "resources": [{
            "group": "management.platform.sh", "resources": ["users"], "resourceNames": ["ada"],
        }] },
    ] });
    let scoped = with_key(admin, "scoped", json!({ "user": "ada", "scope": scope })).await;
    let everything = with("scope", json!({ "rules": [{ "verbs": ["*"] }] }));
    let mut everything = everything;
    everything["owner"] = json!({ "user": "ada" });
    assert_eq!(make_as(&scoped, "wide", everything).await.status, 403);
    assert_eq!(merge(&scoped, &path("workloadidentities", "own"), wider).await.status, 403);
    let made = make_as(&scoped, "narrow", own).await;
    assert_eq!(made.expect(201)["status"]["maker"]["name"], "scoped");
    let token = workloads.provider.token(&claims());
    let given = workloads.send(&exchange_form(&token, "narrow")).await.expect(200);
    let client = admin.with_token(given["access_token"].as_str().unwrap());
    let status = async || client.get(&collection("selves/me")).send().await.status;
    assert_eq!(status().await, 200);
    set(admin, &path("ownedaccesskeys", "scoped"), json!({ "disabled": true })).await;
    assert_eq!(status().await, 401);
    let late = workloads.send(&exchange_form(&token, "narrow")).await;
    assert_eq!(late.expect(400)["error"], "invalid_grant", "its key would give no access");
}

#[tokio::test]
async fn an_exchanged_key_does_not_outlive_the_key_that_made_its_workload_identity() {
    let workloads = Workloads::start().await;
    let scope = json!({ "rules": [{ "verbs": ["*"] }] });
    let spec = json!({ "user": "bot", "scope": scope, "ttl": 120 });
    let brief = with_key(&workloads.admin, "brief", spec).await;
    let body = json!({ "metadata": { "name": "short" }, "spec": deploy() });
    brief.post(&collection("workloadidentities")).json(&body).send().await.expect(201);
    let token = workloads.provider.token(&claims());
    let given = workloads.send(&exchange_form(&token, "short")).await.expect(200);
    let seconds = given["expires_in"].as_i64().unwrap();
    assert!((1..=120).contains(&seconds), "{seconds}");
}

/// The issuer that the cluster names, which is no address of this network.
const OF_CLUSTER: &str = "https://kubernetes.default.svc.cluster.local";

/// Makes the provider a connected cluster `edge`, and a trusted issuer.
async fn add_cluster(workloads: &Workloads) {
    let (admin, provider) = (&workloads.admin, &workloads.provider);
    provider.set(|state| {
        state.discovery =
            json!({ "issuer": OF_CLUSTER, "jwks_uri": "https://10.0.0.1/openid/v1/jwks" });
    });
    let kubeconfig = format!(
        "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"{}\", certificate-authority-data: \"{}\"}}}}]\n\
         users: [{{name: u, user: {{token: gateway-token-canary}}}}]\n",
        provider.issuer(),
        provider.ca_data()
    );
    let data = json!({ "config": BASE64_STANDARD.encode(kubeconfig) });
    let body = json!({ "metadata": { "name": "c" }, "data": data });
    let at = "/kubernetes/management/api/v1/namespaces/platform/secrets";
    admin.post(at).json(&body).send().await.expect(201);
    make_cluster(admin, "edge").await;
    make(admin, "trustedissuers", "edge", issuer_of(provider, "edge")).await;
    let mut spec = deploy();
    spec["issuer"] = json!("edge");
    spec["match"] = json!([
        { "claim": "namespace", "values": ["shop"] },
        { "claim": "serviceaccount", "values": ["deployer"] },
    ]);
    make(admin, "workloadidentities", "pod", spec).await;
}

/// A Cluster with the kubeconfig of [`add_cluster`].
async fn make_cluster(admin: &Client, name: &str) {
    let config = json!({ "secretName": "c", "secretNamespace": "platform" });
    make(admin, "clusters", name, json!({ "config": config })).await;
}

fn issuer_of(provider: &IdentityProvider, cluster: &str) -> Value {
    json!({
        "type": "Kubernetes", "cluster": cluster, "issuer": OF_CLUSTER,
        "keyThumbprints": [provider.thumbprint()],
    })
}

/// The status of an exchange of a token of the service account `shop/deployer`, with these changes to its claims.
async fn exchange_of_pod(workloads: &Workloads, changes: Value) -> u16 {
    let mut claims = json!({
        "iss": OF_CLUSTER,
        "aud": [format!("{EXTERNAL}{TOKEN}")],
        "sub": "system:serviceaccount:shop:deployer",
        "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": "deployer" } },
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    workloads.send(&exchange_form(&workloads.provider.token(&claims), "pod")).await.status
}

#[tokio::test]
async fn a_cluster_is_an_issuer_that_is_reached_by_its_kubeconfig() {
    let workloads = Workloads::start().await;
    add_cluster(&workloads).await;
    let (admin, provider) = (&workloads.admin, &workloads.provider);
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);
    let other =
        json!({ "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": "x" } } });
    for refused in [
        json!({ "aud": ["https://kubernetes.default.svc"] }),
        json!({ "iss": "https://other.example" }),
        other,
    ] {
        assert_eq!(exchange_of_pod(&workloads, refused.clone()).await, 400, "{refused}");
    }
    assert_eq!((provider.asked("/openid/v1/jwks"), provider.asked("/keys")), (1, 0));
    // After a change of the Cluster, its address may be another one, so the cached keys no longer
    // apply.
    set(admin, &path("clusters", "edge"), json!({ "description": "moved" })).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);
    assert_eq!(provider.asked("/openid/v1/jwks"), 2);
}

/// Neither the answer nor the time tells that a workload identity, or its cluster, exists.
#[tokio::test]
async fn a_workload_identity_of_a_cluster_is_told_by_no_answer() {
    let workloads = Workloads::start().await;
    add_cluster(&workloads).await;
    let down = IdentityProvider::start().await;
    let issuer = json!({ "type": "Generic", "issuer": down.issuer(), "caData": down.ca_data() });
    make(&workloads.admin, "trustedissuers", "down", issuer).await;
    let answers = async |token: &str| {
        let mut answers = Vec::new();
        for audience in ["pod", "guess"] {
            let answer = workloads.send(&exchange_form(token, audience)).await;
            answers.push((answer.status, answer.json()));
        }
        let [one, other] = &answers[..] else { panic!("two answers") };
        assert_eq!(one, other);
        one.0
    };
    let of_cluster = workloads.provider.token(&json!({ "iss": OF_CLUSTER, "aud": "x" }));
    assert_eq!(answers(&of_cluster).await, 400);
    // Both have asked the cluster, so they take as long as it does.
    assert_eq!(workloads.provider.asked("/openid/v1/jwks"), 1);
    // The provider was reachable before, and its keys are replaced while it is down.
    assert_eq!(answers(&down.token(&claims())).await, 400);
    down.set(|state| {
        state.raw.insert("/keys", Raw::of(503, "down"));
        state.header = json!({ "kid": "new" });
    });
    assert_eq!(answers(&down.token(&claims())).await, 503);
}

#[tokio::test]
async fn only_keys_with_a_known_thumbprint_count() {
    let workloads = Workloads::start().await;
    add_cluster(&workloads).await;
    let (admin, provider) = (&workloads.admin, &workloads.provider);
    let at = path("trustedissuers", "edge");
    for (what, spec) in [
        ("no issuer", json!({ "issuer": null })),
        ("no keys", json!({ "keyThumbprints": null })),
        ("a key of another form", json!({ "keyThumbprints": ["x"] })),
        ("authorities", json!({ "caData": provider.ca_data() })),
        ("keys without a cluster", json!({ "cluster": null })),
    ] {
        let reply = merge(admin, &at, json!({ "spec": spec })).await;
        assert_eq!(reply.status, 422, "{what}: {}", reply.text());
    }
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);
    // The cluster's present keys belong to a thief that has changed the Cluster.
    provider.set(|state| state.rotate_keys("of-the-thief"));
    set(admin, &path("clusters", "edge"), json!({ "description": "moved" })).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 400);
    // The administrator names the next key.
    set(admin, &at, json!({ "keyThumbprints": [provider.thumbprint()] })).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);
}

#[tokio::test]
async fn a_later_cluster_of_the_same_name_is_no_issuer() {
    let workloads = Workloads::start().await;
    let admin = &workloads.admin;
    let missing =
        json!({ "metadata": { "name": "none" }, "spec": issuer_of(&workloads.provider, "none") });
    let refused = admin.post(&collection("trustedissuers")).json(&missing).send().await;
    let refused = refused.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.cluster");
    add_cluster(&workloads).await;
    // A second owner keeps the issuer when its Cluster is deleted.
    let at = path("trustedissuers", "edge");
    let owners = |issuer: &Value| issuer["metadata"]["ownerReferences"].as_array().unwrap().clone();
    let user = admin.get(&path("users", "bot")).send().await.expect(200);
    let mut issuer = admin.get(&at).send().await.expect(200);
    let [cluster] = &owners(&issuer)[..] else { panic!("{issuer}") };
    let second = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "User", "name": "bot",
        "uid": user["metadata"]["uid"],
    });
    let mut later = cluster.clone();
    later["uid"] = json!("00000000-0000-4000-8000-000000000000");
    issuer["metadata"]["ownerReferences"] = json!([second, later]);
    let issuer = admin.put(&at).json(&issuer).send().await.expect(200);
    assert_eq!(
        owners(&issuer),
        [second, cluster.clone()],
        "a client cannot say which Cluster it is"
    );
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);

    admin.delete(&path("clusters", "edge")).send().await.expect(200);
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 400);
    make_cluster(admin, "edge").await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 400);
    // A change of another field does not trust the later one.
    set(admin, &at, json!({ "description": "still the first" })).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 400);
    // A workload identity trusts the issuer that it named, and not a later one of its name.
    admin.delete(&at).send().await.expect(200);
    make(admin, "trustedissuers", "edge", issuer_of(&workloads.provider, "edge")).await;
    let pod = path("workloadidentities", "pod");
    set(admin, &pod, json!({ "description": "still the first" })).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 400);
    let spec = admin.get(&pod).send().await.expect(200)["spec"].clone();
    admin.delete(&pod).send().await.expect(200);
    make(admin, "workloadidentities", "pod", spec).await;
    assert_eq!(exchange_of_pod(&workloads, json!({})).await, 200);
    // Without another owner, the issuer ends with its Cluster.
    admin.delete(&path("clusters", "edge")).send().await.expect(200);
    wait::until("the issuer is gone", async || {
        (admin.get(&at).send().await.status == 404).then_some(())
    })
    .await;
}

/// An issuer may be created after the workload identities that name it. The first exchange binds them to it.
#[tokio::test]
async fn a_workload_identity_trusts_only_the_first_issuer_of_its_name() {
    let workloads = Workloads::start().await;
    let admin = &workloads.admin;
    let bot = with_key(admin, "bot-key", json!({ "user": "bot" })).await;
    let (issuer, identity) = (path("trustedissuers", "ci"), path("workloadidentities", "deploy"));
    let spec = admin.get(&issuer).send().await.expect(200)["spec"].clone();
    for is_exchanged_before in [true, false] {
        for at in [&identity, &issuer] {
            admin.delete(at).send().await.expect(200);
        }
        // A caller without the right to see issuers.
        make(&bot, "workloadidentities", "deploy", deploy()).await;
        assert_eq!(workloads.exchange(json!({})).await.status, 400);
        make(admin, "trustedissuers", "ci", spec.clone()).await;
        if is_exchanged_before {
            workloads.exchange(json!({})).await.expect(200);
        } else {
            set(admin, &identity, json!({ "description": "also binds it" })).await;
        }
        admin.delete(&issuer).send().await.expect(200);
        make(admin, "trustedissuers", "ci", spec.clone()).await;
        assert_eq!(workloads.exchange(json!({})).await.status, 400, "{is_exchanged_before}");
    }
    // The name of another issuer gets a new binding.
    make(admin, "trustedissuers", "next", spec).await;
    set(admin, &identity, json!({ "issuer": "next" })).await;
    workloads.exchange(json!({})).await.expect(200);
}

#[tokio::test]
async fn keys_of_a_provider_are_fetched_once_for_many_unknown_ids() {
    let workloads = Workloads::start().await;
    workloads.exchange(json!({})).await.expect(200);
    let before = workloads.provider.asked("/keys");
    workloads.provider.set(|state| state.header = json!({ "kid": "unknown" }));
    for last in 1..=40 {
        let token = workloads.provider.token(&claims());
        let from = workloads.admin.from_address(std::net::Ipv4Addr::new(127, 0, 5, last).into());
        let request = from.post(TOKEN).without("authorization");
        let form = exchange_form(&token, "deploy");
        let response = request.body("application/x-www-form-urlencoded", form).send().await;
        assert_eq!(response.status, 400);
    }
    // A clock that goes on for more than ten seconds in between would allow one more.
    assert!(workloads.provider.asked("/keys") <= before + 2);
}

#[tokio::test]
async fn a_new_key_of_a_provider_counts_at_once() {
    // Some providers replace a key under the same id.
    for id in ["key-2", "key-1"] {
        let workloads = Workloads::start().await;
        workloads.exchange(json!({})).await.expect(200);
        workloads.provider.set(|state| state.rotate_keys(id));
        workloads.exchange(json!({})).await.expect(200);
    }
}

/// The time of an exchange with cached keys of the provider. It has a limit in the form of figures.
#[tokio::test]
async fn an_exchange_takes_little_time() {
    let form = Form::of_this_run();
    let workloads = Workloads::start().await;
    let at = path("workloadidentities", "deploy");
    set(&workloads.admin, &at, json!({ "maxLive": 2_000 })).await;
    let mut connection = workloads.admin.connect().await.unwrap();
    let mut times = Vec::new();
    for number in 0..form.pick(20, 1_000) {
        let mut claims = claims();
        claims["jti"] = json!(number);
        let form = exchange_form(&workloads.provider.token(&claims), "deploy");
        let request = workloads.admin.post(TOKEN).without("authorization");
        let request = request.body("application/x-www-form-urlencoded", form);
        let started = Instant::now();
        request.try_send_on(&mut connection).await.unwrap().expect(200);
        times.push(started.elapsed());
    }
    // The first one fetches the keys.
    times.remove(0);
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    eprintln!("exchanges: p50 {p50:?}, p99 {p99:?}");
    assert!(Form::of_figures() == Form::Short || p99 <= EXCHANGE_MAX, "{p99:?}");
}
