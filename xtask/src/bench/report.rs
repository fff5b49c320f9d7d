//! The results, stored by group, and written as `docs/benchmarks.md`. Nothing is measured here.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::load::Measurement;
use super::machine::Machine;
use super::server::Server;
use super::{Bench, version};

/// The results of a group.
#[derive(Serialize, Deserialize)]
pub(crate) struct Section {
    quick: bool,
    machine: Machine,
    /// Programs and their versions.
    versions: Vec<String>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

impl Section {
    /// A section without results, for these servers.
    pub(crate) fn new(servers: &[&Server], bench: &Bench) -> Self {
        let versions = servers.iter().filter_map(|server| match server.name {
            "nginx" => Some(version(Path::new("nginx"), "-v").replace("nginx version: ", "")),
            "openbao" => {
                crate::fetch::openbao(&bench.root).ok().map(|bao| version(&bao, "version"))
            }
            _ => None,
        });
        let versions = std::iter::once(version(&bench.postern, "--version")).chain(versions);
        Self {
            quick: bench.quick,
            machine: Machine::here(),
            versions: versions.collect(),
            ratios: Vec::new(),
            figures: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// The limit that a number has to meet.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// A measured number with a target.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ratio {
    what: String,
    wanted: Wanted,
    /// The median of the rounds.
    measured: f64,
    rounds: Vec<f64>,
    /// The peer's processor time divided by Postern's for the same work. It is above 1 if Postern
    /// needs less.
    cpu: Option<f64>,
}

impl Ratio {
    /// The median of the rounds' ratios, and prints it.
    pub(crate) fn of_rounds(
        what: &str,
        wanted: Wanted,
        rounds: Vec<f64>,
        cpu_rounds: Option<Vec<f64>>,
    ) -> Self {
        let (measured, cpu) = (median(&rounds), cpu_rounds.map(|rounds| median(&rounds)));
        let ratio = Self { what: what.to_owned(), wanted, measured, rounds, cpu };
        println!("  > {}", ratio.row());
        ratio
    }

    fn is_met(&self) -> bool {
        match self.wanted {
            Wanted::AtLeast(limit) => self.measured >= limit,
            Wanted::AtMost(limit) => self.measured <= limit,
        }
    }

    fn row(&self) -> String {
        let wanted = match self.wanted {
            Wanted::AtLeast(limit) => format!("≥ {}", short(limit)),
            Wanted::AtMost(limit) => format!("≤ {}", short(limit)),
        };
        let cpu = self.cpu.map_or("–".to_owned(), short);
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = match self.rounds.len() {
            0 | 1 => "–".to_owned(),
            _ => format!("{} to {}", short(least), short(most)),
        };
        let met = if self.is_met() { "yes" } else { "**no**" };
        let measured = short(self.measured);
        format!("| {} | {cpu} | {measured} | {spread} | {wanted} | {met} |", self.what)
    }
}

/// The results of the rounds of a comparison.
#[derive(Default)]
pub(crate) struct Rounds {
    quiet: Vec<(f64, f64)>,
    disturbed: Vec<(f64, f64)>,
}

impl Rounds {
    /// Adds a round: the ratio of Postern's number to the peer's, as `of` reads them, and the ratio
    /// of the peer's processor time to Postern's.
    pub(crate) fn add(
        &mut self,
        ours: &Measurement,
        theirs: &Measurement,
        of: impl Fn(&Measurement) -> f64,
    ) {
        let ratio = |a: f64, b: f64| a / b.max(0.001);
        let round = (ratio(of(ours), of(theirs)), ratio(theirs.cpu(), ours.cpu()));
        let quiet = ours.is_quiet() && theirs.is_quiet();
        if quiet { &mut self.quiet } else { &mut self.disturbed }.push(round);
    }

    /// The rounds that were not disturbed; all of them if there is none.
    fn valid(&self) -> (Vec<f64>, Vec<f64>) {
        let rounds = if self.quiet.is_empty() { &self.disturbed } else { &self.quiet };
        rounds.iter().copied().unzip()
    }

    /// The median ratio of the rounds with its target.
    pub(crate) fn ratio(&self, what: &str, wanted: Wanted) -> Ratio {
        let (rounds, costs) = self.valid();
        Ratio::of_rounds(what, wanted, rounds, Some(costs))
    }
}

/// An absolute figure.
#[derive(Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) run: String,
    pub(crate) server: String,
    /// With their units.
    pub(crate) values: Vec<String>,
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The number without decimals from 100 on, with two decimals below.
fn short(number: f64) -> String {
    if number.abs() >= 100.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

/// Stores the results of a group.
pub(crate) fn store(directory: &Path, name: &str, section: &Section) -> Result<()> {
    let text = serde_json::to_string_pretty(section)?;
    std::fs::write(directory.join(format!("{name}.json")), text).context("cannot store the results")
}

/// Writes `docs/benchmarks.md` from all stored results of groups, each by its name and title.
pub(crate) fn write<'a>(
    root: &Path,
    directory: &Path,
    titles: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    let mut sections = Vec::new();
    for (name, title) in titles {
        let path = directory.join(format!("{name}.json"));
        if let Ok(text) = std::fs::read_to_string(&path) {
            // Results of an older version of this program are left out until they are measured again.
            if let Ok(section) = serde_json::from_str::<Section>(&text) {
                sections.push((title, section));
            }
        }
    }
    let path = root.join("docs").join("benchmarks.md");
    std::fs::write(&path, render(&sections))
        .with_context(|| format!("cannot write {}", path.display()))
}

const HEAD: &str = "# Benchmarks

Written by `cargo xtask bench`; do not edit. Every comparison is made within one run, with the servers in
alternation. The median of the rounds' ratios counts. The machine also runs the client, so absolute
figures mean little, ratios mean more, and processor time for each request varies least.
A measurement that other processes disturbed by more than 8 % of the machine is repeated up to twice.
Rounds that stay disturbed count only if there are no others.

`CPU` is the peer's processor time for the same work divided by ours: above 1, ours takes less.

";

/// Explanations of the results, written by hand.
const NOTES: &str = include_str!("notes.md");

const HOW: &str = "
## How

- The client is `postern-bench` (in `benches/`), on the same machine, with one thread (two for overload).
  All traffic is TLS 1.3 over loopback, HTTP/1.1 with connections kept open, 32 of them unless it
  says otherwise, each with one request at a time.
- Postern runs with its defaults: objects are encrypted at rest, and durable before they are
  acknowledged. An object is a SharedSecret of about 1 KB as it is stored.
- nginx has one worker, no access log, connections that are never closed, an open file cache, and a
  certificate of the same kind (ECDSA P-256).
- OpenBao has raft storage on the same disk, no audit, no mlock, and the key-value engine without
  versions, which is the faster one. Its values have about 1 KB, as our objects without their managed
  fields.
- CPU for each request is user and system time of all of the server's processes, from `/proc`.
- A ratio of requests a second is bounded by what one client thread can send.
";

fn render(sections: &[(&str, Section)]) -> String {
    let mut text = HEAD.to_owned();
    for line in about(sections) {
        writeln!(text, "- {line}").ok();
    }
    text.push_str("\n## Ratios and targets\n");
    for (title, section) in sections {
        let quick = if section.quick { " (a quick run: an indication only)" } else { "" };
        writeln!(text, "\n### {}{quick}\n", capitalised(title)).ok();
        text.push_str("| what | CPU | measured, median | rounds | wanted | met |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for ratio in &section.ratios {
            writeln!(text, "{}", ratio.row()).ok();
        }
        for note in &section.notes {
            writeln!(text, "\n{note}").ok();
        }
    }
    text.push_str("\n## Absolute figures\n\nOne row for each round.\n");
    for (title, section) in sections {
        writeln!(
            text,
            "\n### {}: figures\n\n| run | server | figures |\n|---|---|---|",
            capitalised(title)
        )
        .ok();
        for figure in &section.figures {
            writeln!(text, "| {} | {} | {} |", figure.run, figure.server, figure.values.join(", "))
                .ok();
        }
    }
    text.push_str(NOTES);
    text.push_str(HOW);
    text
}

/// The machines and the versions of the programs, each once.
fn about(sections: &[(&str, Section)]) -> Vec<String> {
    let mut lines = Vec::new();
    let machines = sections.iter().map(|(_, section)| {
        let Machine { cores, memory_gib, kernel, processor } = &section.machine;
        format!("Machine: {cores} cores ({processor}), {memory_gib} GiB, Linux {kernel}")
    });
    let versions = sections.iter().flat_map(|(_, section)| section.versions.iter().cloned());
    for line in machines.chain(versions) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn capitalised(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }

    #[test]
    fn a_target_is_met_or_not() {
        let met = |wanted, measured| Ratio::of_rounds("x", wanted, vec![measured], None).is_met();
        assert!(met(Wanted::AtLeast(0.6), 0.6) && !met(Wanted::AtLeast(0.6), 0.59));
        assert!(met(Wanted::AtMost(1.3), 1.3) && !met(Wanted::AtMost(1.3), 1.31));
    }
}
