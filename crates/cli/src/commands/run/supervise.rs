//! A command that is restarted, or gets a signal, when a value changes. It ends when the command ends.

use std::future::poll_fn;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::task::Poll;

use postern_client::Collection;
use postern_kinds::Info;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{GRACE_DEFAULT, OnChange, Run, values_of};
use crate::commands::secret_watch::{SecretChanges, SecretState};
use crate::error::CliError;
use crate::parse::SecretPath;
use crate::process::Process;
use crate::session::Session;
use crate::variables::{Data, Variable};

/// How many changes wait for the command to be restarted. Further ones wait in the watches.
const CHANGES_MAX: usize = 16;
/// What shells add to the number of a signal that has ended a command.
const SIGNAL_CODE: i32 = 128;

/// A change of one of the secrets.
struct SecretChange {
    /// Which of them.
    index: usize,
    /// Its values; `None` when it was deleted. The error ends its watch.
    state: Result<Option<Data>, CliError>,
}

impl Run {
    /// Runs the command until it ends, with the values of the secrets as they are.
    pub(super) async fn supervise(
        &self,
        session: &Session,
        of: Collection<'_>,
        paths: Vec<SecretPath>,
        process: &Process,
    ) -> Result<(), CliError> {
        let mut signals = Signals::new(process)?;
        let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
        let mut watches = JoinSet::new();
        let namespace = of.namespace().unwrap_or_default().to_owned();
        for (index, path) in paths.iter().cloned().enumerate() {
            let watch =
                WatchedSecret { index, path, info: of.info(), namespace: namespace.clone() };
            watches.spawn(watch.run(session.again(process)?, sender.clone()));
        }
        let mut all = first_values(&mut changes, paths.len(), &paths).await?;
        let mut variables = self.variables_of(&paths, &all)?;
        let mut child = self.start(&variables)?;
        loop {
            tokio::select! {
                ended = child.wait() => {
                    let status = ended.map_err(|error| self.cannot_start(&error))?;
                    return exit_as(status);
                }
                signal = signals.next() => send(&child, signal),
                Some(change) = changes.recv() => {
                    if !take(change, &paths, &mut all, process) {
                        continue;
                    }
                    // Changes that came together are one.
                    while let Ok(change) = changes.try_recv() {
                        take(change, &paths, &mut all, process);
                    }
                    match self.variables_of(&paths, &all) {
                        Ok(new) if new == variables => {}
                        Ok(new) => {
                            variables = new;
                            if let Some(status) = self.apply(&mut child, &variables, process).await? {
                                return exit_as(status);
                            }
                        }
                        Err(error) => {
                            process.print_error(&error);
                            process.print_warning("the command goes on with the earlier values");
                        }
                    }
                }
            }
        }
    }

    fn start(&self, variables: &[Variable]) -> Result<Child, CliError> {
        let child = Command::from(self.prepared(variables)).spawn();
        child.map_err(|error| self.cannot_start(&error))
    }

    /// Does what was asked for on a change. Returns the status of a command that had ended by itself.
    async fn apply(
        &self,
        child: &mut Child,
        variables: &[Variable],
        process: &Process,
    ) -> Result<Option<ExitStatus>, CliError> {
        match self.on_change {
            OnChange::Ignore => Ok(None),
            OnChange::Signal(signal) => {
                process.print_status("a secret has changed: the command gets the signal");
                send(child, signal);
                Ok(None)
            }
            OnChange::Restart => {
                if let Ok(Some(status)) = child.try_wait() {
                    return Ok(Some(status));
                }
                process.print_status("a secret has changed: the command is restarted");
                send(child, Signal::TERM);
                let grace = self.grace.unwrap_or(GRACE_DEFAULT);
                if tokio::time::timeout(grace, child.wait()).await.is_err() {
                    process.print_warning("the command did not end in time, and is killed");
                    child.kill().await.map_err(|error| self.cannot_start(&error))?;
                }
                *child = self.start(variables)?;
                Ok(None)
            }
        }
    }
}

/// A secret that is watched by a task.
struct WatchedSecret {
    index: usize,
    path: SecretPath,
    info: &'static Info,
    namespace: String,
}

