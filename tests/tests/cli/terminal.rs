//! A pseudo-terminal, at which a command runs as at a user's.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};

use postern_tests::cli::CliUser;
use postern_tests::wait;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::process::Child;

/// A command at a terminal.
pub(super) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts a command with the terminal as its standard input, output and error.
    pub(super) fn start(user: &CliUser, arguments: &[&str]) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap();
        let end =
            open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let end = File::from(end);
        let mut command = user.command(arguments);
        command.env("TERM", "xterm").stdin(end.try_clone().unwrap());
        command.stdout(end.try_clone().unwrap()).stderr(end);
        let child = command.spawn().expect("the binary starts");
        // The command's own ends are the last: the screen ends with them.
        drop(command);
        let keyboard = File::from(main);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reader, printed) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        // The thread ends with the command: reading fails when no process has the terminal open.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                printed.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { child, keyboard, screen }
    }

    /// Everything that was on the screen so far.
    pub(super) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until a text is on the screen.
    pub(super) async fn shows(&self, text: &str) {
        let what = format!("the screen to show {text}");
        wait::until(&what, async || self.screen().contains(text).then_some(())).await;
    }

    /// Types a text.
    pub(super) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal to the command alone.
    pub(super) fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(id, signal).unwrap();
    }

    /// Its end, and the whole screen.
    pub(super) async fn ended(mut self) -> (ExitStatus, String) {
        let status = wait::within("the command to end", self.child.wait()).await.unwrap();
        // The last output arrives before the end of the terminal.
        wait::until("the end of the screen", async || {
            (Arc::strong_count(&self.screen) == 1).then_some(())
        })
        .await;
        (status, self.screen())
    }
}
