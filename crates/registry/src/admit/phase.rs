//! The phase in the status of clusters and instances, which the gateway reaches. If the object has the condition
//! `Ready`, the phase follows from it. Otherwise it tells whether a usable kubeconfig or an agent exists.
//!
//! Every write of the object sets it. When a Cluster or a Secret changes, a controller writes the objects again that
//! depend on it.

use postern_kinds::cluster::{Cluster, DIRECT_ENDPOINT};
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::secret::{self, Secret};
use postern_kinds::{AnyKind, Condition, KubeconfigRef};
use postern_meta::object::Object;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::view::AdmissionView;

/// The condition that decides, if it exists.
const READY: &str = "Ready";

/// A phase, with its reason in one word and its message.
#[derive(Debug, PartialEq, Eq)]
struct Phase {
    name: &'static str,
    reason: String,
    message: String,
}

impl Phase {
    fn new(name: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { name, reason: reason.to_owned(), message: message.into() }
    }

    fn ready() -> Self {
        Self::new("Ready", "", "")
    }

    fn pending(reason: &str, message: impl Into<String>) -> Self {
        Self::new("Pending", reason, message)
    }
}

/// Sets the phase of an object, if its kind has one. A corrupt Cluster or Secret does not prevent the write.
pub(super) fn set_phase(view: &AdmissionView<'_>, kind: &'static dyn AnyKind, object: &mut Object) {
    if !kind.has_phase() {
        return;
    }
    let found = by_condition(object).unwrap_or_else(|| by_connection(view, kind, object));
    let status = object.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let Some(status) = status.as_object_mut() else { return };
    let Phase { name: phase, reason, message } = found;
    for (name, text) in [("phase", phase), ("reason", &reason), ("message", &message)] {
        if text.is_empty() {
            status.remove(name);
        } else {
            status.insert(name.to_owned(), text.into());
        }
    }
}

/// The phase from the condition `Ready` of an object.
fn by_condition(object: &Object) -> Option<Phase> {
    let conditions = object.fields.get("status")?.get("conditions")?;
    let conditions = Vec::<Condition>::deserialize(conditions).ok()?;
    let ready = conditions.into_iter().find(|one| one.r#type == READY)?;
    let phase = match ready.status.as_str() {
        "True" => return Some(Phase::ready()),
        "False" => "Failed",
        _ => "Pending",
    };
    Some(Phase { name: phase, reason: ready.reason, message: ready.message })
}

/// The phase from the connection of an object: its kubeconfig or the agent.
fn by_connection(view: &AdmissionView<'_>, kind: &'static dyn AnyKind, object: &Object) -> Phase {
    if let Some(config) = kind.kubeconfig(object) {
        return by_kubeconfig(view, &config, &object.metadata.namespace);
    }
    if kind.info().kind == Cluster.info().kind {
        return by_agent(object, None);
    }
    let Some(name) = kind.on_cluster(object).filter(|name| !name.is_empty()) else {
        return Phase::pending("NoCluster", "spec.clusterRef.cluster is empty");
    };
    let cluster = match view.read(&Cluster, None, &name) {
        Ok(Some(cluster)) => cluster.object,
        Ok(None) => {
            let message = format!("the cluster \"{name}\" does not exist");
            return Phase::pending("ClusterNotFound", message);
        }
        Err(_) => {
            let message = format!("the cluster \"{name}\" is corrupt");
            return Phase::pending("ClusterUnreadable", message);
        }
    };
    // A space is part of its cluster. A virtual cluster without a kubeconfig is reached only through the agent.
    match Cluster.kubeconfig(&cluster).filter(|_| !kind.may_have_kubeconfig()) {
        Some(config) => by_kubeconfig(view, &config, ""),
        None => by_agent(&cluster, Some(&name)),
    }
}

fn by_kubeconfig(view: &AdmissionView<'_>, config: &KubeconfigRef, namespace: &str) -> Phase {
    let (namespace, name) = (config.namespace_in(namespace), &config.secret_name);
    let secret = match view.read(&Secret, Some(namespace), name) {
        Ok(Some(secret)) => secret.object,
        Ok(None) => {
            let message = format!(
                "the Secret \"{name}\" with the kubeconfig does not exist in the namespace {namespace}"
            );
            return Phase::pending("SecretNotFound", message);
        }
        Err(_) => {
            let message = format!("the Secret \"{name}\" with the kubeconfig is corrupt");
            return Phase::pending("SecretUnreadable", message);
        }
    };
    let spec = secret::Spec::deserialize(&secret.fields).unwrap_or_default();
    match Kubeconfig::of_secret(&spec, config.key_or_default()) {
        Ok(_) => Phase::ready(),
        Err(why) => {
            Phase::new("Failed", "InvalidKubeconfig", format!("the Secret \"{name}\": {why}"))
        }
    }
}

/// The phase from the address of a cluster's agent. `name` is the name of the cluster, for an instance on it.
fn by_agent(cluster: &Object, name: Option<&str>) -> Phase {
    let endpoint = cluster.metadata.annotations.get(DIRECT_ENDPOINT);
    if endpoint.is_some_and(|endpoint| !endpoint.is_empty()) {
        return Phase::ready();
    }
    let what =
        name.map_or_else(|| "the cluster".to_owned(), |name| format!("the cluster \"{name}\""));
    let message =
        format!("{what} has no kubeconfig (spec.config), and no agent has reported its address");
    Phase::pending("NoAgent", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_condition_ready_decides_the_phase() {
        let object = |status: Value| {
            let value = json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "a" }, "status": status });
            Object::from_value(value).unwrap()
        };
        let condition = |of: &str, status: &str| json!({ "type": of, "status": status, "reason": "R", "message": "m" });
        for (status, phase) in [
            (json!({}), None),
            (json!({ "conditions": [condition("Other", "False")] }), None),
            (json!({ "conditions": [condition("Ready", "True")] }), Some(Phase::ready())),
            (
                json!({ "conditions": [condition("Ready", "False")] }),
                Some(Phase::new("Failed", "R", "m")),
            ),
            (
                json!({ "conditions": [condition("Ready", "Unknown")] }),
                Some(Phase::new("Pending", "R", "m")),
            ),
        ] {
            assert_eq!(by_condition(&object(status.clone())), phase, "{status}");
        }
    }
}
