//! Decoding of protobuf: bodies of typed Kubernetes clients, as the JSON that they mean.
//!
//! Since client-go 0.32 typed clients send core kinds in protobuf and do not fall back on 415, so
//! `kubectl create namespace` and `kubectl auth can-i` need this. Only the kinds of the tables in
//! `messages` are decoded, and nothing is encoded: responses are JSON.
//!
//! A field that is not in its table becomes a null of the name `#NUMBER`. So all code that treats
//! unknown fields of JSON treats it the same way.

mod messages;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::{DecodeError, MAX_DEPTH, MAX_JSON_NODES, json};
use crate::gvk::GroupVersion;
use crate::time::{MicroTimestamp, Timestamp};
use messages::{DELETE_OPTIONS, Field, OBJECTS, TYPE_META, Type};
use wire::{Wire, error, next_field};

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Whether objects of a kind are read in protobuf.
pub fn reads_protobuf(version: GroupVersion, kind: &str) -> bool {
    OBJECTS.iter().any(|(known, name, _)| *known == version && *name == kind)
}

/// Decodes a body. Returns the object as JSON, with its `apiVersion` and `kind`.
///
/// # Errors
/// When it is not a protobuf body, is one of a kind that is not read in protobuf, holds a field
/// twice that is not a list, or exceeds the limits of JSON. The error holds no content.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| error("it does not begin with k8s"))?;
    let mut reader = Reader { nodes_left: MAX_JSON_NODES };
    let (r#type, raw) = reader.envelope(body)?;
    let text = |name: &str| r#type.get(name).and_then(Value::as_str).unwrap_or_default();
    let table = table_of(text("apiVersion"), text("kind"))
        .ok_or_else(|| error("this kind cannot be sent as protobuf: send JSON"))?;
    let mut object = reader.message(raw, table, 1)?;
    object.extend(r#type);
    Ok(Value::Object(object))
}

fn table_of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    if kind == "DeleteOptions" {
        return Some(DELETE_OPTIONS);
    }
    OBJECTS
        .iter()
        .find(|(version, name, _)| *name == kind && version.matches(api_version))
        .map(|(.., table)| *table)
}

/// Which rows of a table have been seen in one message. A field that is there twice would be
/// one value for this reader and perhaps the other for the next one, and no client sends it.
#[derive(Default)]
struct SeenFields(u64);

impl SeenFields {
    fn note(&mut self, row: usize) -> Result<(), DecodeError> {
        let bit = 1 << row;
        if self.0 & bit != 0 {
            return Err(duplicate_field());
        }
        self.0 |= bit;
        Ok(())
    }
}

fn duplicate_field() -> DecodeError {
    error("a field occurs twice")
}

fn mistyped() -> DecodeError {
    error("a field has the wrong type")
}

/// Reads one body within limits.
struct Reader {
    /// How many more values it may have, counted as in JSON.
    nodes_left: usize,
}

