//! The figures of this process from the system, with the names that all Prometheus clients use. A figure
//! that the system does not provide is omitted.

use std::fmt::Write as _;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::format::head;

/// Appends the metrics of the process.
pub(super) fn write(text: &mut String, started_seconds: i64) {
    let mut line = |name: &str, kind: &str, help: &str, value: Option<String>| {
        if let Some(value) = value {
            head(text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        }
    };
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let used = format!("{}.{:09}", used.tv_sec, used.tv_nsec);
    line("process_cpu_seconds_total", "counter", "Processor time used, in seconds.", Some(used));
    #[expect(clippy::disallowed_methods, reason = "the system's figures of this process")]
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    line(
        "process_resident_memory_bytes",
        "gauge",
        "Memory in use, in bytes.",
        bytes_of(&status, "VmRSS:"),
    );
    line(
        "process_virtual_memory_bytes",
        "gauge",
        "Address space in use, in bytes.",
        bytes_of(&status, "VmSize:"),
    );
    let open = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count().to_string());
    line("process_open_fds", "gauge", "Open file descriptors.", open);
    let most = getrlimit(Resource::Nofile).current.map(|most| most.to_string());
    line("process_max_fds", "gauge", "File descriptors that may be open.", most);
    line(
        "process_start_time_seconds",
        "gauge",
        "When the process started to serve, in seconds since 1970.",
        Some(started_seconds.to_string()),
    );
}

/// The value of a line such as `VmRSS:     1234 kB`, in bytes.
fn bytes_of(status: &str, name: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kibibytes * 1024).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kibibytes_are_read() {
        let status = "Name:\tpostern\nVmRSS:\t    1234 kB\nVmData:\tx\n";
        assert_eq!(bytes_of(status, "VmRSS:"), Some("1263616".to_owned()));
        assert_eq!(bytes_of(status, "VmSize:"), None);
        assert_eq!(bytes_of(status, "VmData:"), None);
    }
}
