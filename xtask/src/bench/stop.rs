//! A flag that signals set and every wait checks, so that servers are ended before this process
//! ends.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

/// The time between two checks of the flag.
const INTERVAL: Duration = Duration::from_millis(20);

/// Set by SIGINT and SIGTERM.
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Watches for the signals.
    pub(crate) fn new() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self(flag))
    }

    /// Fails once a signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Sleeps, unless interrupted.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            sleep(INTERVAL.min(time));
        }
        Ok(())
    }

    /// Waits until `ready` returns true, for at most `limit`.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        while !ready()? {
            if Instant::now() >= end {
                bail!("{what}: not within {} s", limit.as_secs());
            }
            self.sleep(INTERVAL)?;
        }
        Ok(())
    }

    /// Waits for a program to end. Ends it if a signal comes first.
    pub(crate) fn wait_for_end(&self, child: &mut Child) -> Result<std::process::ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if let Err(interrupted) = self.check() {
                super::server::end(child);
                return Err(interrupted);
            }
            sleep(INTERVAL);
        }
    }
}
