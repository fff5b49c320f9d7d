//! The output formats of `get`, and their parsing.

use std::path::Path as FilePath;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use postern_client::Representation;

use crate::jsonpath::{Path, Template};
use crate::process::read_text_file;

/// The formats that an argument of `-o` may name.
const NAMES: [&str; 10] = [
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath=",
    "custom-columns=",
    "custom-columns-file=",
    "value",
    "env",
    "dotenv",
];
/// The most columns of a table.
const COLUMNS_MAX: usize = 100;

/// How objects are printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputFormat {
    /// The server's table with all columns.
    Wide,
    /// Whole objects in JSON.
    Json,
    /// Whole objects in YAML.
    Yaml,
    /// KIND/NAME, one a line.
    Name,
    /// A template.
    JsonPath(Template),
    /// A table with these columns.
    CustomColumns(Vec<Column>),
    /// One value of a secret, byte for byte.
    Value,
    /// The values of a secret as `NAME='value'` for a shell.
    Env,
    /// The values of a secret as `NAME="value"` for a `.env` file.
    Dotenv,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// The heading.
    pub(crate) heading: String,
    /// The path of its cells.
    pub(crate) path: Path,
}

impl OutputFormat {
    /// Parses the argument of `-o`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, argument) = match text.split_once('=') {
            None => (text, None),
            Some((name, argument)) => (name, Some(argument)),
        };
        match (name, argument) {
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("value", None) => Ok(Self::Value),
            ("env", None) => Ok(Self::Env),
            ("dotenv", None) => Ok(Self::Dotenv),
            ("jsonpath", Some(template)) => {
                let parsed = Template::parse(template);
                parsed.map(Self::JsonPath).map_err(|what| format!("invalid template: {what}"))
            }
            ("custom-columns", Some(columns)) => columns_of(columns).map(Self::CustomColumns),
            ("custom-columns-file", Some(file)) => columns_in(file).map(Self::CustomColumns),
            ("jsonpath", None) => Err("a template is missing: -o jsonpath='{.kind}'".to_owned()),
            ("custom-columns-file", None) => {
                Err("a file is missing: -o custom-columns-file=FILE".to_owned())
            }
            ("custom-columns", None) => {
                Err("columns are missing: -o custom-columns=NAME:.metadata.name".to_owned())
            }
            _ => Err(format!("the formats are {}", NAMES.join(", "))),
        }
    }

    /// Whether the format is for one secret alone.
    pub(crate) fn is_for_secret(&self) -> bool {
        matches!(self, Self::Value | Self::Env | Self::Dotenv)
    }
}

/// The representation of objects that a format needs. `sorted_by` is the path that they are sorted by.
pub(crate) fn representation(
    format: Option<&OutputFormat>,
    sorted_by: Option<&Path>,
) -> Representation {
    match format {
        None | Some(OutputFormat::Wide) => match sorted_by {
            Some(path) if !path.is_in_metadata() => Representation::TableWithObjects,
            _ => Representation::Table,
        },
        Some(OutputFormat::Name) if sorted_by.is_none_or(Path::is_in_metadata) => {
            Representation::Metadata
        }
        Some(OutputFormat::CustomColumns(columns))
            if columns.iter().all(|column| column.path.is_in_metadata())
                && sorted_by.is_none_or(Path::is_in_metadata) =>
        {
            Representation::Metadata
        }
        Some(_) => Representation::Whole,
    }
}

fn columns_of(text: &str) -> Result<Vec<Column>, String> {
    let column = |part: &str| {
        let wrong = || "write columns as HEADING:PATH,HEADING:PATH".to_owned();
        let (heading, path) = part.split_once(':').ok_or_else(wrong)?;
        column_of(heading, path)
    };
    let parts = crate::jsonpath::split_columns(text);
    at_most(parts.len())?;
    parts.into_iter().map(column).collect()
}

