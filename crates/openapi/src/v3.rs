//! `/openapi/v3`: the schemas and operations of each group and version, from the list of kinds. It
//! lists only operations that are served.

use postern_kinds::action::{Action, Response};
use postern_kinds::{AnyKind, BASE_PATH, Info, Verb, all};
use postern_meta::accept::PatchType;
use postern_meta::gvk::GroupVersion;
use postern_meta::schema::Schema;
use postern_meta::status::Status;
use serde_json::{Map, Value, json};

pub use super::gnostic_v3::encode as protobuf;
use super::{deletions, failures, gnostic_v3};

/// The supported patch types, in kube-apiserver's order.
pub const SERVED_PATCHES: [PatchType; 4] =
    [PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply];

/// The media types for protobuf. The first is that of responses.
pub const PROTOBUF_TYPES: [&str; 2] = [gnostic_v3::MEDIA_TYPE, gnostic_v3::OLD_MEDIA_TYPE];

const BODY_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// The path of a version: below `/openapi/v3/`, and in URLs of the API.
pub fn path_of(version: &GroupVersion) -> String {
    if version.group.is_empty() { format!("api/{version}") } else { format!("apis/{version}") }
}

/// The document `/openapi/v3`, from each version and the hash of its document. Its URLs do not contain the base path,
/// because clients add it.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a GroupVersion, &'a str)>) -> Value {
    let url = |(version, hash)| {
        let path = path_of(version);
        let url = format!("/openapi/v3/{path}?hash={hash}");
        (path, json!({ "serverRelativeURL": url }))
    };
    let paths: Map<String, Value> = documents.into_iter().map(url).collect();
    json!({ "paths": paths })
}

/// The document of one group and version.
pub fn document(version: &GroupVersion) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    add_definitions(&mut schemas, STATUS_NAME, &Schema::of::<Status>());
    schemas.insert(PATCH_NAME.to_owned(), patch_schema());
    schemas.insert(deletions::OPTIONS_NAME.to_owned(), deletions::options());
    for kind in all().iter().filter(|kind| kind.info().version == *version) {
        add_kind(&mut schemas, *kind);
        add_bodies(&mut schemas, *kind);
        add_paths(&mut paths, *kind);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Postern", "version": env!("CARGO_PKG_VERSION") },
        "servers": [{ "url": BASE_PATH }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": failures::components(&content(&BODY_TYPES, &reference(STATUS_NAME))),
            "securitySchemes": { "BearerToken": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "BearerToken": [] }],
    })
}

const STATUS_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const LIST_META_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

fn patch_schema() -> Value {
    json!({ "type": "object", "description": "A change in one of the patch formats." })
}

