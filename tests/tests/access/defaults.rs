//! The default roles, at a restart: removed rules come back, and removed users do not.

use postern_tests::http::Client;
use postern_tests::objects::{make, secret_path};
use postern_tests::rights::{allow, merge, path, rbac, rule, user, with_key};
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use serde_json::{Value, json};

use crate::access::scene::{code, make_shared, to_user, visible};

async fn rules(admin: &Client, name: &str) -> Value {
    let one = format!("{}/{name}", rbac(None, "role"));
    admin.get(&one).send().await.expect(200)["rules"].clone()
}

async fn restart(home: &Home, server: Server) -> Server {
    server.stop().await;
    Setup::on(home).start().await
}

#[tokio::test]
async fn default_roles_are_put_back_unless_somebody_keeps_them() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let before = rules(&admin, "platform-viewer").await;
    let roles = rbac(None, "role");
    let none = json!({ "rules": [] });
    for name in ["platform-viewer", "platform-user"] {
        merge(&admin, &format!("{roles}/{name}"), none.clone()).await.expect(200);
    }
    admin.delete(&format!("{roles}/platform-admin")).send().await.expect(200);
    admin.delete(&format!("{}/platform-user", rbac(None, "rolebinding"))).send().await.expect(200);
    let keep = json!({ "metadata": { "annotations": {
        "rbac.authorization.kubernetes.io/autoupdate": "false" } } });
    merge(&admin, &format!("{roles}/platform-user"), keep).await.expect(200);
    let added = json!([rule(&["clusters"], &["use"])]);
    let project = format!("{roles}/platform-project-viewer");
    merge(&admin, &project, json!({ "rules": added })).await.expect(200);
    let server = restart(&home, server).await;
    let admin = server.client();
    assert_eq!(rules(&admin, "platform-viewer").await, before);
    assert_eq!(rules(&admin, "platform-user").await, json!([]), "kept as it is");
    assert!(!rules(&admin, "platform-admin").await.as_array().unwrap().is_empty());
    let kept = rules(&admin, "platform-project-viewer").await;
    assert!(kept.as_array().unwrap().contains(&added[0]), "what was added stays: {kept}");
    assert!(kept.as_array().unwrap().len() > 1, "what was taken away is back: {kept}");
    let bound = format!("{}/platform-user", rbac(None, "rolebinding"));
    admin.get(&bound).send().await.expect(200);
}

#[tokio::test]
async fn shares_and_refusals_are_the_same_after_a_restart() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    make(&admin, "teams", "red", json!({ "users": ["bob"] })).await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    make_shared(&admin, "s2", json!([crate::access::scene::to_team("red", &["get"])])).await;
    let makes = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makes, "platform:user:*").await;
    let spec = json!({ "user": "ada", "scope": { "rules": [{ "verbs": ["create"] }] } });
    let scoped = with_key(&admin, "scoped", spec).await;
    let tokens = [&ada, &bob, &scoped].map(|client| client.token().to_owned());
    let server = restart(&home, server).await;
    let [ada, bob, scoped] = tokens.map(|token| server.client().with_token(&token));
    assert_eq!(visible(&ada).await, ["s1"]);
    assert_eq!(visible(&bob).await, ["s2"]);
    for (client, codes) in [(&ada, [200, 404]), (&bob, [404, 200]), (&scoped, [404, 404])] {
        assert_eq!([code(client, "s1").await, code(client, "s2").await], codes);
    }
}

#[tokio::test]
async fn cve_2019_11202_a_deleted_admin_is_not_back_after_a_restart() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    make(&admin, "users", "root", json!({ "groups": ["system:masters"] })).await;
    let root = with_key(&admin, "root-key", json!({ "user": "root" })).await;
    root.delete(&path("users", "admin")).send().await.expect(200);
    let (root, old) = (root.token().to_owned(), admin.token().to_owned());
    let server = restart(&home, server).await;
    let root = server.client().with_token(&root);
    let read = server.client().with_token(&old).get(&path("users", "admin")).send().await;
    assert_eq!(read.status, 401, "{}", read.text());
    let read = root.get(&path("users", "admin")).send().await;
    assert_eq!(read.status, 404, "{}", read.text());
    // The key is no longer valid without its owner. It is collected in the background, before the
    // restart or after it.
    let keys = postern_tests::objects::collection("ownedaccesskeys");
    postern_tests::wait::until("the key to be collected", async || {
        let list = root.get(&keys).send().await.expect(200);
        (crate::access::scene::names(&list) == ["root-key"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn kubernetes_121635_nothing_is_decided_by_a_policy_that_is_still_filling() {
    const SECRETS: usize = 60;
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all: Vec<String> = (0..SECRETS).map(|number| format!("s{number:02}")).collect();
    for name in &all {
        make_shared(&admin, name, json!([to_user("ada", &["get"])])).await;
    }
    crate::access::scene::make_secret(&admin, "hidden").await;
    let token = ada.token().to_owned();
    server.stop().await;
    let _server = Setup::on(&home).start_unready();
    let last = all.last().unwrap();
    // From its first answer on it is right, or says that it is not ready.
    let ada = wait::until("an answer that is a decision", async || {
        let kubeconfig = Kubeconfig::read(&home.kubeconfig()).ok()?;
        let ada = Client::new(&kubeconfig).with_token(&token);
        let reply = ada.get(&secret_path(last)).try_send().await.ok()?;
        let again = reply.status == 503 && reply.header("retry-after").is_some();
        assert!(reply.status == 200 || again, "{}: {}", reply.status, reply.text());
        (reply.status == 200).then_some(ada)
    })
    .await;
    assert_eq!(visible(&ada).await, all);
    assert_eq!(code(&ada, "hidden").await, 404);
}
