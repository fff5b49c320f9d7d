//! kubectl's dialect of `JSONPath`: templates such as `{range .items[*]}{.metadata.name}{"\n"}{end}`, and single paths such
//! as `.metadata.name`. It differs from RFC 9535: a path begins at the current object, `['a.b']` is a path of two
//! fields, and missing fields print nothing.
//!
//! The work is bounded: by the length and the depth of a template, the number of visited values, and the size of the
//! output.

mod eval;
mod parse;

use serde_json::Value;
use zeroize::Zeroizing;

/// A template: text, and paths in braces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// A path to values in an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Path),
    /// For each value of the path, the parts.
    Range(Path, Vec<Part>),
}

/// A step from values to other values.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// All fields of an object, or all items of a list.
    All,
    /// The values that have fields or items, at any depth, each before its own fields.
    Descend,
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    /// The values of several paths, one after the other.
    Union(Vec<Path>),
    Filter(Filter),
}

/// A condition on the items of a list.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Path,
    /// Without one, the left path must have a value.
    comparison: Option<(Operator, Operand)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    Path(Path),
}

impl Template {
    /// Parses a template. One without braces is a path, as if it were in braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('{') {
            return parse::template(text).map(|parts| Self { parts });
        }
        Path::parse(text).map(|path| Self { parts: vec![Part::Path(path)] })
    }

    /// The text for a value.
    pub(crate) fn render(&self, value: &Value) -> Result<Zeroizing<String>, String> {
        eval::render(&self.parts, value)
    }
}

impl Path {
    /// Parses `.metadata.name`, also without the first dot, and also in braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        if inner.is_empty() || inner.contains(['{', '}']) {
            return Err("a path looks like .metadata.name".to_owned());
        }
        let begins = inner.starts_with(['.', '[', '$', '@']);
        let path = if begins { inner.to_owned() } else { format!(".{inner}") };
        parse::path(&path)
    }

    /// The values that the path leads to.
    pub(crate) fn values<'a>(&self, value: &'a Value) -> Result<Vec<&'a Value>, String> {
        eval::values(self, value)
    }

    /// Whether the path stays in the metadata of an object.
    pub(crate) fn is_in_metadata(&self) -> bool {
        matches!(self.steps.first(), Some(Step::Field(name)) if name == "metadata")
    }
}

