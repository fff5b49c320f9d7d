//! The setup of the tests here: secrets, and permissions on them.

use postern_tests::http::{Client, Response};
use postern_tests::objects::{make, name_of, secret, secret_path, secrets};
use postern_tests::rights::{path, set};
use postern_tests::watching::{Event, Watch};
use serde_json::{Value, json};

/// Creates a secret in the namespace `platform`, which has to succeed, and returns it.
pub(crate) async fn make_secret(client: &Client, name: &str) -> Value {
    client.post(&secrets("platform")).json(&secret(name, "one")).send().await.expect(201)
}

/// An access rule for one user.
pub(crate) fn to_user(name: &str, verbs: &[&str]) -> Value {
    json!({ "verbs": verbs, "users": [name] })
}

/// An access rule for one team.
pub(crate) fn to_team(name: &str, verbs: &[&str]) -> Value {
    json!({ "verbs": verbs, "teams": [name] })
}

/// Replaces the access rules of a secret, which has to succeed.
pub(crate) async fn share(client: &Client, name: &str, access: Value) {
    set(client, &secret_path(name), json!({ "access": access })).await;
}

/// Creates a secret that is shared.
pub(crate) async fn make_shared(client: &Client, name: &str, access: Value) {
    make_secret(client, name).await;
    share(client, name, access).await;
}

/// The names in a list.
pub(crate) fn names(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| name_of(item).to_owned()).collect()
}

/// The names of the secrets that a caller sees in `platform`.
pub(crate) async fn visible(client: &Client) -> Vec<String> {
    names(&client.get(&secrets("platform")).send().await.expect(200))
}

/// The code of a GET of a secret.
pub(crate) async fn code(client: &Client, name: &str) -> u16 {
    client.get(&secret_path(name)).send().await.status
}

/// Creates a project with members, and returns the collection of its shared secrets.
pub(crate) async fn make_project(admin: &Client, name: &str, members: Value) -> String {
    make(admin, "projects", name, json!({})).await;
    set(admin, &path("projects", name), json!({ "members": members })).await;
    secrets(&format!("p-{name}"))
}

/// Opens a watch of the secrets in `platform`.
pub(crate) async fn watch(client: &Client) -> Watch {
    client.watch(&secrets("platform"), "").await
}

/// Reads a watch to its end, and returns the code of the ERROR event, which has to be the last.
pub(crate) async fn end_of(watch: &mut Watch) -> u64 {
    let last: Event = watch.rest().await.pop().expect("an event before the end");
    assert_eq!(last.kind, "ERROR", "{last:?}");
    last.object["code"].as_u64().unwrap()
}

/// Checks that an answer is 403 and says all of these words.
pub(crate) fn assert_refused(reply: &Response, words: &[&str]) {
    assert_eq!(reply.status, 403, "{}", reply.text());
    let status = reply.json();
    let message = status["message"].as_str().expect("a Status has a message");
    for word in words {
        assert!(message.contains(word), "{word} is not in {message}");
    }
}
