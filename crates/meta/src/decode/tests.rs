//! The decoders of JSON and YAML on good, bad and hostile input, and the encoder of YAML.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

fn value(text: &str, format: Format) -> Value {
    decode(text.as_bytes(), format).unwrap().value
}

fn error(text: &str, format: Format) -> String {
    decode(text.as_bytes(), format).unwrap_err().to_string()
}

#[test]
fn json_values() {
    let text = r#" {"a": [1, -1, 1.5, "x", true, null, 18446744073709551615], "b": {}} "#;
    assert_eq!(
        value(text, Format::Json),
        json!({"a": [1, -1, 1.5, "x", true, null, 18_446_744_073_709_551_615_u64], "b": {}})
    );
}

#[test]
fn duplicate_keys_are_reported_and_the_last_wins() {
    let text = r#"{"spec": {"bar": 1, "bar": 2, "bar": 3}, "l": [{"x": 1}, {"x": 1, "x": 2}]}"#;
    for format in [Format::Json, Format::Yaml] {
        let decoded = decode(text.as_bytes(), format).unwrap();
        assert_eq!(decoded.value, json!({"spec": {"bar": 3}, "l": [{"x": 1}, {"x": 2}]}));
        assert_eq!(decoded.duplicates, ["spec.bar", "l[1].x"]);
    }
    let block = "a: 1\nb:\n  c: 1\n  c: 2\na: 3\n";
    let decoded = decode(block.as_bytes(), Format::Yaml).unwrap();
    assert_eq!(decoded.value, json!({"a": 3, "b": {"c": 2}}));
    assert_eq!(decoded.duplicates, ["b.c", "a"]);
}

#[test]
fn the_list_of_duplicates_is_capped() {
    let fields: Vec<_> = (0..500).map(|i| format!("\"k{i}\":1,\"k{i}\":2")).collect();
    let text = format!("{{{}}}", fields.join(","));
    let decoded = decode(text.as_bytes(), Format::Json).unwrap();
    assert_eq!(decoded.duplicates.len(), MAX_STRICT_ERRORS);
}

#[test]
fn duplicates_that_are_reported_already_do_not_hide_the_first_ones() {
    let again = "\"x\":1,".repeat(10_000);
    let text = format!("{{\"a\":1,\"a\":1,{again}\"x\":1}}");
    let decoded = decode(text.as_bytes(), Format::Json).unwrap();
    assert_eq!(decoded.duplicates, ["a", "x"]);
}

#[test]
fn errors_of_bad_json_hold_no_content() {
    for text in [
        "",
        "{",
        "s3cr3t",
        r#"{"s3cr3t": s3cr3t}"#,
        r#"{"a": "s3cr3t"#,
        r#"{"a": 1} s3cr3t"#,
        r#"{"a": 1e999}"#,
        r#"{"a": 01}"#,
        "{'s3cr3t': 1}",
        "{\"a\": \"s3cr3t\n\"}",
        r#""\ud800 s3cr3t""#,
        "[1,]",
        "NaN",
    ] {
        let error = error(text, Format::Json);
        assert!(!error.contains("s3cr3t"), "{error}");
        assert!(error.contains("line"), "{error}");
    }
    assert!(decode(b"\"\xff\"", Format::Json).is_err());
}

#[test]
fn deep_nesting_is_refused_by_both() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = open.repeat(20_000) + "1" + &close.repeat(20_000);
        assert!(error(&deep, Format::Json).starts_with("nested too deeply at line 1"));
        error(&deep, Format::Yaml);
        error(&open.repeat(20_000), Format::Json);
        error(&open.repeat(20_000), Format::Yaml);
    }
    let block: Vec<_> = (0..200).map(|i| " ".repeat(i) + "a:\n").collect();
    error(&block.concat(), Format::Yaml);
    error(&"- ".repeat(20_000), Format::Yaml);
    error(&"? ".repeat(20_000), Format::Yaml);
}

#[test]
fn the_deepest_value_that_is_allowed() {
    for (format, depth) in [(Format::Json, MAX_DEPTH), (Format::Yaml, MAX_YAML_DEPTH)] {
        let fits = "[".repeat(depth) + &"]".repeat(depth);
        assert!(decode(fits.as_bytes(), format).is_ok(), "{format:?}");
        error(&("[".to_owned() + &fits + "]"), format);
    }
}

