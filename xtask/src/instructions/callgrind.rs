//! A program under callgrind: how it is started, and how instructions are counted while it runs.
//!
//! Counting is off until the program serves, so that its start takes seconds and not minutes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::bench::Bench;
use crate::bench::server::{Server, end};
use crate::bench::stop::Stop;
use crate::{fetch, shell};

/// Programs, and the packages of Debian that contain them.
const PROGRAMS: &[(&str, &[&str], &str)] =
    &[("valgrind", &["--version"], "valgrind"), ("taskset", &["--version"], "util-linux")];

/// A command to a program under callgrind takes at most this long. A dump writes a file of some megabytes.
const CONTROL_TIMEOUT: Duration = Duration::from_mins(1);

/// A program is idle when so many looks at it in a row find no thread that runs. That is longer than the server collects
/// work before it does it.
const IDLE_LOOKS: u32 = 10;

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The time in which the timers of an idle server are counted.
const BACKGROUND_TIME: Duration = Duration::from_secs(2);

/// The longest wait until a program is idle.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The prefix of callgrind's files, in a server's directory.
const OUTPUT: &str = "callgrind";

/// Finds valgrind, or installs it where that is permitted.
pub(super) fn fetch() -> Result<()> {
    fetch::programs(PROGRAMS).context("the instructions are counted by valgrind")
}

/// The version of valgrind.
pub(super) fn version() -> Result<String> {
    shell::output_of(Command::new("valgrind").arg("--version"))
}

/// Whether a program counts from its start.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Counting {
    /// From the first instruction.
    FromStart,
    /// From the first command to count.
    Later,
}

/// A command line that runs a program under callgrind, with its files in `dir`.
///
/// The program has one processor. So it has the same number of threads on each machine, and the same thread wakes
/// for the same work.
pub(super) fn command(program: &Path, dir: &Path, counting: Counting) -> Result<Command> {
    let mut command = Command::new("taskset");
    command.arg("--cpu-list").arg(last_processor()?.to_string());
    command.args(["valgrind", "--tool=callgrind", "--fair-sched=try"]);
    let at_start = if counting == Counting::FromStart { "yes" } else { "no" };
    command.arg(format!("--instr-atstart={at_start}"));
    command.arg(format!("--callgrind-out-file={}", dir.join(OUTPUT).display()));
    command.arg(format!("--log-file={}", dir.join("valgrind").display()));
    command.arg(program);
    Ok(command)
}

/// The last processor that this process may use.
fn last_processor() -> Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = allowed.and_then(|ranges| ranges.rsplit([',', '-']).next());
    last.and_then(|last| last.trim().parse().ok()).context("the kernel lists no processors")
}

/// A server under callgrind, and the counts that it has written.
pub(super) struct Counted {
    pub(super) server: Server,
    parts: u32,
    /// When the count was zero last, and how long the server had been at work until then.
    since: (Instant, Duration),
    background: Background,
}

/// The work of a server while no client sends a request: its timers. It depends on the idle time of
/// a run, and so on the load of the machine. It is not part of a count.
#[derive(Clone, Copy, Default)]
struct Background {
    instructions: u64,
    time: Duration,
}

