//! `/openapi/v2`: one document for all groups, made from the documents of version 3.
//!
//! kubectl up to 1.28 needs it for create and explain, and other clients still read it. Version 2 has fewer features.
//! Bodies are parameters, and one schema applies to all media types. A schema has no `oneOf`, `anyOf`, `not` or
//! `nullable`.

use postern_kinds::BASE_PATH;
use serde_json::{Map, Value, json};

use super::failures;
pub use super::gnostic_v2::encode as protobuf;
use super::gnostic_v2::{MEDIA_TYPE, OLD_MEDIA_TYPE};

/// The media types for protobuf. The first is that of responses.
pub const PROTOBUF_TYPES: [&str; 2] = [MEDIA_TYPE, OLD_MEDIA_TYPE];

/// The keywords of schemas that version 2 does not have.
const UNKNOWN_KEYWORDS: [&str; 6] =
    ["oneOf", "anyOf", "not", "nullable", "writeOnly", "deprecated"];

/// The document of version 2, from the documents of version 3.
pub fn document<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        for (path, item) in fields(&document["paths"]) {
            paths.insert(path.clone(), path_item(item));
        }
        for (name, definition) in fields(&document["components"]["schemas"]) {
            definitions.insert(name.clone(), schema(definition));
        }
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Postern", "version": env!("CARGO_PKG_VERSION") },
        "basePath": BASE_PATH,
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": { "BearerToken": {
            "type": "apiKey",
            "name": "authorization",
            "in": "header",
            "description": "Bearer, followed by an access key.",
        } },
        "security": [{ "BearerToken": [] }],
    })
}

fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn path_item(item: &Value) -> Value {
    let item = fields(item).map(|(name, value)| {
        let value = if name == "parameters" { parameters(value) } else { operation(value) };
        (name.clone(), value)
    });
    Value::Object(item.collect())
}

fn operation(operation: &Value) -> Value {
    let mut new = Map::new();
    let mut inputs = Vec::new();
    let mut produces: Vec<&String> = Vec::new();
    for (name, value) in fields(operation) {
        match name.as_str() {
            "parameters" => {
                inputs.extend(parameters(value).as_array().cloned().unwrap_or_default());
            }
            "requestBody" => {
                let consumes: Vec<&String> =
                    fields(&value["content"]).map(|(media_type, _)| media_type).collect();
                new.insert("consumes".to_owned(), json!(consumes));
                inputs.push(body_parameter(value));
            }
            "responses" => {
                let types = fields(value).flat_map(|(_, response)| fields(&response["content"]));
                for (media_type, _) in types {
                    if !produces.contains(&media_type) {
                        produces.push(media_type);
                    }
                }
                let responses = fields(value).filter_map(|(code, value)| {
                    Some((code.clone(), response(&failures::in_v2(code, value)?)))
                });
                new.insert(name.clone(), Value::Object(responses.collect()));
            }
            _ => {
                new.insert(name.clone(), value.clone());
            }
        }
    }
    new.insert("produces".to_owned(), json!(produces));
    if !inputs.is_empty() {
        new.insert("parameters".to_owned(), Value::Array(inputs));
    }
    Value::Object(new)
}

fn parameters(parameters: &Value) -> Value {
    let parameters = parameters.as_array().into_iter().flatten();
    Value::Array(parameters.map(parameter).collect())
}

