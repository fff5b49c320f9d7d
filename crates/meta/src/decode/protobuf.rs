//! Decoding of protobuf: bodies of typed Kubernetes clients, as the JSON that they mean.
//!
//! Since client-go 0.32 typed clients send core kinds in protobuf and do not fall back on 415, so
//! `kubectl create namespace` needs this. Only what such bodies may hold is decoded, and nothing is
//! encoded: responses are JSON. The tables below are the field numbers of the public definitions.

use serde_json::{Map, Value, json};

use super::DecodeError;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Maximum depth of messages in messages; `ownerReferences` are two deep.
const MAX_DEPTH: usize = 8;

/// Maximum number of fields in all messages of one body.
const MAX_FIELDS: usize = 100_000;

/// The type of a field.
enum Type {
    Text,
    Integer,
    Bool,
    /// Seconds in a message of its own; RFC 3339 in JSON.
    Time,
    /// A map of text to text.
    TextMap,
    Message(&'static [Field]),
    /// A repeated field.
    List(&'static Type),
}

/// Number, name in JSON, type.
type Field = (u64, &'static str, Type);

const OWNER_REFERENCE: &[Field] = &[
    (1, "kind", Type::Text),
    (3, "name", Type::Text),
    (4, "uid", Type::Text),
    (5, "apiVersion", Type::Text),
    (6, "controller", Type::Bool),
    (7, "blockOwnerDeletion", Type::Bool),
];

const OBJECT_META: &[Field] = &[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (4, "selfLink", Type::Text),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (7, "generation", Type::Integer),
    (8, "creationTimestamp", Type::Time),
    (9, "deletionTimestamp", Type::Time),
    (10, "deletionGracePeriodSeconds", Type::Integer),
    (11, "labels", Type::TextMap),
    (12, "annotations", Type::TextMap),
    (13, "ownerReferences", Type::List(&Type::Message(OWNER_REFERENCE))),
    (14, "finalizers", Type::List(&Type::Text)),
];

const NAMESPACE: &[Field] = &[
    (1, "metadata", Type::Message(OBJECT_META)),
    (2, "spec", Type::Message(&[(1, "finalizers", Type::List(&Type::Text))])),
    (3, "status", Type::Message(&[(1, "phase", Type::Text)])),
];

const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Type::Integer),
    (
        2,
        "preconditions",
        Type::Message(&[(1, "uid", Type::Text), (2, "resourceVersion", Type::Text)]),
    ),
    (3, "orphanDependents", Type::Bool),
    (4, "propagationPolicy", Type::Text),
    (5, "dryRun", Type::List(&Type::Text)),
    (6, "ignoreStoreReadErrorWithClusterBreakingPotential", Type::Bool),
];

const ENVELOPE: &[Field] = &[
    (1, "type", Type::Message(&[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)])),
    // Field 2 holds the object itself, which is read by its own table.
];

/// The field of the envelope that holds the object.
const RAW: u64 = 2;

/// Decodes a body. Returns the object as JSON, with its `apiVersion` and `kind`.
///
/// # Errors
/// When it is not a protobuf body, or of a kind that is not supported in protobuf. The error holds
/// no content.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| error("it does not begin with k8s"))?;
    let mut budget = MAX_FIELDS;
    let envelope = message(body, ENVELOPE, 0, &mut budget)?;
    let text = |name: &str| envelope["type"][name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let table = match kind.as_str() {
        "Namespace" => NAMESPACE,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return Err(error("its kind is not read in this format: send JSON")),
    };
    let mut raw: &[u8] = &[];
    let mut rest = body;
    while let Some((number, wire)) = next_field(&mut rest)? {
        if let (RAW, Wire::Bytes(bytes)) = (number, wire) {
            raw = bytes;
        }
    }
    let mut object = message(raw, table, 0, &mut budget)?;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(object)
}

/// A field's value in the wire format.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed-size numbers: no known field has them.
    Skipped,
}

fn error(why: &str) -> DecodeError {
    DecodeError::new(format!("the protobuf body cannot be read: {why}"))
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, Wire<'a>)>, DecodeError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let tag = varint(rest)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Wire::Skipped)?,
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| error("a length is wrong"))?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Wire::Skipped)?,
        _ => return Err(error("a field has an unknown wire type")),
    };
    Ok(Some((tag >> 3, wire)))
}

