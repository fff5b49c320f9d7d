//! The phase in the status of clusters and instances, which the gateway reaches. If an agent or a controller has reported
//! that the object is not ready, the phase follows from it. Otherwise the object is ready if there is a usable kubeconfig or
//! an agent, and the last probe got there. The server writes the condition `Ready`. The condition `Connected` of a Cluster
//! says by which route it is reached.
//!
//! Every write of the object sets it. When a Cluster or a Secret changes, a controller writes the objects again that
//! depend on it.

use aws_lc_rs::digest::{Context, SHA256};
use postern_kinds::cluster::{
    CONNECTED, Cluster, ConnectedAgent, DIRECT_ENDPOINT, ENDPOINT, KUBECONFIG, RouteRule, TUNNEL,
    endpoint_annotations,
};
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::probe::{Probe, ProbeResult};
use postern_kinds::secret::{self, Secret};
use postern_kinds::{AnyKind, Condition, KubeconfigRef, SecretText};
use postern_meta::object::Object;
use postern_meta::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::view::AdmissionView;
use crate::permit::Permit;

/// The condition that decides, if it exists.
const READY: &str = "Ready";

/// The bytes of the digest of a route.
const ROUTE_BYTES: usize = 8;

/// The message for all failures of a probe. Otherwise authors of kubeconfigs could scan for open ports.
const UNREACHABLE: &str = "a request of the server did not get to the target: check its address, its certificate, the \
    credential and the namespace. The log of the server has the reason";

/// A phase, with its reason in one word and its message.
#[derive(Debug, PartialEq, Eq)]
struct Phase {
    name: &'static str,
    reason: String,
    message: String,
}

/// The reason of a phase that the server has found itself. A condition `Ready` with another reason is a report of an agent
/// or a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    RouteFound,
    NoCluster,
    ClusterNotFound,
    ClusterUnreadable,
    ClusterNotReady,
    SecretNotFound,
    SecretUnreadable,
    InvalidKubeconfig,
    NoAgent,
    Disconnected,
    NotProbed,
    Unreachable,
}

