//! A start with much to load: until the policy is whole, requests get 503, and never an answer that
//! was decided from a part of it (kube-apiserver's k/k#121635).

use futures_util::StreamExt as _;
use futures_util::stream;
use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{allow, binding, rbac, rule_on, user};
use postern_tests::{Kubeconfig, Server, Setup, wait};
use serde_json::json;

/// How many bindings are loaded, unless the environment names another number.
const BINDINGS: usize = 3000;

#[tokio::test]
async fn heavy_no_request_is_decided_before_the_policy_is_whole() {
    let server = Server::start().await;
    let admin = server.client();
    make_bindings(&server).await;
    admin.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let (may, may_not) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let rules = json!([rule_on("sharedsecrets", &["s1"], &["get"])]);
    allow(&admin, "read", Some("platform"), rules, "platform:user:ada").await;
    let home = server.home().clone();
    server.stop().await;
    let server = Setup::on(&home).start_unready();
    let mut unavailable = 0;
    let granted = wait::until("the server to decide", async || {
        let kubeconfig = Kubeconfig::read(&home.kubeconfig()).ok()?;
        let client = Client::new(&kubeconfig);
        let reply = client.with_token(may.token()).get(&secret_path("s1")).try_send().await.ok()?;
        if reply.status == 200 {
            return Some(client);
        }
        assert_eq!(reply.header("retry-after"), Some("1"), "{}", reply.text());
        reply.expect(503);
        unavailable += 1;
        // The same for a user without the permission.
        let refused = client.with_token(may_not.token()).get(&secret_path("s1")).try_send().await;
        refused.is_ok_and(|reply| [503, 404].contains(&reply.status)).then_some(())?;
        client.get("/livez").try_send().await.ok()?.expect_text(200);
        None
    })
    .await;
    assert!(unavailable > 0, "requests were refused while it started");
    granted.get("/readyz").send().await.expect_text(200);
    granted.with_token(may_not.token()).get(&secret_path("s1")).send().await.expect(404);
    server.stop().await;
}

async fn make_bindings(server: &Server) {
    let count = std::env::var("POSTERN_TEST_BINDINGS").ok();
    let count = count.map_or(BINDINGS, |text| text.parse().unwrap());
    let client = Client::http2(server.kubeconfig());
    let connection = client.connect().await.unwrap();
    let made = (0..count).map(|number| {
        let (client, mut connection) = (&client, connection.shared());
        async move {
            let name = format!("many-{number}");
            let body = binding(&name, None, "platform-viewer", &format!("group-{number}"));
            let request = client.post(&rbac(None, "rolebinding")).json(&body);
            request.try_send_on(&mut connection).await.unwrap().expect(201);
        }
    });
    stream::iter(made).buffer_unordered(32).collect::<Vec<()>>().await;
}