#[test]
fn the_number_of_values_is_limited() {
    let many = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
    assert!(decode(many(MAX_JSON_NODES - 10).as_bytes(), Format::Json).is_ok());
    assert!(error(&many(MAX_JSON_NODES + 10), Format::Json).starts_with("too many values"));
    assert!(decode(many(MAX_YAML_NODES - 10).as_bytes(), Format::Yaml).is_ok());
    error(&many(MAX_YAML_NODES + 10), Format::Yaml);
}

#[test]
fn own_files_have_larger_limits() {
    let items = "[".to_owned() + &"1,".repeat(MAX_JSON_NODES + 10) + "1]";
    for (format, depth) in [(Format::Json, MAX_DEPTH), (Format::Yaml, MAX_OWN_YAML_DEPTH)] {
        assert!(decode(items.as_bytes(), format).is_err());
        assert!(decode_own_file(items.as_bytes(), format).is_ok(), "{format:?}");
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        assert!(decode_own_file(deep.as_bytes(), format).is_ok(), "{format:?}");
        let many = "[".to_owned() + &"1,".repeat(MAX_OWN_NODES + 10) + "1]";
        assert!(decode_own_file(many.as_bytes(), format).is_err());
    }
}

#[test]
fn byte_order_marks_say_what_the_encoding_is() {
    let text = "a: \u{1f511}é\n";
    let utf16 = |unit: fn(u16) -> [u8; 2], text: &str| {
        text.encode_utf16().flat_map(unit).collect::<Vec<u8>>()
    };
    let marked = format!("\u{feff}{text}");
    for bytes in [
        marked.clone().into_bytes(),
        utf16(u16::to_le_bytes, &marked),
        utf16(u16::to_be_bytes, &marked),
    ] {
        assert_eq!(text_after_mark(&bytes), Some(Ok(text.as_bytes().to_vec())));
    }
    assert_eq!(text_after_mark(text.as_bytes()), None);
    for wrong in [&[0xff, 0xfe, 0x61][..], &[0xff, 0xfe, 0x00, 0xd8]] {
        assert!(text_after_mark(wrong).unwrap().is_err());
    }
}

#[test]
fn a_second_document_with_content_is_refused() {
    for text in
        ["a: 1\n---\nb: 2\n", "a: 1\n---\nb: 2\n---\n", "---\n1\n--- x\n", "a: 1\n--- nullx"]
    {
        assert!(error(text, Format::Yaml).contains("more than one YAML document"), "{text:?}");
    }
}