fn component_name(kind: &dyn AnyKind) -> String {
    let info = kind.info();
    if info.version.group.is_empty() {
        format!("io.k8s.api.core.{}.{}", info.version.version, info.kind)
    } else {
        let mut labels: Vec<&str> = info.version.group.split('.').collect();
        labels.reverse();
        format!("{}.{}.{}", labels.join("."), info.version.version, info.kind)
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn identity(kind: &dyn AnyKind) -> Value {
    let info = kind.info();
    json!({ "group": info.version.group, "version": info.version.version, "kind": info.kind })
}

fn add_definitions(schemas: &mut Map<String, Value>, name: &str, schema: &Schema) {
    for (name, definition) in schema.definitions() {
        schemas.insert(name.clone(), definition.clone());
    }
    schemas.insert(name.to_owned(), schema.root().clone());
}

fn add_kind(schemas: &mut Map<String, Value>, kind: &dyn AnyKind) {
    let name = component_name(kind);
    add_definitions(schemas, &name, kind.schema());
    if let Some(root) = schemas.get_mut(&name) {
        root["description"] = kind.info().description.into();
        root["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
    }
    let list_meta = json!({
        "type": "object",
        "description": "The metadata of a list.",
        "properties": {
            "resourceVersion": { "type": "string", "description": "The version of the list, from which a watch continues." },
            "continue": { "type": "string", "description": "The token for the next page, if there is one." },
            "remainingItemCount": { "type": "integer", "format": "int64", "description": "The number of items after this page, if it is known." },
        },
    });
    schemas.insert(LIST_META_NAME.to_owned(), list_meta);
    let mut list_identity = identity(kind);
    list_identity["kind"] = format!("{}List", kind.info().kind).into();
    let list = json!({
        "type": "object",
        "description": format!("A list of {}.", kind.info().kind),
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string", "description": "Version of the schema, as group/version." },
            "kind": { "type": "string", "description": "The kind of the list." },
            "metadata": {
                "description": "The metadata of the list: its version, and the token for the next page.",
                "allOf": [reference(LIST_META_NAME)],
            },
            "items": { "type": "array", "description": "The objects.", "items": reference(&name) },
        },
        "x-kubernetes-group-version-kind": [list_identity],
    });
    schemas.insert(format!("{name}List"), list);
}

/// Adds the kinds of the bodies of actions, which may not be in the list of kinds.
fn add_bodies(schemas: &mut Map<String, Value>, kind: &dyn AnyKind) {
    for action in kind.info().actions {
        let response = match action.response {
            Response::Object(kind) => Some(kind),
            Response::Same | Response::ListOf(_) => None,
        };
        for body in action.request.into_iter().chain(response) {
            let name = component_name(body);
            add_definitions(schemas, &name, body.schema());
            if let Some(root) = schemas.get_mut(&name) {
                root["description"] = body.info().description.into();
                root["x-kubernetes-group-version-kind"] = json!([identity(body)]);
            }
        }
    }
}

fn add_paths(paths: &mut Map<String, Value>, kind: &dyn AnyKind) {
    let info = kind.info();
    let base = format!("/{}", path_of(&info.version));
    let namespace = if info.is_namespaced() { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{base}{namespace}/{}", info.plural);
    let on_collection = operations(
        kind,
        &[(Verb::List, "get"), (Verb::Create, "post"), (Verb::DeleteCollection, "delete")],
    );
    let on_object = operations(
        kind,
        &[
            (Verb::Get, "get"),
            (Verb::Update, "put"),
            (Verb::Patch, "patch"),
            (Verb::Delete, "delete"),
        ],
    );
    let with_parameters = |mut operations: Map<String, Value>, named: bool| {
        let mut parameters = Vec::new();
        if info.is_namespaced() {
            parameters.push(path_parameter("namespace", "The namespace of the object."));
        }
        if named {
            parameters.push(path_parameter("name", "The name of the object."));
        }
        if !parameters.is_empty() {
            operations.insert("parameters".to_owned(), Value::Array(parameters));
        }
        Value::Object(operations)
    };
    paths.insert(collection.clone(), with_parameters(on_collection, false));
    paths.insert(format!("{collection}/{{name}}"), with_parameters(on_object, true));
    for subresource in info.subresources() {
        let operations = action_operations(kind, subresource);
        paths.insert(
            format!("{collection}/{{name}}/{subresource}"),
            with_parameters(operations, true),
        );
    }
    if info.is_namespaced() {
        let mut everywhere = operations(kind, &[(Verb::List, "get")]);
        for operation in everywhere.values_mut() {
            // The id of an operation must be unique.
            let id = operation["operationId"].as_str().unwrap_or_default();
            operation["operationId"] = format!("{id}ForAllNamespaces").into();
        }
        paths.insert(format!("{base}/{}", info.plural), Value::Object(everywhere));
    }
}

/// The unique name of an operation, from its verb, group, version and kind.
fn operation_id(info: &Info, verb: Verb) -> String {
    let GroupVersion { group, version } = info.version;
    format!("{}{}{}{}", verb.as_str(), group.replace('.', ""), version.to_uppercase(), info.kind)
}

fn operations(kind: &dyn AnyKind, verbs: &[(Verb, &str)]) -> Map<String, Value> {
    let served = verbs.iter().filter(|(verb, _)| kind.info().serves(*verb));
    served.map(|(verb, method)| ((*method).to_owned(), operation(kind, *verb))).collect()
}

fn operation(kind: &dyn AnyKind, verb: Verb) -> Value {
    let name = component_name(kind);
    let response = match verb {
        Verb::List | Verb::DeleteCollection => reference(&format!("{name}List")),
        Verb::Delete => deletions::response(),
        _ => reference(&name),
    };
    let code = if verb == Verb::Create { "201" } else { "200" };
    let mut operation = json!({
        "operationId": operation_id(kind.info(), verb),
        "x-kubernetes-action": verb.as_str(),
        "x-kubernetes-group-version-kind": identity(kind),
        "parameters": query_parameters(verb),
        "responses": {
            code: { "description": "Done.", "content": content(&BODY_TYPES, &response) },
        },
    });
    failures::add(&mut operation["responses"], verb);
    match verb {
        Verb::Create | Verb::Update => {
            let content = content(&BODY_TYPES, &reference(&name));
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        Verb::Patch => {
            let content =
                content(&SERVED_PATCHES.map(PatchType::media_type), &reference(PATCH_NAME));
            operation["requestBody"] = json!({ "required": true, "content": content });
            // An apply creates a missing object.
            operation["responses"]["201"] = operation["responses"]["200"].clone();
        }
        Verb::Delete | Verb::DeleteCollection => {
            let content = content(&BODY_TYPES, &reference(deletions::OPTIONS_NAME));
            operation["requestBody"] = json!({ "required": false, "content": content });
        }
        Verb::Get | Verb::List | Verb::Watch => {}
    }
    operation
}

/// The operations of one subresource, from the kind's table of actions.
fn action_operations(kind: &dyn AnyKind, subresource: &str) -> Map<String, Value> {
    // A watch is a parameter of the GET.
    let actions = kind.info().actions.iter().filter(|action| action.verb != Verb::Watch);
    actions
        .filter(|action| action.subresource == subresource)
        .map(|action| (method_of(action.verb).to_owned(), action_operation(kind, action)))
        .collect()
}

fn method_of(verb: Verb) -> &'static str {
    match verb {
        Verb::Get | Verb::List | Verb::Watch => "get",
        Verb::Create => "post",
        Verb::Update => "put",
        Verb::Patch => "patch",
        Verb::Delete | Verb::DeleteCollection => "delete",
    }
}

fn action_operation(kind: &dyn AnyKind, action: &Action) -> Value {
    let mut operation = operation(kind, action.verb);
    let words: String = action.subresource.split('-').flat_map(capitalized).collect();
    let id = format!("{}{words}", operation["operationId"].as_str().unwrap_or_default());
    operation["operationId"] = id.into();
    operation["description"] = action.description.into();
    if action.verb == Verb::Patch
        && let Some(responses) = operation["responses"].as_object_mut()
    {
        responses.remove("201");
    }
    let response = match action.response {
        Response::Same => reference(&component_name(kind)),
        Response::Object(other) => reference(&component_name(other)),
        Response::ListOf(other) => {
            let other = all().iter().find(|one| one.info().kind == other);
            operation["parameters"] = query_parameters(Verb::List);
            failures::add(&mut operation["responses"], Verb::List);
            other.map_or(Value::Null, |one| reference(&format!("{}List", component_name(*one))))
        }
    };
    if let Some(part) = action.part()
        && let Some(parameters) = operation["parameters"].as_array_mut()
    {
        parameters.push(json!({
            "name": part.parameter, "in": "query", "required": true,
            "description": part.description, "schema": { "type": "string" },
        }));
    }
    let code = if action.verb == Verb::Create { "201" } else { "200" };
    operation["responses"][code]["content"] = content(&BODY_TYPES, &response);
    if let Some(sent) = action.request {
        let body = content(&BODY_TYPES, &reference(&component_name(sent)));
        operation["requestBody"] = json!({ "required": true, "content": body });
    }
    operation
}

fn capitalized(word: &str) -> Vec<char> {
    let mut chars = word.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

fn content(types: &[&str], schema: &Value) -> Value {
    types
        .iter()
        .map(|name| ((*name).to_owned(), json!({ "schema": schema })))
        .collect::<Map<_, _>>()
        .into()
}

fn path_parameter(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "path", "required": true, "description": description,
        "schema": { "type": "string" },
    })
}

fn query_parameters(verb: Verb) -> Value {
    const WRITE: &[(&str, &str, &str)] = &[
        ("dryRun", "string", "`All`: process the request without storing anything."),
        (
            "fieldManager",
            "string",
            "The name of the manager of the change, at most 128 printable characters.",
        ),
        (
            "fieldValidation",
            "string",
            "The handling of unknown and duplicate fields: Ignore, Warn or Strict.",
        ),
    ];
    const PATCH: &[(&str, &str, &str)] = &[
        WRITE[0],
        WRITE[1],
        WRITE[2],
        ("force", "boolean", "An apply also takes fields that other managers own."),
    ];
    const SELECTION: &[(&str, &str, &str)] = &[
        ("labelSelector", "string", "Selects objects by labels."),
        (
            "fieldSelector",
            "string",
            "Selects objects by metadata.name or metadata.namespace, or by a prefix: metadata.name^=.",
        ),
        (
            "limit",
            "integer",
            "The maximum number of objects. The list has a token for the next page.",
        ),
        ("continue", "string", "The token for this page, from the page before."),
        ("resourceVersion", "string", "The oldest version that the response may have."),
        (
            "resourceVersionMatch",
            "string",
            "The meaning of resourceVersion: Exact or NotOlderThan.",
        ),
    ];
    const WATCH: &[(&str, &str, &str)] = &[
        ("watch", "boolean", "Watch for changes."),
        ("allowWatchBookmarks", "boolean", "Send bookmarks regularly."),
        ("sendInitialEvents", "boolean", "Start a watch with the objects that exist."),
        ("timeoutSeconds", "integer", "The duration of a watch in seconds."),
    ];
    const GET: &[(&str, &str, &str)] =
        &[("resourceVersion", "string", "The oldest version that the response may have.")];
    const DELETE: &[(&str, &str, &str)] = &[
        ("dryRun", "string", "`All`: process the request without storing anything."),
        ("gracePeriodSeconds", "integer", "Seconds until the object is removed."),
        (
            "propagationPolicy",
            "string",
            "The deletion of dependents: Orphan, Background or Foreground.",
        ),
        ("orphanDependents", "boolean", "The older form of propagationPolicy."),
    ];
    let parts: &[&[(&str, &str, &str)]] = match verb {
        Verb::Create | Verb::Update => &[WRITE],
        Verb::Patch => &[PATCH],
        Verb::List | Verb::Watch => &[SELECTION, WATCH],
        Verb::Get => &[GET],
        Verb::Delete => &[DELETE],
        Verb::DeleteCollection => &[SELECTION, DELETE],
    };
    let parameters = parts.iter().copied().flatten().map(|(name, r#type, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": { "type": r#type } })
    });
    Value::Array(parameters.collect())
}
