//! Objects in files: YAML with any number of documents, or JSON. `commands/` uses the objects.

use postern_client::Collection;
use postern_kinds::{Info, Verb};
use postern_meta::decode::{Format, decode_own_file as decode};
use postern_meta::object::Object;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::kinds;
use crate::output::escape;

/// An object of a kind that serves a verb.
pub(crate) struct Manifest {
    /// File and document, for messages.
    pub(crate) location: String,
    /// The object's kind.
    pub(crate) info: &'static Info,
    /// The object.
    pub(crate) object: Object,
}

impl Manifest {
    /// The collection of the object, in its own namespace or else in this one.
    pub(crate) fn collection<'a>(&'a self, namespace: &'a str) -> Collection<'a> {
        let own = Some(self.object.metadata.namespace.as_str()).filter(|own| !own.is_empty());
        Collection::new(self.info, Some(own.unwrap_or(namespace)))
    }
}

/// The objects in a file, each with its own error, in their order. Documents without
/// content are left out; the items of a list count each.
pub(crate) fn parse(file: &str, bytes: &[u8], verb: Verb) -> Vec<Result<Manifest, CliError>> {
    let mut manifests = Vec::new();
    for (index, (line, document)) in documents(bytes).enumerate() {
        let from = if index == 0 { String::new() } else { format!(" (from line {line})") };
        let location = format!("{file}, document {}{from}", index + 1);
        match value_from_line(document, line) {
            Err(what) => manifests.push(Err(CliError::new(format!("{location}: {what}")))),
            // As for kubectl, such a document has no object.
            Ok(Value::Null) => {}
            Ok(value) => match items_of(value) {
                Ok(items) => {
                    for (index, item) in items.into_iter().enumerate() {
                        let location = format!("{location}, item {}", index + 1);
                        manifests.push(manifest(location, item, verb));
                    }
                }
                Err(value) => manifests.push(manifest(location, value, verb)),
            },
        }
    }
    manifests
}

/// Decodes a document of a file. Errors name the lines of the file, in which the document begins at `line`.
fn value_from_line(document: &[u8], line: usize) -> Result<Value, String> {
    value_of(document).or_else(|error| {
        if line == 1 {
            return Err(error);
        }
        // Decoded again behind as many line breaks, since the line is only in the text of the error.
        let above = vec![b'\n'; line - 1];
        value_of(&Zeroizing::new([&above, document].concat()))
    })
}

/// Splits objects in JSON that follow each other, each with the number of its first line. `None` if it is not JSON, or
/// one object.
fn json_objects(bytes: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let mut objects = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    let mut start = 0;
    while let Some(object) = stream.next() {
        object.ok()?;
        let document = bytes.get(start..stream.byte_offset())?.trim_ascii_start();
        let first = stream.byte_offset() - document.len();
        // The lines before it, and its first line.
        let line = bytes[..first].split(|byte| *byte == b'\n').count();
        objects.push((line, document));
        start = stream.byte_offset();
    }
    (objects.len() > 1).then_some(objects)
}

/// Splits a file into its documents, each with the number of its first line: YAML at lines that begin with three dashes,
/// and JSON between its objects.
fn documents(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let starts_as_json = bytes.trim_ascii_start().starts_with(b"{");
    let objects = if starts_as_json { json_objects(bytes) } else { None };
    let documents = objects.unwrap_or_else(|| yaml_documents(bytes));
    documents.into_iter().filter(|(_, document)| !is_empty(document))
}

fn yaml_documents(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let marker = line.get(..3).filter(|_| line.get(3).is_none_or(u8::is_ascii_whitespace));
        if marker == Some(b"---") || marker == Some(b"...") {
            documents.push((start_line, &bytes[start..at]));
            // The rest of the line after the dashes belongs to the new document.
            (start, start_line) = (at + 3, index + 1);
        }
        at += line.len();
    }
    documents.push((start_line, &bytes[start..]));
    documents
}