impl Reader {
    /// Reads `runtime.Unknown`. Returns its type and the bytes of its object.
    fn envelope<'a>(
        &mut self,
        mut rest: &'a [u8],
    ) -> Result<(Map<String, Value>, &'a [u8]), DecodeError> {
        let (mut seen, mut r#type, mut raw) = (SeenFields::default(), Map::new(), &b""[..]);
        while let Some((number, wire)) = next_field(&mut rest)? {
            self.count()?;
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => {
                    seen.note(1)?;
                    r#type = self.message(bytes, TYPE_META, 1)?;
                }
                (2, Wire::Bytes(bytes)) => {
                    seen.note(2)?;
                    raw = bytes;
                }
                // Encoding and media type of the object.
                (3, Wire::Bytes(b"")) => {}
                (4, Wire::Bytes(media)) if media.is_empty() || media == MEDIA_TYPE.as_bytes() => {}
                (1..=4, _) => return Err(error("its envelope is of another type")),
                _ => {}
            }
        }
        r#type.retain(|_, value| value.is_string());
        Ok((r#type, raw))
    }

    fn count(&mut self) -> Result<(), DecodeError> {
        self.nodes_left =
            self.nodes_left.checked_sub(1).ok_or_else(|| error("it has too many values"))?;
        Ok(())
    }

    /// Reads the fields of a message. `depth` is the number of lists and objects around them.
    fn message(
        &mut self,
        mut rest: &[u8],
        table: &'static [Field],
        depth: usize,
    ) -> Result<Map<String, Value>, DecodeError> {
        let (mut fields, mut seen) = (Map::new(), SeenFields::default());
        while let Some((number, wire)) = next_field(&mut rest)? {
            self.count()?;
            let known = table.iter().enumerate().find(|(_, (known, ..))| *known == number);
            let Some((row, (_, name, r#type))) = known else {
                fields.insert(format!("#{number}"), Value::Null);
                continue;
            };
            match r#type {
                Type::List(of) => {
                    let item = self.value(of, wire, depth + 1)?;
                    let list = self.container(&mut fields, name, || Value::Array(Vec::new()))?;
                    list.as_array_mut().map(|list| list.push(item)).unwrap_or_default();
                }
                Type::Map(of) => {
                    let map = self.container(&mut fields, name, || Value::Object(Map::new()))?;
                    if let Some(map) = map.as_object_mut() {
                        self.entry(map, of, wire, depth + 1)?;
                    }
                }
                one => {
                    seen.note(row)?;
                    let value = self.value(one, wire, depth)?;
                    if !is_left_out(one, &value) {
                        fields.insert((*name).to_owned(), value);
                    }
                }
            }
        }
        Ok(fields)
    }

    /// The list or map to which a repeated field adds.
    fn container<'a>(
        &mut self,
        fields: &'a mut Map<String, Value>,
        name: &str,
        empty: fn() -> Value,
    ) -> Result<&'a mut Value, DecodeError> {
        if !fields.contains_key(name) {
            self.count()?;
        }
        Ok(fields.entry(name).or_insert_with(empty))
    }

    /// Reads an entry of a map. A key or value that is absent is the empty one.
    fn entry(
        &mut self,
        map: &mut Map<String, Value>,
        of: &'static Type,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let Wire::Bytes(mut rest) = wire else { return Err(mistyped()) };
        let (mut seen, mut key, mut value) = (SeenFields::default(), "", Wire::Bytes(b""));
        while let Some((number, wire)) = next_field(&mut rest)? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => {
                    seen.note(1)?;
                    key = text(bytes)?;
                }
                (2, wire) => {
                    seen.note(2)?;
                    value = wire;
                }
                _ => return Err(mistyped()),
            }
        }
        let value = self.value(of, value, depth)?;
        match map.insert(key.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(duplicate_field()),
        }
    }

    fn value(
        &mut self,
        r#type: &'static Type,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<Value, DecodeError> {
        match (r#type, wire) {
            (Type::Explicit(of), wire) => self.value(of, wire, depth),
            (Type::Text, Wire::Bytes(bytes)) => Ok(Value::from(text(bytes)?)),
            (Type::Bytes, Wire::Bytes(bytes)) => Ok(Value::from(BASE64.encode(bytes))),
            (Type::Integer, Wire::Number(number)) => Ok(Value::from(number.cast_signed())),
            (Type::Integer32, Wire::Number(number)) => Ok(Value::from(
                i32::try_from(number.cast_signed())
                    .map_err(|_| error("a number is out of range"))?,
            )),
            (Type::Bool, Wire::Number(number)) => Ok(Value::from(number != 0)),
            (Type::Time | Type::MicroTime, Wire::Bytes(b"")) => Ok(Value::Null),
            (Type::Time, Wire::Bytes(bytes)) => {
                self.time(bytes).map(|(seconds, _)| Value::from(seconds.to_string()))
            }
            (Type::MicroTime, Wire::Bytes(bytes)) => self.time(bytes).map(|(seconds, micros)| {
                let micros = seconds.unix_seconds() * 1_000_000 + micros;
                Value::from(MicroTimestamp::from_unix_microseconds(micros).to_string())
            }),
            (Type::Json, Wire::Bytes(bytes)) => self.json(bytes, depth),
            (Type::Texts, Wire::Bytes(bytes)) => {
                const LIST: &[Field] = &[(1, "items", Type::List(&Type::Text))];
                let items = self.message(bytes, LIST, depth)?.remove("items");
                Ok(items.unwrap_or_else(|| Value::Array(Vec::new())))
            }
            (Type::Message(table), Wire::Bytes(bytes)) => {
                self.message(bytes, table, depth + 1).map(Value::Object)
            }
            _ => Err(mistyped()),
        }
    }

    /// Reads a time: whole seconds, and the microseconds after them.
    fn time(&mut self, bytes: &[u8]) -> Result<(Timestamp, i64), DecodeError> {
        const TIME: &[Field] = &[(1, "seconds", Type::Integer), (2, "nanos", Type::Integer32)];
        let parts = self.message(bytes, TIME, 0)?;
        let part = |name: &str| parts.get(name).and_then(Value::as_i64).unwrap_or_default();
        let (seconds, nanos) = (part("seconds"), part("nanos"));
        let time = Timestamp::from_unix_seconds(seconds);
        if time.unix_seconds() != seconds || !(0..1_000_000_000).contains(&nanos) {
            return Err(error("a time is out of range"));
        }
        Ok((time, nanos / 1000))
    }

    /// Reads the JSON that `FieldsV1` holds.
    fn json(&mut self, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let (mut rest, mut seen, mut value) = (bytes, SeenFields::default(), Value::Null);
        while let Some((number, wire)) = next_field(&mut rest)? {
            let (1, Wire::Bytes(bytes)) = (number, wire) else { return Err(mistyped()) };
            seen.note(1)?;
            if !bytes.is_empty() {
                let max_depth = MAX_DEPTH.saturating_sub(depth);
                let decoded = json::decode_part(bytes, max_depth, &mut self.nodes_left)
                    .map_err(|reason| error(&format!("its managed fields: {reason}")))?;
                if !decoded.duplicates.is_empty() {
                    return Err(duplicate_field());
                }
                value = decoded.value;
            }
        }
        Ok(value)
    }
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| error("a text is not UTF-8"))
}

/// Whether JSON leaves the value out: see [`Type`].
fn is_left_out(r#type: &Type, value: &Value) -> bool {
    match r#type {
        Type::Text => value == "",
        Type::Integer | Type::Integer32 => value == 0,
        Type::Bool => value == false,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