impl Reason {
    const ALL: [Self; 12] = [
        Self::RouteFound,
        Self::NoCluster,
        Self::ClusterNotFound,
        Self::ClusterUnreadable,
        Self::ClusterNotReady,
        Self::SecretNotFound,
        Self::SecretUnreadable,
        Self::InvalidKubeconfig,
        Self::NoAgent,
        Self::Disconnected,
        Self::NotProbed,
        Self::Unreachable,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::RouteFound => "RouteFound",
            Self::NoCluster => "NoCluster",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::ClusterUnreadable => "ClusterUnreadable",
            Self::ClusterNotReady => "ClusterNotReady",
            Self::SecretNotFound => "SecretNotFound",
            Self::SecretUnreadable => "SecretUnreadable",
            Self::InvalidKubeconfig => "InvalidKubeconfig",
            Self::NoAgent => "NoAgent",
            Self::Disconnected => "Disconnected",
            Self::NotProbed => "NotProbed",
            Self::Unreachable => "Unreachable",
        }
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl Phase {
    fn new(name: &'static str, reason: Reason, message: impl Into<String>) -> Self {
        Self { name, reason: reason.as_str().to_owned(), message: message.into() }
    }

    fn ready() -> Self {
        Self { name: READY, reason: String::new(), message: String::new() }
    }

    fn pending(reason: Reason, message: impl Into<String>) -> Self {
        Self::new("Pending", reason, message)
    }

    fn is_ready(&self) -> bool {
        self.name == READY
    }
}

/// Sets the phase of an object, if its kind has one, and the route of a Cluster. A corrupt Cluster or Secret does not
/// prevent the write. Only the server writes the result of a probe.
pub(super) fn set_phase(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: &mut Object,
    old: Option<&Object>,
) {
    let kind = permit.kind();
    if !kind.has_phase() {
        return;
    }
    let is_cluster = kind.info().kind == Cluster.info().kind;
    if is_cluster {
        set_connected(object, old, view.now);
    }
    let known = if permit.credential().is_server() { Some(&*object) } else { old };
    let known = known.and_then(Probe::of);
    let lost = disconnected(object).filter(|_| is_cluster);
    let route = lost.map_or_else(|| route_to(view, kind, object), Err);
    let probe = route.as_ref().ok().map(|route| {
        let same = known.filter(|known| known.route == *route);
        same.unwrap_or_else(|| Probe { route: route.clone(), result: ProbeResult::Unknown })
    });
    let found = match route {
        Err(lost) if lost.reason == Reason::Disconnected.as_str() => lost,
        route => not_ready_by_report(object).unwrap_or_else(|| match (route, &probe) {
            (Err(missing), _) => missing,
            (Ok(_), probe) => by_probe(probe.as_ref(), object, is_cluster),
        }),
    };
    set_ready(object, old, &found, view.now);
    let status = object.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let Some(status) = status.as_object_mut() else { return };
    match probe.and_then(|probe| serde_json::to_value(probe).ok()) {
        Some(probe) => status.insert("probe".to_owned(), probe),
        None => status.remove("probe"),
    };
    let Phase { name: phase, reason, message } = found;
    for (name, text) in [("phase", phase), ("reason", &reason), ("message", &message)] {
        if text.is_empty() {
            status.remove(name);
        } else {
            status.insert(name.to_owned(), text.into());
        }
    }
}

/// The phase of an object with a route, from the last probe. Until there is one, the report of the agent of a cluster counts.
fn by_probe(probe: Option<&Probe>, object: &Object, is_cluster: bool) -> Phase {
    match probe.map(|probe| probe.result).unwrap_or_default() {
        ProbeResult::Reached => Phase::ready(),
        // An instance that was just created may not run yet.
        ProbeResult::Failed if !is_cluster => Phase::pending(Reason::Unreachable, UNREACHABLE),
        ProbeResult::Failed => Phase::new("Failed", Reason::Unreachable, UNREACHABLE),
        ProbeResult::Unknown if is_cluster && report_of(object).is_some() => Phase::ready(),
        ProbeResult::Unknown => {
            let message = "the server has not yet tried the route to the target, or could not try it again in time";
            Phase::pending(Reason::NotProbed, message)
        }
    }
}

/// The digest of a route, from its inputs. It is keyed: readers of the object cannot use it to test
/// guesses, for example of the name of a Secret.
fn digest_of(view: &AdmissionView<'_>, parts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(&view.digester.derived_key("routes of probes"));
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    hex::encode(context.finish().as_ref().get(..ROUTE_BYTES).unwrap_or_default())
}

/// The reason of the condition about a cluster's route, and its message. The reason is `None` if
/// the cluster has no route.
fn route_of(cluster: &Object) -> (Option<&'static str>, String) {
    let connection = cluster.fields.get("spec").and_then(|spec| spec.get("connection"));
    let connection = connection.and_then(Value::as_str).unwrap_or_default();
    let rule = RouteRule::of(connection);
    if rule.kubeconfig && Cluster.kubeconfig(cluster).is_some() {
        return (Some(KUBECONFIG), "the cluster is reached by its kubeconfig".to_owned());
    }
    let agents = connected_agents(cluster);
    if rule.tunnel && !agents.is_empty() {
        let message = format!("the cluster is reached through tunnels of {}", agents.join(", "));
        return (Some(TUNNEL), message);
    }
    let endpoint = cluster.metadata.annotations.get(DIRECT_ENDPOINT);
    if rule.endpoint
        && let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty())
    {
        let message = format!("the cluster is reached through its agent at {endpoint}");
        return (Some(ENDPOINT), message);
    }
    let missing = match connection {
        TUNNEL => "no agent has opened a tunnel (spec.connection is Tunnel)",
        ENDPOINT => "no agent has reported its address (spec.connection is Endpoint)",
        KUBECONFIG => "there is no kubeconfig (spec.config; spec.connection is Kubeconfig)",
        _ => {
            "there is no kubeconfig (spec.config), no agent has opened a tunnel, and no agent has reported its \
             address"
        }
    };
    (None, missing.to_owned())
}

