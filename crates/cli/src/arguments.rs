//! Forms of the command line that kubectl takes and clap does not: flags of the connection before the command, and
//! `--flag=true` or `--flag=false` for flags without a value.

use std::ffi::OsString;

use clap::{ArgAction, Command};
use postern_kinds::{Info, Verb};

use crate::kinds;

/// The flags with a value that may stand before the command, as in `kubectl -n NAMESPACE get …`.
const LEADING: [&str; 10] = [
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--server",
    "--as",
    "--as-group",
    "--as-uid",
    "--ca-file",
    "--timeout",
];

/// The words in the form that `command` parses. What follows `--` stays as it is.
pub(crate) fn normalized(words: &[OsString], command: &Command) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (own, rest) = words.split_at(end);
    let mut own = own.iter().cloned();
    let mut out: Vec<OsString> = own.next().into_iter().collect();
    let own: Vec<OsString> = own.collect();
    let leading = leading_words(&own);
    let switches = switches(command, &own[leading..]);
    let ordered = own[leading..].iter().chain(&own[..leading]);
    out.extend(ordered.filter_map(|word| switched(word, &switches)));
    if out.get(1).is_some_and(|word| word == "delete") {
        out = with_kind_first(out, &switches);
    }
    out.extend_from_slice(rest);
    out
}

/// `delete KIND/NAME…`, as `get -o name` prints them, in the form `delete KIND NAME…`. Objects of several kinds stay as they
/// are.
fn with_kind_first(words: Vec<OsString>, switches: &[String]) -> Vec<OsString> {
    let mut found: Option<&'static Info> = None;
    let mut out = Vec::with_capacity(words.len() + 1);
    for (at, word) in words.iter().enumerate() {
        let before = words[at.saturating_sub(1)].to_string_lossy();
        let is_value = before.starts_with('-') && !switches.iter().any(|one| *one == before);
        let split = word.to_str().and_then(|text| text.split_once('/')).filter(|_| !is_value);
        let object = split.and_then(|(kind, name)| {
            Some((kinds::find(&kind.to_ascii_lowercase(), kinds::served(Verb::Delete))?, name))
        });
        let Some((info, name)) = object else {
            out.push(word.clone());
            continue;
        };
        match found {
            None => {
                found = Some(info);
                out.extend([kinds::name(info).into(), name.into()]);
            }
            Some(first) if std::ptr::eq(first, info) => out.push(name.into()),
            Some(_) => return words,
        }
    }
    out
}

/// How many words before the command are flags of [`LEADING`] and their values; 0 if no command follows.
fn leading_words(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(text) = words.get(at).and_then(|word| word.to_str()) {
        let (name, has_value) =
            text.split_once('=').map_or((text, false), |(name, _)| (name, true));
        let is_short_with_value = name.starts_with("-n") && name.len() > 2;
        at += match LEADING.contains(&name) {
            true if has_value => 1,
            true => 2,
            false if is_short_with_value => 1,
            false => break,
        };
    }
    if at < words.len() { at } else { 0 }
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

/// The flags without a value, of the command that the words name. Another command may have a flag of the same name with a
/// value.
fn switches(command: &Command, words: &[OsString]) -> Vec<String> {
    let is_switch = |arg: &&clap::Arg| matches!(arg.get_action(), ArgAction::SetTrue);
    let mut at = command;
    let mut names = Vec::new();
    let mut add = |command: &Command| {
        for arg in command.get_arguments().filter(is_switch) {
            names.extend(arg.get_long().map(|name| format!("--{name}")));
            names.extend(arg.get_short().map(|name| format!("-{name}")));
        }
    };
    add(at);
    for word in words {
        if let Some(found) = at.find_subcommand(word) {
            add(found);
            at = found;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        _command: Verb,
    }

    #[derive(Subcommand)]
    enum Verb {
        Get {
            #[arg(short = 'A', long)]
            _all: bool,
            #[arg(short, long)]
            _output: Option<String>,
        },
        Run {
            #[arg(long)]
            _all: String,
        },
    }

    #[test]
    fn forms_of_kubectl_are_understood() {
        let command = <Line as clap::CommandFactory>::command();
        for (words, wanted) in [
            ("get users", "get users"),
            ("-n shop get ss", "get ss -n shop"),
            ("-nshop --context=a get ss -o name", "get ss -o name -nshop --context=a"),
            (
                "--namespace shop --as ada get ss -- -n x",
                "get ss --namespace shop --as ada -- -n x",
            ),
            ("get --all=true", "get --all"),
            ("get -A=true -o x=true", "get -A -o x=true"),
            ("get --all=false", "get"),
            ("get --all=maybe --output=true", "get --all=maybe --output=true"),
            ("run -- --all=true", "run -- --all=true"),
            // Here it has a value.
            ("run --all=false", "run --all=false"),
            ("delete user/ada", "delete user ada"),
            (
                "-n shop delete team.management.platform.sh/red teams/blue -o name",
                "delete team red blue -o name -n shop",
            ),
            ("delete user/ada team/red", "delete user/ada team/red"),
            ("delete user a --kubeconfig user/x", "delete user a --kubeconfig user/x"),
            ("delete user a/b", "delete user a/b"),
            ("-n shop", "-n shop"),
            ("--version", "--version"),
            ("", ""),
        ] {
            let words: Vec<OsString> = std::iter::once("postern")
                .chain(words.split_whitespace())
                .map(Into::into)
                .collect();
            let mut given = normalized(&words, &command).into_iter();
            assert_eq!(given.next().unwrap(), "postern");
            let given: Vec<_> = given.map(|word| word.into_string().unwrap()).collect();
            assert_eq!(given.join(" "), wanted);
        }
    }
}
