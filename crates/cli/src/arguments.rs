//! Forms of the command line that kubectl accepts and clap does not. Flags may be before the
//! command or before the kind. A kind and a name may be one word, `KIND/NAME`. Flags without a value may be written as `--flag=true` or
//! `--flag=false`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Args as _, Command};

use crate::flags::{ConnectionFlags, NamespaceFlag};

/// The words in the form that `command` parses. Words after `--` stay as they are.
///
/// Flags before a subcommand are moved behind it: `-n shop get secrets` is `get -n shop secrets`,
/// and `delete -l a=b users` is `delete users -l a=b`. Before the command itself these are the
/// flags of the connection, and behind it all flags of its subcommands.
pub(crate) fn normalized(words: &[OsString], command: &Command) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (own, rest) = words.split_at(end);
    let Some((program, mut left)) = own.split_first() else { return words.to_vec() };
    let leading = leading_flags();
    let (mut at, mut known) = (command, &leading);
    let mut out = vec![program.clone()];
    let mut flags: Vec<&OsString> = Vec::new();
    let mut name = None;
    while let Some(count) = words_before_positional(left, known) {
        let (kind, rest) = kind_and_name(&left[count], at);
        let Some(next) = at.find_subcommand(&kind) else { break };
        out.push(kind);
        flags.extend(&left[..count]);
        left = &left[count + 1..];
        (at, known) = (next, next);
        if rest.is_some() {
            name = rest;
            break;
        }
    }
    let switches = switches(at);
    out.extend(flags.into_iter().filter_map(|word| switched(word, &switches)));
    out.extend(name);
    out.extend(left.iter().filter_map(|word| switched(word, &switches)));
    out.extend_from_slice(rest);
    out
}

/// A word that is the name of a subcommand, or `KIND/NAME` of a subcommand and an argument of it. A command with
/// arguments of its own reads `KIND/NAME` itself.
fn kind_and_name(word: &OsString, command: &Command) -> (OsString, Option<OsString>) {
    let has_own = command.get_positionals().next().is_some();
    let split = word.to_str().filter(|_| !has_own).and_then(|text| text.split_once('/'));
    match split.filter(|(kind, _)| command.find_subcommand(kind).is_some()) {
        Some((kind, name)) => (kind.into(), Some(name.into())),
        None => (word.clone(), None),
    }
}

/// The flags that may be before the command.
pub(crate) fn leading_flags() -> Command {
    NamespaceFlag::augment_args(ConnectionFlags::augment_args(Command::new("leading")))
}

/// The place of the command in the words.
pub(crate) fn command_at(words: &[&str]) -> Option<usize> {
    words_before_positional(words.get(1..)?, &leading_flags()).map(|count| count + 1)
}

/// How many words of flags and their values come before the first word that is neither. `None` without such a word, or
/// after a flag of which it is not known whether the next word is its value.
fn words_before_positional(words: &[impl AsRef<OsStr>], known: &Command) -> Option<usize> {
    let mut at = 0;
    while at < words.len() {
        let text = words[at].as_ref().to_str()?;
        at += match text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            None => return Some(at),
            Some(flag) => words_of_flag(flag, known)?,
        };
    }
    None
}

/// 1 for a flag with its value in the same word or without a value, 2 if the next word is the value. `flag` has no first
/// dash.
fn words_of_flag(flag: &str, known: &Command) -> Option<usize> {
    if let Some(long) = flag.strip_prefix('-') {
        let (name, has_value) =
            long.split_once('=').map_or((long, false), |(name, _)| (name, true));
        let takes_value = takes_value(known, &|arg| arg.get_long() == Some(name))?;
        return Some(if takes_value && !has_value { 2 } else { 1 });
    }
    // Several flags of one letter, of which the last one may have a value.
    let mut letters = flag.chars();
    while let Some(letter) = letters.next() {
        if takes_value(known, &|arg| arg.get_short() == Some(letter))? {
            return Some(if letters.as_str().is_empty() { 2 } else { 1 });
        }
        if letters.as_str().starts_with('=') {
            return Some(1);
        }
    }
    Some(1)
}

/// Whether a flag of the command or of its subcommands has a value. `None` if there is no such flag, or if that differs.
fn takes_value(command: &Command, is_meant: &dyn Fn(&Arg) -> bool) -> Option<bool> {
    let mut found = Vec::new();
    add_value_kinds(command, is_meant, &mut found);
    let first = *found.first()?;
    if found.iter().all(|one| *one == first) { first } else { None }
}

