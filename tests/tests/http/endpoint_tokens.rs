//! Endpoint tokens: the JWT that each caller gets, checked by another library than the server's,
//! and the location of the keys that verify it.

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, based, collection, make};
use postern_tests::rights::{merge, path, user, with_key};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

const TOKENS: &str = "directclusterendpointtokens";
const GENERAL: &str = "platform.sh/direct-cluster-endpoint";
const JWKS: &str = "/kubernetes/management/openid/v1/jwks";

async fn ask(client: &Client, spec: Value) -> postern_tests::http::Response {
    client.post(&collection(TOKENS)).json(&json!({ "spec": spec })).send().await
}

async fn token(client: &Client, spec: Value) -> String {
    let made = ask(client, spec).await.expect(201);
    made["status"]["token"].as_str().expect("a token").to_owned()
}

async fn keys(client: &Client) -> JwkSet {
    let reply = client.get(JWKS).without("authorization").send().await;
    assert_eq!(reply.header("content-type"), Some("application/jwk-set+json"));
    assert_eq!(reply.header("cache-control"), Some("public, max-age=300"));
    serde_json::from_value(reply.expect(200)).unwrap()
}

/// The content of a token, verified with the published keys.
async fn says(client: &Client, token: &str) -> Value {
    let header = decode_header(token).unwrap();
    assert_eq!(header.typ.as_deref(), Some("at+jwt"));
    let keys = keys(client).await;
    let key = keys.find(header.kid.as_deref().unwrap()).expect("the key is published");
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_aud = false;
    validation.set_required_spec_claims(&["exp", "nbf", "iss", "sub", "aud"]);
    decode(token, &DecodingKey::from_jwk(key).unwrap(), &validation).unwrap().claims
}

/// The clusters `east` and `west`; the project `web` has a space on the one.
async fn make_clusters(admin: &Client) -> [String; 2] {
    let mut uids = Vec::new();
    for name in ["east", "west"] {
        let made = make(admin, "clusters", name, json!({})).await;
        uids.push(format!("platform.sh/cluster:{}", made["metadata"]["uid"].as_str().unwrap()));
    }
    make(admin, "projects", "web", json!({})).await;
    let on_east = json!({ "clusterRef": { "cluster": "east", "namespace": "web-dev" } });
    let space = json!({ "metadata": { "name": "dev" }, "spec": on_east });
    let spaces = format!("{GROUP}/namespaces/p-web/spaceinstances");
    admin.post(&spaces).json(&space).send().await.expect(201);
    uids.try_into().unwrap()
}

#[tokio::test]
async fn kubectl_creates_a_token_that_another_library_verifies() {
    let home = Home::new();
    let setup = Setup::on(&home).argument("--external-url=https://postern.example.com/");
    let server = setup.start().await;
    let kubectl = server.kubectl();
    let object = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "DirectClusterEndpointToken",
        "metadata": { "name": "mine" }, "spec": { "ttl": 600 },
    });
    let file = kubectl.file("token.json", &object.to_string());
    let made = kubectl.json(&["create", "-f", &file, "-o", "json"]).await;
    assert_eq!(made["spec"], json!({ "ttl": 600 }));
    let token = made["status"]["token"].as_str().unwrap();
    let said = says(&server.client(), token).await;
    assert_eq!(said["iss"], "https://postern.example.com");
    assert_eq!((&said["sub"], &said["aud"]), (&json!("admin"), &json!([GENERAL])));
    let number = |name: &str| said[name].as_i64().unwrap();
    assert_eq!((number("exp") - number("iat"), number("nbf")), (600, number("iat")));
    let own = &said["platform.sh"];
    assert_eq!((&own["user"], &own["keys"][0]["name"]), (&json!("admin"), &json!("admin")));
    let refused = kubectl.fails(&["get", TOKENS]).await;
    assert!(
        refused.contains("MethodNotAllowed") || refused.contains("does not allow"),
        "{refused}"
    );
    let text = kubectl.ok(&["explain", "directclusterendpointtoken.spec.ttl"]).await;
    assert!(text.contains("Time-to-live in seconds"), "{text}");
}

#[tokio::test]
async fn the_public_keys_need_no_credential_and_have_nothing_private() {
    let server = Server::start().await;
    let client = server.client();
    let document = client.get(JWKS).without("authorization").send().await.expect(200);
    let [key] = &document["keys"].as_array().unwrap()[..] else { panic!("{document}") };
    let mut members: Vec<&str> = key.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
    client.request("HEAD", JWKS).send().await.expect_text(200);
    client.post(JWKS).json(&json!({})).send().await.expect(405);
    client.get("/openid/v1/jwks").send().await.expect(404);
    client.get(&based("/openid/v1/jwks/")).send().await.expect(404);
}

