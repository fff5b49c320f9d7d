//! OpenAPI 3 in protobuf: the messages of gnostic's `openapi.v3`, with the fields that the documents use.

use serde_json::Value;

use crate::protobuf::Shape::{Choice, Double, Flag, Integer, List, Named, Text, Wrapped, Yaml};
use crate::protobuf::{self, Message, Shape};

/// The media type in the newer spelling, which Go's parser of media types accepts.
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// The media type in the older spelling, which older clients request.
pub(super) const OLD_MEDIA_TYPE: &str =
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// A document of version 3, encoded.
pub fn encode(document: &Value) -> Vec<u8> {
    document.as_object().map(|fields| protobuf::encode(&DOCUMENT, fields)).unwrap_or_default()
}

static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, Text),
        ("info", 2, Shape::Message(&INFO)),
        ("servers", 3, List(&Shape::Message(&SERVER))),
        ("paths", 4, Named(1, &Shape::Message(&PATH_ITEM))),
        ("components", 5, Shape::Message(&COMPONENTS)),
        ("security", 6, List(&Named(1, &Wrapped(1, &List(&Text))))),
    ],
    extensions: Some(9),
};

static INFO: Message =
    Message { fields: &[("title", 1, Text), ("version", 6, Text)], extensions: Some(7) };

static SERVER: Message = Message { fields: &[("url", 1, Text)], extensions: Some(4) };

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, Named(1, &Choice(schema))),
        ("responses", 2, Named(1, &Choice(response))),
        ("securitySchemes", 7, Named(1, &Wrapped(1, &Shape::Message(&SECURITY_SCHEME)))),
    ],
    extensions: Some(10),
};

static SECURITY_SCHEME: Message = Message {
    fields: &[("type", 1, Text), ("description", 2, Text), ("scheme", 5, Text)],
    extensions: Some(9),
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("description", 3, Text),
        ("get", 4, Shape::Message(&OPERATION)),
        ("put", 5, Shape::Message(&OPERATION)),
        ("post", 6, Shape::Message(&OPERATION)),
        ("delete", 7, Shape::Message(&OPERATION)),
        ("patch", 10, Shape::Message(&OPERATION)),
        ("parameters", 13, List(&Wrapped(1, &Shape::Message(&PARAMETER)))),
    ],
    extensions: Some(14),
};

static OPERATION: Message = Message {
    fields: &[
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, List(&Wrapped(1, &Shape::Message(&PARAMETER)))),
        ("requestBody", 7, Wrapped(1, &Shape::Message(&REQUEST_BODY))),
        ("responses", 8, Named(2, &Choice(response))),
    ],
    extensions: Some(13),
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Flag),
        ("schema", 10, Choice(schema)),
    ],
    extensions: Some(14),
};

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("content", 2, Named(1, &Shape::Message(&MEDIA))),
        ("required", 3, Flag),
    ],
    extensions: Some(4),
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Text), ("content", 3, Named(1, &Shape::Message(&MEDIA)))],
    extensions: Some(5),
};

static MEDIA: Message = Message { fields: &[("schema", 1, Choice(schema))], extensions: Some(5) };

static REFERENCE: Message =
    Message { fields: &[("$ref", 1, Text), ("description", 3, Text)], extensions: None };

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Flag),
        ("readOnly", 3, Flag),
        ("writeOnly", 4, Flag),
        ("example", 7, Yaml),
        ("deprecated", 8, Flag),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Flag),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Flag),
        ("maxLength", 15, Integer),
        ("minLength", 16, Integer),
        ("pattern", 17, Text),
        ("maxItems", 18, Integer),
        ("minItems", 19, Integer),
        ("uniqueItems", 20, Flag),
        ("maxProperties", 21, Integer),
        ("minProperties", 22, Integer),
        ("required", 23, List(&Text)),
        ("enum", 24, List(&Yaml)),
        ("type", 25, Text),
        ("allOf", 26, List(&Choice(schema))),
        ("oneOf", 27, List(&Choice(schema))),
        ("anyOf", 28, List(&Choice(schema))),
        ("not", 29, Shape::Message(&SCHEMA)),
        ("items", 30, Wrapped(1, &List(&Choice(schema)))),
        ("properties", 31, Named(1, &Choice(schema))),
        ("additionalProperties", 32, Choice(additional)),
        ("default", 33, Choice(default)),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: Some(36),
};

fn response(value: &Value) -> &'static Shape {
    static RESPONSE_SHAPE: Shape = Wrapped(1, &Shape::Message(&RESPONSE));
    static REFERENCE_SHAPE: Shape = Wrapped(2, &Shape::Message(&REFERENCE));
    if value.get("$ref").is_some() { &REFERENCE_SHAPE } else { &RESPONSE_SHAPE }
}

fn schema(value: &Value) -> &'static Shape {
    static SCHEMA_SHAPE: Shape = Wrapped(1, &Shape::Message(&SCHEMA));
    static REFERENCE_SHAPE: Shape = Wrapped(2, &Shape::Message(&REFERENCE));
    if value.get("$ref").is_some() { &REFERENCE_SHAPE } else { &SCHEMA_SHAPE }
}

fn additional(value: &Value) -> &'static Shape {
    static FLAG: Shape = Wrapped(2, &Flag);
    static SCHEMA_SHAPE: Shape = Wrapped(1, &Choice(schema));
    if value.is_boolean() { &FLAG } else { &SCHEMA_SHAPE }
}

/// The shape of a default: a number, a boolean or a string.
fn default(value: &Value) -> &'static Shape {
    static NUMBER: Shape = Wrapped(1, &Double);
    static FLAG: Shape = Wrapped(2, &Flag);
    static TEXT: Shape = Wrapped(3, &Text);
    match value {
        Value::Number(_) => &NUMBER,
        Value::Bool(_) => &FLAG,
        _ => &TEXT,
    }
}
