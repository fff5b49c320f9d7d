//! The client as a controller creates it: from the kubeconfig, with the kind from discovery.

use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use postern_tests::{Home, Relay};
use serde_json::{Value, json};

/// A client from the kubeconfig.
pub(crate) async fn client(home: &Home) -> Client {
    Client::try_from(config(home).await).expect("the client can be made")
}

/// A client with another access key.
pub(crate) async fn client_of(home: &Home, token: &str) -> Client {
    let mut config = config(home).await;
    config.auth_info.token = Some(token.to_owned().into());
    Client::try_from(config).expect("the client can be made")
}

/// A client that connects through a relay, which can be disconnected.
pub(crate) async fn client_over(home: &Home, relay: &Relay) -> Client {
    let mut config = config(home).await;
    let url = format!("https://127.0.0.1:{}/kubernetes/management", relay.port());
    config.cluster_url = url.parse().unwrap();
    Client::try_from(config).expect("the client can be made")
}

async fn config(home: &Home) -> Config {
    let file = Kubeconfig::read_from(home.kubeconfig()).expect("kube-rs reads the kubeconfig");
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(file, &options).await.expect("kube-rs uses the kubeconfig")
}

/// The resource of `SharedSecret` from discovery.
pub(crate) async fn shared_secret(client: &Client) -> ApiResource {
    let kind = GroupVersionKind::gvk("management.platform.sh", "v1", "SharedSecret");
    let (resource, capabilities) =
        kube::discovery::pinned_kind(client, &kind).await.expect("the kind is discovered");
    assert_eq!(capabilities.scope, kube::discovery::Scope::Namespaced);
    resource
}

/// The API of shared secrets in the kubeconfig's namespace.
pub(crate) async fn secrets(client: &Client) -> Api<DynamicObject> {
    let resource = shared_secret(client).await;
    assert_eq!(client.default_namespace(), "platform");
    Api::default_namespaced_with(client.clone(), &resource)
}

/// A shared secret with a display name.
pub(crate) fn object(resource: &ApiResource, name: &str, display_name: &str) -> DynamicObject {
    let spec = json!({"spec": {"displayName": display_name, "data": {"value": "djE="}}});
    DynamicObject::new(name, resource).data(spec)
}

/// `spec.displayName`.
pub(crate) fn display_name(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/displayName").and_then(Value::as_str).unwrap_or_default()
}
