//! Objects and paths that many tests use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::Client;

/// The base path of the management API.
pub const BASE: &str = "/kubernetes/management";

/// Where our own group is served.
pub const GROUP: &str = "/kubernetes/management/apis/management.platform.sh/v1";

/// Where core/v1 is served.
pub const CORE: &str = "/kubernetes/management/api/v1";

/// A path below the base path.
#[must_use]
pub fn based(path: &str) -> String {
    format!("{BASE}{path}")
}

/// The collection of shared secrets in a namespace.
#[must_use]
pub fn secrets(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/sharedsecrets")
}

/// A collection of our own group that has no namespace.
#[must_use]
pub fn collection(resource: &str) -> String {
    format!("{GROUP}/{resource}")
}

/// Creates an object in a collection, which has to succeed, and returns it.
pub async fn create(client: &Client, collection: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    let metadata = object["metadata"].take();
    object["metadata"] = if metadata.is_null() { json!({}) } else { metadata };
    object["metadata"]["name"] = name.into();
    client.post(collection).json(&object).send().await.expect(201)
}

/// Creates a cluster-scoped object, which has to succeed, and returns it.
pub async fn make(client: &Client, resource: &str, name: &str, spec: Value) -> Value {
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    client.post(&collection(resource)).json(&object).send().await.expect(201)
}

/// Creates a core Secret with a kubeconfig under the key `config`, which has to succeed.
pub async fn make_kubeconfig(client: &Client, namespace: &str, name: &str, kubeconfig: &str) {
    let data = json!({ "config": STANDARD.encode(kubeconfig) });
    let object = json!({ "metadata": { "name": name }, "data": data });
    let secrets = format!("{CORE}/namespaces/{namespace}/secrets");
    client.post(&secrets).json(&object).send().await.expect(201);
}

/// An endpoint token, which there has to be.
pub async fn endpoint_token(client: &Client, spec: Value) -> String {
    endpoint_token_if_any(client, spec).await.expect("a token is made")
}

/// An endpoint token; `None` where it would reach no cluster.
pub async fn endpoint_token_if_any(client: &Client, spec: Value) -> Option<String> {
    let tokens = collection("directclusterendpointtokens");
    let made = client.post(&tokens).json(&json!({ "spec": spec })).send().await;
    if made.status == 422 {
        return None;
    }
    Some(made.expect(201)["status"]["token"].as_str().expect("a token").to_owned())
}

/// One shared secret's path in the namespace `platform`.
#[must_use]
pub fn secret_path(name: &str) -> String {
    format!("{}/{name}", secrets("platform"))
}

/// A shared secret with one value.
#[must_use]
pub fn secret(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "management.platform.sh/v1",
        "kind": "SharedSecret",
        "metadata": { "name": name },
        "spec": { "data": { "value": STANDARD.encode(value) } },
    })
}

/// The first value of a shared secret, decoded.
#[must_use]
pub fn value_of(secret: &Value) -> String {
    let text = secret["spec"]["data"]["value"].as_str().expect("the secret has a value");
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

/// `metadata.name`.
#[must_use]
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("the object has a name")
}

/// `metadata.resourceVersion`, as the number that it is. For clients it is opaque; the tests
/// use its order.
#[must_use]
pub fn version_of(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.unwrap_or_else(|| panic!("no resourceVersion in {object}")).parse().unwrap()
}