fn varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(error("a number is too long"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, left) = rest.split_at_checked(length).ok_or_else(|| error("it ends too early"))?;
    *rest = left;
    Ok(taken)
}

fn message(
    mut rest: &[u8],
    table: &'static [Field],
    depth: usize,
    budget: &mut usize,
) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(error("it is nested too deeply"));
    }
    let mut fields = Map::new();
    while let Some((number, wire)) = next_field(&mut rest)? {
        *budget = budget.checked_sub(1).ok_or_else(|| error("it has too many fields"))?;
        // What is not in the table is ignored, as unknown fields in protobuf are.
        let Some((_, name, r#type)) = table.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        match r#type {
            Type::List(of) => {
                let item = value(of, &wire, depth, budget)?;
                let list = fields.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut().map(|list| list.push(item)).unwrap_or_default();
            }
            Type::TextMap => {
                const ENTRY: &[Field] = &[(1, "key", Type::Text), (2, "value", Type::Text)];
                let entry = value(&Type::Message(ENTRY), &wire, depth, budget)?;
                let text = |part: &str| entry[part].as_str().unwrap_or_default().to_owned();
                let map = fields.entry(*name).or_insert_with(|| json!({}));
                map[text("key")] = json!(text("value"));
            }
            one => {
                fields.insert((*name).to_owned(), value(one, &wire, depth, budget)?);
            }
        }
    }
    Ok(Value::Object(fields))
}

fn value(
    r#type: &Type,
    wire: &Wire<'_>,
    depth: usize,
    budget: &mut usize,
) -> Result<Value, DecodeError> {
    match (r#type, wire) {
        (Type::Text, Wire::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| error("a text is not UTF-8"))?;
            Ok(Value::from(text))
        }
        (Type::Integer, Wire::Number(number)) => Ok(Value::from(number.cast_signed())),
        (Type::Bool, Wire::Number(number)) => Ok(Value::from(*number != 0)),
        (Type::Time, Wire::Bytes(bytes)) => {
            let seconds = message(bytes, &[(1, "seconds", Type::Integer)], depth + 1, budget)?;
            // For no time, Go clients send an empty message.
            Ok(seconds["seconds"].as_i64().map_or(Value::Null, |seconds| {
                Value::from(crate::time::Timestamp::from_unix_seconds(seconds).to_string())
            }))
        }
        (Type::Message(table), Wire::Bytes(bytes)) => message(bytes, table, depth + 1, budget),
        _ => Err(error("a field has another type than it should")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        field.extend(bytes);
        field
    }

    fn body(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let r#type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &r#type), field(2, object)].concat()
    }

    #[test]
    fn a_namespace_as_kubectl_sends_it() {
        let label = [field(1, b"app"), field(2, b"shop")].concat();
        // Go clients send an empty creationTimestamp.
        let metadata =
            [field(1, b"team-a"), field(8, b""), field(11, &label), field(14, b"x.io/a")].concat();
        let object = [field(1, &metadata), field(2, b""), field(3, b"")].concat();
        let want = json!({
            "apiVersion": "v1", "kind": "Namespace", "spec": {}, "status": {},
            "metadata": {
                "name": "team-a", "creationTimestamp": null, "labels": { "app": "shop" },
                "finalizers": ["x.io/a"],
            },
        });
        assert_eq!(decode(&body("v1", "Namespace", &object)).unwrap(), want);
    }

    #[test]
    fn delete_options() {
        let object = [field(4, b"Background"), vec![1 << 3, 30], field(5, b"All")].concat();
        let options = decode(&body("v1", "DeleteOptions", &object)).unwrap();
        assert_eq!(options["propagationPolicy"], "Background");
        assert_eq!(options["gracePeriodSeconds"], 30);
        assert_eq!(options["dryRun"], json!(["All"]));
    }

    #[test]
    fn errors_hold_no_content() {
        let whole = body("v1", "Namespace", &field(1, &field(1, b"hunter2")));
        for cut in 0..whole.len() {
            if let Err(error) = decode(&whole[..cut]) {
                assert!(!error.to_string().contains("hunter2"));
            }
        }
        for bad in [&b""[..], b"{}", &body("v1", "Pod", b""), &body("v1", "Namespace", &[0x08, 1])]
        {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[MAGIC, &bytes].concat());
            let _ = decode(&body("v1", "Namespace", &bytes[..bytes.len().min(100)]));
        }
    }
}
