//! Runs of the load program: each on a quiet machine if one can be had, and again when others
//! disturbed it.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::machine::{QUIET_SHARE, wait_for_quiet};
use super::server::Server;

/// A disturbed run is repeated, but not for ever; the quietest then counts.
const TRIES: u32 = 3;

/// Stands for a name that no other run has used.
pub(crate) const FRESH: &str = "{fresh}";

static RUNS: AtomicU32 = AtomicU32::new(0);

/// What one run found.
pub(crate) struct Found(Value);

impl Found {
    /// A number by its path, such as `latency_microseconds.p99`; 0 when it is not there.
    pub(crate) fn number(&self, path: &str) -> f64 {
        let found = path.split('.').try_fold(&self.0, |value, name| value.get(name));
        found.and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// A value as text, for reports.
    pub(crate) fn text(&self, name: &str) -> String {
        self.0.get(name).map(Value::to_string).unwrap_or_default()
    }

    /// Requests a second that succeeded.
    pub(crate) fn per_second(&self) -> f64 {
        self.number("succeeded_per_second")
    }

    /// The server's processor time for each request, in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.number("server_cpu_microseconds_per_request")
    }

    /// Whether others left the machine alone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.disturbance() <= QUIET_SHARE
    }

    fn disturbance(&self) -> f64 {
        self.number("other_cpu_share") + self.number("stolen_share")
    }
}

impl Bench {
    /// Measures a server, and repeats what was disturbed.
    pub(crate) fn measure(&self, server: &mut Server, what: &[&str]) -> Result<Found> {
        let mut best: Option<Found> = None;
        for _ in 0..TRIES {
            wait_for_quiet(&self.stop)?;
            let found = self.once(server, what)?;
            let quiet = found.is_quiet();
            if best.as_ref().is_none_or(|best| found.disturbance() < best.disturbance()) {
                best = Some(found);
            }
            if quiet {
                break;
            }
        }
        best.context("nothing was measured")
    }

    /// Runs the load program once, disturbed or not, for what is only to be there.
    pub(crate) fn once(&self, server: &mut Server, what: &[&str]) -> Result<Found> {
        server.check()?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let (operation, rest) = what.split_first().context("measure what?")?;
        let mut words: Vec<String> = operation.split(' ').map(str::to_owned).collect();
        words.extend(server.access.iter().cloned());
        words.extend(["--pids".to_owned(), server.pids()]);
        words.extend(rest.iter().map(|word| word.replace(FRESH, &format!("run{run}"))));
        if !rest.contains(&"--path") {
            words.extend(["--path".to_owned(), server.collection.clone()]);
        }
        let found = self.run_load(&words)?;
        println!("    {}", summary(server.name, operation, &found));
        Ok(found)
    }

    /// Runs the load program with these words.
    pub(crate) fn run_load(&self, words: &[String]) -> Result<Found> {
        self.stop.check()?;
        let mut child = Command::new(&self.load)
            .arg("--json")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.load.display()))?;
        // One line is all that it prints: it fits into a pipe.
        let status = self.stop.wait_for_end(&mut child)?;
        let output = child.wait_with_output()?;
        if !status.success() {
            bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Found(serde_json::from_slice(&output.stdout).context("the load program said no JSON")?))
    }
}

fn summary(server: &str, operation: &str, found: &Found) -> String {
    let times = if operation == "watch" { "delivery_microseconds" } else { "latency_microseconds" };
    format!(
        "{server:<8} {operation:<12} {:>8.0}/s  p50 {:>7.0} µs  p99 {:>8.0} µs  CPU {:>8.1} µs/request  \
         others {:>3.0} %",
        found.per_second(),
        found.number(&format!("{times}.p50")),
        found.number(&format!("{times}.p99")),
        found.cpu(),
        found.disturbance() * 100.0,
    )
}
