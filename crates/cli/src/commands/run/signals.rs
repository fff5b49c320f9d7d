//! The signals that a supervisor passes on to its command.

use std::fs::File;
use std::future::poll_fn;
use std::path::Path;
use std::task::{Context, Poll};

use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

use crate::error::CliError;
use crate::process::read_file;

/// The state of this process on Linux, and the prefix of the line with its ignored signals.
const STATUS_FILE: &str = "/proc/self/status";
const IGNORED_PREFIX: &str = "SigIgn:";
const STATUS_MAX_BYTES: usize = 64 * 1024;
/// The terminal of this process, if it has one.
const TERMINAL: &str = "/dev/tty";

/// The signals that are passed on.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::INT, Signal::QUIT];

/// A signal that this process received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    /// The signal.
    pub(super) signal: Signal,
    /// Whether the terminal sent it to the command as well. The command must not get it twice.
    pub(super) is_from_terminal: bool,
}

/// The streams of received signals.
pub(super) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens from now on. Signals that are ignored, as under `nohup`, stay ignored, for the command as well: with a
    /// handler, the command would start with their default action.
    pub(super) fn new() -> Result<Self, CliError> {
        let ignored = ignored_signals();
        let is_ignored = |signal: Signal| ignored & bit_of(signal) != 0;
        let mut streams = Vec::new();
        for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal)) {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()));
            let stream = stream
                .map_err(|error| CliError::new(format!("cannot listen to signals: {error}")))?;
            streams.push((signal, stream));
        }
        Ok(Self { streams })
    }

    /// The next signal. Loses none if it is dropped.
    pub(super) async fn next(&mut self) -> Received {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// A signal that was received already.
    pub(super) async fn received(&mut self) -> Option<Received> {
        poll_fn(|context| match self.poll_next(context) {
            Poll::Ready(received) => Poll::Ready(Some(received)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        for (signal, stream) in &mut self.streams {
            if stream.poll_recv(context).is_ready() {
                let signal = *signal;
                return Poll::Ready(Received {
                    signal,
                    is_from_terminal: is_from_terminal(signal),
                });
            }
        }
        Poll::Pending
    }
}

/// Whether the terminal sent a signal. It sends Ctrl-C and Ctrl-\ to all processes of its foreground group. So in that
/// group, another sender of the same signal cannot be told from the terminal without reading `siginfo_t`.
fn is_from_terminal(signal: Signal) -> bool {
    if signal != Signal::INT && signal != Signal::QUIT {
        return false;
    }
    // Asked each time: a shell can move the command between foreground and background.
    let foreground = File::open(TERMINAL).ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}

/// The signals that this process ignores, as a bit mask. Only Linux has such a file, so the mask is
/// empty on other systems.
fn ignored_signals() -> u64 {
    let status = read_file(Path::new(STATUS_FILE), STATUS_MAX_BYTES).ok();
    status.map_or(0, |status| ignored_in(&String::from_utf8_lossy(&status)))
}

fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(IGNORED_PREFIX));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit_of(signal: Signal) -> u64 {
    let number = u32::try_from(signal.as_raw()).unwrap_or_default();
    1_u64.checked_shl(number.saturating_sub(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_of_the_status() {
        let status = "Name:\tpostern\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        let ignored = ignored_in(status);
        for (signal, wanted) in
            [(Signal::HUP, true), (Signal::PIPE, true), (Signal::INT, false), (Signal::TERM, false)]
        {
            assert_eq!(ignored & bit_of(signal) != 0, wanted, "{signal:?}");
        }
        for other in ["", "SigIgn:\tx", "Name:\tSigIgn"] {
            assert_eq!(ignored_in(other), 0, "{other}");
        }
    }

    #[test]
    fn only_keys_send_signals_from_the_terminal() {
        for signal in [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2] {
            assert!(!is_from_terminal(signal), "{signal:?}");
        }
    }
}
