//! A server that cannot reach the store: it gives nothing from memory, and goes on when the store answers again.

use postern_tests::etcd::Etcd;
use postern_tests::links::{From, Link, Links};
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{allow, path, rule, set, user};
use postern_tests::{Setup, wait};
use serde_json::json;

use super::{copy_of, init, on};

/// The party of the server that is cut off.
const SECOND: &str = "second";

#[tokio::test]
async fn a_server_that_is_cut_off_gives_nothing_to_a_revoked_key() {
    let (etcd, links) = (Etcd::start().await, Links::default());
    let port = links.proxy(From::Party(SECOND.to_owned()), "etcd", etcd.port()).await;
    let store = etcd.store("/cut-off");
    let home = init(&store).await;
    let other = on(Setup::on(&copy_of(&home)), &format!("etcd://127.0.0.1:{port}/cut-off"));
    let other = other.argument("--store-silence").argument("3s").start().await;
    let first = on(Setup::on(&home), &store).start().await;
    let admin = first.client();
    admin.post(&secrets("platform")).json(&secret("db", "canary")).send().await.expect(201);
    let ada = user(&admin, "ada").await;
    let rules = json!([rule(&["sharedsecrets"], &["get", "list", "watch"])]);
    allow(&admin, "ada", Some("platform"), rules, "platform:user:ada").await;
    let there = other.client().with_token(ada.token());
    let from_memory = format!("{}?resourceVersion=0", secret_path("db"));
    for link in [Link::Stalled, Link::Cut] {
        set(&admin, &path("users", "ada"), json!({ "disabled": false })).await;
        wait::until("the key gives access", async || {
            (there.get(&from_memory).send().await.status == 200).then_some(())
        })
        .await;
        let mut watch = there.watch(&secrets("platform"), "&resourceVersion=0").await;
        assert_eq!(watch.next().await.unwrap().kind, "ADDED");

        links.set(SECOND, "etcd", link);
        set(&admin, &path("users", "ada"), json!({ "disabled": true })).await;
        wait::until("the server gives nothing", async || {
            let response = there.get(&from_memory).send().await;
            let is_over = response.status == 503;
            assert!(is_over || response.status == 200, "{}", response.text());
            is_over.then(|| assert!(response.header("retry-after").is_some()))
        })
        .await;
        // The watch ended without an event of an object, so the client begins again.
        while let Ok(Some(event)) = watch.try_next().await {
            assert_eq!((event.kind.as_str(), &event.object["code"]), ("ERROR", &json!(503)));
        }
        let again = there.get(&format!("{}?watch=true&resourceVersion=0", secrets("platform")));
        assert_eq!(again.send().await.status, 503);
        other.client().get("/livez").send().await.expect_text(200);
        assert_ne!(other.client().get("/readyz").send().await.status, 200);

        links.open_all();
        wait::until("the key is known to be revoked", async || {
            let status = there.get(&from_memory).send().await.status;
            assert_ne!(status, 200);
            (status == 401).then_some(())
        })
        .await;
    }
}