/// The text of a value: a string as it is, and anything else as JSON.
pub(crate) fn text_of(value: &Value) -> Zeroizing<String> {
    match value {
        Value::String(text) => Zeroizing::new(text.clone()),
        other => Zeroizing::new(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        json!({
            "kind": "List",
            "items": [
                {
                    "kind": "User",
                    "metadata": { "name": "ada", "labels": { "a.b/c": "x", "team": "red" } },
                    "spec": { "level": 3, "teams": ["red", "blue"] },
                    "status": { "conditions": [
                        { "type": "Ready", "status": "True" },
                        { "type": "Synced", "status": "False" },
                    ] },
                },
                {
                    "kind": "User",
                    "metadata": { "name": "bob" },
                    "spec": { "level": 10, "teams": [], "disabled": true, "note": null },
                },
            ],
        })
    }

    fn render(template: &str) -> String {
        match Template::parse(template).and_then(|template| template.render(&list())) {
            Ok(text) => text.to_string(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn templates_of_kubectl() {
        for (template, wanted) in [
            ("{.kind}", "List"),
            (".kind", "List"),
            ("kind is {.kind}!", "kind is List!"),
            ("{$.kind}{@.kind}{['kind']}", "ListListList"),
            ("{.items[*].metadata.name}", "ada bob"),
            ("{.items[0].metadata.name}", "ada"),
            ("{.items[-1].metadata.name}", "bob"),
            ("{.items[0:1].metadata.name}", "ada"),
            ("{.items[:2].metadata.name}", "ada bob"),
            ("{.items[0].spec.teams[-2:]}", "red blue"),
            ("{.items[0].spec.teams[0:2:2]}", "red"),
            ("{.items[0,1].metadata.name}", "ada bob"),
            ("{.items[*]['metadata.name', 'spec.level']}", "ada bob 3 10"),
            ("{.items[0].metadata.labels.a\\.b/c}", "x"),
            ("{.items[0].metadata.labels['a\\.b/c']}", "x"),
            ("{.items[0].metadata.labels}", r#"{"a.b/c":"x","team":"red"}"#),
            ("{.items[0].spec.*}", r#"3 ["red","blue"]"#),
            ("{..name}", "ada bob"),
            ("{.items[?(@.metadata.name==\"bob\")].spec.level}", "10"),
            ("{.items[?(@.metadata.name=='bob')].spec.level}", "10"),
            ("{.items[?(@.spec.level > 3)].metadata.name}", "bob"),
            ("{.items[?(@.spec.level>=3)].metadata.name}", "ada bob"),
            ("{.items[?(@.spec.level != 3)].metadata.name}", "bob"),
            ("{.items[?(@.spec.disabled==true)].metadata.name}", "bob"),
            ("{.items[?(@.spec.disabled)].metadata.name}", "bob"),
            ("{.items[?(@.metadata.name==\"a)]b\")]}", ""),
            ("{.items[*].status.conditions[?(@.type==\"Ready\")].status}", "True"),
            ("{range .items[*]}{.metadata.name}={.spec.level}{\"\\n\"}{end}", "ada=3\nbob=10\n"),
            (
                "{range .items[*]}{.metadata.name}:{range .spec.teams[*]}<{@}>{end};{end}",
                "ada:<red><blue>;bob:;",
            ),
            ("{'it''s'}", "error: "),
            ("{\"a\\tb\\u0041\"}{'c'}{1}{true}", "a\tbAc1true"),
            ("{.absent}{.items[*].absent.deep}", ""),
            ("{.items[1].spec.note}", "null"),
        ] {
            let rendered = render(template);
            if wanted == "error: " {
                assert!(rendered.starts_with(wanted), "{template}: {rendered}");
            } else {
                assert_eq!(rendered, wanted, "{template}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (template, wanted) in [
            ("{.kind", "unclosed"),
            ("{.items[0}", "unclosed"),
            ("{.items[x]}", "[x]"),
            ("{range .items[*]}", "{end}"),
            ("{end}", "range"),
            ("{.items[?(@.a==)]}", "=="),
            ("{.items[?@.a]}", "?("),
            ("{\"open}", "unclosed"),
            ("{.items[0:2:0]}", "step"),
            ("{kind}", "kind"),
            ("{}", "empty"),
            ("", "path"),
            ("{.items[7]}", "out of range"),
            ("{.kind[0]}", "not a list"),
            ("{.kind[?(@.a)]}", "not a list"),
        ] {
            let said = render(template);
            assert!(said.starts_with("error: ") && said.contains(wanted), "{template}: {said}");
        }
    }

    #[test]
    fn a_single_path_is_relaxed() {
        for text in [".metadata.name", "metadata.name", "{.metadata.name}", "{metadata.name}"] {
            let path = Path::parse(text).unwrap();
            assert!(path.is_in_metadata(), "{text}");
            assert_eq!(path.values(&list()["items"][0]).unwrap(), [&json!("ada")], "{text}");
        }
        assert!(!Path::parse(".spec.x").unwrap().is_in_metadata());
        for wrong in ["", "{}", "a{b}", "{.a}{.b}"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_work_is_bounded() {
        let mut deep = json!("x");
        for _ in 0..100 {
            deep = json!([deep, {}, { "a": [[[]]] }]);
        }
        let error = Template::parse("{..*..*..*..*..*..*}").unwrap().render(&deep).unwrap_err();
        assert!(error.contains("too much"), "{error}");
        let nested = format!("{}{}", "{range .a}".repeat(200), "{end}".repeat(200));
        assert!(Template::parse(&nested).unwrap_err().contains("nested"), "{nested}");
        let filters = format!("{{.a{}{}}}", "[?(@.a".repeat(200), ")]".repeat(200));
        assert!(Template::parse(&filters).unwrap_err().contains("nested"));
        assert!(Template::parse(&"x".repeat(100_000)).unwrap_err().contains("bytes"));
    }
}