/// A parameter in version 2, in which the keywords of the schema are next to the name.
fn parameter(parameter: &Value) -> Value {
    let mut new: Map<String, Value> = fields(parameter)
        .filter(|(name, _)| *name != "schema")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    new.extend(fields(&parameter["schema"]).map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(new)
}

fn body_parameter(body: &Value) -> Value {
    json!({
        "name": "body",
        "in": "body",
        "required": body["required"].as_bool().unwrap_or_default(),
        "schema": content_schema(body),
    })
}

fn response(response: &Value) -> Value {
    let mut new = json!({ "description": response["description"] });
    if response.get("content").is_some() {
        new["schema"] = content_schema(response);
    }
    new
}

/// The schema of a body, which is the same for all of its media types.
fn content_schema(body: &Value) -> Value {
    fields(&body["content"]).next().map_or_else(|| json!({}), |(_, media)| schema(&media["schema"]))
}

/// A schema in the keywords of version 2. Version 2 has no choice between schemas. So the part that the choices share
/// stays, and the rest is unspecified.
fn schema(old: &Value) -> Value {
    let Some(old) = old.as_object() else { return old.clone() };
    let mut new = Map::new();
    for (keyword, value) in old {
        match keyword.as_str() {
            keyword if UNKNOWN_KEYWORDS.contains(&keyword) => {}
            "$ref" => {
                let name = value.as_str().unwrap_or_default();
                let name = name.rsplit('/').next().unwrap_or_default();
                new.insert(keyword.clone(), format!("#/definitions/{name}").into());
            }
            // Clients of version 2 do not read fields in `allOf`. If it contains a single reference, the
            // reference is moved next to the description.
            "allOf" => match value.as_array().map(Vec::as_slice) {
                Some([only]) => new.extend(schema(only).as_object().cloned().unwrap_or_default()),
                _ => {
                    new.insert(keyword.clone(), schemas(value));
                }
            },
            "properties" => {
                let properties = fields(value).map(|(name, value)| (name.clone(), schema(value)));
                new.insert(keyword.clone(), Value::Object(properties.collect()));
            }
            "items" | "additionalProperties" => {
                new.insert(keyword.clone(), schema(value));
            }
            _ => {
                new.insert(keyword.clone(), value.clone());
            }
        }
    }
    if let Some(description) = old.get("description") {
        new.insert("description".to_owned(), description.clone());
    }
    if old.get("x-kubernetes-int-or-string").is_some_and(|flag| flag == true) {
        new.insert("type".to_owned(), "string".into());
        new.insert("format".to_owned(), "int-or-string".into());
    }
    Value::Object(new)
}

fn schemas(list: &Value) -> Value {
    list.as_array().into_iter().flatten().map(schema).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_converted_to_the_keywords_of_version_2() {
        for (old, new) in [
            (
                json!({ "allOf": [{ "$ref": "#/components/schemas/a.B" }], "description": "Why." }),
                json!({ "$ref": "#/definitions/a.B", "description": "Why." }),
            ),
            (
                json!({ "type": "string", "nullable": true, "enum": ["a", "b"] }),
                json!({ "type": "string", "enum": ["a", "b"] }),
            ),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }],
                        "x-kubernetes-int-or-string": true }),
                json!({ "type": "string", "format": "int-or-string",
                        "x-kubernetes-int-or-string": true }),
            ),
            (
                json!({ "type": "object", "properties": { "oneOf": {
                    "oneOf": [{ "type": "integer" }], "description": "A field of that name." } } }),
                json!({ "type": "object",
                        "properties": { "oneOf": { "description": "A field of that name." } } }),
            ),
            (
                json!({ "type": "array", "items": { "$ref": "#/components/schemas/X" } }),
                json!({ "type": "array", "items": { "$ref": "#/definitions/X" } }),
            ),
            (json!({ "additionalProperties": true }), json!({ "additionalProperties": true })),
        ] {
            assert_eq!(schema(&old), new);
        }
    }

    #[test]
    fn bodies_become_parameters() {
        let old = json!({
            "operationId": "o",
            "parameters": [{ "name": "q", "in": "query", "schema": { "type": "integer" } }],
            "requestBody": { "required": true, "content": {
                "application/a": { "schema": { "type": "object" } },
                "application/b": { "schema": { "type": "object" } },
            } },
            "responses": {
                "200": { "description": "Done.",
                         "content": { "application/json": { "schema": { "type": "string" } } } },
                "401": { "description": "Who?" },
            },
        });
        let new = json!({
            "operationId": "o",
            "consumes": ["application/a", "application/b"],
            "produces": ["application/json"],
            "parameters": [
                { "name": "q", "in": "query", "type": "integer" },
                { "name": "body", "in": "body", "required": true, "schema": { "type": "object" } },
            ],
            "responses": {
                "200": { "description": "Done.", "schema": { "type": "string" } },
                "401": { "description": "Who?" },
            },
        });
        assert_eq!(operation(&old), new);
    }
}
