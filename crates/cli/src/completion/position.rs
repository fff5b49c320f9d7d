//! The place of the cursor in a command line: the command, and the arguments before the cursor.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::arguments::{leading_flags, normalized};

/// The words before the cursor, as the command takes them.
#[derive(Clone)]
pub(super) struct Position<'a> {
    /// The command, or the one of its subcommands that the words name.
    pub(super) command: &'a Command,
    /// The flags that may also be before the command.
    pub(super) leading: &'a Command,
    /// The names of the subcommands.
    pub(super) path: Vec<&'a str>,
    /// The arguments that are no flags.
    pub(super) positionals: Vec<String>,
    /// The flags with their values, by their ids.
    pub(super) flags: Vec<(String, String)>,
    /// The flag whose value is at the cursor.
    pub(super) pending: Option<&'a Arg>,
    /// Whether the cursor is behind `--`.
    pub(super) is_escaped: bool,
}

impl<'a> Position<'a> {
    /// Calls `then` with the position behind these words, which begin behind the name of the program.
    pub(super) fn of<T>(
        words: &[String],
        root: &Command,
        then: impl FnOnce(&Position<'_>) -> T,
    ) -> T {
        let program = std::iter::once(OsString::from("postern"));
        let given: Vec<OsString> = program.chain(words.iter().map(OsString::from)).collect();
        let normal = normalized(&given, root).into_iter().skip(1);
        let normal: Vec<String> = normal.filter_map(|word| word.into_string().ok()).collect();
        let leading = leading_flags();
        let mut position = Position {
            command: root,
            leading: &leading,
            path: Vec::new(),
            positionals: Vec::new(),
            flags: Vec::new(),
            pending: None,
            is_escaped: false,
        };
        for word in &normal {
            position.advance(word);
        }
        then(&position)
    }

    fn advance(&mut self, word: &str) {
        if let Some(arg) = self.pending.take() {
            self.flags.push((arg.get_id().to_string(), word.to_owned()));
            return;
        }
        if self.is_escaped {
            self.positionals.push(word.to_owned());
            return;
        }
        if word == "--" {
            self.is_escaped = true;
            return;
        }
        if let Some((arg, value)) = self.flag(word) {
            match value {
                Some(value) => self.flags.push((arg.get_id().to_string(), value.to_owned())),
                None if takes_next_word(arg) => self.pending = Some(arg),
                None => self.flags.push((arg.get_id().to_string(), String::new())),
            }
            return;
        }
        let subcommand = self.command.find_subcommand(word).filter(|_| self.positionals.is_empty());
        match subcommand {
            Some(next) => {
                self.command = next;
                self.path.push(next.get_name());
            }
            None if word.starts_with('-') && word.len() > 1 => {}
            None => self.positionals.push(word.to_owned()),
        }
    }

    /// The same position behind the name of a subcommand.
    pub(super) fn below(&self, subcommand: &'a Command) -> Self {
        let mut below = self.clone();
        below.command = subcommand;
        below.path.push(subcommand.get_name());
        below
    }

    /// The flag of a word, with the value in the same word.
    pub(super) fn flag<'w>(&self, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            return self.arg(|arg| longs(arg).contains(&name)).map(|arg| (arg, value));
        }
        // Several flags of one letter, of which the last one may have a value.
        let letters = word.strip_prefix('-')?;
        for (at, letter) in letters.char_indices() {
            let arg = self.arg(|arg| arg.get_short() == Some(letter))?;
            let rest = &letters[at + letter.len_utf8()..];
            if rest.is_empty() {
                return Some((arg, None));
            }
            if takes_value(arg) {
                return Some((arg, Some(rest.strip_prefix('=').unwrap_or(rest))));
            }
        }
        None
    }

    fn arg(&self, is_meant: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let (own, leading): (&'a Command, &'a Command) = (self.command, self.leading);
        let own = own.get_arguments().filter(|arg| !arg.is_positional());
        own.chain(leading.get_arguments()).find(|arg| is_meant(arg))
    }

    /// The argument that a word at the cursor would be.
    pub(super) fn positional(&self) -> Option<&'a Arg> {
        let command: &'a Command = self.command;
        let mut all = command.get_positionals().filter(|arg| arg.is_last_set() == self.is_escaped);
        let mut last = None;
        for _ in 0..=self.positionals.len() {
            match all.next() {
                Some(next) => last = Some(next),
                None => return last.filter(|arg| is_repeated(arg)),
            }
        }
        last
    }

    /// The last value of a flag.
    pub(super) fn value(&self, id: &str) -> Option<&str> {
        let mut given = self.flags.iter().rev();
        given.find(|(of, _)| of == id).map(|(_, value)| value.as_str())
    }
}

/// The names of a flag, without the dashes.
pub(super) fn longs(arg: &Arg) -> Vec<&str> {
    arg.get_long_and_visible_aliases().unwrap_or_default()
}

/// Whether a flag has a value.
pub(super) fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Whether the word behind a flag is its value.
fn takes_next_word(arg: &Arg) -> bool {
    takes_value(arg) && arg.get_num_args().is_none_or(|count| count.min_values() > 0)
}

/// Whether an argument may be repeated.
pub(super) fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|count| count.max_values() > 1)
}