/// Whether there is nothing but comments and directives.
fn is_empty(document: &[u8]) -> bool {
    document.split(|byte| *byte == b'\n').all(|line| {
        line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#") || line[0] == b'%'
    })
}

/// Decodes one document of YAML or JSON, in which no field occurs twice.
pub(crate) fn value_of(document: &[u8]) -> Result<Value, String> {
    let decoded = if document.trim_ascii_start().starts_with(b"{") {
        // YAML has such mappings, too, with less quoting.
        decode(document, Format::Json)
            .or_else(|error| decode(document, Format::Yaml).map_err(|_| error))
    } else {
        decode(document, Format::Yaml)
    };
    let decoded = decoded.map_err(|error| error.to_string())?;
    match decoded.duplicates.first() {
        Some(field) => Err(format!("duplicate field {}", escape(field))),
        None => Ok(decoded.value),
    }
}

/// The items of a list, or the value if it is none. Items of a list such as `UserList` need
/// not say their own kind.
fn items_of(mut list: Value) -> Result<Vec<Value>, Value> {
    let Some(kind) = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")) else {
        return Err(list);
    };
    let (kind, version) = (json!(kind), list["apiVersion"].clone());
    let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
        return Err(list);
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        if kind != "" {
            item.entry("apiVersion").or_insert_with(|| version.clone());
            item.entry("kind").or_insert_with(|| kind.clone());
        }
    }
    Ok(items)
}

