//! The process' environment variables, its three standard streams, the time, and random bytes. No other file
//! of the command line asks the system for them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read, Write};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use postern_kinds::SecretText;
use postern_meta::decode::text_after_mark;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::escape::{escape, escape_lines};

/// The bytes that a terminal sends for these keys, if it does not handle the keys itself.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const CTRL_U: u8 = 21;
const DELETE: u8 = 127;
/// The exit code of shells for a command that Ctrl-C has ended.
const CANCELLED_CODE: u8 = 130;
/// The longest line that is typed without echo, in bytes.
const HIDDEN_MAX_BYTES: usize = 64 * 1024;
/// The largest text file of the user's that is read: manifests, kubeconfigs, scopes.
pub(crate) const TEXT_FILE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The program that opens a URL in the user's browser.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// The name of this program.
const PROGRAM: &str = "postern";
/// The name of its file when it is a plugin of kubectl.
const PLUGIN_PROGRAM: &str = "kubectl-postern";
/// How its commands begin then.
const PLUGIN_COMMAND: &str = "kubectl postern";

/// How commands of this program begin, given the path that it was started by: `postern`, or `kubectl postern`.
pub(crate) fn command_prefix(program: Option<&OsStr>) -> &'static str {
    let name = program.and_then(|program| Path::new(program).file_name());
    if name == Some(OsStr::new(PLUGIN_PROGRAM)) { PLUGIN_COMMAND } else { PROGRAM }
}

/// Text as it is printed.
pub(crate) enum Fit<'a> {
    /// Each byte as it is.
    AsIs(&'a [u8]),
    /// With escapes.
    Escaped(Zeroizing<String>),
}

impl Deref for Fit<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::AsIs(bytes) => bytes,
            Self::Escaped(text) => text.as_bytes(),
        }
    }
}

/// The input that a command gets from its process, besides its arguments.
pub(crate) struct Process {
    environment: HashMap<String, OsString>,
    command: &'static str,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    stderr_is_coloured: bool,
    messages: Messages,
}

/// Whether messages reach the standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Messages {
    Printed,
    Dropped,
}

