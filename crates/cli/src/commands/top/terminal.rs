//! The terminal while `postern top` draws on it: another screen, keys without a line break, signals. Everything is as
//! before when the value is dropped.

use std::io::{self, IsTerminal as _, Stdin};

use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::screen::Size;
use crate::error::CliError;
use crate::process::Process;

/// Begins the other screen, hides the cursor, and cuts lines that are too long.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// Ends what [`BEGIN`] began.
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The bytes of the keys that end the command: q, Q, and Ctrl-C.
const LEAVE_KEYS: [u8; 3] = [b'q', b'Q', 3];

/// The size of a terminal that does not say its own.
const DEFAULT_SIZE: Size = Size { columns: 80, rows: 24 };

/// What happens at the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The user or a signal ends the command.
    Leave,
    /// The window has another size.
    Resized,
}

/// The terminal, for as long as it is drawn on.
pub(super) struct Terminal<'a> {
    process: &'a Process,
    /// `None` if the standard input is not a terminal.
    keys: Option<Keys>,
    resized: Signal,
    ending: [Signal; 4],
}

/// The standard input, byte for byte and without echo.
struct Keys {
    input: AsyncFd<Stdin>,
    before: Termios,
}

impl<'a> Terminal<'a> {
    /// Takes the terminal.
    pub(super) fn enter(process: &'a Process) -> Result<Self, CliError> {
        let cannot = |error: io::Error| CliError::new(format!("cannot use the terminal: {error}"));
        // Signals first: the terminal must not stay as it is made here.
        let listen = |kind| signal(kind).map_err(cannot);
        let terminal = Self {
            process,
            resized: listen(SignalKind::window_change())?,
            ending: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
                listen(SignalKind::quit())?,
            ],
            keys: io::stdin().is_terminal().then(Keys::take).transpose().map_err(cannot)?,
        };
        process.write_stdout(BEGIN.as_bytes())?;
        Ok(terminal)
    }

    /// The next event.
    pub(super) async fn event(&mut self) -> Event {
        let [interrupt, terminate, hangup, quit] = &mut self.ending;
        let leave_key = async {
            match &mut self.keys {
                Some(keys) => keys.leave().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.resized.recv() => Event::Resized,
            _ = interrupt.recv() => Event::Leave,
            _ = terminate.recv() => Event::Leave,
            _ = hangup.recv() => Event::Leave,
            _ = quit.recv() => Event::Leave,
            () = leave_key => Event::Leave,
        }
    }
}

/// The size of the window of the standard output.
pub(super) fn window_size() -> Size {
    let Ok(size) = tcgetwinsize(io::stdout()) else { return DEFAULT_SIZE };
    match (usize::from(size.ws_col), usize::from(size.ws_row)) {
        (0, _) | (_, 0) => DEFAULT_SIZE,
        (columns, rows) => Size { columns, rows },
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        drop(self.process.write_stdout(END.as_bytes()));
        if let Some(keys) = &self.keys {
            keys.restore();
        }
    }
}

impl Keys {
    fn take() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe code, which is forbidden here, and the standard input stays open"
        )]
        let input = AsyncFd::with_interest(stdin, Interest::READABLE)?;
        let mut raw = before.clone();
        // Ctrl-C comes as a key. A read returns at once, with what is there.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(input.get_ref(), OptionalActions::Now, &raw)?;
        Ok(Self { input, before })
    }

    /// Waits for a key that ends the command, or for the end of the terminal.
    async fn leave(&mut self) {
        let mut bytes = [0; 64];
        loop {
            let Ok(mut ready) = self.input.readable_mut().await else { return };
            match rustix::io::read(ready.get_inner(), &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => ready.clear_ready(),
                Ok(read) if bytes[..read].iter().any(|byte| LEAVE_KEYS.contains(byte)) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn restore(&self) {
        // Keys that were not read are not for the shell.
        let _ = tcsetattr(self.input.get_ref(), OptionalActions::Flush, &self.before);
    }
}
