//! Aggregated discovery: all resources below `/api` or `/apis` in one document, for clients that request it with
//! `Accept`. It is made from the lists that older clients read one by one.

use std::sync::OnceLock;

use http::{HeaderValue, Response, header};
use postern_meta::accept::choose;
use postern_meta::gvk::GroupVersion;
use serde_json::{Map, Value, json};

use super::discovery;
use super::fixed::Fixed;
use postern_http::stages::parse::Parsed;
use postern_http::wire::body::Body;

const GROUP: &str = "apidiscovery.k8s.io";
const KIND: &str = "APIGroupDiscoveryList";

/// The documents in one version of `APIGroupDiscoveryList`.
struct Version {
    name: &'static str,
    /// The `Content-Type` for clients that exclude the resources of other servers. There are no other servers.
    content_type_nopeer: &'static str,
    core: Fixed,
    groups: Fixed,
}

/// The root path of the resources in a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
}

/// The response with the aggregated document; `None` if the client prefers the plain list.
pub(crate) fn response(parsed: &Parsed, root: Root) -> Option<Response<Body>> {
    let accepted = parsed.header_values(header::ACCEPT);
    let (version, nopeer) = choose(&accepted, |clause| match clause.parameter("as") {
        // A media type without a kind requests the plain list.
        None => Some(None),
        Some(kind) if kind == KIND && clause.parameter("g") == Some(GROUP) => {
            let wanted = clause.parameter("v");
            let version = versions().iter().find(|version| Some(version.name) == wanted);
            let version = version.filter(|_| clause.takes_json())?;
            Some(Some((version, clause.parameter("profile") == Some("nopeer"))))
        }
        Some(_) => None,
    })??;
    let document = if root == Root::Core { &version.core } else { &version.groups };
    let mut response = document.response(parsed.headers());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if nopeer && headers.contains_key(header::CONTENT_TYPE) {
        let content_type = HeaderValue::from_static(version.content_type_nopeer);
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    Some(response)
}

fn versions() -> &'static [Version; 2] {
    static VERSIONS: OnceLock<[Version; 2]> = OnceLock::new();
    VERSIONS.get_or_init(|| {
        [
            version(
                "v2",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;\
                 profile=nopeer",
            ),
            version(
                "v2beta1",
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;\
                 profile=nopeer",
            ),
        ]
    })
}

fn version(
    name: &'static str,
    content_type: &'static str,
    content_type_nopeer: &'static str,
) -> Version {
    let document = |root| Fixed::new(content_type, document(name, root).to_string());
    Version {
        name,
        content_type_nopeer,
        core: document(Root::Core),
        groups: document(Root::Groups),
    }
}

fn document(version: &str, root: Root) -> Value {
    let mut groups: Vec<(&str, Vec<Value>)> = Vec::new();
    for served in postern_kinds::versions() {
        if served.group.is_empty() != (root == Root::Core) {
            continue;
        }
        let entry = json!({
            "version": served.version,
            "freshness": "Current",
            "resources": resources(served, &discovery::resources(&served)["resources"]),
        });
        match groups.iter_mut().find(|(group, _)| *group == served.group) {
            Some((_, versions)) => versions.push(entry),
            None => groups.push((served.group, vec![entry])),
        }
    }
    let items = groups
        .into_iter()
        .map(|(group, versions)| json!({ "metadata": { "name": group }, "versions": versions }));
    json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{version}"),
        "metadata": {},
        "items": items.collect::<Vec<_>>(),
    })
}

/// The resources of an `APIResourceList`, with subresources below their parents.
fn resources(version: GroupVersion, list: &Value) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for resource in list.as_array().into_iter().flatten() {
        let name = resource["name"].as_str().unwrap_or_default();
        let Some((parent, name)) = name.split_once('/') else {
            resources.push(top(version, resource));
            continue;
        };
        let index = resources.iter().position(|known| known["resource"] == parent);
        let index = index.unwrap_or_else(|| {
            // Old clients require the kind of a parent, even if the parent has none.
            resources.push(json!({
                "resource": parent,
                "responseKind": { "group": "", "version": "", "kind": "" },
                "scope": scope(resource),
                "singularResource": "",
                "verbs": [],
            }));
            resources.len() - 1
        });
        let sub = json!({
            "subresource": name,
            "responseKind": kind(version, resource),
            "verbs": resource["verbs"],
        });
        match &mut resources[index]["subresources"] {
            Value::Array(known) => known.push(sub),
            none => *none = json!([sub]),
        }
    }
    resources
}

fn top(version: GroupVersion, resource: &Value) -> Value {
    let mut fields = Map::from_iter([
        ("resource".to_owned(), resource["name"].clone()),
        ("responseKind".to_owned(), kind(version, resource)),
        ("scope".to_owned(), scope(resource).into()),
        ("singularResource".to_owned(), resource["singularName"].clone()),
        ("verbs".to_owned(), resource["verbs"].clone()),
    ]);
    for name in ["shortNames", "categories"] {
        if let Some(words) = resource.get(name) {
            fields.insert(name.to_owned(), words.clone());
        }
    }
    Value::Object(fields)
}

/// The kind of a resource's responses, which can be in another group than the resource.
fn kind(version: GroupVersion, resource: &Value) -> Value {
    let or = |name: &str, own: &str| resource[name].as_str().unwrap_or(own).to_owned();
    json!({
        "group": or("group", version.group),
        "version": or("version", version.version),
        "kind": resource["kind"],
    })
}

fn scope(resource: &Value) -> &'static str {
    if resource["namespaced"] == true { "Namespaced" } else { "Cluster" }
}

#[cfg(test)]
mod tests {
    use postern_kinds::MANAGEMENT_V1;

    use super::*;

    #[test]
    fn subresources_are_below_their_parents() {
        let sub = |name: &str| {
            json!({ "name": name, "singularName": "", "namespaced": false, "kind": "Part",
                    "group": "other", "version": "v9", "verbs": ["create"] })
        };
        let list = json!([
            { "name": "wholes", "singularName": "whole", "namespaced": false, "kind": "Whole",
              "verbs": ["get"], "shortNames": ["w"] },
            sub("wholes/parts"),
            sub("wholes/others"),
            sub("orphans/parts"),
        ]);
        let part = |name: &str| {
            json!({ "subresource": name, "verbs": ["create"],
                    "responseKind": { "group": "other", "version": "v9", "kind": "Part" } })
        };
        let want = json!([
            { "resource": "wholes", "singularResource": "whole", "scope": "Cluster",
              "responseKind": { "group": MANAGEMENT_V1.group, "version": "v1", "kind": "Whole" },
              "verbs": ["get"], "shortNames": ["w"],
              "subresources": [part("parts"), part("others")] },
            { "resource": "orphans", "singularResource": "", "scope": "Cluster",
              "responseKind": { "group": "", "version": "", "kind": "" }, "verbs": [],
              "subresources": [part("parts")] },
        ]);
        assert_eq!(Value::Array(resources(MANAGEMENT_V1, &list)), want);
    }
}
