//! Encoding of values as YAML that every decoder reads as the same values.
//!
//! Written by hand: the form is small (block style, strings quoted unless they
//! are plain words), and a general encoder would have to guess what must be
//! quoted.

use std::fmt::Write as _;

use serde_json::Value;

/// The longest string that is written without quotes, in bytes.
const MAX_PLAIN_BYTES: usize = 128;

/// Returns `value` as a YAML document in block style, ending in a line break.
///
/// Strings that a decoder could read as another type, in YAML 1.1 or 1.2, are
/// quoted.
pub fn encode_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_fields(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => write_items(&mut out, items, 0),
        scalar => {
            write_scalar(&mut out, scalar);
            out.push('\n');
        }
    }
    out
}

fn write_fields(out: &mut String, fields: &serde_json::Map<String, Value>, indent: usize) {
    for (i, (key, value)) in fields.iter().enumerate() {
        // The first field follows its parent on the same line, as in `- a: 1`.
        if i > 0 {
            push_indent(out, indent);
        }
        write_text(out, key);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                push_indent(out, indent + 1);
                write_fields(out, inner, indent + 1);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                push_indent(out, indent);
                write_items(out, items, indent);
            }
            scalar => {
                out.push(' ');
                write_scalar(out, scalar);
                out.push('\n');
            }
        }
    }
}

fn write_items(out: &mut String, items: &[Value], indent: usize) {
    for (i, value) in items.iter().enumerate() {
        if i > 0 {
            push_indent(out, indent);
        }
        out.push_str("- ");
        match value {
            Value::Object(fields) if !fields.is_empty() => write_fields(out, fields, indent + 1),
            Value::Array(inner) if !inner.is_empty() => write_items(out, inner, indent + 1),
            scalar => {
                write_scalar(out, scalar);
                out.push('\n');
            }
        }
    }
}

fn push_indent(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n("  ", indent));
}

/// Writes a value on one line; lists and objects only when they are empty.
fn write_scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
    }
}

/// JSON lets a float be written as `1e16`, which YAML 1.1 reads as a string:
/// there it needs a point, and a sign before the exponent.
fn write_number(out: &mut String, number: &serde_json::Number) {
    let text = number.to_string();
    match text.split_once('e') {
        None => out.push_str(&text),
        Some((mantissa, exponent)) => {
            out.push_str(mantissa);
            if !mantissa.contains('.') {
                out.push_str(".0");
            }
            out.push('e');
            if !exponent.starts_with(['-', '+']) {
                out.push('+');
            }
            out.push_str(exponent);
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    text.chars().for_each(|c| push_escaped(out, c));
    out.push('"');
}

/// Returns whether every decoder reads `text` without quotes as that text: a
/// word that starts with a letter, has no characters with a meaning in YAML, and
/// is not a boolean, a null or a number.
fn is_plain(text: &str) -> bool {
    let tail = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    first && text.len() <= MAX_PLAIN_BYTES && text.bytes().all(tail) && !is_reserved(text)
}

/// Returns whether YAML 1.1 or 1.2 reads the word as another type.
fn is_reserved(text: &str) -> bool {
    const WORDS: [&str; 12] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if !needs_escape(c) => out.push(c),
        // Writing to a String does not fail.
        c if u32::from(c) < 0x100 => drop(write!(out, "\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x1_0000 => drop(write!(out, "\\u{:04x}", u32::from(c))),
        c => drop(write!(out, "\\U{:08x}", u32::from(c))),
    }
}

/// Returns whether YAML forbids the character in a stream, or reads it as a line
/// break or a byte order mark.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
        || u32::from(c) & 0xfffe == 0xfffe
}
