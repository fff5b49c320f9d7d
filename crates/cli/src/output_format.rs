//! The output formats of `get`, and their parsing.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use postern_client::Representation;

use crate::jsonpath::{Path, Template};

/// The formats that an argument of `-o` may name.
const NAMES: [&str; 8] = ["wide", "json", "yaml", "name", "jsonpath=", "value", "env", "dotenv"];

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
    /// One value of a secret, byte for byte.
    Value,
    /// The values of a secret as `NAME='value'` for a shell.
    Env,
    /// The values of a secret as `NAME="value"` for a `.env` file.
    Dotenv,
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
            ("jsonpath", None) => Err("a template is missing: -o jsonpath='{.kind}'".to_owned()),
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
        Some(_) => Representation::Whole,
    }
}

/// A parser of [`OutputFormat`] with formats that completions know.
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
    use super::*;

    #[test]
    fn formats_and_what_is_none() {
        for text in ["wide", "json", "yaml", "name", "value", "env", "dotenv", "jsonpath={.a}"] {
            assert!(OutputFormat::parse(text).is_ok(), "{text}");
        }
        for (text, wanted) in [
            ("xml", "jsonpath="),
            ("json=x", "formats are"),
            ("jsonpath", "template is missing"),
            ("jsonpath={.a", "invalid template"),
        ] {
            let error = OutputFormat::parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
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
        assert_eq!(of("jsonpath={.metadata.name}", None), Representation::Whole);
    }
}
