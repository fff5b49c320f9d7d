//! Errors of parsing the command line. Exit code 2; arguments that may be secret are not repeated.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::exit;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use postern_kinds::{Verb, access_key};

use crate::arguments::normalized;
use crate::escape::{controls_terminal, escape_lines};
use crate::process::command_prefix;
use crate::similar::nearest;
use crate::{kinds, removed};

/// The commands that have secret values among their arguments. A value without quotes, or one that
/// begins with a dash, looks like an argument too many. A repetition would print it on the screen,
/// and into the log of the program that runs the command.
const SECRET_ARGUMENTS: [&str; 2] = ["login", "set"];

/// Parses the command line. Where that fails, prints why and exits the process.
pub fn parse_or_exit<P: Parser>() -> P {
    let words: Vec<_> = std::env::args_os().collect();
    let prefix = command_prefix(words.first().map(OsString::as_os_str));
    // As in kubectl, the last of several values counts: an alias can set a default.
    let mut command = P::command().bin_name(prefix).args_override_self(true);
    let words = normalized(&words, &command);
    let parsed = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| P::from_arg_matches(&matches))
        .map_err(|error| error.format(&mut command));
    parsed.unwrap_or_else(|error| {
        let error = match removed::message(&error, &words) {
            Some(message) => command.error(ErrorKind::InvalidSubcommand, message),
            None => error,
        };
        let error = if may_repeat(&error, &words) { error } else { redacted(error) };
        let error = with_list_hint(without_escape_tip(error), &words);
        let error = with_own_command(error, &words);
        let code = error.exit_code();
        // If the reader has closed the output, the failure is ignored.
        let _ = print(&error, &words);
        exit(code)
    })
}

/// Prints the error or the help. Words that would control a terminal are escapes in it, and it has no colours then.
fn print(error: &clap::Error, words: &[OsString]) -> io::Result<()> {
    let is_plain = |word: &OsString| !word.to_string_lossy().chars().any(controls_terminal);
    if !error.use_stderr() || words.iter().all(is_plain) {
        return error.print();
    }
    io::stderr().write_all(escape_lines(&error.render().to_string()).as_bytes())
}

/// Whether the error may repeat the words that were not understood.
fn may_repeat(error: &clap::Error, words: &[OsString]) -> bool {
    let is_key = |word: &OsString| word.to_string_lossy().contains(access_key::PREFIX);
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::TooManyValues => {
            let takes_secrets =
                |word: &OsString| SECRET_ARGUMENTS.iter().any(|command| word == command);
            !words.iter().skip(1).any(|word| takes_secrets(word) || is_key(word))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => !words.iter().any(is_key),
        _ => true,
    }
}

/// Adds which command lists names, where a name is missing.
fn with_list_hint(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let is_new = words.get(1).is_some_and(|verb| verb == "create");
    if is_new || error.kind() != ErrorKind::MissingRequiredArgument {
        return error;
    }
    // A missing flag, as `<--user <USER>|…>`, is no name.
    let is_name = |missing: &String| !missing.starts_with('-') && !missing.starts_with("<-");
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if !missing.iter().any(is_name) {
        return error;
    }
    let kind = words.get(2).and_then(|word| word.to_str()).unwrap_or_default();
    if let Some(info) = kinds::served(Verb::List).find(|info| kinds::names(info).contains(&kind)) {
        let hint = format!("`postern list {}` lists them", kinds::plural_name(info));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// Removes the tip of clap to pass an unknown flag as a value behind `--`. There it would be the name of an object, such as
/// one to delete.
fn without_escape_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// Commands of other tools, and what to use here. The first match counts.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (&["auth", "whoami"], "`kubectl auth whoami` is `postern whoami` here"),
    (&["auth"], "`kubectl auth can-i` is `postern can-i` here"),
    (
        &["create", "secret"],
        "`postern set secret NAME.KEY` stores a value, and creates the secret if it is missing",
    ),
    (
        &["create", "clusterrolebinding"],
        "`postern grant ROLE --user USER` creates the binding, and --team is for a team",
    ),
    (
        &["create", "rolebinding"],
        "`postern grant ROLE --user USER --namespace NAMESPACE` creates the binding",
    ),
    (
        &["patch"],
        "`kubectl patch` works with the same kubeconfig, and `postern edit` opens an editor",
    ),
    (&["audit"], "the audit log is a file of the server: see docs/reference/audit.md"),
];

/// Names what to use here in place of a command of another tool. Only commands with a similar name are suggested.
fn with_own_command(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let suggested = error.remove(ContextKind::SuggestedSubcommand);
    if let Some((_, hint)) = ELSEWHERE.iter().find(|(start, _)| words.starts_with(start)) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*hint).into()]));
    } else if let (Some(ContextValue::String(unknown)), Some(ContextValue::Strings(suggested))) =
        (error.get(ContextKind::InvalidSubcommand), suggested)
    {
        let near = nearest(unknown, suggested.iter().map(String::as_str));
        let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
        if !near.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
        }
    }
    error
}

