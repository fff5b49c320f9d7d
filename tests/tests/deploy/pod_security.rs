//! The restricted Pod Security Standard, as a table of fields, and two rules of our own: a read-only root, and no
//! token of a `ServiceAccount` that nothing uses.

use serde_json::{Value, json};

/// Types of volumes that the standard allows. A `PersistentVolumeClaim` is one of them.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// A condition of a field.
#[derive(Clone, Copy)]
enum Must {
    /// It is this.
    Be(bool),
    /// It is absent, or false.
    NotBeTrue,
    /// It is absent, or an empty list.
    BeEmpty,
    /// It is absent, or not 0.
    NotBeZero,
    /// It is one of these.
    BeOneOf(&'static [&'static str]),
    /// It is absent, or one of these.
    BeAbsentOrOneOf(&'static [&'static str]),
    /// It is a list that has this.
    Contain(&'static str),
    /// It is absent, or a list of nothing but these.
    ContainOnly(&'static [&'static str]),
}

/// Fields of a pod.
const OF_POD: &[(&str, Must)] = &[
    ("/hostNetwork", Must::NotBeTrue),
    ("/hostPID", Must::NotBeTrue),
    ("/hostIPC", Must::NotBeTrue),
    ("/securityContext/runAsNonRoot", Must::Be(true)),
    ("/securityContext/runAsUser", Must::NotBeZero),
    ("/securityContext/seccompProfile/type", Must::BeOneOf(&["RuntimeDefault", "Localhost"])),
    ("/securityContext/sysctls", Must::BeEmpty),
    ("/securityContext/windowsOptions/hostProcess", Must::NotBeTrue),
    ("/automountServiceAccountToken", Must::Be(false)),
];

/// Fields of each container.
const OF_CONTAINER: &[(&str, Must)] = &[
    ("/securityContext/privileged", Must::NotBeTrue),
    ("/securityContext/allowPrivilegeEscalation", Must::Be(false)),
    ("/securityContext/readOnlyRootFilesystem", Must::Be(true)),
    ("/securityContext/capabilities/drop", Must::Contain("ALL")),
    ("/securityContext/capabilities/add", Must::ContainOnly(&["NET_BIND_SERVICE"])),
    ("/securityContext/runAsUser", Must::NotBeZero),
    ("/securityContext/procMount", Must::BeAbsentOrOneOf(&["Default"])),
    (
        "/securityContext/seccompProfile/type",
        Must::BeAbsentOrOneOf(&["RuntimeDefault", "Localhost"]),
    ),
    ("/lifecycle/postStart/httpGet/host", Must::BeAbsentOrOneOf(&[])),
];

impl Must {
    fn holds(self, value: Option<&Value>) -> bool {
        let text = value.and_then(Value::as_str);
        let list = value.and_then(Value::as_array);
        match self {
            Self::Be(wanted) => value == Some(&wanted.into()),
            Self::NotBeTrue => value.is_none_or(|value| value == false),
            Self::BeEmpty => value.is_none() || list.is_some_and(Vec::is_empty),
            Self::NotBeZero => value.is_none_or(|value| value.as_u64().is_some_and(|id| id > 0)),
            Self::BeOneOf(allowed) => text.is_some_and(|text| allowed.contains(&text)),
            Self::BeAbsentOrOneOf(allowed) => {
                value.is_none() || text.is_some_and(|text| allowed.contains(&text))
            }
            Self::Contain(wanted) => list.is_some_and(|list| list.iter().any(|one| one == wanted)),
            Self::ContainOnly(allowed) => {
                let is_allowed =
                    |one: &Value| one.as_str().is_some_and(|one| allowed.contains(&one));
                value.is_none() || list.is_some_and(|list| list.iter().all(is_allowed))
            }
        }
    }
}

/// The spec of the pods that an object makes, if it makes pods.
pub(crate) fn pod_of(object: &Value) -> Option<&Value> {
    let path = match object["kind"].as_str()? {
        "Pod" => "/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        _ => "/spec/template/spec",
    };
    object.pointer(path)
}

/// The fields of a pod that violate the standard.
pub(crate) fn violations(pod: &Value) -> Vec<String> {
    let mut found = violations_of("pod", pod, OF_POD);
    let list = |field: &str| pod[field].as_array().cloned().unwrap_or_default();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(field) {
            found.extend(violations_of(field, &container, OF_CONTAINER));
            for port in container["ports"].as_array().into_iter().flatten() {
                if port.get("hostPort").is_some_and(|port| port != 0) {
                    found.push(format!("{field}/ports: {port}"));
                }
            }
        }
    }
    for volume in list("volumes") {
        let mut types = volume.as_object().unwrap().keys().filter(|key| *key != "name");
        if !types.all(|one| VOLUMES.contains(&one.as_str())) {
            found.push(format!("volumes: {volume}"));
        }
    }
    found
}

fn violations_of(what: &str, value: &Value, table: &[(&str, Must)]) -> Vec<String> {
    let failed = table.iter().filter(|(path, must)| !must.holds(value.pointer(path)));
    failed.map(|(path, _)| format!("{what}{path}: {:?}", value.pointer(path))).collect()
}

/// A pod that satisfies everything.
fn good() -> Value {
    json!({
        "automountServiceAccountToken": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [{
            "ports": [{ "containerPort": 1 }],
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
            },
        }],
        "volumes": [{ "name": "a", "secret": {} }],
    })
}

#[test]
fn the_table_finds_each_violation() {
    assert_eq!(violations(&good()), [""; 0]);
    for (path, value) in [
        ("/automountServiceAccountToken", json!(true)),
        ("/securityContext/runAsNonRoot", json!(false)),
        ("/securityContext/runAsNonRoot", Value::Null),
        ("/securityContext/runAsUser", json!(0)),
        ("/securityContext/seccompProfile/type", json!("Unconfined")),
        ("/containers/0/ports/0", json!({ "hostPort": 80 })),
        ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/containers/0/securityContext/readOnlyRootFilesystem", json!(false)),
        ("/containers/0/securityContext/capabilities/drop", json!(["NET_RAW"])),
        ("/containers/0/securityContext/capabilities/add", json!(["SYS_ADMIN"])),
        ("/containers/0/securityContext", json!({})),
        ("/volumes/0", json!({ "name": "a", "hostPath": { "path": "/" } })),
    ] {
        let mut pod = good();
        *pod.pointer_mut(path).unwrap() = value;
        assert!(!violations(&pod).is_empty(), "{path}");
    }
    for (field, value) in [("hostNetwork", json!(true)), ("hostPID", json!(true))] {
        let mut pod = good();
        pod[field] = value;
        assert_eq!(violations(&pod).len(), 1, "{field}");
    }
}
