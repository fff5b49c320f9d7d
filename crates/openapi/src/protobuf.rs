//! An encoder for Protocol Buffers: encodes JSON documents as messages that a table describes.
//!
//! The tables are in `gnostic_v2` and `gnostic_v3`. The decoder is `postern_meta::decode::protobuf`.

use serde_json::{Map, Value};

/// The wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// How a JSON value is encoded in a message.
pub(crate) enum Shape {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// An integer.
    Integer,
    /// A floating-point number.
    Double,
    /// Any value, in gnostic's format: a message with the value in YAML in field 2. JSON is also
    /// YAML.
    Yaml,
    /// An object with known fields.
    Message(&'static Message),
    /// A message with this one field, around the value.
    Wrapped(u32, &'static Shape),
    /// An object with any names: a message with this field, repeated for each name. Each entry has `name` (1) and
    /// `value` (2).
    Named(u32, &'static Shape),
    /// A list: the field is repeated. A value that is not a list counts as a list of one item.
    List(&'static Shape),
    /// The value decides the shape.
    Choice(fn(&Value) -> &'static Shape),
}

/// A message.
pub(crate) struct Message {
    /// The names in JSON, the field numbers, and the shapes of the values.
    pub(crate) fields: &'static [(&'static str, u32, Shape)],
    /// The number of the field for names that start with `x-`, if there is one.
    pub(crate) extensions: Option<u32>,
}

/// Encodes an object as a message. Unknown fields are omitted.
pub(crate) fn encode(message: &Message, object: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in object {
        if let Some((_, number, shape)) = message.fields.iter().find(|(known, ..)| known == name) {
            field(&mut out, *number, shape, value);
        } else if let Some(number) = message.extensions.filter(|_| name.starts_with("x-")) {
            entry(&mut out, number, name, &Shape::Yaml, value);
        }
    }
    out
}

fn field(out: &mut Vec<u8>, number: u32, shape: &Shape, value: &Value) {
    match shape {
        Shape::Text => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Shape::Flag => {
            key(out, number, VARINT);
            varint(out, u64::from(value.as_bool().unwrap_or_default()));
        }
        Shape::Integer => {
            key(out, number, VARINT);
            // Negative numbers are written in two's complement.
            varint(out, value.as_i64().unwrap_or_default().cast_unsigned());
        }
        Shape::Double => {
            key(out, number, FIXED64);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Shape::List(item) => match value {
            Value::Array(items) => items.iter().for_each(|value| field(out, number, item, value)),
            one => field(out, number, item, one),
        },
        Shape::Choice(choose) => field(out, number, choose(value), value),
        Shape::Yaml | Shape::Message(_) | Shape::Wrapped(..) | Shape::Named(..) => {
            bytes(out, number, &body(shape, value));
        }
    }
}

/// The content of a message.
fn body(shape: &Shape, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match (shape, value) {
        (Shape::Yaml, value) => bytes(&mut out, 2, value.to_string().as_bytes()),
        (Shape::Message(message), Value::Object(object)) => return encode(message, object),
        (Shape::Wrapped(number, inner), value) => field(&mut out, *number, inner, value),
        (Shape::Named(number, inner), Value::Object(object)) => {
            for (name, value) in object {
                entry(&mut out, *number, name, inner, value);
            }
        }
        _ => {}
    }
    out
}

fn entry(out: &mut Vec<u8>, number: u32, name: &str, shape: &Shape, value: &Value) {
    let mut inner = Vec::new();
    bytes(&mut inner, 1, name.as_bytes());
    field(&mut inner, 2, shape, value);
    bytes(out, number, &inner);
}

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    key(out, number, LENGTH_DELIMITED);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn key(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static INNER: Message =
        Message { fields: &[("deep", 1, Shape::Message(&OUTER))], extensions: None };
    static OUTER: Message = Message {
        fields: &[
            ("text", 1, Shape::Text),
            ("flag", 2, Shape::Flag),
            ("integer", 3, Shape::Integer),
            ("double", 4, Shape::Double),
            ("list", 5, Shape::List(&Shape::Text)),
            ("inner", 6, Shape::Message(&INNER)),
            ("wrapped", 7, Shape::Wrapped(1, &Shape::List(&Shape::Text))),
            ("named", 8, Shape::Named(1, &Shape::Integer)),
            ("yaml", 300, Shape::Yaml),
        ],
        extensions: Some(15),
    };

    fn hex_of(value: &Value) -> String {
        hex::encode(encode(&OUTER, value.as_object().unwrap()))
    }

    /// The expected bytes are computed by hand from the specification of the encoding.
    #[test]
    fn values_are_encoded_as_specified() {
        for (value, want) in [
            (json!({}), ""),
            (json!({ "text": "testing" }), "0a0774657374696e67"),
            (json!({ "flag": true }), "1001"),
            (json!({ "integer": 150 }), "189601"),
            (json!({ "integer": -1 }), "18ffffffffffffffffff01"),
            (json!({ "double": 1.0 }), "21000000000000f03f"),
            (json!({ "list": ["a", "b"] }), "2a01612a0162"),
            (json!({ "list": "a" }), "2a0161"),
            (json!({ "inner": { "deep": { "text": "a" } } }), "32050a030a0161"),
            (json!({ "wrapped": ["a", "b"] }), "3a060a01610a0162"),
            (json!({ "named": { "k": 1 } }), "42070a050a016b1001"),
            (json!({ "yaml": { "a": 1 } }), "e2120912077b2261223a317d"),
            (json!({ "x-y": true }), "7a0d0a03782d79120612047472 7565"),
            (json!({ "unknown": 1 }), ""),
        ] {
            assert_eq!(hex_of(&value), want.replace(' ', ""), "{value}");
        }
    }
}
