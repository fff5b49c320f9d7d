//! Users, keys, roles and bindings: the objects that tests about rights set up.

use serde_json::{Value, json};

use crate::http::{Client, Response};
use crate::objects::{collection, make};

/// The group of Kubernetes' roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Where roles and bindings are served.
pub const RBAC: &str = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1";

/// Creates a user with the access key `NAME-key`, and returns a client with this key.
pub async fn user(admin: &Client, name: &str) -> Client {
    make(admin, "users", name, json!({})).await;
    with_key(admin, &format!("{name}-key"), json!({ "user": name })).await
}

/// Creates an access key, and returns a client with it.
pub async fn with_key(admin: &Client, name: &str, spec: Value) -> Client {
    let key = make(admin, "ownedaccesskeys", name, spec).await;
    admin.with_token(key["spec"]["key"].as_str().expect("the answer to the create has the key"))
}

/// A rule for kinds of our own group.
#[must_use]
pub fn rule(resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": ["management.platform.sh"], "resources": resources, "verbs": verbs })
}

/// A rule for single objects of our own group.
#[must_use]
pub fn rule_on(resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": ["management.platform.sh"], "resources": [resource],
        "resourceNames": names, "verbs": verbs })
}

/// The collection of roles, or of bindings, of a namespace or of the cluster.
#[must_use]
pub fn rbac(namespace: Option<&str>, what: &str) -> String {
    match namespace {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/{what}s"),
        None => format!("{RBAC}/cluster{what}s"),
    }
}

/// A role of this name with these rules.
#[must_use]
pub fn role(name: &str, rules: &Value) -> Value {
    json!({ "metadata": { "name": name }, "rules": rules })
}

/// A binding that gives a role to a group. The role is of the binding's namespace, or of the cluster.
#[must_use]
pub fn binding(name: &str, namespace: Option<&str>, role: &str, group: &str) -> Value {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC_GROUP, "kind": kind, "name": role },
        "subjects": [{ "apiGroup": RBAC_GROUP, "kind": "Group", "name": group }],
    })
}

/// Grants rules to a group, with a role and a binding of this name in a namespace or in the
/// cluster.
pub async fn allow(admin: &Client, name: &str, namespace: Option<&str>, rules: Value, group: &str) {
    let made = admin.post(&rbac(namespace, "role")).json(&role(name, &rules)).send().await;
    made.expect(201);
    let bound = binding(name, namespace, name, group);
    admin.post(&rbac(namespace, "rolebinding")).json(&bound).send().await.expect(201);
}

/// Removes the binding that [`allow`] created.
pub async fn disallow(admin: &Client, name: &str, namespace: Option<&str>) {
    let path = format!("{}/{name}", rbac(namespace, "rolebinding"));
    admin.delete(&path).send().await.expect(200);
}

/// Sends a JSON merge patch.
pub async fn merge(client: &Client, path: &str, changes: Value) -> Response {
    client.patch(path, "merge-patch", &changes).send().await
}

/// Sets fields of an object's `spec`, which has to succeed, and returns the object.
pub async fn set(client: &Client, path: &str, spec: Value) -> Value {
    merge(client, path, json!({ "spec": spec })).await.expect(200)
}

/// The path of a user, team, access key or another object without a namespace.
#[must_use]
pub fn path(resource: &str, name: &str) -> String {
    format!("{}/{name}", collection(resource))
}
