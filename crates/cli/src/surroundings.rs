//! The process' surroundings: environment, the three standard streams, randomness. The only place
//! of the command line that asks the system for them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read, Write};

use postern_kinds::SecretText;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// What Ctrl-C sends while the terminal does not act on it.
const CTRL_C: char = '\u{3}';

/// What a command gets from outside its arguments.
pub(crate) struct Surroundings {
    environment: HashMap<String, OsString>,
    out_is_terminal: bool,
    err_is_coloured: bool,
}

#[expect(
    clippy::unused_self,
    reason = "whoever reads, writes or guesses must have been given this"
)]
impl Surroundings {
    /// Those of this process.
    pub(crate) fn system() -> Self {
        let environment: HashMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty())
            || environment.get("TERM").is_some_and(|term| term == "dumb");
        Self {
            environment,
            out_is_terminal: io::stdout().is_terminal(),
            err_is_coloured: io::stderr().is_terminal() && !plain,
        }
    }

    /// A variable of the environment; an empty one counts as absent.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(name).filter(|value| !value.is_empty())
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        let Some(value) = self.variable(name) else { return Ok(None) };
        let wrong = || Failure::usage(format!("the environment variable {name} is not UTF-8"));
        value.to_str().map(Some).ok_or_else(wrong)
    }

    /// Does a person read the standard output?
    pub(crate) fn out_is_terminal(&self) -> bool {
        self.out_is_terminal
    }

    /// Writes data.
    pub(crate) fn out(&self, data: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(data).and_then(|()| out.flush());
        written.map_err(|error| Failure::of_output(&error))
    }

    /// Says something. There is nobody left to tell when this fails.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Says something that the reader should not miss.
    pub(crate) fn note(&self, text: &str) {
        self.say(&format!("{} {text}", self.coloured("note:", "33")));
    }

    /// Says why a command failed.
    pub(crate) fn tell_failure(&self, failure: &Failure) {
        if !failure.is_told() {
            return;
        }
        self.say(&format!("{} {}", self.coloured("error:", "1;31"), failure.message));
        for hint in &failure.hints {
            self.say(&format!("  {} {hint}", self.coloured("hint:", "36")));
        }
    }

    fn coloured(&self, text: &str, colour: &str) -> String {
        if self.err_is_coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Can somebody be asked?
    pub(crate) fn in_is_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// Reads the standard input to its end, byte for byte.
    pub(crate) fn read_in(&self, limit_bytes: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
        read_limited(io::stdin().lock(), limit_bytes, "the standard input")
    }

    /// Asks for one line without showing it.
    pub(crate) fn ask_hidden(&self, question: &str) -> Result<SecretText, Failure> {
        let _ = write!(io::stderr(), "{question} (not shown): ");
        let answered = read_hidden();
        // The line break that the terminal did not show.
        self.say("");
        let line = answered
            .map_err(|error| Failure::new(format!("cannot read from the terminal: {error}")))?;
        let line = line.trim_end_matches(['\r', '\n']);
        if line.contains(CTRL_C) || line.is_empty() {
            return Err(Failure::new("nothing was given, so nothing was done"));
        }
        Ok(SecretText::from(line.to_owned()))
    }

    /// An unpredictable byte.
    pub(crate) fn random(&self) -> u8 {
        let mut byte = [0];
        // aws-lc aborts by itself when the kernel gives no randomness; an error here would mean
        // keys that can be guessed, so there is nothing to go on with.
        assert!(aws_lc_rs::rand::fill(&mut byte).is_ok(), "the system's random generator failed");
        byte[0]
    }
}

/// Without echo. Ctrl-C must not end us here, or the terminal would stay as it is.
fn read_hidden() -> io::Result<Zeroizing<String>> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    read.map(|_| line)
}

/// Reads a file or a stream whole, unless it is larger than it can make sense.
pub(crate) fn read_limited(
    from: impl Read,
    limit_bytes: usize,
    what: &str,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut bytes = Zeroizing::new(Vec::new());
    let limit = u64::try_from(limit_bytes).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format!("cannot read {what}: {error}")))?;
    if bytes.len() > limit_bytes {
        return Err(Failure::new(format!("{what} has more than {limit_bytes} bytes")));
    }
    Ok(bytes)
}

/// Reads a file whole, unless it is larger than it can make sense.
pub(crate) fn read_file(
    path: &std::path::Path,
    limit_bytes: usize,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let what = path.display().to_string();
    let file =
        File::open(path).map_err(|error| Failure::new(format!("cannot read {what}: {error}")))?;
    read_limited(file, limit_bytes, &what)
}

#[cfg(test)]
impl Surroundings {
    /// For tests: with these variables and nothing else.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), OsString::from(value));
        Self {
            environment: variables.iter().map(own).collect(),
            out_is_terminal: false,
            err_is_coloured: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_no_variable() {
        let surroundings = Surroundings::with(&[("A", ""), ("B", "b")]);
        assert_eq!(surroundings.text("A").unwrap(), None);
        assert_eq!(surroundings.text("B").unwrap(), Some("b"));
    }

    #[test]
    fn what_is_too_large_is_refused_and_not_cut() {
        assert_eq!(**read_limited(&b"abc"[..], 3, "it").unwrap(), *b"abc");
        let failure = read_limited(&b"abcd"[..], 3, "it").unwrap_err();
        assert_eq!(failure.message, "it has more than 3 bytes");
    }

    #[test]
    fn random_bytes_differ() {
        let surroundings = Surroundings::with(&[]);
        let take = || (0..32).map(|_| surroundings.random()).collect::<Vec<_>>();
        assert_ne!(take(), take());
    }
}
