//! A command that is restarted, or gets a signal, when a value changes. It ends when the command ends.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use postern_client::Collection;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::signals::{Received, Signals};
use super::watches::{Values, Watches};
use super::{GRACE_DEFAULT, OnChange, Run};
use crate::error::CliError;
use crate::parse::SecretPath;
use crate::process::Process;
use crate::session::Session;
use crate::variables::Variable;

/// The number that shells add to the number of a signal that has ended a command.
const SIGNAL_CODE: i32 = 128;
/// Signals that ask a command to end. A hangup also asks many services to read their configuration again.
const STOPS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::QUIT];

impl Run {
    /// Runs the command until it ends, with the values of the secrets as they are.
    pub(super) async fn supervise(
        &self,
        session: &Session,
        of: Collection<'_>,
        paths: Vec<SecretPath>,
        process: &Process,
    ) -> Result<(), CliError> {
        let mut values = Values::new(paths);
        let mut watches = Watches::begin(&values, session, of, process)?;
        watches.load(&mut values).await?;
        let mut supervisor = Supervisor::start(self, &values, process)?;
        loop {
            tokio::select! {
                ended = supervisor.child.wait() => {
                    return exit_as(ended.map_err(|error| self.cannot_start(&error))?);
                }
                received = supervisor.signals.next() => supervisor.pass_on(received),
                batch = watches.next() => {
                    let taken = batch.into_iter().map(|change| values.take(change, process));
                    // All of them are taken, not only those before the first with new values.
                    if taken.fold(false, |any, is_new| any | is_new)
                        && let Some(status) = supervisor.apply(&values).await?
                    {
                        return exit_as(status);
                    }
                }
            }
        }
    }

    fn start(&self, variables: &[Variable]) -> Result<Child, CliError> {
        let child = Command::from(self.prepared(variables)).spawn();
        child.map_err(|error| self.cannot_start(&error))
    }
}

/// A running command.
struct Supervisor<'a> {
    run: &'a Run,
    process: &'a Process,
    variables: Vec<Variable>,
    child: Child,
    signals: Signals,
    /// Whether the command was asked to end for good.
    is_stopping: bool,
}

impl<'a> Supervisor<'a> {
    /// Starts the command. Until then, a signal ends this process as it ends every other.
    fn start(run: &'a Run, values: &Values, process: &'a Process) -> Result<Self, CliError> {
        let variables = run.variables_of(values.paths(), &values.by_path())?;
        let signals = Signals::new()?;
        let child = run.start(&variables)?;
        Ok(Self { run, process, variables, child, signals, is_stopping: false })
    }

    /// Takes the action for a change, if a variable has changed. The result is the status of a
    /// command that has ended and is not started again.
    async fn apply(&mut self, values: &Values) -> Result<Option<ExitStatus>, CliError> {
        match self.run.variables_of(values.paths(), &values.by_path()) {
            Ok(new) if new == self.variables => return Ok(None),
            Ok(new) => self.variables = new,
            Err(error) => {
                self.process.print_error(&error);
                self.process.print_warning("the command goes on with the earlier values");
                return Ok(None);
            }
        }
        match self.run.on_change {
            OnChange::Ignore => Ok(None),
            OnChange::Signal(signal) => {
                self.process.print_status("a secret has changed: the command gets the signal");
                self.send(signal);
                Ok(None)
            }
            OnChange::Restart => self.restart().await,
        }
    }

    /// Ends the command, and starts it with the new variables. The result is its status if it has
    /// already ended, or if a signal asks it to end permanently.
    async fn restart(&mut self) -> Result<Option<ExitStatus>, CliError> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Ok(Some(status));
        }
        if self.is_stopping {
            self.process.print_warning(
                "a secret has changed: the command is not restarted, because a signal asked it to end",
            );
            return Ok(None);
        }
        self.process.print_status("a secret has changed: the command is restarted");
        self.send(Signal::TERM);
        let status = self.ended().await.map_err(|error| self.run.cannot_start(&error))?;
        // A signal of the same moment, such as Ctrl-C, is noticed by the runtime only when it looks again.
        tokio::task::yield_now().await;
        while let Some(received) = self.signals.received().await {
            self.pass_on_while_ending(received);
        }
        if self.is_stopping {
            return Ok(Some(status));
        }
        self.child = self.run.start(&self.variables)?;
        Ok(None)
    }

    /// Waits for the end of a command that got SIGTERM, and kills it after `--grace`. It gets signals meanwhile.
    async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let grace = tokio::time::sleep(self.run.grace.unwrap_or(GRACE_DEFAULT));
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                received = self.signals.next() => self.pass_on_while_ending(received),
                ended = self.child.wait() => return ended,
                () = &mut grace => {
                    self.process.print_warning("the command did not end in time, and is killed");
                    self.child.kill().await?;
                    return self.child.wait().await;
                }
            }
        }
    }

    /// Passes a signal on, unless the terminal has sent it to the command as well.
    fn pass_on(&mut self, received: Received) {
        let Received { signal, is_from_terminal } = received;
        self.is_stopping |= STOPS.contains(&signal);
        if !is_from_terminal {
            self.send(signal);
        }
    }

    /// The same while the command is being restarted. It will read its configuration anyway, so a hangup then asks it to
    /// end.
    fn pass_on_while_ending(&mut self, received: Received) {
        self.is_stopping |= received.signal == Signal::HUP;
        self.pass_on(received);
    }

    /// Sends a signal to the command. Its id stays its own until its end was waited for.
    fn send(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // An error means that the command has ended, which is seen next.
            let _ = kill_process(id, signal);
        }
    }
}

/// Ends as the command has ended.
fn exit_as(status: ExitStatus) -> Result<(), CliError> {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_CODE + signal));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(CliError::exit(code)),
        None => Err(CliError::exit(u8::MAX)),
    }
}
