//! Commands that cannot be understood: the end is 2, and what may be secret is not repeated.

use std::process::exit;

use clap::Parser;
use clap::error::{ContextKind, ErrorKind};

/// The commands among whose arguments secret values stand. A value that was not put into quotes,
/// or that begins with a dash, looks like an argument too many; repeating it would put it on the
/// screen, and into the log of whatever runs the command.
const SECRET_ARGUMENTS: [&str; 2] = ["login", "set"];

/// Reads the command line, or says what is wrong with it and ends the process.
pub fn parse_or_exit<P: Parser>() -> P {
    let words: Vec<_> = std::env::args_os().collect();
    let mut command = P::command();
    let parsed = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| P::from_arg_matches(&matches))
        .map_err(|error| error.format(&mut command));
    parsed.unwrap_or_else(|error| {
        let hides = words
            .iter()
            .skip(1)
            .any(|word| SECRET_ARGUMENTS.iter().any(|command| word == command) || is_key(word));
        let error = if hides { quiet(error) } else { error };
        let code = error.exit_code();
        // A reader who went away has seen enough.
        let _ = error.print();
        exit(code)
    })
}

fn is_key(word: &std::ffi::OsStr) -> bool {
    word.to_string_lossy().contains(postern_kinds::access_key::PREFIX)
}

/// The same error without the words that were not understood.
fn quiet(mut error: clap::Error) -> clap::Error {
    let kinds =
        [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand, ErrorKind::TooManyValues];
    if kinds.contains(&error.kind()) {
        for kind in [
            ContextKind::InvalidArg,
            ContextKind::InvalidValue,
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
            ContextKind::Suggested,
        ] {
            error.remove(kind);
        }
        let advice = "one argument is too many or unknown; it is not repeated, as it may be \
                      secret. Put a value with spaces into quotes, and one that begins with - \
                      behind --";
        error.insert(
            ContextKind::Suggested,
            clap::error::ContextValue::StyledStrs(vec![advice.to_owned().into()]),
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::Command,
    }

    fn complaint(words: &[&str]) -> String {
        let words = [&["postern"], words].concat();
        let error = Line::try_parse_from(words).map(|line| drop(line.command)).unwrap_err();
        quiet(error).to_string()
    }

    #[test]
    fn what_may_be_secret_is_not_repeated() {
        for words in [
            &["set", "secret", "db.password", "correct", "hush"][..],
            &["set", "secret", "db.password", "-hush"],
            &["set", "secret", "db.password", "--hush"],
            &["set", "secret", "db.password", "--hush=x"],
            &["login", "https://h", "hush"],
            &["login", "https://h", "--hush"],
            &["login", "https://h", "--access-keys", "hush"],
        ] {
            let said = complaint(words);
            assert!(!said.contains("hush"), "{words:?}: {said}");
            assert!(said.contains("behind --"), "{words:?}: {said}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }
}
