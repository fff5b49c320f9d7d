//! The objects that a command is about, as kubectl has them: `KIND`, `KIND NAME…`, `KIND/NAME…`, several kinds with
//! commas.

use clap::Args;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use postern_kinds::{Info, Verb, access_key};
use postern_meta::names::path_segment;

use crate::error::CliError;
use crate::kinds;
use crate::output::escape;
use crate::similar::nearest;

/// An object, or all objects of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The kind.
    pub(crate) info: &'static Info,
    /// The name of the object.
    pub(crate) name: Option<String>,
}

/// The objects that a command is for.
#[derive(Args, Debug)]
pub(crate) struct ObjectWords {
    /// A kind and the names of objects; or KIND/NAME, which may be repeated
    #[arg(
        value_name = "KIND[/NAME]",
        required = true,
        value_parser = KindParser,
        hide_possible_values = true
    )]
    pub(crate) words: Vec<String>,
}

/// The objects that the words name, of kinds that serve the verb.
pub(crate) fn wanted(words: &[String], verb: Verb) -> Result<Vec<Wanted>, CliError> {
    let Some((first, names)) = words.split_first() else {
        return Err(CliError::usage("no kind is given"));
    };
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| one(word, verb)).collect();
    }
    let kinds = first.split(',').map(|word| kind(word, verb)).collect::<Result<Vec<_>, _>>()?;
    let names = names.iter().map(|text| name(text)).collect::<Result<Vec<_>, _>>()?;
    let of_kind = |info: &'static Info| -> Vec<Wanted> {
        if names.is_empty() {
            return vec![Wanted { info, name: None }];
        }
        names.iter().map(|name| Wanted { info, name: Some(name.clone()) }).collect()
    };
    Ok(kinds.into_iter().flat_map(of_kind).collect())
}

/// The kind of a word, if it serves the verb.
pub(crate) fn kind(word: &str, verb: Verb) -> Result<&'static Info, CliError> {
    let lower = word.to_ascii_lowercase();
    let serving = || kinds::all().filter(|info| info.serves(verb));
    if let Some(info) = kinds::find(&lower, serving()) {
        return Ok(info);
    }
    if let Some(info) = kinds::find(&lower, kinds::all()) {
        let message = format!("{} do not support the verb {}", info.plural, verb.as_str());
        return Err(CliError::usage(message));
    }
    let error = CliError::usage(format!("unknown kind {}", repeated(word)));
    let near =
        nearest(&lower, serving().filter(|info| info.on_command_line).flat_map(kinds::names));
    Err(match near.first() {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(kinds::hint(verb)),
    })
}

fn one(word: &str, verb: Verb) -> Result<Wanted, CliError> {
    let Some((of, text)) = word.split_once('/') else {
        let message = format!("{} is not KIND/NAME, as the other arguments are", repeated(word));
        return Err(CliError::usage(message)
            .hint("with KIND/NAME, there is no need for a KIND as a separate argument"));
    };
    Ok(Wanted { info: kind(of, verb)?, name: Some(name(text)?) })
}

fn name(text: &str) -> Result<String, CliError> {
    let wrong = |what: &str| CliError::usage(format!("invalid NAME {}: {what}", repeated(text)));
    if text.is_empty() {
        return Err(wrong("it must not be empty"));
    }
    path_segment(text).map(|()| text.to_owned()).map_err(|what| wrong(&what))
}

/// A word of the command line in a message, unless it may be an access key.
fn repeated(word: &str) -> String {
    if word.contains(access_key::PREFIX) {
        return "(not printed, because it may be secret)".to_owned();
    }
    format!("\"{}\"", escape(word))
}

/// A parser of any text that completions know as the name of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindParser;

impl TypedValueParser for KindParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = kinds::served(Verb::Get).flat_map(|info| {
            let names = [kinds::name(info), kinds::plural_name(info)];
            names.into_iter().chain(info.short.iter().copied())
        });
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        match wanted(&words, Verb::Get) {
            Ok(all) => {
                let one = |one: &Wanted| {
                    format!("{}/{}", one.info.plural, one.name.as_deref().unwrap_or("*"))
                };
                all.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Err(error) => format!("error: {} {}", error.message, error.hints.join(" ")),
        }
    }

    #[test]
    fn objects_are_named_as_in_kubectl() {
        for (words, wanted) in [
            (&["users"][..], "users/*"),
            (&["User", "ada", "bob"], "users/ada users/bob"),
            (&["user/ada", "ss/db"], "users/ada sharedsecrets/db"),
            (&["users,teams"], "users/* teams/*"),
            (&["users,teams", "a"], "users/a teams/a"),
            (&["secrets.management.platform.sh"], "sharedsecrets/*"),
            (&["secrets.v1."], "secrets/*"),
            (&["roles.v1.rbac.authorization.k8s.io", "platform:x"], "roles/platform:x"),
            (&["events"], "events/*"),
            (&["ns/default"], "namespaces/default"),
        ] {
            assert_eq!(summary(words), wanted, "{words:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for (words, wanted) in [
            (&["usre"][..], "did you mean user"),
            (&["zzzzzz"], "the kinds are namespaces, "),
            (&["user/ada", "bob"], "\"bob\" is not KIND/NAME"),
            (&["user", "ada/x"], "\"user\" is not KIND/NAME"),
            (&["user/"], "must not be empty"),
            (&["user/a/b"], "invalid NAME \"a/b\""),
            (&["user", ".."], "invalid NAME"),
            (&["users,"], "unknown kind \"\""),
            (&["tokenreviews"], "do not support the verb get"),
            (&["a\u{1b}[2J"], "a\\u{1b}[2J"),
        ] {
            let said = summary(words);
            assert!(said.starts_with("error: ") && said.contains(wanted), "{words:?}: {said}");
        }
        for words in [&["pst_hush"][..], &["user/pst_hush/x"], &["pst_hush", "user/a"]] {
            assert!(!summary(words).contains("hush"), "{words:?}");
        }
    }
}
