//! A decoder of `OpenAPI` 2 in protobuf, only for tests: it returns the equivalent JSON.
//!
//! Written from gnostic's message definitions, and independent of the server's encoder. An unknown
//! field is a failure.

use serde_json::{Map, Value, json};

/// A field of a message: its number and its content.
enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            _ => panic!("a field that should hold bytes holds a number"),
        }
    }

    fn text(&self) -> Value {
        std::str::from_utf8(self.bytes()).unwrap().into()
    }

    fn flag(&self) -> Value {
        match self {
            Field::Number(number) => (*number != 0).into(),
            _ => panic!("no boolean"),
        }
    }

    fn number(&self) -> Value {
        match self {
            Field::Number(number) => number.cast_signed().into(),
            Field::Double(double) if double.fract() == 0.0 => {
                format!("{double:.0}").parse::<i64>().unwrap().into()
            }
            Field::Double(double) => (*double).into(),
            Field::Bytes(_) => panic!("no number"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (double, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Double(f64::from_le_bytes(double.try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

/// The content of the only field of a wrapper message, with its number.
fn only(bytes: &[u8]) -> (u64, &[u8]) {
    let fields = fields(bytes);
    assert_eq!(fields.len(), 1, "a wrapper message has one field");
    (fields[0].0, fields[0].1.bytes())
}

fn unwrapped(bytes: &[u8], number: u64) -> &[u8] {
    let (field_number, content) = only(bytes);
    assert_eq!(field_number, number);
    content
}

fn entry(bytes: &[u8], value: impl Fn(&[u8]) -> Value) -> (String, Value) {
    let fields = fields(bytes);
    let at =
        |number| fields.iter().find(|(field_number, _)| *field_number == number).unwrap().1.bytes();
    (std::str::from_utf8(at(1)).unwrap().to_owned(), value(at(2)))
}

/// Decodes a map as gnostic encodes it: entries in one repeated field.
fn map(bytes: &[u8], number: u64, value: impl Fn(&[u8]) -> Value) -> Value {
    let entries = fields(bytes).into_iter().map(|(field_number, field)| {
        assert_eq!(field_number, number);
        entry(field.bytes(), &value)
    });
    Value::Object(entries.collect())
}

fn texts(bytes: &[u8]) -> Vec<Value> {
    fields(bytes).iter().map(|(_, field)| field.text()).collect()
}

/// Decodes an `Any`: the text of its YAML, which is JSON here.
fn any(bytes: &[u8]) -> Value {
    serde_json::from_slice(unwrapped(bytes, 2)).unwrap()
}

/// Decodes a message: `read` returns the JSON name of a field and its value, `None` for the number
/// with the extensions. Repeated names become lists.
fn message(
    bytes: &[u8],
    extensions: u64,
    lists: &[&str],
    read: impl Fn(u64, &Field<'_>) -> (&'static str, Value),
) -> Value {
    let mut object = Map::new();
    for (number, field) in fields(bytes) {
        if number == extensions {
            let (name, value) = entry(field.bytes(), any);
            object.insert(name, value);
            continue;
        }
        let (name, value) = read(number, &field);
        if lists.contains(&name) {
            let list = object.entry(name).or_insert_with(|| json!([]));
            list.as_array_mut().unwrap().push(value);
        } else {
            assert!(object.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        }
    }
    Value::Object(object)
}

/// Decodes a whole document.
pub(crate) fn document(bytes: &[u8]) -> Value {
    message(bytes, 16, &["security"], |number, field| match number {
        1 => ("swagger", field.text()),
        2 => ("info", info(field.bytes())),
        4 => ("basePath", field.text()),
        8 => ("paths", map(field.bytes(), 2, path_item)),
        9 => ("definitions", map(field.bytes(), 1, schema)),
        12 => ("security", map(field.bytes(), 1, |array| texts(array).into())),
        13 => ("securityDefinitions", map(field.bytes(), 1, |item| api_key(unwrapped(item, 2)))),
        other => panic!("document field {other}"),
    })
}

fn info(bytes: &[u8]) -> Value {
    message(bytes, 7, &[], |number, field| match number {
        1 => ("title", field.text()),
        2 => ("version", field.text()),
        other => panic!("info field {other}"),
    })
}

fn api_key(bytes: &[u8]) -> Value {
    message(bytes, 5, &[], |number, field| match number {
        1 => ("type", field.text()),
        2 => ("name", field.text()),
        3 => ("in", field.text()),
        4 => ("description", field.text()),
        other => panic!("api key field {other}"),
    })
}

fn path_item(bytes: &[u8]) -> Value {
    message(bytes, 10, &["parameters"], |number, field| match number {
        2 => ("get", operation(field.bytes())),
        3 => ("put", operation(field.bytes())),
        4 => ("post", operation(field.bytes())),
        5 => ("delete", operation(field.bytes())),
        8 => ("patch", operation(field.bytes())),
        9 => ("parameters", parameter(field.bytes())),
        other => panic!("path item field {other}"),
    })
}

fn operation(bytes: &[u8]) -> Value {
    let lists = ["produces", "consumes", "parameters"];
    message(bytes, 13, &lists, |number, field| match number {
        3 => ("description", field.text()),
        5 => ("operationId", field.text()),
        6 => ("produces", field.text()),
        7 => ("consumes", field.text()),
        8 => ("parameters", parameter(field.bytes())),
        9 => ("responses", map(field.bytes(), 1, |value| response(unwrapped(value, 1)))),
        other => panic!("operation field {other}"),
    })
}

fn response(bytes: &[u8]) -> Value {
    message(bytes, 5, &[], |number, field| match number {
        1 => ("description", field.text()),
        2 => ("schema", schema(unwrapped(field.bytes(), 1))),
        other => panic!("response field {other}"),
    })
}

fn parameter(bytes: &[u8]) -> Value {
    match only(unwrapped(bytes, 1)) {
        (1, body) => message(body, 6, &[], |number, field| match number {
            1 => ("description", field.text()),
            2 => ("name", field.text()),
            3 => ("in", field.text()),
            4 => ("required", field.flag()),
            5 => ("schema", schema(field.bytes())),
            other => panic!("body parameter field {other}"),
        }),
        (2, other) => match only(other) {
            // A query parameter has one more field than a path parameter, before its type.
            (3, query) => plain_parameter(query, 23, 1),
            (4, path) => plain_parameter(path, 22, 0),
            (other, _) => panic!("parameter of sort {other}"),
        },
        (other, _) => panic!("parameter of sort {other}"),
    }
}

fn plain_parameter(bytes: &[u8], extensions: u64, shift: u64) -> Value {
    message(bytes, extensions, &[], |number, field| match number {
        1 => ("required", field.flag()),
        2 => ("in", field.text()),
        3 => ("description", field.text()),
        4 => ("name", field.text()),
        number if number == 5 + shift => ("type", field.text()),
        number if number == 6 + shift => ("format", field.text()),
        other => panic!("parameter field {other}"),
    })
}

fn schema(bytes: &[u8]) -> Value {
    message(bytes, 31, &["required", "enum"], |number, field| match number {
        1 => ("$ref", field.text()),
        2 => ("format", field.text()),
        4 => ("description", field.text()),
        5 => ("default", any(field.bytes())),
        7 => ("maximum", field.number()),
        9 => ("minimum", field.number()),
        11 => ("maxLength", field.number()),
        12 => ("minLength", field.number()),
        13 => ("pattern", field.text()),
        14 => ("maxItems", field.number()),
        15 => ("minItems", field.number()),
        19 => ("required", field.text()),
        20 => ("enum", any(field.bytes())),
        21 => ("additionalProperties", additional(field.bytes())),
        22 => ("type", texts(field.bytes()).remove(0)),
        23 => ("items", schema(unwrapped(field.bytes(), 1))),
        25 => ("properties", map(field.bytes(), 1, schema)),
        27 => ("readOnly", field.flag()),
        other => panic!("schema field {other}"),
    })
}

fn additional(bytes: &[u8]) -> Value {
    match &fields(bytes)[..] {
        [(1, field)] => schema(field.bytes()),
        [(2, field)] => field.flag(),
        _ => panic!("additional properties are a schema or a boolean"),
    }
}