/// The columns in a file, as kubectl reads it: a line of headings, and a line of paths, separated by blanks.
fn columns_in(file: &str) -> Result<Vec<Column>, String> {
    let bytes = read_text_file(FilePath::new(file)).map_err(|error| error.message)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{file} is not UTF-8"))?;
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (headings, paths) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if headings.is_empty() || headings.len() != paths.len() {
        return Err(format!("{file} needs a line of headings, and a line with as many paths"));
    }
    at_most(headings.len())?;
    headings.into_iter().zip(paths).map(|(heading, path)| column_of(heading, path)).collect()
}

fn at_most(count: usize) -> Result<(), String> {
    let fits = count <= COLUMNS_MAX;
    if fits { Ok(()) } else { Err(format!("there are more than {COLUMNS_MAX} columns")) }
}

fn column_of(heading: &str, path: &str) -> Result<Column, String> {
    Path::parse(path)
        .map(|path| Column { heading: heading.to_owned(), path })
        .map_err(|what| format!("the column {heading}: {what}"))
}

/// A parser of [`OutputFormat`] whose formats completions know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputParser;

impl TypedValueParser for OutputParser {
    type Value = OutputFormat;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<OutputFormat, clap::Error> {
        let parser = StringValueParser::new().try_map(|text| OutputFormat::parse(&text));
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(NAMES.into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn formats_and_what_is_none() {
        for text in ["wide", "json", "yaml", "name", "value", "env", "dotenv", "jsonpath={.a}"] {
            assert!(OutputFormat::parse(text).is_ok(), "{text}");
        }
        let columns = "custom-columns=NAME:.metadata.name,READY:.status.c[?(@.a==\"x,y\")].b";
        let Ok(OutputFormat::CustomColumns(columns)) = OutputFormat::parse(columns) else {
            panic!("these are columns");
        };
        let headings: Vec<_> = columns.iter().map(|column| column.heading.as_str()).collect();
        assert_eq!(headings, ["NAME", "READY"]);
        for (text, wanted) in [
            ("xml", "custom-columns="),
            ("json=x", "formats are"),
            ("jsonpath", "template is missing"),
            ("jsonpath={.a", "invalid template"),
            ("custom-columns", "columns are missing"),
            ("custom-columns=", "HEADING:PATH"),
            ("custom-columns=NAME", "HEADING:PATH"),
            ("custom-columns=NAME:", "column NAME"),
            ("custom-columns-file", "file is missing"),
            ("custom-columns-file=/missing/file", "cannot read"),
        ] {
            let error = OutputFormat::parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn columns_are_read_from_a_file_as_kubectl_does() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("columns");
        let parse = |text: &str| {
            let mut file = File::create(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            OutputFormat::parse(&format!("custom-columns-file={}", path.display()))
        };
        let inline = OutputFormat::parse("custom-columns=NAME:.metadata.name,MAIL:.spec.email");
        assert_eq!(parse("NAME   MAIL\n.metadata.name\tspec.email\n"), inline);
        for wrong in ["", "NAME\n", "NAME\n.a .b\n", "NAME\n{\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn values_are_asked_for_only_where_they_are_printed() {
        let of = |format: &str, path: Option<&str>| {
            let format = OutputFormat::parse(format).ok();
            let path = path.map(|path| Path::parse(path).unwrap());
            representation(format.as_ref(), path.as_ref())
        };
        assert_eq!(of("", None), Representation::Table);
        assert_eq!(of("wide", Some(".metadata.name")), Representation::Table);
        assert_eq!(of("wide", Some(".spec.x")), Representation::TableWithObjects);
        assert_eq!(of("name", None), Representation::Metadata);
        assert_eq!(of("name", Some(".spec.x")), Representation::Whole);
        assert_eq!(of("custom-columns=A:.metadata.uid", None), Representation::Metadata);
        assert_eq!(of("custom-columns=A:.spec", None), Representation::Whole);
        assert_eq!(of("jsonpath={.metadata.name}", None), Representation::Whole);
    }
}
