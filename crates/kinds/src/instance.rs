//! The common part of clusters and of instances of virtual clusters and spaces: the cluster that an instance is on, and
//! the reference to its kubeconfig. See `docs/reference/projects.md#instances`.

use postern_meta::names::{config_map_key, dns1123_label, dns1123_subdomain};

use crate::kubeconfig_ref::KubeconfigRef;
use crate::prelude::*;
use crate::probe::Probe;

/// What both kinds of instances share. The statuses of instances have a subresource.
pub(crate) const INFO: Info = Info {
    scope: ResourceScope::Namespaced,
    actions: &[Action::GET_STATUS, Action::UPDATE_STATUS, Action::PATCH_STATUS],
    confidential: false,
    columns: &[
        ColumnInfo::text(
            "Status",
            "Whether the server can connect to it: Ready, Pending or Failed.",
        ),
        ColumnInfo::text("Cluster", "The cluster that it is on."),
        ColumnInfo::text("Namespace", "Its namespace in the cluster."),
        ColumnInfo::text("Owner", "The user or team that owns it."),
        ColumnInfo::text("Display Name", "Name shown to people.").wide(),
    ],
    is_counted_in_quotas: true,
    observed_status: Some(OBSERVED),
    ..Info::DEFAULT
};

/// The state of an instance, and the caller's permissions on it.
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
const OBSERVED: ObservedStatus = |_, _, observations| {
    if !observations.is_extended() {
        return Vec::new();
    }
    let may = |verb: &str| observations.caller_may(verb).into();
    vec![("canUpdate", may("update")), ("canUse", may("use"))]
};

/// Removes from the status the fields that are never stored.
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

/// Adds an error for a new object outside of the namespaces of projects, and for each annotation that is new and asks
/// for an instance to sleep or to wake up. Without that error, the client would wait without an end. `what` is the kind
/// of the instance, in the plural.
pub(crate) fn validate_metadata<F>(write: &Write<'_, F>, what: &str, errors: &mut FieldErrors) {
    let &Write { new, old, ctx } = write;
    if old.is_none() && ctx.project_of_namespace.is_none() {
        let (path, detail) = ("metadata.namespace", "must be the namespace of a project");
        errors.push(FieldError::invalid(path, &new.metadata.namespace, detail));
    }
    for (name, value) in &new.metadata.annotations {
        let asks = name.split_once('/').is_some_and(|(prefix, rest)| {
            SLEEP_PREFIXES.contains(&prefix) && SLEEP_REQUESTS.contains(&rest)
        });
        let is_new = || old.and_then(|old| old.metadata.annotations.get(name)) != Some(value);
        if asks && is_new() {
            let detail = format!("this server does not put {what} to sleep");
            errors.push(FieldError::forbidden(format!("metadata.annotations[{name}]"), detail));
        }
    }
}

/// The unique key of an instance at a place with these parts.
pub(crate) fn place(parts: &[&str]) -> UniqueKey {
    UniqueKey { field: "spec.clusterRef", value: parts.join("/"), is_place: true }
}

/// The right to put something on a cluster; none without the name of one.
pub(crate) fn right_to_use(cluster: &str) -> Option<RequiredRight> {
    let right = || Right::cluster("use", MANAGEMENT_V1.group, "clusters", cluster);
    (!cluster.is_empty()).then(right).map(RequiredRight::from)
}

/// The right to read the kubeconfig that an object is reached by, if it is a new one.
pub(crate) fn right_to_read_config<Spec, Status>(
    write: &Write<'_, crate::Fields<Spec, Status>>,
    config: fn(&Spec) -> Option<&KubeconfigRef>,
) -> Option<RequiredRight> {
    let new = config(write.spec()).filter(|new| !new.secret_name.is_empty())?;
    let is_new = write.old_spec().and_then(config) != Some(new);
    let right = || Right {
        namespace: new.namespace_in(&write.new.metadata.namespace).to_owned(),
        ..Right::cluster("get", CORE_V1.group, "secrets", &new.secret_name)
    };
    is_new.then(right).map(RequiredRight::from)
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
            errors.check_value(&path, name, rule(name));
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
            errors.check_value(&path, name, rule(name));
        }
    }
    if !config.key.is_empty() {
        errors.check_value("spec.config.key", &config.key, config_map_key(&config.key));
    }
}
