//! Completion of words in a shell. The script of a shell (`postern completion SHELL`) runs the hidden command `__complete`
//! with the words up to the cursor, and shows the candidates that it prints.
//!
//! The output has the form of cobra, which kubectl's plugins use, too: a candidate a line, a tab and its description, and
//! a last line with a number. Nothing is an error: without an answer in time, there are no candidates.

mod names;
mod position;
mod shell_words;
mod source;

use clap::Args;

use crate::process::Process;
use position::Position;
use source::Found;

/// Bits of the last line, as cobra has them: no space follows a candidate, and no names of files are candidates.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;
/// The most characters of a description.
const DESCRIPTION_MAX: usize = 80;

/// The arguments of `postern __complete`.
#[derive(Args, Debug)]
pub struct Complete {
    /// The line up to the cursor, as bash has it; the words are in it
    #[arg(long, allow_hyphen_values = true, conflicts_with = "words")]
    line: Option<String>,

    /// The end of the line that bash replaces by a candidate
    #[arg(
        long,
        allow_hyphen_values = true,
        requires = "line",
        default_value = "",
        hide_default_value = true
    )]
    replaced: String,

    /// The words behind the name of the program; the last one is at the cursor
    #[arg(last = true)]
    words: Vec<String>,
}

/// A candidate for the word at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The whole word.
    pub(crate) value: String,
    /// What it is, in a few words; may be empty.
    pub(crate) description: String,
}

impl Candidate {
    fn new(value: impl Into<String>, description: &str) -> Self {
        let first_line = description.lines().next().unwrap_or_default().trim();
        let description = first_line.chars().filter(|c| !c.is_control());
        Self { value: value.into(), description: description.take(DESCRIPTION_MAX).collect() }
    }

    /// Whether a shell takes the value as it is. Others write objects: a name that a shell would expand or run is no
    /// candidate.
    fn is_plain(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/@=,+".contains(c);
        !self.value.is_empty() && self.value.chars().all(plain)
    }
}

impl Complete {
    /// Prints the candidates.
    pub(crate) fn run(self, root: &clap::Command, process: &Process) {
        let mut words = match &self.line {
            Some(line) => shell_words::split(line).split_off(1),
            None => self.words,
        };
        let current = words.pop().unwrap_or_default();
        // In bash, a candidate takes the place of what is behind the last = or : of the word.
        let kept = current.strip_suffix(self.replaced.as_str()).filter(|_| self.line.is_some());
        let found =
            Position::of(&words, root, |position| source::find(position, &current, process));
        // No error: the reader may be gone.
        drop(process.write_stdout(lines(found, kept.unwrap_or_default()).as_bytes()));
    }
}

/// The output. `kept` is the start of the word that the shell keeps.
fn lines(found: Found, kept: &str) -> String {
    let Found { mut candidates, has_files } = found;
    candidates.retain(Candidate::is_plain);
    let goes_on = |one: &Candidate| one.value.ends_with(['=', '/', '.']);
    let spaces =
        if !candidates.is_empty() && candidates.iter().all(goes_on) { NO_SPACE } else { 0 };
    let mut out = String::new();
    for candidate in candidates {
        let value = candidate.value.strip_prefix(kept).unwrap_or(&candidate.value);
        out.push_str(value);
        if !candidate.description.is_empty() {
            out.push('\t');
            out.push_str(&candidate.description);
        }
        out.push('\n');
    }
    let files = if has_files { 0 } else { NO_FILES };
    format!("{out}:{}\n", spaces | files)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        _command: crate::Command,
    }

    /// The candidates for a line of bash, without their descriptions.
    fn complete(line: &str) -> String {
        let process = Process::with(&[("POSTERN_SERVER", "no URL")]);
        let mut words = shell_words::split(line).split_off(1);
        let current = words.pop().unwrap();
        let root = Line::command();
        let found =
            Position::of(&words, &root, |position| source::find(position, &current, &process));
        let printed = lines(found, "");
        let values: Vec<_> = printed.lines().map(|line| line.split('\t').next().unwrap()).collect();
        values.join(" ")
    }

    #[test]
    fn commands_flags_and_kinds_are_candidates() {
        for (line, wanted) in [
            ("postern desc", "describe :4"),
            ("postern get --field", "--field-selector :4"),
            ("postern -n shop get --field", "--field-selector :4"),
            ("postern get -n shop --field", "--field-selector :4"),
            ("postern get tea", "team teams :4"),
            ("postern get users,tea", "users,team users,teams :4"),
            ("postern get -o js", "json jsonpath= :4"),
            ("postern get -o=js", "-o=json -o=jsonpath= :4"),
            ("postern get --output=ya", "--output=yaml :4"),
            ("postern share sec", "secret :4"),
            ("postern delete accessk", "accesskey accesskeys :4"),
            ("postern --contex", "--context :4"),
            ("postern can-i ge", "get :4"),
            ("postern can-i get connec", "connector connectors :4"),
            ("postern get team/red tea", "team/ :6"),
            ("postern access us", "user users :4"),
            ("postern login --ca-fi", "--ca-file :4"),
            ("postern completion z", "zsh :4"),
            ("postern grant --project web --user ada vie", "viewer :4"),
            ("postern create -f ", ":0"),
            ("postern get --kubeconfig=", ":0"),
            ("postern run --secret db -- ", ":0"),
            ("postern create user a", ":4"),
            ("postern nonsense ", ":4"),
        ] {
            assert_eq!(complete(line), wanted, "{line}");
        }
        // A flag that is given, and may be given once, is no candidate again.
        assert_eq!(complete("postern get --output json --outp"), ":4");
        assert!(complete("postern share secret db --user ada --us").starts_with("--user "));
        assert!(complete("postern ").contains("describe") && !complete("postern ").contains("__"));
    }

    #[test]
    fn nothing_that_a_shell_would_run_is_a_candidate() {
        for (value, is_plain) in [
            ("db.password", true),
            ("--user=ada", true),
            ("platform:user:ada", true),
            ("", false),
            ("$(id)", false),
            ("a;b", false),
            ("a b", false),
            ("`id`", false),
            ("a\nb", false),
            ("*", false),
            ("~root", false),
            ("\u{1b}[2J", false),
        ] {
            assert_eq!(Candidate::new(value, "").is_plain(), is_plain, "{value:?}");
        }
        assert_eq!(Candidate::new("a", "one\ttab\u{1b}\nnext").description, "onetab");
    }

    #[test]
    fn bash_gets_the_end_of_the_word() {
        let found = Found::of(vec![Candidate::new("--user=ada", "")]);
        assert_eq!(lines(found, "--user="), "ada\n:4\n");
    }
}