#[expect(
    clippy::unused_self,
    reason = "only code that has been given this may read, write or draw randomness"
)]
impl Process {
    /// This process.
    pub(crate) fn system() -> Self {
        let environment: HashMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty())
            || environment.get("TERM").is_some_and(|term| term == "dumb");
        Self {
            environment,
            command: command_prefix(std::env::args_os().next().as_deref()),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            stderr_is_coloured: io::stderr().is_terminal() && !plain,
            messages: Messages::Printed,
        }
    }

    /// The same process, without messages on the standard error.
    pub(crate) fn silent(&self) -> Self {
        Self { environment: self.environment.clone(), messages: Messages::Dropped, ..*self }
    }

    /// An environment variable; an empty one counts as absent.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(name).filter(|value| !value.is_empty())
    }

    /// An environment variable as text; an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, CliError> {
        let Some(value) = self.variable(name) else { return Ok(None) };
        let wrong = || CliError::usage(format!("the environment variable {name} is not UTF-8"));
        value.to_str().map(Some).ok_or_else(wrong)
    }

    /// Whether the standard output is a terminal.
    pub(crate) fn stdout_is_terminal(&self) -> bool {
        self.stdout_is_terminal
    }

    /// Opens a URL in the user's browser, and returns whether one was started. Only where the user sees it: on a terminal.
    pub(crate) fn open_in_browser(&self, url: &str) -> bool {
        self.stdout_is_terminal && self.start_browser(url)
    }

    /// Whether a browser can be started where the user sees it: with `BROWSER`, or with a display and not over SSH.
    pub(crate) fn has_browser(&self) -> bool {
        let has_display =
            ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| self.variable(name).is_some());
        let has_display = has_display || cfg!(target_os = "macos");
        let is_here = self.variable("SSH_CONNECTION").is_none();
        self.variable("BROWSER").is_some() || (is_here && has_display)
    }

    /// Starts the user's browser with a URL, and returns whether it was started.
    pub(crate) fn start_browser(&self, url: &str) -> bool {
        if !self.has_browser() {
            return false;
        }
        let named = self.variable("BROWSER").and_then(|named| named.to_str());
        // Several browsers are separated by colons, and arguments by blanks.
        let named = named.and_then(|named| named.split(':').next()).unwrap_or(OPENER);
        let mut words = named.split_whitespace();
        let mut opener = Command::new(words.next().unwrap_or(OPENER));
        opener.args(words.filter(|word| *word != "%s")).arg(url);
        opener.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The program may run as long as the browser, so nothing waits for it.
        opener.spawn().is_ok()
    }

    /// Refuses to continue if the standard output is closed, before a command creates an object
    /// with output that is printed only once.
    pub(crate) fn require_stdout(&self) -> Result<(), CliError> {
        if !is_closed(io::stdout()) {
            return Ok(());
        }
        Err(CliError::new(
            "the standard output is closed or discarded, and the only copy of the key would be lost",
        )
        .hint("nothing was created or changed: redirect the standard output into a file or a pipe"))
    }

    /// Prints text with parts of others, such as the fields of an object. On a terminal, a character that would control
    /// it is an escape instead. Elsewhere, each byte is written as it is.
    pub(crate) fn print_text(&self, text: impl AsRef<[u8]>) -> Result<(), CliError> {
        self.write_stdout(&self.fit_for_stdout(text.as_ref()))
    }

    /// Prints one value alone. On a terminal, a line break follows. Elsewhere nothing is added: other programs take a file
    /// byte for byte, and a key with a line break is another key to them.
    pub(crate) fn print_value(&self, value: &SecretText) -> Result<(), CliError> {
        let end = if self.stdout_is_terminal { "\n" } else { "" };
        self.print_text(Zeroizing::new([value.expose(), end].concat()))
    }

    /// Text as [`Process::print_text`] writes it.
    pub(crate) fn fit_for_stdout<'a>(&self, text: &'a [u8]) -> Fit<'a> {
        if !self.stdout_is_terminal {
            return Fit::AsIs(text);
        }
        Fit::Escaped(escape_lines(&String::from_utf8_lossy(text)))
    }

    /// Writes data to the standard output as it is: the program's own control sequences, and scripts.
    pub(crate) fn write_stdout(&self, data: &[u8]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        let written = out.write_all(data).and_then(|()| out.flush());
        written.map_err(|error| CliError::of_output(&error))
    }

    /// Prints a line to the standard error. A failure to print is ignored.
    pub(crate) fn print_status(&self, text: &str) {
        self.stderr_printer(String::new())(text);
    }

    /// A printer of lines with a label. Names and texts of others may be in them.
    fn stderr_printer(&self, label: String) -> impl Fn(&str) + Send + Sync + use<> {
        let (is_terminal, messages) = (self.stderr_is_terminal, self.messages);
        move |text| {
            if messages == Messages::Dropped {
                return;
            }
            // A failure to print is ignored: there is no other place for it.
            let _ = if is_terminal {
                writeln!(io::stderr(), "{label}{}", *escape_lines(text))
            } else {
                writeln!(io::stderr(), "{label}{text}")
            };
        }
    }

    /// Prints a note, which the reader should not miss.
    pub(crate) fn print_note(&self, text: &str) {
        self.note_printer()(text);
    }

    /// A printer of notes, for callers that cannot keep the process itself.
    pub(crate) fn note_printer(&self) -> impl Fn(&str) + Send + Sync + use<> {
        self.stderr_printer(self.coloured("note:", "33") + " ")
    }

    /// Prints a warning, about something that may do harm.
    pub(crate) fn print_warning(&self, text: &str) {
        self.warning_printer()(text);
    }

    /// A printer of warnings, for callers that cannot keep the process itself.
    pub(crate) fn warning_printer(&self) -> impl Fn(&str) + Send + use<> {
        self.stderr_printer(self.coloured("warning:", "1;33") + " ")
    }

    /// Prints why a command failed, unless that has been printed.
    pub(crate) fn print_error(&self, error: &CliError) {
        if !error.is_to_print() {
            return;
        }
        let message = self.with_command(&error.message);
        self.stderr_printer(self.coloured("error:", "1;31") + " ")(&message);
        let print_hint = self.stderr_printer(format!("  {} ", self.coloured("hint:", "36")));
        for hint in &error.hints {
            print_hint(&self.with_command(hint));
        }
    }

    /// The text with the commands in it as the user writes them.
    fn with_command<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.command == PROGRAM {
            return Cow::Borrowed(text);
        }
        let (from, to) = (format!("`{PROGRAM} "), format!("`{} ", self.command));
        Cow::Owned(text.replace(&from, &to))
    }

    fn coloured(&self, text: &str, colour: &str) -> String {
        if self.stderr_is_coloured {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Whether a question can be asked.
    pub(crate) fn stdin_is_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// The whole standard input, byte for byte.
    pub(crate) fn read_stdin(&self, limit_bytes: usize) -> Result<Zeroizing<Vec<u8>>, CliError> {
        read_limited(io::stdin().lock(), limit_bytes, "the standard input")
    }

    /// Asks for one line on the terminal, which does not show it.
    pub(crate) fn prompt_hidden(&self, question: &str) -> Result<SecretText, CliError> {
        let answered = read_hidden(&format!("{} (not shown): ", escape(question)));
        // The line break that the terminal did not show.
        self.print_status("");
        let cannot = |error| CliError::new(format!("cannot read from the terminal: {error}"));
        let Some(line) = answered.map_err(cannot)? else {
            return Err(CliError::with_code(
                "cancelled; nothing was done".to_owned(),
                CANCELLED_CODE,
            ));
        };
        if line.is_empty() {
            return Err(CliError::new("the input was empty; nothing was done"));
        }
        let line = std::str::from_utf8(&line);
        let line = line.map_err(|_| CliError::new("the input is not UTF-8; nothing was done"))?;
        Ok(SecretText::from(line.to_owned()))
    }

    /// Asks a question on the terminal, and returns whether the answer is yes. Anything else is no.
    pub(crate) fn confirm(&self, question: &str) -> Result<bool, CliError> {
        let answer = self.prompt_line(&format!("{question} [y/N] "))?;
        Ok(["y", "yes"].contains(&answer.to_ascii_lowercase().as_str()))
    }

    /// Asks for one line on the terminal, without the spaces around it.
    pub(crate) fn prompt_line(&self, question: &str) -> Result<String, CliError> {
        let _ = write!(io::stderr(), "{}", *escape_lines(question));
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(|error| CliError::new(format!("cannot read from the terminal: {error}")))?;
        Ok(line.trim().to_owned())
    }

    /// The time, in seconds since 1970.
    pub(crate) fn now_unix_seconds(&self) -> i64 {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed on")]
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
    }

    /// The id of the process that has called this one; 0 when that is not known.
    pub(crate) fn parent_id(&self) -> u32 {
        std::os::unix::process::parent_id()
    }

    /// A path that counts in every directory.
    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    /// The command by which other programs start this one: its name if `PATH` leads to it, and else its path.
    pub(crate) fn own_command(&self) -> String {
        let Ok(own) = std::env::current_exe().and_then(|path| path.canonicalize()) else {
            return PROGRAM.to_owned();
        };
        let path = self.variable("PATH").cloned().unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
        match found.find_map(|path| path.canonicalize().ok()) {
            Some(found) if found == own => PROGRAM.to_owned(),
            _ => own.display().to_string(),
        }
    }

    /// An unpredictable byte.
    pub(crate) fn random(&self) -> u8 {
        let mut byte = [0];
        // aws-lc aborts when the kernel gives no randomness. Going on after an error here would
        // make keys that can be guessed.
        assert!(aws_lc_rs::rand::fill(&mut byte).is_ok(), "the system's random generator failed");
        byte[0]
    }
}

/// Whether a standard stream was closed when the program started. The standard library has then opened `/dev/null` for it,
/// to read and write, while a shell opens it only to write for `> /dev/null`. Programs that start others may open it in both
/// ways, and the output is lost then, too.
fn is_closed(stream: impl AsFd) -> bool {
    let Ok(flags) = fcntl_getfl(&stream) else { return true };
    let (Ok(own), Ok(null)) = (fstat(&stream), stat("/dev/null")) else { return false };
    flags & OFlags::RWMODE == OFlags::RDWR
        && FileType::from_raw_mode(own.st_mode) == FileType::CharacterDevice
        && own.st_rdev == null.st_rdev
}

/// Asks, and reads a line without echo, character by character: a control character is not a part of the line, and Ctrl-C
/// ends the question at once. `None` after Ctrl-C, and after Ctrl-D in an empty line. No signal ends the process meanwhile:
/// the terminal would stay without echo.
fn read_hidden(question: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG | LocalModes::ICANON);
    // Each character at once, without a limit of time.
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    // The question comes after the change: an answer that a program gives at once would be shown, and then thrown away.
    let _ = write!(io::stderr(), "{question}");
    let read = hidden_line(stdin.lock());
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    read
}