fn manifest(location: String, value: Value, verb: Verb) -> Result<Manifest, CliError> {
    let wrong = |what: String| CliError::new(format!("{location}: {what}"));
    let metadata = json!({ "metadata": value["metadata"] });
    let object = Object::from_value(value).map_err(wrong)?;
    for (field, text) in [("apiVersion", &object.api_version), ("kind", &object.kind)] {
        if text.is_empty() {
            return Err(wrong(format!("{field} is not set")));
        }
    }
    let info = kinds::all()
        .filter(|info| info.serves(verb))
        .find(|info| info.kind == object.kind && info.version.to_string() == object.api_version);
    let info = info.ok_or_else(|| {
        let (kind, version) = (escape(&object.kind), escape(&object.api_version));
        let all = kinds::served(verb).map(|info| format!("{} ({})", info.kind, info.version));
        let all: Vec<_> = all.collect();
        let done = match verb {
            Verb::Create => "created",
            Verb::Delete => "deleted",
            _ => "applied",
        };
        wrong(format!("objects of the kind {kind} in {version} cannot be {done}"))
            .hint(format!("these kinds can: {}", all.join(", ")))
    })?;
    // The server does not see them: an object has none.
    if let Some(field) = kinds::unknown_metadata(info, &metadata).first() {
        return Err(wrong(format!("unknown field {}", escape(field))));
    }
    Ok(Manifest { location, info, object })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const USER: &str = "apiVersion: management.platform.sh/v1\nkind: User\nmetadata: {name: ";

    fn summary(text: &str) -> Vec<String> {
        let parsed = parse("f", text.as_bytes(), Verb::Create).into_iter();
        parsed
            .map(|one| match one {
                Ok(manifest) => format!("{}: {}", manifest.location, manifest.object.metadata.name),
                Err(error) => error.message,
            })
            .collect()
    }

    #[test]
    fn documents_are_split_at_their_markers() {
        let text = format!(
            "# about\n%YAML 1.2\n---\n{USER}a}}\n---\n# nothing\n--- # b\r\n{USER}b}}\n...\n---\n\
             {USER}'c---\n  ---'}}\n"
        );
        let two = ["f, document 1: a", "f, document 2 (from line 9): b"];
        assert_eq!(summary(&text)[..2], two);
        assert_eq!(summary(&text).len(), 3);
        for empty in ["", "\n", "---\n", "# x\n---\n---\n...\n", "null", "--- ~\n---\nnull # x\n"] {
            assert!(summary(empty).is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn json_and_mappings_in_braces_are_read() {
        let json = "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}";
        assert_eq!(summary(json), ["f, document 1: a"]);
        let yaml = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}";
        assert_eq!(summary(yaml), ["f, document 1: a"]);
        // As `jq -c '.items[]'` prints them.
        let two = format!("{json}\n\n{json}{json}\n");
        let wanted = [
            "f, document 1: a",
            "f, document 2 (from line 3): a",
            "f, document 3 (from line 3): a",
        ];
        assert_eq!(summary(&two), wanted);
        assert!(summary(&format!("{json}\nrest")).join(" ").contains("line 2"));
    }

    #[test]
    fn a_long_list_and_unusual_documents_are_read() {
        // As `postern list secrets -o yaml` prints them.
        let mut list =
            "apiVersion: management.platform.sh/v1\nkind: SharedSecretList\nitems:\n".to_owned();
        for index in 0..2_000 {
            writeln!(list, "- metadata: {{name: s{index}}}\n  spec:\n    data:").unwrap();
            for key in 0..20 {
                writeln!(list, "      k{key}: aGk=").unwrap();
            }
        }
        assert_eq!(summary(&list).len(), 2_000);
        let keys =
            format!("# about\n---\nnull\n---\n{USER}a, labels: {{1: x, 2006-01-02: b}}}}\n---\n");
        let read = parse("f", keys.as_bytes(), Verb::Create).remove(0).unwrap();
        let labels = &read.object.metadata.labels;
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["1", "2006-01-02"]);
    }

    #[test]
    fn unknown_fields_of_the_metadata_are_errors() {
        for (metadata, wanted) in [
            ("{name: a, labls: {a: b}}", "f, document 1: unknown field metadata.labls"),
            ("{name: a, finalizer: [x]}", "f, document 1: unknown field metadata.finalizer"),
            ("{name: a, labels: {a: b}, annotations: null}", "f, document 1: a"),
        ] {
            let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {metadata}\n");
            assert_eq!(summary(&text), [wanted]);
        }
    }

    #[test]
    fn the_items_of_a_list_are_objects() {
        let item = "items: [{metadata: {name: a}}, {kind: Team, metadata: {name: b}}]";
        let list = format!("apiVersion: management.platform.sh/v1\nkind: UserList\n{item}\n");
        let both = ["f, document 1, item 1: a", "f, document 1, item 2: b"];
        assert_eq!(summary(&list), both);
        let mixed = "apiVersion: v1\nkind: List\nitems: [{metadata: {name: a}}]";
        assert_eq!(summary(mixed), ["f, document 1, item 1: apiVersion is not set"]);
    }

    #[test]
    fn errors_name_the_document_and_no_value() {
        let second = |document: &str| summary(&format!("{USER}a}}\n---\n{document}")).remove(1);
        for (document, wanted) in [
            ("kind: User\n", "apiVersion is not set"),
            ("apiVersion: v1\nmetadata: {}\n", "kind is not set"),
            ("- hush\n", "document 2"),
            ("hush\n", "document 2"),
            ("a: [hush\n", "YAML"),
            ("a: 1\n  b: [2\n", "line 6"),
            ("{\"kind\": \"User\",\n\n\"a\" 1}", "line 7"),
            ("a: hush\na: hush\n", "duplicate field a"),
            ("apiVersion: v1\nkind: User\nmetadata: {name: hush}\n", "User in v1 cannot be"),
            ("apiVersion: v1\nkind: \"Po\\ed\"\n", "Po\\u{1b}d in v1 cannot be"),
        ] {
            let message = second(document);
            assert!(message.starts_with("f, document 2 (from line 4): "), "{message}");
            assert!(message.contains(wanted) && !message.contains("hush"), "{message}");
        }
        let error =
            parse("f", b"apiVersion: v1\nkind: Pod\n", Verb::Create).remove(0).err().unwrap();
        let all = &error.hints[0];
        assert!(all.contains("Namespace (v1)") && all.contains("SharedSecret ("), "{all}");
    }
}