#[tokio::test]
async fn a_ttl_that_makes_no_sense_is_refused() {
    let server = Setup::on(&Home::new()).argument("--endpoint-token-max-ttl=2h").start().await;
    let admin = server.client();
    for (spec, code, named) in [
        (json!({}), 201, "3600"),
        (json!({ "ttl": 1 }), 201, "1"),
        (json!({ "ttl": 7200 }), 201, "7200"),
        (json!({ "ttl": 7201 }), 422, "spec.ttl"),
        (json!({ "ttl": 0 }), 422, "spec.ttl"),
        (json!({ "ttl": -5 }), 422, "spec.ttl"),
        (json!({ "ttl": "5" }), 400, "spec.ttl"),
        (json!({ "ttl": null }), 422, "spec.ttl"),
        (json!({ "scope": null }), 422, "spec.scope"),
        (json!({ "rules": null }), 422, "spec.rules"),
        (json!({ "scoped": {} }), 422, "spec.scoped"),
        (json!({ "scope": {} }), 422, "spec.scope"),
        (json!({ "scope": { "projects": [{ "project": "none" }] } }), 422, "spec.scope"),
        (json!({ "rules": [{ "cluster": "none" }] }), 422, "spec.scope"),
        (json!({ "rules": [{ "requestTargets": ["Management"] }] }), 422, "spec.scope"),
    ] {
        let reply = ask(&admin, spec.clone()).await;
        assert_eq!(reply.status, code, "{spec}: {}", reply.text());
        assert!(reply.text().contains(named), "{spec}: {}", reply.text());
    }
    let long = "v".repeat(30);
    let many: Vec<Value> = (0..400).map(|n| json!({ "verbs": [format!("{long}{n}")] })).collect();
    let many = ask(&admin, json!({ "rules": many })).await;
    assert!(many.text().contains("8192 bytes"), "{}", many.text());
    assert_eq!(many.status, 422);
}

#[tokio::test]
async fn a_token_is_for_the_clusters_that_its_scope_reaches() {
    let server = Server::start().await;
    let admin = server.client();
    let [east, west] = make_clusters(&admin).await;
    for (spec, audiences) in [
        (json!({}), json!([GENERAL])),
        (json!({ "rules": [{}] }), json!([GENERAL])),
        (json!({ "rules": [{ "cluster": "west" }] }), json!([west])),
        (json!({ "scope": { "rules": [{ "cluster": "east" }] } }), json!([east])),
        (json!({ "scope": { "projects": [{ "project": "web" }] } }), json!([east])),
        (json!({ "scope": { "spaces": [{ "project": "web", "space": "dev" }] } }), json!([east])),
        (
            json!({ "scope": {
                "spaces": [{ "project": "web", "space": "dev" }], "rules": [{ "cluster": "west" }],
            } }),
            json!([east, west]),
        ),
    ] {
        let said = says(&admin, &token(&admin, spec.clone()).await).await;
        assert_eq!(said["aud"], audiences, "{spec}");
    }
    // No caller learns in this way which clusters there are.
    let ada = user(&admin, "ada").await;
    let of = async |cluster: &str| {
        let reply = ask(&ada, json!({ "rules": [{ "cluster": cluster }] })).await;
        (reply.status, reply.text())
    };
    assert_eq!(of("west").await, of("none").await);
    assert_eq!(of("west").await.0, 422);
}

#[tokio::test]
async fn a_scoped_key_gets_tokens_within_its_scope() {
    let server = Server::start().await;
    let admin = server.client();
    let [east, _] = make_clusters(&admin).await;
    let scope = json!({ "projects": [{ "project": "web" }] });
    let key = with_key(&admin, "web-key", json!({ "user": "admin", "scope": scope })).await;
    let own = says(&admin, &token(&key, json!({})).await).await;
    assert_eq!(own["aud"], json!([east]));
    assert_eq!(own["platform.sh"]["scopes"], json!([scope]));
    let space = json!({ "spaces": [{ "project": "web", "space": "dev" }] });
    let narrower = says(&admin, &token(&key, json!({ "scope": space })).await).await;
    assert_eq!(narrower["platform.sh"]["scopes"], json!([scope, space]));
    for wider in [
        json!({ "rules": [{}] }),
        json!({ "scope": { "projects": [{ "project": "*" }] } }),
        json!({ "rules": [{ "cluster": "west" }] }),
    ] {
        let reply = ask(&key, wider.clone()).await;
        assert_eq!(reply.status, 403, "{wider}: {}", reply.text());
        assert!(
            reply.text().contains("exceeds the scope of your own access key"),
            "{}",
            reply.text()
        );
    }
}

#[tokio::test]
async fn a_token_ends_with_its_key_and_is_no_key_itself() {
    let server = Server::start().await;
    let admin = server.client();
    let key = with_key(&admin, "short", json!({ "user": "admin", "ttl": 400 })).await;
    let said = says(&admin, &token(&key, json!({ "ttl": 3600 })).await).await;
    assert!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap() <= 400, "{said}");
    assert_eq!(said["platform.sh"]["keysEnd"], said["exp"], "{said}");
    let token = token(&admin, json!({})).await;
    let reply = admin.with_token(&token).get(&collection("selves/me")).send().await;
    assert_eq!(reply.status, 401);
    assert!(!reply.text().contains(&token));
}

