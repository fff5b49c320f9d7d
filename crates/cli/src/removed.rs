//! Commands and a format that this program had, and that kubectl has. Their errors name the line for kubectl.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use postern_kinds::access_key;

use crate::arguments::command_at;
use crate::kinds;

/// A command or a format that was removed.
struct Removed {
    /// The command, or `-o` and a format.
    name: &'static str,
    /// The start of the line for kubectl.
    line: &'static str,
    /// The other words of the line where the user's own arguments cannot be in it.
    form: &'static str,
    /// Further information for the user.
    note: &'static str,
}

const REMOVED: [Removed; 4] = [
    Removed { name: "wait", line: "kubectl wait", form: "--for=CONDITION KIND/NAME", note: "" },
    Removed {
        name: "diff",
        line: "kubectl diff --server-side --field-manager=postern",
        form: "-f FILE",
        note: "\nkubectl also prints the values of secrets",
    },
    Removed {
        name: TOP,
        line: "kubectl get --raw /metrics",
        form: "",
        note: "\nthe dashboard deploy/dashboards/postern.json shows these metrics, and `kubectl get KIND --watch` \
               prints changes of objects",
    },
    Removed {
        name: "-o custom-columns",
        line: "kubectl get",
        form: "KIND -o custom-columns=HEADING:PATH",
        note: "",
    },
];

/// The command with arguments that kubectl does not accept.
const TOP: &str = "top";

/// Flags that kubectl does not have, or that have a secret value.
const OWN_FLAGS: [&str; 3] = ["--access-key", "--ca-file", "--debug"];

/// The message of an error about a removed command or format.
pub(crate) fn message(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let at = command_at(&words)?;
    let name = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) if words[at] == "get" => {
            let format = value.split_once('=').map_or(value.as_str(), |(format, _)| format);
            format!("-o {}", format.trim_end_matches("-file"))
        }
        _ => words[at].to_owned(),
    };
    let removed = REMOVED.iter().find(|one| one.name == name)?;
    let is_own = |word: &&str| {
        word.contains(access_key::PREFIX) || OWN_FLAGS.iter().any(|flag| word.starts_with(flag))
    };
    let mut line = removed.line.to_owned();
    if words.len() == 2 || name == TOP || words.iter().any(is_own) {
        line = format!("{line} {}", removed.form);
    } else {
        for pair in words.windows(2).take(at - 1).chain(words.windows(2).skip(at)) {
            line = format!("{line} {}", quoted(&kubectl_word(pair[0], pair[1])));
        }
    }
    let (line, note) = (line.trim_end(), removed.note);
    Some(format!(
        "`postern {name}` was removed; use kubectl with the same kubeconfig:\n  {line}{note}"
    ))
}

/// A word as kubectl accepts it: a name of a kind that only this program has becomes the name in
/// the API.
fn kubectl_word(before: &str, word: &str) -> String {
    let is_value =
        before.starts_with('-') && !before.contains('=') && !["-A", "-w"].contains(&before);
    if is_value || word.starts_with('-') {
        return word.to_owned();
    }
    let (kinds, rest) = word.split_at(word.find('/').unwrap_or(word.len()));
    let in_api = |kind: &str| {
        let is_alias = |info: &&postern_kinds::Info| info.aliases.contains(&kind);
        kinds::all().find(is_alias).map_or_else(|| kind.to_owned(), |info| info.singular.to_owned())
    };
    let kinds: Vec<String> = kinds.split(',').map(in_api).collect();
    kinds.join(",") + rest
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::Command,
    }

    fn said(words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = [&["postern"], words].concat().iter().map(Into::into).collect();
        let words = crate::arguments::normalized(&words, &Line::command());
        let error = Line::try_parse_from(&words).map(|line| drop(line.command)).unwrap_err();
        message(&error, &words)
    }

    #[test]
    fn the_line_for_kubectl_has_the_arguments() {
        for (words, wanted) in [
            (&["wait", "user/ada", "--for=delete"][..], "kubectl wait user/ada --for=delete"),
            (
                &["-n", "my shop", "wait", "secret", "db", "--for=jsonpath={.a}=it's"],
                r"kubectl wait -n 'my shop' sharedsecret db '--for=jsonpath={.a}=it'\''s'",
            ),
            (&["wait", "--for", "delete", "space/a", "ns/b"], "--for delete spaceinstance/a ns/b"),
            (&["wait"], "kubectl wait --for=CONDITION KIND/NAME"),
            (&["wait", "user/a", "--access-key", "hush"], "kubectl wait --for=CONDITION KIND/NAME"),
            (&["wait", "pst_hush"], "kubectl wait --for=CONDITION KIND/NAME"),
            (&["diff", "-f", "secret"], "--field-manager=postern -f secret\n"),
            (&["top", "--interval", "1s"], "kubectl get --raw /metrics\n"),
            (
                &["get", "-A", "secrets,users", "-o", "custom-columns=A:.kind"],
                "kubectl get -A sharedsecret,users -o custom-columns=A:.kind",
            ),
            (&["get", "users", "-ocustom-columns-file=x"], "get users -ocustom-columns-file=x"),
        ] {
            let said = said(words).unwrap();
            assert!(said.contains(wanted), "{words:?}: {said}");
            assert!(!said.contains("hush"), "{said}");
        }
    }

    #[test]
    fn other_errors_stay() {
        for words in [
            &["frobnicate"][..],
            &["get", "users", "-o", "xml"],
            &["get", "users", "-o", "wait"],
            &["get", "wait", "--frobnicate"],
            &["list", "users", "-o", "custom-columns=A:.kind"],
        ] {
            assert_eq!(said(words), None, "{words:?}");
        }
    }
}
