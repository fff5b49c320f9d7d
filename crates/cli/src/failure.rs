//! How a command fails: what went wrong, what to do next, and the exit code.

use std::io;
use std::process::ExitCode;

/// Why a command could not do what it was asked. Holds no secret value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What went wrong, in one sentence.
    pub(crate) message: String,
    /// What to do next, one thing a line.
    pub(crate) hints: Vec<String>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Failed,
    Usage,
    /// Nobody reads the output any more, which is for the reader to decide.
    Quiet,
}

impl Failure {
    /// Something went wrong.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hints: Vec::new(), end: End::Failed }
    }

    /// The command makes no sense as it was given.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { end: End::Usage, ..Self::new(message) }
    }

    /// The standard output cannot be written. A reader who went away has seen enough.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        let end = if error.kind() == io::ErrorKind::BrokenPipe { End::Quiet } else { End::Failed };
        Self { end, ..Self::new(format!("cannot write to the standard output: {error}")) }
    }

    /// The same with one more thing to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same, told even if it is only that nobody reads the output.
    pub(crate) fn loud(mut self) -> Self {
        if self.end == End::Quiet {
            self.end = End::Failed;
        }
        self
    }

    /// Is there anything to be told?
    pub(crate) fn is_told(&self) -> bool {
        self.end != End::Quiet
    }

    /// 1 for a failure, 2 for a command that makes no sense.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.end {
            End::Failed => ExitCode::FAILURE,
            End::Usage => ExitCode::from(2),
            End::Quiet => ExitCode::SUCCESS,
        }
    }
}
