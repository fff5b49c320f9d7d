//! The common part of clusters and of instances of virtual clusters and spaces: the cluster that an instance is on, and
//! the reference to its kubeconfig. See `docs/reference/projects.md#instances`.

use postern_meta::names::{config_map_key, dns1123_label, dns1123_subdomain};

use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;
use crate::probe::Probe;

/// The statuses of instances have a subresource.
pub(crate) const STATUS_ACTIONS: &[Action] =
    &[Action::GET_STATUS, Action::UPDATE_STATUS, Action::PATCH_STATUS];

/// The state of an instance, and what the caller may do with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.InstanceStatus")]
pub struct Status {
    /// Whether the caller may send requests to it through the gateway. Only with `?extended=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("readOnly" = true))]
    pub can_use: Option<bool>,
    /// Whether the caller may change it. Only with `?extended=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("readOnly" = true))]
    pub can_update: Option<bool>,
    /// `Ready`, `Pending` or `Failed`. The server keeps it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The conditions of the instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// The last attempt of the server to reach it. The server keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// The permissions of the caller, if the request asks for them.
pub(crate) const OBSERVED: ObservedStatus = |_, _, observations| {
    if !observations.is_extended() {
        return Vec::new();
    }
    let may = |verb: &str| observations.caller_may(verb).into();
    vec![("canUpdate", may("update")), ("canUse", may("use"))]
};

/// Removes from the status what is never stored.
pub(crate) fn clear_observed(status: &mut Status) {
    status.can_use = None;
    status.can_update = None;
}

/// Makes an empty value an absent one: typed clients always send it.
pub(crate) fn drop_empty<T: Default + PartialEq>(value: &mut Option<T>) {
    if value.as_ref() == Some(&T::default()) {
        *value = None;
    }
}

/// The annotations by which clients ask for an instance to sleep or to wake up, without their prefixes. Others with the
/// same prefixes say something and ask for nothing.
const SLEEP_REQUESTS: [&str; 7] = [
    "force",
    "force-duration",
    "last-activity",
    "sleep-after",
    "delete-after",
    "sleep-schedule",
    "wakeup-schedule",
];

/// The prefixes of annotations about sleep.
const SLEEP_PREFIXES: [&str; 2] = ["sleepmode.platform.sh", "sleepmode.loft.sh"];

/// Adds an error for each annotation that is new and asks for an instance to sleep or to wake up: without one, the
/// client would wait for what does not happen. `what` says of what kind the instance is, in the plural.
pub(crate) fn validate_sleep(
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
    what: &str,
    errors: &mut FieldErrors,
) {
    for (name, value) in &new.annotations {
        let asks = name.split_once('/').is_some_and(|(prefix, rest)| {
            SLEEP_PREFIXES.contains(&prefix) && SLEEP_REQUESTS.contains(&rest)
        });
        let is_new = || old.and_then(|old| old.annotations.get(name)) != Some(value);
        if asks && is_new() {
            let detail = format!("this server does not put {what} to sleep");
            errors.push(FieldError::forbidden(format!("metadata.annotations[{name}]"), detail));
        }
    }
}

/// The unique key of an instance that is at a place, whose parts are these.
pub(crate) fn place(parts: &[&str]) -> UniqueKey {
    UniqueKey { field: "spec.clusterRef", value: parts.join("/"), is_place: true }
}

/// The rights to change which cluster something is on and by which kubeconfig it is reached, each
/// where it is new.
pub(crate) fn required_rights(
    metadata: &ObjectMeta,
    is_new_place: bool,
    cluster: &str,
    config: Option<&KubeconfigRef>,
    old_config: Option<&KubeconfigRef>,
) -> Vec<RequiredRight> {
    let place = (is_new_place && !cluster.is_empty())
        .then(|| Right::cluster("use", MANAGEMENT_V1.group, "clusters", cluster));
    let config = config.filter(|new| Some(*new) != old_config && !new.secret_name.is_empty());
    let secret = config.map(|config| Right {
        namespace: config.namespace_in(&metadata.namespace).to_owned(),
        ..Right::cluster("get", CORE_V1.group, "secrets", &config.secret_name)
    });
    place.into_iter().chain(secret).map(RequiredRight::from).collect()
}

/// Adds an error for a new object outside of the namespaces of projects.
pub(crate) fn check_in_project(
    metadata: &ObjectMeta,
    is_new: bool,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    if is_new && ctx.project_of_namespace.is_none() {
        let detail = "must be the namespace of a project";
        errors.push(FieldError::invalid("metadata.namespace", &metadata.namespace, detail));
    }
}

/// Adds an error for each part of a reference to a cluster that is missing or not a name.
pub(crate) fn validate_cluster_ref(
    cluster: &str,
    namespace: &str,
    virtual_cluster: Option<&str>,
    errors: &mut FieldErrors,
) {
    let mut check = |field: &str, name: &str, rule: fn(&str) -> Result<(), String>| {
        let path = format!("spec.clusterRef.{field}");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else {
            errors.check(rule(name), |detail| FieldError::invalid(path, name, detail));
        }
    };
    check("cluster", cluster, dns1123_subdomain);
    check("namespace", namespace, dns1123_label);
    if let Some(name) = virtual_cluster {
        check("virtualCluster", name, dns1123_subdomain);
    }
}

/// Adds an error for each part of a reference to a kubeconfig that is missing or not a name. That of an
/// object in a namespace is in this namespace.
pub(crate) fn validate_config(
    metadata: &ObjectMeta,
    config: Option<&KubeconfigRef>,
    errors: &mut FieldErrors,
) {
    let Some(config) = config else { return };
    let namespace = config.namespace_in(&metadata.namespace);
    for (field, name) in [("secretName", &config.secret_name[..]), ("secretNamespace", namespace)] {
        let path = format!("spec.config.{field}");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if field == "secretNamespace" && ![name, ""].contains(&&metadata.namespace[..]) {
            let detail = "must be the instance's own namespace";
            errors.push(FieldError::invalid(path, name, detail));
        } else {
            let rule = if field == "secretName" { dns1123_subdomain } else { dns1123_label };
            errors.check(rule(name), |detail| FieldError::invalid(path, name, detail));
        }
    }
    if !config.key.is_empty() {
        errors.check(config_map_key(&config.key), |detail| {
            FieldError::invalid("spec.config.key", &config.key, detail)
        });
    }
}
