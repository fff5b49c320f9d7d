//! Discovery: the groups, versions and resources, from the list of kinds.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_kinds::action::{Action, Response};
use postern_kinds::{AnyKind, Info, MANAGEMENT_V1, Verb, all, versions};
use postern_meta::gvk::GroupVersion;
use serde_json::{Value, json};

/// The category of the listable kinds of Postern's group: `kubectl get platform -A`. They are not in the category
/// `all`, which is for workloads.
const CATEGORY: &str = "platform";

/// The document `/api`.
pub(crate) fn core_versions() -> Value {
    // Without an address here, clients keep the one that they use.
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// The document `/apis`.
pub(crate) fn groups() -> Value {
    let mut names: Vec<&str> = Vec::new();
    for version in versions() {
        if !version.group.is_empty() && !names.contains(&version.group) {
            names.push(version.group);
        }
    }
    let groups: Vec<Value> = names.into_iter().map(group_fields).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// The document `/apis/<group>`.
pub(crate) fn group(name: &str) -> Option<Value> {
    versions().into_iter().find(|version| version.group == name)?;
    let mut group = group_fields(name);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// A group with its versions. The first version is preferred, because kinds of newer versions come first.
fn group_fields(name: &str) -> Value {
    let versions = versions().into_iter().filter(|version| version.group == name);
    let entry = |version: GroupVersion| json!({ "groupVersion": version.to_string(), "version": version.version });
    let versions: Vec<Value> = versions.map(entry).collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

/// The document `/api/v1` or `/apis/<group>/<version>`.
pub(crate) fn resources(version: &GroupVersion) -> Value {
    let kinds = all().iter().filter(|kind| kind.info().version == *version);
    let resources: Vec<Value> = kinds.flat_map(|kind| resources_of(*kind)).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version.to_string(),
        "resources": resources,
    })
}

/// The resource of a kind, and its subresources.
fn resources_of(kind: &dyn AnyKind) -> Vec<Value> {
    let info = kind.info();
    let subresources = info.subresources().map(|name| {
        let actions = info.actions.iter().filter(|action| action.subresource == name);
        let verbs: Vec<&str> = actions.clone().map(|action| action.verb.as_str()).collect();
        let body = actions.map(|action| body_of(info, action)).next().unwrap_or(info);
        let mut resource = json!({
            "name": format!("{}/{name}", info.plural),
            "singularName": "",
            "namespaced": info.is_namespaced(),
            "kind": body.kind,
            "verbs": verbs,
        });
        if body.version != info.version {
            resource["group"] = body.version.group.into();
            resource["version"] = body.version.version.into();
        }
        resource
    });
    std::iter::once(resource(kind)).chain(subresources).collect()
}

/// The kind that clients send to a subresource or get from it.
fn body_of(info: &'static Info, action: &Action) -> &'static Info {
    match (action.request, action.response) {
        (Some(body), _) | (None, Response::Object(body)) => body.info(),
        (None, Response::ListOf(kind)) => {
            all().iter().map(|one| one.info()).find(|one| one.kind == kind).unwrap_or(info)
        }
        (None, Response::Same) => info,
    }
}

fn resource(kind: &dyn AnyKind) -> Value {
    let info = kind.info();
    let verbs: Vec<&str> = info.verbs.iter().map(|verb| verb.as_str()).collect();
    let mut resource = json!({
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.is_namespaced(),
        "kind": info.kind,
        "verbs": verbs,
    });
    if !info.short.is_empty() {
        resource["shortNames"] = json!(info.short);
    }
    if info.version.group == MANAGEMENT_V1.group && info.serves(Verb::List) {
        resource["categories"] = json!([CATEGORY]);
    }
    if info.is_stored() {
        resource["storageVersionHash"] = storage_version_hash(info).into();
    }
    resource
}

/// The hash of a kind's storage version, as in kube-apiserver: base64 of the first eight bytes of the SHA-256 of
/// group, version and kind.
fn storage_version_hash(info: &Info) -> String {
    /// The bytes of the SHA-256 that are used.
    const BYTES: usize = 8;
    let name = format!("{}/{}/{}", info.version.group, info.version.version, info.kind);
    STANDARD.encode(&digest(&SHA256, name.as_bytes()).as_ref()[..BYTES])
}

#[cfg(test)]
mod tests {
    use postern_kinds::namespace::Namespace;
    use postern_kinds::selves::SelfKind;

    use super::*;

    /// kube-apiserver has the same hash for the same kind.
    #[test]
    fn a_stored_kind_has_the_hash_of_kube_apiserver() {
        assert_eq!(resource(&Namespace)["storageVersionHash"], "Q3oi5N2YM8M=");
        assert_eq!(resource(&SelfKind).get("storageVersionHash"), None);
    }
}