#[test]
fn yaml_values_as_the_reference_clients_read_them() {
    for (text, want) in [
        ("a: b", json!({"a": "b"})),
        ("a: 1\nb: 1.5\nc: -3\n", json!({"a": 1, "b": 1.5, "c": -3})),
        ("a: 0600", json!({"a": 384})),
        ("a: 0o600", json!({"a": 384})),
        ("a: 0x10", json!({"a": 16})),
        ("a: yes\nb: off\n", json!({"a": true, "b": false})),
        ("a: 'yes'\nb: \"1\"\nc: !!str 1\n", json!({"a": "yes", "b": "1", "c": "1"})),
        ("a: ~\nb: null\nc:\n", json!({"a": null, "b": null, "c": null})),
        ("a: 2006-01-02T15:04:05Z", json!({"a": "2006-01-02T15:04:05Z"})),
        ("a: 2006-01-02", json!({"a": "2006-01-02"})),
        ("a: !!binary aGk=", json!({"a": "aGk="})),
        ("- 1\n- [2, 3]\n- {a: b}\n", json!([1, [2, 3], {"a": "b"}])),
        ("a: |\n  x\n  y\n", json!({"a": "x\ny\n"})),
        ("a: >-\n  x\n  y\n", json!({"a": "x y"})),
        ("---\na: 1\n", json!({"a": 1})),
        ("---\na: 1\n...\n", json!({"a": 1})),
        ("# only a remark\n", json!(null)),
        ("", json!(null)),
        ("\u{feff}a: 1", json!({"a": 1})),
        ("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})),
        ("\"1\": a\n'true': b\n", json!({"1": "a", "true": "b"})),
        ("1: a\n0600: b\ntrue: c\n", json!({"1": "a", "384": "b", "true": "c"})),
        ("on: a\n1.5: b\n2: c\n", json!({"true": "a", "1.5": "b", "2": "c"})),
        ("2006-01-02: a\n10:30: b\n", json!({"2006-01-02": "a", "10:30": "b"})),
        ("a: 1\n---\n", json!({"a": 1})),
        ("---\na: 1\n---\n# nothing\n--- # b\n...\n---\nnull\n--- ~\n", json!({"a": 1})),
        ("a: |\n  x\n  # y\n---\n", json!({"a": "x\n# y\n"})),
        ("a: 1.0", json!({"a": 1.0})),
        ("a: 18446744073709551615", json!({"a": 18_446_744_073_709_551_615_u64})),
    ] {
        assert_eq!(value(text, Format::Yaml), want, "{text:?}");
    }
}

#[test]
fn integers_of_more_than_64_bits_are_floats_in_both() {
    let text = "[99999999999999999999, 99999999999999999999999999999999999999999999]";
    assert_eq!(value(text, Format::Yaml), value(text, Format::Json));
}

#[test]
fn errors_of_bad_yaml_hold_no_content() {
    for text in [
        "a: [s3cr3t",
        "a: s3cr3t: b",
        "a: *s3cr3t",
        "a: !s3cr3t x",
        "a: !!python/object:s3cr3t x",
        "a: s3cr3t\n---\nb: 2\n",
        "a: \"s3cr3t",
        "~: s3cr3t",
        "[s3cr3t]: 1",
        "{a: s3cr3t}: 1",
        "a: .nan",
        "a: .inf",
        "a: -.inf",
        "a: 1e999",
        "a: !!int s3cr3t",
        "a: &x [*x]",
        "<<: s3cr3t",
    ] {
        let Err(error) = decode(text.as_bytes(), Format::Yaml) else { panic!("{text}") };
        assert!(!error.to_string().contains("s3cr3t"), "{text}: {error}");
    }
    assert_eq!(decode(b"a: \xff", Format::Yaml).unwrap_err().to_string(), "not UTF-8 at byte 3");
}

#[test]
fn syntax_errors_of_yaml_name_their_likely_cause() {
    for (text, wanted) in [
        ("a:\n\tb: c\n", "line 2 column 2: a tab is where only spaces are allowed"),
        ("a: b\n\tc: d\n", "line 1 column 4: a tab is where only spaces are allowed"),
        ("a:\n  b: c\n d: e\n", "line 3 column 2: the indentation does not match"),
        ("  a: b\nc: d\n", "line 2 column 1: the indentation does not match"),
        ("- a\nb: c\n", "line 2 column 1: the indentation does not match"),
        ("a: b: c\n", "line 1 column 5: no key is allowed here; text with a colon"),
        ("a: b\nkey\nc: d\n", "line 2 column 1: a key has no colon after it"),
        ("a: {b: 1\n", "line 1 column 4: a [ or { is not closed"),
        ("a: [1,2\nb: 3\n", "line 2 column 2: a [ or { is not closed"),
        ("a: {b: 1 c: 2}\n", "line 1 column 11: a comma is missing"),
        ("a: [b, c]]\n", "line 1 column 10: a ] or } does not match"),
        ("a: [1}\n", "line 1 column 4: a ] or } does not match"),
        ("a: \"x\nb: c\n", "line 2 column 1: a quotation mark is not closed"),
        ("a: 'x' y\n", "column 8: text follows the closing quotation mark"),
        ("a: \"\\d\"\n", "line 1 column 4: an escape in double quotation marks"),
        ("a: @b\n", "line 1 column 4: text that begins with this character"),
        ("a: *\n", "line 1 column 4: text that begins with this character"),
        ("a: - b\n", "line 1 column 4: a list begins on a line of its own"),
        ("a: \"x\"#c\n", "line 1 column 7: a comment needs a space before its #"),
        ("a: |x\n  y\n", "line 1 column 4: text after a | or > begins on the next line"),
    ] {
        let error = error(text, Format::Yaml);
        assert!(error.starts_with("the YAML document has a syntax error at "), "{text}: {error}");
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn alias_bombs_are_bounded() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(bomb, "a{i}: &a{i} [{refs}]").unwrap();
    }
    let text = error(&bomb, Format::Yaml);
    assert!(text.len() < 100, "{text}");
    let mut merge = "a0: &a0 {x: 1}\n".to_owned();
    for i in 1..30 {
        writeln!(merge, "a{i}: &a{i}\n  <<: [*a{0}, *a{0}]", i - 1).unwrap();
    }
    let _ = decode(merge.as_bytes(), Format::Yaml);
    let long = format!("a: &a {}\nb: [{}*a]\n", "x".repeat(100_000), "*a,".repeat(900));
    let _ = decode(long.as_bytes(), Format::Yaml);
}

#[test]
fn aliases_do_not_multiply_text_without_a_limit() {
    let text = "x".repeat(100_000);
    let repeated = |aliases: usize| format!("a: &a \"{text}\"\nb: [{}]\n", "*a,".repeat(aliases));
    assert!(decode(repeated(30).as_bytes(), Format::Yaml).is_ok());
    assert_eq!(error(&repeated(500), Format::Yaml), "too much text");
    let keys: Vec<String> = (0..10).map(|i| format!("k{i:0999}: 1")).collect();
    let keys = format!("a: &a {{{}}}\nb: [{}]\n", keys.join(","), "*a,".repeat(400));
    assert_eq!(error(&keys, Format::Yaml), "too much text");
}

#[test]
fn stored_json_is_decoded_into_its_type() {
    assert_eq!(decode_typed::<Vec<u8>>(b"[1,2]"), Ok(vec![1, 2]));
    let error = decode_typed::<Vec<u8>>(b"[\"s3cr3t\"]").unwrap_err().to_string();
    assert!(error.ends_with("at line 1 column 9"), "{error}");
    assert!(!error.contains("s3cr3t"));
    assert!(decode_typed::<Vec<u8>>(b"[1] x").is_err());
}

#[test]
fn debug_has_no_value() {
    let decoded = decode(b"{\"a\":\"s3cr3t\"}", Format::Json).unwrap();
    assert!(!format!("{decoded:?}").contains("s3cr3t"));
}

#[test]
fn yaml_is_written_in_block_style() {
    let value = json!({
        "apiVersion": "g.sh/v1", "items": [{"a": 1, "b": [1, [2]]}, [], {}], "empty": {},
        "none": null, "text": "two words", "word": "word", "yes": "yes", "v": "1.5",
        "nested": {"x": {"y": true}},
    });
    assert_eq!(
        encode_yaml(&value),
        "apiVersion: g.sh/v1\nempty: {}\nitems:\n- a: 1\n  b:\n  - 1\n  - - 2\n- []\n- {}\n\
         nested:\n  x:\n    \"y\": true\nnone: null\ntext: two words\nv: \"1.5\"\n\
         word: word\n\"yes\": \"yes\"\n"
    );
    assert_eq!(encode_yaml(&json!("a\n\u{85}\u{2028}\u{1}")), "\"a\\n\\N\\L\\x01\"\n");
}

/// Texts that some decoder of YAML reads as another type when they are not quoted.
const TRICKY_TEXTS: [&str; 61] = [
    "",
    " ",
    "~",
    "null",
    "Null",
    "true",
    "y",
    "N",
    "on",
    "OFF",
    "1",
    "1_000",
    "0x1f",
    "0o7",
    "017",
    "1e3",
    "1.5",
    ".5",
    ".inf",
    "-.INF",
    ".nan",
    "1:30",
    "2006-01-02",
    "=",
    "<<",
    "-",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "&a",
    "*a",
    "!a",
    "%a",
    "@a",
    "`a",
    "'a",
    "\"a",
    "{a",
    "[a",
    "a,b",
    "?",
    "? a",
    "|",
    ">",
    "a\nb",
    "a\r\nb",
    "\t",
    "\u{feff}a",
    "é",
    "\u{10ffff}",
    "---",
    "...",
    "infinity",
    "NaN",
    "0b1",
    "+1",
    "-1",
    "e5",
    "a/b",
    "x.y-z_1",
];

#[test]
fn encoded_yaml_is_decoded_to_the_same() {
    for text in TRICKY_TEXTS {
        let value = json!({text: [text, {"k": text}]});
        let yaml = encode_yaml(&value);
        assert_eq!(decode(yaml.as_bytes(), Format::Yaml).unwrap().value, value, "{yaml}");
    }
    for value in [json!(1e16), json!(1.5e-7), json!(-0.0), json!(u64::MAX), json!(i64::MIN)] {
        let yaml = encode_yaml(&value);
        assert_eq!(decode(yaml.as_bytes(), Format::Yaml).unwrap().value, value, "{yaml}");
    }
}
