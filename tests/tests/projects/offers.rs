//! Offers of project secrets to connected clusters: what they take, and what the agent gets over one request.

use std::time::{Duration, Instant};

use postern_tests::cli::CliUser;
use postern_tests::http::{Client, Lines};
use postern_tests::objects::{GROUP, make};
use postern_tests::rights::{allow, merge, path, rule, rule_on, user};
use postern_tests::{Server, wait};
use serde_json::{Value, json};

const SECRETS: &str =
    "/kubernetes/management/apis/management.platform.sh/v1/namespaces/p-p/projectsecrets";
const AUDIT_ID: &str = "5f0c1f6e-2b0a-4a56-9c39-000000000083";

fn of_db(rest: &str) -> String {
    format!("{SECRETS}/db{rest}")
}

fn subscriptions_of(cluster: &str) -> String {
    format!("{}/secretsubscriptions", path("clusters", cluster))
}

/// A server with the cluster `east`, the project `p` with the space `web` on it, and the secret `db`. Returns the client of
/// the agent.
async fn scene() -> (Server, Client) {
    let server = Server::start().await;
    let admin = server.client();
    let cli = CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
    let key = cli.ok(&["create", "cluster", "east"]).await.trim().to_owned();
    make(&admin, "projects", "p", json!({})).await;
    let space = json!({ "metadata": { "name": "web" },
        "spec": { "clusterRef": { "cluster": "east", "namespace": "web-ns" } } });
    admin
        .post(&format!("{GROUP}/namespaces/p-p/spaceinstances"))
        .json(&space)
        .send()
        .await
        .expect(201);
    let secret = json!({ "metadata": { "name": "db" }, "spec": { "data": { "k": "b25l" } } });
    admin.post(SECRETS).json(&secret).send().await.expect(201);
    let agent = admin.with_token(&key);
    (server, agent)
}

fn wishes(version: &str) -> Value {
    let wish = |name: &str, secret: &str| {
        json!({ "namespace": "web-ns", "namespaceUid": "n1", "name": name, "project": "p",
            "projectSecret": secret, "version": version })
    };
    json!({
        "apiVersion": "management.platform.sh/v1", "kind": "SecretSubscription",
        "spec": { "secrets": [wish("db", "db"), wish("other", "missing")] },
    })
}

/// Applies the secret `db` as the manager `one`.
async fn apply(client: &Client, object: &Value) -> Value {
    let request = client.request("PATCH", &of_db("?fieldManager=one"));
    let kind = "application/apply-patch+yaml";
    request.body(kind, object.to_string()).send().await.expect(200)
}

/// The next event, without bookmarks.
async fn next(lines: &mut Lines) -> Value {
    loop {
        let line = lines.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["type"] != "BOOKMARK" {
            return event;
        }
    }
}

