//! Whether objects of a kind have a namespace: a request without one is for a single object where they
//! have none, and for all namespaces where they do.

/// Kinds without a namespace that every Kubernetes cluster has, by group and resource.
const UPSTREAM_CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "componentstatuses"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumes"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("metrics.k8s.io", "nodes"),
    ("networking.k8s.io", "ingressclasses"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
];

/// Whether objects of a kind have a namespace. `None` if the kind is unknown.
pub(crate) fn has_namespaces(group: &str, resource: &str) -> Option<bool> {
    let served = postern_kinds::all().iter().map(|kind| kind.info());
    let mut served = served.filter(|info| info.plural == resource && info.version.group == group);
    if let Some(info) = served.next() {
        return Some(info.is_namespaced());
    }
    UPSTREAM_CLUSTER_SCOPED.contains(&(group, resource)).then_some(false)
}
