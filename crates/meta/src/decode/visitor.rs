//! Builds a value from any format that serde supports, within limits, and
//! reports duplicate keys.
//!
//! The library's own `Value` takes the last of two equal keys without a report,
//! which strict field validation needs.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::MAX_STRICT_ERRORS;
use crate::path::Path;

/// Maximum number of duplicate fields that are looked at. The path of each is written out to see
/// whether it is reported already.
const MAX_DUPLICATES_EXAMINED: usize = 5 * MAX_STRICT_ERRORS;

pub(super) const TOO_DEEP: &str = "nested too deeply";
pub(super) const TOO_MANY_NODES: &str = "too many values";
pub(super) const BAD_NUMBER: &str = "a number is out of range";
pub(super) const KEY_NOT_TEXT: &str = "a key is not a string";
pub(super) const TOO_MUCH_TEXT: &str = "too much text";
pub(super) const UNSUPPORTED: &str = "a value is of a type that JSON does not have";

/// The state of decoding one document.
pub(super) struct State {
    depth_left: usize,
    /// How many more values the document may have.
    pub(super) nodes_left: usize,
    text_bytes_left: usize,
    duplicates: Vec<String>,
    duplicates_left: usize,
    /// Why this module rejected the input, for parsers with errors that may repeat it.
    pub(super) refusal: Option<&'static str>,
}

impl State {
    /// The state at the start of a document with these limits. `max_text_bytes` is for all
    /// keys and strings together, where aliases can repeat them.
    pub(super) fn new(max_depth: usize, max_nodes: usize, max_text_bytes: usize) -> Self {
        Self {
            depth_left: max_depth,
            nodes_left: max_nodes,
            text_bytes_left: max_text_bytes,
            duplicates: Vec::new(),
            duplicates_left: MAX_DUPLICATES_EXAMINED,
            refusal: None,
        }
    }

    /// The paths of fields that occurred twice.
    pub(super) fn into_duplicates(self) -> Vec<String> {
        self.duplicates
    }

    fn refuse<E: de::Error>(&mut self, why: &'static str) -> E {
        self.refusal = Some(why);
        E::custom(why)
    }

    fn count_node<E: de::Error>(&mut self) -> Result<(), E> {
        match self.nodes_left.checked_sub(1) {
            Some(left) => self.nodes_left = left,
            None => return Err(self.refuse(TOO_MANY_NODES)),
        }
        Ok(())
    }

    fn count_text<E: de::Error>(&mut self, text: &str) -> Result<(), E> {
        match self.text_bytes_left.checked_sub(text.len()) {
            Some(left) => self.text_bytes_left = left,
            None => return Err(self.refuse(TOO_MUCH_TEXT)),
        }
        Ok(())
    }

    fn enter<E: de::Error>(&mut self) -> Result<(), E> {
        match self.depth_left.checked_sub(1) {
            Some(left) => self.depth_left = left,
            None => return Err(self.refuse(TOO_DEEP)),
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth_left += 1;
    }

    /// Records that the field at this path occurred before.
    fn note_duplicate(&mut self, path: &Path<'_>) {
        if self.duplicates.len() < MAX_STRICT_ERRORS && self.duplicates_left > 0 {
            self.duplicates_left -= 1;
            let path = path.to_string();
            if !self.duplicates.contains(&path) {
                self.duplicates.push(path);
            }
        }
    }
}

/// Decodes one value.
pub(super) struct Node<'a> {
    state: &'a mut State,
    path: &'a Path<'a>,
}

impl<'a> Node<'a> {
    /// Decodes the whole document.
    pub(super) fn root(state: &'a mut State) -> Self {
        Self { state, path: &Path::ROOT }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.state.count_node()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Number::from_i128(value).map(Value::Number).ok_or_else(|| self.state.refuse(BAD_NUMBER))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        Number::from_u128(value).map(Value::Number).ok_or_else(|| self.state.refuse(BAD_NUMBER))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| self.state.refuse(BAD_NUMBER))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.state.count_text(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        self.state.count_text(&value)?;
        Ok(Value::String(value))
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Value, E> {
        Err(self.state.refuse(UNSUPPORTED))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Self { state, path } = self;
        state.enter()?;
        // The length that the input announces is not trusted: memory is taken as values come.
        let mut items = Vec::new();
        loop {
            let path = &path.index(items.len());
            let Some(item) = seq.next_element_seed(Node { state, path })? else { break };
            items.push(item);
        }
        state.leave();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Self { state, path } = self;
        state.enter()?;
        let mut fields = Map::new();
        while let Some(key) = entries.next_key_seed(Key(state))? {
            let path = &path.field(&key);
            if fields.contains_key(&key) {
                state.note_duplicate(path);
            }
            let value = entries.next_value_seed(Node { state, path })?;
            fields.insert(key, value);
        }
        state.leave();
        Ok(Value::Object(fields))
    }
}

/// Decodes the key of a field. A number or a boolean becomes text, as the reference clients write it.
struct Key<'a>(&'a mut State);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        // `any`, so that a YAML parser gives the parsed key: `0600` is 384 there, and `on` is true.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string as key")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        self.0.count_text(value)?;
        Ok(value.to_owned())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<String, E> {
        self.0.count_text(&value)?;
        Ok(value)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
        self.visit_string(value.to_string())
    }

    fn visit_unit<E: de::Error>(self) -> Result<String, E> {
        Err(self.0.refuse(KEY_NOT_TEXT))
    }

    fn visit_none<E: de::Error>(self) -> Result<String, E> {
        Err(self.0.refuse(KEY_NOT_TEXT))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(self.0.refuse(KEY_NOT_TEXT))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(self.0.refuse(KEY_NOT_TEXT))
    }
}