/// A line of a terminal that leaves the editing to this process: see [`read_hidden`].
fn hidden_line(mut from: impl Read) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    // With all its room from the start: a longer copy would leave a shorter one in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(HIDDEN_MAX_BYTES));
    let mut byte = [0];
    while from.read(&mut byte)? == 1 {
        match byte[0] {
            b'\r' | b'\n' => return Ok(Some(line)),
            CTRL_C => return Ok(None),
            CTRL_D if line.is_empty() => return Ok(None),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                // A character of UTF-8 with all its bytes.
                while line.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
            }
            other if other < b' ' && other != b'\t' => {}
            other if line.len() < HIDDEN_MAX_BYTES => line.push(other),
            _ => return Err(io::Error::other("the line is too long")),
        }
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// A stream's whole content. `what` names the stream in errors, such as the error for more than
/// `limit_bytes`.
pub(crate) fn read_limited(
    from: impl Read,
    limit_bytes: usize,
    what: &str,
) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut bytes = Zeroizing::new(Vec::new());
    let limit = u64::try_from(limit_bytes).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::new(format!("cannot read {what}: {error}")))?;
    if bytes.len() > limit_bytes {
        return Err(CliError::new(format!("{what} has more than {limit_bytes} bytes")));
    }
    Ok(bytes)
}

