//! The story of the product: a secret is created, shared with a team, read by its members, hidden
//! from all other users, and taken back. It follows the tutorial, and also checks steps that the
//! tutorial does not show.

use postern_tests::cli::CliUser;
use postern_tests::documents::{run, shell_of};
use postern_tests::http::Client;
use postern_tests::objects::{make, secret, secret_path, secrets, value_of};
use postern_tests::rights::{allow, rule, set, with_key};
use postern_tests::{Kubeconfig, Server};
use serde_json::json;

use crate::access::scene::{code, end_of, make_secret, to_team, visible, watch};

#[tokio::test]
async fn the_story_in_the_tutorial_is_true() {
    let server = Server::start().await;
    let script = shell_of("docs/tutorials/share-a-secret.md", "# Share a secret", "\n## Next");
    let output = run(&server, &script).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    assert_eq!(output.out.matches("hunter2").count(), 2, "Bob reads it twice: {}", output.out);
    assert_eq!(output.err.matches("No resources found").count(), 2, "{}", output.err);
    assert!(!format!("{}{}", output.out, output.err).contains("pst_"), "no key is on the screen");
    let admin = server.client();
    assert!(visible(&admin).await.is_empty(), "the script deletes what it made");
    // The keys are in the kubeconfigs: plain HTTP works with them, too.
    let file = server.home().path().join("reader/bob.kubeconfig");
    let bob = Client::new(&Kubeconfig::read(&file).unwrap());
    assert_eq!(code(&bob, "db").await, 404);
}

/// Creates a user, and returns a client with a key of that user.
async fn user(admin: &Client, name: &str) -> Client {
    make(admin, "users", name, json!({})).await;
    with_key(admin, &format!("{name}-laptop"), json!({ "user": name })).await
}

fn postern(server: &Server, who: &Client) -> CliUser {
    let user = CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
    user.with("POSTERN_ACCESS_KEY", who.token())
}

#[tokio::test]
async fn a_secret_is_shared_with_a_team_and_taken_back() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let bob = user(&admin, "bob").await;
    let eve = user(&admin, "eve").await;
    make(&admin, "teams", "shop", json!({ "users": ["ada", "bob"] })).await;
    let db = secret_path("db");
    make_secret(&admin, "of-admin").await;
    // A caller that can have no such object gets 404 for every name.
    for name in ["of-admin", "no-such-secret"] {
        assert_eq!(code(&eve, name).await, 404);
    }
    let makers = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:*").await;
    ada.post(&secrets("platform")).json(&secret("db", "hunter2")).send().await.expect(201);
    assert_eq!(visible(&ada).await, ["db"]);
    let shared = set(&ada, &db, json!({ "access": [to_team("shop", &["get"])] })).await;
    assert_eq!(shared["spec"]["owner"], json!({ "user": "ada" }));

    // A member reads it from the command line, by kubectl, and by plain HTTP.
    assert_eq!(postern(&server, &bob).ok(&["get", "secret", "db.value"]).await, "hunter2");
    let kubectl = server.kubectl();
    let token = format!("--token={}", bob.token());
    let by_kubectl = kubectl.json(&["get", "ss", "db", &token]).await;
    assert_eq!(value_of(&by_kubectl), "hunter2");
    assert_eq!(value_of(&bob.get(&db).send().await.expect(200)), "hunter2");
    assert_eq!(bob.delete(&db).send().await.status, 403, "they may get it, and nothing else");

    // A colleague outside cannot tell it from a name that does not exist.
    let answer = async |name: &str| {
        let reply = eve.get(&secret_path(name)).send().await;
        (reply.status, reply.text().replace(name, "NAME"))
    };
    assert_eq!(answer("db").await, answer("no-such-secret").await);
    assert_eq!(answer("db").await.0, 404, "they may make secrets, so they get what kubectl needs");
    assert!(visible(&eve).await.is_empty());
    let by_kubectl = kubectl.fails(&["get", "ss", "db", &format!("--token={}", eve.token())]).await;
    assert!(by_kubectl.contains("(NotFound)"), "{by_kubectl}");
    let said = postern(&server, &eve).fails(1, &["get", "secret", "db.value"]).await;
    assert!(!said.contains("hunter2"), "{said}");

    // The share is taken back.
    let mut open = watch(&bob).await;
    let mut of_ada = watch(&ada).await;
    let mut of_eve = watch(&eve).await;
    assert_eq!(open.next().await.unwrap().summary(), "ADDED db");
    assert_eq!(of_ada.next().await.unwrap().summary(), "ADDED db");
    set(&ada, &db, json!({ "access": [] })).await;
    assert_eq!(code(&bob, "db").await, 404, "from the moment of the answer");
    assert_eq!(end_of(&mut open).await, 410);
    assert!(visible(&bob).await.is_empty());
    assert_eq!(of_ada.next().await.unwrap().summary(), "MODIFIED db", "no other user notices");
    make_secret(&eve, "of-eve").await;
    assert_eq!(of_eve.next().await.unwrap().summary(), "ADDED of-eve");
}
