//! The machine of the measurements: its description, and whether it is quiet.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::stop::Stop;

/// Other processes that use more than this share of all processors disturb a measurement.
pub(crate) const QUIET_SHARE: f64 = 0.08;

/// The longest wait for a quiet machine.
const QUIET_TIMEOUT: Duration = Duration::from_secs(20);

/// The time in which the processors are watched to see whether they are idle.
const SAMPLE: Duration = Duration::from_millis(700);

/// The description of the machine in the report.
#[derive(Serialize, Deserialize, Clone, Default)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) processor: String,
}

impl Machine {
    /// The machine that this runs on.
    pub(crate) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (memory, processors) = (read("/proc/meminfo"), read("/proc/cpuinfo"));
        let kib: u64 =
            field(&memory, "MemTotal:").split(' ').next().unwrap_or("").parse().unwrap_or(0);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_gib: kib.div_ceil(1 << 20),
            // The rest of the version is the distributor's, and means nothing to a reader.
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            processor: field(&processors, "model name").trim_start_matches([':', ' ']).to_owned(),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

/// Waits for a quiet machine, or until it takes too long.
pub(crate) fn wait_for_quiet(stop: &Stop) -> Result<()> {
    let deadline = Instant::now() + QUIET_TIMEOUT;
    loop {
        let (busy, all) = ticks();
        stop.sleep(SAMPLE)?;
        let (busy_after, all_after) = ticks();
        #[expect(clippy::cast_precision_loss, reason = "differences of a second")]
        let share = (busy_after - busy) as f64 / (all_after - all).max(1) as f64;
        if share < QUIET_SHARE || Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// The ticks that these processes have used since their start; they are separated by commas.
pub(crate) fn ticks_of(pids: &str) -> u64 {
    let of = |pid: &str| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The text after the name in parentheses begins with the third field; ticks are the 14th and 15th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    pids.split(',').filter_map(of).sum()
}

/// The busy and all ticks of all processors since the start.
pub(crate) fn ticks() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
    let all: u64 = fields.iter().sum();
    // The fourth and fifth are idle and waiting for the disk.
    (all - fields.iter().skip(3).take(2).sum::<u64>(), all)
}
