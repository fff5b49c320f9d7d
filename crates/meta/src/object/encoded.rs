//! Changes to objects in their encoded form, for where decoding the whole object would cost more
//! than the change.
//!
//! Only for JSON that this program wrote itself ([`Object::to_json_bytes`]): no white space between tokens, and the
//! fields of an object in the order of their names. `decode` decodes the JSON of clients.
//!
//! [`Object::to_json_bytes`]: super::Object::to_json_bytes

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::json_bytes;
use crate::decode::decode_typed;

/// The name of the last field of a stored object, as it is written.
const STATUS: &[u8] = b"\"status\"";

/// The object `json` with `fields` set in its status: existing ones are replaced, the
/// others inserted in the order of their names. If `fields` has a name twice, the later one counts.
///
/// The result is what decoding, setting and encoding again would give, but everything else is
/// copied as it is. It takes one walk over `json`, and allocates little more than the result.
///
/// `None` when the last top-level field of `json` is not `status`, or that is not an object, or
/// `json` is not in the form that [`Object::to_json_bytes`] writes. Values are not validated.
///
/// [`Object::to_json_bytes`]: super::Object::to_json_bytes
pub fn merge_status(json: &[u8], fields: &[(&str, Value)]) -> Option<Vec<u8>> {
    let mut last = None;
    for_each_member(json, |member| {
        last = Some(member);
        Some(())
    })?;
    let status = last.filter(|member| member.name == STATUS)?.value;
    let fields: BTreeMap<&[u8], Vec<u8>> =
        fields.iter().map(|(name, value)| (name.as_bytes(), written(name, value))).collect();
    let added: usize = fields.values().map(|field| field.len() + ",".len()).sum();
    let before = json.len().checked_sub(status.len() + "}".len())?;
    let mut merged = Vec::with_capacity(json.len() + added);
    merged.extend_from_slice(json.get(..before)?);
    merge(status, fields, &mut merged)?;
    merged.push(b'}');
    Some(merged)
}

/// Appends the object `json` with `fields`, which are encoded already, to `merged`. Both are in
/// the order of their names.
fn merge(json: &[u8], fields: BTreeMap<&[u8], Vec<u8>>, merged: &mut Vec<u8>) -> Option<()> {
    let mut fields = fields.into_iter().peekable();
    merged.push(b'{');
    let start = merged.len();
    let push = |merged: &mut Vec<u8>, parts: &[&[u8]]| {
        if merged.len() > start {
            merged.push(b',');
        }
        for part in parts {
            merged.extend_from_slice(part);
        }
    };
    let mut last: Option<Cow<'_, [u8]>> = None;
    for_each_member(json, |member| {
        let name = member.decoded_name()?;
        // In another order, a field of the same name could still come.
        if last.as_ref().is_some_and(|last| *last >= name) {
            return None;
        }
        while let Some((_, field)) = fields.next_if(|(new, _)| *new < &*name) {
            push(merged, &[&field]);
        }
        match fields.next_if(|(new, _)| *new == &*name) {
            Some((_, field)) => push(merged, &[&field]),
            None => push(merged, &[member.name, b":", member.value]),
        }
        last = Some(name);
        Some(())
    })?;
    for (_, field) in fields {
        push(merged, &[&field]);
    }
    merged.push(b'}');
    Some(())
}

/// A field as it is written: name, colon, value.
fn written(name: &str, value: &Value) -> Vec<u8> {
    let mut field = json_bytes(&name);
    field.push(b':');
    field.extend(json_bytes(value));
    field
}

/// One field of an object, as it is written.
#[derive(Clone, Copy)]
struct Member<'a> {
    /// In its quotes.
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Member<'a> {
    /// The name itself. Allocates only where the name is written with escapes.
    fn decoded_name(self) -> Option<Cow<'a, [u8]>> {
        if self.name.contains(&b'\\') {
            let name: String = decode_typed(self.name).ok()?;
            return Some(Cow::Owned(name.into_bytes()));
        }
        let name = self.name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(Cow::Borrowed(name))
    }
}

/// Calls `visit` with each field of an object, in their order. `None` when `json` is not one
/// object without white space between its fields, or as soon as `visit` returns `None`.
fn for_each_member<'a>(
    json: &'a [u8],
    mut visit: impl FnMut(Member<'a>) -> Option<()>,
) -> Option<()> {
    let mut rest = json.strip_prefix(b"{")?;
    if rest == b"}" {
        return Some(());
    }
    loop {
        let (name, after_name) = rest.split_at_checked(string_length(rest)?)?;
        let after_colon = after_name.strip_prefix(b":")?;
        let (value, after_value) = after_colon.split_at_checked(value_length(after_colon)?)?;
        visit(Member { name, value })?;
        match after_value {
            b"}" => return Some(()),
            [b',', more @ ..] => rest = more,
            _ => return None,
        }
    }
}

/// How many bytes the value has that `json` begins with. `None` when it has no end.
fn value_length(json: &[u8]) -> Option<usize> {
    match json.first()? {
        b'"' => string_length(json),
        b'{' | b'[' => nested_length(json),
        _ => json.iter().position(|byte| matches!(byte, b',' | b'}')).filter(|length| *length > 0),
    }
}

