//! Watchers and what they create themselves: their own rights change with it, and their watch goes on.

use postern_tests::Server;
use postern_tests::objects::{secret_path, secrets};
use postern_tests::rights::{allow, rule, set, user};
use serde_json::json;

use crate::scene::{code, make_secret, make_shared, share, to_user, visible, watch};

#[tokio::test]
async fn own_objects_come_and_go_in_an_open_watch() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let makers = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:*").await;
    let mut open = watch(&ada).await;
    let mut of_bob = watch(&bob).await;
    for name in ["first", "second"] {
        make_secret(&ada, name).await;
        assert_eq!(open.next().await.unwrap().summary(), format!("ADDED {name}"));
        set(&ada, &secret_path(name), json!({ "displayName": "changed" })).await;
        assert_eq!(open.next().await.unwrap().summary(), format!("MODIFIED {name}"));
        ada.delete(&secret_path(name)).send().await.expect(200);
        assert_eq!(open.next().await.unwrap().summary(), format!("DELETED {name}"));
    }
    make_secret(&bob, "third").await;
    assert_eq!(of_bob.next().await.unwrap().summary(), "ADDED third", "and nothing of ada's");
}

#[tokio::test]
async fn a_watch_may_be_resumed_while_nothing_has_changed_for_its_caller() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let list = ada.get(&secrets("platform")).send().await.expect(200);
    let since =
        format!("&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().unwrap());
    make_secret(&admin, "of-admin").await;
    set(&admin, &secret_path("s1"), json!({ "displayName": "changed" })).await;
    let mut resumed = ada.watch(&secrets("platform"), &since).await;
    assert_eq!(resumed.next().await.unwrap().summary(), "MODIFIED s1");
    // Meanwhile they were given something: what they listed then is not all that they may read now.
    make_shared(&admin, "s2", json!([to_user("ada", &["get"])])).await;
    let mut too_old = ada.watch(&secrets("platform"), &since).await;
    assert_eq!(crate::scene::end_of(&mut too_old).await, 410);
    assert_eq!(visible(&ada).await, ["s1", "s2"]);
}

#[tokio::test]
async fn a_share_and_its_object_appear_together() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let mut object = postern_tests::objects::secret("shared", "one");
    object["spec"]["access"] = json!([to_user("ada", &["get", "update"])]);
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
    assert_eq!(code(&ada, "shared").await, 200, "from the moment of the answer");
}

#[tokio::test]
async fn a_continue_token_shows_nothing_that_has_been_taken_back() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for name in ["a", "b", "c"] {
        make_shared(&admin, name, json!([to_user("ada", &["get"])])).await;
    }
    let page = ada.get(&format!("{}?limit=1", secrets("platform"))).send().await.expect(200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    share(&admin, "b", json!([])).await;
    let next = format!("{}?limit=5&continue={token}", secrets("platform"));
    let reply = ada.get(&next).send().await;
    assert!(!reply.text().contains("\"b\""), "{}", reply.text());
}