#[tokio::test]
async fn whom_the_caller_impersonates_gets_the_token_within_the_scope_of_the_key() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    let scope = json!({ "rules": [{ "requestTargets": ["Management", "Cluster"] }] });
    let key = with_key(&admin, "ops", json!({ "user": "admin", "scope": scope })).await;
    let request = key.post(&collection(TOKENS)).header("Impersonate-User", "bob");
    let made = request.json(&json!({ "spec": {} })).send().await.expect(201);
    let said = says(&admin, made["status"]["token"].as_str().unwrap()).await;
    assert_eq!(said["sub"], "bob");
    assert!(!said["groups"].as_array().unwrap().contains(&json!("system:masters")));
    let own = &said["platform.sh"];
    assert_eq!((&own["actor"]["sub"], &own["scopes"]), (&json!("admin"), &json!([scope])));
    let bob = user(&admin, "eve").await;
    let request = bob.post(&collection(TOKENS)).header("Impersonate-User", "bob");
    request.json(&json!({ "spec": {} })).send().await.expect(403);
}

#[tokio::test]
async fn a_dry_run_issues_nothing_and_nothing_is_stored() {
    let server = Server::start().await;
    let admin = server.client();
    let dry = format!("{}?dryRun=All", collection(TOKENS));
    let object = json!({ "metadata": { "name": "t" }, "spec": { "ttl": 60 } });
    let made = admin.post(&dry).json(&object).send().await.expect(201);
    assert_eq!((&made["spec"]["ttl"], &made["status"]), (&json!(60), &json!({})));
    let refused = json!({ "spec": { "ttl": 0 } });
    admin.post(&dry).json(&refused).send().await.expect(422);
    let mine = json!({ "metadata": { "name": "t" }, "status": { "token": "mine" } });
    let made = admin.post(&collection(TOKENS)).json(&mine).send().await.expect(201);
    assert_ne!(made["status"]["token"], "mine");
    for (method, what) in [("GET", "/t"), ("GET", ""), ("DELETE", "/t"), ("PUT", "/t")] {
        let path = format!("{}{what}", collection(TOKENS));
        let reply = admin.request(method, &path).json(&object).send().await;
        assert_eq!(reply.status, 405, "{method} {what}: {}", reply.text());
    }
}

#[tokio::test]
async fn no_log_has_a_token() {
    let home = Home::new();
    let rules = json!([{ "level": "RequestResponse", "omitStages": ["RequestReceived"] }]);
    let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules });
    let file = home.path().join("policy.yaml");
    std::fs::write(&file, policy.to_string()).unwrap();
    let setup = Setup::on(&home).argument("--audit-policy-file").argument(file);
    let server = setup.argument("--log=trace").start().await;
    let admin = server.client();
    let token = token(&admin, json!({})).await;
    let signature = token.rsplit('.').next().unwrap().to_owned();
    let record = wait::until("the record of the token", async || {
        let is_it = |record: &Value| record["objectRef"]["resource"] == TOKENS;
        home.records().into_iter().find(is_it)
    })
    .await;
    assert_eq!(record["verb"], "create");
    assert_eq!((record.get("requestObject"), record.get("responseObject")), (None, None));
    server.stop().await;
    for (what, text) in [
        ("the audit log", std::fs::read_to_string(home.audit_log()).unwrap()),
        ("the log", home.logged()),
        ("the output", home.printed()),
    ] {
        assert!(!text.contains(&signature), "{what} has the token");
    }
}

#[tokio::test]
async fn a_rotated_key_is_published_and_a_dropped_one_is_not() {
    use postern_tests::cli::CliUser;
    let server = Server::start().await;
    let admin = server.client();
    let data = server.home().data();
    let operator = CliUser::new().with("POSTERN_DATA_DIR", data.to_str().unwrap());
    let kid = async || decode_header(token(&admin, json!({})).await).unwrap().kid.unwrap();
    let published = async || -> Vec<String> {
        let keys = keys(&admin).await.keys.into_iter();
        keys.map(|key| key.common.key_id.unwrap()).collect()
    };
    let first = kid().await;
    let next = operator.ok(&["admin", "rotate-signing-key"]).await.trim().to_owned();
    assert_eq!((kid().await, published().await), (first.clone(), vec![first.clone(), next]));
    let forced = operator.ok(&["admin", "rotate-signing-key", "--force"]).await.trim().to_owned();
    assert_eq!(kid().await, forced);
    let refused = operator.fails(1, &["admin", "drop-signing-key", &forced]).await;
    assert!(refused.contains("--force"), "{refused}");
    operator.ok(&["admin", "drop-signing-key", &first]).await;
    assert_eq!(published().await, [forced]);
    // A core request is unaffected by all of this.
    admin.get(&format!("{CORE}/namespaces")).send().await.expect(200);
    merge(&admin, &path("users", "admin"), json!({})).await.expect(200);
}
