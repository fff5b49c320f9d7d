//! Runs of the load program: each on a quiet machine if possible, and repeated when other processes
//! disturbed it. The groups decide on the measurements.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::machine::{QUIET_SHARE, ticks as machine_ticks, ticks_of, wait_for_quiet};
use super::server::Server;

/// A disturbed run is repeated up to this many times; the quietest then counts.
const TRIES: u32 = 3;

/// An argument in which this is replaced by a prefix of names that no other run has used.
pub(crate) const RUN_PREFIX: &str = "{run}";

static RUNS: AtomicU32 = AtomicU32::new(0);

/// The measurements of one run of the load program.
pub(crate) struct Measurement {
    values: Value,
    /// The share of all processors that the upstream of the measured server had.
    upstream_share: f64,
}

impl Measurement {
    /// A number by its path, such as `latency_microseconds.p99`; 0 if there is none.
    pub(crate) fn number(&self, path: &str) -> f64 {
        let value = path.split('.').try_fold(&self.values, |value, name| value.get(name));
        value.and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// A value as text, for reports.
    pub(crate) fn text(&self, name: &str) -> String {
        self.values.get(name).map(Value::to_string).unwrap_or_default()
    }

    /// How many requests succeeded each second.
    pub(crate) fn per_second(&self) -> f64 {
        self.number("succeeded_per_second")
    }

    /// The server's processor time for each request, in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.number("server_cpu_microseconds_per_request")
    }

    /// Whether other processes left the machine alone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.disturbance() <= QUIET_SHARE
    }

    fn disturbance(&self) -> f64 {
        let others = self.number("other_cpu_share") - self.upstream_share;
        others.max(0.0) + self.number("stolen_share")
    }
}

impl Bench {
    /// Measures a server, and measures again when the run was disturbed.
    pub(crate) fn measure(&self, server: &mut Server, what: &[&str]) -> Result<Measurement> {
        let mut best: Option<Measurement> = None;
        for _ in 0..TRIES {
            wait_for_quiet(&self.stop)?;
            let measurement = self.once(server, what)?;
            let quiet = measurement.is_quiet();
            if best.as_ref().is_none_or(|best| measurement.disturbance() < best.disturbance()) {
                best = Some(measurement);
            }
            if quiet {
                break;
            }
        }
        best.context("nothing was measured")
    }

    /// Runs the load program once, disturbed or not: for preparations that are not compared.
    pub(crate) fn once(&self, server: &mut Server, what: &[&str]) -> Result<Measurement> {
        server.check()?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let (operation, rest) = what.split_first().context("no operation to measure")?;
        let mut words: Vec<String> = operation.split(' ').map(str::to_owned).collect();
        words.extend(server.access.iter().cloned());
        words.extend(["--pids".to_owned(), server.pids()]);
        words.extend(rest.iter().map(|word| word.replace(RUN_PREFIX, &format!("run{run}"))));
        // An etcd has no collection.
        if !rest.contains(&"--path") && !server.collection.is_empty() {
            words.extend(["--path".to_owned(), server.collection.clone()]);
        }
        let ticks = || (ticks_of(&server.upstream), machine_ticks().1);
        let (upstream, all) = ticks();
        let mut measurement = self.run_load(&words)?;
        let (upstream_after, all_after) = ticks();
        #[expect(clippy::cast_precision_loss, reason = "differences of minutes")]
        let share = (upstream_after - upstream) as f64 / (all_after - all).max(1) as f64;
        measurement.upstream_share = share;
        println!("    {}", summary(server.name, operation, &measurement));
        Ok(measurement)
    }

    /// Runs the load program with these arguments.
    pub(crate) fn run_load(&self, words: &[String]) -> Result<Measurement> {
        self.stop.check()?;
        let mut child = Command::new(&self.load)
            .arg("--json")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.load.display()))?;
        // The program prints only one line, which fits into a pipe.
        let status = self.stop.wait_for_end(&mut child)?;
        let output = child.wait_with_output()?;
        if !status.success() {
            bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        let values =
            serde_json::from_slice(&output.stdout).context("the load program printed no JSON")?;
        Ok(Measurement { values, upstream_share: 0.0 })
    }
}

fn summary(server: &str, operation: &str, measurement: &Measurement) -> String {
    let times = if operation == "watch" { "delivery_microseconds" } else { "latency_microseconds" };
    format!(
        "{server:<8} {operation:<12} {:>8.0}/s  p50 {:>7.0} µs  p99 {:>8.0} µs  CPU {:>8.1} µs/request  \
         others {:>3.0} %",
        measurement.per_second(),
        measurement.number(&format!("{times}.p50")),
        measurement.number(&format!("{times}.p99")),
        measurement.cpu(),
        measurement.disturbance() * 100.0,
    )
}