impl WatchedSecret {
    /// Sends the values as they are, and then each change. Ends when there is no receiver, and after an error.
    async fn run(self, mut session: Session, sender: mpsc::Sender<SecretChange>) {
        let send =
            async |state| sender.send(SecretChange { index: self.index, state }).await.is_ok();
        let of = Collection::new(self.info, Some(&self.namespace));
        let values =
            |state: Option<SecretState>| state.map(|state| values_of(&self.path, state.data));
        let begun = SecretChanges::begin(&mut session, of, self.path.clone()).await;
        let (mut changes, first) = match begun {
            Ok((changes, first)) => (changes.for_ever(), first),
            Err(error) => {
                send(Err(error)).await;
                return;
            }
        };
        let mut state = Ok(values(first));
        loop {
            let is_last = state.is_err();
            if !send(state).await || is_last {
                return;
            }
            state = changes.next(&mut session).await.map(values);
        }
    }
}

/// The first values of all secrets. An error is final: the command is not started.
async fn first_values(
    changes: &mut mpsc::Receiver<SecretChange>,
    count: usize,
    paths: &[SecretPath],
) -> Result<Vec<Data>, CliError> {
    let mut all: Vec<Option<Data>> = vec![None; count];
    while all.iter().any(Option::is_none) {
        let Some(SecretChange { index, state }) = changes.recv().await else { break };
        let absent = || CliError::new(format!("the secret {} was deleted", paths[index].name));
        all[index] = Some(state?.ok_or_else(absent)?);
    }
    Ok(all.into_iter().flatten().collect())
}

/// Takes the values of a change; a secret that was deleted keeps those that it had. Returns whether there are new ones.
fn take(change: SecretChange, paths: &[SecretPath], all: &mut [Data], process: &Process) -> bool {
    let SecretChange { index, state } = change;
    match state {
        Ok(Some(data)) => {
            // The watch has said that the key is gone. The command does not run without it.
            if paths[index].key.as_ref().is_some_and(|key| !data.contains_key(key)) {
                process.print_warning("the command goes on with the earlier values");
                return false;
            }
            all[index] = data;
            true
        }
        Ok(None) => {
            let name = &paths[index].name;
            process.print_warning(&format!(
                "the secret {name} was deleted: the command goes on with its last values"
            ));
            false
        }
        Err(error) => {
            process.print_error(&error);
            let name = &paths[index].name;
            process.print_warning(&format!("changes of the secret {name} are not seen any more"));
            false
        }
    }
}

/// Sends a signal to the command. Its id stays its own until its end was waited for.
fn send(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        // An error means that the command has ended, which is seen next.
        let _ = kill_process(id, signal);
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

/// The signals that this process passes on to the command.
struct Signals {
    /// Each with what is sent on for it, if anything is.
    streams: Vec<(Option<Signal>, unix::Signal)>,
}

impl Signals {
    /// Listens from now on. A terminal sends Ctrl-C to the command, too, which must not get it twice: then it only does
    /// not end this process.
    fn new(process: &Process) -> Result<Self, CliError> {
        let of_terminal = |signal| Some(signal).filter(|_| !process.stdin_is_terminal());
        let all = [
            (Some(Signal::TERM), SignalKind::terminate()),
            (Some(Signal::HUP), SignalKind::hangup()),
            (Some(Signal::USR1), SignalKind::user_defined1()),
            (Some(Signal::USR2), SignalKind::user_defined2()),
            (of_terminal(Signal::INT), SignalKind::interrupt()),
            (of_terminal(Signal::QUIT), SignalKind::quit()),
        ];
        let mut streams = Vec::new();
        for (signal, kind) in all {
            let stream = unix::signal(kind);
            let stream = stream
                .map_err(|error| CliError::new(format!("cannot listen to signals: {error}")))?;
            streams.push((signal, stream));
        }
        Ok(Self { streams })
    }

    /// The next signal to send on.
    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                while stream.poll_recv(context).is_ready() {
                    if let Some(signal) = *signal {
                        return Poll::Ready(signal);
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}
