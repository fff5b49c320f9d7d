//! The failure of a command: its message, the next steps, and the exit code. `explain.rs` explains the answers of the
//! server.

use std::io;
use std::process::ExitCode;

/// Why a command failed. Holds no secret value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    /// The message, in one sentence.
    pub(crate) message: String,
    /// The next steps, one a line.
    pub(crate) hints: Vec<String>,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Failed,
    Usage,
    /// Printed already, when it happened.
    Reported,
    /// An exit code that the page of the command defines.
    Code(u8),
    /// An exit code that is the result, with nothing to print.
    Exit(u8),
    /// The reader of the standard output closed it, which is no error of this command.
    OutputClosed,
}

impl CliError {
    /// An error with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hints: Vec::new(), outcome: Outcome::Failed }
    }

    /// An error with exit code 2: the arguments make no sense, and nothing was done.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { outcome: Outcome::Usage, ..Self::new(message) }
    }

    /// The error of a command that has printed its errors one by one.
    pub(crate) fn reported() -> Self {
        Self { outcome: Outcome::Reported, ..Self::new("") }
    }

    /// An error with an exit code that the command documents.
    pub(crate) fn with_code(message: impl Into<String>, code: u8) -> Self {
        Self { outcome: Outcome::Code(code), ..Self::new(message) }
    }

    /// An exit code that is the result of the command: nothing is printed.
    pub(crate) fn exit(code: u8) -> Self {
        Self { outcome: Outcome::Exit(code), ..Self::new("") }
    }

    /// The error of writing to the standard output.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        let outcome = if closed { Outcome::OutputClosed } else { Outcome::Failed };
        Self { outcome, ..Self::new(format!("cannot write to the standard output: {error}")) }
    }

    /// Adds where the mistake is, before the message.
    pub(crate) fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Adds one more thing to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds one more thing to do next, where the condition holds.
    pub(crate) fn hint_if(self, condition: bool, hint: &str) -> Self {
        if condition { self.hint(hint) } else { self }
    }

    /// Adds which objects a command did not come to.
    pub(crate) fn not_tried(self, objects: &[String]) -> Self {
        if objects.is_empty() {
            return self;
        }
        self.hint(format!("not tried: {}", objects.join(", ")))
    }

    /// Makes a closed standard output an error, because unread output is lost.
    pub(crate) fn output_matters(mut self) -> Self {
        if self.outcome == Outcome::OutputClosed {
            self.outcome = Outcome::Failed;
        }
        self
    }

    /// Whether the error is still to be printed.
    pub(crate) fn is_to_print(&self) -> bool {
        matches!(self.outcome, Outcome::Failed | Outcome::Usage | Outcome::Code(_))
    }

    /// The command's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.outcome {
            Outcome::Failed | Outcome::Reported => ExitCode::FAILURE,
            Outcome::Usage => ExitCode::from(2),
            Outcome::Code(code) | Outcome::Exit(code) => ExitCode::from(code),
            Outcome::OutputClosed => ExitCode::SUCCESS,
        }
    }
}