/// A file's whole content; an error when it is larger than `limit_bytes`.
pub(crate) fn read_file(
    path: &std::path::Path,
    limit_bytes: usize,
) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let what = path.display().to_string();
    let file =
        File::open(path).map_err(|error| CliError::new(format!("cannot read {what}: {error}")))?;
    read_limited(file, limit_bytes, &what)
}

/// A text file of the user's in UTF-8: a byte order mark may say that it is UTF-16.
pub(crate) fn read_text_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let bytes = read_file(path, TEXT_FILE_MAX_BYTES)?;
    in_utf8(bytes, &path.display().to_string())
}

/// A text in UTF-8 and without a byte order mark. `what` names it in errors.
pub(crate) fn in_utf8(
    bytes: Zeroizing<Vec<u8>>,
    what: &str,
) -> Result<Zeroizing<Vec<u8>>, CliError> {
    match text_after_mark(&bytes) {
        None => Ok(bytes),
        Some(Ok(text)) => Ok(Zeroizing::new(text)),
        Some(Err(error)) => Err(CliError::new(format!("{what}: {error}"))),
    }
}

#[cfg(test)]
impl Process {
    /// A process for tests, with these environment variables alone.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), OsString::from(value));
        Self {
            environment: variables.iter().map(own).collect(),
            command: PROGRAM,
            stdout_is_terminal: false,
            stderr_is_terminal: false,
            stderr_is_coloured: false,
            messages: Messages::Printed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_stream_is_the_null_device_to_read_and_write() {
        let opened = |path: &str, read| File::options().read(read).write(true).open(path).unwrap();
        assert!(is_closed(opened("/dev/null", true)));
        assert!(!is_closed(opened("/dev/null", false)));
        assert!(!is_closed(opened("/dev/zero", true)));
        assert!(!is_closed(tempfile::tempfile().unwrap()));
    }

    #[test]
    fn an_empty_variable_is_no_variable() {
        let process = Process::with(&[("A", ""), ("B", "b")]);
        assert_eq!(process.text("A").unwrap(), None);
        assert_eq!(process.text("B").unwrap(), Some("b"));
    }

    #[test]
    fn a_hidden_line_has_no_control_characters() {
        let line = |typed: &str| {
            let line = hidden_line(typed.as_bytes()).unwrap();
            line.map(|line| String::from_utf8(line.to_vec()).unwrap())
        };
        for (typed, wanted) in [
            ("hush\nrest", Some("hush")),
            ("hush\r", Some("hush")),
            ("\n", Some("")),
            ("a\u{1a}b\u{1c}\tc\u{1b}\n", Some("ab\tc")),
            ("aé\u{7f}b\u{8}c\u{7f}\u{7f}\u{7f}d\n", Some("d")),
            ("typo\u{15}right\n", Some("right")),
            ("hush\u{3}", None),
            ("\u{4}", None),
            ("a\u{4}b\n", Some("ab")),
            ("", None),
            ("no line break", Some("no line break")),
        ] {
            assert_eq!(line(typed).as_deref(), wanted, "{typed:?}");
        }
        assert!(hidden_line(&*vec![b'a'; HIDDEN_MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn what_is_too_large_is_refused_and_not_cut() {
        assert_eq!(**read_limited(&b"abc"[..], 3, "it").unwrap(), *b"abc");
        let error = read_limited(&b"abcd"[..], 3, "it").unwrap_err();
        assert_eq!(error.message, "it has more than 3 bytes");
    }

    #[test]
    fn a_plugin_of_kubectl_is_known_by_its_name() {
        for (program, wanted) in [
            (Some("/opt/krew/bin/kubectl-postern"), "kubectl postern"),
            (Some("kubectl-postern"), "kubectl postern"),
            (Some("./postern"), "postern"),
            (Some("kubectl-postern-next"), "postern"),
            (None, "postern"),
        ] {
            assert_eq!(command_prefix(program.map(OsStr::new)), wanted, "{program:?}");
        }
        let plugin = Process { command: PLUGIN_COMMAND, ..Process::with(&[]) };
        let text = "`postern whoami` says it, and postern-data is a directory";
        assert!(plugin.with_command(text).starts_with("`kubectl postern whoami`"));
        assert_eq!(Process::with(&[]).with_command(text), text);
    }

    #[test]
    fn random_bytes_differ() {
        let process = Process::with(&[]);
        let take = || (0..32).map(|_| process.random()).collect::<Vec<_>>();
        assert_ne!(take(), take());
    }
}