fn add_value_kinds(
    command: &Command,
    is_meant: &dyn Fn(&Arg) -> bool,
    found: &mut Vec<Option<bool>>,
) {
    for arg in command.get_arguments().filter(|arg| is_meant(arg)) {
        found.push(match arg.get_action() {
            // The value of such a flag may be missing.
            _ if arg.get_num_args().is_some_and(|count| count.min_values() == 0) => None,
            ArgAction::Set | ArgAction::Append => Some(true),
            _ => Some(false),
        });
    }
    for subcommand in command.get_subcommands() {
        add_value_kinds(subcommand, is_meant, found);
    }
}

/// A word, where `--flag=true` is `--flag`, and `--flag=false` is nothing.
fn switched(word: &OsString, switches: &[String]) -> Option<OsString> {
    let split = word.to_str().and_then(|text| text.split_once('='));
    match split.filter(|(name, _)| switches.iter().any(|one| one == name)) {
        Some((name, "true")) => Some(name.into()),
        Some((_, "false")) => None,
        _ => Some(word.clone()),
    }
}

/// The flags of a command without a value. Another command may have a flag of the same name with a value.
fn switches(command: &Command) -> Vec<String> {
    let is_switch = |arg: &&Arg| matches!(arg.get_action(), ArgAction::SetTrue);
    let mut names = Vec::new();
    for arg in command.get_arguments().filter(is_switch) {
        names.extend(arg.get_long().map(|name| format!("--{name}")));
        names.extend(arg.get_short().map(|name| format!("-{name}")));
    }
    names
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        _command: crate::Command,
    }

    fn said(words: &str) -> String {
        let command = <Line as clap::CommandFactory>::command();
        let words: Vec<OsString> =
            std::iter::once("postern").chain(words.split_whitespace()).map(Into::into).collect();
        let mut given = normalized(&words, &command).into_iter();
        assert_eq!(given.next().unwrap(), "postern");
        let given: Vec<_> = given.map(|word| word.into_string().unwrap()).collect();
        given.join(" ")
    }

    #[test]
    fn flags_may_be_before_the_command_and_before_the_kind() {
        for (words, wanted) in [
            ("get users", "get users"),
            ("-n shop get ss", "get -n shop ss"),
            // The last one of several counts, as it is written.
            ("-n shop get ss -n web", "get -n shop ss -n web"),
            ("-nshop --context=a get ss -o name", "get -nshop --context=a ss -o name"),
            (
                "--namespace shop --as ada get ss -- -n x",
                "get --namespace shop --as ada ss -- -n x",
            ),
            ("--debug get users", "get --debug users"),
            ("--access-key KEY --timeout 5s whoami", "whoami --access-key KEY --timeout 5s"),
            ("delete -n shop secret x", "delete secret -n shop x"),
            ("-n shop delete --context a secret x", "delete secret -n shop --context a x"),
            ("list -n shop secrets", "list secrets -n shop"),
            ("list -A secrets", "list secrets -A"),
            ("list -Ao wide secrets", "list secrets -Ao wide"),
            ("list -owide users", "list users -owide"),
            ("delete -l a=b users", "delete users -l a=b"),
            ("delete --all users", "delete users --all"),
            ("set -n shop secret a.b c", "set secret -n shop a.b c"),
            ("create -o name user x", "create user -o name x"),
            ("share --team red secret db", "share secret --team red db"),
            ("delete -f user", "delete -f user"),
            ("delete -n shop user/ada team/red", "delete -n shop user/ada team/red"),
            ("delete --unknown user x", "delete --unknown user x"),
            ("-l a=b get users", "-l a=b get users"),
            // A kind with a name is two words, unless the command takes KIND/NAME itself.
            ("share secret/db --team red", "share secret db --team red"),
            ("share -n shop secret/db", "share secret -n shop db"),
            ("disable accesskey/ci", "disable accesskey ci"),
            ("set secret/db.password a/b", "set secret db.password a/b"),
            ("delete secret/db user/ada", "delete secret/db user/ada"),
            ("get user/ada", "get user/ada"),
            ("share nothing/db", "share nothing/db"),
            ("-n shop", "-n shop"),
            ("--version", "--version"),
            ("", ""),
        ] {
            assert_eq!(said(words), wanted);
        }
    }

    #[test]
    fn flags_without_a_value_may_have_a_truth_value() {
        for (words, wanted) in [
            ("get --no-headers=true", "get --no-headers"),
            ("get -A=true -o x=true", "get -A -o x=true"),
            ("--debug=true get users", "get --debug users"),
            ("list -A=true secrets", "list secrets -A"),
            ("get --watch=false", "get"),
            ("get --watch=maybe --output=true", "get --watch=maybe --output=true"),
            ("run -- --debug=true", "run -- --debug=true"),
            // The flag has a value in this command.
            ("connect cluster x --set-current=false", "connect cluster x --set-current=false"),
        ] {
            assert_eq!(said(words), wanted);
        }
    }
}
