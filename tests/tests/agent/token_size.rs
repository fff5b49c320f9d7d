//! The size of endpoint tokens: the groups in them, and the 422 for a token that is too long.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{collection, endpoint_token, make};
use postern_tests::rights::{merge, path, set, user, with_key};
use serde_json::{Value, json};

/// The groups in an endpoint token of a caller.
async fn groups_in_token(client: &Client) -> Vec<String> {
    let token = endpoint_token(client, json!({})).await;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let groups = payload["groups"].as_array().unwrap().iter();
    let groups = groups.map(|group| group.as_str().unwrap().to_owned());
    groups
        .filter(|group| !group.starts_with("system:") && !group.starts_with("platform:"))
        .collect()
}

/// The message of the 422 for an endpoint token that would be too long.
async fn refusal(client: &Client) -> String {
    let tokens = collection("directclusterendpointtokens");
    let reply = client.post(&tokens).json(&json!({ "spec": {} })).send().await.expect(422);
    reply["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_connector_says_which_of_its_groups_endpoint_tokens_have() {
    let server = Server::start().await;
    let (admin, ada) = (server.client(), user(&server.client(), "ada").await);
    let groups = json!({ "groups": ["corp:ops", "corp:dev-a", "corp:all", "other:all", "plain"] });
    set(&admin, &path("users", "ada"), groups).await;
    let all = ["corp:ops", "corp:dev-a", "corp:all", "other:all", "plain"];
    let spec = json!({
        "issuer": "https://id.test", "clientId": "postern", "allow": { "everyone": true },
    });
    make(&admin, "connectors", "corp", spec).await;
    assert_eq!(groups_in_token(&ada).await, all);
    for (list, expected) in [
        (json!(["ops", "dev-*"]), vec!["corp:ops", "corp:dev-a", "other:all", "plain"]),
        (json!([]), vec!["other:all", "plain"]),
        (json!(["*"]), all.to_vec()),
        (Value::Null, all.to_vec()),
    ] {
        set(&admin, &path("connectors", "corp"), json!({ "clusterGroups": list })).await;
        assert_eq!(groups_in_token(&ada).await, expected, "{list}");
    }
    let body = json!({ "spec": { "clusterGroups": ["a*b"] } });
    let reply = merge(&admin, &path("connectors", "corp"), body).await.expect(422);
    assert!(reply["message"].as_str().unwrap().contains("spec.clusterGroups[0]"), "{reply}");
}

#[tokio::test]
async fn the_refusal_of_a_long_token_names_the_longest_list_and_what_to_do() {
    let server = Server::start().await;
    let (admin, ada) = (server.client(), user(&server.client(), "ada").await);
    let groups: Vec<String> = (0..125).map(|number| format!("{number:0>256}")).collect();
    set(&admin, &path("users", "ada"), json!({ "groups": groups })).await;
    let message = refusal(&ada).await;
    for part in [
        "spec.scope",
        "longer than 8192 bytes",
        "the groups of the caller (12",
        "take 3",
        "spec.clusterGroups of the Connector",
        "spec.groups of the User",
        "postern connect --gateway",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    set(&admin, &path("users", "ada"), json!({ "groups": [] })).await;

    let rules: Vec<Value> = (0..200)
        .map(|number| json!({ "cluster": format!("{number:0>60}"), "verbs": ["get"] }))
        .collect();
    let spec = json!({ "user": "ada", "scope": { "rules": rules } });
    let scoped = with_key(&admin, "scoped", spec).await;
    make(&admin, "clusters", &format!("{:0>60}", 1), json!({})).await;
    let access = json!([{ "verbs": ["use"], "users": ["ada"] }]);
    set(&admin, &path("clusters", &format!("{:0>60}", 1)), json!({ "access": access })).await;
    let message = refusal(&scoped).await;
    // A rule is an entry, and so is its verb.
    assert!(message.contains("and of the token (400) take "), "{message}");
    assert!(message.contains("fewer entries in its scope"), "{message}");

    for number in 0..150 {
        make(&admin, "teams", &format!("team-{number}"), json!({ "users": ["ada"] })).await;
    }
    let message = refusal(&ada).await;
    assert!(message.contains("the teams of the caller (150) take "), "{message}");
}
