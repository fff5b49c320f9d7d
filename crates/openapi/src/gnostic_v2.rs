//! OpenAPI 2 in protobuf: the messages of gnostic's `openapi.v2`, with the fields that the document uses.

use serde_json::Value;

use crate::protobuf::Shape::{Choice, Double, Flag, Integer, List, Named, Text, Wrapped, Yaml};
use crate::protobuf::{self, Message, Shape};

/// The media type in the newer spelling, which Go's parser of media types accepts.
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The media type in the older spelling, which older clients request.
pub(super) const OLD_MEDIA_TYPE: &str =
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// A document of version 2, encoded.
pub fn encode(document: &Value) -> Vec<u8> {
    document.as_object().map(|fields| protobuf::encode(&DOCUMENT, fields)).unwrap_or_default()
}

static TEXTS: Shape = List(&Text);

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, Shape::Message(&INFO)),
        ("basePath", 4, Text),
        ("paths", 8, Named(2, &Shape::Message(&PATH_ITEM))),
        ("definitions", 9, Named(1, &Shape::Message(&SCHEMA))),
        ("security", 12, List(&Named(1, &Wrapped(1, &TEXTS)))),
        ("securityDefinitions", 13, Named(1, &Wrapped(2, &Shape::Message(&API_KEY)))),
    ],
    extensions: Some(16),
};

static INFO: Message =
    Message { fields: &[("title", 1, Text), ("version", 2, Text)], extensions: Some(7) };

static API_KEY: Message = Message {
    fields: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: Some(5),
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Shape::Message(&OPERATION)),
        ("put", 3, Shape::Message(&OPERATION)),
        ("post", 4, Shape::Message(&OPERATION)),
        ("delete", 5, Shape::Message(&OPERATION)),
        ("patch", 8, Shape::Message(&OPERATION)),
        ("parameters", 9, List(&Choice(parameter))),
    ],
    extensions: Some(10),
};

static OPERATION: Message = Message {
    fields: &[
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, List(&Text)),
        ("consumes", 7, List(&Text)),
        ("parameters", 8, List(&Choice(parameter))),
        ("responses", 9, Named(1, &Wrapped(1, &Shape::Message(&RESPONSE)))),
    ],
    extensions: Some(13),
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Text), ("schema", 2, Wrapped(1, &Shape::Message(&SCHEMA)))],
    extensions: Some(5),
};

/// The shape of a parameter. It is wrapped in a message for "not a reference", and in one for its location.
fn parameter(value: &Value) -> &'static Shape {
    static BODY: Shape = Wrapped(1, &Wrapped(1, &Shape::Message(&BODY_PARAMETER)));
    static QUERY: Shape = Wrapped(1, &Wrapped(2, &Wrapped(3, &Shape::Message(&QUERY_PARAMETER))));
    static PATH: Shape = Wrapped(1, &Wrapped(2, &Wrapped(4, &Shape::Message(&PATH_PARAMETER))));
    match value["in"].as_str() {
        Some("body") => &BODY,
        Some("path") => &PATH,
        _ => &QUERY,
    }
}

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, Shape::Message(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("format", 7, Text),
    ],
    extensions: Some(23),
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
    ],
    extensions: Some(22),
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Yaml),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, List(&Text)),
        ("enum", 20, List(&Yaml)),
        ("additionalProperties", 21, Choice(additional)),
        ("type", 22, Wrapped(1, &TEXTS)),
        ("items", 23, Wrapped(1, &List(&Shape::Message(&SCHEMA)))),
        ("allOf", 24, List(&Shape::Message(&SCHEMA))),
        ("properties", 25, Named(1, &Shape::Message(&SCHEMA))),
        ("readOnly", 27, Flag),
        ("example", 30, Yaml),
    ],
    extensions: Some(31),
};

fn additional(value: &Value) -> &'static Shape {
    static FLAG: Shape = Wrapped(2, &Flag);
    static SCHEMA_SHAPE: Shape = Wrapped(1, &Shape::Message(&SCHEMA));
    if value.is_boolean() { &FLAG } else { &SCHEMA_SHAPE }
}
