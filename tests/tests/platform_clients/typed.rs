//! Objects as a typed client written in Go sends them: with the fields that its types have, and with structures
//! even when they are empty. A field that only this server has is lost on the way through such a client.

use serde_json::{Map, Value, json};

/// The age of a client: which fields its types have, and how it writes a time that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The Terraform provider, with the types of 3.1.
    V31,
    /// The loft CLI 3.4.
    V3,
    /// The vcluster CLI 0.36.
    V4,
}

/// Marks a field that is left out when it is empty.
const OMIT_EMPTY: char = '?';

/// The object as a client of this age sends it.
pub(crate) fn encode(age: Age, resource: &str, object: &Value) -> Value {
    let mut sent = shaped(&shape_of(age, resource), object);
    let kind = object["kind"].as_str().unwrap_or_else(|| kind_of(resource));
    sent["apiVersion"] = "management.platform.sh/v1".into();
    sent["kind"] = kind.into();
    if age != Age::V4 && sent["metadata"].get("creationTimestamp").is_none() {
        sent["metadata"]["creationTimestamp"] = Value::Null;
    }
    sent
}

/// The JSON merge patch that leads from one object to another, both as the client knows them. It has no
/// resourceVersion, since both have the same.
pub(crate) fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        match old.get(name) {
            Some(was) if was == value => {}
            Some(was) => {
                patch.insert(name.clone(), merge_patch(was, value));
            }
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// The parts of a value that a shape has.
fn shaped(shape: &Value, value: &Value) -> Value {
    let Some(fields) = shape.as_object() else {
        return if value.is_null() { shape.clone() } else { value.clone() };
    };
    let mut sent = Map::new();
    for (name, inner) in fields {
        let known = name.trim_end_matches(OMIT_EMPTY);
        let given = &value[known];
        let is_whole = inner == "*";
        let encoded = if is_whole { given.clone() } else { shaped(inner, given) };
        if !name.ends_with(OMIT_EMPTY) || !is_empty(&encoded) {
            sent.insert(known.to_owned(), encoded);
        }
    }
    Value::Object(sent)
}

/// Whether Go leaves out this value of a field with `omitempty`.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    }
}

fn kind_of(resource: &str) -> &'static str {
    match resource {
        "clusters" => "Cluster",
        "directclusterendpointtokens" => "DirectClusterEndpointToken",
        "ownedaccesskeys" => "OwnedAccessKey",
        "projects" => "Project",
        "projectsecrets" => "ProjectSecret",
        "selfsubjectaccessreviews" => "SelfSubjectAccessReview",
        "selves" => "Self",
        "sharedsecrets" => "SharedSecret",
        "spaceinstances" => "SpaceInstance",
        "virtualclusterinstances" => "VirtualClusterInstance",
        other => panic!("no client sends {other}"),
    }
}

/// The fields of a kind. A name that ends with `?` is left out when it is empty; `*` is a value that is sent as
/// it is.
fn shape_of(age: Age, resource: &str) -> Value {
    let mut spec = match resource {
        "clusters" => json!({
            "config": { "secretName?": "*", "secretNamespace?": "*", "key?": "*" },
            "local?": "*", "networkPeer?": "*", "managementNamespace?": "*", "unusable?": "*",
        }),
        "projects" => project_shape(age),
        "spaceinstances" => json!({
            "clusterRef": { "cluster?": "*", "namespace?": "*" },
            "templateRef?": "*", "template?": "*", "parameters?": "*", "extraAccessRules?": "*",
        }),
        "virtualclusterinstances" => json!({
            "clusterRef": { "cluster?": "*", "namespace?": "*", "virtualCluster?": "*" },
            "templateRef?": "*", "template?": "*", "parameters?": "*", "extraAccessRules?": "*",
        }),
        "projectsecrets" | "sharedsecrets" => json!({ "data?": "*" }),
        "ownedaccesskeys" => json!({
            "user?": "*", "team?": "*", "subject?": "*", "groups?": "*", "key?": "*", "disabled?": "*",
            "ttl?": "*", "ttlAfterLastActivity?": "*", "scope?": "*", "type?": "*",
        }),
        "directclusterendpointtokens" => json!({ "ttl?": "*", "scope?": "*" }),
        "selves" => json!({ "accessKey?": "*" }),
        "selfsubjectaccessreviews" => json!({ "resourceAttributes?": "*" }),
        other => panic!("no client sends {other}"),
    };
    if resource == "virtualclusterinstances" {
        let more: &[&str] = match age {
            Age::V31 => &[],
            Age::V3 => &["workloadClusterRef?"],
            Age::V4 => &["networkPeer?", "external?", "standalone?"],
        };
        for name in more {
            spec[*name] = "*".into();
        }
    }
    for name in ["displayName?", "description?", "owner?", "access?"] {
        spec[name] = "*".into();
    }
    json!({ "metadata": "*", "spec": spec, "status": status_shape(age, resource) })
}

fn project_shape(age: Age) -> Value {
    let mut shape = json!({
        "quotas": { "project?": "*", "user?": "*" },
        "allowedClusters?": "*", "allowedRunners?": "*", "allowedTemplates?": "*", "members?": "*",
        "namespacePattern?": "*", "argoCD?": "*", "vault?": "*",
    });
    if age != Age::V31 {
        shape["requireTemplate"] = json!({ "disabled?": "*" });
    }
    if age == Age::V3 {
        shape["automaticImport"] = json!({ "virtualClusters": { "enabled": false } });
    }
    if age == Age::V4 {
        shape["requirePreset"] = json!({ "disabled?": "*" });
        shape["allowedNodeTypes"] = Value::Null;
        shape["allowedNodeProfiles"] = Value::Null;
    }
    shape
}

fn status_shape(age: Age, resource: &str) -> Value {
    match resource {
        "virtualclusterinstances" | "spaceinstances" | "clusters" => json!({
            "phase?": "*", "reason?": "*", "message?": "*", "conditions?": "*", "canUse?": "*",
            "canUpdate?": "*",
        }),
        "projects" | "sharedsecrets" | "projectsecrets" => json!({ "conditions?": "*" }),
        "selfsubjectaccessreviews" => json!({ "allowed": false }),
        // The older types have no `omitempty` on these.
        "selves" if age != Age::V4 => json!({ "chatAuthToken": "", "instanceID": "" }),
        _ => json!({}),
    }
}
