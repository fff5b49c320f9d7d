//! A report as text: the figures, the lines above the tables, and the tables.

use super::report::{Report, Traffic};
use crate::output::escape;

/// Stands for a figure that is not known.
const UNKNOWN: &str = "-";

/// A table of a report.
pub(super) struct Table {
    /// The headings of the columns.
    pub(super) headings: Vec<String>,
    /// The rows, the most important first.
    pub(super) rows: Vec<Vec<String>>,
    /// What to say in place of the rows, if there are none.
    pub(super) empty: String,
}

/// The lines above the tables, in columns: a name, and figures.
pub(super) fn summary(report: &Report) -> Vec<Vec<String>> {
    let line = |name: &str, figures: &[String]| {
        let mut cells = vec![name.to_owned()];
        cells.extend_from_slice(figures);
        cells
    };
    let (requests, store, clusters) = (&report.requests, &report.store, &report.clusters);
    let mut lines = vec![
        line(
            "Requests",
            &[
                format!("{}/s", rate(requests.rate)),
                format!("errors {}/s", rate(requests.errors)),
                format!("rejected {}/s", rate(requests.rejected)),
                format!("p50 {}", duration(requests.p50_seconds)),
                format!("p99 {}", duration(requests.p99_seconds)),
            ],
        ),
        line("In flight", &in_flight(report)),
        line(
            "Watches",
            &[count(Some(report.watches.0)), format!("events {}/s", rate(report.watches.1))],
        ),
        line(
            "Store",
            &[
                format!("{} transactions/s", rate(store.transactions)),
                format!("revision {}", count(store.revision)),
                format!("lag {}", count(store.lag)),
                format!("commit p50 {}", duration(store.commit_p50_seconds)),
                format!("commit p99 {}", duration(store.commit_p99_seconds)),
                format!("disk {} free", bytes(store.free_bytes)),
            ],
        ),
        line(
            "Clusters",
            &[
                phases(report),
                format!("agents {}", count(clusters.agents)),
                format!("forwarded {}/s", rate(clusters.requests)),
                format!("failed {}/s", rate(clusters.failures)),
                format!("connections {}", count(clusters.connections)),
                format!("streams {}", count(clusters.streams)),
            ],
        ),
    ];
    let process = &report.process;
    let (open, limit) = report.connections;
    let processors = process.processors.map(|used| used * 100.0);
    lines.push(line(
        "Process",
        &[
            format!("cpu {}%", count(processors)),
            format!("memory {}", bytes(process.memory_bytes)),
            format!("files {}", count(process.open_files)),
            format!("connections {} of {}", count(open), count(limit)),
        ],
    ));
    lines
}

fn in_flight(report: &Report) -> Vec<String> {
    let class = |name: &str| match name {
        "readOnly" => "reads".to_owned(),
        "mutating" => "writes".to_owned(),
        "proxied" => "to clusters".to_owned(),
        other => escape(other),
    };
    let figures = report.in_flight.iter().map(|one| {
        let (running, waiting) = (count(Some(one.running)), count(Some(one.waiting)));
        format!("{} {running} ({waiting} waiting)", class(&one.class))
    });
    figures.collect()
}

fn phases(report: &Report) -> String {
    let phases = report.clusters.by_phase.iter();
    let phases: Vec<String> = phases
        .map(|(phase, number)| format!("{} {}", count(Some(*number)), escape(phase)))
        .collect();
    let all = count(report.clusters.stored);
    if phases.is_empty() { all } else { format!("{all}: {}", phases.join(", ")) }
}

/// The tables of a report, the most important first.
pub(super) fn tables(report: &Report) -> Vec<Table> {
    let headings = |of: &[&str]| of.iter().map(|heading| (*heading).to_owned()).collect();
    let mut tables = vec![owners(report)];
    let requests = report.by_resource.iter().map(|row| {
        let resource = if row.resource.is_empty() { "(other)" } else { &row.resource };
        let Traffic { rate: all, errors, rejected, p50_seconds, p99_seconds } = &row.traffic;
        vec![
            escape(&row.verb),
            escape(resource),
            rate(*all),
            rate(*errors),
            rate(*rejected),
            duration(*p50_seconds),
            duration(*p99_seconds),
        ]
    });
    tables.push(Table {
        headings: headings(&["VERB", "RESOURCE", "REQ/S", "ERRORS/S", "REJECTED/S", "P50", "P99"]),
        rows: requests.collect(),
        empty: no_rates(report, "no requests"),
    });
    let watches = report
        .by_watched
        .iter()
        .map(|row| vec![escape(&row.resource), count(Some(row.open)), rate(row.events)]);
    tables.push(Table {
        headings: headings(&["WATCHED RESOURCE", "OPEN", "EVENTS/S"]),
        rows: watches.collect(),
        empty: "no watches".to_owned(),
    });
    tables
}

fn owners(report: &Report) -> Table {
    let (rows, empty) = match &report.owners {
        Ok(owners) => (owners.as_slice(), no_rates(report, "no requests")),
        Err(reason) => (&[][..], escape(reason)),
    };
    let rows = rows.iter().map(|row| {
        let share = row.share.map_or(UNKNOWN.to_owned(), |share| format!("{:.0}%", share * 100.0));
        vec![escape(&row.owner), rate(row.rate), share, count(Some(row.watches))]
    });
    Table {
        headings: ["OWNER", "REQ/S", "SHARE", "WATCHES"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty,
    }
}

fn no_rates(report: &Report, otherwise: &str) -> String {
    if report.seconds.is_some() { otherwise.to_owned() } else { "no rates yet".to_owned() }
}

/// A number per second: with a decimal place below 100.
fn rate(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

fn count(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.0}"))
}

/// Seconds in the unit that fits.
fn duration(seconds: Option<f64>) -> String {
    match seconds {
        None => UNKNOWN.to_owned(),
        Some(seconds) if seconds < 0.01 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

fn bytes(value: Option<f64>) -> String {
    let Some(mut value) = value else { return UNKNOWN.to_owned() };
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    let places = usize::from(value < 10.0 && unit != "B");
    format!("{value:.places$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, want) in
            [(None, "-"), (Some(0.0), "0.0"), (Some(99.94), "99.9"), (Some(1234.5), "1234")]
        {
            assert_eq!(rate(value), want);
        }
        for (seconds, want) in [
            (None, "-"),
            (Some(0.0042), "4.2ms"),
            (Some(0.0421), "42ms"),
            (Some(0.999), "999ms"),
            (Some(60.0), "60.0s"),
        ] {
            assert_eq!(duration(seconds), want);
        }
        for (value, want) in [
            (None, "-"),
            (Some(1023.0), "1023 B"),
            (Some(1536.0), "1.5 KiB"),
            (Some(80.0 * 1024.0 * 1024.0), "80 MiB"),
            (Some(3e15), "2728 TiB"),
        ] {
            assert_eq!(bytes(value), want);
        }
    }
}
