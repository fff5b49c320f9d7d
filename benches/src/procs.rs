//! The cost of processes: processor time and memory, from `/proc`. The use of the rest of the
//! machine at the same time says how far a measurement can be trusted.

use std::path::Path;

use serde_json::{Value, json};

/// The kernel reports processor time in hundredths of a second, regardless of the length of its
/// tick.
const TICKS_PER_SECOND: f64 = 100.0;

/// `postern-bench stat`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Processes, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    pids: Vec<u32>,
}

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and system time of all threads, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Resident memory, in KiB.
    pub(crate) rss_kib: u64,
    /// The peak of resident memory, in KiB.
    pub(crate) peak_rss_kib: u64,
}

/// The resources that a process has used; zeros if there is no such process.
pub(crate) fn usage(pid: u32) -> Usage {
    let directory = Path::new("/proc").join(pid.to_string());
    let read = |name| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let (status, stat) = (read("status"), read("stat"));
    Usage {
        cpu_seconds: process_seconds(&stat),
        rss_kib: kib(&status, "VmRSS:"),
        peak_rss_kib: kib(&status, "VmHWM:"),
    }
}

/// The sum over processes. Peaks are summed too: the sum is an upper bound.
pub(crate) fn usage_of_all(pids: &[u32]) -> Usage {
    pids.iter().map(|pid| usage(*pid)).fold(Usage::default(), |sum, one| Usage {
        cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
        rss_kib: sum.rss_kib + one.rss_kib,
        peak_rss_kib: sum.peak_rss_kib + one.peak_rss_kib,
    })
}

/// The result of `postern-bench stat`.
pub(crate) fn stat(options: &Options) -> Value {
    let usage = usage_of_all(&options.pids);
    json!({
        "op": "stat",
        "cpu_seconds": usage.cpu_seconds,
        "rss_kib": usage.rss_kib,
        "peak_rss_kib": usage.peak_rss_kib,
    })
}

fn kib(status: &str, field: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Fields 14 and 15 of `/proc/PID/stat`; the second field may contain spaces and parentheses.
fn process_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().skip(11).take(2).filter_map(parse).sum::<f64>() / TICKS_PER_SECOND
}

fn parse(number: &str) -> Option<f64> {
    number.parse().ok()
}

/// The time that all processors were busy, and time that the hypervisor took, in seconds.
fn machine_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    machine_line(stat.lines().next().unwrap_or_default())
}

fn machine_line(line: &str) -> (f64, f64) {
    let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(parse).collect();
    let at = |index: usize| fields.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
    // user, nice, system, idle, iowait, irq, softirq, steal
    (at(0) + at(1) + at(2) + at(5) + at(6), at(7))
}

/// A measurement that has begun, with the state at its start.
pub(crate) struct Meter {
    pids: Vec<u32>,
    started: std::time::Instant,
    servers: Usage,
    own: Usage,
    busy_seconds: f64,
    stolen_seconds: f64,
}

impl Meter {
    /// Starts to measure these servers.
    pub(crate) fn start(pids: &[u32]) -> Self {
        let (busy_seconds, stolen_seconds) = machine_seconds();
        Self {
            pids: pids.to_vec(),
            started: std::time::Instant::now(),
            servers: usage_of_all(pids),
            own: usage(std::process::id()),
            busy_seconds,
            stolen_seconds,
        }
    }

    /// Ends the measurement, and puts the usage into `into`. The servers' processor time is divided
    /// by `requests`.
    pub(crate) fn stop(&self, requests: u64, into: &mut Value) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (busy, stolen) = machine_seconds();
        let servers = usage_of_all(&self.pids);
        let server_seconds = servers.cpu_seconds - self.servers.cpu_seconds;
        let own_seconds = usage(std::process::id()).cpu_seconds - self.own.cpu_seconds;
        let other_seconds = (busy - self.busy_seconds - server_seconds - own_seconds).max(0.0);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let (requests, capacity) = (requests.max(1) as f64, seconds * cores as f64);
        into["seconds"] = json!(round(seconds));
        into["server_cpu_microseconds_per_request"] = json!(round(server_seconds * 1e6 / requests));
        into["server_cpu_seconds"] = json!(round(server_seconds));
        into["client_cpu_seconds"] = json!(round(own_seconds));
        into["other_cpu_share"] = json!(round(other_seconds / capacity));
        into["stolen_share"] = json!(round((stolen - self.stolen_seconds) / capacity));
        into["rss_kib"] = json!(servers.rss_kib);
        into["peak_rss_kib"] = json!(servers.peak_rss_kib);
    }
}

/// The number with three decimals, which is more than can be measured.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_hostile_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0";
        assert!((process_seconds(stat) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_read_by_name() {
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!((kib(status, "VmRSS:"), kib(status, "VmHWM:")), (1024, 2048));
        assert_eq!(kib(status, "VmSwap:"), 0);
    }

    #[test]
    fn waiting_is_not_work() {
        let (busy, stolen) = machine_line("cpu 100 0 100 5000 700 0 100 50 0 0");
        assert!((busy - 3.0).abs() < 1e-9 && (stolen - 0.5).abs() < 1e-9);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage(std::process::id()).rss_kib > 0);
        assert_eq!(usage(u32::MAX), Usage::default());
    }
}