#[tokio::test]
async fn an_agent_gets_what_is_offered_over_one_request() {
    let (server, agent) = scene().await;
    let admin = server.client();
    let to_web = json!({ "spec": { "offer": { "spaces": ["web"], "onEnd": "Delete" } } });
    merge(&admin, &of_db(""), to_web).await.expect(200);
    let subscriptions = subscriptions_of("east");
    let request = agent.post(&subscriptions).header("audit-id", AUDIT_ID).json(&wishes(""));
    let mut lines = request.stream().await;
    let (first, second) = (next(&mut lines).await, next(&mut lines).await);
    assert_eq!(first["type"], "MODIFIED");
    assert_eq!(first["object"]["kind"], "SecretDelivery");
    assert_eq!(first["object"]["spec"]["data"], json!({ "k": "b25l" }));
    assert_eq!(first["object"]["spec"]["onEnd"], "Delete");
    assert_eq!(second["object"]["spec"]["reason"], "NotOffered");

    // A rotation arrives within a second.
    let begun = Instant::now();
    merge(&admin, &of_db(""), json!({ "spec": { "data": { "k": "dHdv" } } })).await.expect(200);
    let rotated = next(&mut lines).await;
    assert_eq!(rotated["object"]["spec"]["data"], json!({ "k": "dHdv" }));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    let used = admin.get(&of_db("/usage")).send().await.expect(200);
    assert_eq!(used["uses"][0]["cluster"], "east", "{used}");
    assert_eq!(used["uses"][0]["version"], rotated["object"]["spec"]["version"]);
    assert_eq!(used["partial"], false);
    let metrics = admin.get("/metrics").send().await.expect_text(200);
    for line in [
        "postern_secret_subscriptions 1",
        "postern_subscribed_secrets 1",
        "postern_secret_deliveries_total{result=\"data\"} 2",
        "postern_secret_deliveries_total{result=\"not_offered\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }

    // The key is disabled: the subscription ends, and no later rotation comes.
    let keys = admin.get(&format!("{GROUP}/ownedaccesskeys")).send().await.expect(200);
    let key = keys["items"].as_array().unwrap().iter();
    let key = key.clone().find(|key| key["spec"]["subject"] == "agent:east").unwrap();
    let key = path("ownedaccesskeys", key["metadata"]["name"].as_str().unwrap());
    merge(&admin, &key, json!({ "spec": { "disabled": true } })).await.expect(200);
    merge(&admin, &of_db(""), json!({ "spec": { "data": { "k": "dHJl" } } })).await.expect(200);
    let end = next(&mut lines).await;
    assert_eq!(end["type"], "ERROR", "{end}");
    drop(lines);
    let said: Value = wait::until("the last record of the subscription", async || {
        let records = server.home().records();
        records
            .into_iter()
            .find(|record| record["auditID"] == AUDIT_ID && record["stage"] == "ResponseComplete")
    })
    .await;
    assert_eq!(said["annotations"]["platform.sh/values"], "true", "{said}");
    assert_eq!(said["annotations"]["platform.sh/objects"], "p-p/db");
    assert_eq!(said["objectRef"]["subresource"], "secretsubscriptions");
    assert!(!said.to_string().contains("b25l"));
    let used = admin.get(&of_db("/usage")).send().await.expect(200);
    assert_eq!(used["uses"], json!([]));
}

#[tokio::test]
async fn a_subscription_takes_the_agent_s_own_key_and_valid_wishes() {
    let (server, agent) = scene().await;
    let admin = server.client();
    let subscriptions = subscriptions_of("east");
    let refused = admin.post(&subscriptions).json(&wishes("")).send().await;
    assert!(refused.expect(403)["message"].as_str().unwrap().contains("agent:east"));
    make(&admin, "clusters", "west", json!({})).await;
    agent.post(&subscriptions_of("west")).json(&wishes("")).send().await.expect(403);
    agent.get(&subscriptions).send().await.expect(405);
    let dry = format!("{subscriptions}?dryRun=All");
    agent.post(&dry).json(&wishes("")).send().await.expect(400);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = wishes("");
        change(&mut body["spec"]["secrets"]);
        body
    };
    let twice = changed(&|secrets| secrets[1]["name"] = "db".into());
    let unnamed = changed(&|secrets| secrets[0]["name"] = json!(""));
    let many = changed(&|secrets| {
        let wish = secrets[0].clone();
        let named = |number: usize| {
            let mut wish = wish.clone();
            wish["name"] = format!("s{number}").into();
            wish
        };
        *secrets = (0..1001).map(named).collect();
    });
    for (body, part) in [
        (twice, "spec.secrets[1].name: Duplicate value"),
        (unnamed, "spec.secrets[0].name: Required value"),
        (many, "at most 1000 Secrets of one instance"),
    ] {
        let error = agent.post(&subscriptions).json(&body).send().await.expect(422);
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_offer_takes_the_permissions_of_a_grant() {
    let (server, _agent) = scene().await;
    let admin = server.client();
    let offer = |offer: Value| json!({ "spec": { "offer": offer } });
    let to_web = || offer(json!({ "spaces": ["web"] }));
    let message = async |client: &Client, changes: Value, code: u16| {
        let error = merge(client, &of_db(""), changes).await.expect(code);
        error["message"].as_str().unwrap_or_default().to_owned()
    };
    // bob may change the secret, and not read it; eve may read it, and see no instance.
    let (bob, eve) = (user(&admin, "bob").await, user(&admin, "eve").await);
    let on_db = |verbs: &[&str]| rule_on("projectsecrets", &["db"], verbs);
    let spaces = rule(&["spaceinstances"], &["get"]);
    let of_bob = json!([on_db(&["patch", "update"]), spaces]);
    allow(&admin, "bob", Some("p-p"), of_bob, "platform:user:bob").await;
    let of_eve = json!([on_db(&["get", "patch", "update"])]);
    allow(&admin, "eve", Some("p-p"), of_eve, "platform:user:eve").await;
    let refused = message(&bob, to_web(), 403).await;
    assert!(refused.contains("requires the verbs get and update"), "{refused}");
    let confirm = json!({ "metadata": { "annotations": { "platform.sh/offer-confirmed": "1" } } });
    message(&bob, confirm, 403).await;
    let unseen = message(&eve, to_web(), 403).await;
    let missing = message(&eve, offer(json!({ "spaces": ["gone"] })), 403).await;
    assert_eq!(unseen.replace("web", "gone"), missing, "one answer");
    let found = message(&admin, offer(json!({ "spaces": ["gone"] })), 422).await;
    assert!(found.contains("spec.offer.spaces[0]: Not found: \"gone\""), "{found}");
    for (bad, part) in [
        (json!({ "spaces": ["*"] }), "must be the name of an instance"),
        (json!({ "space": ["web"] }), "spec.offer.space"),
        (json!({ "onEnd": "Purge" }), "spec.offer.onEnd: Unsupported value"),
    ] {
        let found = message(&admin, offer(bad), 422).await;
        assert!(found.contains(part), "{found}");
    }
    let misspelt = json!({ "spec": { "offers": { "spaces": ["web"] } } });
    assert!(message(&admin, misspelt, 422).await.contains("spec.offer"));
    let null = json!({ "metadata": { "name": "n" }, "spec": { "offer": null } });
    admin.post(SECRETS).json(&null).send().await.expect(422);

    // The record is the server's: a client changes it through no part of the object.
    let offered = merge(&admin, &of_db(""), to_web()).await.expect(200);
    let bound = offered["status"]["offers"].clone();
    assert_eq!(bound[0]["location"]["namespace"], "web-ns", "{offered}");
    let forged = json!({ "status": { "offers": [] } });
    let written = merge(&admin, &of_db("/status"), forged).await.expect(200);
    assert_eq!(written["status"]["offers"], bound);
    // A null in a merge patch withdraws it.
    let withdrawn =
        merge(&admin, &of_db(""), json!({ "spec": { "offer": null } })).await.expect(200);
    assert!(withdrawn["spec"].get("offer").is_none());
    assert!(withdrawn["status"].get("offers").is_none(), "{withdrawn}");

    // By server-side apply, each manager has its own names.
    let applied = json!({ "apiVersion": "management.platform.sh/v1", "kind": "ProjectSecret",
        "metadata": { "name": "db" }, "spec": { "offer": { "spaces": ["web"] } } });
    let applied = apply(&admin, &applied).await;
    assert_eq!(applied["spec"]["offer"]["spaces"], json!(["web"]));
    assert_eq!(applied["status"]["offers"], bound);
    let empty = json!({ "apiVersion": "management.platform.sh/v1", "kind": "ProjectSecret",
        "metadata": { "name": "db" } });
    let left = apply(&admin, &empty).await;
    assert!(left["status"].get("offers").is_none(), "{left}");
}
