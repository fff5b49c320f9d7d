//! The settings file of `postern serve`. Its entries become flags, so a value has one parser for
//! every source.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

/// The flags, completed with the entries of a file. A flag or a variable overrides an entry.
///
/// # Errors
/// When the file cannot be read or is invalid. The error names the file and the entry.
pub(crate) fn complete<Flags: Args>(given: &ArgMatches, path: &Path) -> anyhow::Result<Flags> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads its own settings")]
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the settings file {} of --config", path.display()))?;
    with_text(given, &text).with_context(|| format!("invalid settings in {}", path.display()))
}

pub(crate) fn with_text<Flags: Args>(given: &ArgMatches, text: &str) -> anyhow::Result<Flags> {
    let command =
        Flags::augment_args(Command::new("settings").disable_help_flag(true).no_binary_name(true));
    let parse = |words: Vec<OsString>| {
        let matches = command.clone().try_get_matches_from(words);
        matches.map_err(|error| anyhow::anyhow!("{}", without_usage(&error)))
    };
    let entries = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        deserializer.deserialize_map(Entries(&command))
    })?;
    // All entries are checked, also those that a flag overrides.
    parse(entries.iter().map(|(key, value)| word(key, value.as_ref())).collect())?;
    let is_explicit = |arg: &&Arg| {
        let source = given.value_source(arg.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let mut words = Vec::new();
    for arg in command.get_arguments() {
        let key = arg.get_long().unwrap_or_default();
        if is_explicit(&arg) {
            let values = given.get_raw(arg.get_id().as_str()).into_iter().flatten();
            words.extend(values.map(|value| word(key, value)));
        } else {
            let values = entries.iter().filter(|(name, _)| name == key);
            words.extend(values.map(|(_, value)| word(key, value.as_ref())));
        }
    }
    Ok(Flags::from_arg_matches(&parse(words)?)?)
}

/// `--key=value`
fn word(key: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{key}="));
    word.push(value);
    word
}

/// The message of an error of clap, without the usage of flags.
fn without_usage(error: &clap::Error) -> String {
    let text = error.render().to_string().replace("\n  [", " [");
    let parts = text.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let is_kept = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more");
    parts.filter(is_kept).collect::<Vec<_>>().join("; ")
}

/// Reads the entries of a file with the settings of a command. Each value of a list is an entry.
struct Entries<'a>(&'a Command);

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by the names of the flags")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let arg = self.0.get_arguments().find(|arg| arg.get_long() == Some(&key));
            let values = match arg {
                // The parser of flags reports it.
                None => map.next_value::<IgnoredAny>().map(|_| vec![String::new()])?,
                Some(arg) if matches!(arg.get_action(), ArgAction::Append) => {
                    map.next_value::<Option<Vec<String>>>()?.unwrap_or_default()
                }
                // YAML has more words for it than flags.
                Some(arg) if arg.get_value_parser().type_id() == TypeId::of::<bool>() => {
                    map.next_value::<Option<bool>>()?.iter().map(ToString::to_string).collect()
                }
                Some(_) => map.next_value::<Option<String>>()?.into_iter().collect(),
            };
            entries.extend(values.into_iter().map(|value| (key.clone(), value)));
        }
        Ok(entries)
    }
}