/// How many bytes the object or list has that `json` begins with.
fn nested_length(json: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match json.get(at)? {
            b'"' => {
                at += string_length(json.get(at..)?)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// How many bytes the string has that `json` begins with, quotes included.
fn string_length(json: &[u8]) -> Option<usize> {
    let mut at = json.starts_with(b"\"").then_some(1)?;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::super::Object;
    use super::*;

    fn merged(json: &str, fields: &[(&str, Value)]) -> Option<String> {
        merge_status(json.as_bytes(), fields).map(|json| String::from_utf8(json).unwrap())
    }

    #[test]
    fn fields_are_inserted_by_name_or_replaced() {
        for (status, want) in [
            ("{}", r#"{"m":1,"z":{"a":[]}}"#),
            (r#"{"a":0}"#, r#"{"a":0,"m":1,"z":{"a":[]}}"#),
            (r#"{"n":"}{"}"#, r#"{"m":1,"n":"}{","z":{"a":[]}}"#),
            (r#"{"zz":[{"m":5}]}"#, r#"{"m":1,"z":{"a":[]},"zz":[{"m":5}]}"#),
            (r#"{"m":{"status":{}},"z":null}"#, r#"{"m":1,"z":{"a":[]}}"#),
            (r#"{"a":1e999,"m":"\\\"","n":[[]]}"#, r#"{"a":1e999,"m":1,"n":[[]],"z":{"a":[]}}"#),
            // By the names themselves, not as they are written: a line break comes first.
            (r#"{"\n":1,"\"":2,"\\":3}"#, r#"{"\n":1,"\"":2,"\\":3,"m":1,"z":{"a":[]}}"#),
            (r#"{"é":1}"#, r#"{"m":1,"z":{"a":[]},"é":1}"#),
        ] {
            let spec = r#""spec":{"status":{"m":0},"x":"\"status\":{}\\"}"#;
            let json = format!(r#"{{"kind":"K",{spec},"status":{status}}}"#);
            let want = format!(r#"{{"kind":"K",{spec},"status":{want}}}"#);
            let fields = [("z", json!({"a": []})), ("m", json!(0)), ("m", json!(1))];
            assert_eq!(merged(&json, &fields), Some(want), "{status}");
            assert_eq!(merged(&json, &[]), Some(json));
        }
    }

    #[test]
    fn a_name_with_escapes_is_found_and_written() {
        let json = r#"{"status":{"a\"b":1,"c":2}}"#;
        let want = r#"{"status":{"\n":4,"a\"b":3,"c":2}}"#;
        assert_eq!(merged(json, &[("a\"b", json!(3)), ("\n", json!(4))]), Some(want.to_owned()));
    }

    #[test]
    fn an_object_without_a_status_at_its_end_is_refused() {
        for json in [
            "",
            "{",
            "{}",
            "null",
            "[]",
            r#""status""#,
            r#"{"spec":{}}"#,
            r#"{"spec":{"status":{}}}"#,
            r#"{"spec":"\"status\":{}"}"#,
            r#"{"status":{},"type":"x"}"#,
            r#"{"status":{},"type":{"status":{}}}"#,
            r#"{"status":null}"#,
            r#"{"status":[]}"#,
            r#"{"status":"{}"}"#,
            r#"{"xstatus":{}}"#,
            r#"{"status":{}"#,
            r#"{"status":{}}}"#,
            r#"{"status":{}} "#,
            r#"{"status": {}}"#,
            r#"{"status":{"a": {}}"#,
            r#"{"status":{"a":1,}}"#,
            r#"{"status":{"a":}}"#,
            r#"{"status":{"a"}}"#,
            r#"{"status":{a:1}}"#,
            r#"{"status":{"b":1,"a":1}}"#,
            r#"{"status":{"a":1,"a":1}}"#,
            r#"{,"status":{}}"#,
            r#"{"a":1"status":{}}"#,
        ] {
            assert_eq!(merged(json, &[("a", json!(1))]), None, "{json}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // Of longer fractions, the library's parser may miss the last digit.
            any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
            any::<String>().prop_map(Value::from),
            r#"[\\"{}\[\],:a]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                map(inner).prop_map(Value::from)
            ]
        })
    }

    fn map(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        btree_map(name(), values, 0..4).prop_map(|fields| fields.into_iter().collect())
    }

    /// Often one of a few, so that fields of one name meet.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[abc]", "status", r#"[\\"{}\n]{0,2}"#, any::<String>()]
    }

    /// An object as it is stored, with `status` as its last field.
    fn stored() -> impl Strategy<Value = Object> {
        (map(value()), map(value())).prop_map(|(fields, status)| {
            let mut object = Object { kind: "K".to_owned(), ..Object::default() };
            object.metadata.name = "a".to_owned();
            object.fields =
                fields.into_iter().filter(|(name, _)| name.as_str() < "status").collect();
            object.fields.insert("status".to_owned(), Value::Object(status));
            object
        })
    }

    proptest! {
        #[test]
        fn equals_decoding_setting_and_encoding(
            object in stored(),
            fields in vec((name(), value()), 0..4),
        ) {
            let json = object.to_json_bytes();
            let fields: Vec<(&str, Value)> =
                fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            let mut want: Object = decode_typed(&json).unwrap();
            for (name, value) in &fields {
                want.fields["status"][*name] = value.clone();
            }
            let merged = merge_status(&json, &fields).unwrap();
            prop_assert_eq!(
                String::from_utf8(merged).unwrap(),
                String::from_utf8(want.to_json_bytes()).unwrap()
            );
        }

        #[test]
        fn what_is_cut_off_is_refused(object in stored(), cut in any::<prop::sample::Index>()) {
            let json = object.to_json_bytes();
            let cut = cut.index(json.len());
            prop_assert_eq!(merge_status(&json[..cut], &[("a", Value::Null)]), None);
        }

        #[test]
        fn never_panics(text in r#"[{}\[\]",:\\sa1]{0,30}"#) {
            let _ = merge_status(text.as_bytes(), &[("a", Value::Null)]);
            let object = format!(r#"{{"status":{{{text}}}}}"#);
            let _ = merge_status(object.as_bytes(), &[("a", Value::Null)]);
        }
    }
}
