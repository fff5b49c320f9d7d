//! References to kubeconfigs: a kubeconfig that exists can be used
//! (`docs/reference/clusters.md#kubeconfigs`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::Server;
use postern_tests::objects::{create, make};
use postern_tests::rights::{allow, merge, path, rule, user};
use serde_json::{Value, json};

use crate::projects::scene::{core_secrets, instances, two_projects};

/// A kubeconfig with this user, in base64.
fn kubeconfig(user: &Value) -> String {
    STANDARD.encode(
        json!({
            "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": { "server": "https://k.example:6443" } }],
            "users": [{ "name": "u", "user": user }],
        })
        .to_string(),
    )
}

fn config(key: &str) -> Value {
    json!({ "spec": { "config":
        { "secretName": "kc", "secretNamespace": "p-a", "key": key } } })
}

#[tokio::test]
async fn a_reference_to_a_kubeconfig_that_cannot_be_used_is_invalid_and_says_why() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    let exec = json!({ "token": "sesame", "exec": { "command": "sesame" } });
    let data = json!({ "data": {
        "good": kubeconfig(&json!({ "token": "sesame" })),
        "exec": kubeconfig(&exec),
        "file": kubeconfig(&json!({ "client-key": "/sesame" })),
        "junk": STANDARD.encode("sesame"),
    } });
    create(&admin, &core_secrets("p-a"), "kc", data).await;
    for at in [format!("{}/v", instances("a")), path("clusters", "c1")] {
        for (key, why) in [
            ("exec", "user.exec is refused"),
            ("file", "user.client-key is refused"),
            ("junk", "it is not a kubeconfig"),
            ("none", "no key \\\"none\\\""),
        ] {
            let reply = merge(&admin, &at, config(key)).await;
            assert_eq!(reply.status, 422, "{}", reply.text());
            assert!(reply.text().contains(why), "{why}: {}", reply.text());
            assert!(reply.text().contains("spec.config"), "{}", reply.text());
            assert!(!reply.text().contains("sesame"), "{}", reply.text());
        }
        merge(&admin, &at, config("good")).await.expect(200);
    }
    // The Secret may change later, and so may the objects that refer to it.
    let bad = json!({ "data": { "good": kubeconfig(&exec) } });
    merge(&admin, &format!("{}/kc", core_secrets("p-a")), bad).await.expect(200);
    let at = format!("{}/v", instances("a"));
    merge(&admin, &at, json!({ "spec": { "description": "new" } })).await.expect(200);
    // A kubeconfig Secret that does not exist yet may be created later.
    let later =
        json!({ "spec": { "config": { "secretName": "later", "secretNamespace": "p-a" } } });
    merge(&admin, &at, later).await.expect(200);
}

#[tokio::test]
async fn who_may_not_read_the_secret_learns_nothing_of_it() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    let ada = user(&admin, "ada").await;
    allow(&admin, "all", None, json!([rule(&["*"], &["*"])]), "platform:user:ada").await;
    create(&admin, &core_secrets("p-a"), "kc", json!({ "data": { "config": "eA==" } })).await;
    let at = format!("{}/v", instances("a"));
    for key in ["config", "none"] {
        let reply = merge(&ada, &at, config(key)).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
    let spec = config("config")["spec"].clone();
    let at = postern_tests::objects::collection("clusters");
    let cluster = json!({ "metadata": { "name": "c3" }, "spec": spec });
    assert_eq!(ada.post(&at).json(&cluster).send().await.status, 403);
    make(&admin, "clusters", "c4", json!({})).await;
}
