//! Instruction counts: fixed scenarios under callgrind, compared with a committed table.
//!
//! [`scenarios`] lists the counted work; [`callgrind`] counts; [`fixtures`] fills data directories;
//! [`table`] reads and writes `benches/instructions.md`. A count does not depend on the load of the
//! machine, as a time does.

mod callgrind;
mod fixtures;
mod scenarios;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::bench::stop::Stop;
use crate::shell;
use fixtures::Fixtures;
use scenarios::{ALL, Counter, Scenario};
use table::{Row, Table};

/// The committed table.
const TABLE: &str = "benches/instructions.md";

/// A count above the table is repeated until there are this many.
const TRIES: usize = 3;

/// The features of processors that valgrind has and by which libraries choose their code.
const FEATURES: [&str; 8] =
    ["ssse3", "sse4_2", "aes", "pclmulqdq", "avx2", "bmi2", "rdrand", "f16c"];

/// `cargo xtask instructions`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only these scenarios, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Writes the counts into benches/instructions.md
    #[arg(long)]
    write: bool,
    /// Counts each scenario so often, takes the least count, and prints the spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Counts this build of the server, and the load program next to it, in place of a new build
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Keeps callgrind's files in this directory, for `callgrind_annotate`
    #[arg(long, value_name = "DIR")]
    profile_dir: Option<PathBuf>,
}

/// Counts the scenarios that are wanted, and compares or writes them.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    for name in &options.only {
        let known = ALL.iter().any(|scenario| scenario.name == name);
        ensure!(known, "there is no scenario {name}: benches/instructions.md lists them");
    }
    let is_wanted = |scenario: &&Scenario| {
        options.only.is_empty() || options.only.iter().any(|name| name == scenario.name)
    };
    callgrind::fetch()?;
    std::env::set_current_dir(root).context("cannot go to the workspace's directory")?;
    let counter = Counter {
        bench: programs(root, options)?,
        fixtures: Fixtures::default(),
        profiles: options.profile_dir.clone(),
    };
    if let Some(directory) = &options.profile_dir {
        std::fs::create_dir_all(directory)?;
    }
    let path = root.join(TABLE);
    let mut table = Table::read(&path)?;
    let counted_with = counted_with()?;
    println!("    {:<24} {:>12} {:>12} {:>11}", "scenario", "committed", "now", "difference");
    let mut above = Vec::new();
    for scenario in ALL.iter().filter(is_wanted) {
        let committed = table.rows.get(scenario.name).cloned().unwrap_or_default();
        let now = least_count(&counter, scenario, &committed, options.rounds.max(1))?;
        if is_above(&committed, now)? && !options.write {
            above.push(scenario.name);
        }
        table.rows.insert(scenario.name.to_owned(), committed.with(now));
    }
    if options.write {
        table.counted_with = counted_with;
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        table.write(&path, &names)?;
        println!("    written: {TABLE}");
    } else if table.counted_with != counted_with {
        println!("    counted with:      {counted_with}");
        println!("    the table is from: {}", table.counted_with);
    }
    ensure!(
        above.is_empty(),
        "more instructions than {TABLE} permits: {}. Find the cause with --profile-dir, or commit new counts, which \
         --write writes, and the reason",
        above.join(", ")
    );
    Ok(())
}

/// Counts a scenario, and prints its row. Other processes on the machine cause additional wakes and timers in the server,
/// so the least of several counts is the truest. A count above the table is repeated.
fn least_count(
    counter: &Counter,
    scenario: &Scenario,
    committed: &Row,
    rounds: u32,
) -> Result<u64> {
    let started = Instant::now();
    let mut counts = Vec::new();
    let (mut least, mut most) = (u64::MAX, 0);
    while counts.len() < rounds as usize || (is_above(committed, least)? && counts.len() < TRIES) {
        let count = counter.count(scenario);
        let count = count.with_context(|| format!("{} was not counted", scenario.name))?;
        (least, most) = (least.min(count), most.max(count));
        counts.push(count.to_string());
    }
    let (before, difference) = if committed.instructions > 0 {
        (committed.instructions.to_string(), format!("{:+.2} %", percent(committed, least)))
    } else {
        ("–".to_owned(), "new".to_owned())
    };
    let (name, seconds) = (scenario.name, started.elapsed().as_secs_f64());
    println!("    {name:<24} {before:>12} {least:>12} {difference:>11}   ({seconds:.1} s)");
    if counts.len() > 1 {
        let spread = percent(&Row::default().with(least), most);
        println!("    {:<24} {}: {spread:.2} % apart", "", counts.join(" "));
    }
    Ok(least)
}

/// How much more this is than the row says, in percent.
fn percent(row: &Row, now: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (now, before) = (now as f64, row.instructions.max(1) as f64);
    (now / before - 1.0) * 100.0
}

/// Whether a count is above the limit of its row. A new scenario has no row yet.
fn is_above(row: &Row, now: u64) -> Result<bool> {
    Ok(row.instructions > 0 && percent(row, now) > row.tolerance_percent()?)
}

/// The programs that are given, or a new build of them.
fn programs(root: &Path, options: &Options) -> Result<Bench> {
    let postern = if let Some(path) = &options.binary {
        std::path::absolute(path)?
    } else {
        // The profile is that of a release and of `cargo xtask bench`. A profile without link-time
        // optimization takes as long to build, and its programs execute 5 % more.
        for package in ["postern", "postern-bench"] {
            shell::run(shell::cargo().args(["build", "--release", "-p", package]))?;
        }
        shell::target_directory(root)?.join("release").join("postern")
    };
    let load = postern.with_file_name("postern-bench");
    Ok(Bench { postern, load, root: root.to_owned(), quick: false, stop: Stop::new()? })
}

/// The facts that counts depend on, apart from the code: valgrind, the compiler, and the features
/// of the processor.
fn counted_with() -> Result<String> {
    let rustc = shell::output_of(Command::new("rustc").arg("--version"))?;
    let processors = std::fs::read_to_string("/proc/cpuinfo")?;
    let flags = processors.lines().find(|line| line.starts_with("flags"));
    let flags = flags.context("counts are compared only between x86-64 processors")?;
    let has = |feature: &&&str| flags.split_whitespace().any(|flag| flag == **feature);
    let features: Vec<_> = FEATURES.iter().filter(has).copied().collect();
    Ok(format!("{}, {rustc}, {}", callgrind::version()?, features.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_than_the_tolerance_is_above() {
        let row = Row::default().with(1000);
        assert!(!is_above(&row, 1029).unwrap());
        assert!(is_above(&row, 1031).unwrap());
        assert!(!is_above(&row, 500).unwrap());
        assert!(!is_above(&Row::default(), 1000).unwrap());
    }
}