/// The error without the words that were not understood.
fn redacted(mut error: clap::Error) -> clap::Error {
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
    let advice = "invalid argument (not printed, because it may be secret): quote a value with \
                  spaces, and put a value that begins with - after --";
    let advice = ContextValue::StyledStrs(vec![advice.to_owned().into()]);
    error.insert(ContextKind::Suggested, advice);
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
        let words: Vec<_> = [&["postern"], words].concat().iter().map(OsString::from).collect();
        let error = Line::try_parse_from(&words).map(|line| drop(line.command)).unwrap_err();
        // `-hush` begins with `-h`, which asks for help.
        assert!(error.kind() == ErrorKind::DisplayHelp || !may_repeat(&error, &words), "{error}");
        redacted(error).to_string()
    }

    #[test]
    fn what_may_be_secret_is_not_repeated() {
        for words in [
            &["set", "secret", "db.password", "-hush"][..],
            &["set", "secret", "db.password", "--hush"],
            &["set", "secret", "db.password", "--hush=x"],
            &["login", "https://h", "hush"],
            &["login", "https://h", "--hush"],
            &["login", "https://h", "--access-keys", "hush"],
            &["whoami", "pst_hush"],
            &["create", "accesskey", "pst_hush"],
            &["create", "accesskey", "--user", "pst_hush"],
            &["delete", "accesskey", "pst_hush"],
        ] {
            let said = complaint(words);
            assert!(!said.contains("hush"), "{words:?}: {said}");
            assert!(said.contains("after --"), "{words:?}: {said}");
        }
    }

    #[test]
    fn what_is_no_secret_is_repeated() {
        for words in [&["delete", "secret", "a/b"][..], &["frobnicate"], &["login", "--timeout=x"]]
        {
            let words: Vec<_> = [&["postern"], words].concat().iter().map(OsString::from).collect();
            let error = Line::try_parse_from(&words).map(|line| drop(line.command)).unwrap_err();
            assert!(may_repeat(&error, &words), "{error}");
        }
    }

    fn error_of(words: &[&str]) -> (clap::Error, Vec<OsString>) {
        let words: Vec<_> = [&["postern"], words].concat().iter().map(OsString::from).collect();
        let words = normalized(&words, &Line::command());
        let error = Line::try_parse_from(&words).map(|line| drop(line.command)).unwrap_err();
        (error, words)
    }

    #[test]
    fn an_unknown_flag_is_not_said_to_be_a_name() {
        for words in [
            &["disable", "accesskey", "--dry-run", "ada"][..],
            &["edit", "--dry-run", "user/ada"],
            &["share", "secret", "db", "--dry-run"],
        ] {
            let (error, _) = error_of(words);
            assert!(error.to_string().contains("to pass '--dry-run' as a value"), "{error}");
            let said = without_escape_tip(error).to_string();
            assert!(said.contains("'--dry-run'") && !said.contains("-- --dry-run"), "{said}");
            assert!(!said.contains("\n\n\n"), "{said}");
        }
        let (error, _) = error_of(&["delete", "user", "--ignore-not-fond", "ada"]);
        assert!(without_escape_tip(error).to_string().contains("'--ignore-not-found'"));
    }

    #[test]
    fn the_command_that_lists_names_is_for_a_missing_name() {
        for (words, is_named) in [
            (&["share", "secret", "--user", "ada"][..], true),
            (&["share", "secret", "db"], false),
            (&["share", "secret"], true),
            (&["connect", "space", "s"], false),
        ] {
            let (error, words) = error_of(words);
            let said = with_list_hint(error, &words).to_string();
            assert_eq!(said.contains("lists them"), is_named, "{words:?}: {said}");
        }
    }

    #[test]
    fn commands_of_kubectl_auth_are_named() {
        for own in ["can-i", "whoami"] {
            let (error, words) = error_of(&["auth", own, "get", "users"]);
            let said = with_own_command(error, &words).to_string();
            assert!(said.contains(&format!("`postern {own}`")), "{said}");
            assert!(!said.contains("similar"), "{said}");
        }
        let (error, words) = error_of(&["frobnicate", "auth"]);
        assert!(!with_own_command(error, &words).to_string().contains("can-i"));
    }

    #[test]
    fn a_command_is_suggested_only_if_it_is_near_or_meant() {
        for (words, suggested) in [
            (&["lsit", "users"][..], Some("'list'")),
            (&["cosnole"], Some("'console'")),
            (&["create", "secret", "db"], Some("postern set secret")),
            (&["create", "clusterrolebinding", "x"], Some("postern grant ROLE")),
            (&["create", "rolebinding", "x"], Some("--namespace NAMESPACE")),
            (&["patch", "user", "ada"], Some("kubectl patch")),
            (&["audit"], Some("reference/audit.md")),
            (&["create", "sharing", "db"], None),
            (&["frobnicate"], None),
        ] {
            let (error, words) = error_of(words);
            let said = with_own_command(error, &words).to_string();
            match suggested {
                Some(suggested) => assert!(said.contains(suggested), "{words:?}: {said}"),
                None => assert!(!said.contains("tip:"), "{words:?}: {said}"),
            }
        }
    }

    #[test]
    fn objects_to_delete_are_named_in_one_form() {
        for words in [
            &["delete", "user", "x1", "team/ada"][..],
            &["delete", "user", "--ignore-not-found", "zzz", "team/ada"],
            &["delete", "-n", "shop", "secret", "secret/db"],
        ] {
            let (error, _) = error_of(words);
            assert!(error.to_string().contains("cannot be mixed"), "{words:?}: {error}");
        }
        for words in [
            &["delete", "user/a", "team/b", "-o", "name", "--ignore-not-found"][..],
            &["delete", "user/a", "team"],
            &["delete", "user.management.platform.sh", "a", "b"],
            &["delete", "-n", "shop", "secret/db", "-i"],
            &["delete", "-f", "x.yaml", "-R"],
            &["delete", "-l", "a=b", "users"],
            &["delete", "secret", "db", "--project", "web"],
        ] {
            let words: Vec<_> = [&["postern"], words].concat().iter().map(OsString::from).collect();
            let words = normalized(&words, &Line::command());
            let parsed = Line::try_parse_from(&words).map(|line| drop(line.command));
            assert!(parsed.is_ok(), "{words:?}: {parsed:?}");
        }
        for words in [&["delete", "user/a", "-f", "x.yaml"][..], &["delete", "-n", "shop"]] {
            error_of(words);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }
}