impl Background {
    /// The instructions of timers in this time.
    fn within(self, time: Duration) -> u64 {
        let of_all = u128::from(self.instructions) * time.as_micros();
        let part = of_all.checked_div(self.time.as_micros()).unwrap_or(0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl Counted {
    /// Takes over a server that was started by [`command`].
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            parts: 0,
            since: (Instant::now(), Duration::ZERO),
            background: Background::default(),
        }
    }

    /// Begins to count.
    pub(super) fn start(&self, stop: &Stop) -> Result<()> {
        self.control(stop, "instrumentation on")
    }

    /// Sets the count to zero, once the server is idle.
    pub(super) fn reset(&mut self, stop: &Stop) -> Result<()> {
        self.wait_until_idle(stop)?;
        self.control(stop, "zero")?;
        self.since = (Instant::now(), time_at_work(&self.server.pids())?);
        Ok(())
    }

    /// Counts the work of the idle server, so that later counts do not include it.
    pub(super) fn count_background(&mut self, stop: &Stop) -> Result<()> {
        self.reset(stop)?;
        stop.sleep(BACKGROUND_TIME)?;
        let time = self.idle_time()?;
        self.background = Background { instructions: self.dump(stop)?, time };
        Ok(())
    }

    /// The instructions since the last call of this or of [`Counted::reset`], once the server is idle.
    pub(super) fn take(&mut self, stop: &Stop) -> Result<u64> {
        self.wait_until_idle(stop)?;
        let background = self.background.within(self.idle_time()?);
        Ok(self.dump(stop)?.saturating_sub(background))
    }

    /// How long no thread of the server has run or waited for a processor since the count was zero.
    fn idle_time(&self) -> Result<Duration> {
        let (since, at_work) = self.since;
        let at_work = time_at_work(&self.server.pids())?.saturating_sub(at_work);
        Ok(since.elapsed().saturating_sub(at_work))
    }

    /// Writes the count into a file, and sets it to zero.
    fn dump(&mut self, stop: &Stop) -> Result<u64> {
        self.control(stop, "dump")?;
        self.since = (Instant::now(), time_at_work(&self.server.pids())?);
        self.parts += 1;
        total(&self.part())
    }

    /// The file of the last count, for `callgrind_annotate`.
    pub(super) fn part(&self) -> PathBuf {
        self.server.path(&format!("{OUTPUT}.{}", self.parts))
    }

    /// Waits until work that continues after the last response is done, such as the audit log's.
    fn wait_until_idle(&mut self, stop: &Stop) -> Result<()> {
        let pid = self.server.pids();
        let what = format!("{} is still at work", self.server.name);
        let mut looks = 0;
        stop.wait_for(&what, IDLE_TIMEOUT, || {
            stop.sleep(LOOK_INTERVAL)?;
            looks = if is_at_work(&pid)? { 0 } else { looks + 1 };
            Ok(looks >= IDLE_LOOKS)
        })?;
        self.server.check()
    }

    fn control(&self, stop: &Stop, words: &str) -> Result<()> {
        let mut command = Command::new("vgdb");
        command.arg(format!("--pid={}", self.server.pids())).args(words.split(' '));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().context("cannot start vgdb, a program of valgrind")?;
        let what = format!("valgrind did not take the command `{words}`");
        let mut status = None;
        let waited = stop.wait_for(&what, CONTROL_TIMEOUT, || {
            status = child.try_wait()?;
            Ok(status.is_some())
        });
        if waited.is_err() {
            end(&mut child);
        }
        waited?;
        ensure!(status.is_some_and(|status| status.success()), "{what}");
        Ok(())
    }
}

/// How long the threads of a process have run or waited for a processor. Valgrind lets one of them run at a time.
fn time_at_work(pid: &str) -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let times = stat.split_whitespace().take(2).filter_map(|time| time.parse::<u64>().ok());
        nanoseconds += times.sum::<u64>();
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Whether a thread of the process runs, waits for a processor, or waits for the disk.
fn is_at_work(pid: &str) -> Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        if stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('S')) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The instructions in a file that callgrind has written.
fn total(path: &Path) -> Result<u64> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    total_in(&text).with_context(|| format!("{} has no total", path.display()))
}

fn total_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

/// Copies a count's file to where the developer wants it.
pub(super) fn keep(count: &Counted, directory: &Path, name: &str) -> Result<()> {
    let path = directory.join(format!("{name}.callgrind"));
    std::fs::copy(count.part(), &path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Starts a Postern server under callgrind.
pub(super) fn start_postern(bench: &Bench, dir: TempDir, more: &[String]) -> Result<Server> {
    bench.start_postern_by(command(&bench.postern, dir.path(), Counting::Later)?, dir, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_end_of_a_file() {
        let text = "version: 1\nevents: Ir\nsummary: 12\nfn=(1) main\n3 12\n\ntotals: 34\n";
        assert_eq!(total_in(text), Some(34));
        assert_eq!(total_in("events: Ir\n"), None);
    }

    #[test]
    fn timers_count_by_time() {
        let background = Background { instructions: 1000, time: Duration::from_secs(2) };
        assert_eq!(background.within(Duration::from_secs(3)), 1500);
        assert_eq!(Background::default().within(Duration::from_secs(3)), 0);
    }

    #[test]
    fn there_is_a_processor() {
        assert!(last_processor().is_ok());
    }
}