/// The names of the agents with tunnels.
fn connected_agents(cluster: &Object) -> Vec<String> {
    let agents = cluster.fields.get("status").and_then(|status| status.get("agents"));
    let agents = agents.and_then(|agents| Vec::<ConnectedAgent>::deserialize(agents).ok());
    let mut names: Vec<_> =
        agents.unwrap_or_default().into_iter().map(|agent| agent.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Sets the generation in the condition `Ready` of the server, once the generation of the object is known.
pub(super) fn observe_generation(kind: &'static dyn AnyKind, object: &mut Object) {
    if !kind.has_phase() {
        return;
    }
    let generation = object.metadata.generation;
    let mut conditions = conditions_of(object);
    let ready = conditions.iter_mut().find(|one| one.r#type == READY && !is_reported(one));
    if let Some(ready) = ready.filter(|ready| ready.observed_generation != Some(generation)) {
        ready.observed_generation = Some(generation);
        set_conditions(object, &conditions);
    }
}

/// The conditions of an object.
fn conditions_of(object: &Object) -> Vec<Condition> {
    let conditions = object.fields.get("status").and_then(|status| status.get("conditions"));
    conditions.and_then(|found| Vec::<Condition>::deserialize(found).ok()).unwrap_or_default()
}

fn set_conditions(object: &mut Object, conditions: &[Condition]) {
    let Ok(conditions) = serde_json::to_value(conditions) else { return };
    let status = object.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
    if let Some(status) = status.as_object_mut() {
        status.insert("conditions".to_owned(), conditions);
    }
}

/// Whether an agent or a controller has reported a condition.
fn is_reported(condition: &Condition) -> bool {
    Reason::of(&condition.reason).is_none()
}

/// Sets the condition `Ready` of an object to what its phase says, so that clients that wait for conditions wait. A
/// reported condition stays, unless it says that the object is ready and the phase does not.
fn set_ready(object: &mut Object, old: Option<&Object>, phase: &Phase, now: Timestamp) {
    let mut conditions = conditions_of(object);
    let is_kept = |one: &Condition| is_reported(one) && (one.status != "True" || phase.is_ready());
    if conditions.iter().any(|one| one.r#type == READY && is_kept(one)) {
        return;
    }
    let reason = if phase.is_ready() { Reason::RouteFound.as_str() } else { phase.reason.as_str() };
    let mut new = Condition {
        r#type: READY.to_owned(),
        status: match phase.reason.as_str() {
            _ if phase.is_ready() => "True",
            reason if reason == Reason::NotProbed.as_str() => "Unknown",
            _ => "False",
        }
        .to_owned(),
        observed_generation: Some(object.metadata.generation),
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: phase.message.clone(),
    };
    let before = old.map(conditions_of).unwrap_or_default();
    let before = before.iter().find(|one| one.r#type == READY);
    if let Some(before) = before.filter(|before| before.status == new.status) {
        new.last_transition_time = before.last_transition_time.or(new.last_transition_time);
    }
    conditions.retain(|one| one.r#type != READY);
    conditions.push(new);
    set_conditions(object, &conditions);
}

/// Sets the condition `Connected` of a Cluster. Its time is the one since which the route is the same.
fn set_connected(cluster: &mut Object, old: Option<&Object>, now: Timestamp) {
    let (route, message) = route_of(cluster);
    let mut new = Condition {
        r#type: CONNECTED.to_owned(),
        status: if route.is_some() { "True" } else { "False" }.to_owned(),
        observed_generation: None,
        last_transition_time: Some(now),
        reason: route.unwrap_or("NoRoute").to_owned(),
        message,
    };
    let before = old.map(conditions_of).unwrap_or_default();
    if let Some(before) = before.iter().find(|one| one.r#type == CONNECTED)
        && (&before.status, &before.reason) == (&new.status, &new.reason)
    {
        new.last_transition_time = before.last_transition_time.or(new.last_transition_time);
    }
    let mut conditions = conditions_of(cluster);
    conditions.retain(|one| one.r#type != CONNECTED);
    conditions.push(new);
    set_conditions(cluster, &conditions);
}

/// The phase of a Cluster without a route, to which an agent once was connected. Its condition `Ready` is that of an agent
/// which is gone. An agent that came and went at once has not reported its tunnels.
fn disconnected(cluster: &Object) -> Option<Phase> {
    let conditions = cluster.fields.get("status")?.get("conditions")?;
    let conditions = Vec::<Condition>::deserialize(conditions).ok()?;
    let is_report =
        |one: &Condition| one.r#type == TUNNEL || one.r#type == READY && one.status == "True";
    let had_agent = conditions.iter().any(is_report);
    let lost = conditions.iter().find(|one| one.r#type == CONNECTED && one.status == "False")?;
    had_agent.then(|| Phase::pending(Reason::Disconnected, lost.message.clone()))
}

/// The condition `Ready` that an agent or a controller has reported.
fn report_of(object: &Object) -> Option<Condition> {
    let is_report = |one: &Condition| one.r#type == READY && is_reported(one);
    conditions_of(object).into_iter().find(is_report)
}

/// The phase from a reported condition `Ready` of an object, if it says that the object is not ready.
fn not_ready_by_report(object: &Object) -> Option<Phase> {
    let ready = report_of(object)?;
    let phase = match ready.status.as_str() {
        "True" => return None,
        "False" => "Failed",
        _ => "Pending",
    };
    Some(Phase { name: phase, reason: ready.reason, message: ready.message })
}

/// The digest of the route to an object: by its kubeconfig, or through an agent.
///
/// # Errors
/// The phase of an object without a route.
fn route_to(
    view: &AdmissionView<'_>,
    kind: &'static dyn AnyKind,
    object: &Object,
) -> Result<String, Phase> {
    if let Some(config) = kind.kubeconfig(object) {
        return by_kubeconfig(view, &config, &object.metadata.namespace);
    }
    if kind.info().kind == Cluster.info().kind {
        return by_agent(view, object, None);
    }
    let Some(name) = kind.on_cluster(object).filter(|name| !name.is_empty()) else {
        return Err(Phase::pending(Reason::NoCluster, "spec.clusterRef.cluster is empty"));
    };
    let cluster = match view.read(&Cluster, None, &name) {
        Ok(Some(cluster)) => cluster.object,
        Ok(None) => {
            let message = format!("the cluster \"{name}\" does not exist");
            return Err(Phase::pending(Reason::ClusterNotFound, message));
        }
        Err(_) => {
            let message = format!("the cluster \"{name}\" is corrupt");
            return Err(Phase::pending(Reason::ClusterUnreadable, message));
        }
    };
    // A space is part of its cluster. A virtual cluster without a kubeconfig is reached only through the agent.
    let of_cluster = match Cluster.kubeconfig(&cluster).filter(|_| !kind.may_have_kubeconfig()) {
        // Readers of an instance may not be readers of its cluster.
        Some(config) => by_kubeconfig(view, &config, "").map_err(|_| {
            let message = format!(
                "the kubeconfig of the cluster \"{name}\" cannot be used: its Cluster says why"
            );
            Phase::pending(Reason::ClusterNotReady, message)
        })?,
        None => by_agent(view, &cluster, Some((kind, &name)))?,
    };
    let place = object.fields.get("spec").and_then(|spec| spec.get("clusterRef"));
    Ok(digest_of(view, &[&of_cluster, &place.map(Value::to_string).unwrap_or_default()]))
}

fn by_kubeconfig(
    view: &AdmissionView<'_>,
    config: &KubeconfigRef,
    namespace: &str,
) -> Result<String, Phase> {
    let (namespace, name) = (config.namespace_in(namespace), &config.secret_name);
    let secret = match view.read(&Secret, Some(namespace), name) {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            let message = format!(
                "the Secret \"{name}\" with the kubeconfig does not exist in the namespace {namespace}"
            );
            return Err(Phase::pending(Reason::SecretNotFound, message));
        }
        Err(_) => {
            let message = format!("the Secret \"{name}\" with the kubeconfig is corrupt");
            return Err(Phase::pending(Reason::SecretUnreadable, message));
        }
    };
    let key = config.key_or_default();
    let spec = secret::Spec::deserialize(&secret.object.fields).unwrap_or_default();
    match Kubeconfig::of_secret(&spec, key) {
        Ok(_) => {
            // Other changes of the Secret, such as those of its labels, leave the route as it is.
            let uid = secret.object.metadata.uid.as_str();
            let value = spec.data.get(key).map(SecretText::expose).unwrap_or_default();
            Ok(digest_of(view, &[KUBECONFIG, namespace, name, key, uid, value]))
        }
        Err(why) => {
            let message = format!("the Secret \"{name}\": {why}");
            Err(Phase::new("Failed", Reason::InvalidKubeconfig, message))
        }
    }
}

/// The digest of the route to a cluster's agent. `instance` is the kind of an instance, and the name of its cluster.
///
/// # Errors
/// The phase of an object if its agent cannot be reached.
fn by_agent(
    view: &AdmissionView<'_>,
    cluster: &Object,
    instance: Option<(&'static dyn AnyKind, &str)>,
) -> Result<String, Phase> {
    let connection = cluster.fields.get("spec").and_then(|spec| spec.get("connection"));
    let rule = RouteRule::of(connection.and_then(Value::as_str).unwrap_or_default()).to_agent();
    let metadata = &cluster.metadata;
    let endpoint = metadata.annotations.get(DIRECT_ENDPOINT);
    let has_endpoint = rule.endpoint && endpoint.is_some_and(|endpoint| !endpoint.is_empty());
    if has_endpoint || rule.tunnel && !connected_agents(cluster).is_empty() {
        let endpoint = has_endpoint.then(|| endpoint_annotations(metadata));
        return Ok(digest_of(view, &[TUNNEL, &metadata.uid, &format!("{endpoint:?}")]));
    }
    let message = match instance {
        None => "the cluster has no kubeconfig (spec.config), and no agent has opened a tunnel or reported its address"
            .to_owned(),
        Some((kind, name)) if kind.may_have_kubeconfig() => format!(
            "the virtual cluster has no kubeconfig (spec.config of this instance), and no agent of the cluster \
             \"{name}\" has opened a tunnel or reported its address"
        ),
        Some((_, name)) => format!(
            "the cluster \"{name}\" has no kubeconfig (its spec.config), and no agent has opened a tunnel or reported \
             its address"
        ),
    };
    Err(Phase::pending(Reason::NoAgent, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_that_an_object_is_not_ready_decides_the_phase() {
        let object = |status: Value| {
            let value = json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "a" }, "status": status });
            Object::from_value(value).unwrap()
        };
        let condition = |of: &str, status: &str| json!({ "type": of, "status": status, "reason": "R", "message": "m" });
        let reported = |name| Phase { name, reason: "R".to_owned(), message: "m".to_owned() };
        let own =
            json!({ "type": "Ready", "status": "False", "reason": "NoAgent", "message": "m" });
        for (status, phase) in [
            (json!({}), None),
            (json!({ "conditions": [own] }), None),
            (json!({ "conditions": [condition("Other", "False")] }), None),
            (json!({ "conditions": [condition("Ready", "True")] }), None),
            (json!({ "conditions": [condition("Ready", "False")] }), Some(reported("Failed"))),
            (json!({ "conditions": [condition("Ready", "Unknown")] }), Some(reported("Pending"))),
        ] {
            assert_eq!(not_ready_by_report(&object(status.clone())), phase, "{status}");
        }
    }

    /// A report from an agent does not outlive the agent's connection, even a short one.
    #[test]
    fn a_cluster_without_a_route_is_not_ready() {
        let condition = |of: &str, status: &str| json!({ "type": of, "status": status, "reason": "R", "message": "m" });
        let (ready, tunnel) = (condition("Ready", "True"), condition("Tunnel", "True"));
        let agents = json!([{ "name": "a", "server": "s" }]);
        for (annotation, agents, conditions, phase) in [
            ("", json!([]), json!([ready]), Some("Disconnected")),
            ("", json!([]), json!([ready, tunnel]), Some("Disconnected")),
            ("", json!([]), json!([tunnel]), Some("Disconnected")),
            ("", json!([]), json!([]), None),
            ("", json!([]), json!([condition("Ready", "False")]), None),
            ("", agents, json!([ready, tunnel]), None),
            ("h:1", json!([]), json!([ready]), None),
        ] {
            let value = json!({
                "apiVersion": "v1", "kind": "Cluster",
                "metadata": { "name": "c", "annotations": { DIRECT_ENDPOINT: annotation } },
                "status": { "agents": agents, "conditions": conditions },
            });
            let mut cluster = Object::from_value(value).unwrap();
            set_connected(&mut cluster, None, Timestamp::from_unix_seconds(0));
            let found = disconnected(&cluster).map(|phase| phase.reason);
            assert_eq!(found.as_deref(), phase, "{annotation} {conditions}");
        }
    }
}
